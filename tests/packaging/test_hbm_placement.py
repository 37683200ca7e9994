"""Programs with tables in HBM ask a GPU for no op that it has no kernel for. Needs no GPU."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

import fused_embedding as fe
from fused_embedding.ops import placement
from fused_embedding.variable.storage_options import GPU_HANDLE

tf1 = tf.compat.v1
LIBRARY = pathlib.Path(fe.__file__).with_name("_ops_cuda.so")
pytestmark = pytest.mark.skipif(
    not (tf.sysconfig.get_build_info()["is_cuda_build"] and LIBRARY.exists()),
    reason="needs TensorFlow with CUDA and _ops_cuda.so: make cuda",
)
IN_HBM = fe.StorageOption(fe.StorageType.HBM, storage_size=[1 << 30], experimental=True)


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """A graph that is built for a GPU, which need not be there."""
    monkeypatch.setattr(placement, "why_no_gpu", lambda: None)
    monkeypatch.setattr(placement, "gpu_of_scope", lambda: "/device:GPU:0")
    with tf.Graph().as_default():
        yield


def is_on_gpu(op):
    """Whether a device or a colocation puts it there."""
    roots = [name.decode().removeprefix("loc:@") for name in op.colocation_groups()]
    handles = [op.graph.get_operation_by_name(root).type == GPU_HANDLE for root in roots if root]
    return any(handles) or placement.is_on_gpu(op.device)


def has_kernel(op):
    """Whether a GPU has a kernel for the types of an op."""

    def takes(constraint):
        value = op.node_def.attr[constraint.name]
        types = value.list.type if value.HasField("list") else [value.type]
        return set(types) <= set(constraint.allowed_values.list.type)

    return any(
        kernel.device_type in ("GPU", "DEFAULT") and all(map(takes, kernel.constraint))
        for kernel in get_registered_kernels_for_op(op.type).kernel
    )


def assert_all_have_kernels():
    on_gpu = [op for op in tf1.get_default_graph().get_operations() if is_on_gpu(op)]
    assert any(op.type == GPU_HANDLE for op in on_gpu)
    assert not [(op.type, op.name) for op in on_gpu if not has_kernel(op)]


def make_table(name, dim=4, **arguments):
    option = fe.EmbeddingVariableOption(
        storage_option=IN_HBM,
        filter_option=fe.CounterFilter(2),
        evict_option=fe.GlobalStepEvict(5),
    )
    return fe.get_embedding_variable(name, dim, ev_option=option, **arguments)


def test_a_step_of_all_lookups():
    tables = [make_table("a"), make_table("b", 8)]
    parts = make_table("p", partitioner=tf1.fixed_size_partitioner(2))
    ids = tf1.sparse_placeholder(tf.int64, [None, None])
    weights = tf1.sparse_placeholder(tf.float32, [None, None])
    rows = fe.nn.group_embedding_lookup_sparse([*tables, parts], [ids] * 3, ["sum"] * 3)
    rows.append(fe.nn.safe_embedding_lookup_sparse(parts, ids, weights, "mean"))
    rows.append(fe.nn.safe_embedding_lookup_sparse(tables[0], ids, weights, max_norm=1.0))
    rows += [tf.gather(tables[0], ids.values), tf.nn.embedding_lookup(tables[1], ids.values)]
    loss = tf.add_n([tf.reduce_sum(row**2) for row in rows])
    step = tf1.train.get_or_create_global_step()
    fe.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)
    types = {op.type for op in tf1.get_default_graph().get_operations() if is_on_gpu(op)}
    assert types > {
        *("EmbeddingVariableGroupLookup", "EmbeddingVariableGroupLookupGrad"),
        *("EmbeddingVariableLookup", "EmbeddingVariableApply"),
    }
    assert_all_have_kernels()


@pytest.mark.parametrize(
    ("make_saver", "ops"),
    [
        (lambda: tf1.train.Saver(), ("Export", "Import")),
        (lambda: tf1.train.Saver(sharded=True), ("Export", "Import")),
        (lambda: fe.train.Saver(incremental=True), ("Save", "Restore")),
        (lambda: fe.train.Saver(sharded=True), ("Save", "Restore")),
    ],
    ids=["stock", "stock-sharded", "incremental", "sharded"],
)
def test_savers(make_saver, ops):
    tf1.train.get_or_create_global_step()
    make_table("a")
    make_table("p", partitioner=tf1.fixed_size_partitioner(2))
    make_saver()
    types = {op.type for op in tf1.get_default_graph().get_operations() if is_on_gpu(op)}
    assert types > {f"EmbeddingVariable{name}" for name in (*ops, "Expire")}
    assert_all_have_kernels()


def test_content():
    table = make_table("a")
    table.upsert([1], np.zeros([1, 4]))
    table.erase([1])
    table.expire()
    table.export()
    table.prefetch([1])
    table.get_frequency([1])
    fe.summarize_statistics(table)
    assert_all_have_kernels()
