"""The stock v1 optimizers: the sparse updates of all ordinary variables of a step in one op.

The methods of the classes are replaced, and the classes stay: isinstance, slots, names and
checkpoints are stock's.
"""

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.acceleration.contexts import reason_for_stock_update
from fused_embedding.acceleration.records import marked_as_accelerated
from fused_embedding.acceleration.replacements import Replacement
from fused_embedding.acceleration.switch import Switch
from fused_embedding.train.fused_optimizers import (
    collecting_updates,
    update_later,
    with_updates,
)
from fused_embedding.train.rules import overridden
from fused_embedding.train.sparse_apply import can_update

_train = tf.compat.v1.train

# Their updates are per row and sum repeated ids, as those of the op are: the numbers are the same.
_EQUAL = (
    _train.GradientDescentOptimizer,
    _train.MomentumOptimizer,
    _train.AdagradOptimizer,
    _train.RMSPropOptimizer,
    _train.FtrlOptimizer,
)
# Why the update of another optimizer would have other numbers.
_UNEQUAL = {
    _train.AdamOptimizer: "it would not be equal: stock's decays the moments of all rows in each "
    'step; optimizers="lazy" replaces it all the same',
}


def replacements(switch: Switch) -> list[Replacement]:
    """What is replaced while `switch` is on."""
    of_classes = [_of_class(switch, cls) for cls in (*_EQUAL, *_UNEQUAL)]
    return [
        Replacement(
            _train.Optimizer, "apply_gradients", lambda stock: _apply_gradients(switch, stock)
        ),
        *itertools.chain.from_iterable(of_classes),
    ]


def _apply_gradients(switch: Switch, stock: Callable[..., Any]) -> Callable[..., Any]:
    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        # train/hook.py has a stand-in for an optimizer that trains tables too.
        with switch.busy(), collecting_updates(getattr(self, "stands_for", self)):
            return stock(self, *args, **kwargs)

    return replaced


def _of_class(switch: Switch, cls: type) -> list[Replacement]:
    def of_reference(stock: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(self: Any, grad: Any, var: Any) -> Any:
            if _has_part_in(switch, cls, self, var):
                return update_later(self, grad, var)
            return stock(self, grad, var)

        return replaced

    def of_resource(stock: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(self: Any, values: Any, var: Any, indices: Any) -> Any:
            if _has_part_in(switch, cls, self, var):
                return update_later(self, tf.IndexedSlices(values, indices), var)
            return stock(self, values, var, indices)

        return replaced

    def finish(stock: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(self: Any, update_ops: list[Any], name_scope: str) -> Any:
            with marked_as_accelerated():
                operations = with_updates(self, update_ops)
            return stock(self, operations, name_scope)

        return replaced

    return [
        Replacement(cls, "_apply_sparse_duplicate_indices", of_reference),
        Replacement(cls, "_resource_apply_sparse_duplicate_indices", of_resource),
        Replacement(cls, "_finish", finish),
    ]


def _has_part_in(switch: Switch, cls: type, optimizer: Any, variable: Any) -> bool:
    """Whether our op does an update, which is noted either way."""
    records = switch.records
    if records is None:
        return False
    left = _reason_to_leave(switch, cls, optimizer, variable)
    records.add(type(optimizer).__name__, left)
    return left is None


def _reason_to_leave(switch: Switch, cls: type, optimizer: Any, variable: Any) -> str | None:
    other = overridden(type(optimizer), cls)
    if other is None and type(optimizer)._finish is not cls._finish:  # type: ignore[attr-defined]
        other = "_finish"
    if other is not None:
        return f"it overrides {other} of {cls.__name__}"
    if cls in _UNEQUAL and switch.optimizers != "lazy":
        return _UNEQUAL[cls]
    of_context = reason_for_stock_update()
    if of_context is None and not can_update(variable):
        return f"the op has no kernel where a variable is, on {variable.device}"
    return of_context
