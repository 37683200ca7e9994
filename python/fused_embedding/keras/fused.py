"""Keras's optimizers, with the sparse updates of all ordinary variables of a step in one op.

What a user sees is stock's: constructors, configs, variables, checkpoints, dense gradients. Keras
calls `update_step` for each variable; what it calls for all of them is different in Keras 2 and 3,
and is where the sparse gradients are taken out.
"""

import functools
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from fused_embedding.keras.fused_rules import ARRAY_RULES, array_step_of, has_array_rule
from fused_embedding.keras.table_training import (
    PACKAGE,
    Pairs,
    TrainsTables2,
    TrainsTables3,
    clip_gradients,
    keras_of,
    register,
)
from fused_embedding.ops.disabled import is_disabled
from fused_embedding.ops.tf_private import GraphOrParentsInXlaContext
from fused_embedding.train.sparse_apply import SparseUpdate, apply_sparse_gradients, can_update


def _tf_variable(variable: Any) -> Any:
    """What a keras.Variable of Keras 3 holds, or the tf.Variable itself."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def _is_compiled_by_xla() -> bool:
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def _with_distinct_rows(grad: Any) -> Any:
    """A gradient whose repeated rows are summed; with TensorFlow's ops, for what ours cannot do.

    While FE_DISABLE has "apply", stock gets the gradient as it is.
    """
    if not isinstance(grad, tf.IndexedSlices) or is_disabled("apply"):
        return grad
    if _is_compiled_by_xla() and grad.dense_shape is not None:
        return tf.convert_to_tensor(grad)  # the number of distinct rows would be unknown to XLA
    rows, idxs = tf.unique(grad.indices)
    sums = tf.math.unsorted_segment_sum(grad.values, idxs, tf.size(rows))
    return tf.IndexedSlices(sums, rows, grad.dense_shape)


class _Fused:
    """What the classes of both Kerases have in common."""

    clipnorm: Any
    clipvalue: Any
    global_clipnorm: Any

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        if not (self.clipnorm or self.global_clipnorm or self.clipvalue):
            return grads
        if is_disabled("apply"):
            return super()._clip_gradients(grads)  # type: ignore[misc]
        # The norm of a gradient, and its largest value, are those of the sums.
        return clip_gradients(self, [_with_distinct_rows(grad) for grad in grads])


def _index_of(optimizer: Any, variable: Any) -> int | None:
    """The number of a variable's slots; None if the optimizer was not built with it."""
    if is_of_keras_3(optimizer):
        return int(optimizer._get_variable_index(variable))
    # What stock says of a variable that it was not built with, it may say.
    key = optimizer._var_key(variable) if hasattr(variable, "_unique_id") else None
    return optimizer._index_dict.get(key)


def is_of_keras_3(optimizer: Any) -> bool:
    """Whether an optimizer, or a class of them, is of Keras 3, and not of Keras 2."""
    return hasattr(optimizer, "apply")


def fuses(optimizer: Any, grad: Any, variable: Any) -> bool:
    """Whether the op can do an update, which Keras's code does otherwise.

    Args:
        optimizer: An optimizer of Keras 2 or 3, stock's or ours, that is built.
        grad: The gradient.
        variable: The tf.Variable.
    """
    return (
        isinstance(grad, tf.IndexedSlices)
        and can_update(variable)
        and not _is_compiled_by_xla()
        and has_array_rule(optimizer)
        and _index_of(optimizer, variable) is not None
    )


def _update_fused(optimizer: Any, pairs: Pairs, learning_rate: Any) -> None:
    step, names = array_step_of(optimizer, tf.convert_to_tensor(learning_rate))
    updates = []
    for grad, variable in pairs:
        index = _index_of(optimizer, variable)
        slots = [_tf_variable(getattr(optimizer, name)[index]) for name in names]
        values = tf.cast(grad.values, variable.dtype)
        updates.append(SparseUpdate(variable, slots, tf.IndexedSlices(values, grad.indices)))
    apply_sparse_gradients(updates, step)


def update_together(optimizer: Any, pairs: Pairs, learning_rate: Any) -> Pairs:
    """Does the updates that the op can do, all in one; returns the others.

    Args:
        optimizer: An optimizer of Keras 2 or 3, stock's or ours, that is built.
        pairs: Gradients and their tf.Variables.
        learning_rate: Learning rate of the step.

    Returns:
        The pairs that are left to Keras.
    """
    # Copies of a variable that a strategy keeps are updated one by one, in update_step.
    if tf.distribute.has_strategy():
        return pairs
    fused = [(g, v) for g, v in pairs if fuses(optimizer, g, v)]
    if fused:
        _update_fused(optimizer, fused, learning_rate)
    return [(g, v) for g, v in pairs if not fuses(optimizer, g, v)]


def tf_pairs(grads: Any, variables: Any) -> Pairs:
    """Gradients and the tf.Variables of variables of Keras 3."""
    return list(zip(grads, map(_tf_variable, variables), strict=True))


class _Fused3(_Fused, TrainsTables3):
    """For Keras 3."""

    def _backend_update_step(
        self, grads: Any, trainable_variables: Any, learning_rate: Any
    ) -> None:
        rest = update_together(self, tf_pairs(grads, trainable_variables), learning_rate)
        if rest:
            parts = (list(part) for part in zip(*rest, strict=True))
            super()._backend_update_step(*parts, learning_rate)  # type: ignore[misc]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable; sums the repeated rows of a sparse gradient first.

        Args:
            gradient: The gradient.
            variable: Its variable.
            learning_rate: Learning rate of the step.
        """
        if fuses(self, gradient, variable):
            _update_fused(self, [(gradient, variable)], learning_rate)
        else:
            gradient = _with_distinct_rows(gradient)
            super().update_step(gradient, variable, learning_rate)  # type: ignore[misc]


class _Fused2(_Fused, TrainsTables2):
    """For Keras 2: tf_keras, and keras before 3."""

    use_ema: bool
    learning_rate: Any

    def _deduplicate_sparse_grad(self, grads: Any) -> Any:
        if is_disabled("apply"):
            return super()._deduplicate_sparse_grad(grads)  # type: ignore[misc]
        return grads  # the op sums, and so does update_step

    def _internal_apply_gradients(self, grads_and_vars: Any) -> Any:
        rest = list(grads_and_vars)
        # Stock's next step after its updates are the moving averages of the same variables.
        if not self.use_ema:
            rest = update_together(self, rest, self.learning_rate)
        return super()._internal_apply_gradients(rest)  # type: ignore[misc]

    def update_step(self, gradient: Any, variable: Any) -> None:
        """Updates one variable; sums the repeated rows of a sparse gradient first.

        Args:
            gradient: The gradient.
            variable: Its variable.
        """
        if fuses(self, gradient, variable):
            _update_fused(self, [(gradient, variable)], self.learning_rate)
        else:
            super().update_step(_with_distinct_rows(gradient), variable)  # type: ignore[misc]


_NOTES = {
    "SGD": "With momentum it is lazy: rows that a step does not name keep value and momentum.",
    "Adagrad": "Rows that a step does not name rest, as in stock.",
    "RMSprop": "It is lazy: rows that a step does not name keep value, velocity and momentum, "
    "where stock decays velocity and momentum of all rows.",
    "Adam": "It is lazy: rows that a step does not name keep value and moments, where stock "
    "decays the moments of all rows and moves all rows by them.",
    "AdamW": "It is lazy, as Adam is; but weights decay as in stock: all rows of each variable "
    "that has a gradient. exclude_from_weight_decay takes tables out.",
    "Ftrl": "It is lazy: rows that a step does not name rest, where stock computes all values anew "
    "from its linear terms, which makes a row zero that never had a gradient.",
}


def _fused_class(stock: Any) -> Any:
    doc = f"""{stock.__module__}.{stock.__name__}, with one op for all sparse updates of a step.

    {_NOTES[stock.__name__]}
    """
    mixin = _Fused3 if is_of_keras_3(stock) else _Fused2
    attributes = {"__module__": f"{__package__}.optimizers", "__doc__": doc}
    return type(stock.__name__, (mixin, stock), attributes)


@functools.cache
def fused_classes(keras: Any) -> SimpleNamespace:
    """The optimizers of a Keras, registered with it."""
    # Their names are stock's, and those of fe.keras.wrap, which PACKAGE has already.
    as_serializable = keras.saving.register_keras_serializable(package=f"{PACKAGE}.optimizers")
    names = [name for name in ARRAY_RULES if hasattr(keras.optimizers, name)]
    return SimpleNamespace(
        **{name: as_serializable(_fused_class(getattr(keras.optimizers, name))) for name in names}
    )


def fused_optimizers(keras: Any = None) -> SimpleNamespace:
    """Optimizers of one Keras, with one op for all sparse updates of a step.

    docs/optimizers.md lists what is the same as in stock and what differs. They also train
    EmbeddingVariables, without `fe.keras.wrap`. Call this function before loading a model that was
    saved with them, so that Keras knows the classes.

    Args:
        keras: The module that the optimizers are for: keras, tf_keras, tf.keras; None: tf.keras.

    Returns:
        A namespace with SGD, Adagrad, RMSprop, Adam, AdamW and Ftrl, which subclass that Keras's
        classes and have the same arguments. `fe.keras.optimizers` has those for tf.keras.

    >>> optimizer = fe.keras.fused_optimizers().Adagrad(0.1)
    >>> isinstance(optimizer, tf.keras.optimizers.Adagrad)
    True
    """
    module = keras_of((keras or tf.keras).optimizers.Optimizer)
    register(module)
    return fused_classes(module)
