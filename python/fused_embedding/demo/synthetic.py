"""Makes Criteo-shaped rows where there are no real ones."""

from typing import NamedTuple

import numpy as np

from fused_embedding.demo import criteo


class IntegerField(NamedTuple):
    """Share of empty fields, and mean and standard deviation of log(1 + value)."""

    missing: float
    mean: float
    deviation: float


class CategoricalField(NamedTuple):
    """Share of empty fields, and exponent of the bounded Zipf law of the values."""

    missing: float
    exponent: float


# Both tables: rounded fits to 8,000 rows of the Kaggle 2014 training set, I1 to I13, C1 to C26.
_INTEGERS = (
    IntegerField(0.45, 0.8, 1.0),
    IntegerField(0.00, 2.1, 2.1),
    IntegerField(0.20, 2.2, 1.3),
    IntegerField(0.20, 1.7, 1.0),
    IntegerField(0.05, 7.3, 2.9),
    IntegerField(0.25, 3.6, 1.8),
    IntegerField(0.05, 1.5, 1.3),
    IntegerField(0.00, 2.0, 1.2),
    IntegerField(0.05, 3.6, 1.7),
    IntegerField(0.45, 0.4, 0.4),
    IntegerField(0.05, 0.8, 0.7),
    IntegerField(0.78, 0.3, 0.6),
    IntegerField(0.20, 1.9, 1.1),
)
_CATEGORICALS = (
    CategoricalField(0.00, 1.83),
    CategoricalField(0.00, 1.02),
    CategoricalField(0.03, 1.03),
    CategoricalField(0.03, 0.96),
    CategoricalField(0.00, 2.40),
    CategoricalField(0.13, 1.64),
    CategoricalField(0.00, 0.56),
    CategoricalField(0.00, 2.11),
    CategoricalField(0.00, 3.00),
    CategoricalField(0.00, 0.77),
    CategoricalField(0.00, 0.62),
    CategoricalField(0.03, 1.01),
    CategoricalField(0.00, 0.65),
    CategoricalField(0.00, 1.70),
    CategoricalField(0.00, 0.61),
    CategoricalField(0.03, 0.96),
    CategoricalField(0.00, 1.16),
    CategoricalField(0.00, 0.80),
    CategoricalField(0.45, 1.13),
    CategoricalField(0.45, 0.10),
    CategoricalField(0.03, 0.99),
    CategoricalField(0.82, 1.88),
    CategoricalField(0.00, 1.49),
    CategoricalField(0.03, 1.09),
    CategoricalField(0.45, 1.78),
    CategoricalField(0.45, 0.93),
)
# The labels' logit: the spread sets the AUC that can be learned, the mean the click rate (1/4).
_LOGIT_MEAN = -1.8
_LOGIT_DEVIATION = 2.0


def make_rows(num_rows: int, seed: int) -> criteo.Rows:
    """Draws Criteo-shaped rows, labelled by a hidden logistic model of all fields.

    Each categorical field follows a Zipf law bounded by its published cardinality; integers are
    log-normal; fields are empty as often as in real rows. The fields are independent, which real
    ones are not.
    """
    rng = np.random.default_rng(seed)
    integers = np.empty([num_rows, criteo.NUM_INTEGERS], np.float32)
    for i, count in enumerate(_INTEGERS):
        values = np.floor(np.expm1(rng.normal(count.mean, count.deviation, num_rows)))
        integers[:, i] = np.where(rng.random(num_rows) < count.missing, 0, criteo.log1p(values))
    categoricals = np.empty([num_rows, len(criteo.CARDINALITIES)], np.int64)
    for i, (field, size) in enumerate(zip(_CATEGORICALS, criteo.CARDINALITIES, strict=True)):
        ranks = bounded_zipf(rng, field.exponent, size, num_rows)
        values = _mix64(ranks + (i << 40)) >> np.uint64(32)
        is_missing = rng.random(num_rows) < field.missing
        categoricals[:, i] = np.where(is_missing, criteo.MISSING, values.astype(np.int64))
    is_click = rng.random(num_rows) < _click_probability(integers, categoricals, rng)
    return criteo.Rows(is_click.astype(np.float32), integers, categoricals)


def bounded_zipf(rng: np.random.Generator, exponent: float, size: int, n: int) -> np.ndarray:
    """`[n]` int64 ranks in `[0, size)`, rank k about as often as `(k + 1) ** -exponent`.

    The inverse of the cumulative density `x ** -exponent` on `[1, size + 1)`; exponent is not 1.
    """
    power = 1.0 - exponent
    x = (1.0 + rng.random(n) * ((size + 1.0) ** power - 1.0)) ** (1.0 / power)
    return np.clip(x.astype(np.int64) - 1, 0, size - 1)


def _click_probability(
    integers: np.ndarray, categoricals: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The hidden model: a random weight for each categorical value and each integer field.

    Large fields weigh less: their rare values cannot be learned in the demo's few steps.
    """
    field = np.arange(categoricals.shape[1], dtype=np.int64) << 40
    weights = _mix64(_mix64(categoricals + field).astype(np.int64)) / 2.0**63 - 1.0
    weights[categoricals == criteo.MISSING] = 0.0
    logits = weights @ (1.0 / np.log(criteo.CARDINALITIES))
    logits += integers @ (0.05 * rng.normal(size=integers.shape[1]))
    logits = (logits - logits.mean()) / logits.std() * _LOGIT_DEVIATION + _LOGIT_MEAN
    return 1.0 / (1.0 + np.exp(-logits))


def _mix64(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: `x` int64 to well-spread uint64, one to one."""
    z = x.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
