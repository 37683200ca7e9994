"""Times FusedEmbeddingResourceGather against TensorFlow's ResourceGather."""

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from benchmarks.ops import inputs

SHAPES = ((2048, 8), (2048, 16), (57000, 16), (57000, 64))  # (unique ids, dim)


def make_input(num_ids: int, dim: int) -> tuple:
    ids = np.random.default_rng(0).permutation(inputs.NUM_TABLE_ROWS)[:num_ids]
    return tf.Variable(inputs.make_rows(inputs.NUM_TABLE_ROWS, dim)), tf.constant(ids)


def fused(table: tf.Variable, ids: tf.Tensor) -> list[tf.Tensor]:
    """The op under test."""
    rows = fe.raw_ops.FusedEmbeddingResourceGather(
        resource=table.handle, ids=ids, dtype=table.dtype
    )
    return [rows]


def stock(table: tf.Variable, ids: tf.Tensor) -> list[tf.Tensor]:
    """TensorFlow's op."""
    return [table.sparse_read(ids)]
