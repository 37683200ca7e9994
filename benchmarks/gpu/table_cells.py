"""Tables by key beside an array of as many rows: what it costs to find a row before it is read.

A table has one size: its buckets are all there, and it may not grow. At half load nothing is
evicted; a full table evicts its least recently used rows for new ones.
"""

import dataclasses

import numpy as np

from benchmarks.gpu import inputs, lookups, measure, tables
from benchmarks.gpu.core import Array, Machine
from benchmarks.harness import timing, workloads

KEY_BYTES, FLOAT_BYTES = 8, 4
ENTRY_BYTES = 25  # beside the row: kEntryBytes of gpu_table.h
LOADS = (0.5, 1.0)
NUM_INSERTS = 12  # batches of which half are new keys, each measured once
WARM_UP_INSERTS = 3


@dataclasses.dataclass(frozen=True)
class TableSize:
    """A table that is much larger than the GPU's cache."""

    dim: int
    num_buckets: int
    batch_keys: int

    @property
    def num_entries(self) -> int:
        """Rows of a full table."""
        return self.num_buckets * tables.ROWS_PER_BUCKET


SIZES = {
    "table_d8": TableSize(8, 1 << 21, 1 << 20),
    "table_d32": TableSize(32, 1 << 19, 1 << 20),
    "table_d128": TableSize(128, 1 << 18, 1 << 20),
}
TINY_SIZES = {"table_d8": TableSize(8, 4, 16)}


def cells(bench: measure.Bench, name: str, size: TableSize) -> dict[str, dict]:
    """A gather from an array, and finds and inserts in a table, at each load."""
    found = {f"{name}_gather": _gather(bench, size)}
    for load in LOADS:
        table = Filled(bench.gpu, size, load)
        prefix = f"{name}_load{round(100 * load)}"
        found[f"{prefix}_find"] = table.find(bench)
        found[f"{prefix}_find_or_insert"] = table.find_or_insert(bench)
        found[f"{prefix}_find_or_insert_half_new"] = table.insert(bench)
    return found


def _bytes(size: TableSize) -> int:
    """Of each key: itself, and dim floats read and written. Buckets are not counted."""
    return size.batch_keys * (KEY_BYTES + 2 * size.dim * FLOAT_BYTES)


def _gather(bench: measure.Bench, size: TableSize) -> dict:
    rng = np.random.default_rng(0)
    array = inputs.table(bench.gpu, size.num_entries, size.dim)
    asked = [
        lookups.gather(array, bench.gpu.upload(rng.integers(0, size.num_entries, size.batch_keys)))
        for _ in range(inputs.NUM_BATCHES)
    ]
    return bench.entry(asked, [_output(bench.gpu, size)], _bytes(size))


def _output(gpu: Machine, size: TableSize) -> Array:
    return gpu.empty((size.batch_keys * size.dim * FLOAT_BYTES,), np.uint8)


class Filled:
    """A table with rows, and the keys that were inserted last."""

    def __init__(self, gpu: Machine, size: TableSize, load: float):
        self.gpu, self.size, self.step, self.num_keys = gpu, size, 0, 0
        self.out = [_output(gpu, size)]
        bytes_of_all = size.num_entries * (ENTRY_BYTES + size.dim * FLOAT_BYTES)
        self.table = tables.GpuTable(
            gpu,
            size.dim,
            max_bytes=bytes_of_all * 3 // 2,  # not for twice as many
            min_buckets=size.num_buckets,
            eviction="lru",
        )
        # Twice as many keys as entries leave no bucket that is not full.
        wanted = size.num_entries * (2 if load == 1 else load)
        while self.num_keys < wanted:
            self._insert(self._new_keys(size.batch_keys))

    def _new_keys(self, count: int) -> np.ndarray:
        self.num_keys += count
        return workloads.hash64(np.arange(self.num_keys - count, self.num_keys))

    def _recent_keys(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """`[count]` distinct keys of the last quarter of the entries: these are in the table."""
        num_recent = max(self.size.num_entries // 4, 2 * count)
        numbers = rng.choice(num_recent, count, replace=False, shuffle=True)
        return workloads.hash64(self.num_keys - 1 - numbers)

    def _insert(self, keys: np.ndarray) -> None:
        self.step += 1
        planned = self.gpu.plan(self.table.find_or_insert(self.gpu.upload(keys), self.step))
        planned.run(self.out)
        self.gpu.wait()

    def _hits(self) -> list[Array]:
        rng = np.random.default_rng(1)
        batches = range(inputs.NUM_BATCHES)
        return [self.gpu.upload(self._recent_keys(rng, self.size.batch_keys)) for _ in batches]

    def find(self, bench: measure.Bench) -> dict:
        """Of keys that have rows."""
        asked = [self.table.find(keys) for keys in self._hits()]
        cell: dict = bench.entry(asked, self.out, _bytes(self.size))
        return cell | {"mkeys_per_s": self._keys_per_us(cell["run"]["median_us"])}

    def find_or_insert(self, bench: measure.Bench) -> dict:
        """Of keys that have rows: as in a step of training."""
        asked = [self.table.find_or_insert(keys, self.step + 1) for keys in self._hits()]
        bench.gpu.time_steps(asked, [self.out] * len(asked), timing.WARM_UP_STEPS)
        times = bench.gpu.time_steps(asked, [self.out] * len(asked), bench.samples)
        return self._entry(bench, times)

    def insert(self, bench: measure.Bench) -> dict:
        """Of keys half of which have none."""
        rng, half = np.random.default_rng(2), self.size.batch_keys // 2
        batches = []
        for _ in range(WARM_UP_INSERTS + NUM_INSERTS):
            recent = self._recent_keys(rng, half)
            keys = rng.permutation(np.concatenate([recent, self._new_keys(half)]))
            batches.append(self.table.find_or_insert(self.gpu.upload(keys), self.step + 2))
        outputs = [self.out] * len(batches)
        bench.gpu.time_steps(batches, outputs, WARM_UP_INSERTS)
        measured = batches[WARM_UP_INSERTS:]
        times = bench.gpu.time_steps(measured, outputs[WARM_UP_INSERTS:], NUM_INSERTS)
        return self._entry(bench, times)

    def _entry(self, bench: measure.Bench, times: tuple[np.ndarray, np.ndarray]) -> dict:
        """Of plans with their runs: a run needs a plan of its own."""
        num_bytes, (step_us, host_us) = _bytes(self.size), times
        return {
            "step": timing.summary(step_us),
            "end_to_end": timing.summary(host_us),
            "bytes": num_bytes,
            "step_share_of_copy": bench.share_of_copy(num_bytes, step_us),
            "mkeys_per_s": self._keys_per_us(float(np.median(step_us))),
        }

    def _keys_per_us(self, micros: float) -> float:
        return round(self.size.batch_keys / micros, 1)
