"""Checkpoints of ours, of tf.train.Checkpoint, fe.train.Saver and the stock Saver; the command."""

import doctest
import os
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import flagsaver

import fused_embedding as fe
from checkpoint import saved_tables
from convert import deeprec_files
from fused_embedding import __main__
from fused_embedding.convert import destination, main
from fused_embedding.convert.source import open_source
from fused_embedding.convert.table import ConvertError

ROOT = pathlib.Path(__file__).parents[2]
STEPS = range(saved_tables.NUM_STEPS)


def convert(source, path, to="ours"):
    return destination.write(open_source(str(source), [], None, 0.1), str(path), to, {}, str)


def saved_by(make_saver, tmp_path, partitions, option, **kwargs):
    program = saved_tables.Program(partitions, option, make_saver, **kwargs)
    program.train(STEPS)
    return program.save(tmp_path / "saved"), program.content()


@pytest.mark.parametrize("make_saver", [tf.compat.v1.train.Saver, fe.train.Saver])
@pytest.mark.parametrize("option", saved_tables.OPTIONS)
@pytest.mark.parametrize("partitions", [None, 3])
def test_everything_comes_back(tmp_path, make_saver, option, partitions):
    path, content = saved_by(make_saver, tmp_path, partitions, option)
    saved_tables.assert_whole(content, option)
    lines = convert(path, tmp_path / "ours")
    program = saved_tables.Program(partitions, option)
    program.restore(tmp_path / "ours")
    loses_bloom = option == "bloom" and make_saver is fe.train.Saver
    saved_tables.assert_same(program.content(), content, but=("bloom",) if loses_bloom else ())
    assert ("  not carried: counters of the Bloom filter" in lines) == loses_bloom


@pytest.mark.parametrize("partitions", [None, 3])
def test_series_of_incremental_saves(tmp_path, partitions):
    program = saved_tables.Program(partitions, "counter", lambda: fe.train.Saver(incremental=True))
    for number, step in enumerate(STEPS):
        program.train([step])
        path = program.save(tmp_path / f"saved-{number}")
    assert tf.train.load_variable(path, "users-files").ndim == 2
    convert(path, tmp_path / "ours")
    other = saved_tables.Program(2, "counter")
    other.restore(tmp_path / "ours")
    saved_tables.assert_same(other.content(), program.content())


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16])
def test_types(tmp_path, dtype):
    path, content = saved_by(fe.train.Saver, tmp_path, 2, "plain", dtype=dtype)
    convert(path, tmp_path / "ours")
    program = saved_tables.Program(None, dtype=dtype)
    program.restore(tmp_path / "ours")
    saved_tables.assert_same(program.content(), content)


@pytest.mark.parametrize("partitions", saved_tables.PARTITIONS)
def test_eager_tables(tmp_path, partitions):
    table = saved_tables.make(
        partitions, "counter", initializer=lambda shape, dtype: tf.ones(shape, dtype)
    )
    for step in STEPS:
        saved_tables.train_step(table, saved_tables.keys_of_step(step), step)
    path = tf.train.Checkpoint(model=tf.train.Checkpoint(users=table)).write(
        str(tmp_path / "saved")
    )
    convert(path, tmp_path / "ours")
    other = saved_tables.make(2, "counter")
    fe.convert.restore(str(tmp_path / "ours"), {"model/users": other})
    run = saved_tables.eager
    got, want = saved_tables.content_of(other, run), saved_tables.content_of(table, run)
    saved_tables.assert_same(got, want)


def test_restore_says_what_is_missing(tmp_path):
    path, _ = saved_by(tf.compat.v1.train.Saver, tmp_path, None, "plain")
    table = fe.get_embedding_variable("items", 3)
    with pytest.raises(ValueError, match="has no tensor 'items-keys'"):
        fe.convert.restore(path, {"items": table})


@pytest.mark.parametrize("how", ["missing", "altered", "truncated", "foreign"])
def test_damaged_side_files_are_refused(tmp_path, how):
    path, _ = saved_by(fe.train.Saver, tmp_path, None, "plain")
    (file,) = tmp_path.glob("saved.data-e*")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    if how != "missing":
        written = {"altered": data, "truncated": data[:50], "foreign": b"x" * 500}[how]
        file.write_bytes(written)
    with pytest.raises(ConvertError, match=r"saved\.data-e"):
        convert(path, tmp_path / "ours")
    assert not list(tmp_path.glob("ours*"))


def test_missing_tensor_is_refused(tmp_path):
    path, _ = saved_by(tf.compat.v1.train.Saver, tmp_path, None, "plain")
    tensors = deeprec_files.read(path)
    del tensors["users-frequencies"]
    deeprec_files.write(tmp_path / "damaged", tensors)
    with pytest.raises(ConvertError, match="'users-frequencies' is missing"):
        convert(tmp_path / "damaged", tmp_path / "ours")


@pytest.fixture
def run_command(monkeypatch, capsys):
    """Runs the command; its exit status and what it said."""
    errors = []
    monkeypatch.setattr(main.logging, "error", lambda text, *args: errors.append(text % args))

    def run(*arguments):
        with flagsaver.flagsaver(), pytest.raises(SystemExit) as exit_info:
            __main__.main(["fused_embedding", "convert", *map(str, arguments)])
        code = exit_info.value.code
        return code, "\n".join([*errors, capsys.readouterr().out])

    return run


def test_command(tmp_path, run_command):
    rows = deeprec_files.random_rows(1, [3, 5, 1000], slots=("Adagrad",))
    tensors = deeprec_files.tensors_of("users", rows, filtered={7: (1, 2)})
    tensors |= {"global_step": np.int64(4), "table": np.float32([[1, 2]])}
    source = deeprec_files.write(tmp_path / "deeprec", tensors)
    status, output = run_command(
        source,
        tmp_path / "folder/ours",
        "--tables=table",
        "--initial_accumulator_value=0.5",
    )
    assert status == 0
    assert (
        "table users: 3 rows of 3 float32, slots Adagrad/accumulator, 1 keys not admitted" in output
    )
    assert "table table: 1 rows of 2 float32\n" in output
    assert "1 other tensors, as they were" in output
    written = deeprec_files.read(tf.train.latest_checkpoint(str(tmp_path / "folder")))
    assert written["users-slot_initials"].tolist() == [0.5]
    assert sorted(os.listdir(tmp_path / "folder")) == [
        "checkpoint",
        "ours.data-00000-of-00001",
        "ours.index",
    ]
    status, output = run_command(
        tmp_path / "folder", tmp_path / "dense", "--to=dense", "--num_rows=2000,table=1"
    )
    assert status == 0
    dense = deeprec_files.read(tmp_path / "dense")
    assert dense["users"].shape == (2000, 3)
    assert dense["table"].tolist() == [[1, 2]]
    np.testing.assert_array_equal(dense["users/Adagrad"][5], np.float32(rows[5].slots["Adagrad"]))


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 2, "usage: fused-embedding convert SOURCE DESTINATION"),
        (("nothing", "ours"), 2, "there is no checkpoint 'nothing'"),
        (("nothing", "ours", "--num_rows=x"), 2, "--num_rows=x must be ROWS or NAME=ROWS"),
    ],
)
def test_command_line(run_command, arguments, status, message):
    got, output = run_command(*arguments)
    assert got == status
    assert message in output


PAGES = (
    "docs/checkpoints.md",
    "docs/migration/deeprec.md",
    "docs/migration/recommenders_addons.md",
)


def write_sources_of_the_pages():
    """What the pages convert."""
    for folder in ("deeprec", "stock", "tfra/files"):
        os.makedirs(folder)
    rows = deeprec_files.random_rows(1, [3, 5, 1000])
    deeprec_files.write("deeprec/model.ckpt-1000", deeprec_files.tensors_of("users", rows, 2))
    deeprec_files.write("deeprec/incr.ckpt-1050", deeprec_files.incremental_tensors("users", rows))
    stock = {
        name: np.zeros([size, 2], np.float32) for name, size in (("users", 100), ("items", 50))
    }
    deeprec_files.write("stock/model.ckpt-7", stock)
    np.int64([7, 9]).tofile("tfra/files/model_users_mht_1of1_rank0_size1-keys")
    np.float32([1, 2, 3, 4]).tofile("tfra/files/model_users_mht_1of1_rank0_size1-values")
    tensors = {"users_mht_1of1-keys": np.int64([7]), "users_mht_1of1-values": np.float32([[1, 2]])}
    deeprec_files.write("tfra/model.ckpt-10", tensors)


def test_commands_and_examples_of_the_pages(tmp_path, run_command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_sources_of_the_pages()
    num_commands = 0
    for page in PAGES:
        text = (ROOT / page).read_text()
        for arguments in re.findall(
            r"^    python -m fused_embedding convert (.*)", text, re.MULTILINE
        ):
            if "SOURCE" not in arguments:
                status, output = run_command(*arguments.split())
                assert status == 0, (page, arguments, output)
                num_commands += 1
        for example in re.findall("```python\n(.*?)```", text, re.DOTALL):
            if "convert" in example:
                namespace = {"fe": fe, "tf": tf}
                exec(compile(example, page, "exec"), namespace)
                assert namespace["table"].total_count() == 2
    assert num_commands == 8


def test_docstring():
    results = doctest.testmod(fe.convert, extraglobs={"fe": fe, "tf": tf})
    assert (results.attempted, results.failed) == (4, 0)
