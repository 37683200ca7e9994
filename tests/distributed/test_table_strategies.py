"""Tables without a vocabulary under ParameterServerStrategy train as ordinary variables do."""

import functools
import json
import os
import signal
import threading
import time
import types

import numpy as np
import pytest
import tensorflow as tf

import processes
from distributed import cluster
from distributed.table_strategy_program import (
    BATCH,
    COMBINERS,
    DIMS,
    LEARNING_RATE,
    NUM_IDS,
    NUM_STEPS,
    batch,
    loss_of,
)
from distributed.transfers import task_of
from fused_embedding.variable import strategies

tf1 = tf.compat.v1
pytestmark = pytest.mark.slow
SERVERS = ["/job:ps/task:0", "/job:ps/task:1"]


def run(what, addresses, folder):
    done = processes.run_module(
        "distributed.table_strategy_program", what, json.dumps(addresses), folder
    )
    return json.loads(processes.output_of(done).splitlines()[-1])


@pytest.fixture(scope="module")
def addresses():
    with cluster.running({"ps": 2, "worker": 2}) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def trained(addresses, folder):
    return run("train", addresses, folder)


@functools.cache
def stock():
    """Losses of twice the steps, and the rows after the first half, of ordinary variables."""
    graph = tf.Graph()
    with graph.as_default(), tf1.Session() as session:
        ids = {name: tf1.placeholder(tf.int64, [BATCH, 3]) for name in DIMS}
        ones = tf1.ones_initializer()
        tables = {n: tf1.get_variable(n, [NUM_IDS, d], initializer=ones) for n, d in DIMS.items()}
        embedded = []
        for name, table in tables.items():
            sparse = tf.sparse.from_dense(ids[name] + 1)
            shifted = tf.SparseTensor(sparse.indices, sparse.values - 1, sparse.dense_shape)
            embedded.append(
                tf1.nn.safe_embedding_lookup_sparse(table, shifted, combiner=COMBINERS[name])
            )
        loss = loss_of(embedded)
        step = tf1.train.AdagradOptimizer(LEARNING_RATE).minimize(loss)
        session.run(tf1.global_variables_initializer())
        losses, rows = [], {}
        for k in range(2 * NUM_STEPS):
            feed = {ids[name]: of_column for name, of_column in batch(k).items()}
            losses.append(session.run([loss, step], feed)[0])
            if k + 1 == NUM_STEPS:
                rows = session.run(tables)
        return losses, rows


def assert_are_stocks(content, rows):
    for name, (keys, values) in content.items():
        seen = np.unique(np.concatenate([batch(k)[name] for k in range(NUM_STEPS)]))
        assert keys == seen[seen >= 0].tolist()
        np.testing.assert_allclose(values, rows[name][keys], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["stock", "fused", "keras"])
def test_training_is_that_of_ordinary_variables(trained, optimizer):
    losses, rows = stock()
    np.testing.assert_allclose(trained["losses"][optimizer], losses[:NUM_STEPS], rtol=1e-5)
    assert_are_stocks(trained["rows"][optimizer], rows)


def test_parts_are_on_the_servers_in_turn_and_asked_by_one_message_each(trained):
    assert [task_of(device) for device in trained["devices"]] == SERVERS * len(DIMS)
    assert trained["messages"] == len(SERVERS)


def test_keras_fits_a_layer_with_a_table_on_the_servers(trained):
    fit = trained["fit"]
    assert sorted({task_of(device) for device in fit["devices"]}) == SERVERS
    assert fit["losses"][-1] < 0.1 * fit["losses"][0]
    assert fit["weights"] == 2 * len(SERVERS) + 1  # of the table, of the kernel, and the bias
    seen = np.abs(np.concatenate([batch(k)["users"] for k in range(8)]))
    assert fit["rows"] == len(np.unique(seen))


def test_a_table_is_placed_as_a_variable(addresses, folder):
    """Whole on the server whose turn it is, without a partitioner; one of its own comes first."""
    placed = run("place", addresses, folder)
    turns = [*placed["devices"], placed["variable"], *placed["divided"]]
    assert [task_of(device) for device in turns] == (SERVERS * 3)[: len(turns)]


@pytest.mark.parametrize("num_servers", [1, 3])
def test_a_checkpoint_goes_to_other_servers(trained, folder, num_servers):
    losses, rows = stock()
    with cluster.running({"ps": num_servers, "worker": 1}) as others:
        resumed = run("resume", others, folder)
    assert_are_stocks(resumed["restored"], rows)
    assert len({task_of(device) for device in resumed["devices"]}) == num_servers
    np.testing.assert_allclose(resumed["losses"], losses[NUM_STEPS:], rtol=1e-5)


def test_a_server_that_is_killed_is_an_error_and_its_rows_are_in_the_checkpoint(trained, folder):
    losses, rows = stock()
    with cluster.running_processes({"ps": 2, "worker": 1}) as (addresses, pids):

        def kill():
            while not (folder / "training").exists():
                time.sleep(0.05)
            os.kill(pids["ps", 1], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        assert run("lose", addresses, folder)["error"] == "UnavailableError"
        killer.join()
        with cluster.replaced(addresses, "ps", 1):
            resumed = run("resume", addresses, folder)
    assert_are_stocks(resumed["restored"], rows)
    np.testing.assert_allclose(resumed["losses"], losses[NUM_STEPS:], rtol=1e-5)


def test_a_partitioner_by_size_gives_each_server_a_part():
    partitioners = tf.distribute.experimental.partitioners

    def parts(partitioner):
        extended = types.SimpleNamespace(_variable_partitioner=partitioner, _num_ps=5)
        of_tables = strategies.partitioner_of(types.SimpleNamespace(extended=extended))
        return of_tables and of_tables(shape=tf.TensorShape([2**62, 4]), dtype=tf.float32)

    assert parts(None) is None
    assert parts(partitioners.FixedShardsPartitioner(7)) == [7, 1]
    assert parts(partitioners.MinSizePartitioner(max_shards=6)) == [6, 1]
    assert parts(partitioners.MaxSizePartitioner(1 << 20)) == [5, 1]
