"""The hash of keys, by stock ops."""

import tensorflow as tf

MULTIPLIERS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)


def mix64(x: tf.Tensor) -> tf.Tensor:
    """MurmurHash3's finaliser.

    Args:
        x: uint64 of any shape.

    Returns:
        uint64 of its shape. Source: `Mix64` of tf_ops/core/base/hash.h.
    """
    for multiplier in MULTIPLIERS:
        x = _xor_shift(x) * tf.constant(multiplier, tf.uint64)
    return _xor_shift(x)


def _xor_shift(x: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(33, tf.uint64)))
