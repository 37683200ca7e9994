"""python -m fused_embedding advise, and the logs that it reads."""

import gzip

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

import fused_embedding as fe
from fused_embedding import extras
from fused_embedding.inspection import advise_command, id_log

IDS = [5, -7, 2**63 - 1, 5, 0, 5, -(2**63)]

needs_matplotlib = pytest.mark.skipif(
    not extras.is_installed("matplotlib"), reason="matplotlib is not installed"
)


@pytest.fixture(autouse=True)
def _parsed_flags():
    flags.FLAGS(["test"])
    with flagsaver.flagsaver():
        yield


def advise(*arguments, **values):
    with flagsaver.flagsaver(**values):
        return advise_command.main(["advise", *map(str, arguments)])


def write(path, content):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:
        file.write(content)
    return path


# --- Logs ---


@pytest.mark.parametrize(
    ("name", "between"), [("ids.txt", "\n"), ("ids", " "), ("ids.gz", ","), ("ids.csv", " ,\n\n")]
)
def test_text(name, between, tmp_path):
    path = write(tmp_path / name, between.join(map(str, IDS)))
    assert np.concatenate(list(id_log.read_ids(str(path)))).tolist() == IDS


def test_text_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(id_log, "_LINES_AT_ONCE", 2)
    path = write(tmp_path / "ids", "1 2\n3\n\n4\n5 6")
    assert [part.tolist() for part in id_log.read_ids(str(path))] == [[1, 2, 3], [4], [5, 6]]


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_npy(dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(id_log, "_IDS_AT_ONCE", 4)
    np.save(tmp_path / "ids.npy", np.arange(10, dtype=dtype).reshape(5, 2))
    parts = list(id_log.read_ids(str(tmp_path / "ids.npy")))
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert {part.dtype for part in parts} == {np.dtype(np.int64)}


@pytest.mark.parametrize("word", ["x", "1.5", "9223372036854775808"])
def test_what_is_no_id_is_named_with_its_line(word, tmp_path, monkeypatch):
    monkeypatch.setattr(id_log, "_LINES_AT_ONCE", 2)
    path = write(tmp_path / "ids", f"1\n2\n3\n4 {word} 5\n")
    with pytest.raises(id_log.LogError, match=rf"line 4: '{word}' is no integer"):
        list(id_log.read_ids(str(path)))


def test_other_files_are_errors_that_name_them(tmp_path):
    np.save(tmp_path / "floats.npy", np.ones(3))
    (tmp_path / "text.npy").write_text("1 2 3")
    (tmp_path / "text.gz").write_text("1 2 3")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("floats.npy", "text.npy", "text.gz", "bytes", "nothing"):
        with pytest.raises(id_log.LogError, match=name):
            list(id_log.read_ids(str(tmp_path / name)))


# --- The command ---


def test_a_log(tmp_path, capsys):
    path = write(tmp_path / "ids", "1 1 1 2 2 3\n" * 2)  # 6, 4 and 2 occurrences
    layout = {"dim": 4, "slots": 2, "value_dtype": "float64", "ids_per_step": 5}
    assert advise(path, **layout, thresholds=["5"], steps_to_live=["1"], budgets_mb=["1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "12 ids, about 3 distinct, 3 steps; 12 sampled, 1 of all" in lines[0]
    assert "dim 4, float64, 8 numbers of slots: 122 bytes a row" in lines[1]  # 16 + 96 + 10
    assert lines[3].split() == [
        "CounterFilter(5)",
        "1",
        "173",
        "B",
        *["33.3%", "16.7%", "8.3%", "91.7%"],
    ]
    assert lines[4].split()[:2] == ["GlobalStepEvict(1)", "3"]
    assert lines[5].split()[:3] == [f"max_capacity={int(1e6 // 121.697)},", "lru", "3"]
    assert lines[5].split()[-2:] == ["75.0%", "25.0%"]


def test_a_checkpoint(tmp_path, capsys):
    table = fe.get_embedding_variable("users", 4)
    table.lookup(tf.constant([1, 2, 3], tf.int64), tf.constant([6, 4, 2]))
    path = tf.train.Checkpoint(users=table).save(str(tmp_path / "model"))
    assert advise(path, thresholds=["5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("users: 12 occurrences of 3 keys")
    assert lines[3].split()[-4:] == ["33.3%", "16.7%", "8.3%", "91.7%"]
    assert lines[4].split()[-2:] == ["-", "-"]


@needs_matplotlib
def test_a_plot(tmp_path):
    path = write(tmp_path / "ids", "1 1 1 2 2 3\n" * 50)
    assert advise(path, plot=str(tmp_path / "plot.png")) == 0
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("thresholds", ["0"]),
        ("thresholds", ["x"]),
        ("steps_to_live", ["1", "-1"]),
        ("budgets_mb", ["nan"]),
        ("budgets_mb", ["inf"]),
    ],
)
def test_settings_that_make_no_sense(flag, value, tmp_path, caplog):
    assert advise(write(tmp_path / "ids", "1"), **{flag: value}) == 2


def test_damaged_and_absent_input(tmp_path, capsys):
    assert advise() == 2
    assert advise("a", "b") == 2
    assert advise(write(tmp_path / "ids", "1 x")) == 2
    assert advise(tmp_path / "nothing") == 1
    assert advise(tmp_path) == 1
    table = fe.get_embedding_variable("users", 4)
    table.lookup(tf.constant([1, 2, 3], tf.int64))
    checkpoint = tf.train.Checkpoint(bad=table, good=fe.get_embedding_variable("items", 4))
    path = checkpoint.save(str(tmp_path / "model"))
    largest = max(tmp_path.glob("model-1.data-e*"), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    capsys.readouterr()
    assert advise(path) == 1
    assert capsys.readouterr().out.startswith("good: 0 occurrences of 0 keys")
