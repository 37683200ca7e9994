"""Eight session threads on one table, with saving, expiry and evaluation beside them."""

import collections
import threading

import numpy as np
import pytest
import tensorflow as tf
from concurrent_training import DIM, NUM_IDS, batches_of, build, run_threads

import fused_embedding as fe
from fused_embedding import raw_ops

v1 = tf.compat.v1
NUM_THREADS, NUM_STEPS = 8, 40


@pytest.fixture
def program(tmp_path):
    with tf.Graph().as_default():
        program = build(str(tmp_path))
        yield program
        program.session.close()


def train(program, batches):
    for ids in batches:
        program.session.run(program.train, {program.ids: ids})


def beside(program, is_done, action):
    """Repeats an action until the training is done, twice at least; what it returned."""
    results = []

    def body():
        while not is_done.is_set() or len(results) < 2:
            results.append(action())

    return body, results


def assert_rows_are_whole(rows):
    """All values of a row are equal in this program; a torn row would show two steps."""
    np.testing.assert_array_equal(rows, np.repeat(rows[:, :1], DIM, axis=1))


def test_no_occurrence_is_lost_and_no_row_torn(program, tmp_path):
    batches = [batches_of(thread, NUM_STEPS) for thread in range(NUM_THREADS)]
    run, is_done = program.session.run, threading.Event()
    eval_ids = batches_of(99, 1)[0]
    evaluate, evaluated = beside(
        program, is_done, lambda: run(program.evaluate, {program.ids: eval_ids})
    )
    save, saves = beside(program, is_done, lambda: run(program.save))
    expire, expired = beside(program, is_done, lambda: run(program.expire))

    def train_all():
        run_threads([lambda b=b: train(program, b) for b in batches])
        is_done.set()

    run_threads([train_all, evaluate, save, expire])
    assert min(map(len, (evaluated, saves, expired))) > 0
    content = program.table.export()
    keys, values, frequencies = run([content.keys, content.values, content.freqs])
    want = collections.Counter(np.arange(NUM_IDS).tolist())  # the step that build() makes
    for ids in np.concatenate(batches):
        want.update(ids.tolist())
    assert dict(zip(keys.tolist(), frequencies.tolist(), strict=True)) == dict(want)
    # Updates of a row add up under its lock: none is lost, each occurrence takes 1.
    np.testing.assert_array_equal(values[:, 0], -frequencies.astype(np.float32))
    assert_rows_are_whole(values)
    for rows in evaluated:
        assert_rows_are_whole(rows)
        assert (rows <= 0).all()
    assert set(expired) == {0}
    # What was saved beside the training is a whole file of whole rows.
    run(program.save)
    restored = raw_ops.EmbeddingVariableHandle(
        shared_name="restored", dtype=tf.float32, dim=DIM, initializer="constant"
    )
    restore = raw_ops.EmbeddingVariableRestore(resource=restored, paths=[str(tmp_path / "table")])
    with tf.control_dependencies([restore]):
        copy = raw_ops.EmbeddingVariableExport(
            resource=restored, dtype=tf.float32, slot_dtype=tf.float32
        )
    got = run([copy.keys, copy.values, copy.frequencies])
    for g, w in zip(got, (keys, values, frequencies), strict=True):
        np.testing.assert_array_equal(g, w)


def test_every_save_beside_training_restores(program, tmp_path):
    batches = [batches_of(thread, NUM_STEPS) for thread in range(4)]
    is_done = threading.Event()
    path = tmp_path / "table"
    restored = raw_ops.EmbeddingVariableHandle(
        shared_name="restored", dtype=tf.float32, dim=DIM, initializer="constant"
    )
    restore = raw_ops.EmbeddingVariableRestore(resource=restored, paths=[str(path)])
    with tf.control_dependencies([restore]):
        copy = raw_ops.EmbeddingVariableExport(
            resource=restored, dtype=tf.float32, slot_dtype=tf.float32
        )

    def save_and_restore():
        program.session.run(program.save)
        return program.session.run([copy.values, copy.frequencies])

    body, copies = beside(program, is_done, save_and_restore)

    def train_all():
        run_threads([lambda b=b: train(program, b) for b in batches])
        is_done.set()

    run_threads([train_all, body])
    assert len(copies) > 1
    for values, frequencies in copies:
        assert_rows_are_whole(values)
        # The lookup counts before the update lowers; at most one step of each thread is between.
        lag = frequencies.astype(np.float32) + values[:, 0]
        assert (lag >= 0).all()
    sizes = [len(frequencies) for _, frequencies in copies]
    assert sizes == sorted(sizes)


def test_erasing_and_training_of_the_same_rows():
    """Handles of rows that went meanwhile are noticed: an update never hits another key's row."""
    with tf.Graph().as_default(), v1.Session() as session:
        table = fe.get_embedding_variable("table", DIM, initializer=fe.DebugInitializer())
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
        # A gradient of zero: a row keeps its first value, its key, whatever happens to it.
        nothing = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(0.0 * rows))
        erase = table.erase(ids)
        session.run([nothing, erase], {ids: [1]})
        rng = np.random.default_rng(0)
        batches = rng.integers(0, 500, [4, 60, 256])

        def train_rows(thread):
            for keys in batches[thread]:
                _, got = session.run([nothing, rows], {ids: keys})
                np.testing.assert_array_equal(got[:, 0], keys)

        def erase_rows():
            for keys in batches.reshape(-1, 64):
                session.run(erase, {ids: keys})

        run_threads([*(lambda t=t: train_rows(t) for t in range(4)), erase_rows])
        content = session.run(list(table.export()))
        np.testing.assert_array_equal(content[1][:, 0], content[0])


def test_threads_that_fill_a_bounded_table():
    """It never holds more than it may, and counts what it refused."""
    with tf.Graph().as_default(), v1.Session() as session:
        option = fe.EmbeddingVariableOption(max_capacity=3000, check_mode="ignore")
        table = fe.get_embedding_variable("table", DIM, ev_option=option)
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
        keys = np.arange(8000).reshape(8, 10, 100)

        def look_up(thread):
            for batch in keys[thread]:
                session.run(rows, {ids: batch})

        run_threads([lambda t=t: look_up(t) for t in range(8)])
        statistics = session.run(table.statistics())
        assert statistics["size"] == statistics["inserts"] <= 3000
        assert statistics["refusals"] == 8000 - statistics["inserts"]
        assert statistics["size"] > 2900  # shards fill up unevenly


def test_an_error_in_one_thread_leaves_the_others_alone():
    with tf.Graph().as_default(), v1.Session() as session:
        option = fe.EmbeddingVariableOption(max_capacity=100)
        table = fe.get_embedding_variable("table", DIM, ev_option=option)
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
        errors = []

        def look_up(thread):
            for _ in range(50):
                try:
                    session.run(rows, {ids: np.arange(80) if thread else np.arange(200)})
                except tf.errors.ResourceExhaustedError as error:
                    errors.append((thread, error))

        run_threads([lambda t=t: look_up(t) for t in range(4)])
        assert [thread for thread, _ in errors] == [0] * 50
        assert session.run(table.get_frequency(np.arange(80))).tolist() == [150] * 80
        assert session.run(table.total_count()) == 80
