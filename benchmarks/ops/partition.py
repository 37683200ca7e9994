"""Times PartitionWithPermutation against the partition of tf.nn.embedding_lookup."""

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from benchmarks.ops import inputs

SHAPES = ((2048, 2), (2048, 8), (65536, 8))  # (unique ids, shards)


def make_input(num_ids: int, num_shards: int) -> tuple:
    rng = np.random.default_rng(0)
    ids = rng.permutation(inputs.NUM_TABLE_ROWS)[:num_ids]
    rows = inputs.NUM_TABLE_ROWS // num_shards
    return tf.constant(ids), *(tf.constant([rows, 16], tf.int64) for _ in range(num_shards))


def fused(ids: tf.Tensor, *partition_shapes: tf.Tensor) -> list[tf.Tensor]:
    """The op under test."""
    values, permutation = fe.raw_ops.PartitionWithPermutation(
        input=ids, partition_shapes=list(partition_shapes), partition_strategy="mod"
    )
    return [*values, permutation]


def stock(ids: tf.Tensor, *partition_shapes: tf.Tensor) -> list[tf.Tensor]:
    """Local ids of each shard, and the positions that tf.dynamic_stitch would put them at."""
    num_shards = len(partition_shapes)
    shard = tf.cast(ids % num_shards, tf.int32)
    values = tf.dynamic_partition(ids // num_shards, shard, num_shards)
    positions = tf.dynamic_partition(tf.range(tf.size(ids)), shard, num_shards)
    return [*values, tf.concat(positions, axis=0)]


def comparable(outputs: list[np.ndarray]) -> list[np.ndarray]:
    """Ours says where each id went, stock where each local id came from: gives the latter."""
    *values, permutation = outputs
    if permutation.ndim == 2:
        permutation = np.lexsort((permutation[:, 1], permutation[:, 0]))
    return [*values, permutation]
