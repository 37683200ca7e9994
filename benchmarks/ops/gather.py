"""Times FusedEmbeddingResourceGather against TensorFlow's ResourceGather."""

import tensorflow as tf

import fused_embedding as fe
from benchmarks.ops import inputs

SHAPES = ((2048, 8), (2048, 16), (57000, 16), (57000, 64))  # (unique ids, dim)


def make_input(num_ids: int, dim: int) -> tuple:
    ids = tf.random.experimental.index_shuffle(
        tf.range(num_ids, dtype=tf.int64), [1, 2, 3], inputs.NUM_TABLE_ROWS - 1
    )
    return tf.Variable(inputs.make_rows(inputs.NUM_TABLE_ROWS, dim)), ids


def fused(table: tf.Variable, ids: tf.Tensor) -> list[tf.Tensor]:
    """The op under test."""
    rows = fe.raw_ops.FusedEmbeddingResourceGather(
        resource=table.handle, ids=ids, dtype=table.dtype
    )
    return [rows]


def stock(table: tf.Variable, ids: tf.Tensor) -> list[tf.Tensor]:
    """TensorFlow's op."""
    return [table.sparse_read(ids)]
