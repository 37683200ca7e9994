"""Two parameter servers and two workers train as one machine does, and send only ids and rows."""

import json
import re
import zlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import processes
from distributed import cluster, strategy_program
from distributed.transfers import nodes_by_task, run_traced, task_of, transfers

tf1 = tf.compat.v1

pytestmark = pytest.mark.slow

NUM_IDS, DIM, BATCH = 60, 4, 24
LOOKUPS = ("table", "column")
SECONDS = 300  # for what takes seconds: a machine may be busy
OPTIMIZERS = {
    "sgd": lambda: tf1.train.GradientDescentOptimizer(0.1),
    "adagrad": lambda: tf1.train.AdagradOptimizer(0.1),
    "fused_adagrad": lambda: fe.train.AdagradOptimizer(0.1),
}


class Setting(NamedTuple):
    """What the cases vary."""

    version: str
    use_resource: bool
    optimizer: str


SETTINGS = [
    Setting("v2", True, "sgd"),
    Setting("v3", True, "sgd"),
    Setting("v2", True, "adagrad"),
    Setting("v2", False, "adagrad"),
    Setting("v1", True, "adagrad"),
    Setting("v2", True, "fused_adagrad"),
    Setting("v2", False, "fused_adagrad"),
]


class Model(NamedTuple):
    """A model that reads one table by a function, and one by a feature column."""

    ids: dict[str, tf.SparseTensor]
    labels: tf.Tensor
    loss: tf.Tensor
    train: tf.Operation
    variables: list[Any]


@pytest.fixture(scope="module")
def addresses():
    with cluster.running({"ps": 2, "worker": 2}) as running:
        yield running


def build(setting: Setting) -> Model:
    ids = {name: tf1.sparse_placeholder(tf.int64, [None, None], name) for name in LOOKUPS}
    labels = tf1.placeholder(tf.float32, [None, 1])
    with tf1.variable_scope(
        "model", partitioner=tf1.fixed_size_partitioner(2), use_resource=setting.use_resource
    ):
        table = tf1.get_variable("table", [NUM_IDS, DIM])
        column = fe.feature_column.embedding_column(
            tf.feature_column.categorical_column_with_identity("column", NUM_IDS),
            DIM,
            do_fusion=setting.version,
        )
        from_column = tf1.feature_column.input_layer({"column": ids["column"]}, [column])
    with tf1.variable_scope("head", use_resource=setting.use_resource):
        kernel = tf1.get_variable("kernel", [2 * DIM, 1])
    from_table = fe.nn.fused_safe_embedding_lookup_sparse(
        table, ids["table"], max_norm=1.5, fusion_version=setting.version
    )
    predictions = tf.concat([from_table, from_column], axis=1) @ kernel
    loss = tf.reduce_mean((predictions - labels) ** 2)
    train = OPTIMIZERS[setting.optimizer]().minimize(loss)
    return Model(ids, labels, loss, train, tf1.global_variables())


def build_for_worker(setting: Setting, addresses, task: int) -> tuple[tf.Graph, Model]:
    graph = tf.Graph()
    setter = tf1.train.replica_device_setter(
        cluster=tf.train.ClusterSpec(addresses), worker_device=f"/job:worker/task:{task}"
    )
    with graph.as_default(), tf1.device(setter):
        return graph, build(setting)


def initialise(session: tf1.Session, model: Model) -> None:
    """Random values that depend on a variable's name alone; optimizers start as usual."""
    session.run(tf1.variables_initializer(model.variables))
    for variable in tf1.trainable_variables():
        rng = np.random.default_rng(zlib.crc32(variable.op.name.encode()))
        value = rng.standard_normal(variable.shape)
        session.run(variable.initializer, {variable.initializer.inputs[1]: value})


def random_ids(rng) -> tf1.SparseTensorValue:
    """Ids with duplicates, invalid ones and rows without any."""
    rows = np.sort(rng.integers(0, BATCH, 2 * BATCH))
    ids = np.minimum(rng.geometric(0.08, rows.size), NUM_IDS) - 1
    ids[rng.random(rows.size) < 0.1] = -1
    indices = np.stack([rows, np.arange(rows.size)], axis=1)
    return tf1.SparseTensorValue(indices, ids, [BATCH, rows.size])


def batches(model: Model, num_batches: int):
    rng = np.random.default_rng(3)
    for _ in range(num_batches):
        feed = {model.ids[name]: random_ids(rng) for name in LOOKUPS}
        yield {**feed, model.labels: rng.standard_normal((BATCH, 1))}


def filled_ids(ids: tf1.SparseTensorValue) -> np.ndarray:
    """The ids that a lookup reads: the valid ones, and id 0 for each row without one."""
    valid = ids.values >= 0
    num_empty = BATCH - np.unique(ids.indices[valid, 0]).size
    return np.concatenate([ids.values[valid], np.zeros(num_empty, np.int64)])


def connect(address: str, graph: tf.Graph) -> tf1.Session:
    config = tf1.ConfigProto(operation_timeout_in_ms=1000 * SECONDS)
    return tf1.Session(f"grpc://{address}", graph=graph, config=config)


def train_alone(setting: Setting, num_steps: int):
    with tf.Graph().as_default(), tf1.Session() as session:
        model = build(setting)
        initialise(session, model)
        steps = batches(model, num_steps)
        losses = [session.run([model.loss, model.train], feed)[0] for feed in steps]
        return losses, session.run({v.op.name: v for v in model.variables})


def train_in_turn(setting: Setting, addresses, num_steps: int):
    """Step k is worker k % 2's."""
    workers = [build_for_worker(setting, addresses, task) for task in range(2)]
    sessions = [
        connect(address, graph)
        for address, (graph, _) in zip(addresses["worker"], workers, strict=True)
    ]
    losses = []
    with workers[0][0].as_default():
        initialise(sessions[0], workers[0][1])
    feeds = zip(*(batches(model, num_steps) for _, model in workers), strict=True)
    for step, feed_of in enumerate(feeds):
        session, (_, model) = sessions[step % 2], workers[step % 2]
        losses.append(session.run([model.loss, model.train], feed_of[step % 2])[0])
    # Either worker sees what both did.
    values = sessions[1].run({v.op.name: v for v in workers[1][1].variables})
    for session in sessions:
        session.close()
    return losses, values


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_workers_in_turn_train_as_one_process_does(addresses, setting):
    num_steps = 6
    stock = setting._replace(optimizer=setting.optimizer.removeprefix("fused_"))
    want_losses, want = train_alone(stock, num_steps)
    losses, values = train_in_turn(setting, addresses, num_steps)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
    assert losses[-1] != losses[0]
    assert values.keys() == want.keys()
    for name in want:
        np.testing.assert_allclose(values[name], want[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module", params=SETTINGS, ids=str)
def traced_step(request, addresses):
    """A training step of worker 1: its setting, model, feed and metadata."""
    setting = request.param
    graph, model = build_for_worker(setting, addresses, task=1)
    with graph.as_default(), connect(addresses["worker"][1], graph) as session:
        initialise(session, model)
        feed = next(batches(model, 1))
        _, metadata = run_traced(session, model.train, feed)
    return setting, model, feed, metadata


WORKER = "/job:worker/task:1"


def table_transfers(version: str, ids: np.ndarray):
    """What a lookup of `ids` and its gradient send. v1 reads a row for each id, repeated or not.

    v3 sends a message of keys for each server, two a word behind a header of three words and one
    for each table, and rows end to end.
    """
    unique_ids = np.unique(ids)
    ids_read = {"v1": ids, "v2": unique_ids, "v3": unique_ids}[version]
    for shard in range(2):
        server = f"/job:ps/task:{shard}"
        num_read = int(np.sum(ids_read // (NUM_IDS // 2) == shard))
        num_unique = int(np.sum(unique_ids // (NUM_IDS // 2) == shard))
        if version == "v3":
            yield WORKER, server, tf.int64, (3 + 1 + (num_unique + 1) // 2,)
            yield server, WORKER, tf.float32, (num_unique * DIM,)
            yield WORKER, server, tf.float32, (num_unique * DIM,)
            continue
        yield WORKER, server, tf.int64, (num_read,)
        yield server, WORKER, tf.float32, (num_read, DIM)
        yield WORKER, server, tf.float32, (num_unique, DIM)
        if version == "v1":  # v2's are there already
            yield WORKER, server, tf.int64, (num_unique,)


def dense_transfers(model: Model):
    """The kernel to the worker, its gradient back."""
    kernel = next(v for v in model.variables if v.op.name == "head/kernel")
    shape = tuple(kernel.shape.as_list())
    server = task_of(kernel.device)
    return [(server, WORKER, tf.float32, shape), (WORKER, server, tf.float32, shape)]


def test_only_ids_their_rows_and_their_gradients_cross(traced_step):
    setting, model, feed, metadata = traced_step
    want = dense_transfers(model)
    if setting.optimizer.startswith("fused_"):
        # The kernel's update alone needs the learning rate, a constant: TensorFlow copies those
        # to servers when it builds the step if several need them, and sends them if one does.
        want.append((WORKER, want[0][0], tf.float32, ()))
    for name in LOOKUPS:
        want += table_transfers(setting.version, filled_ids(feed[model.ids[name]]))
    assert [t[:4] for t in transfers(metadata)] == sorted(want, key=str)


def test_gathers_and_updates_run_beside_their_shards(traced_step):
    setting, model, _, metadata = traced_step
    task_of_node = {node.name: (task, node) for task, node in nodes_by_task(metadata)}
    variables = {v.op.name: task_of(v.device) for v in model.variables}

    def nodes_of(pattern):
        return [pair for pair in task_of_node.values() if re.search(pattern, pair[1].op)]

    gathers = nodes_of("^FusedEmbedding(Resource)?(Gather|RemoteRows)$")
    assert len(gathers) == 2 * len(LOOKUPS)
    for task, gather in gathers:
        table = gather.input[0].removesuffix("/read")
        assert variables[table] == task, gather
    assert set(variables.values()) == {"/job:ps/task:0", "/job:ps/task:1"}
    updates = nodes_of("Apply|Scatter")
    # The kernel's, and one for each shard, or one for all shards of a server.
    num_sparse = 2 if setting.optimizer.startswith("fused_") else 2 * len(LOOKUPS)
    assert len(updates) == 1 + num_sparse
    for task, update in updates:
        of_op = [v for v in update.input if v in variables]
        assert of_op, update
        assert {variables[v] for v in of_op} == {task}, update


def test_sharded_variables_train_under_parameter_server_strategy(addresses, tmp_path):
    program = "distributed.strategy_program"
    files = [json.dumps(addresses), tmp_path / "trained.npz"]
    processes.output_of(processes.run_module(program, *files))
    trained = np.load(tmp_path / "trained.npz")
    assert [task_of(str(device)) for device in trained["devices"]] == [
        "/job:ps/task:0",
        "/job:ps/task:1",
    ]
    losses, table = strategy_program.train_alone(tf.nn.safe_embedding_lookup_sparse)
    np.testing.assert_allclose(trained["losses"], losses, rtol=1e-5)
    np.testing.assert_allclose(trained["table"], table, rtol=1e-5, atol=1e-6)
