"""Times FusedEmbeddingSparsePostLookUpV2WeightsGrad against TensorFlow's autodiff."""

import tensorflow as tf

import fused_embedding as fe
from benchmarks.ops import inputs

SHAPES = ((4096, 1, 16), (4096, 16, 16), (8192, 20, 64))  # (batch size, mean ids in a row, dim)


def make_input(batch_size: int, ids_in_row: int, dim: int) -> tuple:
    pairs = inputs.make_pairs(batch_size, ids_in_row)
    unique_ids, unique_idx = tf.unique(tf.constant(pairs.ids))
    rows = inputs.make_rows(int(tf.size(unique_ids)), dim)
    weights = tf.random.stateless_uniform([len(pairs.ids)], [0, 3], 0.5, 1.5)
    return rows, unique_idx, pairs.indices(), weights, inputs.make_rows(batch_size, dim, seed=2)


def fused(
    rows: tf.Tensor,
    unique_idx: tf.Tensor,
    indices: tf.Tensor,
    weights: tf.Tensor,
    top_grad: tf.Tensor,
) -> list[tf.Tensor]:
    """The op under test."""
    grad = fe.raw_ops.FusedEmbeddingSparsePostLookUpV2WeightsGrad(
        top_grad=top_grad,
        emb_shards=[rows],
        partition_permutation=tf.zeros([1, 2], tf.int32),
        indices_before_unique=indices,
        is_row_empty=tf.zeros([top_grad.shape[0]], tf.bool),
        unique_idxs=unique_idx,
        sp_weights_values=weights,
        combiner="sum",
    )
    return [grad]


def stock(
    rows: tf.Tensor,
    unique_idx: tf.Tensor,
    indices: tf.Tensor,
    weights: tf.Tensor,
    top_grad: tf.Tensor,
) -> list[tf.Tensor]:
    """The gradient of sum(weight * row): both gathered per pair, multiplied, summed over dim."""
    del weights
    return [tf.reduce_sum(tf.gather(rows, unique_idx) * tf.gather(top_grad, indices[:, 0]), 1)]
