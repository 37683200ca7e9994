"""python -m fused_embedding inspect: every field, of every kind of checkpoint, and damage."""

import collections
import functools
import io
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import processes
from checkpoint.saved_tables import (
    DIM,
    NAME,
    NUM_STEPS,
    OPTIONS,
    PARTITIONS,
    Program,
    content_of,
    eager,
    keys_of_step,
    make,
    parts_of,
    train_step,
)
from convert import deeprec_files
from fused_embedding import extras
from fused_embedding.inspection import inspect_command, report
from fused_embedding.inspection.checkpoint_tables import (
    CheckpointError,
    DamagedTable,
    Table,
    read_tables,
)
from fused_embedding.variable.row_size import RowLayout

v1 = tf.compat.v1
DTYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16]

needs_matplotlib = pytest.mark.skipif(
    not extras.is_installed("matplotlib"), reason="matplotlib is not installed"
)


def trained(partitions=None, option="plain", **kwargs):
    table = make(partitions, option, **kwargs)
    for step in range(NUM_STEPS):
        train_step(table, keys_of_step(step), step)
    return table


def by_object(tmp_path, partitions, option):
    table = trained(partitions, option)
    path = tf.train.Checkpoint(model=table).save(str(tmp_path / "ckpt"))
    return path, content_of(table, eager), len(parts_of(table))


def as_saved_model(tmp_path, partitions, option):
    module = tf.Module()
    module.model = trained(partitions, option)
    tf.saved_model.save(module, str(tmp_path))
    return str(tmp_path), content_of(module.model, eager), len(parts_of(module.model))


def by_saver(make_saver, is_streamed):
    def save(tmp_path, partitions, option):
        program = Program(partitions, option, make_saver)
        program.train(range(NUM_STEPS))
        num_files = len(parts_of(program.variable)) if is_streamed else 0
        return program.save(tmp_path / "ckpt"), program.content(), num_files

    return save


WRITERS = {
    "object": by_object,
    "saved_model": as_saved_model,
    "fe_saver": by_saver(lambda: fe.train.Saver(), True),
    "stock_saver": by_saver(lambda: v1.train.Saver(), False),
}
NAMES = dict.fromkeys(("object", "saved_model"), "model") | dict.fromkeys(
    ("fe_saver", "stock_saver"), NAME
)


def pairs(frequencies, versions):
    return collections.Counter(zip(frequencies.tolist(), versions.tolist(), strict=True))


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("partitions", PARTITIONS)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_field(writer, partitions, option, tmp_path):
    path, want, num_files = WRITERS[writer](tmp_path, partitions, option)
    (table,) = read_tables(path)
    assert isinstance(table, Table)
    assert table.name == NAMES[writer]
    assert (table.layout.dim, table.layout.dtype) == (DIM, tf.float32)
    slots = dict(zip(want["slot_names"].astype(str), want["slot_widths"], strict=True))
    assert table.slots == slots
    assert len(slots) == 2
    assert table.layout.slot_width == sum(slots.values())
    assert table.updates == want["step"]
    assert pairs(*table.use) == pairs(want["frequencies"], want["versions"])
    assert pairs(*table.waiting) == pairs(want["filtered_frequencies"], want["filtered_versions"])
    assert (table.num_rows, table.num_waiting) == (len(want["keys"]), len(want["filtered_keys"]))
    assert table.now == NUM_STEPS - 1
    np.testing.assert_array_equal(np.sort(table.ages), np.sort(NUM_STEPS - 1 - want["versions"]))
    assert table.num_files == num_files
    assert table.bloom_bytes == want["bloom"].size
    expected = {"plain": "all", "counter": "counter", "bloom": "bloom"}[option]
    if not num_files:  # tensors do not say
        expected = "bloom" if option == "bloom" else "unknown"
    assert table.admission == expected
    if num_files:
        files = [file for file in pathlib.Path(tmp_path).rglob("*.data-e*") if file.is_file()]
        assert table.saved_bytes == sum(file.stat().st_size for file in files)
        assert len(files) == num_files
    else:
        assert table.saved_bytes >= want["values"].nbytes + want["slots"].nbytes


def test_updates_are_those_of_the_partition_that_has_most(tmp_path):
    table = trained(3)
    train_step(parts_of(table)[1], [5], NUM_STEPS)
    path = tf.train.Checkpoint(table=table).save(str(tmp_path / "ckpt"))
    (found,) = read_tables(path)
    assert found.updates == content_of(table, eager)["step"] == (NUM_STEPS + 1) * 2


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype(dtype, streams, tmp_path):
    program = Program(2, make_saver=fe.train.Saver if streams else v1.train.Saver, dtype=dtype)
    program.train(range(NUM_STEPS))
    (table,) = read_tables(program.save(tmp_path / "ckpt"))
    assert table.layout.dtype == dtype
    assert table.num_rows == len(program.content()["keys"])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_a_row_has_the_bytes_that_it_has_in_the_file(dtype, tmp_path):
    def saved(num_keys):
        table = make(dtype=dtype)
        train_step(table, np.arange(num_keys), 1)
        path = tf.train.Checkpoint(table=table).save(str(tmp_path / f"of_{num_keys}"))
        return next(read_tables(path))

    few, many = saved(1000), saved(3000)
    per_row = (many.saved_bytes - few.saved_bytes) / 2000
    assert many.layout.row_bytes == pytest.approx(per_row, abs=0.5)  # headers of blocks


@pytest.mark.parametrize("num_keys", [100_000, 400_000])
def test_memory_is_what_a_large_table_takes(num_keys):
    table = make(dim=16)
    train_step(table, np.arange(num_keys), 1, rules=["adagrad"])
    layout = RowLayout(16, tf.float32, 16)
    memory = int(table.statistics()["memory_bytes"])
    # It takes memory in chunks, which are counted whole.
    assert 0.99 < memory / (layout.key_bytes * num_keys) < 1.2


@pytest.mark.parametrize("partitions", [None, 2])
@pytest.mark.parametrize("make_saver", [fe.train.Saver, v1.train.Saver])
def test_an_empty_table(make_saver, partitions, tmp_path, capsys):
    path = Program(partitions, make_saver=make_saver).save(tmp_path / "ckpt")
    (table,) = read_tables(path)
    assert (table.num_rows, table.num_waiting, table.now, table.slots) == (0, 0, 0, {})
    assert inspect_command.inspect(path) == 0
    out = capsys.readouterr().out
    assert "rows        0\n" in out
    assert "slots       none\n" in out


def test_the_global_step_is_now(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        table = fe.get_embedding_variable("users", 4)
        rows = tf.nn.embedding_lookup(table, [1, 2])
        session.run(step.initializer)
        session.run(step.assign(100))
        session.run(rows)
        session.run(step.assign(130))
        path = fe.train.Saver().save(session, str(tmp_path / "ckpt"))
    (table,) = read_tables(path)
    assert (table.now, table.ages.tolist()) == (130, [30, 30])


def test_a_checkpoint_without_tables(tmp_path, capsys):
    path = tf.train.Checkpoint(dense=tf.Variable([1.0])).save(str(tmp_path / "ckpt"))
    assert inspect_command.inspect(path) == 0
    assert "tables 0, damaged 0; it has ordinary variables only" in capsys.readouterr().out


def test_names_that_are_like_those_of_tables(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in {"a-keys": [1], "b-files": ["x"], "c-files": [1.0]}.items():
            session.run(v1.get_variable(name, initializer=tf.constant(value)).initializer)
        path = v1.train.Saver().save(session, str(tmp_path / "ckpt"))
    assert list(read_tables(path)) == []


# --- The way to a checkpoint ---


def test_a_folder_is_its_last_checkpoint(tmp_path):
    table = trained()
    checkpoint = tf.train.Checkpoint(table=table)
    checkpoint.save(str(tmp_path / "ckpt"))
    train_step(table, [10**12], 99)
    checkpoint.save(str(tmp_path / "ckpt"))
    counts = [
        next(read_tables(str(tmp_path / name))).num_rows
        for name in ("", "ckpt-1", "ckpt-2", "ckpt-2.index")
    ]
    assert counts == [counts[1] + 1, counts[1], counts[1] + 1, counts[1] + 1]


def test_a_partition_alone_says_so(tmp_path):
    first = parts_of(trained(3))[1]
    path = tf.train.Checkpoint(table=first).save(str(tmp_path / "ckpt"))
    assert [table.name for table in read_tables(path)] == ["table, partition 1 of 3 by hash"]


@pytest.mark.parametrize("name", ["nothing", ""])
def test_no_checkpoint(name, tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        list(read_tables(str(tmp_path / name)))
    assert inspect_command.inspect(str(tmp_path / name)) == 1


# --- Damage ---


def two_tables(tmp_path, partitions=2):
    tables = {"good": trained(), "bad": trained(partitions)}
    path = tf.train.Checkpoint(**tables).save(str(tmp_path / "ckpt"))
    reader = tf.train.load_checkpoint(path)
    (entry,) = (
        name
        for name in reader.get_variable_to_shape_map()
        if name.startswith("bad/") and name.endswith("fused_embedding_files")
    )
    files = [pathlib.Path(path + suffix.decode()) for suffix in reader.get_tensor(entry)]
    assert len(files) == partitions
    return path, files


DAMAGE = {
    "truncated": (lambda content: content[:-10], "truncated"),
    "flipped": (lambda content: content[:500] + b"?" + content[501:], "checksum"),
    "other": (lambda content: b"no table", "truncated"),
    "longer": (lambda content: content + b"x", "bytes follow its end"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_named_and_the_other_table_is_reported(kind, tmp_path, capsys):
    path, files = two_tables(tmp_path)
    change, reason = DAMAGE[kind]
    files[1].write_bytes(change(files[1].read_bytes()))
    bad, good = read_tables(path)
    assert isinstance(bad, DamagedTable)
    assert (bad.name, len(bad.errors)) == ("bad", 1)
    assert str(files[1]) in bad.errors[0]
    assert reason in bad.errors[0]
    assert isinstance(good, Table)
    assert good.name == "good"
    assert inspect_command.inspect(path) == 1
    out = capsys.readouterr().out
    assert f"bad\n  DAMAGED     checkpoint {files[1]} is damaged" in out
    assert f"good\n  rows        {good.num_rows}\n" in out
    assert "tables 2, damaged 1" in out


def test_a_file_that_is_gone_and_one_of_another_table(tmp_path):
    path, files = two_tables(tmp_path, 3)
    other = make(dim=DIM + 1)
    fe.raw_ops.EmbeddingVariableSave(resource=other.handle, path=str(files[0]))
    files[1].unlink()
    bad, _ = read_tables(path)
    assert len(bad.errors) == 2
    assert f"cannot open checkpoint {files[1]}" in bad.errors[0]
    assert "not of one table" in bad.errors[1]


def test_damaged_tensors_are_named(tmp_path):
    program = Program(None)
    program.train(range(NUM_STEPS))
    path = program.save(tmp_path / "ckpt")
    values = program.content()["values"].tobytes()
    (data,) = tmp_path.glob("ckpt.data-*")
    content = data.read_bytes()
    begin = content.index(values)
    data.write_bytes(content[:begin] + b"????" + content[begin + 4 :])
    (bad,) = read_tables(path)
    assert isinstance(bad, DamagedTable)
    assert len(bad.errors) == 1
    assert f"{path}, tensor {NAME}-values: " in bad.errors[0]


def test_a_damaged_index(tmp_path):
    path, _ = two_tables(tmp_path)
    index = pathlib.Path(f"{path}.index")
    index.write_bytes(index.read_bytes()[:50])
    with pytest.raises(CheckpointError, match=f"checkpoint {path} cannot be read"):
        list(read_tables(path))
    assert inspect_command.inspect(path) == 1


# --- What is printed ---


def test_histogram():
    values = np.array([0, 0, 1, 2, 3, 3, 4, 7, 8, 2**32 - 1], np.uint32)
    got = {(least, largest): n for least, largest, n in report.histogram(values) if n}
    want = collections.Counter()
    for value in values.tolist():
        bits = value.bit_length()
        want[(1 << bits - 1, (1 << bits) - 1) if bits else (0, 0)] += 1
    assert got == dict(want)
    assert report.histogram(np.zeros(0, np.uint32)) == []


def test_the_text(tmp_path, capsys):
    path, want, _ = by_object(tmp_path, 2, "counter")
    assert inspect_command.inspect(path) == 0
    out = capsys.readouterr().out
    for line in (
        f"  rows        {len(want['keys'])}\n",
        "  values      dim 3, float32\n",
        "  slots       Adagrad/accumulator [3], Momentum/momentum [3]\n",
        f"  filter      counter, {len(want['filtered_keys'])} keys wait\n",
        "  bytes       56 a row; about ",
        f"  updates     {want['step']}\n",
        "  checksums   good, files: 2\n",
        f"  frequency{'keys':>28}\n",
        "  age at step 5",
    ):
        assert line in out, line
    zero = np.count_nonzero(want["frequencies"] == 0)
    one = np.count_nonzero(want["frequencies"] == 1)
    rows = [line.split() for line in out.splitlines()]
    assert ["0", str(zero)] == next(row[:2] for row in rows if row[:1] == ["0"])
    assert ["1", str(one)] == next(row[:2] for row in rows if row[:1] == ["1"])


@needs_matplotlib
def test_reports(tmp_path, capsys):
    path, files = two_tables(tmp_path)
    files[0].write_bytes(b"")
    assert inspect_command.inspect(path, str(tmp_path / "report.png")) == 1
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert inspect_command.inspect(path, str(tmp_path / "report.html")) == 1
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,iVBOR") == 1
    assert "<h2>good</h2><pre>good\n  rows" in page
    assert f"DAMAGED     checkpoint {files[0]}" in page


def test_names_are_text_in_a_page(tmp_path):
    damaged = DamagedTable("<b>&", ["<script>"])
    report.write_report(str(tmp_path / "report.html"), "<i>", [damaged])
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;&amp;" in page
    assert not {"<b>", "<script>", "<i>"} & set(page.replace(">", "> ").split())


@needs_matplotlib
def test_many_tables_in_one_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_MAX_DRAWN", 2)
    path, _, _ = by_object(tmp_path, None, "plain")
    (table,) = read_tables(path)
    report.write_report(str(tmp_path / "report.png"), "title", [table] * 3)
    report.write_report(str(tmp_path / "none.png"), "title", [])
    assert (tmp_path / "report.png").stat().st_size > (tmp_path / "none.png").stat().st_size


def test_unusable_arguments(tmp_path):
    assert inspect_command.main(["inspect"]) == 2
    assert inspect_command.main(["inspect", "a", "b"]) == 2
    assert inspect_command.inspect("a", "report.pdf") == 2
    path, _, _ = by_object(tmp_path, None, "plain")
    assert inspect_command.inspect(path, str(tmp_path / "no/report.html")) == 2


@pytest.mark.slow
def test_the_commands_of_the_documentation(tmp_path):
    path, _, _ = by_object(tmp_path, 2, "counter")
    run = functools.partial(processes.run_module, "fused_embedding", cwd=tmp_path)

    done = run("inspect", path, "--report=report.html")
    assert done.returncode == 0, done.stderr
    assert "tables 1, damaged 0" in done.stdout
    assert (tmp_path / "report.html").exists()
    (tmp_path / "ids.txt").write_text("1 2 3\n1 2\n1\n")
    done = run("advise", "ids.txt", "--dim=8", "--slots=2", "--thresholds=2")
    assert done.returncode == 0, done.stderr
    assert "CounterFilter(2)" in done.stdout
    next(tmp_path.glob("ckpt-1.data-e*")).write_bytes(b"")
    done = run("inspect", path)
    assert done.returncode == 1
    assert "DAMAGED" in done.stdout
    done = run("inspect", "--help")
    assert "--report" in done.stdout


def saved_tensors(tmp_path):
    """Tensors of a table that the stock Saver would write."""
    with tf.Graph().as_default(), v1.Session() as session:
        table = fe.get_embedding_variable("users", 2)
        session.run(table.upsert([1, 2], [[1.0, 2.0], [3.0, 4.0]]))
        return deeprec_files.read(v1.train.Saver().save(session, str(tmp_path / "saved")))


def test_names_cannot_reach_the_terminal(tmp_path, capsys):
    """Colours, bells, line feeds and text from right to left are shown as escapes."""
    evil = "a\x1b[31mred\x07\r\n\u202e"
    tensors = {k.replace("users", evil): v for k, v in saved_tensors(tmp_path).items()}
    deeprec_files.write(str(tmp_path / "evil"), tensors)
    assert inspect_command.inspect(str(tmp_path / "evil")) == 0
    output = capsys.readouterr().out
    assert output.startswith("a\\x1b[31mred\\x07\\r\\n\\u202e\n  rows        2\n")
    assert not set(output) & set("\x1b\x07\r\u202e")


@pytest.mark.parametrize(
    "change",
    [
        {"values": np.zeros([1, 2], np.float32)},
        {"values": np.float32(1)},
        {"frequencies": np.zeros([3], np.int64)},
        {"slot_names": np.array([b"\xff"])},
        {"slot_widths": np.array([b"x"])},
        {"step": np.zeros([2], np.int64)},
    ],
)
def test_tensors_of_another_kind_are_damage(tmp_path, capsys, change):
    tensors = saved_tensors(tmp_path) | {f"users-{name}": value for name, value in change.items()}
    deeprec_files.write(str(tmp_path / "crafted"), tensors)
    assert inspect_command.inspect(str(tmp_path / "crafted")) == 1
    assert "users\n  DAMAGED     " in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_bar_on_a_terminal_alone(tmp_path, capsys, monkeypatch, stream):
    pytest.importorskip("tqdm")
    deeprec_files.write(str(tmp_path / "saved"), saved_tensors(tmp_path))
    stderr = stream()
    monkeypatch.setattr("sys.stderr", stderr)
    assert inspect_command.inspect(str(tmp_path / "saved")) == 0
    assert ("inspected" in stderr.getvalue()) == stderr.isatty()
    assert "inspected" not in capsys.readouterr().out
