"""Which rule of the table each v1 optimizer is, and where the rule's numbers come from.

An optimizer's own tensors are read after its `_prepare()`, so that learning rates given as numbers,
tensors, schedules or callables mean what they mean for an ordinary variable.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

v1_train = tf.compat.v1.train


class Step(NamedTuple):
    """One step of an optimizer.

    Attributes:
        rule: Name of a rule in tf_ops/core/optimizer/rules.h.
        hyperparameters: What the rule reads, in its order: numbers, tensors, variables.
    """

    rule: str
    hyperparameters: list[Any]


def _sgd(optimizer: Any, _: Any) -> Step:
    return Step("sgd", [optimizer._learning_rate_tensor])


def _momentum(optimizer: Any, _: Any) -> Step:
    use_nesterov = float(optimizer._use_nesterov)
    return Step(
        "momentum", [optimizer._learning_rate_tensor, optimizer._momentum_tensor, use_nesterov]
    )


def _adagrad(optimizer: Any, _: Any) -> Step:
    epsilon = 0.0  # the stock one has none
    return Step(
        "adagrad",
        [optimizer._learning_rate_tensor, epsilon, optimizer._initial_accumulator_value],
    )


def _rmsprop(optimizer: Any, _: Any) -> Step:
    return Step(
        "centered_rmsprop" if optimizer._centered else "rmsprop",
        [
            optimizer._learning_rate_tensor,
            optimizer._decay_tensor,
            optimizer._momentum_tensor,
            optimizer._epsilon_tensor,
        ],
    )


def adam_hyperparameters(optimizer: Any) -> list[Any]:
    """What "adam" reads, and other rules begin with, of a prepared AdamOptimizer."""
    return [
        optimizer._lr_t,
        optimizer._beta1_t,
        optimizer._beta2_t,
        optimizer._epsilon_t,
        *optimizer._get_beta_accumulators(),
    ]


def _adam(optimizer: Any, _: Any) -> Step:
    return Step("adam", adam_hyperparameters(optimizer))


def _ftrl(optimizer: Any, _: Any) -> Step:
    return Step(
        "ftrl",
        [
            optimizer._learning_rate_tensor,
            optimizer._learning_rate_power_tensor,
            optimizer._l1_regularization_strength_tensor,
            optimizer._adjusted_l2_regularization_strength_tensor,  # with the paper's beta in it
            optimizer._l2_shrinkage_regularization_strength_tensor,
            optimizer._initial_accumulator_value,
        ],
    )


# THE list of optimizers that train EmbeddingVariables: the step of a prepared optimizer on a
# variable. fe.train adds its own.
RULES: dict[type, Callable[[Any, Any], Step]] = {
    v1_train.GradientDescentOptimizer: _sgd,
    v1_train.MomentumOptimizer: _momentum,
    v1_train.AdagradOptimizer: _adagrad,
    v1_train.RMSPropOptimizer: _rmsprop,
    v1_train.AdamOptimizer: _adam,
    v1_train.FtrlOptimizer: _ftrl,
}

# A subclass with one of these of its own has another rule.
_UPDATE_METHODS = (
    "_apply_sparse",
    "_apply_sparse_duplicate_indices",
    "_apply_sparse_shared",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)


def overridden(cls: type, base: type) -> str | None:
    """The first method for sparse updates that a subclass overrides; None if it overrides none."""
    names = (n for n in _UPDATE_METHODS if getattr(cls, n, None) is not getattr(base, n, None))
    return next(names, None)


def step_of(optimizer: Any, variable_name: str) -> Callable[[Any, Any], Step]:
    """Finds an optimizer, or the class that it inherits its sparse updates from, in the list.

    Raises:
        NotImplementedError: If it is not there.
    """
    cls = type(optimizer)
    base = next((base for base in cls.__mro__ if base in RULES), None)
    if base is None:
        reason = "its rule is not among those that a table knows"
    else:
        changed = overridden(cls, base)
        if changed is None:
            return RULES[base]
        reason = f"it overrides {changed} of {base.__name__}, which a table would not call"
    names = ", ".join(dict.fromkeys(known.__name__ for known in RULES))  # stock's and ours
    raise NotImplementedError(
        f"{cls.__module__}.{cls.__name__} cannot train the EmbeddingVariable {variable_name!r}: "
        f"{reason}; use one of {names}, or leave the variable out of its var_list and train it "
        "with another optimizer"
    )


def create_non_slot_variables(optimizer: Any, variable: Any) -> None:
    """Makes Adam's powers of beta, where no ordinary variable has made `_create_slots` do it."""
    if isinstance(optimizer, v1_train.AdamOptimizer):
        for name in ("beta1", "beta2"):
            optimizer._create_non_slot_variable(
                initial_value=getattr(optimizer, f"_{name}"),
                name=f"{name}_power",
                colocate_with=variable,
            )
