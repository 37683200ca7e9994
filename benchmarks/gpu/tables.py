"""Tables by key in the memory of a GPU, and what they can be asked for: core/table/gpu."""

import ctypes
import weakref
from collections.abc import Sequence

import numpy as np

from benchmarks.gpu import core
from benchmarks.gpu.core import Array, FeArray, Lookup, Machine, c_struct, fields, view

EVICTIONS = ("none", "lru", "lfu")
ROWS_PER_BUCKET = 64

FeGpuTableConfig = c_struct(
    "FeGpuTableConfig",
    *fields(int64="dim max_bytes min_buckets", double="initial_low initial_high"),
    *fields(int32="dtype eviction"),
    ("rule", ctypes.c_char_p),
    ("hyperparameters", FeArray),
)
FeGpuTableSizes = c_struct("FeGpuTableSizes", int64="num_buckets memory_bytes")
FeTableKeys = c_struct("FeTableKeys", ("table", ctypes.c_void_p), array="keys", int64="step")
FeTableApply = c_struct(
    "FeTableApply",
    ("table", ctypes.c_void_p),
    *fields(array="keys grads"),
    ("rule", ctypes.c_char_p),
    ("hyperparameters", FeArray),
)
Rule = tuple[str, Sequence[float]]  # and its hyperparameters, in its order


def _declare(library: ctypes.CDLL) -> None:
    """Not in core.load, which also loads libraries of older commits, without tables."""
    library.FeOpenGpuTable.argtypes = [ctypes.c_void_p] * 3
    library.FeOpenGpuTable.restype = ctypes.c_char_p
    library.FeMeasureGpuTable.argtypes = [ctypes.c_void_p] * 2
    library.FeMeasureGpuTable.restype = None
    library.FeCloseGpuTable.argtypes = [ctypes.c_void_p]
    library.FeCloseGpuTable.restype = None


class GpuTable:
    """Rows of float32 by int64 key. First values are uniform between -1 and 1."""

    def __init__(
        self,
        machine: Machine,
        dim: int,
        *,
        max_bytes: int,
        rule: Rule | None = None,
        min_buckets: int = 1,
        eviction: str = "none",
    ):
        """Takes the memory of `min_buckets` buckets. `rule`: whose slots rows have.

        Raises:
            core.CoreError: The machine is no GPU, has too little memory, or a number is wrong.
        """
        self.machine, self.dim = machine, dim
        _declare(machine.library)
        numbers = np.array(rule[1] if rule else (), np.float64)
        of_rule = (rule[0].encode() if rule else None, FeArray(numbers.ctypes.data, numbers.size))
        sizes = (dim, max_bytes, min_buckets)
        config = FeGpuTableConfig(*sizes, -1.0, 1.0, 0, EVICTIONS.index(eviction), *of_rule)
        handle = ctypes.c_void_p()
        arguments = (ctypes.addressof(config), ctypes.addressof(handle))
        core.check(machine.library.FeOpenGpuTable(machine.handle, *arguments))
        self.handle = handle.value
        weakref.finalize(self, machine.library.FeCloseGpuTable, self.handle)

    def sizes(self) -> tuple[int, int]:
        """Buckets, and bytes of the GPU's memory."""
        sizes = FeGpuTableSizes()
        self.machine.library.FeMeasureGpuTable(self.handle, ctypes.addressof(sizes))
        return sizes.num_buckets, sizes.memory_bytes

    def find(self, keys: Array) -> Lookup:
        """Values `[n, dim]`; the first value of a key without a row, which does not get one."""
        return self._of_keys("table_find", keys)

    def find_or_insert(self, keys: Array, step: int = 0) -> Lookup:
        """Values `[n, dim]`; a key without a row gets one."""
        return self._of_keys("table_find_or_insert", keys, step)

    def erase(self, keys: Array) -> Lookup:
        """Whether each key had a row, `[n]` bool."""
        outputs = ((np.dtype(np.bool_), (-1,)),)
        return Lookup("table_erase", FeTableKeys(self.handle, view(keys), 0), (self, keys), outputs)

    def apply(self, keys: Array, grads: Array, rule: Rule) -> Lookup:
        """No output: a step of the rule by `grads` `[n, dim]` on the rows of the keys."""
        numbers = np.array(rule[1], np.float64)
        of_rule = (rule[0].encode(), FeArray(numbers.ctypes.data, numbers.size))
        struct = FeTableApply(self.handle, view(keys), view(grads), *of_rule)
        return Lookup("table_apply", struct, (self, keys, grads, numbers), ())

    def _of_keys(self, name: str, keys: Array, step: int = 0) -> Lookup:
        row_bytes = self.dim * np.dtype(np.float32).itemsize
        outputs = ((np.dtype(np.uint8), (-1, row_bytes)),)
        return Lookup(name, FeTableKeys(self.handle, view(keys), step), (self, keys), outputs)
