"""Times PruneInvalidAndFillEmptyRows against the stock ops that it replaces."""

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from benchmarks.ops import inputs

SHAPES = ((256, 8), (4096, 1), (4096, 16), (65536, 16))  # (batch size, mean ids in a row)


def make_input(batch_size: int, ids_in_row: int) -> tuple:
    pairs = inputs.make_pairs(batch_size, ids_in_row, with_invalid=True)
    return tf.constant(pairs.ids), pairs.indices(), tf.constant([batch_size, 1], tf.int64)


def fused(ids: tf.Tensor, indices: tf.Tensor, dense_shape: tf.Tensor) -> list[tf.Tensor]:
    """The op under test."""
    out = fe.raw_ops.PruneInvalidAndFillEmptyRows(
        sp_values=ids,
        sp_indices=indices,
        sp_dense_shape=dense_shape,
        fill_empty_row=True,
        prune=True,
    )
    return [out.sp_values_out, out.sp_indices_out, out.is_row_empty]


def stock(ids: tf.Tensor, indices: tf.Tensor, dense_shape: tf.Tensor) -> list[tf.Tensor]:
    """The same result from tf.sparse."""
    sp_ids = tf.sparse.retain(tf.SparseTensor(indices, ids, dense_shape), ids >= 0)
    filled, is_row_empty = tf.sparse.fill_empty_rows(sp_ids, tf.constant(0, tf.int64))
    return [filled.values, filled.indices, is_row_empty]


def comparable(outputs: list[np.ndarray]) -> list[np.ndarray]:
    """Ours appends filled rows, stock puts them in their place: sorts by row."""
    ids, indices, is_row_empty = outputs
    order = np.argsort(indices[:, 0], kind="stable")
    return [ids[order], indices[order], is_row_empty]
