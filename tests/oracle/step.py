"""One step of an optimizer on rows of a table, in float64."""

from typing import NamedTuple

import numpy as np


class Stepped(NamedTuple):
    """A table after a step, with how far a step in another precision may be off.

    Attributes:
        values: `[rows, dim]`.
        slot: `[rows, dim]`, `[rows]` of a number a row, or None.
        values_error: Like `values`.
        slot_error: Like `slot`.
    """

    values: np.ndarray
    slot: np.ndarray | None
    values_error: np.ndarray
    slot_error: np.ndarray | None


class Precision(NamedTuple):
    """Rounding of a step.

    Attributes:
        grad_error: How far each gradient may be off.
        of_values: eps of the type of values, and of a slot like them.
        of_step: eps of the type that is computed in, and of a number a row.
    """

    grad_error: float
    of_values: float
    of_step: float


EXACT = Precision(0, 0, 0)


def step(rule, values, slot, grad, learning_rate, epsilon, precision=EXACT):
    """sgd, adagrad and row_wise_adagrad on rows with the gradients `grad` `[rows, dim]`.

    value -= learning_rate g; or, with a += g^2, or += the mean of g^2 over the row,
    value -= learning_rate / (sqrt(a) + epsilon) g.

    Source: the formulas of docs/optimizers.md.
    """
    values, grad = np.asarray(values, np.float64), np.asarray(grad, np.float64)
    grad_error = precision.grad_error + precision.of_values * np.abs(grad)
    if rule == "sgd":
        scale, scale_error, sums, sums_error = learning_rate, 0, None, None
    else:
        is_row_wise = rule == "row_wise_adagrad"
        square, square_error = grad**2, (2 * np.abs(grad) + grad_error) * grad_error
        if is_row_wise:
            square, square_error = square.mean(1), square_error.mean(1)
        sums = np.asarray(slot, np.float64) + square
        rounding = precision.of_step * (grad.shape[1] + 4) if is_row_wise else precision.of_values
        sums_error = square_error + (rounding + 2 * precision.of_step) * sums
        root = np.sqrt(sums)
        scale = learning_rate / (root + epsilon)
        scale_error = scale / (root + epsilon) * sums_error / (2 * root)
        if is_row_wise:
            scale, scale_error = scale[:, None], scale_error[:, None]
    after = values - scale * grad
    roundings = 4 * precision.of_step * np.abs(scale * grad) + precision.of_values * np.abs(after)
    error = np.abs(scale) * grad_error + scale_error * (np.abs(grad) + grad_error) + roundings
    return Stepped(after, sums, error, sums_error)
