"""Which rule of the table each Keras optimizer is, and where the rule's numbers come from.

Keras 3 and tf_keras have the same classes, formulas and attributes. Their formulas are not always
those of the v1 optimizers of the same name.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.train.rules import Step

_KERAS = ("keras", "tf_keras", "fused_embedding")  # ours inherit their rules


def has_weight_decay(optimizer: Any, variable: Any) -> bool:
    """All that steps of one optimizer on two variables can differ in."""
    return bool(optimizer.weight_decay) and optimizer._use_weight_decay(variable)


def _sgd(optimizer: Any, lr: Any, _: Any) -> Step:
    if not optimizer.momentum:
        return Step("sgd", [lr])
    return Step("momentum", [lr, optimizer.momentum, float(optimizer.nesterov)])


def _adagrad(optimizer: Any, lr: Any, _: Any) -> Step:
    # sqrt(accumulator + epsilon): an accumulator that starts with the epsilon in it.
    return Step("adagrad", [lr, 0.0, optimizer.initial_accumulator_value + optimizer.epsilon])


def _rmsprop(optimizer: Any, lr: Any, _: Any) -> Step:
    # v1's rms starts at one and Keras's at zero, as that of AdamAsync's RMSProp does.
    powers_and_is_rmsprop = [0.0, 0.0, 1.0]
    return Step(
        "adam_async",
        [lr, optimizer.momentum, optimizer.rho, optimizer.epsilon, *powers_and_is_rmsprop],
    )


def step_number(optimizer: Any) -> tf.Tensor:
    """Number of the step that is being made, from 1 on, float64."""
    return tf.cast(tf.convert_to_tensor(optimizer.iterations), tf.float64) + 1


def adam_hyperparameters(optimizer: Any, lr: Any) -> list[Any]:
    """What "adam" reads, and "adamw" begins with."""
    betas = [optimizer.beta_1, optimizer.beta_2]
    step = step_number(optimizer)
    powers = [tf.constant(beta, tf.float64) ** step for beta in betas]
    epsilon = optimizer.epsilon
    if getattr(optimizer, "adaptive_epsilon", False):  # tf_keras of TensorFlow 2.17
        epsilon = epsilon * tf.sqrt(1 - powers[1])
    return [lr, *betas, epsilon, *powers]


def _adam(optimizer: Any, lr: Any, variable: Any) -> Step:
    hyperparameters = adam_hyperparameters(optimizer, lr)
    if has_weight_decay(optimizer, variable):
        return Step("adamw", [*hyperparameters, optimizer.weight_decay])
    return Step("adam", hyperparameters)


def _ftrl(optimizer: Any, lr: Any, _: Any) -> Step:
    l2 = optimizer.l2_regularization_strength + optimizer.beta / (2.0 * tf.cast(lr, tf.float64))
    return Step(
        "ftrl",
        [
            lr,
            optimizer.learning_rate_power,
            optimizer.l1_regularization_strength,
            l2,
            optimizer.l2_shrinkage_regularization_strength,
            optimizer.initial_accumulator_value,
        ],
    )


@dataclasses.dataclass(frozen=True, eq=False)
class OwnRule:
    """What trains one table, whichever optimizer trains the other variables of the model.

    Attributes:
        name: Name of its slots in the table.
        make_step: The step at a number of steps, a float64 scalar that counts from 1.
    """

    name: str
    make_step: Callable[[tf.Tensor], Step]

    def give_to(self, table: Any) -> None:
        """Lets it train a table from now on.

        Args:
            table: An EmbeddingVariable.
        """
        table.__dict__["_own_rule"] = self


def own_rule_of(table: Any) -> OwnRule | None:
    """The rule that a table was given, if any."""
    return table.__dict__.get("_own_rule")


# THE list of Keras optimizers that train EmbeddingVariables: the step of one, at a learning
# rate, on a variable of the model.
RULES: dict[str, Callable[[Any, Any, Any], Step]] = {
    "SGD": _sgd,
    "Adagrad": _adagrad,
    "RMSprop": _rmsprop,
    "Adam": _adam,
    "AdamW": _adam,
    "Ftrl": _ftrl,
}

# Options that change what an update is: whether each is on.
_UNSUPPORTED: dict[str, Callable[[Any], Any]] = {
    "amsgrad": lambda o: getattr(o, "amsgrad", False),
    "centered": lambda o: getattr(o, "centered", False),
    "use_ema": lambda o: o.use_ema,
    "loss_scale_factor": lambda o: getattr(o, "loss_scale_factor", None),
    "gradient_accumulation_steps": lambda o: getattr(o, "gradient_accumulation_steps", None),
    "weight_decay": lambda o: o.weight_decay and RULES[_name(o)] is not _adam,
}


def base_of(optimizer: Any) -> Any:
    """The class of Keras or fe.keras, among those in the list, that an optimizer is of, or None."""
    for cls in type(optimizer).__mro__:
        path = cls.__module__.split(".")
        if cls.__name__ in RULES and path[0] in _KERAS and "legacy" not in path:
            return cls
    return None


def _name(optimizer: Any) -> str:
    return base_of(optimizer).__name__


def step_of(optimizer: Any) -> Callable[[Any, Any, Any], Step]:
    """Finds an optimizer, or the class that it inherits its update from, in the list.

    Raises:
        NotImplementedError: If it is not there, or has an option that a table does not know.
    """
    cls, base = type(optimizer), base_of(optimizer)
    title = f"{cls.__module__}.{cls.__name__}"
    if base is None or cls.update_step is not base.update_step:
        raise NotImplementedError(
            f"{title} cannot train EmbeddingVariables: its rule is not among those that a table "
            f"knows; use one of {', '.join(RULES)} of Keras"
        )
    for option, is_on in _UNSUPPORTED.items():
        if is_on(optimizer):
            raise NotImplementedError(
                f"{title} with {option} cannot train EmbeddingVariables: a table does not know "
                f"that option; leave {option} out"
            )
    return RULES[base.__name__]
