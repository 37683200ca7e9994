"""The stock v1 optimizers, with the sparse updates of all ordinary variables of a step in one op.

The interface is stock's: constructors, slots, names of variables, checkpoints, dense gradients.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.train.collected import LATER
from fused_embedding.train.rules import RULES
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


class _FusedUpdates:
    """Collects the sparse updates of a call of apply_gradients, which stock applies one by one."""

    _use_locking: bool
    get_slot: Callable[[Any, str], Any]
    _pending: list[tuple[Any, tf.IndexedSlices]] | None = None  # None outside of apply_gradients

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Makes an operation that applies gradients, with one op for all sparse ones.

        Args:
            grads_and_vars: Pairs of gradient and variable.
            *args: `global_step` and `name` of tf.compat.v1.train.Optimizer.apply_gradients.
            **kwargs: The same by name.

        Returns:
            The training operation.
        """
        # tf.distribute updates each copy of a variable in a separate call, so each has its own op.
        collects = not tf.distribute.has_strategy()
        outer, self._pending = self._pending, [] if collects else None
        try:
            return super().apply_gradients(grads_and_vars, *args, **kwargs)  # type: ignore[misc]
        finally:
            self._pending = outer

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        operations = [op for op in update_ops if op is not LATER and op is not None]
        if self._pending:
            operations += self._apply(self._pending)
        return super()._finish(operations, name_scope)  # type: ignore[misc]

    def _apply(self, pairs: list[tuple[Any, tf.IndexedSlices]]) -> list[tf.Operation]:
        step = RULES[_base_of(type(self))](self, pairs[0][0])
        names = _SLOTS[step.rule]
        updates = [
            SparseUpdate(variable, [self.get_slot(variable, name) for name in names], grad)
            for variable, grad in pairs
        ]
        return apply_sparse_gradients(updates, step, self._use_locking)

    def _update(self, grad: tf.IndexedSlices, variable: Any) -> Any:
        if self._pending is None:
            return tf.group(*self._apply([(variable, grad)]))
        self._pending.append((variable, grad))
        return LATER

    # Stock calls these with a sparse gradient: for reference variables and for resource variables.

    def _apply_sparse_duplicate_indices(self, grad: Any, var: Any) -> Any:
        if not can_update(var):
            return super()._apply_sparse_duplicate_indices(grad, var)  # type: ignore[misc]
        return self._update(grad, var)

    def _resource_apply_sparse_duplicate_indices(self, values: Any, var: Any, indices: Any) -> Any:
        if not can_update(var):
            stock = super()._resource_apply_sparse_duplicate_indices  # type: ignore[misc]
            return stock(values, var, indices)
        return self._update(tf.IndexedSlices(values, indices), var)


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


# They train EmbeddingVariables like their stock base classes.
RULES.update({cls: RULES[_base_of(cls)] for cls in _FusedUpdates.__subclasses__()})
