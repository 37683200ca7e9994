"""Lets the v1 optimizers train EmbeddingVariables: one patch of `Optimizer.apply_gradients`.

The stock method does everything that is not the update of a table: order, names, the global step,
TRAIN_OP, Adam's `_finish`. It runs on a stand-in for the optimizer that keeps slots and updates of
EmbeddingVariables to itself and hands the rest to the optimizer.
"""

import functools
import re
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from fused_embedding.train import warm_start
from fused_embedding.train.apply import (
    TableUpdate,
    apply_embedding_gradients,
    pack_hyperparameters,
)
from fused_embedding.train.collected import LATER
from fused_embedding.train.rules import create_non_slot_variables, step_of
from fused_embedding.variable import created
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.strategies import check_trains_tables


def is_embedding_variable(variable: Any) -> bool:
    """Whether an optimizer has to treat a variable as a table."""
    return isinstance(variable, EmbeddingVariable)


def slot_prefix(optimizer: Any, name: str, variable: Any) -> str:
    """The name under which a table keeps an optimizer's slots: "Adagrad", a second's "Adagrad_1".

    The same optimizer keeps its name on a variable; names of optimizers that are gone stay taken,
    as those of the stock ones' slot variables do.
    """
    owners = variable.__dict__.setdefault("_slot_owners", {})
    for prefix, owner in owners.items():
        if owner() is optimizer:
            return prefix
    loaded = variable.__dict__.get("_loaded_prefix")
    if not owners and loaded is not None and _unnumbered(loaded) == _unnumbered(name):
        name = loaded
    prefix, count = name, 0
    while prefix in owners:
        count += 1
        prefix = f"{name}_{count}"
    owners[prefix] = weakref.ref(optimizer)
    return prefix


def _unnumbered(name: str) -> str:
    """Of "adam_1" "adam", as Keras 3 calls the second optimizer of a process."""
    return re.sub(r"_\d+$", "", name)


def note_loaded_slots(variable: Any, names: Iterable[str]) -> None:
    """Lets the next optimizer of a table go on with slots that were loaded into it.

    Keras 3 numbers the optimizers of a process, so that of a model that was made anew to load a
    file into has another name than the one in the file.

    Args:
        variable: An EmbeddingVariable.
        names: Of its slots: "adam/m".
    """
    prefixes = {name.rpartition("/")[0] for name in names}
    variable.__dict__["_loaded_prefix"] = prefixes.pop() if len(prefixes) == 1 else None


def check_gradient(grad: Any, variable: Any) -> None:
    """Raises TypeError for a gradient of an EmbeddingVariable that is not sparse."""
    if not isinstance(grad, tf.IndexedSlices):
        raise TypeError(
            f"the gradient of the EmbeddingVariable {variable.name!r} is a dense tensor of shape "
            f"{grad.shape}, but tf.IndexedSlices are required: a table has no number of rows; "
            "process the values of the slices (as tf.clip_by_global_norm does), keep their "
            "indices, and look keys up outside of tf.while_loop"
        )


def is_gradient_of_table(grad: Any) -> bool:
    """Whether a gradient is of an EmbeddingVariable: slices of a tensor without rows."""
    if not isinstance(grad, tf.IndexedSlices) or grad.dense_shape is None:
        return False
    shape = tf.get_static_value(grad.dense_shape)
    return shape is not None and int(shape[0]) == 0


class _OptimizerForTables:
    """What stock's apply_gradients takes for the optimizer, in one call."""

    def __init__(self, optimizer: Any, variables: list[Any]):
        self.stands_for = self._optimizer = optimizer
        self._variables = variables
        self._steps: list[tuple[str, tf.Tensor]] = []
        self._updates: list[TableUpdate] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def _create_slots(self, var_list: list[Any]) -> None:
        ordinary = [v for v in var_list if not is_embedding_variable(v)]
        if ordinary:
            self._optimizer._create_slots(ordinary)
        else:
            create_non_slot_variables(self._optimizer, min(self._variables, key=lambda v: v.name))

    def _prepare(self) -> None:
        self._optimizer._prepare()
        packed: dict[tuple[Any, ...], tf.Tensor] = {}
        made: list[Any] = []  # keeps what `packed` names by its id
        for variable in self._variables:
            rule, values = step_of(self._optimizer, variable.name)(self._optimizer, variable)
            made.append(values)
            # Most optimizers have the same numbers for all variables.
            key = tuple(v if isinstance(v, float | int) else id(v) for v in values)
            if key not in packed:
                packed[key] = pack_hyperparameters(values)
            self._steps.append((rule, packed[key]))

    def _apply(self, grad: Any, variable: Any) -> Any:
        check_gradient(grad, variable)
        index = next(i for i, v in enumerate(self._variables) if v is variable)
        rule, hyperparameters = self._steps[index]
        prefix = slot_prefix(self._optimizer, self._optimizer.get_name(), variable)
        self._updates.append(TableUpdate(variable, grad, rule, prefix, hyperparameters))
        return LATER

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        operations = [op for op in update_ops if op is not LATER]
        operations += apply_embedding_gradients(self._updates)
        return self._optimizer._finish(operations, name_scope)

    # What stock calls with the gradient of a variable, by the kind of both.

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        if is_embedding_variable(var):
            return self._apply(grad, var)
        return self._optimizer._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        if is_embedding_variable(var):
            return self._apply(grad, var)
        return self._optimizer._resource_apply_dense(grad, var)

    def _apply_sparse_duplicate_indices(self, grad: Any, var: Any) -> Any:
        if is_embedding_variable(var):
            return self._apply(grad, var)
        return self._optimizer._apply_sparse_duplicate_indices(grad, var)

    def _resource_apply_sparse_duplicate_indices(self, values: Any, var: Any, indices: Any) -> Any:
        if is_embedding_variable(var):
            return self._apply(tf.IndexedSlices(values, indices), var)
        return self._optimizer._resource_apply_sparse_duplicate_indices(values, var, indices)


def _apply_under_strategy(  # stock's arguments after the first
    stock: Callable[..., Any],
    optimizer: Any,
    pairs: list[tuple[Any, Any]],
    global_step: Any = None,
    name: str | None = None,
) -> Any:
    """Updates the tables, and passes the other variables to the stock method.

    Under a strategy stock calls methods of the optimizer itself: no stand-in would see the tables.
    """
    ordinary: list[tuple[Any, Any]] = []
    tables: list[tuple[Any, Any]] = []
    for grad, variable in pairs:
        if grad is not None:
            (tables if is_embedding_variable(variable) else ordinary).append((grad, variable))
    trainer = _OptimizerForTables(optimizer, [v for _, v in tables])
    trainer._create_slots([])
    trainer._prepare()
    for grad, table in tables:
        trainer._apply(grad, table)
    if ordinary:
        with tf.control_dependencies(apply_embedding_gradients(trainer._updates)):
            return stock(optimizer, ordinary, global_step, name)
    updated = trainer._finish([], name or optimizer.get_name())
    return updated if global_step is None else global_step.assign_add(1)


def _wrap_apply_gradients(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        tables = [v for g, v in pairs if g is not None and is_embedding_variable(v)]
        if not tables:
            return stock(self, pairs, *args, **kwargs)
        step_of(self, tables[0].name)  # raises before anything is built
        check_trains_tables(tables[0])
        if tf.distribute.has_strategy():
            return _apply_under_strategy(stock, self, pairs, *args, **kwargs)
        return stock(_OptimizerForTables(self, tables), pairs, *args, **kwargs)

    return apply_gradients


def _wrap_loss_scale(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        tables = [v for g, v in pairs if g is not None and is_embedding_variable(v)]
        if tables and self._doing_dynamic_loss_scaling():
            raise NotImplementedError(
                f"{type(self).__name__} with a dynamic loss scale cannot train the "
                f"EmbeddingVariable {tables[0].name!r}: it makes each gradient dense to see "
                "whether it is finite; give it a fixed loss scale"
            )
        return stock(self, pairs, *args, **kwargs)

    return apply_gradients


@functools.cache
def _install() -> None:
    warm_start.install()
    train = tf.compat.v1.train
    train.Optimizer.apply_gradients = _wrap_apply_gradients(train.Optimizer.apply_gradients)
    loss_scale = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    loss_scale.apply_gradients = _wrap_loss_scale(loss_scale.apply_gradients)


created.on_table(lambda _: _install())
