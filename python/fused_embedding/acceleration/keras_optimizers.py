"""The optimizers of Keras 2 and 3: the sparse updates of all variables of a step in one op.

The one method is replaced in which an optimizer updates all variables of a step. Most of Keras's
updates are not those of rows: they are left, or replaced with optimizers="lazy".
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from fused_embedding.acceleration.contexts import reason_for_stock_update
from fused_embedding.acceleration.records import marked_as_accelerated
from fused_embedding.acceleration.replacements import Replacement
from fused_embedding.acceleration.switch import Switch
from fused_embedding.keras.fused import fuses, is_of_keras_3, tf_pairs, update_together
from fused_embedding.keras.fused_rules import has_array_rule
from fused_embedding.keras.rules import base_of
from fused_embedding.ops.gradients import is_known_to_be_distinct

_LAZY = 'optimizers="lazy" replaces it all the same'


def replacements(switch: Switch) -> list[Replacement]:
    """What is replaced while `switch` is on, of the Kerases that are installed."""
    return [_of_keras(switch, keras) for keras in _kerases()]


def _kerases() -> Iterator[Any]:
    yield tf.keras
    # Beside Keras 3, where a program may import it later; without, tf.keras is Keras 2.
    is_keras_3 = is_of_keras_3(tf.keras.optimizers.Optimizer)
    if is_keras_3 and importlib.util.find_spec("tf_keras") is not None:
        yield importlib.import_module("tf_keras")


def _of_keras(switch: Switch, keras: Any) -> Replacement:
    optimizer = keras.optimizers.Optimizer
    if is_of_keras_3(optimizer):
        name, make = "_backend_update_step", _update_of_keras_3
    else:
        name, make = "_internal_apply_gradients", _update_of_keras_2
    owner = next(cls for cls in optimizer.__mro__ if name in vars(cls))
    return Replacement(owner, name, lambda stock: make(switch, owner, stock))


def _update_of_keras_3(switch: Switch, owner: type, stock: Callable[..., Any]) -> Any:
    def replaced(self: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> Any:
        pairs = tf_pairs(grads, trainable_variables)
        is_owned = type(self)._backend_update_step is vars(owner)["_backend_update_step"]
        if not (is_owned and _has_part_in(switch, self, pairs)):
            return stock(self, grads, trainable_variables, learning_rate)
        with marked_as_accelerated():
            rest = update_together(self, pairs, learning_rate)
        if rest:
            stock(self, *(list(part) for part in zip(*rest, strict=True)), learning_rate)
        return None

    return replaced


def _update_of_keras_2(switch: Switch, owner: type, stock: Callable[..., Any]) -> Any:
    def replaced(self: Any, grads_and_vars: Any) -> Any:
        pairs = list(grads_and_vars)
        is_owned = type(self)._internal_apply_gradients is vars(owner)["_internal_apply_gradients"]
        if is_owned and _has_part_in(switch, self, pairs):
            with marked_as_accelerated():
                pairs = update_together(self, pairs, self.learning_rate)
        return stock(self, pairs)

    return replaced


def _has_part_in(switch: Switch, optimizer: Any, pairs: list[tuple[Any, Any]]) -> bool:
    """Whether our op does the sparse updates of a step, which is noted either way."""
    is_sparse = any(isinstance(grad, tf.IndexedSlices) for grad, _ in pairs)
    if switch.records is None or not is_sparse:
        return False
    left = reason_for_stock_update() or _reason_to_leave(switch, optimizer, pairs)
    switch.note(f"{type(optimizer).__name__} of Keras", left)
    return left is None


def _reason_to_leave(switch: Switch, optimizer: Any, pairs: list[tuple[Any, Any]]) -> str | None:
    if not has_array_rule(optimizer):
        return "its update is not among those of the op"
    if optimizer.use_ema and not is_of_keras_3(optimizer):
        return "it keeps moving averages of the variables"
    if not any(fuses(optimizer, *pair) for pair in pairs):
        return "the op has no kernel where its variables are"
    unequal = _why_unequal(optimizer, pairs)
    return f"{unequal}; {_LAZY}" if unequal and switch.optimizers != "lazy" else None


def _why_unequal(optimizer: Any, pairs: list[tuple[Any, Any]]) -> str | None:
    """Why an update of rows has other numbers than stock's; None: it has not."""
    rule = base_of(optimizer).__name__
    if rule == "SGD" and not optimizer.momentum:
        return None
    if rule == "Adagrad":
        # Keras 2 sums repeated ids first.
        if not is_of_keras_3(optimizer) or _are_distinct(pairs):
            return None
        return "it would not be equal: stock's squares the gradients of repeated ids one by one"
    return "it would not be equal: stock's changes rows that a step does not name"


def _are_distinct(pairs: list[tuple[Any, Any]]) -> bool:
    """Whether no sparse gradient repeats an id: stock's lookups that pool have distinct ids too."""
    slices = [grad for grad, _ in pairs if isinstance(grad, tf.IndexedSlices)]
    return all(is_known_to_be_distinct(grad.indices) for grad in slices)
