"""The sizes that are measured, and their tables and ids in a machine's memory."""

import dataclasses

import numpy as np

from benchmarks.gpu import lookups
from benchmarks.gpu.core import Array, Lookup, Machine
from benchmarks.harness import workloads

NUM_BATCHES = 4  # taken in turn: one batch's rows may stay in the cache


@dataclasses.dataclass(frozen=True)
class Size:
    """Columns of one size, each with a table of its own.

    Attributes:
        ids_per_row: The same for each row; rows are in order.
        in_tables: Whether the forward pass in tables by key is measured too. Their rows are copied
            through the memory of the host.
    """

    num_tables: int
    table_rows: int
    batch_size: int
    ids_per_row: int
    dim: int
    in_tables: bool = False

    @property
    def num_ids(self) -> int:
        """Of all columns of a batch."""
        return self.num_tables * self.batch_size * self.ids_per_row

    @property
    def is_one_hot(self) -> bool:
        """Whether each row has one id."""
        return self.ids_per_row == 1


SIZES = {
    "criteo_d128": Size(26, 1_000_000, 65_536, 1, 128),
    "criteo_d16": Size(26, 1_000_000, 65_536, 1, 16, in_tables=True),
    "bags_d128": Size(32, 1_000_000, 512, 20, 128),
}
NUM_KEYS = 1 << 20
# Says whether the driver works, nothing about speed.
TINY_SIZES = {
    "criteo_d128": Size(3, 50, 16, 1, 8),
    "criteo_d16": Size(3, 50, 16, 1, 4, in_tables=True),
    "bags_d128": Size(2, 50, 4, 3, 8),
}
TINY_NUM_KEYS = 200


def half_unique(rng: np.random.Generator, size: int, num_rows: int) -> np.ndarray:
    """`[size]` int64 ids below `num_rows`, about half of them distinct, spread over all rows."""
    # size draws among r are r (1 - exp(-size / r)) distinct ones: half of size for this r.
    num_distinct = max(int(0.627 * size), 1)
    return rng.integers(0, num_distinct, size) * max(num_rows // num_distinct, 1) % num_rows


def table(machine: Machine, num_rows: int, dim: int) -> Array:
    """`[num_rows, dim]` float32 between -1 and 1."""
    out = machine.empty((num_rows, dim), np.float32)
    rng = np.random.default_rng(num_rows)
    block = rng.uniform(-1, 1, min(out.size, 1 << 22)).astype(np.float32)
    for start in range(0, out.num_bytes, block.nbytes):
        num_bytes = min(block.nbytes, out.num_bytes - start)
        machine.copy(out.address + start, block.ctypes.data, num_bytes)
    return out


class Batches:
    """Ids of one size, and the columns that look them up.

    Attributes:
        ids: of each batch `[num_tables, num_ids of a column]` int64 in host memory.
        combined: `[num_tables, batch_size, dim]`, where all batches write.
        grad: the same shape: the gradient of combined.
        whole_table: `[num_tables * table_rows, dim]`: all tables, one after the other.
    """

    def __init__(self, machine: Machine, size: Size, whole_table: Array, half: bool):
        """`half`: about half of the ids are distinct; else they are uniform."""
        self.machine, self.size, self.whole_table = machine, size, whole_table
        rng = np.random.default_rng(0)
        num_ids = size.batch_size * size.ids_per_row
        self.ids = [
            np.stack([self._draw(rng, num_ids, half) for _ in range(size.num_tables)])
            for _ in range(NUM_BATCHES)
        ]
        self.row_ids = np.repeat(np.arange(size.batch_size), size.ids_per_row)
        shape = (size.num_tables, size.batch_size, size.dim)
        self.combined = machine.empty(shape, np.float32)
        self.grad = table(machine, size.num_tables * size.batch_size, size.dim)
        on_machine = machine.upload(self.row_ids)
        self.columns = [self._columns(machine.upload(ids), on_machine) for ids in self.ids]

    def _draw(self, rng: np.random.Generator, num_ids: int, half: bool) -> np.ndarray:
        num_rows = self.size.table_rows
        return half_unique(rng, num_ids, num_rows) if half else rng.integers(0, num_rows, num_ids)

    def _columns(self, ids: Array, row_ids: Array) -> list[lookups.Column]:
        size, columns = self.size, []
        for t in range(size.num_tables):
            of_table = (size.table_rows, size.dim)
            of_batch = (size.batch_size, size.dim)
            columns.append(
                lookups.Column(
                    ids.part(t * len(self.row_ids), (len(self.row_ids),)),
                    row_ids,
                    self.whole_table.part(t * size.table_rows * size.dim, of_table),
                    size.batch_size,
                    combiner="sum",
                    table_number=t,
                    combined_grad=self.grad.part(t * size.batch_size * size.dim, of_batch),
                )
            )
        return columns

    def num_unique(self) -> int:
        """Distinct ids of all tables: the median of the batches."""
        per_batch = [sum(len(np.unique(ids)) for ids in batch) for batch in self.ids]
        return int(np.median(per_batch))

    def outputs(self) -> list[Array]:
        """`combined` of each column."""
        size = self.size
        shape = (size.batch_size, size.dim)
        parts = range(size.num_tables)
        return [self.combined.part(t * shape[0] * shape[1], shape) for t in parts]


class RowWiseAdagrad:
    """A step on the tables of batches, by the gradient of the lookup.

    Attributes:
        accumulator: `[num_tables * table_rows]` float32: a number for each row of all tables.
    """

    learning_rate, epsilon = 0.01, 1e-8

    def __init__(self, batches: Batches):
        """The accumulators begin with 0."""
        self.batches = batches
        num_rows = batches.whole_table.shape[0]
        self.accumulator = batches.machine.upload(np.zeros(num_rows, np.float32))

    def lookups(self, is_fused: bool) -> list[Lookup]:
        """Of each batch."""
        size = self.batches.size
        numbers = (self.learning_rate, self.epsilon, 0)
        starts = range(0, size.num_tables * size.table_rows, size.table_rows)
        slots = [[self.accumulator.part(start, (size.table_rows,))] for start in starts]
        step = lookups.Step("row_wise_adagrad", numbers, slots, is_fused)
        return [lookups.group_lookup_apply(columns, step) for columns in self.batches.columns]


def cpu_columns(
    machine: Machine, workload: workloads.Workload, tables: list[Array], grads: dict[int, Array]
) -> list[list[lookups.Column]]:
    """The columns of each batch of a workload of the CPU; those of a dim share a gradient."""
    one_hot_rows = machine.upload(np.arange(workload.batch_size))
    batches = []
    for batch in workload.batches():
        row_ids = [
            one_hot_rows if ids.row_lengths is None else machine.upload(ids.row_ids())
            for ids in batch.columns
        ]
        batches.append(
            [
                lookups.Column(
                    *(machine.upload(batch.columns[c].ids), row_ids[c], tables[c]),
                    workload.batch_size,
                    combiner=column.combiner,
                    table_number=c,
                    combined_grad=grads[column.dim],
                )
                for c, column in enumerate(workload.columns)
            ]
        )
    return batches
