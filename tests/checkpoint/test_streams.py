"""tf.train.Checkpoint and fe.train.Saver: tables in files beside a checkpoint."""

import pathlib
import resource
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from saved_tables import (
    DIM,
    NUM_STEPS,
    OPTIONS,
    PARTITIONS,
    RULES,
    Program,
    assert_same,
    assert_whole,
    content_of,
    eager,
    keys_of_step,
    make,
    train_step,
)

import fused_embedding as fe
import processes

pytestmark = pytest.mark.one_version

v1 = tf.compat.v1


class Eager:
    """An eager variable with what Program has."""

    def __init__(
        self,
        partitions: int | None,
        option: str = "plain",
        rules: Iterable[str] = tuple(RULES),
        **kwargs: Any,
    ):
        self.rules = rules
        self.variable = make(partitions, option, **kwargs)
        self.checkpoint = tf.train.Checkpoint(table=self.variable)

    def train(self, steps) -> None:
        for step in steps:
            train_step(self.variable, keys_of_step(step), step, self.rules)

    def content(self) -> dict[str, np.ndarray]:
        return content_of(self.variable, eager)

    def save(self, path: pathlib.Path) -> str:
        return self.checkpoint.write(str(path))

    def restore(self, path: Any) -> None:
        self.checkpoint.read(str(path)).assert_consumed()


class InGraph(Program):
    """tf.train.Checkpoint in a TF1 graph."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, make_saver=lambda: None, **kwargs)
        with self.graph.as_default():
            self.saver = tf.train.Checkpoint(table=self.variable)

    def save(self, path: pathlib.Path) -> str:
        with self.graph.as_default(), self.session.as_default():
            return self.saver.write(str(path))

    def restore(self, path: Any) -> None:
        with self.graph.as_default(), self.session.as_default():
            self.saver.read(str(path)).assert_consumed().run_restore_ops()


def streaming_saver(*args: Any, **kwargs: Any) -> Program:
    """fe.train.Saver."""
    return Program(*args, make_saver=fe.train.Saver, **kwargs)


def sharded_saver(*args: Any, **kwargs: Any) -> Program:
    """fe.train.Saver(sharded=True), as MonitoredTrainingSession asks for."""
    return Program(*args, make_saver=lambda: fe.train.Saver(sharded=True), **kwargs)


def incremental_saver(*args: Any, **kwargs: Any) -> Program:
    """fe.train.Saver(incremental=True): test_incremental.py has what only it does."""
    return Program(*args, make_saver=lambda: fe.train.Saver(incremental=True), **kwargs)


STORES: dict[str, Callable[..., Any]] = {
    "eager": Eager,
    "graph": InGraph,
    "saver": streaming_saver,
    "sharded": sharded_saver,
    "incremental": incremental_saver,
}
STORE = pytest.mark.parametrize("store", STORES.values(), ids=STORES)


def files_of_tables(folder: pathlib.Path) -> list[pathlib.Path]:
    """Files that are not TensorFlow's own."""
    return [path for path in folder.iterdir() if ".data-e" in path.name]


@STORE
@pytest.mark.parametrize("option", OPTIONS)
def test_everything_comes_back_into_any_number_of_partitions(tmp_path, option, store):
    for saved in PARTITIONS:
        program = store(saved, option)
        program.train(range(NUM_STEPS))
        want = program.content()
        assert_whole(want, option)
        path = program.save(tmp_path / f"model{saved}")
        assert_same(program.content(), want)  # saving changes nothing
        program.train(range(NUM_STEPS, NUM_STEPS + 2))
        after = program.content()
        for restored in PARTITIONS:
            other = store(restored, option)
            other.train([99])  # what is there before is replaced
            other.restore(path)
            is_same_filter = option != "bloom" or (saved or 1) == (restored or 1)
            assert_same(other.content(), want, but=() if is_same_filter else ("bloom",))
            if not is_same_filter:
                assert not other.content()["bloom"].any()
                continue
            other.train(range(NUM_STEPS, NUM_STEPS + 2))
            assert_same(other.content(), after)


@STORE
@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16], ids=lambda d: d.name)
def test_each_dtype_comes_back(tmp_path, dtype, store):
    program = store(2, dtype=dtype)
    program.train(range(NUM_STEPS))
    path = program.save(tmp_path / "model")
    other = store(3, dtype=dtype)
    other.restore(path)
    assert_same(other.content(), program.content())


@STORE
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [({"dim": DIM + 1}, "dim"), ({"dtype": tf.float64}, "float")],
    ids=["dim", "dtype"],
)
def test_another_table_is_an_error_and_unharmed(tmp_path, kwargs, message, store):
    program = store(None)
    program.train(range(2))
    path = program.save(tmp_path / "model")
    other = store(2, **kwargs)
    other.train(range(NUM_STEPS))
    before = other.content()
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        other.restore(path)
    assert_same(other.content(), before)


@STORE
def test_damaged_file_is_an_error_that_names_it(tmp_path, store):
    program = store(2)
    program.train(range(NUM_STEPS))
    path = program.save(tmp_path / "model")
    other = store(2)
    other.train([3])
    before = other.content()
    for file in files_of_tables(tmp_path):
        whole = file.read_bytes()
        places = [0, 9, 20, len(whole) // 2, len(whole) - 1]
        flipped = [whole[:i] + bytes([whole[i] ^ 4]) + whole[i + 1 :] for i in places]
        for damaged in (*flipped, b"", whole[:-1], whole[: len(whole) // 2], whole + b"x"):
            file.write_bytes(damaged)
            with pytest.raises(tf.errors.DataLossError, match=file.name):
                other.restore(path)
        file.unlink()
        with pytest.raises(tf.errors.OpError, match=file.name):
            other.restore(path)
        file.write_bytes(whole)
    # The table of a damaged file is as it was; of several partitions, each for itself.
    assert len(files_of_tables(tmp_path)) == 2
    one = store(None)
    one.train([3])
    before = one.content()
    file.write_bytes(b"")
    with pytest.raises(tf.errors.DataLossError, match=file.name):
        one.restore(path)
    assert_same(one.content(), before)


@STORE
def test_failed_save_leaves_nothing(tmp_path, store):
    program = store(2)
    program.train(range(NUM_STEPS))
    before = program.content()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # the disk is full
    try:
        with pytest.raises(tf.errors.ResourceExhaustedError, match="model-1"):
            program.save(tmp_path / "model-1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files_of_tables(tmp_path) == []
    assert_same(program.content(), before)
    path = program.save(tmp_path / "model-2")
    program.restore(path)
    assert_same(program.content(), before)


@pytest.mark.parametrize("sharded", [False, True])
def test_ten_saves_of_a_saver_leave_no_orphans(tmp_path, sharded):
    program = Program(2, make_saver=lambda: fe.train.Saver(max_to_keep=2, sharded=sharded))
    for step in range(10):
        program.train([step])
        with program.graph.as_default():
            path = program.saver.save(program.session, str(tmp_path / "model"), global_step=step)
    prefixes = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
    assert prefixes == {"checkpoint", "model-8", "model-9"}
    assert len(files_of_tables(tmp_path)) == 4
    want = program.content()
    program.train([77])
    program.restore(path)
    assert_same(program.content(), want)


@STORE
def test_expiry_runs_when_a_checkpoint_is_saved(tmp_path, store, monkeypatch):
    option = fe.EmbeddingVariableOption(evict_option=fe.GlobalStepEvict(steps_to_live=9))
    monkeypatch.setitem(OPTIONS, "expiring", lambda: option)
    program = store(2, "expiring")
    program.train(range(NUM_STEPS))  # two updates each, so that the table's own step is 12
    before, step = program.content(), 2 * NUM_STEPS
    path = program.save(tmp_path / "model")
    want = before["keys"][before["versions"] >= step - 9]
    assert 0 < len(want) < len(before["keys"])
    assert program.content()["keys"].tolist() == want.tolist()
    other = store(None, "expiring")
    other.restore(path)
    assert other.content()["keys"].tolist() == want.tolist()


MEMORY_PROGRAM = """
import sys, numpy as np, tensorflow as tf, fused_embedding as fe

def status(name):
    text = open("/proc/self/status").read()
    return int(text.split(name + ":")[1].split()[0]) * 1024

def peak_of(action):
    before = status("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    action()
    return status("VmHWM") - max(before, status("VmRSS")), status("VmRSS") - before

NUM, DIM = 1_000_000, 32
path, kind = sys.argv[1:]

def fill(table, run, upsert):
    for begin in range(0, NUM, 50_000):
        keys = np.arange(begin, begin + 50_000)
        run(upsert, keys, np.ones([len(keys), DIM], np.float32))

def report(table_bytes, save, restore):
    save()  # threads, caches
    saving, _ = peak_of(save)
    restoring, _ = peak_of(restore)
    print(table_bytes, saving, restoring)

if kind == "checkpoint":
    table = fe.get_embedding_variable("t", DIM)
    fill(table, lambda upsert, *args: table.upsert(*args), None)
    checkpoint = tf.train.Checkpoint(table=table)
    report(int(table.statistics()["memory_bytes"]), lambda: checkpoint.write(path),
           lambda: checkpoint.restore(path))
else:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        table = fe.get_embedding_variable("t", DIM)
        keys, values = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.float32, [None, DIM])
        upsert = table.upsert(keys, values)
        fill(table, lambda op, k, v: session.run(op, {keys: k, values: v}), upsert)
        saver = {"stock": v1.train.Saver, "streamed": fe.train.Saver}[kind]()
        table_bytes = session.run(table.statistics()["memory_bytes"])
        report(table_bytes, lambda: saver.save(session, path, write_meta_graph=False),
               lambda: saver.restore(session, path))
"""


def extra_memory(path: pathlib.Path, kind: str) -> tuple[float, float]:
    """What saving and restoring need beyond the table, as parts of its memory."""
    output = processes.output_of(processes.run_program(MEMORY_PROGRAM, path, kind))
    table_bytes, saving, restoring = map(int, output.split())
    assert table_bytes > 128e6
    return saving / table_bytes, restoring / table_bytes


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["checkpoint", "streamed"])
def test_extra_memory_is_under_a_tenth_of_the_table(tmp_path, kind):
    saving, restoring = extra_memory(tmp_path / "model", kind)
    assert saving < 0.1
    assert restoring < 0.1


@pytest.mark.slow
def test_stock_saver_needs_copies(tmp_path):
    """The measurement would see them."""
    saving, _ = extra_memory(tmp_path / "model", "stock")
    assert saving > 0.5


@STORE
def test_saving_beside_training_gives_whole_rows(tmp_path, store):
    rules = ["adagrad"]  # between the updates of two, a row is of one and not yet of the other
    program = store(2, rules=rules)
    keys = keys_of_step(0)
    program.train([0])
    reference = store(None, rules=rules)
    states: dict[int, dict[bytes, int]] = {0: {}, 7: {}}
    num_steps = 60
    for step in range(num_steps):
        reference.train([0])
        content = reference.content()
        for i, of_row in states.items():
            of_row[row_bytes(content, i)] = step
    assert len(keys) > 7
    stop = threading.Event()

    def train():
        for _ in range(num_steps - 1):
            program.train([0])
            time.sleep(0.01)  # so that some saves fall between the steps
        stop.set()

    paths = [program.save(tmp_path / "first")]
    thread = threading.Thread(target=train)
    thread.start()
    while not stop.is_set() and len(paths) < 4:  # a Saver keeps five
        paths.append(program.save(tmp_path / f"model{len(paths)}"))
    thread.join()
    paths.append(program.save(tmp_path / "last"))
    seen = set()
    for path in paths:
        other = store(None)
        other.restore(path)
        for i, of_row in states.items():
            assert row_bytes(other.content(), i) in of_row
            seen.add(of_row[row_bytes(other.content(), i)])
    assert {0, num_steps - 1} <= seen


def row_bytes(content: dict[str, np.ndarray], i: int) -> bytes:
    """Value and slots of a row. A lookup counts before the update, so frequencies may be ahead."""
    return b"".join(content[name][i].tobytes() for name in ("values", "slots"))


def test_another_process_restores(tmp_path):
    program = Eager(2, "counter")
    program.train(range(NUM_STEPS))
    path = program.save(tmp_path / "model")
    want = program.content()
    code = (
        "import sys, numpy as np, tensorflow as tf, fused_embedding as fe\n"
        "from saved_tables import content_of, eager, make\n"
        "table = make(3, 'counter')\n"
        "tf.train.Checkpoint(table=table).read(sys.argv[1]).assert_consumed()\n"
        "np.savez(sys.argv[2], **content_of(table, eager))\n"
    )
    processes.output_of(processes.run_program(code, path, tmp_path / "content.npz"))
    got = dict(np.load(tmp_path / "content.npz", allow_pickle=True))
    assert_same(got, {name: np.asarray(value) for name, value in want.items()})


def test_changes_are_read_where_a_program_has_a_graph(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = fe.get_embedding_variable("users", DIM)
        session.run(table.upsert([7], [[1.0] * DIM]))
        saver = fe.train.Saver(incremental=True)
        path = saver.save(session, str(tmp_path / "model"))
        (changed,) = fe.train.read_changes(path, "users", DIM)
    assert changed.keys.tolist() == [7]
    assert changed.values.tolist() == [[1.0] * DIM]


def test_a_checkpoint_of_the_stock_saver_is_named(tmp_path):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        fe.get_embedding_variable("of_stock", 2)
        path = v1.train.Saver().save(session, str(tmp_path / "stock"))
        message = (
            r"holds the EmbeddingVariable 'of_stock' as tensors, .* restore it with tf\.compat"
        )
        with pytest.raises(tf.errors.NotFoundError, match=message):
            fe.train.Saver().restore(session, path)


def test_what_the_stock_saver_says_of_our_checkpoint_is_on_the_page(tmp_path):
    v1 = tf.compat.v1
    page = (pathlib.Path(__file__).parents[2] / "docs/saving.md").read_text()
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(fe.get_embedding_variable("users", 2).upsert([7], [[1.0, 2.0]]))
        path = fe.train.Saver().save(session, str(tmp_path / "ours"))
        with pytest.raises(tf.errors.NotFoundError) as error:
            v1.train.Saver().restore(session, path)
    for said in ("Restoring from checkpoint failed.", "Key users-keys not found in checkpoint"):
        assert said in str(error.value)
        assert said in page
