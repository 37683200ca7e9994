"""How many distinct keys a batch has, and which share of them the most frequent keys are."""

from typing import NamedTuple

import numpy as np

_EXACT_KEYS = 64  # the most frequent keys, which have a bin each
_NUM_BINS = 256  # of the other keys, with edges in geometric progression


class KeyDistribution(NamedTuple):
    """How often keys occur, from the most frequent key to the rarest, in bins.

    Keys of a bin count as equally frequent.

    Attributes:
        widths: `[num_bins]` float64 number of keys.
        probabilities: `[num_bins]` float64 probability of each key of a bin, not increasing;
            `sum(widths * probabilities)` is 1.
    """

    widths: np.ndarray
    probabilities: np.ndarray

    @classmethod
    def zipf(cls, num_keys: int, alpha: float = 1.05) -> "KeyDistribution":
        """Key k of 1 to `num_keys` occurs in proportion to `k ** -alpha`.

        Args:
            num_keys: Number of keys, > 0.
            alpha: The exponent, >= 0; 0: all keys are equally frequent.

        Returns:
            The distribution.

        Raises:
            ValueError: For other arguments.

        >>> round(fe.planner.KeyDistribution.zipf(10, 0.0).expected_distinct(20), 3)
        8.784
        """
        if num_keys < 1 or not alpha >= 0:
            raise ValueError(f"num_keys must be > 0 and alpha >= 0, got {num_keys} and {alpha}")
        keys = np.arange(1, min(num_keys, _EXACT_KEYS) + 1, dtype=np.float64)
        widths, masses = [np.ones_like(keys)], [keys**-alpha]
        if num_keys > _EXACT_KEYS:
            # The sum of k ** -alpha over a range is close to the integral over the range with half
            # a key more on both sides: to 3e-5 from key 65 on.
            edges = np.geomspace(_EXACT_KEYS + 0.5, num_keys + 0.5, _NUM_BINS + 1)
            widths.append(np.diff(edges))
            masses.append(_integral_of_power(edges[:-1], edges[1:], alpha))
        width, mass = np.concatenate(widths), np.concatenate(masses)
        return cls(width, mass / mass.sum() / width)

    @classmethod
    def from_counts(cls, counts: np.ndarray) -> "KeyDistribution":
        """The distribution of keys that were counted, in a log of ids or by a table.

        Args:
            counts: `[n]` occurrences of each key, in any order; zeros are ignored.

        Returns:
            The distribution. Keys that did not occur are not in it: batches must be short beside
            the log.

        Raises:
            ValueError: If no key was counted, or a count is negative.
        """
        counts = np.asarray(counts, np.float64).reshape(-1)
        counts = np.sort(counts[counts != 0])[::-1]
        if not len(counts) or counts[-1] < 0:
            raise ValueError(
                f"counts must be >= 0 and have one > 0, got {len(counts)} other than 0"
            )
        begins = np.arange(min(len(counts), _EXACT_KEYS))
        if len(counts) > _EXACT_KEYS:
            edges = np.geomspace(_EXACT_KEYS, len(counts), _NUM_BINS + 1)[:-1]
            begins = np.unique(np.concatenate([begins, edges.astype(np.int64)]))
        widths = np.diff(np.append(begins, len(counts))).astype(np.float64)
        return cls(widths, np.add.reduceat(counts, begins) / counts.sum() / widths)

    @property
    def num_keys(self) -> float:
        """Number of keys."""
        return float(self.widths.sum())

    def presence(self, num_ids: float) -> np.ndarray:
        """The probability that a key is in a batch: `1 - (1 - p) ** num_ids`.

        Args:
            num_ids: Ids of the batch.

        Returns:
            `[num_bins]` float64 in [0, 1], for a key of each bin.
        """
        with np.errstate(divide="ignore"):  # p = 1: log1p(-1) is -inf, and the key is present
            return (
                -np.expm1(num_ids * np.log1p(-self.probabilities)) if num_ids else 0 * self.widths
            )

    def expected_distinct(self, num_ids: float, num_top: float | None = None) -> float:
        """The expected number of distinct keys in a batch.

        Args:
            num_ids: Ids of the batch.
            num_top: Only this many of the most frequent keys are counted; None: all.

        Returns:
            The expected number.
        """
        found = self.widths * self.presence(num_ids)
        if num_top is None:
            return float(found.sum())
        ends = np.cumsum(self.widths)
        return float(np.interp(num_top, np.append(0, ends), np.append(0, np.cumsum(found))))


def _integral_of_power(low: np.ndarray, high: np.ndarray, alpha: float) -> np.ndarray:
    """The integral of `x ** -alpha`, also where alpha is close to 1."""
    ratio = np.log(high / low)
    power = 1 - alpha
    return low**power * (np.expm1(power * ratio) / power if power else ratio)
