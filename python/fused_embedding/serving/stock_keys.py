"""The op that makes ids of features, as a subgraph of stock ops."""

from typing import Any, NamedTuple

import tensorflow as tf


class Rule(NamedTuple):
    """How a column makes keys: attrs of the op."""

    kind: str
    num_buckets: int
    default_key: int

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """`[nnz]` int64 keys of `[nnz]` values."""
        if self.kind == "hash":
            texts = values if values.dtype == tf.string else tf.strings.as_string(values)
            return tf.strings.to_hash_bucket_fast(texts, self.num_buckets)
        keys = tf.cast(values, tf.int64)
        if self.default_key < 0:
            return keys
        is_there = (keys >= 0) & (keys < self.num_buckets)
        return tf.where(is_there, keys, tf.constant(self.default_key, tf.int64))


def column_keys(call: Any) -> dict[str, Any]:
    """Builds the stock form of a FusedEmbeddingColumnKeys.

    Args:
        call: A `serving.stock_ops.Call` of it.

    Returns:
        Its outputs by name.
    """
    attrs = (call.attr(name) for name in ("layouts", "kinds", "num_buckets", "default_keys"))
    splits = iter(call.inputs["row_splits"])
    keys, rows, dense_shapes = [], [], []
    for values, layout, *rule in zip(call.inputs["values"], *attrs, strict=True):
        if layout == "dense":
            matrix = values if values.shape.rank == 2 else _as_matrix(values)
            places = tf.where(tf.not_equal(matrix, "" if matrix.dtype == tf.string else -1))
            rows.append(places[:, 0])
            dense_shapes.append(tf.shape(matrix, out_type=tf.int64))
            values = tf.gather_nd(matrix, places)
        elif layout == "ragged":
            of_column = next(splits)
            num_rows = tf.size(of_column, out_type=tf.int64) - 1
            rows.append(tf.repeat(tf.range(num_rows), of_column[1:] - of_column[:-1]))
            dense_shapes.append(tf.stack([num_rows, tf.ones_like(num_rows)]))
        keys.append(Rule(*rule)(values))
    return {"keys": keys, "rows": rows, "dense_shapes": dense_shapes}


def _as_matrix(values: tf.Tensor) -> tf.Tensor:
    """`[num_rows]` as `[num_rows, 1]`; a matrix of unknown rank as it is."""
    shape = tf.shape(values)
    width = tf.reduce_prod(shape[1:])
    return tf.reshape(values, tf.stack([shape[0], width]))
