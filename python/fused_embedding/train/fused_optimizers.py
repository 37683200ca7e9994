"""The stock v1 optimizers, with the sparse updates of all ordinary variables of a step in one op.

The interface is stock's: constructors, slots, names of variables, checkpoints, dense gradients.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from fused_embedding.ops.disabled import is_disabled
from fused_embedding.train.collected import LATER
from fused_embedding.train.rules import RULES
from fused_embedding.train.slot_values import FillsSlotsAtRunTime
from fused_embedding.train.sparse_apply import SparseUpdate, apply_sparse_gradients, can_update

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "RMSPropOptimizer",
]

# Stock's names for the slots of a rule, in the rule's order.
_SLOTS: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("momentum",),
    "adagrad": ("accumulator",),
    "rmsprop": ("rms", "momentum"),
    "centered_rmsprop": ("rms", "mg", "momentum"),
    "adam": ("m", "v"),
    "ftrl": ("accum", "linear"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class PendingUpdate:
    """What stock gets for a sparse update that `_finish` will do with all others of the step."""

    variable: Any
    grad: tf.IndexedSlices


# The optimizer whose apply_gradients runs, which will do what is pending.
_collecting: contextvars.ContextVar[Any] = contextvars.ContextVar("collecting", default=None)


@contextlib.contextmanager
def collecting_updates(optimizer: Any) -> Iterator[None]:
    """What an optimizer's apply_gradients runs in: its sparse updates are done by `with_updates`.

    Args:
        optimizer: The optimizer.

    Yields:
        Nothing.
    """
    token = _collecting.set(optimizer)
    try:
        yield
    finally:
        _collecting.reset(token)


def update_later(optimizer: Any, grad: tf.IndexedSlices, variable: Any) -> Any:
    """What a v1 optimizer's method for a sparse gradient returns, for `with_updates`.

    Args:
        optimizer: A v1 optimizer that has a rule.
        grad: The gradient.
        variable: An ordinary variable, for which `can_update` is true.

    Returns:
        The update, yet to be done. Outside of the optimizer's apply_gradients, and where
        tf.distribute updates each copy of a variable in a call of its own, its operation.
    """
    update = PendingUpdate(variable, grad)
    if _collecting.get() is not optimizer or tf.distribute.has_strategy():
        return tf.group(*_apply(optimizer, [update]))
    return update


def with_updates(optimizer: Any, update_ops: list[Any]) -> list[Any]:
    """What stock's `_finish` takes, after one op for all pending updates.

    Args:
        optimizer: The optimizer.
        update_ops: What its methods for gradients returned.

    Returns:
        Operations; none eagerly, where the updates have happened.
    """
    pending = [op for op in update_ops if isinstance(op, PendingUpdate)]
    done = [op for op in update_ops if not isinstance(op, PendingUpdate)]
    operations = [op for op in done if op is not LATER and op is not None]
    return operations + (_apply(optimizer, pending) if pending else [])


def _apply(optimizer: Any, pending: list[PendingUpdate]) -> list[tf.Operation]:
    step = RULES[_base_of(type(optimizer))](optimizer, pending[0].variable)
    names = _SLOTS[step.rule]
    updates = [
        SparseUpdate(p.variable, [optimizer.get_slot(p.variable, name) for name in names], p.grad)
        for p in pending
    ]
    return apply_sparse_gradients(updates, step, optimizer._use_locking)


class _FusedUpdates(FillsSlotsAtRunTime):
    """Collects the sparse updates of a call of apply_gradients, which stock applies one by one."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Makes an operation that applies gradients, with one op for all sparse ones.

        Args:
            grads_and_vars: Pairs of gradient and variable.
            *args: `global_step` and `name` of tf.compat.v1.train.Optimizer.apply_gradients.
            **kwargs: The same by name.

        Returns:
            The training operation.
        """
        with collecting_updates(self):
            return super().apply_gradients(grads_and_vars, *args, **kwargs)  # type: ignore[misc]

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        return super()._finish(with_updates(self, update_ops), name_scope)  # type: ignore[misc]

    # Stock calls these with a sparse gradient: for reference variables and for resource variables.

    def _apply_sparse_duplicate_indices(self, grad: Any, var: Any) -> Any:
        if not can_update(var):
            return super()._apply_sparse_duplicate_indices(grad, var)  # type: ignore[misc]
        return update_later(self, grad, var)

    def _resource_apply_sparse_duplicate_indices(self, values: Any, var: Any, indices: Any) -> Any:
        if not can_update(var):
            stock = super()._resource_apply_sparse_duplicate_indices  # type: ignore[misc]
            return stock(values, var, indices)
        return update_later(self, tf.IndexedSlices(values, indices), var)


def _base_of(cls: type) -> type:
    return next(base for base in cls.__mro__ if base in RULES)


class GradientDescentOptimizer(_FusedUpdates, tf.compat.v1.train.GradientDescentOptimizer):
    """tf.compat.v1.train.GradientDescentOptimizer, with one op for all sparse updates of a step.

    >>> optimizer = fe.train.GradientDescentOptimizer(0.1)
    >>> isinstance(optimizer, tf.compat.v1.train.GradientDescentOptimizer)
    True
    """


class MomentumOptimizer(_FusedUpdates, tf.compat.v1.train.MomentumOptimizer):
    """tf.compat.v1.train.MomentumOptimizer, with one op for all sparse updates of a step."""


class AdagradOptimizer(_FusedUpdates, tf.compat.v1.train.AdagradOptimizer):
    """tf.compat.v1.train.AdagradOptimizer, with one op for all sparse updates of a step."""


class RMSPropOptimizer(_FusedUpdates, tf.compat.v1.train.RMSPropOptimizer):
    """tf.compat.v1.train.RMSPropOptimizer, with one op for all sparse updates of a step."""


class AdamOptimizer(_FusedUpdates, tf.compat.v1.train.AdamOptimizer):
    """tf.compat.v1.train.AdamOptimizer, with one op for all sparse updates of a step. It is lazy.

    Rows that a sparse gradient does not name do not change. Stock decays the moments of every row
    in every step, and updates every row by them. If every step names every row, the results are the
    same.
    """


class FtrlOptimizer(_FusedUpdates, tf.compat.v1.train.FtrlOptimizer):
    """tf.compat.v1.train.FtrlOptimizer, with one op for all sparse updates of a step."""

    def _create_slots(self, var_list: list[Any]) -> None:
        if is_disabled("apply"):
            super()._create_slots(var_list)
            return
        # Stock's initializer is a function of its own; this one has a value.
        initial = tf.compat.v1.constant_initializer(self._initial_accumulator_value)
        for v in var_list:
            self._get_or_make_slot_with_initializer(
                v, initial, v.shape, v.dtype.base_dtype, "accum", self._accum_name or self._name
            )
            self._zeros_slot(v, "linear", self._linear_name or self._name)


# They train EmbeddingVariables like their stock base classes.
RULES.update({cls: RULES[_base_of(cls)] for cls in _FusedUpdates.__subclasses__()})
