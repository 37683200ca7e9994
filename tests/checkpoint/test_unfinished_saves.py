"""Saves that are not finished: killed, failed, of other processes, or copied just now."""

import contextlib
import pathlib
import re
import shutil
import signal
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from saved_tables import assert_same
from test_streams import STORE, STORES, Eager, files_of_tables

import fused_embedding as fe
import processes
from fused_embedding.checkpoint import side_files, unfinished

HOOKED = pytest.mark.parametrize(
    "store", [STORES[name] for name in STORES if name != "graph"], ids=lambda store: store.__name__
)
HAS_ROCKSDB = (pathlib.Path(fe.__file__).parent / "_cold_store_rocksdb.so").exists()
OTHER = "abcde"  # tag of another save


def names_in(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def write_unfinished(prefix: pathlib.Path) -> tuple[set[str], Any]:
    """Names of the files of a save that is under way, and its lock."""
    lock = unfinished._Lock.make(f"{prefix}.data-oabcd-of-esave", {})
    for name in ("aaaa", "aaba", "xyz2", "aaca.tmp-7-0"):
        pathlib.Path(f"{prefix}.data-eabcd-of-e{name}").write_bytes(b"FE_TABLE")
    rows = pathlib.Path(f"{prefix}.data-eabcd-of-eaaea.rows-77/data")
    rows.mkdir(parents=True)
    (rows / "CURRENT").write_text("x")
    return {path.name for path in prefix.parent.glob(f"{prefix.name}.*")}, lock


@STORE
def test_a_copy_in_progress_is_left_alone(tmp_path, store):
    program = store(2)
    program.train([1])
    path = program.save(tmp_path / "model-1")
    want = program.content()
    for file in tmp_path.glob("model-1.data-*"):
        shutil.copy(file, tmp_path / file.name.replace("model-1", "model-7"))
    copied = {name for name in names_in(tmp_path) if name.startswith("model-7")}
    assert len(copied) >= 3
    program.train([2])
    program.save(tmp_path / "model-2")
    assert copied <= names_in(tmp_path)
    shutil.copy(f"{path}.index", tmp_path / "model-7.index")
    other = store(None)
    other.restore(tmp_path / "model-7")
    assert_same(other.content(), want)


@HOOKED
def test_a_save_of_another_process_is_left_alone(tmp_path, store):
    program = store(2)
    program.train([1])
    for number in (1, 2, 3):
        if number == 2:
            files, lock = write_unfinished(tmp_path / "model-2")
        program.save(tmp_path / f"model-{number}")
        assert number == 1 or files <= names_in(tmp_path)
    lock.close()  # as when its process ends
    program.save(tmp_path / "model-4")
    assert not files & names_in(tmp_path)
    for number in (1, 2, 3, 4):
        program.restore(tmp_path / f"model-{number}")


@pytest.mark.parametrize("how", ["alive", "another machine", "copied", "moved", "no owner yet"])
def test_what_may_have_an_owner_is_left_alone(tmp_path, how, monkeypatch):
    folder = tmp_path / "made"
    folder.mkdir()
    files, lock = write_unfinished(folder / "model-2")
    with contextlib.ExitStack() as stack:
        stack.callback(lock.close)
        if how != "alive":
            lock.close()
        if how == "another machine":
            monkeypatch.setattr(unfinished, "_boot", lambda: "of another kernel")
        elif how == "copied":
            shutil.copytree(folder, tmp_path / "copy")
            folder = tmp_path / "copy"
        elif how == "moved":  # file by file: a folder that is moved is the same one
            (tmp_path / "elsewhere").mkdir()
            for path in list(folder.iterdir()):
                path.rename(tmp_path / "elsewhere" / path.name)
            folder = tmp_path / "elsewhere"
        elif how == "no owner yet":
            (folder / "model-2.data-oabcd-of-esave").write_bytes(b"")
        unfinished.remove_abandoned(str(folder / "model-9"))
        assert names_in(folder) == files


def test_only_the_same_series_is_looked_at(tmp_path):
    files = set()
    for name in ("model-2", "other-2", "model-best-2", "model"):
        of_one, lock = write_unfinished(tmp_path / name)
        lock.close()
        files |= of_one
    unfinished.remove_abandoned(str(tmp_path / "model-9"))
    assert names_in(tmp_path) == {name for name in files if not name.startswith("model-2.")}
    unfinished.remove_abandoned(str(tmp_path / "model"))
    assert not {name for name in names_in(tmp_path) if name.startswith("model.")}


@HOOKED
def test_a_save_that_fails_after_the_tables_leaves_nothing(tmp_path, store):
    program = store(2)
    program.train([1])
    program.save(tmp_path / "model-1")
    before = names_in(tmp_path)
    (tmp_path / "model-2.index").mkdir()  # in the way of TensorFlow's
    with pytest.raises(tf.errors.OpError):
        program.save(tmp_path / "model-2")
    ours = {path.name for path in files_of_tables(tmp_path)}
    assert ours == {name for name in before if ".data-e" in name}
    assert not [name for name in names_in(tmp_path) if ".data-o" in name]


@HOOKED
def test_a_checkpoint_that_is_written_anew_leaves_nothing_of_the_old_one(tmp_path, store):
    program = store(2)
    for step in range(3):
        program.train([step])
        path = program.save(tmp_path / "model")
        assert len(files_of_tables(tmp_path)) == 2
    other = store(None)
    other.restore(path)
    assert_same(other.content(), program.content())


def test_files_without_a_tag_are_replaced(tmp_path, monkeypatch):
    """As earlier versions named them, and graphs that they exported still do."""
    program = Eager(2)
    program.train([1])
    with monkeypatch.context() as patched:
        patched.setattr(unfinished, "current_tag", lambda: "")
        program.save(tmp_path / "model")
        fixed = {side_files.suffix_of("table", index) for index in (0, 1)}
        assert {path.name.removeprefix("model") for path in files_of_tables(tmp_path)} == fixed
        program.save(tmp_path / "model")
        assert len(files_of_tables(tmp_path)) == 2
    program.save(tmp_path / "model")
    drawn = {path.name.removeprefix("model") for path in files_of_tables(tmp_path)}
    assert len(drawn) == 2
    assert not drawn & fixed


@HOOKED
def test_a_path_is_returned_only_if_all_its_files_are_there(tmp_path, store, monkeypatch):
    program = store(2)
    program.train([1])
    finish = unfinished.UnfinishedSave.finish
    lost = []

    def lose_a_file(self):
        lost.append(files_of_tables(tmp_path)[0])
        lost[-1].unlink()
        return finish(self)

    monkeypatch.setattr(unfinished.UnfinishedSave, "finish", lose_a_file)
    with pytest.raises(tf.errors.NotFoundError, match=r"another process removed.*own prefix") as e:
        program.save(tmp_path / "model-1")
    assert lost[0].name in str(e.value)
    assert "checkpoint" not in names_in(tmp_path)  # nobody is told that there is one


@HOOKED
@pytest.mark.parametrize("how", ["altered", "cut"])
def test_a_checkpoint_of_two_saves_is_written_anew(tmp_path, store, how, monkeypatch):
    program = store(2)
    program.train([1])
    finish = unfinished.UnfinishedSave.finish
    tags = []

    def mix(self):
        tags.append(self.tag)
        if len(tags) == 1:  # names in it are of a save that was renamed in between
            (data,) = tmp_path.glob("model-1.data-00000-of-*")
            other = data.read_bytes().replace(tags[0][:4].encode(), b"zzzz")
            data.write_bytes(other if how == "altered" else other[:-1])
        return finish(self)

    monkeypatch.setattr(unfinished.UnfinishedSave, "finish", mix)
    path = program.save(tmp_path / "model-1")
    assert len(set(tags)) == 2
    assert {side_files.tag_of(file.name[-20:]) for file in files_of_tables(tmp_path)} == {tags[1]}
    other = store(None)
    other.restore(path)
    assert_same(other.content(), program.content())


def test_no_two_files_have_one_name():
    drawn = [side_files.Drawn("abcde", 0), side_files.Drawn("abcde", 3)]
    names = [side_files._suffixes("t", 3, side_files.MAX_LINKS, one).numpy() for one in drawn]
    flat = np.concatenate(names).ravel().tolist()
    assert len(set(flat)) == len(flat)
    assert all(side_files.is_suffix(name) for name in flat)
    assert {side_files.tag_of(name.decode()) for name in flat} == {"abcde"}
    last = side_files._letters(side_files._MAX_FILES * side_files.MAX_LINKS - 1)
    assert last == "p777"  # "q" and on are for rows of tables on an SSD
    with pytest.raises(ValueError, match="at most 32768 partitions"):
        side_files._suffixes("t", 2, 1, side_files.Drawn("abcde", side_files._MAX_FILES - 1))


KILLED_PROGRAM = """
import os, pathlib, signal, sys
import tensorflow as tf
import fused_embedding as fe
from fused_embedding.checkpoint import unfinished
from saved_tables import OPTIONS
from test_streams import STORES

folder, kinds = pathlib.Path(sys.argv[1]), sys.argv[2:]
unfinished.UnfinishedSave.discard = unfinished.UnfinishedSave.close = lambda self: None
held = []
begin = unfinished.UnfinishedSave.begin
def hold(self):
    held.append(self)
    return begin(self)
unfinished.UnfinishedSave.begin = hold
for kind in kinds:
    (folder / kind).mkdir()
    if kind == "ssd":
        storage = fe.StorageOption(fe.StorageType.DRAM_SSD, str(folder / "rows"), [16 << 20])
        OPTIONS["ssd"] = lambda: fe.EmbeddingVariableOption(storage_option=storage)
        program = STORES["eager"](2, "ssd", dim=64)
        program.variable.upsert(tf.range(9000, dtype=tf.int64), tf.random.normal([9000, 64]))
    else:
        program = STORES[kind](2)
        program.train([1])
    program.save(folder / kind / "model-1")
    (folder / kind / "model-2.index").mkdir()  # so that the tables are written, and it is not
    try:
        program.save(folder / kind / "model-2")
    except tf.errors.OpError:
        print(kind, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_next_save_removes_what_a_killed_process_left(tmp_path):
    kinds = ["eager", "saver", "sharded", "incremental", *(["ssd"] if HAS_ROCKSDB else [])]
    killed = processes.run_program(KILLED_PROGRAM, tmp_path, *kinds)
    assert (killed.returncode, killed.stdout.split()) == (-signal.SIGKILL, kinds)
    for kind in kinds:
        check_next_save(tmp_path / kind, kind)


def check_next_save(folder, kind):
    before = names_in(folder)
    # TensorFlow's own begin with 0.
    left = {name for name in before if re.match(r"model-2\.data-(?!0)", name)}
    assert any(".data-o" in name for name in left)
    assert len(left) >= (5 if kind == "ssd" else 3), (kind, left)
    (folder / "model-2.index").rmdir()
    program: Any = STORES["saver" if kind == "incremental" else "eager"](None)
    program.train([3])
    program.save(folder / "model-3")
    now = names_in(folder)
    assert not left & now, kind
    # Of the first save the process only had to remove the lock.
    assert {name for name in before if re.match(r"model-1(?!.*\.data-o)", name)} <= now
    assert not any(".data-o" in name for name in now)
