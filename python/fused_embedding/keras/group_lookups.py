"""What the layers of a feature do, as a lookup that shares an op with those of other features."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.feature_ids import (
    Feature,
    FeatureIds,
    KeyRule,
    ParsedIds,
    is_readable,
)
from fused_embedding.lookup.group import Column
from fused_embedding.lookup.ids import as_sparse_ids, weight_values
from fused_embedding.lookup.names import ids_name
from fused_embedding.lookup.options import LookupOptions, make_options
from fused_embedding.lookup.tables import as_shards

_EACH_ID_A_ROW = make_options("sum", None, None, prune=False, fill_empty_row=False)


class PendingLookup(NamedTuple):
    """A lookup that is yet to be done.

    Attributes:
        column: What is looked up: one row for each id, or the combined embeddings of a row of ids.
        finish: Makes the layer's result of the column's.
        is_matrix: Whether `finish` only casts `[num_rows, dim]`.
    """

    column: Column
    finish: Callable[[tf.Tensor], Any]
    is_matrix: bool = False


def rows_of_ids(table: Any, ids: Any, rule: KeyRule, dtype: str) -> PendingLookup:
    """The lookup of `Embedding`: each id has a row.

    Args:
        table: What `as_shards` takes.
        ids: Values that `rule` makes ids of: a dense tensor of any shape, or a RaggedTensor; a
            SparseTensor of ids, whose rule is "identity".
        rule: How a value becomes an id.
        dtype: Type of the result.

    Returns:
        A lookup with the result `[..., dim]`.
    """
    if isinstance(ids, tf.SparseTensor):
        return _rows_of_sparse_ids(table, ids, dtype)
    if isinstance(ids, tf.RaggedTensor):
        flat = rows_of_ids(table, ids.flat_values, rule, dtype)
        return flat._replace(
            finish=lambda rows: ids.with_flat_values(flat.finish(rows)), is_matrix=False
        )
    shape = ids.shape
    has_one_id_a_row = shape.rank == 1 or (shape.rank == 2 and shape[1] == 1)
    values = ids if has_one_id_a_row else tf.reshape(ids, [-1])
    column = _column(table, values, rule, None, _EACH_ID_A_ROW)
    if shape.rank == 1:
        return PendingLookup(column, lambda rows: tf.cast(rows, dtype), is_matrix=True)
    return PendingLookup(column, lambda rows: tf.cast(_with_shape_of(rows, ids), dtype))


def _rows_of_sparse_ids(table: Any, ids: tf.SparseTensor, dtype: str) -> PendingLookup:
    shards = as_shards(table, "table")
    of_one_id = as_sparse_ids(tf.sparse.expand_dims(ids, -1), None, "ids")
    column = Column(shards, of_one_id, make_options("sum", None, 0))

    def finish(rows: tf.Tensor) -> tf.Tensor:
        rows.set_shape(ids.shape.concatenate(shards[0].row_shape))
        return tf.cast(rows, dtype)

    return PendingLookup(column, finish)


def combined_rows(
    table: Any, ids: Any, rule: KeyRule, weights: Any, options: LookupOptions, dtype: str
) -> PendingLookup:
    """The lookup of `EmbeddingBag`: the embeddings of a row of ids are combined.

    Args:
        table: What `as_shards` takes.
        ids: Values that `rule` makes ids of: dense `[..., ids in a row]`, a RaggedTensor of rank 2
            or a SparseTensor of rank 2; a SparseTensor of ids of any rank, if the rule is
            "identity".
        rule: How a value becomes an id.
        weights: Weight of each id, of the kind and shape of `ids`, or None.
        options: The options of the lookup.
        dtype: Type of the result.

    Returns:
        A lookup with the result `[..., dim]`.
    """
    shape, is_matrix = ids.shape, ids.shape.rank == 2
    if not isinstance(ids, tf.SparseTensor | tf.RaggedTensor):
        weights = None if weights is None else tf.reshape(weights, [-1])
        values = ids if is_matrix else tf.reshape(ids, _matrix_shape(ids))
        column = _column(table, values, rule, weights, options)
    elif is_readable(ids):
        column = _column(table, ids, rule, weights, options)
    else:
        column = Column(as_shards(table, "table"), as_sparse_ids(ids, weights, "ids"), options)
    row_shape = column.shards[0].row_shape

    def finish(rows: tf.Tensor) -> tf.Tensor:
        if not is_matrix and isinstance(ids, tf.Tensor):
            rows = tf.reshape(rows, tf.concat([tf.shape(ids)[:-1], row_shape.as_list()], axis=0))
        rows.set_shape(shape[:-1].concatenate(row_shape))
        return tf.cast(rows, dtype)

    return PendingLookup(column, finish, is_matrix)


def combined_parsed(
    table: Any, ids: ParsedIds, options: LookupOptions, dtype: str
) -> PendingLookup:
    """`combined_rows` of ids that were made while examples were parsed.

    Args:
        table: What `as_shards` takes.
        ids: Of the examples.
        options: The options of the lookup.
        dtype: Type of the result.

    Returns:
        A lookup with the result `[num_examples, dim]`.
    """
    shards = as_shards(table, "table")
    column = Column(shards, FeatureIds((), name=ids_name("ids"), parsed=ids), options)
    return PendingLookup(column, lambda rows: tf.cast(rows, dtype), is_matrix=True)


def _column(table: Any, values: Any, rule: KeyRule, weights: Any, options: LookupOptions) -> Column:
    feature = Feature(values, rule, is_full=True)
    of_ids = weight_values(weights, tf.TensorShape([feature.values.shape.num_elements()]))
    ids = FeatureIds((feature,), weights=of_ids, name=ids_name("ids"))
    return Column(as_shards(table, "table"), ids, options)


def _with_shape_of(rows: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """`[n, dim]` rows as `[..., dim]` with the shape of the ids."""
    dim = rows.shape[1:].as_list()
    trailing = ids.shape[1:].as_list() if ids.shape.rank else [None]
    if None not in trailing and 0 not in trailing:
        rows = tf.reshape(rows, [-1, *trailing, *dim])
    else:
        rows = tf.reshape(rows, tf.concat([tf.shape(ids), dim], axis=0))
    rows.set_shape(ids.shape.concatenate(rows.shape[-1:]))
    return rows


def _matrix_shape(ids: tf.Tensor) -> tf.Tensor:
    """`[num_rows, ids in a row]`, also where one of them is 0."""
    shape = tf.shape(ids)
    return tf.stack([tf.reduce_prod(shape[:-1]), shape[-1]])


def rule_of_front(keras: Any, front: Any, dtype: tf.DType) -> KeyRule | None:
    """How a layer in front of a lookup makes ids of values.

    Args:
        keras: The module.
        front: A layer of it.
        dtype: Type of the values.

    Returns:
        The rule; None if the layer must be called.
    """
    layers = keras.layers
    is_text = dtype == tf.string
    if _is_plain(front, layers.Hashing):
        return _rule_of_hashing(front) if is_text or dtype in (tf.int32, tf.int64) else None
    is_vocabulary = (
        _is_plain(front, layers.StringLookup)
        if is_text
        else dtype in (tf.int32, tf.int64) and _is_plain(front, layers.IntegerLookup)
    )
    return _rule_of_vocabulary(front, "string" if is_text else "int64") if is_vocabulary else None


def _is_plain(layer: Any, cls: type) -> bool:
    """Whether a layer does what its class does, and no subclass something else."""
    return isinstance(layer, cls) and type(layer).call is cls.call  # type: ignore[attr-defined]


def _rule_of_hashing(front: Any) -> KeyRule | None:
    has_other_bins = front.mask_value is not None or front.salt is not None
    fits = tf.as_dtype(front.dtype) == tf.int64 or front.num_bins < 2**31
    if has_other_bins or front.output_mode != "int" or not fits:
        return None
    return KeyRule("hash", front.num_bins)


def _rule_of_vocabulary(front: Any, key_dtype: str) -> KeyRule | None:
    # Without an index for unknown values, the layer raises for them; with several it hashes them.
    is_lookup = front.output_mode == "int" and not front.invert and front.num_oov_indices == 1
    if not is_lookup or front.mask_token is not None or front._key_dtype != key_dtype:
        return None
    table = front.lookup_table.resource_handle
    return KeyRule("vocabulary", 0, front._default_value, table=table)


def rule_of_ids(keras: Any, ids: Any, num_rows: int) -> KeyRule | None:
    """How the ids of a stock Embedding name rows.

    Args:
        keras: The module.
        ids: What the layer is called with.
        num_rows: Number of its rows.

    Returns:
        The rule; None if the layer must be called.
    """
    is_dense = isinstance(ids, tf.Tensor) and ids.dtype in (tf.int32, tf.int64)
    if not is_dense:
        return None
    # Keras 3 counts negative ids from the end of the table.
    return KeyRule("index", num_rows) if hasattr(keras, "Variable") else KeyRule("identity")


def is_plain_embedding(keras: Any, lookup: Any) -> bool:
    """Whether a layer is stock's Embedding that reads its rows as they are.

    Args:
        keras: The module.
        lookup: A layer of it.

    Returns:
        False for subclasses, and with LoRA or quantization.
    """
    return (
        type(lookup) is keras.layers.Embedding
        and lookup.activity_regularizer is None
        and not getattr(lookup, "lora_enabled", False)
        and not getattr(lookup, "quantization_mode", None)
        and not getattr(lookup, "_use_one_hot_matmul", False)
    )
