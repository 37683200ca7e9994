"""Lookups and steps run on the GPU that has the table. The oracle is stock on the CPU."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe

pytestmark = pytest.mark.gpu

TABLE = np.random.default_rng(7).standard_normal((50, 8)).astype(np.float32)
INDICES = [[0, 0], [0, 1], [2, 0], [3, 0], [3, 1], [3, 2]]
IDS = [5, 41, 5, 7, 5, 7]
OWN_OPS = ("FusedEmbedding", "PruneInvalid", "UniqueWithCountsV3", "PartitionWithPermutation")


def lookup(table, version):
    ids = tf.SparseTensor(INDICES, tf.constant(IDS, tf.int64), [4, 3])
    if version == "group":
        return fe.nn.group_embedding_lookup_sparse([table], [ids], ["mean"])[0]
    if version == "stock":
        return tf.nn.safe_embedding_lookup_sparse(table, ids)
    return fe.nn.fused_safe_embedding_lookup_sparse(table, ids, fusion_version=version)


def step(table, version, optimizer):
    """Combined rows, and the table after a step by their squares."""
    with tf.GradientTape() as tape:
        combined = lookup(table, version)
        loss = tf.reduce_sum(combined * combined)
    optimizer.apply_gradients([(tape.gradient(loss, table), table)])
    return combined, table.read_value()


def of_stock(make_optimizer):
    with tf.device("/CPU:0"):
        return [t.numpy() for t in step(tf.Variable(TABLE), "stock", make_optimizer(0.1))]


def own_ops_of(graph_def):
    """Names of our ops to the kinds of device they are on."""
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    return {n.op: n.device.rpartition("device:")[2][:3] for n in nodes if n.op.startswith(OWN_OPS)}


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "group"])
def test_eager_results_are_on_the_gpu(version):
    with tf.device("/GPU:0"):
        optimizer = fe.train.AdagradOptimizer(0.1)
        got = step(tf.Variable(TABLE), version, optimizer)
    assert got[0].device.endswith("GPU:0")
    want = of_stock(tf.compat.v1.train.AdagradOptimizer)
    for of_gpu, of_cpu in zip(got, want, strict=True):
        np.testing.assert_allclose(of_gpu, of_cpu, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "group"])
def test_a_session_places_each_op_on_the_gpu(version):
    with tf.Graph().as_default():
        with tf.device("/GPU:0"):
            table = tf.Variable(TABLE)
            combined = lookup(table, version)
            optimizer = fe.train.AdagradOptimizer(0.1)
            train = optimizer.minimize(tf.reduce_sum(combined * combined), var_list=[table])
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        with tf.compat.v1.Session(config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            got = session.run(combined)
            session.run(train, options=options, run_metadata=metadata)
            updated = session.run(table)
    placed = {}
    for graph in metadata.partition_graphs:
        placed |= own_ops_of(graph)
    assert len(placed) >= 2, placed  # at least the lookup and the update
    assert set(placed.values()) == {"GPU"}, placed
    want = of_stock(tf.compat.v1.train.AdagradOptimizer)
    np.testing.assert_allclose(got, want[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(updated, want[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "group"])
def test_a_function_gives_the_same(version):
    with tf.device("/GPU:0"):
        table, optimizer = tf.Variable(TABLE), fe.train.AdagradOptimizer(0.1)
    run = tf.function(lambda: step(table, version, optimizer))
    got = run()
    assert got[0].device.endswith("GPU:0")
    want = of_stock(tf.compat.v1.train.AdagradOptimizer)
    for of_gpu, of_cpu in zip(got, want, strict=True):
        np.testing.assert_allclose(of_gpu, of_cpu, rtol=1e-5, atol=1e-6)
