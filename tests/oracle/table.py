"""A table without a vocabulary, as a dict of rows. Obvious and slow; imports numpy alone.

Keys of a batch are distinct. One shard: what a bounded table gives up does not depend on hashes.
"""

import collections
import copy
import dataclasses
from collections.abc import Callable, Container, Sequence

import numpy as np

MAX_COUNT = 2**32 - 1  # a frequency saturates
MAX_VERSION = 2**32 - 2


class FullError(Exception):
    """A full table refused keys; the first argument is their number."""


@dataclasses.dataclass
class Row:
    """Value `[dim]`, momentum `[dim]`, occurrences and step of the last training lookup.

    Momentum is float64 beside values of float64, and float32 beside all others.
    """

    value: np.ndarray
    momentum: np.ndarray
    frequency: int = 0
    version: int = 0


@dataclasses.dataclass(frozen=True)
class Config:
    """What a table is told when it is made."""

    first_value: Callable[[int], np.ndarray]
    min_frequency: int = 0  # 0: every key gets a row at once
    forgets_counts: bool = True  # of erased and expired keys; a Bloom filter cannot
    no_permission_value: float = 0.0
    max_capacity: int | None = None
    eviction: str | None = None
    check_mode: str = "error"


class Table:
    """The state, and the methods that change it."""

    def __init__(self, config: Config):
        self.config = config
        self.rows: dict[int, Row] = {}
        self.counts: dict[int, Row] = {}  # keys that are counted and not admitted
        self.step = 0
        self.has_momentum = False
        self.statistics: collections.Counter[str] = collections.Counter()

    def find(self, keys: Sequence[int]) -> np.ndarray:
        """Rows of an evaluation, which changes nothing but the statistics."""
        self.statistics["hits"] += sum(key in self.rows for key in keys)
        self.statistics["misses"] += sum(key not in self.rows for key in keys)
        return np.array([self._read(key) for key in keys])

    def _read(self, key: int) -> np.ndarray:
        if key in self.rows:
            return self.rows[key].value.copy()
        return self._no_permission() if self.config.min_frequency else self.config.first_value(key)

    def _no_permission(self) -> np.ndarray:
        return np.full_like(self.config.first_value(0), self.config.no_permission_value)

    def find_or_insert(
        self, keys: Sequence[int], counts: Sequence[int], step: int, gone: Container[int] = ()
    ) -> np.ndarray:
        """Rows of a training lookup.

        Args:
            keys: Distinct keys.
            counts: Occurrences of each.
            step: Negative: the table's own.
            gone: Among rows of equal score, those that the table under test has given up.

        Raises:
            FullError: In the check mode "error", the rows and counts being as before.
        """
        attempt = copy.deepcopy(self)
        out = attempt._find_or_insert(keys, counts, self._version(step), gone)
        self._take(attempt)
        return out

    def _take(self, attempt: "Table") -> None:
        """Becomes `attempt`, unless that is an error: only the refusals are then counted."""
        num_refused = attempt.statistics["refusals"] - self.statistics["refusals"]
        if num_refused and self.config.check_mode == "error":
            self.statistics["refusals"] += num_refused
            raise FullError(num_refused)
        self.__dict__ = attempt.__dict__

    def _version(self, step: int) -> int:
        return min(self.step if step < 0 else step, MAX_VERSION)

    def _find_or_insert(
        self, keys: Sequence[int], counts: Sequence[int], version: int, gone: Container[int]
    ) -> np.ndarray:
        pinned = {key for key in keys if key in self.rows}
        for key, count in zip(keys, counts, strict=True):
            if key in pinned:
                row = self.rows[key]
                row.frequency, row.version = min(row.frequency + count, MAX_COUNT), version
        self.statistics["hits"] += len(pinned)
        refused = set()
        for key, count in zip(keys, counts, strict=True):
            if key not in pinned and self._miss(key, count, version, pinned, gone) == "refusals":
                refused.add(key)
        zeros = np.zeros_like(self.config.first_value(0))
        return np.array([zeros if key in refused else self._read(key) for key in keys])

    def _miss(
        self, key: int, count: int, version: int, pinned: set[int], gone: Container[int]
    ) -> str:
        """Inserts a key, or counts it. Returns what happened, as the statistics name it."""
        counted = self.counts.get(key)
        frequency = min(count + (counted.frequency if counted else 0), MAX_COUNT)
        event = "not_admitted"
        if frequency >= self.config.min_frequency:
            event = "inserts" if self._make_room(pinned, gone) else "refusals"
        self.statistics["misses"] += 1
        self.statistics[event] += 1
        if event == "inserts":
            self._insert(key, frequency, version)
            pinned.add(key)
        if event == "inserts" and self.config.forgets_counts:
            self.counts.pop(key, None)
        elif frequency and self.config.min_frequency:
            self.counts[key] = Row(np.zeros(0), np.zeros(0), frequency, version)
        return event

    def _insert(self, key: int, frequency: int, version: int) -> None:
        value = self.config.first_value(key)
        momentum_dtype = np.float64 if value.dtype == np.float64 else np.float32
        momentum = np.zeros(len(value), momentum_dtype)
        self.rows[key] = Row(value, momentum, frequency, version)

    def _make_room(self, pinned: Container[int], gone: Container[int]) -> bool:
        """Whether there is room for one more row, after giving one up if need be."""
        capacity = self.config.max_capacity
        if capacity is None or len(self.rows) < capacity:
            return True
        loose = [key for key in self.rows if key not in pinned]
        if self.config.eviction is None or not loose:
            return False
        del self.rows[min(loose, key=lambda key: (self._score(key), key not in gone))]
        self.statistics["evictions"] += 1
        return True

    def _score(self, key: int) -> tuple[int, int]:
        row = self.rows[key]
        lru = (row.version, row.frequency)
        return lru if self.config.eviction == "lru" else lru[::-1]

    def momentum(
        self, keys: Sequence[int], grads: np.ndarray, learning_rate: float, momentum: float
    ) -> None:
        """One step of tf.compat.v1.train.MomentumOptimizer on the keys that have rows."""
        self.has_momentum = True
        for key, grad in zip(keys, grads, strict=True):
            if key in self.rows:
                row = self.rows[key]
                dtype = row.momentum.dtype
                row.momentum = momentum * row.momentum + grad.astype(dtype)
                value = row.value.astype(dtype) - learning_rate * row.momentum
                row.value = value.astype(row.value.dtype)
        self.step += 1

    def upsert(self, keys: Sequence[int], values: np.ndarray, gone: Container[int] = ()) -> None:
        """Sets values; new rows have no occurrences and the table's own step.

        Raises:
            FullError: In the check mode "error", the rows and counts being as before.
        """
        attempt = copy.deepcopy(self)
        attempt._upsert(keys, values, gone)
        self._take(attempt)

    def _upsert(self, keys: Sequence[int], values: np.ndarray, gone: Container[int]) -> None:
        pinned = {key for key in keys if key in self.rows}
        for key, value in zip(keys, values, strict=True):
            if key not in self.rows and self._make_room(pinned, gone):
                self._insert(key, 0, self._version(-1))
                pinned.add(key)
                if self.config.forgets_counts:
                    self.counts.pop(key, None)
            if key in self.rows:
                self.rows[key].value = value.astype(self.rows[key].value.dtype)
            else:
                self.statistics["refusals"] += 1

    def erase(self, keys: Sequence[int]) -> int:
        """Forgets keys; the number of rows."""
        erased = {key for key in keys if self.rows.pop(key, None) is not None}
        for key in keys if self.config.forgets_counts else ():
            self.counts.pop(key, None)
        self.statistics["erasures"] += len(erased)
        return len(erased)

    def expire(self, step: int, steps_to_live: int, l2_weight_threshold: float) -> int:
        """Removes old and small rows, and old counts; the number of rows."""
        now = self.step if step < 0 else step

        def is_old(row: Row) -> bool:
            return 0 < steps_to_live < now - row.version

        expired = [
            key
            for key, row in self.rows.items()
            if is_old(row) or np.linalg.norm(row.value.astype(np.float64)) < l2_weight_threshold
        ]
        for key in expired:
            del self.rows[key]
        if self.config.forgets_counts:
            self.counts = {key: row for key, row in self.counts.items() if not is_old(row)}
        self.statistics["expirations"] += len(expired)
        return len(expired)
