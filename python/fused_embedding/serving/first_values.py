"""First values of keys without a row, by stock ops: those of core/table/initializer.cc."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.ops.mix64 import MULTIPLIERS, mix64

_GAMMA = 0x9E3779B97F4A7C15  # 2^64 / golden ratio
_MASK = 2**64 - 1
_TWO_SIGMA_MASS = 0.9544997361036416  # of a normal distribution
_DEBUG_MODULUS = 100000


class Initializer(NamedTuple):
    """How the rows of a table start.

    Attributes:
        kind: "constant", "uniform", "normal", "truncated_normal", "debug" or "matrix", as the attr
            of EmbeddingVariableHandle.
        a: See `kind`.
        b: See `kind`.
        seed: Of the values, int64.
    """

    kind: str
    a: float
    b: float
    seed: int


def _mix64_of_int(x: int) -> int:
    for multiplier in MULTIPLIERS:
        x = ((x ^ (x >> 33)) * multiplier) & _MASK
    return x ^ (x >> 33)


def first_values(initializer: Initializer, keys: tf.Tensor, dim: int, dtype: tf.DType) -> tf.Tensor:
    """What rows of `keys` would start as.

    Args:
        initializer: Of a kind of `COMPUTED_KINDS`.
        keys: `[n]` int64.
        dim: Length of a row.
        dtype: Type of the values.

    Returns:
        `[n, dim]`.
    """
    values = _VALUES[initializer.kind](initializer, keys, dim, dtype)
    if dtype != tf.float64:  # 16-bit types are rounded from float32
        values = tf.cast(values, tf.float32)
    return tf.cast(values, dtype)


def _units(seed: int, keys: tf.Tensor, dim: int) -> tf.Tensor:
    """`[n, dim]` float64 random numbers in [0, 1), multiples of 2^-52."""
    seed_state = _mix64_of_int((seed & _MASK) ^ _GAMMA)
    row_state = mix64(tf.bitcast(keys, tf.uint64) + tf.constant(seed_state, tf.uint64))
    steps = np.array([(d + 1) * _GAMMA & _MASK for d in range(dim)], np.uint64)
    bits = mix64(row_state[:, None] + tf.constant(steps)[None])
    bits = tf.bitwise.right_shift(bits, tf.constant(12, tf.uint64))
    return tf.cast(tf.bitcast(bits, tf.int64), tf.float64) * 2.0**-52


def _range(a: float, b: float, dtype: tf.DType) -> tuple[float, float]:
    """The lowest and the highest value of a type in [a, b)."""
    of_type = dtype.as_numpy_dtype
    low, high = of_type(a), of_type(b)
    up, down = of_type(np.inf), of_type(-np.inf)
    lowest = float(np.nextafter(low, up) if float(low) < a else low)
    highest = float(high if float(high) < b else np.nextafter(high, down))
    return (lowest, highest) if lowest <= highest else (float(low), float(low))


def _uniform(initializer: Initializer, keys: tf.Tensor, dim: int, dtype: tf.DType) -> tf.Tensor:
    a, b = initializer.a, initializer.b
    low, high = _range(a, b, dtype)
    return tf.clip_by_value(a + (b - a) * _units(initializer.seed, keys, dim), low, high)


def _deviations(seed: int, keys: tf.Tensor, dim: int, half_mass: float) -> tf.Tensor:
    """Standard normal values that lie in the quantiles of 0.5 +- half_mass."""
    units = _units(seed, keys, dim) + 2.0**-53
    return tf.math.ndtri(0.5 + 2.0 * half_mass * (units - 0.5))


def _normal(initializer: Initializer, keys: tf.Tensor, dim: int, dtype: tf.DType) -> tf.Tensor:
    return initializer.a + initializer.b * _deviations(initializer.seed, keys, dim, 0.5)


def _truncated_normal(
    initializer: Initializer, keys: tf.Tensor, dim: int, dtype: tf.DType
) -> tf.Tensor:
    deviations = _deviations(initializer.seed, keys, dim, _TWO_SIGMA_MASS / 2)
    return initializer.a + initializer.b * tf.clip_by_value(deviations, -2.0, 2.0)


def _debug(initializer: Initializer, keys: tf.Tensor, dim: int, dtype: tf.DType) -> tf.Tensor:
    values = tf.cast(tf.math.floormod(keys, _DEBUG_MODULUS), tf.float64)
    return tf.tile(values[:, None], [1, dim])


_VALUES: dict[str, Callable[[Initializer, tf.Tensor, int, Any], tf.Tensor]] = {
    "uniform": _uniform,
    "normal": _normal,
    "truncated_normal": _truncated_normal,
    "debug": _debug,
}
# The others are a constant, or rows of a matrix.
COMPUTED_KINDS = tuple(_VALUES)
