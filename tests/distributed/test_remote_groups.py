"""Groups of columns whose tables are on two parameter servers: one message each way a server."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from checking import assert_same_bits
from distributed import cluster
from distributed.transfers import nodes_by_task, run_traced, task_of, transfers

tf1 = tf.compat.v1

pytestmark = pytest.mark.slow

SECONDS = 120
WORKER = "/job:worker/task:0"
SERVERS = ("/job:ps/task:0", "/job:ps/task:1")
BATCH, NUM_IDS = 16, 40
DIMS = (4, 3, 8, 4, 1, 17, 4, 4)
KINDS = ("resource", "reference", "embedding_variable")
# Ops of a step on a table that are no reads of a handle: what the issue bounds.
REMOTE_OPS = re.compile("Remote|UnpackRows|Apply")


class Model(NamedTuple):
    """Columns of a table each, and a model on them."""

    ids: list[Any]
    weights: Any
    tables: list[Any]
    loss: tf.Tensor
    train: tf.Operation


@pytest.fixture(scope="module")
def addresses():
    with cluster.running({"ps": 2, "worker": 1}) as running:
        yield running


def make_table(kind: str, name: str, dim: int, partitions: int) -> Any:
    partitioner = tf1.fixed_size_partitioner(partitions)
    if kind == "embedding_variable":
        option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(2))
        init = tf.constant_initializer(0.25)
        return fe.get_embedding_variable(
            name, dim, initializer=init, partitioner=partitioner, ev_option=option
        )
    shape, init = [NUM_IDS, dim], tf1.random_uniform_initializer(-1, 1, seed=3)
    return tf1.get_variable(
        name, shape, initializer=init, partitioner=partitioner, use_resource=kind == "resource"
    )


def build(kind: str, num_columns: int, partitions: int, name: str) -> Model:
    ids = [tf1.sparse_placeholder(tf.int64, [None, None], f"ids_{c}") for c in range(num_columns)]
    weights = tf1.sparse_placeholder(tf.float32, [None, None], "weights")
    tables = [
        make_table(kind, f"{name}_{c}", DIMS[c % len(DIMS)], partitions) for c in range(num_columns)
    ]
    combined = fe.nn.group_embedding_lookup_sparse(
        tables,
        ids,
        ["mean", *["sum"] * (num_columns - 2), "sqrtn"],
        sp_weights=[weights, *[None] * (num_columns - 1)],
        max_norms=[None, 0.5, *[None] * (num_columns - 2)],
    )
    loss = tf.reduce_sum([tf.reduce_sum((rows - 0.5) ** 2) for rows in combined])
    step = tf1.train.get_or_create_global_step()
    return Model(ids, weights, tables, loss, fe.train.AdagradOptimizer(0.1).minimize(loss, step))


def batches(model: Model, num_batches: int):
    """Ids with duplicates, invalid ones and rows without any."""
    rng = np.random.default_rng(5)
    for _ in range(num_batches):
        feed = {}
        for column in model.ids:
            rows = np.sort(rng.integers(0, BATCH, 2 * BATCH))
            indices = np.stack([rows, np.arange(rows.size)], axis=1)
            ids = np.where(rng.random(rows.size) < 0.1, -1, rng.integers(0, NUM_IDS, rows.size))
            feed[column] = tf1.SparseTensorValue(indices, ids, [BATCH, rows.size])
        first = feed[model.ids[0]]
        weights = rng.choice([-1.0, 0.0, 0.5, 2.0], first.values.size).astype(np.float32)
        yield {**feed, model.weights: first._replace(values=weights)}


def content(session: tf1.Session, table: Any) -> np.ndarray:
    """Rows of a table by key, with their counts where it has some."""
    if not isinstance(table, fe.PartitionedEmbeddingVariable):
        return session.run(tf.convert_to_tensor(table))
    parts = [session.run(part.export()) for part in table]
    keys = np.concatenate([part.keys for part in parts])
    counts = np.concatenate([np.stack([part.freqs, part.versions], axis=1) for part in parts])
    rows = np.concatenate([part.values for part in parts])
    return np.concatenate([keys[:, None], counts, rows], axis=1)[np.argsort(keys)]


def train(session: tf1.Session, model: Model, num_steps: int):
    session.run(tf1.global_variables_initializer())
    losses = [session.run([model.loss, model.train], feed)[0] for feed in batches(model, num_steps)]
    return np.array(losses), [content(session, table) for table in model.tables]


def connect(addresses, graph: tf.Graph) -> tf1.Session:
    config = tf1.ConfigProto(operation_timeout_in_ms=1000 * SECONDS)
    return tf1.Session(f"grpc://{addresses['worker'][0]}", graph=graph, config=config)


def graph_of_worker(addresses, *args: Any) -> tuple[tf.Graph, Model]:
    setter = tf1.train.replica_device_setter(cluster=tf.train.ClusterSpec(addresses))
    with tf.Graph().as_default() as graph, tf1.device(setter):
        return graph, build(*args)


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_trains_as_one_process_does_bit_for_bit(addresses, kind, partitions):
    with tf.Graph().as_default() as graph, tf1.Session(graph=graph) as session:
        want_losses, want = train(session, build(kind, 5, partitions, "one"), 4)
    graph, model = graph_of_worker(addresses, kind, 5, partitions, f"trained_{partitions}")
    with graph.as_default(), connect(addresses, graph) as session:
        losses, got = train(session, model, 4)
    assert len(set(losses)) == len(losses)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-6)  # sums of columns in any order
    for rows, want_rows in zip(got, want, strict=True):
        assert_same_bits(rows, want_rows)


def traced_step(addresses, kind, num_columns, name):
    graph, model = graph_of_worker(addresses, kind, num_columns, 2, name)
    with graph.as_default(), connect(addresses, graph) as session:
        session.run(tf1.global_variables_initializer())
        feed = next(batches(model, 1))
        session.run(model.train, feed)
        return run_traced(session, model.train, feed)[1]


# To each server keys and gradients, from it rows.
TENSORS = [
    *((WORKER, server, dtype) for server in SERVERS for dtype in (tf.int64, tf.float32)),
    *((server, WORKER, tf.float32) for server in SERVERS),
]


@pytest.mark.parametrize("num_columns", [3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_three_tensors_a_server_cross_whatever_the_columns(addresses, kind, num_columns):
    metadata = traced_step(addresses, kind, num_columns, f"counted_{num_columns}")
    of_tables, others = [], []
    for crossed in transfers(metadata):
        (of_tables if len(crossed.shape) == 1 else others).append(crossed)
    assert sorted((t[:3] for t in of_tables), key=str) == sorted(TENSORS, key=str)
    assert {t.shape for t in others} <= {()}  # the step, the learning rate
    ops = [node.op for _, node in nodes_by_task(metadata)]
    assert len([op for op in ops if REMOTE_OPS.search(op)]) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_explain_names_the_path(addresses, kind):
    graph, _ = graph_of_worker(addresses, kind, 4, 2, "explained")
    [lookup] = fe.explain(graph)
    assert (lookup.path, lookup.num_columns) == ("remote", 4)
    assert ": one message each way for each of 2 servers" in lookup.why


def test_tables_of_one_server_are_read_there(addresses):
    metadata = traced_step(addresses, "resource", 3, "beside")
    reads = [(t, n) for t, n in nodes_by_task(metadata) if n.op.endswith("RemoteRows")]
    assert sorted(task for task, _ in reads) == list(SERVERS)
    assert {task_of(node.device) for _, node in reads} == set(SERVERS)
