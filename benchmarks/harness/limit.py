"""The limit: a plain prefetching C loop over the same ids and table sizes, without TensorFlow.

The loop's source belongs to the project's neutral yardstick, which lies beside the repository and
may be absent; it is compiled when a benchmark starts. Training has two limits, one update for each
occurrence of an id and one for each distinct id; a figure counts against the faster one.
"""

import ctypes
import pathlib
import subprocess
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import workloads

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "bench" / "floor.c"
# -fno-math-errno lets the square root of Adagrad be vectorised.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC", "-lpthread", "-lm")
LEARNING_RATE = 0.01
_ONE_HOT_KINDS = {"forward": 0, "sgd": 1, "adagrad": 2}
_MULTI_HOT_OFFSET = 3  # floor_run numbers the multi-hot loops after the one-hot ones


def compile_loop() -> ctypes.CDLL | None:
    """Compiles and loads the loop; None if its source is not beside the repository."""
    if not SOURCE.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "limit.so"
        subprocess.run(["gcc", str(SOURCE), *FLAGS, "-o", str(library)], check=True)
        loop = ctypes.CDLL(str(library))
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


class Limit:
    """Tables of one workload and the loops over them; memory is freed with the object.

    Attributes:
        combined: `[batch_size, num_columns * dim]` float32 that the forward loop writes.
    """

    def __init__(
        self,
        loop: ctypes.CDLL,
        workload: workloads.Workload,
        threads: int,
        with_slots: bool,
        huge_pages: bool = False,
    ):
        self._loop, self._workload, self._threads = loop, workload, threads
        self._huge_pages = int(huge_pages)  # 4 KiB pages are TensorFlow's, huge ones ours
        self._tables = self._allocate()
        self._slots = self._allocate() if with_slots else None
        self._steps = [self._pointers(batch) for batch in workload.batches()]
        shape = (workload.batch_size, workload.num_columns * workload.dim)
        self.combined = np.zeros(shape, np.float32)
        self._grad = np.full(shape, 1e-3, np.float32)

    def steps(self, phase: str) -> dict[str, Callable[[int], None]]:
        """Returns the loops that do what `phase` does, each for batch i; none for "gradient"."""
        if phase == "forward":
            return {"limit": lambda i: self._run("forward", i)}
        if phase == "gradient":
            return {}

        def each(i: int) -> None:
            self._run("forward", i)
            self._run(phase, i)

        def grouped(i: int) -> None:
            self._run("forward", i)
            self._update_grouped(phase, i)

        return {"limit_each": each, "limit_grouped": grouped}

    def _allocate(self) -> ctypes.Array:
        tables = []
        for rows in self._workload.table_rows:
            num_bytes = rows * self._workload.dim * 4
            tables.append(self._loop.bigalloc(num_bytes, self._huge_pages))
            weakref.finalize(self, self._loop.bigfree, tables[-1], num_bytes)
        return (ctypes.c_void_p * len(tables))(*tables)

    def _pointers(self, batch: workloads.Batch) -> tuple[np.ndarray, np.ndarray | None]:
        if batch.row_lengths is None:
            return np.ascontiguousarray(batch.ids), None
        offsets = np.concatenate([[0], np.cumsum(batch.row_lengths)]).astype(np.int64)
        return batch.ids, offsets

    def _run(self, kind: str, i: int) -> None:
        ids, offsets = self._steps[i % len(self._steps)]
        size, number = self._workload, _ONE_HOT_KINDS[kind]
        num_items = size.num_columns * size.batch_size
        data = self.combined if kind == "forward" else self._grad
        if offsets is not None:
            number += _MULTI_HOT_OFFSET
        self._loop.floor_run(
            *(number, self._threads, self._tables, self._slots, ids.ctypes.data),
            *(_address(offsets), size.num_columns, size.batch_size, size.dim),
            *(data.ctypes.data, LEARNING_RATE, num_items, None, None, 0, None),
        )

    def _update_grouped(self, kind: str, i: int) -> None:
        ids, offsets = self._steps[i % len(self._steps)]
        size = self._workload
        slots = self._slots if kind == "adagrad" else None
        self._loop.floor_grouped(
            *(self._threads, self._tables, slots, ids.ctypes.data, _address(offsets)),
            *(size.num_columns, size.batch_size, size.dim, self._grad.ctypes.data, LEARNING_RATE),
        )


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
        self._pool = loop.bigalloc(num_bytes, 1)  # 1: huge pages, as ours
        weakref.finalize(self, loop.bigfree, self._pool, num_bytes)
        keys = np.ascontiguousarray(keys)
        index = (self._keys.ctypes.data, self._rows.ctypes.data, num_slots - 1)
        loop.hbuild(*index, keys.ctypes.data, len(keys))
        self._index = index
        self._out: dict[int, np.ndarray] = {}

    def find(self, keys: np.ndarray) -> None:
        """Copies the rows of `keys` `[n]` out."""
        n = len(keys)
        if n not in self._out:
            self._out[n] = np.zeros((n, self._dim), np.float32)
        out = self._out[n].ctypes.data
        self._loop.floor_run(
            *(self._FIND, 1, None, None, keys.ctypes.data, None),
            *(1, n, self._dim, out, 0.0, n, *self._index, self._pool),
        )


def _address(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data
