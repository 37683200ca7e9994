"""What filters, expiry and bounds of a table would cost, and what they would keep."""

import math
from typing import NamedTuple, Protocol

import numpy as np

from fused_embedding.inspection.checkpoint_tables import Table
from fused_embedding.inspection.id_log import Sample
from fused_embedding.inspection.reuse import NEVER, reuse_of, sorted_elements
from fused_embedding.variable.row_size import WAITING_BYTES, RowLayout

# Settings that are tried unless others are asked for.
THRESHOLDS = (1, 2, 3, 5, 10, 20, 50)
SHARES_OF_STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)
SHARES_OF_ROWS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Outcome(NamedTuple):
    """What a table with one setting would be.

    Attributes:
        option: "CounterFilter", "GlobalStepEvict" or "lru".
        setting: Its filter_freq, steps_to_live or max_capacity.
        rows: Rows: at the end, or with expiry the most at any step.
        num_bytes: Memory, about.
        ids: Share of distinct ids that have a row at the end.
        trained: Share of occurrences whose id has a row once they are counted, which they train.
        found: Share of occurrences that find a row with what earlier ones have trained; NaN where
            that cannot be known.
    """

    option: str
    setting: int
    rows: int
    num_bytes: float
    ids: float
    trained: float
    found: float


class Advisor(Protocol):
    """Where outcomes come from."""

    layout: RowLayout
    num_ids: int
    num_steps: int

    @property
    def num_distinct(self) -> float:
        """Number of distinct ids."""

    def admission(self, threshold: int) -> Outcome:
        """With CounterFilter(threshold)."""

    def time_to_live(self, steps: int) -> Outcome:
        """With GlobalStepEvict(steps) and an expire() before every step."""

    def bounded(self, rows: int) -> Outcome:
        """With max_capacity=rows, eviction="lru"."""


class LogAdvisor:
    """Outcomes from a sample of a log.

    The sample is simulated, with distances and sizes divided by its rate. Sums over all
    occurrences are estimated from those of the sample, corrected by how many occurrences it should
    have and has: the ids that it misses or has too many of are the frequent ones.

    Source: SHARDS (see sample_ids). Its SHARDS-adj counts all the difference as hits; here the
    part beta that was missed in the sample is missed, which is the regression estimator of survey
    sampling (Cochran, "Sampling Techniques", 1977, ch. 7), of less variance for small tables.
    """

    def __init__(self, sample: Sample, layout: RowLayout, ids_per_step: int) -> None:
        """Finds when each sampled id comes again.

        Args:
            sample: Of a log.
            layout: Of the rows of the table.
            ids_per_step: Ids of the log in one training step.
        """
        self.layout = layout
        self.num_ids = sample.num_ids
        self.num_steps = -(-sample.num_ids // ids_per_step)
        self.rate = sample.rate
        self.sorted_elements = sorted_elements(len(sample.ids))
        self._steps = sample.positions // ids_per_step
        self._reuse = reuse_of(sample.ids, self._steps)
        self._is_first = self._reuse.rank == 0

    @property
    def num_distinct(self) -> float:
        """Number of distinct ids in the log, about."""
        return self._total(self._is_first)

    def _total(self, values: np.ndarray) -> float:
        """The sum over all occurrences of the log, from `[n]` numbers of those in the sample."""
        count = self._reuse.total
        beta = (values * count).sum() / max(count.sum(), 1)
        surplus = len(values) - self.rate * self.num_ids
        return max((values.sum() - beta * surplus) / self.rate, 0.0)

    def _share_without(self, is_missed: np.ndarray) -> float:
        return _share(self.num_ids - self._total(is_missed), self.num_ids)

    def admission(self, threshold: int) -> Outcome:
        """The outcome of CounterFilter(threshold)."""
        reuse = self._reuse
        rows = self._total(self._is_first & (reuse.total >= threshold))
        waiting = self._total(self._is_first & (reuse.total < threshold))
        return Outcome(
            "CounterFilter",
            threshold,
            rows=round(rows),
            num_bytes=rows * self.layout.key_bytes + waiting * WAITING_BYTES,
            ids=_share(rows, rows + waiting),
            trained=self._share_without(reuse.rank + 1 < threshold),
            found=self._share_without(reuse.rank < threshold),
        )

    def time_to_live(self, steps: int) -> Outcome:
        """The outcome of GlobalStepEvict(steps) with an expire() before every step."""
        reuse = self._reuse
        expires = self._steps + steps + 1
        rows = _most_at_once(self._steps, np.minimum(expires, reuse.next_step)) / self.rate
        is_left = (reuse.next_step == NEVER) & (expires >= self.num_steps)
        return Outcome(
            "GlobalStepEvict",
            steps,
            rows=round(rows),
            num_bytes=rows * self.layout.key_bytes,
            ids=_share(self._total(is_left), self.num_distinct),
            trained=1.0,
            found=self._share_without(reuse.gap > steps),
        )

    def bounded(self, rows: int) -> Outcome:
        """The outcome of max_capacity=rows with eviction="lru"."""
        is_missed = self._reuse.distance >= rows * self.rate
        used = min(rows, self.num_distinct)
        return Outcome(
            "lru",
            rows,
            rows=round(used),
            num_bytes=used * self.layout.key_bytes,
            ids=_share(used, self.num_distinct),
            trained=1.0,
            found=self._share_without(is_missed),
        )


def _most_at_once(begins: np.ndarray, ends: np.ndarray) -> int:
    """The most of the intervals [begin, end) that any moment is in."""
    times = np.concatenate([begins, ends])
    change = np.repeat([1, -1], [len(begins), len(ends)])
    order = np.argsort(times, kind="stable")
    alive = np.cumsum(change[order])
    is_last = np.append(times[order[1:]] != times[order[:-1]], True)[: len(times)]
    return int(alive[is_last].max(initial=0))


class FrequencyAdvisor:
    """Outcomes from the frequencies and ages of a saved table, which do not say when keys came.

    For "lru", each key is taken to come at random, as often as its frequency says, all through
    training. A bound that keeps unused keys for t occurrences then has sum(1 - exp(-f t / n)) rows
    and finds (f - 1)(1 - exp(-f t / n)) of the occurrences of each key after the first.

    Source: the characteristic time of Che, Tung, Wang, "Hierarchical Web Caching Systems", JSAC
    2002.
    """

    def __init__(self, table: Table) -> None:
        """Takes the keys of a table, those that wait for admission too."""
        self.layout = table.layout
        self._counts = np.concatenate([table.use.frequencies, table.waiting.frequencies])
        self._counts = np.maximum(self._counts.astype(np.int64), 1)  # 0: inserted, not counted
        self._ages = np.concatenate(
            [table.ages, np.maximum(table.now - table.waiting.versions.astype(np.int64), 0)]
        )
        self.num_ids = int(self._counts.sum())
        self.num_steps = max(table.now, 1)

    @property
    def num_distinct(self) -> float:
        """Number of keys."""
        return float(len(self._counts))

    def admission(self, threshold: int) -> Outcome:
        """The outcome of CounterFilter(threshold)."""
        rows = int((self._counts >= threshold).sum())
        waiting = len(self._counts) - rows
        found = np.maximum(self._counts - threshold, 0).sum()
        return Outcome(
            "CounterFilter",
            threshold,
            rows=rows,
            num_bytes=rows * self.layout.key_bytes + waiting * WAITING_BYTES,
            ids=_share(rows, len(self._counts)),
            trained=_share(found + rows, self.num_ids),
            found=_share(found, self.num_ids),
        )

    def time_to_live(self, steps: int) -> Outcome:
        """The outcome of GlobalStepEvict(steps); its `rows` are those at the end."""
        rows = int((self._ages <= steps).sum())
        return Outcome(
            "GlobalStepEvict",
            steps,
            rows=rows,
            num_bytes=rows * self.layout.key_bytes,
            ids=_share(rows, len(self._counts)),
            trained=1.0,
            found=math.nan,
        )

    def bounded(self, rows: int) -> Outcome:
        """The outcome of max_capacity=rows with eviction="lru"."""
        used = min(rows, len(self._counts))
        stays = self._chance_to_stay(rows)
        return Outcome(
            "lru",
            rows,
            rows=used,
            num_bytes=used * self.layout.key_bytes,
            ids=_share(used, len(self._counts)),
            trained=1.0,
            found=_share(((self._counts - 1) * stays).sum(), self.num_ids),
        )

    def _chance_to_stay(self, rows: int) -> np.ndarray:
        """Of each key: that it comes again before it is evicted from a table of `rows` rows."""
        if rows >= len(self._counts):
            return np.ones(len(self._counts))
        share = self._counts / self.num_ids
        low, high = 0.0, 1.0
        while -np.expm1(-share * high).sum() < rows:
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            is_too_long = -np.expm1(-share * middle).sum() > rows
            low, high = (low, middle) if is_too_long else (middle, high)
        return -np.expm1(-share * high)


def _share(part: float, whole: float) -> float:
    return min(max(float(part) / max(float(whole), 1.0), 0.0), 1.0)


class Settings(NamedTuple):
    """Settings to try; an empty list stands for the usual ones.

    Attributes:
        thresholds: Of CounterFilter.
        steps_to_live: Of GlobalStepEvict.
        budgets: Bytes for a table with an LRU bound.
    """

    thresholds: list[int]
    steps_to_live: list[int]
    budgets: list[float]


def advise(advisor: Advisor, settings: Settings) -> list[Outcome]:
    """The outcome of each setting, those of an option together."""
    thresholds = settings.thresholds or THRESHOLDS
    steps = settings.steps_to_live or [
        math.ceil(share * advisor.num_steps) for share in SHARES_OF_STEPS
    ]
    bounds = [int(budget // advisor.layout.key_bytes) for budget in settings.budgets] or [
        math.ceil(share * advisor.num_distinct) for share in SHARES_OF_ROWS
    ]
    return [
        *map(advisor.admission, sorted(set(thresholds))),
        *map(advisor.time_to_live, sorted(set(steps))),
        *map(advisor.bounded, sorted(set(bounds))),
    ]
