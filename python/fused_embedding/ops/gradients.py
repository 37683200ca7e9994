"""Gradients of the ops, registered when this module is imported."""

import contextlib
from typing import Any

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.control_flow import refuse_loops, tables_looked_up
from fused_embedding.ops.placement import beside
from fused_embedding.ops.tf_private import colocate_with

for _name in (
    "EmbeddingVariableAdmit",
    "FusedEmbeddingRemoteKeys",
    "FusedEmbeddingSparsePreLookUp",
    "PartitionWithPermutation",
    "UniqueWithCountsV3",
):
    tf.no_gradient(_name)


def _attrs(op: tf.Operation, *names: str) -> dict[str, Any]:
    values = {name: op.get_attr(name) for name in names}
    # Strings come back as bytes.
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


def _where(op: tf.Operation) -> contextlib.AbstractContextManager[None]:
    """Puts a gradient where its lookup was put, if anybody said so: all of its inputs are there."""
    return tf.device(op.outputs[0].device or "")


# Their ids are those of a gradient of a table, and each of them once.
_DISTINCT_IDS = (
    *("FusedEmbeddingGroupLookupGrad", "FusedEmbeddingResourceGroupLookupGrad"),
    *("FusedEmbeddingRemoteRows", "FusedEmbeddingResourceRemoteRows"),
)


def is_known_to_be_distinct(ids: tf.Tensor) -> bool:
    """Whether the ids of a gradient are those of one lookup of ours, each of them once.

    Args:
        ids: The indices of an IndexedSlices.

    Returns:
        False eagerly, where nobody knows, and for several gradients one after the other.
    """
    return not tf.executing_eagerly() and ids.op.type in _DISTINCT_IDS


def _table_grad(
    op: tf.Operation, rows_grad: tf.Tensor, table_shape: tf.Tensor, rank: int | None
) -> tf.IndexedSlices:
    """Gradient of a gather as slices of the table, one per distinct id.

    Optimizers that apply slices one by one (Keras 3) need distinct ids.
    """
    ids = op.inputs[1]
    if not op.get_attr("ids_are_unique"):
        unique_ids, unique_idxs, counts = raw_ops.UniqueWithCountsV3(input=ids)
        # 16-bit rows are summed in float32.
        is_16_bit = rows_grad.dtype in (tf.float16, tf.bfloat16)
        sums = tf.cast(rows_grad, tf.float32) if is_16_bit else rows_grad
        sums = tf.math.unsorted_segment_sum(sums, unique_idxs, tf.size(counts))
        ids, rows_grad = unique_ids, tf.cast(sums, rows_grad.dtype)
    return _slices(ids, rows_grad, table_shape, rank)


def _slices(
    ids: tf.Tensor, rows_grad: tf.Tensor, table_shape: tf.Tensor, rank: int | None
) -> tf.IndexedSlices:
    if rank != 2:  # the lookup flattened the rows
        num_ids = tf.shape(ids, out_type=table_shape.dtype)
        rows_grad = tf.reshape(rows_grad, tf.concat([num_ids, table_shape[1:]], axis=0))
    return tf.IndexedSlices(rows_grad, ids, table_shape)


def _shape_type(static_shape: tf.TensorShape) -> tf.DType:
    """int32, as stock has it, wherever that will do: branches of tf.cond must agree in the type."""
    sizes = static_shape.as_list() if static_shape.rank is not None else []
    return tf.int64 if max([s or 0 for s in sizes], default=0) > tf.int32.max else tf.int32


def _shape_of(resource: tf.Tensor, static_shape: tf.TensorShape) -> tf.Tensor:
    """`[rank]` shape of a variable, which is asked for only if it is not known."""
    out_type = _shape_type(static_shape)
    if static_shape.is_fully_defined():
        return tf.constant(static_shape.as_list(), out_type)
    return tf.raw_ops.VariableShape(input=resource, out_type=out_type)


@tf.RegisterGradient("FusedEmbeddingGather")
def _gather_grad(op: tf.Operation, rows_grad: tf.Tensor) -> list[Any]:
    params = op.inputs[0]
    with colocate_with(params):
        shape = tf.shape(params, out_type=_shape_type(params.shape))
    return [_table_grad(op, rows_grad, shape, params.shape.rank), None]


@tf.RegisterGradient("FusedEmbeddingResourceGather")
def _resource_gather_grad(op: tf.Operation, rows_grad: tf.Tensor) -> list[Any]:
    static_shape = tf.TensorShape(op.get_attr("params_shape"))
    shape = _shape_of(op.inputs[0], static_shape)
    return [_table_grad(op, rows_grad, shape, static_shape.rank), None]


def _after_lookup(op: tf.Operation, rows_grad: Any) -> tf.Tensor:
    """A gradient that cannot be had without the lookup, which inserts the keys to be trained.

    A loss that is linear in the rows needs only their shape; if that is static, TensorFlow would
    leave out the lookup.
    """
    rows_grad = tf.convert_to_tensor(rows_grad)
    if tf.executing_eagerly() or not op.outputs[0].shape.is_fully_defined():
        return rows_grad
    with tf.control_dependencies([op]):
        return tf.identity(rows_grad)


def _key_slices(rows_grad: tf.Tensor, keys: tf.Tensor) -> tf.IndexedSlices:
    """Gradient of an EmbeddingVariable."""
    if not tf.executing_eagerly() and keys.graph is not tf.compat.v1.get_default_graph():
        keys = tf.identity(keys)  # of a tf.function that is differentiated from outside
    dim = rows_grad.shape[1]
    # No rows, so that making it dense is an error. Branches of tf.cond must agree in having an
    # int32 shape; the one that looks nothing up gets it from the handle: see EmbeddingVariable.
    shape = None if dim is None else tf.constant([0, dim], tf.int32)
    return tf.IndexedSlices(rows_grad, keys, shape)


@tf.RegisterGradient("EmbeddingVariableLookup")
def _embedding_variable_grad(op: tf.Operation, rows_grad: Any, _: Any) -> list[Any]:
    refuse_loops(op, tables_looked_up(op))
    # The keys are the op's own input: by it an optimizer finds the op, and where the rows are.
    return [_key_slices(_after_lookup(op, rows_grad), op.inputs[1]), None, None, None]


@tf.RegisterGradient("EmbeddingVariableGroupLookup")
def _table_group_lookup_grad(op: tf.Operation, *grads: tf.Tensor) -> list[Any]:
    refuse_loops(op, tables_looked_up(op))
    arguments = _group_arguments(op, "tables")
    *arguments["sp_weights"], _ = arguments["sp_weights"]  # step is the last input
    num_tables = op.get_attr("num_tables")
    num_outputs = op.get_attr("num_outputs")
    outputs = _split(list(op.outputs), num_outputs, *[num_tables] * 3, op.get_attr("num_columns"))
    _, keys, _, rows, positions, (default_positions,) = outputs
    # The lookup's own rows and positions take the place of tables and ids.
    arguments |= {"combined_grads": list(grads[:num_outputs])}
    arguments |= {"tables": rows, "sp_values": positions}
    with colocate_with(op.inputs[0]):
        rows_grads = raw_ops.EmbeddingVariableGroupLookupGrad(
            default_positions=default_positions, **arguments
        )
        slices = [_key_slices(*pair) for pair in zip(rows_grads, keys, strict=True)]
        # What fills a row has no weight.
        arguments |= {"fill_empty_row": False}
        inputs_grads = _group_grads(
            op, arguments, slices, raw_ops.FusedEmbeddingGroupLookupWeightsGrad
        )
        return [*inputs_grads, None]


@tf.RegisterGradient("PruneInvalidAndFillEmptyRows")
def _prune_and_fill_grad(op: tf.Operation, *grads: tf.Tensor | None) -> list[Any]:
    weights_out_grad = grads[2]
    if weights_out_grad is None or not op.get_attr("use_sparse_weights"):
        return [None] * 4
    values, _, _, weights = op.inputs
    with _where(op):
        weights_grad = raw_ops.PruneInvalidAndFillEmptyRowsGrad(
            sp_values=values,
            sp_weights_values=weights,
            grad=weights_out_grad,
            **_attrs(op, "prune", "prune_sparse_weights"),
        )
    return [None, None, None, weights_grad]


@tf.RegisterGradient("FusedEmbeddingSparsePostLookUp")
def _post_lookup_grad(op: tf.Operation, top_grad: tf.Tensor, _: Any) -> list[Any]:
    inputs = list(op.inputs)
    num_shards = op.get_attr("num_partitions")
    shards, indices = inputs[:num_shards], inputs[num_shards : 2 * num_shards]
    flags, weights = inputs[2 * num_shards + 1], inputs[3 * num_shards + 2 :]
    forward = {
        "top_grad": top_grad,
        "emb_shards": shards,
        "partitioned_indices": indices,
        "row_empty_and_invalid_flags": flags,
        "partitioned_weights": weights,
        **_attrs(op, "combiner", "max_norm", "default_id"),
    }
    weights_grads = []
    with _where(op):
        shard_grads = raw_ops.FusedEmbeddingSparsePostLookUpGrad(
            feature_nums=op.outputs[1], **forward
        )
        if weights:
            weights_grads = raw_ops.FusedEmbeddingSparsePostLookUpWeightsGrad(**forward)
    return [*shard_grads, *[None] * (2 * num_shards + 2), *weights_grads]


@tf.RegisterGradient("FusedEmbeddingSparsePostLookUpV2")
def _post_lookup_v2_grad(op: tf.Operation, top_grad: tf.Tensor, _: Any) -> list[Any]:
    inputs = list(op.inputs)
    num_shards = op.get_attr("num_partitions")
    permutation, _, indices, is_row_empty, unique_idxs, weights = inputs[num_shards:]
    forward = {
        "top_grad": top_grad,
        "emb_shards": inputs[:num_shards],
        "partition_permutation": permutation,
        "indices_before_unique": indices,
        "is_row_empty": is_row_empty,
        "unique_idxs": unique_idxs,
        "sp_weights_values": weights,
        **_attrs(op, "combiner", "max_norm", "default_id", "fill_empty_row"),
    }
    has_weights = op.get_attr("use_sparse_weights")
    weights_grad = None
    with _where(op):
        shard_grads = raw_ops.FusedEmbeddingSparsePostLookUpV2Grad(
            feature_nums=op.outputs[1], use_sparse_weights=has_weights, **forward
        )
        if has_weights:
            weights_grad = raw_ops.FusedEmbeddingSparsePostLookUpV2WeightsGrad(**forward)
    return [*shard_grads, *[None] * 5, weights_grad]


def _strings(values: list[Any]) -> list[str]:
    return [v.decode() if isinstance(v, bytes) else v for v in values]


def _split(values: list[Any], *lengths: int) -> list[list[Any]]:
    """`values` in parts of these lengths, and the rest."""
    parts = []
    for length in lengths:
        parts.append(values[:length])
        values = values[length:]
    return [*parts, values]


def _group_arguments(op: tf.Operation, tables: str, number: str = "num_tables") -> dict[str, Any]:
    """What the ops of a group's gradient take beside the gradient.

    Args:
        op: The lookup.
        tables: Name of its first inputs.
        number: Attr with the number of those.
    """
    num_columns = op.get_attr("num_columns")
    parts = _split(list(op.inputs), op.get_attr(number), *[num_columns] * 3)
    names = (tables, "sp_values", "sp_indices", "sp_dense_shapes", "sp_weights")
    lists = ("table_of_column", "weighted_columns", "max_norms", "default_ids")
    return {
        **dict(zip(names, parts, strict=True)),
        **{name: list(op.get_attr(name)) for name in lists},
        "combiners": _strings(op.get_attr("combiners")),
        "column_names": _strings(op.get_attr("column_names")),
        **_attrs(op, "prune", "fill_empty_row"),
    }


def _group_slices(grad: Any, shapes: list[tf.Tensor], ranks: list[int | None]) -> list[Any]:
    """The gradients of a group's tables."""
    slices = []
    for ids, rows, shape, rank in zip(grad.unique_ids, grad.rows_grad, shapes, ranks, strict=True):
        slices.append(_slices(ids, rows, shape, rank))
    return slices


def _is_stopped(tensor: tf.Tensor) -> bool:
    """Whether tf.stop_gradient has made a tensor, maybe as a part of a longer one."""
    op = tensor.op
    while op.type in ("SplitV", "Split", "Identity"):
        op = op.inputs[1 if op.type == "Split" else 0].op
    return op.type == "StopGradient"


def _wants_weights_grads(op: tf.Operation, first: int, num_weights: int) -> bool:
    """Whether anything uses the gradients of the weights, inputs from `first` on of a lookup."""
    skipped = getattr(op, "skip_input_indices", None)  # of a tape, which knows what it watches
    if skipped is not None:
        return not set(range(first, first + num_weights)) <= set(skipped)
    if tf.executing_eagerly():
        return True
    return not all(_is_stopped(weights) for weights in op.inputs[first : first + num_weights])


def _group_grads(
    op: tf.Operation, arguments: dict[str, Any], tables_grads: list[Any], weights_grad_op: Any
) -> list[Any]:
    """The gradients of all inputs up to the weights, in order."""
    num_weights = len(arguments["sp_weights"])
    first = len(tables_grads) + 3 * op.get_attr("num_columns")
    weights_grads = [None] * num_weights
    if num_weights and _wants_weights_grads(op, first, num_weights):
        weights_grads = weights_grad_op(**arguments)
    return [*tables_grads, *[None] * (first - len(tables_grads)), *weights_grads]


@tf.RegisterGradient("FusedEmbeddingGroupLookup")
def _group_lookup_grad(op: tf.Operation, *combined_grads: tf.Tensor) -> list[Any]:
    arguments = _group_arguments(op, "tables") | {"combined_grads": list(combined_grads)}
    tables = arguments["tables"]
    with colocate_with(tables[0]):
        grad = raw_ops.FusedEmbeddingGroupLookupGrad(**arguments)
        shapes = [tf.shape(t, out_type=_shape_type(t.shape)) for t in tables]
        slices = _group_slices(grad, shapes, [table.shape.rank for table in tables])
        return _group_grads(op, arguments, slices, raw_ops.FusedEmbeddingGroupLookupWeightsGrad)


@tf.RegisterGradient("FusedEmbeddingResourceGroupLookup")
def _resource_group_lookup_grad(op: tf.Operation, *combined_grads: tf.Tensor) -> list[Any]:
    arguments = _group_arguments(op, "resources") | {"combined_grads": list(combined_grads)}
    resources = arguments["resources"]
    static = [tf.TensorShape(shape) for shape in op.get_attr("table_shapes")]
    static += [tf.TensorShape(None)] * (len(resources) - len(static))
    with colocate_with(resources[0]):
        grad = raw_ops.FusedEmbeddingResourceGroupLookupGrad(**arguments)
        shapes = [_shape_of(*pair) for pair in zip(resources, static, strict=True)]
        slices = _group_slices(grad, shapes, [shape.rank for shape in static])
        return _group_grads(
            op, arguments, slices, raw_ops.FusedEmbeddingResourceGroupLookupWeightsGrad
        )


# --- Tables in other tasks ---


@tf.RegisterGradient("FusedEmbeddingRemoteLookup")
def _remote_lookup_grad(op: tf.Operation, *combined_grads: tf.Tensor) -> list[Any]:
    arguments = _group_arguments(op, "rows", "num_servers")
    *arguments["sp_weights"], part_sizes, default_positions = arguments["sp_weights"]
    layout = {name: list(op.get_attr(name)) for name in ("num_parts", "part_servers", "dims")}

    def weights_grads(rows: list[tf.Tensor], **forward: Any) -> list[tf.Tensor]:
        tables = raw_ops.FusedEmbeddingUnpackRows(
            rows=rows, part_sizes=part_sizes, num_tables=len(layout["dims"]), **layout
        )
        # What fills a row has no weight.
        forward |= {"fill_empty_row": False}
        return raw_ops.FusedEmbeddingGroupLookupWeightsGrad(tables=tables, **forward)

    with _where(op):
        arguments |= {"combined_grads": list(combined_grads)}
        rows_grads = raw_ops.FusedEmbeddingRemoteLookupGrad(
            num_tables=len(layout["dims"]),
            part_sizes=part_sizes,
            default_positions=default_positions,
            **layout,
            **arguments,
        )
        return [*_group_grads(op, arguments, rows_grads, weights_grads), None, None]


def _remote_table_grads(op: tf.Operation, rows_grad: tf.Tensor) -> tuple[list[Any], list[Any]]:
    """The distinct ids of each table that a message asked for, and their gradients.

    They are made where the tables are: one tensor travels there, for all tables.
    """
    num_tables = op.get_attr("num_tables")
    keys = list(op.outputs)[2 : 2 + num_tables]
    grads = raw_ops.FusedEmbeddingUnpackRows(
        rows=[rows_grad],
        part_sizes=op.outputs[1],
        num_tables=num_tables,
        num_parts=[1] * num_tables,
        part_servers=[0] * num_tables,
        dims=list(op.get_attr("dims")),
    )
    return keys, grads


@tf.RegisterGradient("FusedEmbeddingRemoteRows")
def _remote_rows_grad(op: tf.Operation, rows_grad: tf.Tensor, *_: Any) -> list[Any]:
    *tables, _ = op.inputs
    with beside(tables[0]):
        pairs = zip(*_remote_table_grads(op, rows_grad), tables, strict=True)
        return [*[_rows_of_tensor(keys, grad, table) for keys, grad, table in pairs], None]


def _rows_of_tensor(keys: tf.Tensor, rows_grad: tf.Tensor, table: tf.Tensor) -> tf.IndexedSlices:
    shape = tf.shape(table, out_type=_shape_type(table.shape))
    return _slices(keys, rows_grad, shape, table.shape.rank)


@tf.RegisterGradient("FusedEmbeddingResourceRemoteRows")
def _resource_remote_rows_grad(op: tf.Operation, rows_grad: tf.Tensor, *_: Any) -> list[Any]:
    *resources, _ = op.inputs
    static = [tf.TensorShape(shape) for shape in op.get_attr("table_shapes")]
    static += [tf.TensorShape(None)] * (len(resources) - len(static))
    with beside(resources[0]):
        pairs = zip(*_remote_table_grads(op, rows_grad), resources, static, strict=True)
        slices = [
            _slices(keys, grad, _shape_of(resource, shape), shape.rank)
            for keys, grad, resource, shape in pairs
        ]
        return [*slices, None]


@tf.RegisterGradient("EmbeddingVariableRemoteRows")
def _table_remote_rows_grad(op: tf.Operation, rows_grad: Any, *_: Any) -> list[Any]:
    refuse_loops(op, tables_looked_up(op))
    with beside(op.inputs[0]):
        keys, grads = _remote_table_grads(op, _after_lookup(op, rows_grad))
        pairs = zip(grads, keys, strict=True)
        return [*[_key_slices(grad, of_table) for grad, of_table in pairs], None]
