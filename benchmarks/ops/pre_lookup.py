"""Times FusedEmbeddingSparsePreLookUp against the stock ops that it replaces."""

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from benchmarks.ops import inputs

SHAPES = ((4096, 1, 1), (4096, 16, 1), (4096, 16, 4))  # (batch size, mean ids in a row, shards)


def make_input(batch_size: int, ids_in_row: int, num_shards: int) -> tuple:
    pairs = inputs.make_pairs(batch_size, ids_in_row, with_invalid=True)
    dense_shape = tf.constant([batch_size, 1], tf.int64)
    shard = tf.constant([inputs.NUM_TABLE_ROWS // num_shards, 16], tf.int64)
    return tf.constant(pairs.ids), pairs.indices(), dense_shape, *[shard] * num_shards


def fused(
    ids: tf.Tensor, indices: tf.Tensor, dense_shape: tf.Tensor, *partition_shapes: tf.Tensor
) -> list[tf.Tensor]:
    """The op under test."""
    out = fe.raw_ops.FusedEmbeddingSparsePreLookUp(
        partition_shapes=list(partition_shapes),
        sp_values=ids,
        sp_indices=indices,
        sp_dense_shape=dense_shape,
        fill_empty_row=True,
        prune_invalid_id=True,
        partition_strategy="mod",
    )
    return [*out.partitioned_values, *out.partitioned_indices]


def stock(
    ids: tf.Tensor, indices: tf.Tensor, dense_shape: tf.Tensor, *partition_shapes: tf.Tensor
) -> list[tf.Tensor]:
    """The same pairs from tf.sparse and tf.dynamic_partition."""
    num_shards = len(partition_shapes)
    sp_ids = tf.sparse.retain(tf.SparseTensor(indices, ids, dense_shape), ids >= 0)
    filled, _ = tf.sparse.fill_empty_rows(sp_ids, tf.constant(0, tf.int64))
    shard = tf.cast(filled.values % num_shards, tf.int32)
    values = tf.dynamic_partition(filled.values // num_shards, shard, num_shards)
    return [*values, *tf.dynamic_partition(filled.indices, shard, num_shards)]


def comparable(outputs: list[np.ndarray]) -> list[np.ndarray]:
    """Ours appends filled rows, stock puts them in their place: sorts each shard by row."""
    num_shards = len(outputs) // 2
    values, indices = outputs[:num_shards], outputs[num_shards:]
    orders = [np.argsort(pairs[:, 0], kind="stable") for pairs in indices]
    return [part[orders[i % num_shards]] for i, part in enumerate([*values, *indices])]
