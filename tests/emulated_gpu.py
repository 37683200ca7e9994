"""Tables in a GPU's memory without a GPU: their kernels on the CUDA emulation.

The kernels of `_ops_emulated.so` are for CPUs, under a label, because tables in DRAM have the same
ops. Inside `emulated_gpu()` ops on tables in HBM get the label, which stays in graphs on disk.
"""

import contextlib
import functools
import os
import pathlib
import weakref

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import fused_embedding as fe
from fused_embedding.ops import placement, raw_ops
from fused_embedding.variable.storage_options import GPU_HANDLE

ROOT = pathlib.Path(__file__).parents[1]
LIBRARY = ROOT / "build/dev/_ops_emulated.so"
LABEL = "emulated"
# The ops with kernels of their own: tf_ops/kernels/cuda/gpu_table_*.cc. The handle's has no label.
OPS = (
    *("EmbeddingVariableApply", "EmbeddingVariableErase", "EmbeddingVariableExpire"),
    *("EmbeddingVariableExport", "EmbeddingVariableGroupLookup"),
    *("EmbeddingVariableGroupLookupGrad", "EmbeddingVariableImport"),
    *("EmbeddingVariableInitialize", "EmbeddingVariableIsInitialized", "EmbeddingVariableLookup"),
    *("EmbeddingVariableMetadata", "EmbeddingVariablePrefetch", "EmbeddingVariableRestore"),
    *("EmbeddingVariableSave", "EmbeddingVariableSeed", "EmbeddingVariableStatistics"),
    "EmbeddingVariableUpsert",
)


@functools.cache
def missing():
    """Why there is no emulation; None: it is loaded."""
    library = pathlib.Path(os.environ.get("FE_EMULATED_LIBRARY", LIBRARY))
    if not library.exists():
        return f"{library} is not built: make emulated"
    is_of_this_build = pathlib.Path(fe.__file__).parents[1] == ROOT / "python"
    if library == LIBRARY and not is_of_this_build:
        return (
            "the emulation is of another build: FE_EMULATED_LIBRARY names one for this TensorFlow"
        )
    tf.load_op_library(str(library))
    return None


_eager_handles = {}  # of tables in HBM, by id


def _make_handle(make):
    def call(**kwargs):
        handle = make(**kwargs)
        if tf.executing_eagerly():
            _eager_handles[id(handle)] = weakref.ref(handle)
        return handle

    return call


def _is_in_hbm(handle):
    """Whether it is of a table in HBM, maybe as the argument of a function."""
    while hasattr(handle, "graph") and hasattr(handle.graph, "captures"):
        outer = [outside for outside, inside in handle.graph.captures if inside is handle]
        if not outer:
            break
        handle = outer[0]
    if hasattr(handle, "numpy"):
        made = _eager_handles.get(id(handle))
        return made is not None and made() is handle
    return handle.op.type == GPU_HANDLE


def _labelled(name, op):
    def in_graph(**kwargs):
        graph = tf.compat.v1.get_default_graph()
        with graph._kernel_label_map({name: LABEL}):
            return op(**kwargs)

    @tf.autograph.experimental.do_not_convert
    def as_tensors(**kwargs):
        result = in_graph(**kwargs)
        return None if isinstance(result, tf.Operation) else result

    # Eagerly there are no labels, but in the graph of a function.
    eagerly = tf.function(as_tensors, autograph=False, reduce_retracing=True)

    @tf.autograph.experimental.do_not_convert
    def call(**kwargs):
        tables = [kwargs["resource"]] if "resource" in kwargs else kwargs.get("resources", [])
        if tables and not _is_in_hbm(tables[0]):
            return op(**kwargs)
        return eagerly(**kwargs) if tf.executing_eagerly() else in_graph(**kwargs)

    return call


def _nodes(saved):
    for meta_graph in saved.meta_graphs:
        graph = meta_graph.graph_def
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            yield from nodes


def nodes_of(folder):
    """The nodes of a SavedModel."""
    return list(_nodes(SavedModel.FromString(pathlib.Path(folder, "saved_model.pb").read_bytes())))


def remove_labels(folder):
    """Takes the labels, which a GPU's kernels have not, out of the graph of a SavedModel."""
    path = pathlib.Path(folder, "saved_model.pb")
    saved = SavedModel.FromString(path.read_bytes())
    for node in _nodes(saved):
        node.attr.pop("_kernel", None)
    path.write_bytes(saved.SerializeToString())


@contextlib.contextmanager
def emulated_gpu():
    """Inside, tables with StorageType.HBM can be made and used: on a GPU where there is one."""
    if placement.why_no_gpu() is None:
        yield
        return
    if missing() is not None:
        pytest.skip(missing())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "why_no_gpu", lambda: None)
        patch.setattr(placement, "gpu_of_scope", lambda: "/device:CPU:0")
        patch.setattr(raw_ops, GPU_HANDLE, _make_handle(getattr(raw_ops, GPU_HANDLE)))
        for name in OPS:
            patch.setattr(raw_ops, name, _labelled(name, getattr(raw_ops, name)))
        yield
