"""Times UniqueWithCountsV3 against tf.unique_with_counts."""

import tensorflow as tf

import fused_embedding as fe
from benchmarks.ops import inputs

SHAPES = ((256, 8), (4096, 1), (4096, 16), (65536, 16))  # (batch size, mean ids in a row)


def make_input(batch_size: int, ids_in_row: int) -> tuple:
    return (tf.constant(inputs.make_pairs(batch_size, ids_in_row).ids),)


def fused(ids: tf.Tensor) -> list[tf.Tensor]:
    """The op under test."""
    return list(fe.raw_ops.UniqueWithCountsV3(input=ids, CounterType=tf.int32))


def stock(ids: tf.Tensor) -> list[tf.Tensor]:
    """TensorFlow's op, which the lookup calls without counts."""
    return list(tf.unique_with_counts(ids))
