"""OneEmbedding's Ftrl as a v1 optimizer."""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from fused_embedding.train.fused_optimizers import FtrlOptimizer


def _as_variables(params: Any) -> list[tf.Variable]:
    variables = list(params) if isinstance(params, Iterable) else [params]
    for variable in variables:
        if not isinstance(variable, tf.Variable):
            raise TypeError(
                f"params must be variables, as embedding.parameters() returns, got {variable!r}; "
                "make one Ftrl for each group of parameters"
            )
    if not variables:
        raise ValueError("params is empty; pass embedding.parameters()")
    return variables


class Ftrl(FtrlOptimizer):
    """FTRL-Proximal, with OneFlow's arguments: an optimizer of tf.compat.v1.train.

    In addition to `minimize`, `compute_gradients` and `apply_gradients` it has `step` with a
    closure. It trains all kinds of variables. The rule uses `accum^-lr_power`, as in TensorFlow and
    the paper.

    Args:
        params: The variables that `minimize` and `compute_gradients` train.
        lr: Learning rate, >= 0.
        weight_decay: Must be 0: the rule has none.
        lr_power: <= 0; -0.5 is the square root of the paper.
        initial_accumulator_value: >= 0.
        lambda1: L1 strength, >= 0.
        lambda2: L2 strength, >= 0: twice `l2_regularization_strength` of
            tf.compat.v1.train.FtrlOptimizer.
        beta: The paper's beta.

    Raises:
        NotImplementedError: For a `weight_decay`.
        ValueError: For values outside these ranges, or no `params`.
        TypeError: If `params` are not variables.

    Source: McMahan et al. 2013, `tf.compat.v1.train.FtrlOptimizer`.
    """

    def __init__(  # noqa: PLR0913 - OneFlow's signature
        self,
        params: Any,
        lr: float = 0.001,
        weight_decay: float = 0.0,
        lr_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        lambda1: float = 0.0,
        lambda2: float = 0.0,
        beta: float = 0.0,
    ) -> None:
        self._params = _as_variables(params)
        if not lr >= 0:
            raise ValueError(f"lr must be >= 0, got {lr}")
        if weight_decay:
            raise NotImplementedError(
                f"weight_decay = {weight_decay} was given, but the rule of tables has no decay "
                "beside its lambda2; pass weight_decay=0 and a lambda2"
            )
        super().__init__(
            lr,
            learning_rate_power=lr_power,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=lambda1,
            l2_regularization_strength=lambda2 / 2,
            name="Ftrl",
            beta=beta,
        )

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        """Computes gradients of a loss.

        Args:
            loss: The loss.
            var_list: The variables; None: `params`.
            **kwargs: Further arguments of tf.compat.v1.train.Optimizer.compute_gradients.

        Returns:
            Pairs of gradient and variable.
        """
        return super().compute_gradients(
            loss, self._params if var_list is None else var_list, **kwargs
        )

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Does nothing, for programs of OneFlow: TensorFlow keeps no gradients between steps."""

    def step(self, closure: Callable[[], Any] | None = None) -> tf.Tensor:
        """Computes a loss and its gradients, and applies them.

        Args:
            closure: Function without parameters that computes and returns the loss. It must not
                call `backward()`: `step` computes the gradients.

        Returns:
            The loss before the step. In a TF1 graph, running it executes the step.

        Raises:
            NotImplementedError: Without a closure: variables of TensorFlow hold no gradients.
            TypeError: If the closure returns nothing.
        """
        if closure is None:
            raise NotImplementedError(
                "Ftrl.step() was called without a closure, to apply gradients that the parameters "
                "hold since loss.backward(), but variables of TensorFlow hold none: gradients are "
                "what tape.gradient returns. Call step(closure) with a function that computes and "
                "returns the loss, or apply_gradients(zip(gradients, params))"
            )
        losses = []

        def loss() -> tf.Tensor:
            losses.append(closure())
            if losses[0] is None:
                raise TypeError(
                    "the closure given to Ftrl.step() returned None, but it must return the loss; "
                    "leave out loss.backward(), which step() does"
                )
            return losses[0]

        update = self.apply_gradients(self.compute_gradients(loss))
        with tf.control_dependencies([] if update is None else [update]):
            return tf.identity(losses[0])
