"""Keras optimizers that train EmbeddingVariables; all others refuse them."""

import functools
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from fused_embedding.keras.rules import (
    RULES,
    base_of,
    has_weight_decay,
    own_rule_of,
    step_number,
    step_of,
)
from fused_embedding.keras.table_of import table_of
from fused_embedding.ops.control_flow import tables_looked_up
from fused_embedding.train.apply import (
    TableUpdate,
    apply_embedding_gradients,
    pack_hyperparameters,
    with_distinct_keys,
)
from fused_embedding.train.hook import (
    check_gradient,
    is_gradient_of_table,
    slot_prefix,
)
from fused_embedding.variable import created
from fused_embedding.variable.created import live_tables
from fused_embedding.variable.snapshot import sampled_values
from fused_embedding.variable.strategies import check_trains_tables

# Of what Keras writes to files.
PACKAGE = "fused_embedding"
# Modules that are Kerases of TensorFlow.
KERASES = ("keras", "tf_keras")

Pairs = list[tuple[Any, Any]]  # gradient and variable


def _clip_value(grad: Any, limit: float) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        values = tf.clip_by_value(grad.values, -limit, limit)
        return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
    return tf.clip_by_value(grad, -limit, limit)


def clip_gradients(optimizer: Any, grads: list[Any]) -> list[Any]:
    """Clips the gradients of a step as their optimizer does.

    Args:
        optimizer: A Keras optimizer with a `global_clipnorm`, a `clipnorm` or a `clipvalue`.
        grads: A tensor, tf.IndexedSlices or None for each variable. The norm and the values of
            slices are those of their rows as they are, so rows for one index must be summed before.

    Returns:
        The clipped gradients, in the same order; None for None.
    """
    if optimizer.global_clipnorm:
        return tf.clip_by_global_norm(grads, optimizer.global_clipnorm)[0]
    if optimizer.clipnorm:
        return [g if g is None else tf.clip_by_norm(g, optimizer.clipnorm) for g in grads]
    return [g if g is None else _clip_value(g, optimizer.clipvalue) for g in grads]


def _clipped(optimizer: Any, pairs: Pairs) -> Pairs:
    """Clips the gradients of all variables, those of tables among them.

    That the optimizer will do it again to those of ordinary variables then changes nothing.
    """
    if not (optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue):
        return pairs
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise NotImplementedError(
            f"{optimizer.name} clips gradients, which the replicas of a strategy add up: those of "
            "an EmbeddingVariable are not known before; leave clipnorm, global_clipnorm and "
            "clipvalue out, or clip in a training step of your own"
        )
    tables = [table_of(v) for _, v in pairs]
    # The norm of a gradient is that of the sums of what belongs to a key.
    grads = [
        g if table is None else with_distinct_keys(table, g)
        for (g, _), table in zip(pairs, tables, strict=True)
    ]
    return list(zip(clip_gradients(optimizer, grads), [v for _, v in pairs], strict=True))


def _learning_rate(optimizer: Any) -> tf.Tensor:
    if hasattr(optimizer, "_get_current_learning_rate"):  # Keras 3
        return tf.convert_to_tensor(optimizer._get_current_learning_rate())
    optimizer._compute_current_learning_rate()
    return tf.convert_to_tensor(optimizer.learning_rate)


def _check_table(grad: Any, table: Any) -> None:
    check_gradient(grad, table)
    check_trains_tables(table)


def _train_tables(optimizer: Any, pairs: Pairs) -> Pairs:
    """Updates the tables among the variables; returns the pairs that are left."""
    pairs = [(g, v) for g, v in pairs if g is not None or table_of(v) is None]
    tables = [(g, table_of(v)) for g, v in pairs if table_of(v) is not None]
    for grad, table in tables:
        _check_table(grad, table)
    if not tables:
        return pairs
    pairs = _clipped(optimizer, pairs)
    _update_tables(optimizer, pairs)
    return [(g, v) for g, v in pairs if table_of(v) is None]


def _update_tables(optimizer: Any, pairs: Pairs) -> None:
    make_step, learning_rate = step_of(optimizer), _learning_rate(optimizer)
    steps: dict[Any, tuple[str, tf.Tensor]] = {}
    updates = []
    for grad, variable in pairs:
        table = table_of(variable)
        if table is None:
            continue
        own = own_rule_of(table)
        kind = own or has_weight_decay(optimizer, variable)
        if kind not in steps:
            step = (
                make_step(optimizer, learning_rate, variable)
                if own is None
                else own.make_step(step_number(optimizer))
            )
            steps[kind] = step.rule, pack_hyperparameters(step.hyperparameters)
        owner = own or optimizer
        prefix = slot_prefix(owner, owner.name, table)
        rule, hyperparameters = steps[kind]
        updates.append(TableUpdate(table, grad, rule, prefix, hyperparameters))
    apply_embedding_gradients(updates)


class _TrainsTables:
    """What optimizers that `wrap` returned have in common."""

    iterations: Any

    def build(self, variables: Any) -> None:
        super().build([v for v in variables if table_of(v) is None])  # type: ignore[misc]


class TrainsTables3(_TrainsTables):
    """Mixin for optimizers of Keras 3 that train tables; it precedes the stock class."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Updates the tables, and passes the other variables to the stock class.

        Args:
            grads: A gradient for each variable.
            trainable_variables: Ordinary variables and EmbeddingVariables; None: those that the
                optimizer was built with.
        """
        if trainable_variables is None or not list(trainable_variables):
            return super().apply(grads)  # type: ignore[misc]
        given = list(zip(grads, trainable_variables, strict=True))
        pairs = _train_tables(self, given)
        if len(pairs) == len(given) or any(g is not None for g, _ in pairs):
            super().apply(*(list(part) for part in zip(*pairs, strict=True)))  # type: ignore[misc]
        else:
            # In Keras 3.5 and newer, `iterations` is a quotient of `_iterations`, not the counter.
            getattr(self, "_iterations", self.iterations).assign_add(1)
        return None


class TrainsTables2(_TrainsTables):
    """Mixin for optimizers of Keras 2 that train tables: tf_keras, and keras before 3."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Updates the tables, and passes the other variables to the stock class.

        Args:
            grads_and_vars: Pairs of gradient and variable, EmbeddingVariables among them.
            *args: Further arguments of the stock method, which depend on the version of Keras.
            **kwargs: The same by name.

        Returns:
            The optimizer's number of iterations, including this one.
        """
        given = list(grads_and_vars)
        pairs = _train_tables(self, given)
        if len(pairs) == len(given) or any(g is not None for g, _ in pairs):
            return super().apply_gradients(pairs, *args, **kwargs)  # type: ignore[misc]
        return self.iterations.assign_add(1)


def _class_that_trains_tables(cls: Any) -> Any:
    mixin = TrainsTables3 if hasattr(cls, "apply") else TrainsTables2
    return type(cls.__name__, (mixin, cls), {"__module__": cls.__module__})


def keras_of(cls: type) -> Any:
    """The module of the Keras that a class is of: tf.keras has a part of its names alone."""
    return sys.modules[cls.__module__.split(".")[0]]


@functools.cache
def trainers_of(keras: Any) -> dict[type, Any]:
    """The classes of wrapped optimizers, which files of models name, registered with their Keras.

    Returns:
        The classes that train tables, by those that do not.
    """
    trainers = {}
    for name in RULES:
        if hasattr(keras.optimizers, name):
            cls = getattr(keras.optimizers, name)
            as_serializable = keras.saving.register_keras_serializable(package=PACKAGE)
            trainers[cls] = as_serializable(_class_that_trains_tables(cls))
    return trainers


@functools.cache
def register(keras: Any) -> dict[type, Any]:
    """Tells a Keras of wrapped optimizers: files of models name them, and others refuse tables.

    Returns:
        As of `trainers_of`.
    """
    guard(keras)
    return trainers_of(keras)


def wrap(optimizer: Any) -> Any:
    """Makes a Keras optimizer train EmbeddingVariables in addition to ordinary variables.

    Args:
        optimizer: An SGD, Adagrad, RMSprop, Adam, AdamW or Ftrl of Keras 3 or tf_keras, or a
            LossScaleOptimizer around one.

    Returns:
        The same object, for `model.compile`. Its learning rate, schedules, callbacks and clipping
        work as before. Adam, AdamW, and SGD and RMSprop with momentum are lazy on a table: rows
        that a step does not look up do not change.

    Raises:
        NotImplementedError: For other optimizers, and for options that tables do not support.

    >>> optimizer = fe.keras.wrap(tf.keras.optimizers.Adagrad(0.1))
    >>> isinstance(optimizer, tf.keras.optimizers.Adagrad)
    True
    """
    if isinstance(optimizer, _TrainsTables):
        return optimizer
    if hasattr(optimizer, "inner_optimizer"):  # a LossScaleOptimizer
        wrap(optimizer.inner_optimizer)
        return optimizer
    step_of(optimizer)  # raises
    cls = type(optimizer)
    trainer = register(keras_of(base_of(optimizer))).get(cls) or _class_that_trains_tables(cls)
    # Not a new object from its config, which would lose schedules that Keras cannot serialize.
    object.__setattr__(optimizer, "__class__", trainer)
    return optimizer


# --- Every other optimizer ---


def _refuse_tables(optimizer: Any, variables: list[Any]) -> None:
    """Raises where an optimizer would meet a table, or would not see one that is in training."""
    tables = [table for table in map(table_of, variables) if table is not None]
    title = _title_of(optimizer)
    # A LossScaleOptimizer hands the gradients of tables on, if what it is around trains tables.
    is_trainer = isinstance(getattr(optimizer, "inner_optimizer", None), _TrainsTables)
    if tables:
        check_trains_tables(tables[0])  # first: the advice below would lead to this error
        if not is_trainer:
            _refuse(optimizer, title, tables[0])
    frozen = [t for t in _tables_nobody_trains() if not any(t is given for given in tables)]
    if frozen:
        raise NotImplementedError(
            f"the EmbeddingVariable {frozen[0].name!r} is looked up for training, but is not "
            f"among the variables that {title} was given, so it would never change: let a layer "
            "own it (fe.keras.variable), or look it up inside fe.inference(); if another "
            "optimizer trains it, let that one apply its gradients first"
        )


def _title_of(optimizer: Any) -> str:
    return f"{type(optimizer).__module__}.{type(optimizer).__name__}"


def _refuse(optimizer: Any, title: str, table: Any) -> NoReturn:
    """Raises, and says how to make an optimizer that trains tables."""
    advice = "compile the model with fe.keras.wrap(optimizer)"
    try:
        step_of(optimizer)
    except NotImplementedError:  # fe.keras.wrap would refuse it as well
        advice += f", where optimizer is one of {', '.join(RULES)} of Keras"
    raise NotImplementedError(
        f"{title} cannot train the EmbeddingVariable {table.name!r}; {advice}"
    )


def _handles_in_training() -> list[tf.Tensor]:
    """Of tables, those that have training lookups in the tf.function that is being built."""
    graph = tf.compat.v1.get_default_graph()
    handles = [(op, handle) for op in graph.get_operations() for handle in tables_looked_up(op)]
    names = {handle.name for op, handle in handles if op.get_attr("insert")}
    return [outer for outer, inner in getattr(graph, "captures", ()) if inner.name in names]


def _tables_in_training() -> list[Any]:
    """Tables with training lookups in the step whose gradients are being applied."""
    if tf.executing_eagerly():  # since the last step
        return [table for table in live_tables() if table.__dict__.pop("_is_on_tape", False)]
    handles = _handles_in_training()
    return [table for table in live_tables() if any(table.handle is handle for handle in handles)]


def _tables_nobody_trains() -> list[Any]:
    """Tables in training that no optimizer has ever updated."""
    untrained = [
        weakref.ref(table)
        for table in _tables_in_training()
        if not table.__dict__.get("_slot_owners")
    ]
    if untrained:  # of a model that was dropped, perhaps: Keras models are cycles of references
        gc.collect()
    return [table for table in (ref() for ref in untrained) if table is not None]


def _guarded(method: Callable[..., Any], is_keras_3: bool) -> Callable[..., Any]:
    @functools.wraps(method)
    def apply(self: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        if is_keras_3:
            variables = args[0] if args else kwargs.get("trainable_variables")
            if variables is None:
                variables = self._trainable_variables
        else:
            grads = list(grads)
            variables = [v for _, v in grads]
        _refuse_tables(self, list(variables))
        return method(self, grads, *args, **kwargs)

    return apply


def _refuses_slots_of_tables(method: Callable[..., Any]) -> Callable[..., Any]:
    """add_variable_from_reference of Keras 3, which a strategy would refuse in its own words."""

    @functools.wraps(method)
    def add_variable(self: Any, reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
        table = table_of(reference_variable)
        if table is not None and tf.distribute.has_strategy():
            check_trains_tables(table)
            _refuse(self, _title_of(self), table)
        return method(self, reference_variable, *args, **kwargs)

    return add_variable


def _checks_values_of_tables(method: Callable[..., Any]) -> Callable[..., Any]:
    """LossScaleOptimizer.check_finite, which makes gradients dense; a table has no dense one."""

    @functools.wraps(method)
    def check_finite(self: Any, grads: Any) -> Any:
        return method(self, [g.values if is_gradient_of_table(g) else g for g in grads])

    return check_finite


def _replace(cls: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces a method in the class that defines it, once."""
    owner = next((c for c in getattr(cls, "__mro__", ()) if name in vars(c)), None)
    if owner is not None and not hasattr(vars(owner)[name], "_is_guarded"):
        method = make(vars(owner)[name])
        method._is_guarded = True
        setattr(owner, name, method)


def _loss_scale_of_keras_2(keras: Any) -> Any:
    """The class whose objects the public LossScaleOptimizer makes, around optimizers of today."""
    public = getattr(getattr(keras, "mixed_precision", None), "LossScaleOptimizer", None)
    module = sys.modules[public.__module__] if public is not None else None
    return getattr(module, "LossScaleOptimizerV3", None)


def _samples_tables(method: Callable[..., Any]) -> Callable[..., Any]:
    """TensorBoard.on_epoch_end, which makes histograms of all weights."""

    @functools.wraps(method)
    def on_epoch_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        with sampled_values():
            return method(self, *args, **kwargs)

    return on_epoch_end


def guard(keras: Any) -> None:
    """Makes a Keras know EmbeddingVariables, which have no dense value.

    Its optimizers refuse them by name, unless wrapped, and its TensorBoard samples them.
    """
    if hasattr(keras, "callbacks"):
        _replace(getattr(keras.callbacks, "TensorBoard", None), "on_epoch_end", _samples_tables)
    optimizers = keras.optimizers
    is_keras_3 = hasattr(optimizers.Optimizer, "apply")
    classes = [
        optimizers.Optimizer,
        getattr(optimizers, "LossScaleOptimizer", None),
        getattr(getattr(keras, "mixed_precision", None), "LossScaleOptimizer", None),
        _loss_scale_of_keras_2(keras),
        getattr(getattr(optimizers, "legacy", None), "Optimizer", None),
    ]
    name = "apply" if is_keras_3 else "apply_gradients"
    for cls in classes:
        _replace(cls, name, functools.partial(_guarded, is_keras_3=is_keras_3))
    if is_keras_3:
        _replace(optimizers.Optimizer, "add_variable_from_reference", _refuses_slots_of_tables)
        loss_scale = getattr(optimizers, "LossScaleOptimizer", None)
        _replace(loss_scale, "check_finite", _checks_values_of_tables)


def _guard_loaded(table: Any) -> None:
    """Guards each Keras that is imported by now: it may have been imported after this package."""
    del table
    for name in KERASES:
        if name in sys.modules and hasattr(sys.modules[name], "optimizers"):
            guard(sys.modules[name])


created.on_table(_guard_loaded)
