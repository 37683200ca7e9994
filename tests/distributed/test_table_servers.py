"""An EmbeddingVariable on two parameter servers: placed, trained, moved, lost and restored."""

import os
import signal
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from distributed import cluster
from distributed.transfers import nodes_by_task, run_traced, task_of, transfers

tf1 = tf.compat.v1

pytestmark = pytest.mark.slow

DIM, BATCH = 4, 24
SECONDS = 120
WORKER = "/job:worker/task:1"


class Model(NamedTuple):
    """A model on a partitioned table that counts keys."""

    ids: tf.Tensor
    loss: tf.Tensor
    train: tf.Operation
    table: fe.PartitionedEmbeddingVariable
    dense: Any
    exports: list[dict[str, tf.Tensor]]
    saver: Any


def build(make_saver: Any = tf1.train.Saver) -> Model:
    ids = tf1.placeholder(tf.int64, [None], "ids")
    option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(2))
    table = fe.get_embedding_variable(
        "table", DIM, partitioner=tf1.fixed_size_partitioner(2), ev_option=option
    )
    dense = tf1.get_variable("dense", [DIM], initializer=tf1.ones_initializer())
    num_ids = tf.size(ids, out_type=tf.int64)
    indices = tf.stack([tf.range(num_ids) // 2, tf.range(num_ids)], axis=1)
    sp_ids = tf.SparseTensor(indices, ids, tf.stack([num_ids // 2, num_ids]))
    rows = fe.nn.fused_safe_embedding_lookup_sparse(table, sp_ids, fusion_version="v2")
    loss = tf.reduce_sum((rows * dense - 1) ** 2)
    step = tf1.train.get_or_create_global_step()
    train = tf1.train.AdagradOptimizer(0.1).minimize(loss, step)
    exports = [part.export_content()._asdict() for part in table]
    saver = make_saver(sharded=True)
    return Model(ids, loss, train, table, dense, exports, saver)


def build_for_worker(addresses, task: int, **kwargs: Any) -> tuple[tf.Graph, Model]:
    graph = tf.Graph()
    setter = tf1.train.replica_device_setter(
        cluster=tf.train.ClusterSpec(addresses), worker_device=f"/job:worker/task:{task}"
    )
    with graph.as_default(), tf1.device(setter):
        return graph, build(**kwargs)


def connect(address: str, graph: tf.Graph) -> tf1.Session:
    config = tf1.ConfigProto(operation_timeout_in_ms=1000 * SECONDS)
    return tf1.Session(f"grpc://{address}", graph=graph, config=config)


def ids_of_step(step: int) -> np.ndarray:
    """Keys with duplicates; some come once only and are not admitted."""
    rng = np.random.default_rng(step)
    return np.r_[rng.integers(0, 30, BATCH), rng.integers(0, 2**60, 6)]


def train_step(session: tf1.Session, model: Model, step: int) -> float:
    return session.run([model.loss, model.train], {model.ids: ids_of_step(step)})[0]


def content(session: tf1.Session, model: Model) -> list[np.ndarray]:
    """Keys, values, slots and frequencies of both partitions, then what is not admitted."""
    parts = session.run(model.exports)
    names = ("keys", "values", "slots", "frequencies", "filtered_keys", "filtered_frequencies")
    return [part[name] for part in parts for name in names] + [session.run(model.dense)]


def assert_same(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    assert len(got[0]) > 5  # keys
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def train_alone(num_steps: int) -> tuple[list[float], list[np.ndarray]]:
    with tf.Graph().as_default(), tf1.Session() as session:
        model = build()
        session.run(tf1.global_variables_initializer())
        losses = [train_step(session, model, step) for step in range(num_steps)]
        return losses, content(session, model)


@pytest.fixture(scope="module")
def servers():
    with cluster.running_processes({"ps": 2, "worker": 2}) as running:
        yield running


@pytest.fixture(scope="module")
def addresses(servers):
    return servers[0]


def clear(session: tf1.Session, model: Model) -> None:
    """Servers outlive sessions, and tables their graphs."""
    for part in model.table:
        keys = session.run(part.export().keys)
        session.run(part.erase(keys))


def test_replica_device_setter_spreads_partitions_over_servers():
    setter = tf1.train.replica_device_setter(ps_tasks=2, worker_device=WORKER)
    with tf.Graph().as_default(), tf1.device(setter):
        before = tf1.get_variable("before", [3])
        table = fe.get_embedding_variable("table", 4, partitioner=tf1.fixed_size_partitioner(3))
        after = tf1.get_variable("after", [3])
        devices = [before.device, *[part.handle.device for part in table], after.device]
        assert [task_of(one) for one in devices] == [f"/job:ps/task:{i}" for i in (0, 1, 0, 1, 0)]
        rows = tf.nn.embedding_lookup(table[0], [1, 2])
        assert task_of(rows.device) == WORKER
        names = {op.type for op in tf1.get_default_graph().get_operations()}
        assert "VarHandleOp" in names  # of the ordinary variables: no other node was added
        handles = [op for op in tf1.get_default_graph().get_operations() if "Handle" in op.type]
        assert len(handles) == 5


@pytest.mark.parametrize("device", ["/job:ps/task:1", "/cpu:0", ""])
def test_devices_are_those_of_the_program(device):
    with tf.Graph().as_default(), tf.device(device):
        table = fe.get_embedding_variable("table", 4)
        assert table.handle.device == tf1.get_variable("other", [1], use_resource=True).device


def test_workers_in_turn_train_as_one_process_does(addresses):
    num_steps = 8
    want_losses, want = train_alone(num_steps)
    workers = [build_for_worker(addresses, task) for task in range(2)]
    sessions = [
        connect(address, graph)
        for address, (graph, _) in zip(addresses["worker"], workers, strict=True)
    ]
    with workers[0][0].as_default():
        sessions[0].run(tf1.global_variables_initializer())
    losses = [
        train_step(sessions[step % 2], workers[step % 2][1], step) for step in range(num_steps)
    ]
    np.testing.assert_allclose(losses, want_losses, rtol=1e-6)
    assert_same(content(sessions[1], workers[1][1]), want)
    for session in sessions:
        session.close()


def test_only_keys_rows_and_gradients_cross(addresses):
    """Handles stay on the server, where lookups and updates run."""
    graph, model = build_for_worker(addresses, task=1)
    with graph.as_default(), connect(addresses["worker"][1], graph) as session:
        session.run(tf1.global_variables_initializer())
        clear(session, model)
        train_step(session, model, 0)
        ids = ids_of_step(0)
        _, metadata = run_traced(session, model.train, {model.ids: ids})
    unique_ids = np.unique(ids)
    with tf.device("/cpu:0"):
        shards = fe.raw_ops.PartitionWithPermutation(
            input=tf.constant(unique_ids),
            partition_shapes=[tf.constant([0, DIM], tf.int64)] * 2,
            partition_strategy="hash",
        ).partitioned_values
    crossing = [t[:4] for t in transfers(metadata)]
    for task, keys in enumerate(shards):
        server, num_keys = f"/job:ps/task:{task}", len(keys)
        assert num_keys > 1
        expected = [
            (WORKER, server, tf.int64, (num_keys,)),  # keys
            (WORKER, server, tf.int32, (num_keys,)),  # how often each occurs
            (server, WORKER, tf.float32, (num_keys, DIM)),  # rows
            (WORKER, server, tf.float32, (num_keys, DIM)),  # their gradients
        ]
        for transfer in expected:
            assert crossing.count(transfer) == 1, transfer
            crossing.remove(transfer)
    # What is left does not grow with the batch: hyperparameters, the global step, the dense part.
    assert all(np.prod(shape) <= DIM for *_, shape in crossing)
    task_of_node = {node.name: (task, node.op) for task, node in nodes_by_task(metadata)}
    for op in ("EmbeddingVariableLookup", "EmbeddingVariableApply"):
        tasks = [task for task, of_node in task_of_node.values() if of_node == op]
        assert sorted(tasks) == ["/job:ps/task:0", "/job:ps/task:1"], op


@pytest.mark.kills
@pytest.mark.parametrize("make_saver", [tf1.train.Saver, fe.train.Saver], ids=["stock", "streams"])
def test_a_killed_server_is_restarted_from_a_checkpoint(tmp_path, make_saver):
    num_steps = 6
    want_losses, want = train_alone(num_steps)
    with cluster.running_processes({"ps": 2, "worker": 2}) as (addresses, processes):
        graph, model = build_for_worker(addresses, task=0, make_saver=make_saver)
        master = addresses["worker"][0]
        session = connect(master, graph)
        with graph.as_default():
            session.run(tf1.global_variables_initializer())
            losses = [train_step(session, model, step) for step in range(4)]
            path = model.saver.save(session, str(tmp_path / "model"))
        train_step(session, model, 77)  # is lost
        os.kill(processes["ps", 1], signal.SIGKILL)
        with pytest.raises(tf.errors.OpError):
            train_step(session, model, 78)
        with cluster.replaced(addresses, "ps", 1):
            session.close()  # would wait for a server that is gone
            with graph.as_default(), connect(master, graph) as session:
                cluster.when_reached(lambda: model.saver.restore(session, path))
                losses += [train_step(session, model, step) for step in range(4, num_steps)]
                assert_same(content(session, model), want)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-6)
