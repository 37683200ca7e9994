"""v1 optimizers that stock TensorFlow does not have: DeepRec's, and row-wise Adagrad.

An EmbeddingVariable applies the rule of that name inside the table. For ordinary variables, the
same rule is built of TensorFlow ops. A sparse gradient changes only the rows that it names.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.train.rules import RULES, Step, adam_hyperparameters
from fused_embedding.train.slot_values import FillsSlotsAtRunTime

v1 = tf.compat.v1

__all__ = [
    "AdagradDecayOptimizer",
    "AdamAsyncOptimizer",
    "AdamWOptimizer",
    "RowWiseAdagradOptimizer",
]

Slots = dict[str, tf.Tensor]


class _Rows(NamedTuple):
    """The input of a rule: all of an ordinary variable, or the rows of a sparse gradient."""

    variable: Any
    value: tf.Tensor
    grad: tf.Tensor
    slots: Slots
    is_sparse: bool

    def cast(self, number: Any) -> tf.Tensor:
        """A hyperparameter in the variable's dtype."""
        return tf.cast(number, self.value.dtype)


class _TensorRule(FillsSlotsAtRunTime):
    """Updates ordinary variables by `_step`, which maps rows to their new value and slots.

    Attributes:
        _row_slots: Names of the slots that have an entry per row of a variable.
    """

    _row_slots: tuple[str, ...] = ()
    _step: Callable[[_Rows], tuple[tf.Tensor, Slots]]
    get_slot: Callable[[Any, str], Any]

    def _update(self, variable: Any, grad: tf.Tensor, indices: tf.Tensor | None) -> Any:
        def load(source: Any) -> tf.Tensor:
            return tf.identity(source) if indices is None else tf.gather(source, indices)

        def store(target: Any, value: tf.Tensor) -> Any:
            if indices is None:
                return v1.assign(target, value)
            return v1.scatter_update(target, indices, value)

        slots = {name: self.get_slot(variable, name) for name in self._row_slots}
        loaded = {name: load(slot) for name, slot in slots.items()}
        value, new_slots = self._step(
            _Rows(variable, load(variable), grad, loaded, indices is not None)
        )
        stores = [store(slots[name], slot) for name, slot in new_slots.items()]
        return tf.group(store(variable, value), *stores)

    def _apply_dense(self, grad: tf.Tensor, var: Any) -> Any:
        return self._update(var, grad, None)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: Any) -> Any:
        return self._update(handle, grad, None)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: Any) -> Any:
        return self._update(var, grad.values, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: Any, indices: tf.Tensor) -> Any:
        return self._update(handle, grad, indices)


def _one_per_row(shape: tf.TensorShape) -> tf.TensorShape:
    """The shape of a slot with one number per row: `[n, 1, 1]` for `[n, a, b]`."""
    return tf.TensorShape(shape[:1].as_list() + [1] * (shape.rank - 1) if shape.rank else [])


def _check_accumulator(initial_accumulator_value: float, is_positive: bool) -> None:
    value = initial_accumulator_value
    if value < 0 or (is_positive and value == 0):
        raise ValueError(
            f"initial_accumulator_value must be {'>' if is_positive else '>='} 0, got {value}"
        )


class AdagradDecayOptimizer(_TensorRule, tf.compat.v1.train.Optimizer):
    """Adagrad with accumulators that decay every `accumulator_decay_step` steps.

    If `floor(global_step / accumulator_decay_step)` is larger than a row's number of decays so far,
    the row's update begins with a decay; the first global step is 1:
    `accumulator = max(accumulator_decay_rate accumulator, initial_accumulator_value)`. Then
    `accumulator += g^2`, `value -= learning_rate g / sqrt(accumulator)`.

    Args:
        learning_rate: Number, scalar tensor or callable.
        global_step: The variable that counts steps; pass it to `minimize` too, which increments it.
        initial_accumulator_value: > 0; also the minimum after a decay.
        accumulator_decay_step: > 0, steps in a period.
        accumulator_decay_rate: In (0, 1).
        use_locking: Ignored; present for DeepRec's signature.
        name: Name of the optimizer and of its slots.

    Raises:
        ValueError: For values outside these ranges.

    Source: `tf.train.AdagradDecayOptimizer` of DeepRec.
    """

    _row_slots = ("accumulator", "accumulator_decay_power")

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any,
        initial_accumulator_value: float = 0.1,
        accumulator_decay_step: int = 100000,
        accumulator_decay_rate: float = 0.9,
        use_locking: bool = False,
        name: str = "AdagradDecay",
    ) -> None:
        _check_accumulator(initial_accumulator_value, is_positive=True)
        if accumulator_decay_step <= 0:
            raise ValueError(f"accumulator_decay_step must be > 0, got {accumulator_decay_step}")
        if not 0 < accumulator_decay_rate < 1:
            raise ValueError(
                f"accumulator_decay_rate must be in (0, 1), got {accumulator_decay_rate}"
            )
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._global_step = global_step
        self._initial_accumulator_value = initial_accumulator_value
        self._accumulator_decay_step = accumulator_decay_step
        self._accumulator_decay_rate = accumulator_decay_rate

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        initial = v1.constant_initializer(self._initial_accumulator_value)
        for v in var_list:
            self._get_or_make_slot_with_initializer(
                v, initial, v.shape, v.dtype.base_dtype, "accumulator", self._name
            )
            self._get_or_make_slot_with_initializer(
                v,
                v1.zeros_initializer(),
                _one_per_row(v.shape),
                tf.int64,
                "accumulator_decay_power",
                self._name,
            )

    def _prepare(self) -> None:
        self._learning_rate_tensor = tf.convert_to_tensor(
            self._call_if_callable(self._learning_rate), name="learning_rate"
        )
        # The number of the present step, which the variable has after it.
        self._step_number = tf.cast(tf.identity(self._global_step), tf.int64) + 1

    def _step(self, rows: _Rows) -> tuple[tf.Tensor, Slots]:
        num_periods = self._step_number // self._accumulator_decay_step
        accumulator, num_decays = (rows.slots[name] for name in self._row_slots)
        has_to_decay = num_periods > num_decays
        decayed = tf.maximum(
            accumulator * rows.cast(self._accumulator_decay_rate),
            rows.cast(self._initial_accumulator_value),
        )
        accumulator = tf.where(has_to_decay, decayed, accumulator) + rows.grad**2
        value = rows.value - rows.cast(self._learning_rate_tensor) * rows.grad / tf.sqrt(
            accumulator
        )
        num_decays += tf.cast(has_to_decay, tf.int64)
        return value, {"accumulator": accumulator, "accumulator_decay_power": num_decays}


class RowWiseAdagradOptimizer(_TensorRule, tf.compat.v1.train.Optimizer):
    """Adagrad with one accumulator per row instead of one per value.

    `accumulator += mean over the row of g^2`,
    `value -= learning_rate g / (sqrt(accumulator) + epsilon)`. The rows of an ordinary variable are
    its slices along the first axis.

    Args:
        learning_rate: Number, scalar tensor or callable.
        initial_accumulator_value: >= 0.
        epsilon: Keeps the division defined.
        use_locking: Ignored; present as in other optimizers.
        name: Name of the optimizer and of its slots.

    Raises:
        ValueError: For a negative initial_accumulator_value.

    Source: `RowWiseAdagrad` of TorchRec, which has the same defaults.
    """

    _row_slots = ("accumulator",)

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        name: str = "RowWiseAdagrad",
    ) -> None:
        _check_accumulator(initial_accumulator_value, is_positive=False)
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value
        self._epsilon = epsilon

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        initial = v1.constant_initializer(self._initial_accumulator_value)
        for v in var_list:
            self._get_or_make_slot_with_initializer(
                v, initial, _one_per_row(v.shape), v.dtype.base_dtype, "accumulator", self._name
            )

    def _prepare(self) -> None:
        self._learning_rate_tensor = tf.convert_to_tensor(
            self._call_if_callable(self._learning_rate), name="learning_rate"
        )

    def _step(self, rows: _Rows) -> tuple[tf.Tensor, Slots]:
        row_axes = list(range(1, rows.value.shape.rank))
        mean = tf.reduce_mean(rows.grad**2, axis=row_axes, keepdims=True)
        accumulator = rows.slots["accumulator"] + mean
        scale = rows.cast(self._learning_rate_tensor) / (
            tf.sqrt(accumulator) + rows.cast(self._epsilon)
        )
        return rows.value - scale * rows.grad, {"accumulator": accumulator}


def _adam_step(rows: _Rows, hyperparameters: Sequence[Any]) -> tuple[tf.Tensor, Slots]:
    """The number that Adam subtracts from each value, and the new moments."""
    lr, beta1, beta2, epsilon, beta1_power, beta2_power = map(rows.cast, hyperparameters)
    m = rows.slots["m"] * beta1 + rows.grad * (1 - beta1)
    v = rows.slots["v"] * beta2 + rows.grad**2 * (1 - beta2)
    rate = lr * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
    return rate * m / (tf.sqrt(v) + epsilon), {"m": m, "v": v}


class AdamWOptimizer(_TensorRule, tf.compat.v1.train.AdamOptimizer):
    """Adam with decoupled weight decay. It is lazy: a sparse gradient changes only its own rows.

    In addition to Adam's update, `value -= learning_rate weight_decay value`, with the value before
    the step.

    Args:
        weight_decay: Number, scalar tensor or callable.
        learning_rate: Number, scalar tensor or callable, like beta1, beta2 and epsilon.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        epsilon: Keeps the division defined.
        use_locking: Ignored; present for DeepRec's signature.
        name: Name of the optimizer and of its slots.

    Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, algorithm 2. The signature
    is that of `tf.train.AdamWOptimizer` of DeepRec, which decays an ordinary variable by
    `weight_decay value`, and a row of a table by Adam's bias-corrected learning rate times that.
    """

    _row_slots = ("m", "v")

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
        self._weight_decay = weight_decay
        self._decay_vars: list[Any] | None = None

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        *args: Any,
        decay_var_list: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Makes an operation that minimizes a loss: its gradients and their application.

        Args:
            loss: The loss.
            global_step: Variable to increment.
            *args: Further arguments of tf.compat.v1.train.Optimizer.minimize.
            decay_var_list: The variables whose weights decay; None: all.
            **kwargs: Further arguments of tf.compat.v1.train.Optimizer.minimize.

        Returns:
            The training operation.
        """
        self._decay_vars = decay_var_list
        try:
            return super().minimize(loss, global_step, *args, **kwargs)
        finally:
            self._decay_vars = None

    def apply_gradients(
        self, grads_and_vars: Any, *args: Any, decay_var_list: Any = None, **kwargs: Any
    ) -> Any:
        """Makes an operation that applies gradients.

        Args:
            grads_and_vars: Pairs of gradient and variable.
            *args: Further arguments of tf.compat.v1.train.Optimizer.apply_gradients.
            decay_var_list: The variables whose weights decay; None: all.
            **kwargs: Further arguments of tf.compat.v1.train.Optimizer.apply_gradients.

        Returns:
            The training operation.
        """
        outer, self._decay_vars = self._decay_vars, decay_var_list or self._decay_vars
        try:
            return super().apply_gradients(grads_and_vars, *args, **kwargs)
        finally:
            self._decay_vars = outer

    def _prepare(self) -> None:
        super()._prepare()
        self._weight_decay_tensor = tf.convert_to_tensor(
            self._call_if_callable(self._weight_decay), name="weight_decay"
        )

    def weight_decay_of(self, variable: Any) -> Any:
        """The weight decay of a variable: 0 outside decay_var_list."""
        decays = self._decay_vars is None or any(v is variable for v in self._decay_vars)
        return self._weight_decay_tensor if decays else 0.0

    def _step(self, rows: _Rows) -> tuple[tf.Tensor, Slots]:
        step, slots = _adam_step(rows, adam_hyperparameters(self))
        decay = rows.cast(self._lr_t) * rows.cast(self.weight_decay_of(rows.variable))
        return rows.value - rows.value * decay - step, slots


class AdamAsyncOptimizer(_TensorRule, tf.compat.v1.train.Optimizer):
    """Adam with powers of beta for each variable, so that workers do not share them.

    It applies Adam's formula, lazily. With `apply_sparse_rmsprop`, sparse gradients use another
    formula: `v = beta2 v + (1 - beta2) g^2`, `m = beta1 m + learning_rate g / sqrt(v + epsilon)`,
    `value -= m`.

    Args:
        learning_rate: Number, scalar tensor or callable, like beta1, beta2 and epsilon.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        epsilon: Keeps the division defined.
        use_locking: Ignored; present for DeepRec's signature.
        apply_sparse_rmsprop: Whether sparse gradients use the formula above.
        name: Name of the optimizer and of its slots.

    Source: `tf.train.AdamAsyncOptimizer` of DeepRec.
    """

    _row_slots = ("m", "v")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        apply_sparse_rmsprop: bool = False,
        name: str = "AdamAsync",
    ) -> None:
        super().__init__(use_locking, name)
        self._numbers = {
            "learning_rate": learning_rate,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
        }
        self._apply_sparse_rmsprop = apply_sparse_rmsprop

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            for name in self._row_slots:
                self._zeros_slot(v, name, self._name)

    def _prepare(self) -> None:
        self._tensors = {
            name: tf.convert_to_tensor(self._call_if_callable(number), name=name)
            for name, number in self._numbers.items()
        }
        self._used_powers: list[tuple[Any, tf.Tensor]] = []

    def _powers(self, variable: Any) -> list[Any]:
        """The powers of beta of a variable, which `_finish` will multiply by beta."""
        powers = []
        for name in ("beta1", "beta2"):
            with tf.init_scope():
                beta = tf.cast(self._call_if_callable(self._numbers[name]), variable.dtype)
                power = self._get_or_make_slot(variable, beta, f"{name}_power", self._name)
            powers.append(power)
            self._used_powers.append((power, self._tensors[name]))
        return powers

    def hyperparameters(self, variable: Any, is_sparse: bool) -> list[Any]:
        """What the rule reads for a variable, in its order."""
        is_rmsprop = is_sparse and self._apply_sparse_rmsprop
        powers = [0.0, 0.0] if is_rmsprop else self._powers(variable)
        return [*self._tensors.values(), *powers, float(is_rmsprop)]

    def _step(self, rows: _Rows) -> tuple[tf.Tensor, Slots]:
        *hyperparameters, is_rmsprop = self.hyperparameters(rows.variable, rows.is_sparse)
        if not is_rmsprop:
            step, slots = _adam_step(rows, hyperparameters)
            return rows.value - step, slots
        lr, beta1, beta2, epsilon = map(rows.cast, hyperparameters[:4])
        v = rows.slots["v"] * beta2 + rows.grad**2 * (1 - beta2)
        m = rows.slots["m"] * beta1 + lr * rows.grad / tf.sqrt(v + epsilon)
        return rows.value - m, {"m": m, "v": v}

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        with tf.control_dependencies(update_ops):
            powers = [
                v1.assign(power, power * tf.cast(beta, power.dtype.base_dtype))
                for power, beta in self._used_powers
            ]
        return tf.group(*update_ops, *powers, name=name_scope)


RULES[AdagradDecayOptimizer] = lambda o, _: Step(
    "adagrad_decay",
    [
        o._learning_rate_tensor,
        o._step_number,
        o._accumulator_decay_step,
        o._accumulator_decay_rate,
        o._initial_accumulator_value,
    ],
)
RULES[RowWiseAdagradOptimizer] = lambda o, _: Step(
    "row_wise_adagrad", [o._learning_rate_tensor, o._epsilon, o._initial_accumulator_value]
)
RULES[AdamWOptimizer] = lambda o, variable: Step(
    "adamw", [*adam_hyperparameters(o), o.weight_decay_of(variable)]
)
RULES[AdamAsyncOptimizer] = lambda o, variable: Step(
    "adam_async", o.hyperparameters(variable, is_sparse=True)
)
