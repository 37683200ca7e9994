"""Times FusedEmbeddingSparsePostLookUpV2 against the stock ops that it replaces."""

import tensorflow as tf

import fused_embedding as fe
from benchmarks.ops import inputs

# (batch size, mean ids in a row, dim)
SHAPES = ((4096, 1, 16), (512, 1, 8), (4096, 16, 16), (8192, 20, 64))


def make_input(batch_size: int, ids_in_row: int, dim: int) -> tuple:
    """Makes filled pairs: every empty row has the id 0, and is to become zero."""
    pairs = inputs.make_pairs(batch_size, ids_in_row)
    sp_ids = tf.SparseTensor(pairs.indices(), pairs.ids, [batch_size, 1])
    filled, is_row_empty = tf.sparse.fill_empty_rows(sp_ids, tf.constant(0, tf.int64))
    unique_ids, unique_idx = tf.unique(filled.values)
    rows = inputs.make_rows(int(tf.size(unique_ids)), dim)
    return rows, unique_idx, filled.indices, is_row_empty, filled.dense_shape


def fused(
    rows: tf.Tensor,
    unique_idx: tf.Tensor,
    indices: tf.Tensor,
    is_row_empty: tf.Tensor,
    dense_shape: tf.Tensor,
) -> list[tf.Tensor]:
    """The op under test."""
    out = fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(
        emb_shards=[rows],
        partition_permutation=tf.zeros([1, 2], tf.int32),
        sp_dense_shape=dense_shape,
        indices_before_unique=indices,
        is_row_empty=is_row_empty,
        unique_idxs=unique_idx,
        combiner="mean",
        fill_empty_row=True,
    )
    return [out.emb_vectors]


def stock(
    rows: tf.Tensor,
    unique_idx: tf.Tensor,
    indices: tf.Tensor,
    is_row_empty: tf.Tensor,
    dense_shape: tf.Tensor,
) -> list[tf.Tensor]:
    """The tail of tf.nn.safe_embedding_lookup_sparse."""
    segments = tf.cast(indices[:, 0], tf.int32)
    combined = tf.sparse.segment_mean(rows, unique_idx, segments)
    is_empty = tf.tile(is_row_empty[:, tf.newaxis], [1, rows.shape[1]])
    return [tf.where(is_empty, tf.zeros_like(combined), combined)]
