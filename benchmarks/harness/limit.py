"""The limit: a plain prefetching C loop over the same ids and table sizes, without TensorFlow.

The loop's source belongs to the project's neutral yardstick, which lies beside the repository and
may be absent; the first benchmark compiles it. Training has two limits, one update for each
occurrence of an id and one for each distinct id; a figure counts against the faster one. The loop
knows float32 alone, sums of one-hot columns and means of others. It gives ids no weights: it reads
the same rows and does less, so a figure against it is an upper bound.
"""

import ctypes
import dataclasses
import functools
import hashlib
import itertools
import pathlib
import subprocess
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import machine, workloads

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "bench" / "floor.c"
# -fno-math-errno lets the square root of Adagrad be vectorised.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC", "-lpthread", "-lm")
LEARNING_RATE = 0.01
BY_KEY = "limit_by_key"
NAMES = ("limit", "limit_each", "limit_grouped", BY_KEY)
HUGE_PAGES = 1  # as our tables have, with a vocabulary and without
_ONE_HOT_KINDS = {"forward": 0, "sgd": 1, "adagrad": 2}
_MULTI_HOT_OFFSET = 3  # floor_run numbers the multi-hot loops after the one-hot ones


@functools.cache
def compile_loop() -> ctypes.CDLL | None:
    """Loads the loop, compiled; None if its source is not beside the repository."""
    if not SOURCE.exists():
        return None
    loop = ctypes.CDLL(str(_library()))
    pointer, integer, int64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    number, uint64 = ctypes.c_float, ctypes.c_uint64
    loop.bigalloc.restype = pointer
    loop.bigalloc.argtypes = [ctypes.c_size_t, integer]
    loop.bigfree.argtypes = [pointer, ctypes.c_size_t]
    # Columns, rows, dim, out or grad, rate.
    shapes: list[Any] = [integer, int64, integer, pointer, number]
    loop.floor_run.argtypes = [integer, integer, *[pointer] * 4, *shapes]
    loop.floor_run.argtypes += [int64, pointer, pointer, uint64, pointer]
    loop.hbuild.argtypes = [pointer, pointer, uint64, pointer, int64]
    loop.floor_grouped.argtypes = [integer, *[pointer] * 4, *shapes]
    return loop


def _library() -> pathlib.Path:
    """The compiled loop, which benchmarks of this checkout share: each is a process."""
    compiler = subprocess.check_output(["gcc", "--version"], text=True)
    of_what = f"{machine.describe_host()['cpu']} {compiler} {FLAGS} {SOURCE.read_text()}"
    name = hashlib.sha256(of_what.encode()).hexdigest()[:16]
    library = machine.ROOT / "build" / f"limit-{name}.so"
    if not library.exists():
        library.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            compiled = pathlib.Path(folder) / library.name
            subprocess.run(["gcc", str(SOURCE), *FLAGS, "-o", str(compiled)], check=True)
            compiled.replace(library)  # at once: others may be loading it
    return library


def takes(workload: workloads.Workload) -> bool:
    """Whether the loop can do what a step of the workload does, but for weights."""
    return workload.dtype == "float32" and all(
        column.combiner == ("sum" if column.is_one_hot else "mean") for column in workload.columns
    )


@dataclasses.dataclass(frozen=True)
class _Part:
    """Columns that one call takes: one-hot ones of equal dim beside each other, or another one.

    Attributes:
        shape: number of columns, batch size and dim.
        steps: of each batch `[num_columns, batch_size]` ids and None, or `[nnz]` ids and offsets.
        combined: `[batch_size, num_columns * dim]` float32 that the forward loop writes.
    """

    shape: tuple[int, int, int]
    tables: ctypes.Array
    slots: ctypes.Array | None
    steps: list[tuple[np.ndarray, np.ndarray | None]]
    combined: np.ndarray
    grad: np.ndarray


class Limit:
    """Tables of one workload and the loops over them; memory is freed with the object."""

    def __init__(
        self,
        loop: ctypes.CDLL,
        workload: workloads.Workload,
        threads: int,
        with_slots: bool,
        by_key: bool = False,
    ):
        self._loop, self._workload, self._threads = loop, workload, threads
        batches = workload.batches()
        self._parts = [
            self._part(list(columns), batches, with_slots)
            for _, columns in itertools.groupby(range(workload.num_columns), self._call_of)
        ]
        is_one_hot = all(column.is_one_hot for column in workload.columns)
        has_loop = by_key and is_one_hot and threads == 1
        self._by_key = KeyLimit(loop, workload) if has_loop else None

    @property
    def combined(self) -> np.ndarray:
        """`[batch_size, total_dim]` float32 that the forward loop wrote last."""
        return np.concatenate([part.combined for part in self._parts], axis=1)

    def steps(self, phase: str) -> dict[str, Callable[[int], object]]:
        """Returns the loops that do what `phase` does, each for batch i; none for "gradient"."""
        if phase == "forward":
            loops: dict[str, Callable[[int], object]] = {"limit": lambda i: self._run("forward", i)}
            return loops | ({BY_KEY: self._by_key.find} if self._by_key else {})
        if phase == "gradient":
            return {}

        def each(i: int) -> None:
            self._run("forward", i)
            self._run(phase, i)

        def grouped(i: int) -> None:
            self._run("forward", i)
            self._update_grouped(phase, i)

        return {"limit_each": each, "limit_grouped": grouped}

    def _call_of(self, column: int) -> tuple[int, int]:
        """Equal for columns that one call takes: their dim, and the number of another one."""
        of = self._workload.columns[column]
        return of.dim, -1 if of.is_one_hot else column

    def _part(self, columns: list[int], batches: list[workloads.Batch], with_slots: bool) -> _Part:
        size, dim = self._workload.batch_size, self._workload.columns[columns[0]].dim
        steps = [_arguments([batch.columns[c] for c in columns]) for batch in batches]
        shape = (size, len(columns) * dim)
        return _Part(
            (len(columns), size, dim),
            self._allocate(columns),
            self._allocate(columns) if with_slots else None,
            steps,
            combined=np.zeros(shape, np.float32),
            grad=np.full(shape, 1e-3, np.float32),
        )

    def _allocate(self, columns: list[int]) -> ctypes.Array:
        tables = []
        for column in columns:
            of = self._workload.columns[column]
            num_bytes = of.rows * of.dim * 4
            tables.append(self._loop.bigalloc(num_bytes, HUGE_PAGES))
            weakref.finalize(self, self._loop.bigfree, tables[-1], num_bytes)
        return (ctypes.c_void_p * len(tables))(*tables)

    def _run(self, kind: str, i: int) -> None:
        for part in self._parts:
            ids, offsets = part.steps[i % len(part.steps)]
            data = part.combined if kind == "forward" else part.grad
            number = _ONE_HOT_KINDS[kind] + (0 if offsets is None else _MULTI_HOT_OFFSET)
            num_items = part.shape[0] * part.shape[1]
            self._loop.floor_run(
                *(number, self._threads, part.tables, part.slots, ids.ctypes.data),
                *(_address(offsets), *part.shape, data.ctypes.data, LEARNING_RATE),
                *(num_items, None, None, 0, None),
            )

    def _update_grouped(self, kind: str, i: int) -> None:
        for part in self._parts:
            ids, offsets = part.steps[i % len(part.steps)]
            slots = part.slots if kind == "adagrad" else None
            self._loop.floor_grouped(
                *(self._threads, part.tables, slots, ids.ctypes.data, _address(offsets)),
                *(*part.shape, part.grad.ctypes.data, LEARNING_RATE),
            )


def _arguments(columns: list[workloads.ColumnIds]) -> tuple[np.ndarray, np.ndarray | None]:
    """The ids of columns that one call takes, and the offsets of rows in those of another one."""
    lengths = columns[0].row_lengths
    if lengths is None:
        return np.stack([column.ids for column in columns]), None
    return columns[0].ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


class HashLimit:
    """Linear probing with prefetching over rows on huge pages; memory is freed with the object."""

    _FIND = 6  # of floor_run
    _MAX_LOAD = 1 / 1.5

    def __init__(self, loop: ctypes.CDLL, keys: np.ndarray, dim: int):
        self._loop, self._dim = loop, dim
        num_slots = 1
        while len(keys) > num_slots * self._MAX_LOAD:
            num_slots *= 2
        self._keys, self._rows = np.empty(num_slots, np.uint64), np.empty(num_slots, np.uint32)
        num_bytes = len(keys) * dim * 4
        self._pool = loop.bigalloc(num_bytes, HUGE_PAGES)
        weakref.finalize(self, loop.bigfree, self._pool, num_bytes)
        keys = np.ascontiguousarray(keys)
        index = (self._keys.ctypes.data, self._rows.ctypes.data, num_slots - 1)
        loop.hbuild(*index, keys.ctypes.data, len(keys))
        self._index = index
        self._out: dict[int, np.ndarray] = {}

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Returns the rows of `keys` `[n]`, in memory that the next call overwrites."""
        n = len(keys)
        if n not in self._out:
            self._out[n] = np.zeros((n, self._dim), np.float32)
        out = self._out[n]
        self._loop.floor_run(
            *(self._FIND, 1, None, None, keys.ctypes.data, None),
            *(1, n, self._dim, out.ctypes.data, 0.0, n, *self._index, self._pool),
        )
        return out


class KeyLimit:
    """Such a table for each column of a workload of one-hot columns, whose ids are the keys.

    Rows by key cost at least this: two places of memory that depend on each other, where the rows
    of the other loops are one. An id is found as often as it occurs.
    """

    def __init__(self, loop: ctypes.CDLL, workload: workloads.Workload):
        self._tables = [
            HashLimit(loop, np.arange(column.rows), column.dim) for column in workload.columns
        ]
        self._batches = [
            [np.ascontiguousarray(column.ids) for column in batch.columns]
            for batch in workload.batches()
        ]

    def find(self, i: int) -> list[np.ndarray]:
        """Returns the rows of batch i, of each column."""
        batch = self._batches[i % len(self._batches)]
        return [table.find(ids) for table, ids in zip(self._tables, batch, strict=True)]


def _address(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data
