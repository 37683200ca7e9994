"""Incremental saves: fe.train.Saver(incremental=True) and fe.train.IncrementalCheckpointManager."""

import doctest
import pathlib
import resource
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from saved_tables import (
    DIM,
    OPTIONS,
    Program,
    assert_same,
    content_of,
    eager,
    keys_of_step,
    make,
    rows_of,
    train_step,
)

import fused_embedding as fe
from fused_embedding.checkpoint import checkpoint_manager

v1 = tf.compat.v1
ROOT = pathlib.Path(__file__).parents[2]


class InSession(Program):
    """fe.train.Saver(incremental=True) in a session."""

    def __init__(self, partitions: int | None = None, option: str = "plain", **saver: Any):
        make_saver = lambda: fe.train.Saver(incremental=True, **saver)  # noqa: E731
        super().__init__(partitions, option, make_saver=make_saver)

    def save_next(self, folder: pathlib.Path, step: int) -> str:
        with self.graph.as_default():
            return self.saver.save(self.session, str(folder / "ckpt"), global_step=step)


class Sharded(InSession):
    """The same of a sharded Saver, as MonitoredTrainingSession asks for."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, sharded=True, **kwargs)


class Eager:
    """fe.train.IncrementalCheckpointManager, eagerly and with a tf.function."""

    def __init__(
        self, partitions: int | None = None, option: str = "plain", max_to_keep: int = 5, **_: Any
    ):
        self.variable = make(partitions, option)
        self.max_to_keep = max_to_keep
        self.checkpoint = tf.train.Checkpoint(table=self.variable, scale=tf.Variable(2.0))
        self.manager: Any = None

    @tf.function
    def train_function(self, keys: tf.Tensor, step: tf.Tensor) -> None:
        train_step(self.variable, keys, step)

    def train(self, steps: Iterable[int]) -> None:
        for step in steps:
            self.train_function(tf.constant(keys_of_step(step)), tf.constant(step, tf.int64))

    def content(self) -> dict[str, np.ndarray]:
        return content_of(self.variable, eager)

    def save_next(self, folder: pathlib.Path, step: int) -> str:
        if self.manager is None:
            self.manager = fe.train.IncrementalCheckpointManager(
                self.checkpoint, folder, max_to_keep=self.max_to_keep
            )
        return self.manager.save(checkpoint_number=step)

    def restore(self, path: Any) -> None:
        self.checkpoint.restore(str(path)).assert_consumed()


STORES: dict[str, Callable[..., Any]] = {"saver": InSession, "sharded": Sharded, "manager": Eager}
STORE = pytest.mark.parametrize("store", STORES.values(), ids=STORES)


def links_of(path: str) -> int:
    """Number of saves that a checkpoint is made of, of each table the same."""
    reader = tf.train.load_checkpoint(path)
    names = [name for name in reader.get_variable_to_shape_map() if name.endswith("files")]
    (number,) = {reader.get_tensor(name).shape[0] for name in names}
    return number


def files_of(path: str) -> list[pathlib.Path]:
    """Files of tables that a checkpoint has."""
    path = pathlib.Path(path)
    return sorted(path.parent.glob(f"{path.name}.data-e*"))


def bytes_of_own_files(path: str) -> int:
    """Of those that no other checkpoint has as well."""
    return sum(file.stat().st_size for file in files_of(path) if file.stat().st_nlink == 1)


@STORE
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("partitions", [None, 2])
def test_each_save_restores_exactly_and_training_goes_on(tmp_path, store, option, partitions):
    program = store(partitions, option, max_to_keep=100)
    saved = []
    for step in range(5):
        program.train([step])
        saved.append((program.save_next(tmp_path, step), program.content()))
        assert_same(program.content(), saved[-1][1])  # saving changes nothing
    program.train([50, 51])
    after = program.content()
    assert [links_of(path) for path, _ in saved] == [1, 2, 3, 4, 5]
    for path, want in saved:
        other = store(partitions, option)
        other.train([99])
        other.restore(path)
        assert_same(other.content(), want)
    other.train([50, 51])
    assert_same(other.content(), after)


@STORE
@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_partitions_may_change(tmp_path, store, partitions):
    program = store(2, "counter")
    for step in range(4):
        program.train([step])
        path = program.save_next(tmp_path, step)
    other = store(partitions, "counter")
    other.restore(path)
    assert_same(other.content(), program.content())


@STORE
@pytest.mark.parametrize("max_to_keep", [1, 2])
def test_checkpoints_that_are_kept_are_whole(tmp_path, store, max_to_keep):
    program = store(2, max_to_keep=max_to_keep)
    contents = {}
    for step in range(8):
        program.train([step])
        contents[program.save_next(tmp_path, step)] = program.content()
    prefixes = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
    kept = list(contents)[-max_to_keep:]
    assert prefixes == {"checkpoint", *(pathlib.Path(path).name for path in kept)}
    for path in kept:
        assert links_of(path) == int(path.rpartition("-")[2]) + 1
        other = store(3)
        other.restore(path)
        assert_same(other.content(), contents[path])
    # A checkpoint that is deleted takes all of its files with it.
    v1.train.remove_checkpoint(path)
    assert not files_of(path)


@STORE
def test_a_save_is_as_small_as_what_changed(tmp_path, store):
    program = store()
    rng = np.random.default_rng(1)

    def train(keys):
        if isinstance(program, Eager):
            train_step(program.variable, keys, 1)
        else:
            program.session.run(program.train_op, {program.keys: keys, program.step: 1})

    train(rng.permutation(50_000))
    full = bytes_of_own_files(program.save_next(tmp_path, 1))
    train(np.arange(100))
    small = bytes_of_own_files(program.save_next(tmp_path, 2))
    row_bytes = 16 + DIM * 4 * 3  # a header, values, two slots
    assert full > 50_000 * row_bytes
    assert 100 * row_bytes < small < 200 * row_bytes
    assert bytes_of_own_files(program.save_next(tmp_path, 3)) < 1000


@STORE
def test_the_seventeenth_save_has_all_again(tmp_path, store):
    program = store(max_to_keep=3)
    links = []
    for step in range(18):
        program.train([step])
        path = program.save_next(tmp_path, step)
        links.append(links_of(path))
    assert links == [*range(1, 17), 1, 2]
    other = store()
    other.restore(path)
    assert_same(other.content(), program.content())


@STORE
def test_a_save_that_fails_loses_nothing(tmp_path, store):
    program = store(2)
    program.train([0])
    program.save_next(tmp_path, 0)
    program.train([1])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))  # the disk is full
    try:
        with pytest.raises(tf.errors.ResourceExhaustedError, match="ckpt-1"):
            program.save_next(tmp_path, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"checkpoint", "ckpt-0"}
    program.train([2])
    (tmp_path / "ckpt-2_temp").write_text("in the way of TensorFlow's own files, after the tables")
    if store is not InSession:  # its Saver needs no such folder
        with pytest.raises(tf.errors.OpError):
            program.save_next(tmp_path, 2)
    (tmp_path / "ckpt-2_temp").unlink()
    program.train([3])
    path = program.save_next(tmp_path, 3)
    # A Saver takes TensorFlow's error of the folder for one of the table, and began a series.
    assert links_of(path) == (1 if store is Sharded else 2)
    other = store(2)
    other.restore(path)
    assert_same(other.content(), program.content())


@STORE
def test_a_table_that_was_restored_is_saved_in_full(tmp_path, store):
    program = store()
    program.train([0])
    first = program.save_next(tmp_path, 0)
    program.train([1])
    assert links_of(program.save_next(tmp_path, 1)) == 2
    program.restore(first)
    program.train([2])
    path = program.save_next(tmp_path, 2)
    assert links_of(path) == 1
    program.train([3])
    path = program.save_next(tmp_path, 3)
    assert links_of(path) == 2
    other = store()
    other.restore(path)
    assert_same(other.content(), program.content())


@STORE
def test_saving_over_a_checkpoint_is_in_full(tmp_path, store):
    program = store()
    for step in range(3):
        program.train([step])
        path = program.save_next(tmp_path, 7)
        assert links_of(path) == 1
    other = store()
    other.restore(path)
    assert_same(other.content(), program.content())


@STORE
def test_a_broken_series_is_refused_and_nothing_is_lost(tmp_path, store):
    program = store()
    for step in range(3):
        program.train([step])
        path = program.save_next(tmp_path, step)
    files = files_of(path)
    assert len(files) == 3
    other = store()
    other.train([9])
    before = other.content()
    whole = [file.read_bytes() for file in files]
    for file in files:  # no hard links from here on
        file.unlink()

    def assert_refused(contents, error, match):
        for file, content in zip(files, contents, strict=True):
            if content is not None:
                file.write_bytes(content)
        with pytest.raises(error, match=match):
            other.restore(path)
        assert_same(other.content(), before)
        for file in files:
            file.unlink(missing_ok=True)

    for i in range(3):
        with_gap = [*whole[:i], None, *whole[i + 1 :]]
        assert_refused(with_gap, tf.errors.FailedPreconditionError, files[i].name)
        cut = [*whole[:i], whole[i][:-5], *whole[i + 1 :]]
        assert_refused(cut, tf.errors.DataLossError, files[i].name)
        middle = len(whole[i]) // 2
        altered = whole[i][:middle] + bytes([whole[i][middle] ^ 1]) + whole[i][middle + 1 :]
        altered_files = [*whole[:i], altered, *whole[i + 1 :]]
        assert_refused(altered_files, tf.errors.DataLossError, files[i].name)
        moved = [whole[(i + 1) % 3], *(whole[k] for k in range(3) if k != (i + 1) % 3)]
        if moved != whole:
            assert_refused(moved, tf.errors.InvalidArgumentError, "incremental|does not continue")
    for file, content in zip(files, whole, strict=True):
        file.write_bytes(content)
    other.restore(path)
    assert_same(other.content(), program.content())


def test_any_saver_of_the_package_restores_it(tmp_path):
    program = InSession(2)
    for step in range(3):
        program.train([step])
        path = program.save_next(tmp_path, step)
    plain = Program(None, make_saver=fe.train.Saver)
    plain.restore(path)
    assert_same(plain.content(), program.content())
    stock = Program(None)
    with pytest.raises(tf.errors.NotFoundError, match="users-"):
        stock.restore(path)


def test_two_series_of_one_table_are_in_full(tmp_path):
    first, second = InSession(), tmp_path / "second"
    second.mkdir()
    with first.graph.as_default():
        other_saver = fe.train.Saver(incremental=True)
        for step in range(2):
            first.train([step])
            assert links_of(first.save_next(tmp_path, step)) == 1
            path = other_saver.save(first.session, str(second / "ckpt"), global_step=step)
            assert links_of(path) == 1
    restored = InSession()
    restored.restore(path)
    assert_same(restored.content(), first.content())


def test_what_cannot_save_incrementally_says_so(tmp_path):
    with pytest.raises(TypeError, match="incremental"):
        v1.train.Saver(incremental=True)
    with pytest.raises(ValueError, match="IncrementalCheckpointManager"):
        fe.train.Saver(incremental=True)
    with tf.Graph().as_default():
        table = make()
        with pytest.raises(ValueError, match=r"Saver\(incremental=True\)"):
            fe.train.IncrementalCheckpointManager(
                tf.train.Checkpoint(table=table), tmp_path, max_to_keep=2
            )
        saver_def = v1.train.Saver().as_saver_def()
        with pytest.raises(ValueError, match="saver_def"):
            fe.train.Saver(incremental=True, saver_def=saver_def)


def test_a_new_table_and_ordinary_variables_are_saved_too(tmp_path):
    model = tf.Module()
    model.first, model.scale = make(), tf.Variable(1.0)
    manager = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(model=model), tmp_path, max_to_keep=2
    )
    train_step(model.first, keys_of_step(0), 0)
    manager.save()
    model.second = make(2)
    train_step(model.second, keys_of_step(1), 1)
    model.scale.assign(5.0)
    for step in (2, 3):
        train_step(model.first, keys_of_step(step), step)
        train_step(model.second, keys_of_step(step + 1), step + 1)
        manager.save()
    other = tf.Module()
    other.first, other.second, other.scale = make(), make(), tf.Variable(1.0)
    tf.train.Checkpoint(model=other).restore(manager.latest_checkpoint).assert_consumed()
    assert float(other.scale) == 5.0
    assert_same(content_of(other.first, eager), content_of(model.first, eager))
    assert_same(content_of(other.second, eager), content_of(model.second, eager))


def test_a_monitored_session_saves_and_goes_on(tmp_path):
    def run(folder, last_step, **saver):
        with tf.Graph().as_default():
            table = make(2)
            step = v1.train.get_or_create_global_step()
            keys = tf.cast(tf.random.stateless_uniform([20], [1, step], 0, 50, tf.int32), tf.int64)
            rows = rows_of(table, keys)
            loss = tf.reduce_sum((rows - tf.cast(keys[:, None] % 7, tf.float32)) ** 2)
            train = v1.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
            scaffold = v1.train.Scaffold(saver=fe.train.Saver(sharded=True, **saver))
            hooks = [
                v1.train.StopAtStepHook(last_step=last_step),
                v1.train.CheckpointSaverHook(str(folder), save_steps=2, scaffold=scaffold),
            ]
            chief = v1.train.ChiefSessionCreator(scaffold, checkpoint_dir=str(folder))
            with v1.train.MonitoredSession(chief, hooks) as session:
                while not session.should_stop():
                    session.run(train)
        return tf.train.latest_checkpoint(str(folder))

    def restored(path):
        with tf.Graph().as_default(), v1.Session() as session:
            table = make()
            fe.train.Saver([table]).restore(session, path)
            return content_of(table, session.run)

    want = restored(run(tmp_path / "full", 12))
    run(tmp_path / "incremental", 7, incremental=True)
    path = run(tmp_path / "incremental", 12, incremental=True)
    assert links_of(path) > 2
    got = restored(path)
    assert len(got["slot_names"]) == 2
    assert_same(got, want, but=("step",))


def changes(path: str, name: str) -> Iterator[fe.train.Changes]:
    return fe.train.read_changes(path, name, DIM)


@STORE
@pytest.mark.parametrize("partitions", [None, 2])
def test_changes_replay_onto_a_dict(tmp_path, store, partitions):
    """A follower that reads each checkpoint's changes has the table, without restoring any."""
    program = store(partitions, max_to_keep=100)
    name = "table" if store is Eager else "users"
    rows: dict[int, bytes] = {}

    def erase(keys):
        if isinstance(program, Eager):
            program.variable.erase(keys)
        else:
            with program.graph.as_default():
                program.session.run(program.variable.erase(keys))

    for step in range(6):
        program.train([step])
        erase(keys_of_step(step)[::5])
        if step == 3:
            program.train([0])
        path = program.save_next(tmp_path, step)
        read = list(changes(path, name))
        assert len(read) == (partitions or 1)
        if step == 0:
            assert all(one.is_full for one in read)
            rows = {}
        for one in read:
            for key in one.removed_keys.tolist():
                rows.pop(key, None)
            assert not set(one.removed_keys.tolist()) & set(one.keys.tolist())
            rows |= bytes_by_key(one._asdict())
        assert rows == bytes_by_key(program.content())
        assert len(rows) > 20


def bytes_by_key(content):
    return dict(zip(content["keys"].tolist(), map(bytes, content["values"]), strict=True))


def test_changes_of_nothing_are_an_error(tmp_path):
    program = InSession()
    program.train([1])
    path = program.save_next(tmp_path, 1)
    with pytest.raises(ValueError, match=r"no files of 'items', but of \['users'\]"):
        next(changes(path, "items"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="embedding_dim 3"):
        next(fe.train.read_changes(path, "users", DIM + 1))
    plain = Program(None, make_saver=fe.train.Saver)
    plain.train([1])
    with pytest.raises(ValueError, match="not saved incrementally"):
        next(changes(plain.save(tmp_path / "plain"), "users"))


def test_random_changes_of_a_dict_come_back(tmp_path):
    """Against a Python dict that imports nothing of ours: values, frequencies and versions."""
    rng = np.random.default_rng(5)
    table = make(2)
    manager = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(table=table), tmp_path, max_to_keep=1
    )
    want: dict[int, tuple[float, ...]] = {}
    for step in range(60):
        keys = np.unique(rng.integers(-30, 30, 6))
        action = rng.integers(4)
        if action == 0:
            table.erase(keys)
            for key in keys.tolist():
                want.pop(key, None)
        elif action < 3:
            values = rng.normal(size=[len(keys), DIM]).astype(np.float32)
            table.upsert(keys, values)
            want |= {
                key: tuple(row) for key, row in zip(keys.tolist(), values.tolist(), strict=True)
            }
        else:
            path = manager.save()
            other = make(int(rng.integers(1, 4)))
            tf.train.Checkpoint(table=other).restore(path).assert_consumed()
            content = content_of(other, eager)
            got = zip(content["keys"].tolist(), content["values"].tolist(), strict=True)
            assert {key: tuple(row) for key, row in got} == want, f"step {step}"
    assert len(want) > 10


def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    page = (ROOT / "docs/checkpoints.md").read_text()
    section = page[page.index("## Incremental saves") :]
    examples = [part.partition("```")[0] for part in section.split("```python\n")[1:]]
    assert len(examples) == 2
    monkeypatch.chdir(tmp_path)
    with tf.Graph().as_default():
        exec(compile(examples[0], "docs/checkpoints.md", "exec"), {"tf": tf, "fe": fe})
    exec(compile(examples[1], "docs/checkpoints.md", "exec"), {"tf": tf, "fe": fe})
    results = doctest.testmod(checkpoint_manager, extraglobs={"fe": fe, "tf": tf})
    assert (results.failed, results.attempted) == (0, 7)
