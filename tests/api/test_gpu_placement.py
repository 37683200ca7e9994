"""Lookups where a GPU is asked for, or holds the table, and the ops have no kernels for it."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from fused_embedding import group_lookup, placement, tables

VERSIONS = ("v1", "v2", "v3")
TABLE = np.random.default_rng(5).standard_normal((7, 4)).astype(np.float32)
INDICES = [[0, 0], [0, 1], [2, 0], [3, 0], [3, 1]]
IDS, WEIGHTS = [5, 1, 5, -1, 2], np.float32([1, 2, 0.5, 1, 3])


def sparse(values):
    return tf.SparseTensor(INDICES, values, [5, 2])


def lookup(table, version, weights=None):
    return fe.nn.fused_safe_embedding_lookup_sparse(
        table,
        sparse(tf.constant(IDS, tf.int64)),
        sparse_weights=None if weights is None else sparse(weights),
        fusion_version=version,
    )


def run(version, shape=TABLE.shape):
    """Combined rows, the table's gradient as ids and rows, and that of the weights."""
    table, weights = tf.Variable(TABLE.reshape(shape)), tf.constant(WEIGHTS)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        combined = lookup(table, version, weights)
        loss = tf.reduce_sum(tf.reshape(combined, [5, 4]) * tf.range(4.0))
    slices, weights_grad = tape.gradient(loss, [table, weights])
    order = np.argsort(slices.indices)
    assert len(set(slices.indices.numpy())) == len(order)
    rows = tf.reshape(slices.values, [len(order), 4])
    parts = [combined, tf.gather(slices.indices, order), tf.gather(rows, order)]
    return [*parts, tf.convert_to_tensor(weights_grad)]


@pytest.fixture
def table_on_gpu(monkeypatch):
    """Pretends that tables are on a GPU; `has_kernels` says whether the ops can run there."""

    def pretend(*, has_kernels):
        for module in (placement, group_lookup):
            monkeypatch.setattr(module, "is_on_gpu", lambda _: True)
        for module in (tables, group_lookup):
            monkeypatch.setattr(module, "lacks_kernels", lambda _: not has_kernels)

    return pretend


@pytest.mark.parametrize("shape", [(7, 4), (7, 2, 2)])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_on_a_gpu_without_kernels_is_read_by_stock(table_on_gpu, version, shape):
    want = run(version, shape)
    table_on_gpu(has_kernels=False)
    table = tf.Variable(TABLE)

    @tf.function
    def forward():
        return lookup(table, version)

    used = {op.type for op in forward.get_concrete_function().graph.get_operations()}
    assert "ResourceGather" in used
    assert not [name for name in used if name.startswith("FusedEmbeddingResource")]
    for got, of_own_op in zip(run(version, shape), want, strict=True):
        np.testing.assert_allclose(got, of_own_op, rtol=1e-6)


def test_weights_on_a_gpu_have_their_gradient_from_v2(table_on_gpu):
    want = run("v3")
    table_on_gpu(has_kernels=True)

    def ops(weights):
        graph = tf.function(lambda t: lookup(t, "v3", weights)).get_concrete_function(
            tf.Variable(TABLE)
        )
        return {op.type for op in graph.graph.get_operations()}

    assert "FusedEmbeddingResourceGroupLookup" in ops(None)
    assert "FusedEmbeddingSparsePostLookUpV2" in ops(WEIGHTS)
    for got, of_one_op in zip(run("v3"), want, strict=True):
        np.testing.assert_allclose(got, of_one_op, rtol=1e-6)


@pytest.mark.parametrize(
    ("device", "on_gpu"),
    [
        ("", False),
        (None, False),
        ("/device:CPU:0", False),
        ("/GPU:0", True),
        ("/job:ps/device:GPU:1", True),
    ],
)
def test_knows_devices_of_tables(device, on_gpu):
    assert placement.is_on_gpu(device) == on_gpu


@pytest.mark.parametrize("version", VERSIONS)
def test_eager_and_function_fall_back_to_the_cpu(version):
    want = run(version)
    with tf.device("/GPU:0"):
        got = run(version)
        table = tf.Variable(TABLE)
        got.append(tf.function(lambda: lookup(table, version))())
    for result, of_cpu in zip(got, [*want, lookup(tf.Variable(TABLE), version)], strict=True):
        np.testing.assert_allclose(result, of_cpu, rtol=1e-6)


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_graph_falls_back_to_the_cpu(version, use_resource):
    want = run(version)
    with tf.Graph().as_default(), tf.device("/GPU:0"):
        table = tf.compat.v1.get_variable("t", initializer=TABLE, use_resource=use_resource)
        weights = tf.constant(WEIGHTS)
        combined = lookup(table, version, weights)
        loss = tf.reduce_sum(combined * tf.range(4.0))
        grad, weights_grad = tf.compat.v1.gradients(loss, [table, weights])
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        with tf.compat.v1.Session(config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            combined, ids, rows, weights_grad = session.run(
                [combined, grad.indices, grad.values, tf.convert_to_tensor(weights_grad)]
            )
    order = np.argsort(ids)
    got = [combined, ids[order], rows[order], weights_grad]
    for result, of_cpu in zip(got, want, strict=True):
        np.testing.assert_allclose(result, of_cpu, rtol=1e-6)
