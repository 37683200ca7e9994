"""Lookups where a GPU is asked for, or holds the table, and the ops have no kernels for it."""

import re

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tables import make_variable, parts_of
from fused_embedding.lookup import group, remote, tables
from fused_embedding.ops import placement

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
        for module in (tables, group):
            monkeypatch.setattr(module, "lacks_kernels", lambda _: not has_kernels)
        monkeypatch.setattr(remote, "is_on_gpu", lambda _: True)

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


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["no_weights", "weights"])
def test_one_op_reads_a_table_on_a_gpu(table_on_gpu, weights):
    table_on_gpu(has_kernels=True)
    table = tf.Variable(TABLE)
    function = tf.function(lambda: lookup(table, "v3", weights))
    used = {op.type for op in function.get_concrete_function().graph.get_operations()}
    assert "FusedEmbeddingResourceGroupLookup" in used


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


# Our ops that have kernels for GPUs. TensorFlow puts one there unless it was told otherwise.
GPU_OPS = re.compile("FusedEmbedding|PruneInvalid|UniqueWithCountsV3|PartitionWithPermutation")


def ops_for_gpus(build):
    """Those in the graph that `build` makes: the type of each, and whether it must be on a CPU."""
    with tf.Graph().as_default() as graph:
        build()
    found = []
    for op in graph.get_operations():
        if GPU_OPS.match(op.type):
            # A table's op has kernels for CPUs alone.
            beside = [graph.get_operation_by_name(g.decode()[5:]) for g in op.colocation_groups()]
            is_beside_table = any(op.type.startswith("EmbeddingVariable") for op in beside)
            on_cpu = tf.DeviceSpec.from_string(op.device).device_type == "CPU"
            found.append((op.type, on_cpu or is_beside_table))
    return found


@pytest.mark.parametrize("num_partitions", [None, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_lookups_of_hash_tables_stay_beside_them(version, num_partitions):
    def build():
        variable, _ = make_variable(TABLE, num_partitions)
        weights = tf.compat.v1.placeholder(tf.float32, [5])
        combined = lookup(variable, version, weights)
        # Unlike tf.gradients, this leaves it to us where gradients go.
        tf.compat.v1.gradients(combined, [*parts_of(variable), weights])
        tf.gather(parts_of(variable)[0], [5, 1])
        variable.erase([1])

    found = ops_for_gpus(build)
    used = {name for name, _ in found}
    gradients = {name for name in used if name.endswith("WeightsGrad")}
    assert gradients
    assert "UniqueWithCountsV3" in used
    assert ("PartitionWithPermutation" in used) == (num_partitions is not None)
    assert not [name for name, stays_on_cpu in found if not stays_on_cpu]


@pytest.mark.parametrize("version", VERSIONS)
def test_lookups_of_variables_may_go_to_a_gpu(version):
    def build():
        table = tf.compat.v1.get_variable("t", initializer=TABLE, use_resource=True)
        tf.compat.v1.gradients(lookup(table, version), table)

    found = ops_for_gpus(build)
    assert found
    assert not [name for name, stays_on_cpu in found if stays_on_cpu]
