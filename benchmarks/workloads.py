"""The workloads: which ids are looked up in which tables; the same ids in every run."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

NUM_BATCHES = 8
ZIPF_EXPONENT = 1.05
EMPTY_ROW_SHARE = 0.05
INVALID_ID_SHARE = 0.02
# The published number of distinct values of the 26 categorical Criteo Kaggle features.
CRITEO_ROWS = (1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194)
CRITEO_ROWS += (27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572)


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
    combiner: str
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
        columns = [_zipf_ids(rng, rows, self.batch_size) for rows in self.table_rows]
        return Batch(np.stack(columns), None)

    def _multi_hot(self, rng: np.random.Generator) -> Batch:
        lengths = np.maximum(rng.poisson(self.ids_per_row, self.batch_size), 1).astype(np.int64)
        lengths[rng.random(self.batch_size) < EMPTY_ROW_SHARE] = 0
        ids = _zipf_ids(rng, self.table_rows[0], int(lengths.sum()))
        ids[rng.random(ids.size) < INVALID_ID_SHARE] = -1
        return Batch(ids, lengths)


def _zipf_ids(rng: np.random.Generator, num_rows: int, size: int) -> np.ndarray:
    """Draws ids from a bounded Zipf law and spreads the frequent ones over the table.

    The rank is the inverse of the power law's continuous distribution function; a multiplication
    by a unit modulo num_rows then keeps rows of neighbouring ranks apart in memory.
    """
    power = 1.0 - ZIPF_EXPONENT
    x = ((num_rows + 1.0) ** power - 1.0) * rng.random(size) + 1.0
    ranks = np.clip(np.floor(x ** (1.0 / power)).astype(np.int64) - 1, 0, num_rows - 1)
    unit = 2654435761 % num_rows
    while math.gcd(unit, num_rows) != 1:
        unit += 1
    return (ranks * unit + 12345) % num_rows


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", (1_000_000,) * 26, 16, 4096, "sum", seed=1),
        Workload("W2", (10_000_000,), 64, 8192, "mean", seed=2, ids_per_row=20),
        Workload("W3", (100_000,) * 200, 8, 512, "sum", seed=3),
        Workload("W4", CRITEO_ROWS, 16, 4096, "sum", seed=4),
        # Small enough for a test: says whether the driver works, nothing about speed.
        Workload("tiny", (100, 7), 8, 32, "sum", seed=5),
        Workload("tiny_multi_hot", (100,), 8, 32, "mean", seed=6, ids_per_row=3),
    )
}
