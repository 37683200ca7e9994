"""The ops of this package that infer where tables are, each as a subgraph of stock ops."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.stock_parts import Combining, Pairs, flat_rows, is_valid, partitioned
from fused_embedding.serving.looked_up import LookedUp
from fused_embedding.serving.stock_keys import column_keys, example_keys
from fused_embedding.serving.stored_rows import Coding, StoredRows

# Inputs that say how often and when keys occur, and what becomes of new ones, which only training
# looks at.
UNREAD_INPUTS = ("counts", "first_values", "min_frequencies", "step")
# Inputs that are matrices, or handles of them, of which rows are read.
MATRICES = ("params", "resource", "resources", "tables")


class Call(NamedTuple):
    """An op of this package that a graph has.

    Attributes:
        op: The operation, of the graph that is exported.
        inputs: Its inputs by name, but for `UNREAD_INPUTS`: a tensor, or a `ServedTable` for the
            handle of an EmbeddingVariable, or for one of `MATRICES` a `LookedUp`, or for an input
            that is a list a list of them.
    """

    op: tf.Operation
    inputs: dict[str, Any]

    def attr(self, name: str) -> Any:
        """An attr of the op, strings as str."""
        return _as_str(self.op.get_attr(name))


def _as_str(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_as_str(element) for element in value] if isinstance(value, list) else value


def _combining(call: Call) -> Combining:
    return Combining(call.attr("combiner"), call.attr("max_norm"))


def number_of_rows(dense_shape: tf.Tensor) -> tf.Tensor:
    """The number of rows of a sparse tensor: its last dimension has the ids of a row."""
    return tf.reduce_prod(dense_shape[:-1])


# --- Tables ---


def _gather(call: Call) -> dict[str, Any]:
    return {"rows": _gather_from_matrix(call.inputs["params"], call.inputs["ids"])}


def _gather_from_matrix(matrix: Any, ids: tf.Tensor) -> tf.Tensor:
    if isinstance(matrix, LookedUp):
        return matrix.gather(ids)
    return flat_rows(tf.gather(matrix, ids))


def _gather_from_variable(handle: Any, ids: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if isinstance(handle, LookedUp):
        return handle.gather(ids)
    return flat_rows(tf.raw_ops.ResourceGather(resource=handle, indices=ids, dtype=dtype))


def _resource_gather(call: Call) -> dict[str, Any]:
    inputs = call.inputs
    rows = _gather_from_variable(inputs["resource"], inputs["ids"], call.attr("dtype"))
    return {"rows": rows}


def _table_lookup(call: Call) -> dict[str, Any]:
    return {"embeddings": call.inputs["resource"].read(call.inputs["keys"])}


def _admit(call: Call) -> dict[str, Any]:
    """Which keys have rows: nothing is counted or inserted."""
    admitted, frequencies = [], []
    for table, keys in zip(call.attr("table_of_column"), call.inputs["keys"], strict=True):
        has_row, counts = call.inputs["resources"][table].occurrences(keys)
        if call.attr("prune"):
            is_key = keys >= 0
            has_row &= is_key
            counts = None if counts is None else tf.where(is_key, counts, tf.zeros_like(counts))
        admitted.append(has_row)
        frequencies.append(counts)
    return {"is_admitted": admitted, "frequencies": frequencies}


# --- Stages of v1 and v2 ---


def _prune_and_fill(call: Call) -> dict[str, Any]:
    inputs = call.inputs
    is_weighted = call.attr("use_sparse_weights")
    indices, weights = inputs["sp_indices"], inputs["sp_weights_values"]
    pairs = Pairs(inputs["sp_values"], indices[:, 0], weights if is_weighted else None)
    columns = indices[:, 1]
    if call.attr("prune"):
        keep = is_valid(pairs, call.attr("prune_sparse_weights"))
        pairs, columns = pairs.where(keep), tf.boolean_mask(columns, keep)
    is_row_empty = pairs.is_row_empty(number_of_rows(inputs["sp_dense_shape"]))
    if call.attr("fill_empty_row"):
        pairs = pairs.filled(is_row_empty, call.attr("default_id"), call.attr("default_weight"))
        num_filled = tf.size(pairs.ids) - tf.size(columns)
        columns = tf.pad(columns, [[0, num_filled]])
    return {
        "sp_values_out": pairs.ids,
        "sp_indices_out": tf.stack([pairs.row_ids, columns], axis=1),
        "sp_weights_values_out": pairs.weights if is_weighted else weights,
        "is_row_empty": is_row_empty,
    }


def _unique(call: Call) -> dict[str, Any]:
    unique = tf.unique_with_counts(call.inputs["input"], out_idx=call.attr("CounterType"))
    return {"unique_keys": unique.y, "unique_idxs": unique.idx, "unique_counts": unique.count}


def _partition(call: Call) -> dict[str, Any]:
    shapes, strategy = call.inputs["partition_shapes"], call.attr("partition_strategy")
    partition = partitioned(call.inputs["input"], shapes, strategy)
    permutation = [
        tf.stack([tf.fill(tf.shape(places), shard), tf.range(tf.size(places))], axis=1)
        for shard, places in enumerate(partition.positions)
    ]
    return {
        "partitioned_values": partition.ids,
        "partition_permutation": tf.dynamic_stitch(partition.positions, permutation),
    }


def _post_lookup_v2(call: Call) -> dict[str, Any]:
    inputs = call.inputs
    row_ids = inputs["indices_before_unique"][:, 0]
    num_rows = number_of_rows(inputs["sp_dense_shape"])
    if call.attr("rows_end_at_last_id"):
        num_rows = tf.reduce_max(tf.concat([row_ids, [-1]], axis=0)) + 1
    weights = inputs["sp_weights_values"] if call.attr("use_sparse_weights") else None
    combined = _combining(call)(
        tf.concat(inputs["emb_shards"], axis=0), _positions(inputs), row_ids, weights, num_rows
    )
    if call.attr("fill_empty_row") and call.attr("default_id") < 0:
        combined = _zero_where(inputs["is_row_empty"], combined)
    return {"emb_vectors": combined}


def _positions(inputs: dict[str, Any]) -> tf.Tensor:
    """Of each pair in the rows of all shards, one after the other."""
    shards, unique_idxs = inputs["emb_shards"], inputs["unique_idxs"]
    if len(shards) == 1:
        return unique_idxs
    starts = tf.cumsum(tf.stack([tf.shape(shard)[0] for shard in shards]), exclusive=True)
    permutation = inputs["partition_permutation"]
    places = tf.gather(starts, permutation[:, 0]) + permutation[:, 1]
    return tf.gather(places, unique_idxs)


def _zero_where(is_zero: tf.Tensor, combined: tf.Tensor) -> tf.Tensor:
    return tf.where(is_zero[:, None], tf.zeros_like(combined), combined)


def _pre_lookup(call: Call) -> dict[str, Any]:
    inputs = call.inputs
    indices = inputs["sp_indices"]
    is_valid = inputs["sp_values"] >= 0
    # Columns mean nothing here: they are carried in the place of weights.
    pairs = Pairs(inputs["sp_values"], indices[:, 0], indices[:, 1])
    if call.attr("prune_invalid_id"):
        pairs = pairs.where(is_valid)
    is_row_empty = pairs.is_row_empty(number_of_rows(inputs["sp_dense_shape"]))
    if call.attr("fill_empty_row"):
        pairs = pairs.filled(is_row_empty, call.attr("default_id"), weight=0)
    kept = tf.stack([pairs.row_ids, pairs.weights], axis=1)
    shapes, strategy = inputs["partition_shapes"], call.attr("partition_strategy")
    partition = partitioned(pairs.ids, shapes, strategy)
    flags = tf.concat([is_row_empty, is_valid], axis=0)
    return {
        "partitioned_values": partition.ids,
        "partitioned_indices": [tf.gather(kept, places) for places in partition.positions],
        "row_empty_and_invalid_flags": tf.cast(flags, tf.int32),
    }


def _post_lookup(call: Call) -> dict[str, Any]:
    inputs = call.inputs
    num_rows = number_of_rows(inputs["sp_dense_shape"])
    row_ids = tf.concat(inputs["partitioned_indices"], axis=0)[:, 0]
    weights = inputs["partitioned_weights"]
    combined = _combining(call)(
        tf.concat(inputs["emb_shards"], axis=0),
        None,
        row_ids,
        tf.concat(weights, axis=0) if weights else None,
        num_rows,
    )
    if call.attr("default_id") < 0:
        is_row_empty = inputs["row_empty_and_invalid_flags"][:num_rows] > 0
        combined = _zero_where(is_row_empty, combined)
    return {"emb_vectors": combined}


# --- Groups and v3 ---


# Gives the rows of distinct ids.
Reader = Callable[[tf.Tensor], tf.Tensor]


def group(call: Call, readers: Sequence[Reader]) -> dict[str, Any]:
    """All columns of a group.

    Args:
        call: Of the group's op.
        readers: Of its tables.

    Returns:
        Its outputs.
    """
    weights = weights_of_columns(call)
    tables = call.attr("table_of_column")
    combined = [column(call, i, readers[t], weights.get(i)) for i, t in enumerate(tables)]
    return as_outputs(call, combined)


def weights_of_columns(call: Call) -> dict[int, tf.Tensor]:
    """`[nnz]` weights of those columns of a group that have some."""
    return dict(zip(call.attr("weighted_columns"), call.inputs["sp_weights"], strict=True))


def as_outputs(call: Call, combined: list[tf.Tensor]) -> dict[str, Any]:
    """The results of all columns as the outputs of a group's op."""
    is_one = call.attr("num_outputs") == 1
    return {"combined": [tf.concat(combined, axis=1)] if is_one else combined}


def column(call: Call, i: int, read: Reader, weights: tf.Tensor | None) -> tf.Tensor:
    """One column of a group.

    Args:
        call: Of the group's op.
        i: The number of the column.
        read: Of its table.
        weights: `[nnz]`; None: all 1.

    Returns:
        `[num_rows, dim]`.
    """
    pairs, num_rows = read_pairs(call, i, weights)
    combining = Combining(call.attr("combiners")[i], call.attr("max_norms")[i])
    unique = tf.unique(pairs.ids)
    return combining(read(unique.y), unique.idx, pairs.row_ids, pairs.weights, num_rows)


def read_pairs(call: Call, i: int, weights: tf.Tensor | None) -> tuple[Pairs, tf.Tensor]:
    """The pairs of a column of a group, pruned and with those that fill rows; number of rows."""
    pairs = pairs_of_column(call, i, weights)
    num_rows = number_of_rows(call.inputs["sp_dense_shapes"][i])
    if call.attr("prune"):
        looks_at_weights = call.attr("combiners")[i] != "sum"
        pairs = pairs.where(is_valid(pairs, looks_at_weights))
    default_id = call.attr("default_ids")[i]
    if call.attr("fill_empty_row") and default_id >= 0:
        pairs = pairs.filled(pairs.is_row_empty(num_rows), default_id)
    return pairs, num_rows


def pairs_of_column(call: Call, i: int, weights: tf.Tensor | None) -> Pairs:
    """The ids of a column of a group, before any is pruned."""
    ids = tf.cast(call.inputs["sp_values"][i], tf.int64)
    return Pairs(ids, _row_ids(call.inputs["sp_indices"][i], tf.size(ids)), weights)


def _row_ids(indices: tf.Tensor, nnz: tf.Tensor) -> tf.Tensor:
    """The first column of `[nnz, k]`, or `[nnz]` itself; its rank may be unknown."""
    width = tf.maximum(tf.size(indices) // tf.maximum(nnz, 1), 1)
    return tf.reshape(indices, tf.stack([nnz, width]))[:, 0]


def readers_of_variables(call: Call) -> list[Reader]:
    """Of the variables of a group."""
    dtype = call.attr("dtype")

    def reader(handle: Any) -> Reader:
        return lambda ids: _gather_from_variable(handle, ids, dtype)

    return [reader(handle) for handle in call.inputs["resources"]]


def readers_of_tables(call: Call) -> list[Reader]:
    """Of the EmbeddingVariables of a group."""
    return [table.read for table in call.inputs["resources"]]


def readers_of_tensors(call: Call) -> list[Reader]:
    """Of the tensors of a group."""

    def reader(table: tf.Tensor) -> Reader:
        return lambda ids: _gather_from_matrix(table, ids)

    return [reader(table) for table in call.inputs["tables"]]


def _group_of_tensors(call: Call) -> dict[str, Any]:
    return group(call, readers_of_tensors(call))


def _group_of_variables(call: Call) -> dict[str, Any]:
    return group(call, readers_of_variables(call))


def _group_of_stored_rows(call: Call) -> dict[str, Any]:
    def reader(handle: tf.Tensor, row_format: str, dim: int) -> Reader:
        return StoredRows(handle, Coding(row_format, dim, tf.float32)).gather

    tables = zip(call.inputs["resources"], call.attr("formats"), call.attr("dims"), strict=True)
    return group(call, [reader(*table) for table in tables])


def _group_of_tables(call: Call) -> dict[str, Any]:
    return group(call, readers_of_tables(call))


# --- Exports of fused ops, of which stock ops are made ---


def _no_lock(call: Call) -> dict[str, Any]:
    return {"lock": tf.constant(True)}


def _no_unlock(call: Call) -> dict[str, Any]:
    return {}


# --- Examples ---

_PARSE_ATTRS = (
    "num_sparse",
    "sparse_types",
    "ragged_value_types",
    "ragged_split_types",
    "dense_shapes",
)


def _parse_example(call: Call) -> dict[str, Any]:
    """The same contract under another name, and keys of features that are parsed by themselves."""
    attrs = {name: call.op.get_attr(name) for name in _PARSE_ATTRS}
    outputs = tf.raw_ops.ParseExampleV2(**call.inputs, **attrs)._asdict()
    if not call.op.get_attr("key_names"):
        return outputs
    return outputs | example_keys(call.op, call.inputs["serialized"], call.inputs["names"])


# What ops become: their outputs by name, without those that only training reads.
Lookups = dict[str, Callable[[Call], dict[str, Any]]]

LOCAL_OPS: Lookups = {
    "EmbeddingVariableAdmit": _admit,
    "EmbeddingVariableGroupLookup": _group_of_tables,
    "EmbeddingVariableLookup": _table_lookup,
    "EmbeddingVariableServingLock": _no_lock,
    "EmbeddingVariableServingUnlock": _no_unlock,
    "FusedEmbeddingColumnKeys": column_keys,
    "FusedEmbeddingGather": _gather,
    "FusedEmbeddingGroupLookup": _group_of_tensors,
    "FusedEmbeddingParseExample": _parse_example,
    "FusedEmbeddingResourceGather": _resource_gather,
    "FusedEmbeddingResourceGroupLookup": _group_of_variables,
    "FusedEmbeddingSparsePostLookUp": _post_lookup,
    "FusedEmbeddingSparsePostLookUpV2": _post_lookup_v2,
    "FusedEmbeddingSparsePreLookUp": _pre_lookup,
    "FusedEmbeddingStoredRowsGroupLookup": _group_of_stored_rows,
    "PartitionWithPermutation": _partition,
    "PruneInvalidAndFillEmptyRows": _prune_and_fill,
    "UniqueWithCountsV3": _unique,
}
