"""Writes a function of stock ops as an ONNX file, by tf2onnx."""

import importlib
import os
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint.whole_file import whole_file
from fused_embedding.serving.onnx_tables import LOOKUP_OP, OnnxTables

# The first with reductions of ScatterElements that runtimes have in all types is 16; 18 is the
# highest that tf2onnx writes.
_OPSET = 18
_MAX_BYTES = 2**31 - 1  # of a protobuf message


def write_onnx(function: Any, variables: list[tf.Variable], tables: OnnxTables, path: str) -> None:
    """Writes the file.

    Args:
        function: A concrete function of stock ops, whose lookups are of `tables`.
        variables: Its dense variables.
        tables: Its EmbeddingVariables.
        path: Of the file, made or replaced.

    Raises:
        ImportError: If tf2onnx or onnx is not installed.
        NotImplementedError: If tf2onnx has no form of an op; it names the op.
        ValueError: If the file would be larger than 2 GB, or `path` is a folder.
    """
    if os.path.isdir(path):
        raise ValueError(
            f"{path!r} is a folder, but an ONNX file is written: add the name of a file"
        )
    onnx, tf2onnx = (_required(name) for name in ("onnx", "tf2onnx"))
    _check_size(variables, tables)
    specs = function.structured_input_signature[1]

    @tf.function(autograph=False)
    def serve(*arguments: tf.Tensor) -> Any:
        for variable in variables:
            variable.read_value()  # so that tf2onnx finds whose handles the function captured
        return function(**dict(zip(specs, arguments, strict=True)))

    model, _ = tf2onnx.convert.from_function(
        serve,
        input_signature=list(specs.values()),
        opset=_OPSET,
        custom_op_handlers={
            LOOKUP_OP: (tables.convert, []),
            "Bitcast": (_bitcast, []),
            "UnsortedSegmentSum": (_unsorted_segment_sum, []),
            "UpperBound": (_upper_bound, []),
        },
    )
    _check_ops(onnx, model)
    with whole_file(path) as unfinished:
        unfinished.write_bytes(model.SerializeToString())


def _required(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f'format="onnx" needs {name}, which cannot be imported ({error}): '
            "pip install tf2onnx onnx"
        ) from error


def _check_size(variables: list[tf.Variable], tables: OnnxTables) -> None:
    dense = sum(v.shape.num_elements() * v.dtype.size for v in variables)
    if dense + tables.size_bytes > _MAX_BYTES:
        raise ValueError(
            f"the model has {tables.size_bytes} bytes of tables and {dense} of variables, but an "
            f'ONNX file may have {_MAX_BYTES} in all: pass format="saved_model"'
        )


def _check_ops(onnx: Any, model: Any) -> None:
    """Refuses ops that tf2onnx left as they are."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for node in _nodes(onnx, model.graph):
        if not onnx.defs.has(node.op_type, node.domain) or node.domain not in versions:
            raise NotImplementedError(
                f"op {node.name!r} of type {node.op_type} has no form in ONNX that tf2onnx knows: "
                'export outputs that do not depend on it, or pass format="saved_model"'
            )


def _nodes(onnx: Any, graph: Any) -> Any:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(onnx, attribute.g)


def _bitcast(ctx: Any, node: Any, name: str, args: Any) -> None:
    """Between integers of 64 bits, as keys are hashed; a cast keeps the bits."""
    node.type = "Cast"
    node.set_attr("to", ctx.get_dtype(node.output[0]))


class _Builder:
    """Builds what stands for a node of tf2onnx."""

    def __init__(self, ctx: Any, node: Any) -> None:
        self._ctx = ctx
        self._node = node
        self._output = {
            "outputs": [node.output[0]],
            "shapes": [ctx.get_shape(node.output[0])],
            "dtypes": [ctx.get_dtype(node.output[0])],
        }
        ctx.remove_node(node.name)

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        name = _required("tf2onnx").utils.make_name(self._node.name)
        return self._ctx.make_const(name, np.array(values, dtype)).output[0]

    def make(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        return self._ctx.make_node(op_type, list(inputs), attr=attrs).output[0]

    def int64(self, value: str) -> str:
        return self.make("Cast", value, to=_required("onnx").TensorProto.INT64)

    def finish(self, op_type: str, *inputs: str, **attrs: Any) -> None:
        """Makes what has the output of the node."""
        self._ctx.make_node(op_type, list(inputs), attr=attrs, **self._output)


def _upper_bound(ctx: Any, node: Any, name: str, args: Any) -> None:
    """How many of `[1, p]` sorted values are not above each of `[1, n]`."""
    bounds, values = node.input
    dtype = ctx.get_dtype(node.output[0])
    builder = _Builder(ctx, node)
    column = builder.make("Transpose", values, perm=[1, 0])
    is_reached = builder.int64(builder.make("GreaterOrEqual", column, bounds))
    count = builder.make("ReduceSum", is_reached, builder.constant([1]), keepdims=1)
    builder.finish("Cast", builder.make("Transpose", count, perm=[1, 0]), to=dtype)


def _unsorted_segment_sum(ctx: Any, node: Any, name: str, args: Any) -> None:
    """Adds up in place. tf2onnx's own form compares each row with each segment.

    ScatterND would need no indices of the data's shape, but a runtime may add in several threads
    there, and the order of sums would change from run to run.
    """
    data, segments, num_segments = node.input
    rank = ctx.get_rank(data)
    dtype = _required("tf2onnx").utils.map_onnx_to_numpy_type(ctx.get_dtype(data))
    builder = _Builder(ctx, node)
    constant, make = builder.constant, builder.make
    segments = builder.int64(segments)
    # A negative segment is none to TensorFlow and counts from the end to ONNX.
    is_kept = make("Not", make("Less", segments, constant(0)))
    segments = make("Compress", segments, is_kept, axis=0)
    data = make("Compress", data, is_kept, axis=0)
    count = make("Reshape", builder.int64(num_segments), constant([1]))
    width = make("Slice", make("Shape", data), constant([1]), constant([rank]))
    zeros = make("Expand", constant(0, dtype), make("Concat", count, width, axis=0))
    column = make("Reshape", segments, constant([-1] + [1] * (rank - 1)))
    indices = make("Expand", column, make("Shape", data))
    builder.finish("ScatterElements", zeros, indices, data, axis=0, reduction="add")
