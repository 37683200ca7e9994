"""The workloads: which ids are looked up in which tables; the same ids in every run."""

import dataclasses
import gzip
import math
import pathlib
from typing import Literal, NamedTuple

import numpy as np

NUM_BATCHES = 8
ZIPF_EXPONENT = 1.05
EMPTY_ROW_SHARE = 0.05
INVALID_ID_SHARE = 0.02
# Of a table's row, before its values: key, frequency and version.
ROW_HEADER_BYTES = 8 + 4 + 4
# The published number of distinct values of the 26 categorical Criteo Kaggle features.
CRITEO_ROWS = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)

Combiner = Literal["sum", "mean", "sqrtn"]


class Batch(NamedTuple):
    """One step's ids.

    Attributes:
        ids: `[num_columns, batch_size]` int64 if one-hot, else `[nnz]` int64 of the only column.
        row_lengths: `[batch_size]` int64 ids in each row, or None if one-hot.
    """

    ids: np.ndarray
    row_lengths: np.ndarray | None

    def row_ids(self) -> np.ndarray:
        """Returns `[nnz]` int64, the row of each id of a multi-hot batch."""
        if self.row_lengths is None:
            raise ValueError("a one-hot batch has no row_lengths; its rows are those of `ids`")
        return np.repeat(np.arange(len(self.row_lengths)), self.row_lengths)

    def touched(self, column: int) -> np.ndarray:
        """Returns `[num_unique]` int64, the sorted valid ids of one column."""
        ids = self.ids if self.row_lengths is not None else self.ids[column]
        return np.unique(ids[ids >= 0])


@dataclasses.dataclass(frozen=True)
class Workload:
    """Tables and the distribution of their ids.

    Attributes:
        table_rows: number of rows of each column's table.
        ids_per_row: 1 is one-hot in every column; more is the Poisson mean of one multi-hot column.
    """

    name: str
    table_rows: tuple[int, ...]
    dim: int
    batch_size: int
    combiner: Combiner
    seed: int
    ids_per_row: int = 1

    @property
    def num_columns(self) -> int:
        """Number of columns, each with a table of its own."""
        return len(self.table_rows)

    @property
    def is_one_hot(self) -> bool:
        """Whether every row of every column holds exactly one valid id."""
        return self.ids_per_row == 1

    def batches(self) -> list[Batch]:
        """Returns NUM_BATCHES batches, a function of the seed alone."""
        rng = np.random.default_rng(self.seed)
        make = self._one_hot if self.is_one_hot else self._multi_hot
        return [make(rng) for _ in range(NUM_BATCHES)]

    def _one_hot(self, rng: np.random.Generator) -> Batch:
        columns = [zipf_ids(rng, rows, self.batch_size) for rows in self.table_rows]
        return Batch(np.stack(columns), None)

    def _multi_hot(self, rng: np.random.Generator) -> Batch:
        lengths = np.maximum(rng.poisson(self.ids_per_row, self.batch_size), 1).astype(np.int64)
        lengths[rng.random(self.batch_size) < EMPTY_ROW_SHARE] = 0
        ids = zipf_ids(rng, self.table_rows[0], int(lengths.sum()))
        ids[rng.random(ids.size) < INVALID_ID_SHARE] = -1
        return Batch(ids, lengths)


@dataclasses.dataclass(frozen=True)
class ListWorkload(Workload):
    """One multi-hot column of real ids: lists of items, as long as they are.

    Attributes:
        path: gzip file beside the repository; in each line a user, then item ids.
    """

    path: pathlib.Path = pathlib.Path()

    @property
    def is_one_hot(self) -> bool:
        """False."""
        return False

    def batches(self) -> list[Batch]:
        """Returns NUM_BATCHES batches of lists in the order of the file.

        Raises:
            FileNotFoundError: The data does not lie beside the repository.
        """
        size = self.batch_size
        with gzip.open(self.path, "rt") as lines:
            lists = [np.array(line.split()[1:], np.int64) for line in lines]
        parts = [lists[i * size : (i + 1) * size] for i in range(NUM_BATCHES)]
        return [Batch(np.concatenate(part), np.array([len(ids) for ids in part])) for part in parts]


@dataclasses.dataclass(frozen=True)
class OneTable(Workload):
    """The columns of a one-hot workload, one after the other in one column of one table."""

    columns: Workload | None = None  # those that it is made of

    def batches(self) -> list[Batch]:
        """Returns the ids of the columns, moved."""
        assert self.columns is not None
        ends = np.cumsum(self.columns.table_rows)
        starts = (ends - self.columns.table_rows)[:, None]
        return [
            Batch((batch.ids + starts).reshape(1, -1), None) for batch in self.columns.batches()
        ]


def merged(columns: Workload) -> OneTable:
    """Returns a one-hot workload with the same ids in one table."""
    return OneTable(
        f"{columns.name}_one_table",
        (sum(columns.table_rows),),
        columns.dim,
        columns.batch_size * columns.num_columns,
        columns.combiner,
        columns.seed,
        columns=columns,
    )


def zipf_ids(rng: np.random.Generator, num_rows: int, size: int) -> np.ndarray:
    """Draws ids from a bounded Zipf law and spreads the frequent ones over the table.

    The rank is the inverse of the power law's continuous distribution function; a multiplication
    by a unit modulo num_rows then keeps rows of neighbouring ranks apart in memory.
    """
    ranks = _zipf_ranks(rng, num_rows, size)
    unit = 2654435761 % num_rows
    while math.gcd(unit, num_rows) != 1:
        unit += 1
    return (ranks * unit + 12345) % num_rows


def _zipf_ranks(rng: np.random.Generator, num_rows: int, size: int | tuple) -> np.ndarray:
    power = 1.0 - ZIPF_EXPONENT
    x = ((num_rows + 1.0) ** power - 1.0) * rng.random(size) + 1.0
    return np.clip(np.floor(x ** (1.0 / power)).astype(np.int64) - 1, 0, num_rows - 1)


def distinct_zipf_keys(step: int, num_keys: int, batch: int) -> np.ndarray:
    """`[n]` int64, the distinct ones of a step's hashed ids, in order; a function of the step."""
    ids = zipf_ids(np.random.default_rng([7, step]), num_keys, batch)
    return np.unique(hash64(ids))


def hash64(ids: np.ndarray) -> np.ndarray:
    """Ids as a string hash would give them: int64 in `[0, 2^63)`, the finaliser of splitmix64."""
    z = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Drift:
    """Growth and drift: hashed keys of which some were never seen, under a hot set that rotates.

    Attributes:
        live: keys of a column that are looked up again and again.
        fresh_share: share of keys that were never seen.
        steps_of_hot_set: steps after which the frequent keys are others.
    """

    num_columns: int = 26
    batch_size: int = 4096
    live: int = 1_000_000
    fresh_share: float = 0.02
    steps_of_hot_set: int = 1000
    seed: int = 5

    def keys(self, step: int) -> np.ndarray:
        """Returns `[num_columns, batch_size]` int64, a function of seed and step."""
        rng = np.random.default_rng([self.seed, step])
        shape = (self.num_columns, self.batch_size)
        ranks = _zipf_ranks(rng, self.live, shape)
        ranks = (ranks + step // self.steps_of_hot_set * (self.live // 10)) % self.live
        is_fresh = rng.random(shape) < self.fresh_share
        seen = step * self.batch_size
        moved = max(seen // 50 - self.live // 2, 0)  # the live keys move on at the rate of new ones
        ids = np.where(is_fresh, self.live + seen + np.arange(self.batch_size), moved + ranks)
        return hash64(ids + np.arange(self.num_columns)[:, None] * np.int64(1 << 40))


DATA = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", (1_000_000,) * 26, 16, 4096, "sum", seed=1),
        Workload("W2", (10_000_000,), 64, 8192, "mean", seed=2, ids_per_row=20),
        Workload("W3", (100_000,) * 200, 8, 512, "sum", seed=3),
        Workload("W4", CRITEO_ROWS, 16, 4096, "sum", seed=4),
        ListWorkload(
            *("gowalla", (40_981,), 64, 2048, "mean", 0),
            path=DATA / "gowalla" / "train.txt.gz",
        ),
        ListWorkload(
            *("amazon_book", (24_915,), 64, 2048, "mean", 0),
            path=DATA / "amazon_book_kgat" / "train.txt.gz",
        ),
        # Small enough for a test: says whether the driver works, nothing about speed.
        Workload("tiny", (100, 7), 8, 32, "sum", seed=5),
        Workload("tiny_multi_hot", (100,), 8, 32, "mean", seed=6, ids_per_row=3),
    )
}
