"""The workloads: which ids are looked up in which tables; the same ids in every run."""

import dataclasses
import gzip
import math
import pathlib
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

ZIPF_EXPONENT = 1.05
EMPTY_ROW_SHARE = 0.05
INVALID_ID_SHARE = 0.02
MAX_IDS_PER_ROW = 4096  # the longest list of real ids has 3,582
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# Of a table's row, before its values: key, frequency and version.
ROW_HEADER_BYTES = 8 + 4 + 4
# The published number of distinct values of the 26 categorical Criteo Kaggle features.
CRITEO_ROWS = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)

Combiner = Literal["sum", "mean", "sqrtn"]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column with a table of its own.

    Attributes:
        rows: of its table.
        ids_per_row: 1: exactly one, and a valid one; more: the mean of a Poisson law; two numbers:
            the least and the most, all equally likely.
        is_weighted: whether each id has a weight.
    """

    rows: int
    dim: int
    combiner: Combiner = "sum"
    ids_per_row: int | tuple[int, int] = 1
    is_weighted: bool = False

    @property
    def is_one_hot(self) -> bool:
        """Whether every row holds exactly one valid id, without a weight."""
        return self.ids_per_row == 1


class ColumnIds(NamedTuple):
    """One step's ids of a column.

    Attributes:
        ids: `[nnz]` int64; those < 0 are invalid.
        row_lengths: `[batch_size]` int64 ids in each row, or None if one-hot.
        weights: `[nnz]` float32 > 0, or None: all 1.
    """

    ids: np.ndarray
    row_lengths: np.ndarray | None = None
    weights: np.ndarray | None = None

    def row_ids(self) -> np.ndarray:
        """Returns `[nnz]` int64, the row of each id."""
        if self.row_lengths is None:
            return np.arange(self.ids.size)
        return np.repeat(np.arange(len(self.row_lengths)), self.row_lengths)

    def touched(self) -> np.ndarray:
        """Returns `[num_unique]` int64, the sorted valid ids."""
        return np.unique(self.ids[self.ids >= 0])

    def valid(self) -> "ColumnIds":
        """Returns the same without the invalid ids."""
        if self.row_lengths is None:
            return self
        kept = self.ids >= 0
        lengths = np.bincount(self.row_ids()[kept], minlength=len(self.row_lengths))
        weights = None if self.weights is None else self.weights[kept]
        return ColumnIds(self.ids[kept], lengths.astype(np.int64), weights)

    def factors(self, combiner: Combiner) -> np.ndarray:
        """Returns `[nnz]` float64, by which the rows of valid ids are multiplied and summed up."""
        weights = np.ones(self.ids.size) if self.weights is None else self.weights.astype(float)
        if combiner == "sum":
            return weights
        of_id = weights if combiner == "mean" else weights**2
        of_row = np.bincount(self.row_ids(), of_id)
        of_row = of_row if combiner == "mean" else np.sqrt(of_row)
        return weights / of_row[self.row_ids()]


class Batch(NamedTuple):
    """One step's ids of each column."""

    columns: list[ColumnIds]

    def one_hot(self) -> np.ndarray:
        """Returns `[num_one_hot_columns, batch_size]` int64."""
        return np.stack([column.ids for column in self.columns if column.row_lengths is None])


@dataclasses.dataclass(frozen=True)
class Workload:
    """Columns and the distribution of their ids.

    Attributes:
        num_batches: batches that repeat.
        is_uniform: whether all ids are equally likely; they follow a bounded Zipf law otherwise.
        dtype: of the tables.
    """

    name: str
    columns: tuple[Column, ...]
    batch_size: int
    seed: int
    num_batches: int = 8
    is_uniform: bool = False
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"

    @property
    def num_columns(self) -> int:
        """Number of columns, each with a table of its own."""
        return len(self.columns)

    @property
    def table_rows(self) -> tuple[int, ...]:
        """Number of rows of each column's table."""
        return tuple(column.rows for column in self.columns)

    @property
    def total_dim(self) -> int:
        """Width of the combined rows of all columns side by side."""
        return sum(column.dim for column in self.columns)

    @property
    def is_one_hot(self) -> bool:
        """Whether every column is."""
        return all(column.is_one_hot for column in self.columns)

    def batches(self) -> list[Batch]:
        """Returns the batches, a function of the seed alone."""
        rng = np.random.default_rng(self.seed)
        return [
            Batch([self._ids(rng, column) for column in self.columns])
            for _ in range(self.num_batches)
        ]

    def _ids(self, rng: np.random.Generator, column: Column) -> ColumnIds:
        draw = uniform_ids if self.is_uniform else zipf_ids
        if column.is_one_hot:
            return ColumnIds(draw(rng, column.rows, self.batch_size))
        if isinstance(column.ids_per_row, int):
            lengths = np.maximum(rng.poisson(column.ids_per_row, self.batch_size), 1)
        else:
            least, most = column.ids_per_row
            lengths = rng.integers(least, most + 1, self.batch_size)
        lengths[rng.random(self.batch_size) < EMPTY_ROW_SHARE] = 0
        ids = draw(rng, column.rows, int(lengths.sum()))
        ids[rng.random(ids.size) < INVALID_ID_SHARE] = -1
        weights = 0.5 + rng.random(ids.size, np.float32) if column.is_weighted else None
        return ColumnIds(ids, lengths.astype(np.int64), weights)

    def touched_bytes(self) -> int:
        """Returns the size of all distinct rows that a cycle of the batches looks up.

        With a slot, training touches as much again.
        """
        batches = self.batches()
        num_bytes = 0
        for c, column in enumerate(self.columns):
            ids = np.concatenate([batch.columns[c].touched() for batch in batches])
            num_bytes += np.unique(ids).size * column.dim * VALUE_BYTES[self.dtype]
        return num_bytes

    def summary(self) -> str:
        """Returns what the columns are, in a line.

        >>> WORKLOADS["W2"].summary()
        '1 column, dim 64, batch 8192, 20 ids in a row'
        """
        count = self.num_columns
        parts = [f"{count} column{'s' * (count > 1)}", f"dim {_range(c.dim for c in self.columns)}"]
        parts.append(f"batch {self.batch_size}")
        pooled = [column for column in self.columns if not column.is_one_hot]
        if pooled:
            ids = pooled[0].ids_per_row
            text = f"{ids if isinstance(ids, int) else _range(ids)} "
            text += "weighted " * pooled[0].is_weighted + "ids in a row"
            parts.append(text + (f" of {len(pooled)} of them" if len(pooled) < count else ""))
        parts += [f"uniform ids, {self.num_batches} batches"] if self.is_uniform else []
        return ", ".join([*parts, *([self.dtype] if self.dtype != "float32" else [])])

    def tiny(self) -> "Workload":
        """Returns some columns with few rows: does the driver work, nothing about speed."""
        columns = self.columns[:: max(1, self.num_columns // 5)]
        few = tuple(dataclasses.replace(c, rows=min(c.rows, 100)) for c in columns)
        return dataclasses.replace(self, columns=few, batch_size=min(self.batch_size, 16))


def _range(sizes: Iterable[int]) -> str:
    least, *_, most = sorted(sizes) * 2
    return str(least) if least == most else f"{least} to {most}"


@dataclasses.dataclass(frozen=True)
class ListWorkload(Workload):
    """One multi-hot column of real ids: lists of items, as long as they are.

    Attributes:
        path: gzip file beside the repository; in each line a user, then item ids.
    """

    path: pathlib.Path = pathlib.Path()

    def batches(self) -> list[Batch]:
        """Returns batches of lists in the order of the file.

        Raises:
            FileNotFoundError: The data does not lie beside the repository.
        """
        size = self.batch_size
        with gzip.open(self.path, "rt") as lines:
            lists = [np.array(line.split()[1:], np.int64) for line in lines]
        parts = [lists[i * size : (i + 1) * size] for i in range(self.num_batches)]
        return [
            Batch([ColumnIds(np.concatenate(part), np.array([len(ids) for ids in part]))])
            for part in parts
        ]


@dataclasses.dataclass(frozen=True)
class OneTable(Workload):
    """The columns of a one-hot workload, one after the other in one column of one table."""

    merged: Workload | None = None  # that they are from

    def batches(self) -> list[Batch]:
        """Returns the ids of the columns, moved."""
        assert self.merged is not None
        ends = np.cumsum(self.merged.table_rows)
        starts = (ends - self.merged.table_rows)[:, None]
        return [
            Batch([ColumnIds((batch.one_hot() + starts).reshape(-1))])
            for batch in self.merged.batches()
        ]


def merged(workload: Workload) -> OneTable:
    """Returns a one-hot workload with the same ids in one table."""
    column = dataclasses.replace(workload.columns[0], rows=sum(workload.table_rows))
    return OneTable(
        f"{workload.name}_one_table",
        (column,),
        workload.batch_size * workload.num_columns,
        workload.seed,
        merged=workload,
    )


def uniform_ids(rng: np.random.Generator, num_rows: int, size: int) -> np.ndarray:
    """Draws ids that are all equally likely."""
    return rng.integers(num_rows, size=size)


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

_MIXED_DIMS = (4, 8, 16, 32, 64, 128)
_W1 = (Column(1_000_000, 16),) * 26
_A_FEW_ONE_HOT = tuple(Column(200_000, _MIXED_DIMS[i % 6]) for i in range(13))
_WEIGHTED = tuple(
    Column(200_000, _MIXED_DIMS[i % 6], "mean", (5, 30), is_weighted=True) for i in range(13, 26)
)
_LOADS = (
    Workload("A", _A_FEW_ONE_HOT + _WEIGHTED, 2048, seed=11),
    Workload("B", (Column(1_000_000, 64, "mean", (200, 200)),), 512, seed=12),
    Workload("C", (Column(20_000, 8),) * 1000, 256, seed=13),
    *(Workload(f"D{n}", (Column(300_000, 16),) * 26, n, seed=14) for n in (1, 64, 512, 8192)),
    Workload("E", (Column(600_000, 16),) * 26, 4096, seed=15, num_batches=48, is_uniform=True),
    Workload("F1", (Column(1_000_000, 1),) * 26, 4096, seed=16),
    Workload("F24", (Column(300_000, 24, "mean", (5, 30)),) * 4, 2048, seed=16),
    Workload("F100", (Column(300_000, 100, "mean", (5, 30)),) * 4, 2048, seed=16),
    Workload("G256", (Column(100_000, 256),) * 6, 2048, seed=17),
    Workload("G512", (Column(100_000, 512),) * 3, 2048, seed=17),
    Workload("G256_mean", (Column(100_000, 256, "mean", (5, 30)),), 2048, seed=17),
    Workload("H_float16", _W1, 4096, seed=1, dtype="float16"),
    Workload("H_bfloat16", _W1, 4096, seed=1, dtype="bfloat16"),
)
# Sizes and shapes that the project's targets do not name. docs/results has a row for each.
LOADS = tuple(load.name for load in _LOADS)
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", _W1, 4096, seed=1),
        Workload("W2", (Column(10_000_000, 64, "mean", 20),), 8192, seed=2),
        Workload("W3", (Column(100_000, 8),) * 200, 512, seed=3),
        Workload("W4", tuple(Column(rows, 16) for rows in CRITEO_ROWS), 4096, seed=4),
        *_LOADS,
        ListWorkload(
            *("gowalla", (Column(40_981, 64, "mean", (1, MAX_IDS_PER_ROW)),), 2048, 0),
            path=DATA / "gowalla" / "train.txt.gz",
        ),
        ListWorkload(
            *("amazon_book", (Column(24_915, 64, "mean", (1, MAX_IDS_PER_ROW)),), 2048, 0),
            path=DATA / "amazon_book_kgat" / "train.txt.gz",
        ),
        # Small enough for a test: says whether the driver works, nothing about speed.
        Workload("tiny", (Column(100, 8), Column(7, 8)), 32, seed=5),
        Workload("tiny_multi_hot", (Column(100, 8, "mean", 3),), 32, seed=6),
    )
}
