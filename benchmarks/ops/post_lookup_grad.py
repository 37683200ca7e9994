"""Times FusedEmbeddingSparsePostLookUpV2Grad against the stock ops that it replaces."""

import tensorflow as tf

import fused_embedding as fe
from benchmarks.ops import inputs, post_lookup

SHAPES = post_lookup.SHAPES


def make_input(batch_size: int, ids_in_row: int, dim: int) -> tuple:
    """The forward op's inputs, the incoming gradient, and the number of ids in each row."""
    forward = post_lookup.make_input(batch_size, ids_in_row, dim)
    _, _, indices, is_row_empty, _ = forward
    counts = tf.math.bincount(tf.cast(indices[:, 0], tf.int32), minlength=batch_size)
    feature_nums = tf.where(is_row_empty, 0, counts)
    return *forward[:4], inputs.make_rows(batch_size, dim, seed=2), feature_nums


def fused(
    rows: tf.Tensor,
    unique_idx: tf.Tensor,
    indices: tf.Tensor,
    is_row_empty: tf.Tensor,
    top_grad: tf.Tensor,
    feature_nums: tf.Tensor,
) -> list[tf.Tensor]:
    """The op under test."""
    grads = fe.raw_ops.FusedEmbeddingSparsePostLookUpV2Grad(
        top_grad=top_grad,
        emb_shards=[rows],
        partition_permutation=tf.zeros([1, 2], tf.int32),
        feature_nums=feature_nums,
        indices_before_unique=indices,
        unique_idxs=unique_idx,
        is_row_empty=is_row_empty,
        combiner="mean",
        fill_empty_row=True,
    )
    return list(grads)


def stock(
    rows: tf.Tensor,
    unique_idx: tf.Tensor,
    indices: tf.Tensor,
    is_row_empty: tf.Tensor,
    top_grad: tf.Tensor,
    feature_nums: tf.Tensor,
) -> list[tf.Tensor]:
    """What TensorFlow differentiates the tail of its lookup to."""
    is_empty = tf.tile(is_row_empty[:, tf.newaxis], [1, rows.shape[1]])
    masked = tf.where(is_empty, tf.zeros_like(top_grad), top_grad)
    grad = tf.raw_ops.SparseSegmentMeanGrad(
        grad=masked,
        indices=unique_idx,
        segment_ids=tf.cast(indices[:, 0], tf.int32),
        output_dim0=tf.shape(rows)[0],
    )
    return [grad]
