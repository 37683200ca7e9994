"""First values of slots, which a session does not keep beside the slots.

Stock fills a slot with a constant. Grappler makes a `Const` of every fill whose shape and value are
known, and a `Const` keeps its value as long as the session: a third copy of every table.
"""

import math
import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import init_ops

from fused_embedding.ops.disabled import is_disabled

# Slots of fewer values, as those of an MLP's layers, are filled as in stock, by one op.
_MIN_VALUES = 1 << 16


class FillsSlotsAtRunTime:
    """A v1 optimizer whose slots have stock's values, of which a session keeps no copy."""

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, *args: Any, **kwargs: Any
    ) -> Any:
        value = _value_of(initializer)
        if value is not None and _is_filled(shape) and not tf.executing_eagerly():
            initializer = _filled_with(value)
        stock = super()._get_or_make_slot_with_initializer  # type: ignore[misc]
        return stock(var, initializer, shape, *args, **kwargs)

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        if not _is_filled(var.shape):
            return super()._zeros_slot(var, slot_name, op_name)  # type: ignore[misc]
        zeros = tf.compat.v1.zeros_initializer()
        return self._get_or_make_slot_with_initializer(
            var, zeros, var.shape, var.dtype.base_dtype, slot_name, op_name
        )


def _is_filled(shape: tf.TensorShape) -> bool:
    """Whether a slot of this shape is large enough, and FE_DISABLE permits it."""
    is_large = shape.is_fully_defined() and math.prod(shape.as_list()) >= _MIN_VALUES
    return is_large and not is_disabled("apply")


def _value_of(initializer: Any) -> Any:
    """The number that an initializer fills a variable with, or None."""
    if isinstance(initializer, init_ops.Zeros):
        return 0
    if isinstance(initializer, init_ops.Ones):
        return 1
    if isinstance(initializer, init_ops.Constant) and isinstance(initializer.value, numbers.Real):
        return initializer.value
    return None


def _filled_with(value: float) -> Callable[..., tf.Tensor]:
    def initializer(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> tf.Tensor:
        num_rows, *row_shape = tf.TensorShape(shape).as_list()
        # A random number below 1 more than the least one is that one. Grappler does not fold it.
        rows = tf.random.uniform([], num_rows, num_rows + 1, tf.int64, seed=1)
        filled = tf.fill(tf.stack([rows, *row_shape]), tf.constant(value, dtype))
        filled.set_shape(shape)
        return filled

    return initializer
