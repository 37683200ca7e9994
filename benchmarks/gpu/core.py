"""A GPU, or the CPU, that runs core's lookups, by ctypes over tf_ops/c_api/core_api.h.

No TensorFlow. `benchmarks.gpu.lookups` has the lookups:

    gpu = core.Machine(core.load("build/gpu_build/core_gpu.so"))
    unique_ids, counts = gpu.run(lookups.unique(gpu, gpu.upload(ids)))
"""

import ctypes
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_Pointer, _Int32, _Int64, _Float64 = (
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.c_double,
)


class FeArray(ctypes.Structure):
    """Memory of a machine; null where there are no elements."""

    _fields_ = (("data", _Pointer), ("size", _Int64))


def fields(**types: str) -> list[tuple[str, type]]:
    """Fields of a struct: the names of each type; a type that comes twice ends in `_`."""
    kinds = {"array": FeArray, "int64": _Int64, "double": _Float64, "int32": _Int32}
    return [
        (name, kinds[kind.rstrip("_")]) for kind, names in types.items() for name in names.split()
    ]


def c_struct(name: str, *first: tuple[str, type], **types: str) -> type[ctypes.Structure]:
    """A struct of core_api.h: fields that are no `fields`, then those."""
    return type(name, (ctypes.Structure,), {"_fields_": (*first, *fields(**types))})


class FeBatches(ctypes.Structure):
    """Inputs and outputs of several batches."""

    _fields_ = (
        ("lookup", ctypes.c_char_p),
        ("inputs", ctypes.POINTER(_Pointer)),
        ("outputs", ctypes.POINTER(FeArray)),
        *fields(int64="num_batches num_outputs"),
    )


class Counters(ctypes.Structure):
    """Launches of kernels, waits of the host, allocations by core; see core_api.h."""

    _fields_ = fields(int64="launches waits allocations")

    def __sub__(self, earlier: "Counters") -> dict[str, int]:
        """What happened since."""
        return {name: getattr(self, name) - getattr(earlier, name) for name, _ in self._fields_}


def load(path: str) -> ctypes.CDLL:
    """Loads core_gpu.so or core_emulated.so.

    Raises:
        OSError: There is no such library, or it does not fit this machine.
    """
    library = ctypes.CDLL(path)
    pointer_to = ctypes.POINTER
    signatures = {
        "FeOpenGpu": [pointer_to(_Pointer)],
        "FeOpenCpu": [_Int32, pointer_to(_Pointer)],
        "FeAllocate": [_Pointer, _Int64, pointer_to(_Pointer)],
        "FeFree": [_Pointer, _Pointer],
        "FeCopy": [_Pointer, _Pointer, _Pointer, _Int64],
        "FePlan": [_Pointer, ctypes.c_char_p, _Pointer, pointer_to(_Pointer)],
        "FeRun": [_Pointer, pointer_to(FeArray), _Int64],
        "FeWait": [_Pointer],
        "FeTimeRuns": [_Pointer, pointer_to(FeBatches), FeArray, _Int64, _Pointer],
        "FeTimeSteps": [_Pointer, pointer_to(FeBatches), _Int64, _Pointer, _Pointer],
    }
    for name, types in signatures.items():
        getattr(library, name).argtypes = types
        getattr(library, name).restype = ctypes.c_char_p
    library.FeOutputSizes.argtypes = [_Pointer, pointer_to(_Int64), _Int64]
    library.FeOutputSizes.restype = _Int64
    library.FeShuffleOrder.argtypes = [ctypes.c_uint64]
    for name, types in {"FeClose": [_Pointer], "FeDrop": [_Pointer]}.items():
        getattr(library, name).argtypes = types
        getattr(library, name).restype = None
    library.FeCount.argtypes = [_Pointer, pointer_to(Counters)]
    return library


class CoreError(Exception):
    """An error that core reports; the text is core's."""


def check(error: bytes | None) -> None:
    """Raises what a C function returned.

    Raises:
        CoreError: It is no null pointer.
    """
    if error is not None:
        raise CoreError(error.decode())


class Array:
    """An array in the memory of a machine, which other libraries can read in place."""

    def __init__(self, machine: "Machine", shape: tuple[int, ...], dtype: np.dtype):
        self.machine, self.shape, self.dtype = machine, shape, np.dtype(dtype)
        self.address = machine.allocate(self.num_bytes)
        weakref.finalize(self, machine.library.FeFree, machine.handle, self.address)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def num_bytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict:
        """So that PyTorch and CuPy use the memory as it is."""
        data = (self.address, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3}

    def part(self, start: int, shape: tuple[int, ...]) -> "ArrayPart":
        """The elements from `start` on, in the same memory."""
        return ArrayPart(self, self.address + start * self.dtype.itemsize, shape)

    def numpy(self) -> np.ndarray:
        """A copy in host memory."""
        out = np.empty(self.shape, self.dtype)
        self.machine.copy(out.ctypes.data, self.address, self.num_bytes)
        return out


class ArrayPart(Array):
    """A part of an array."""

    def __init__(self, whole: Array, address: int, shape: tuple[int, ...]):
        self.machine, self.shape, self.dtype = whole.machine, shape, whole.dtype
        self.address, self._whole = address, whole


class Lookup(NamedTuple):
    """What core is asked for.

    Attributes:
        name: As FePlan knows it.
        struct: Its input; tests spoil its fields.
        used: What the struct points to.
        outputs: dtype and shape of each output, of which one dimension may be -1.
    """

    name: str
    struct: ctypes.Structure
    used: tuple
    outputs: tuple[tuple[np.dtype, tuple[int, ...]], ...]


class Machine:
    """A GPU, or threads of the CPU.

    Attributes:
        is_emulated: Whether a GPU is the processor, by tests/cuda_emulation.
    """

    def __init__(self, library: ctypes.CDLL, threads: int | None = None):
        """Opens the GPU, or the CPU where `threads` says with how many.

        Raises:
            CoreError: There is no GPU.
        """
        self.library, self.threads = library, threads
        handle = _Pointer()
        if threads is None:
            check(library.FeOpenGpu(ctypes.byref(handle)))
        else:
            check(library.FeOpenCpu(threads, ctypes.byref(handle)))
        self.handle = handle.value
        self.is_emulated = threads is None and bool(library.FeIsEmulated())
        weakref.finalize(self, library.FeClose, self.handle)

    def allocate(self, num_bytes: int) -> int:
        """The address of new memory."""
        address = _Pointer()
        check(self.library.FeAllocate(self.handle, num_bytes, ctypes.byref(address)))
        return address.value or 0

    def copy(self, to: int, source: int, num_bytes: int) -> None:
        """Copies between host memory and the machine's, and waits."""
        check(self.library.FeCopy(self.handle, to, source, num_bytes))

    def wait(self) -> None:
        """Returns when all runs are done."""
        check(self.library.FeWait(self.handle))

    def counters(self) -> Counters:
        """Those up to here."""
        counters = Counters()
        self.library.FeCount(self.handle, ctypes.byref(counters))
        return counters

    def empty(self, shape: tuple[int, ...], dtype: type | np.dtype) -> Array:
        """Memory that nobody wrote to."""
        return Array(self, shape, np.dtype(dtype))

    def upload(self, values: np.ndarray) -> Array:
        """A copy of `values` in the machine's memory."""
        values = np.ascontiguousarray(values)
        array = self.empty(values.shape, values.dtype)
        self.copy(array.address, values.ctypes.data, array.num_bytes)
        return array

    def plan(self, lookup: Lookup) -> "Planned":
        """Checks inputs and finds the sizes of outputs.

        Raises:
            CoreError: An input is wrong.
        """
        return Planned(self, lookup)

    def run(self, lookup: Lookup) -> list[Array]:
        """Plans and runs; returns the outputs, which are there after a wait or a copy.

        Raises:
            CoreError: An input is wrong.
        """
        planned = self.plan(lookup)
        outputs = planned.allocate()
        planned.run(outputs)
        return outputs

    def time_runs(
        self,
        lookups: Sequence[Lookup],
        outputs: list[list[Array]],
        samples: int,
        plug: Array | None,
    ) -> np.ndarray:
        """`[samples]` float64 microseconds of the stream in each run; lookups take turns."""
        stream_us = np.empty(samples)
        batches, _used = _batches(lookups, outputs)
        arguments = (ctypes.byref(batches), view(plug), samples, stream_us.ctypes.data)
        check(self.library.FeTimeRuns(self.handle, *arguments))
        return stream_us

    def time_steps(
        self, lookups: Sequence[Lookup], outputs: list[list[Array]], samples: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`[samples]` microseconds of the stream and of the host, in each plan with its run."""
        stream_us, host_us = np.empty(samples), np.empty(samples)
        batches, _used = _batches(lookups, outputs)
        arguments = (ctypes.byref(batches), samples, stream_us.ctypes.data, host_us.ctypes.data)
        check(self.library.FeTimeSteps(self.handle, *arguments))
        return stream_us, host_us


class Planned:
    """A lookup whose sizes are known."""

    def __init__(self, machine: Machine, lookup: Lookup):
        self.machine, self._lookup = machine, lookup
        handle = _Pointer()
        address = ctypes.addressof(lookup.struct)
        name = lookup.name.encode()
        check(machine.library.FePlan(machine.handle, name, address, ctypes.byref(handle)))
        self._handle = handle.value
        weakref.finalize(self, machine.library.FeDrop, self._handle)

    def sizes(self) -> list[int]:
        """Elements of each output."""
        output_sizes = self.machine.library.FeOutputSizes
        sizes = (_Int64 * output_sizes(self._handle, None, 0))()
        output_sizes(self._handle, sizes, len(sizes))
        return list(sizes)

    def allocate(self) -> list[Array]:
        """Memory for the outputs."""
        outputs = []
        for size, (dtype, shape) in zip(self.sizes(), self._lookup.outputs, strict=True):
            known = int(np.prod([n for n in shape if n >= 0], dtype=object))
            rows = size // known if known else 0
            outputs.append(self.machine.empty(tuple(rows if n < 0 else n for n in shape), dtype))
        return outputs

    def run(self, outputs: Sequence[Array]) -> None:
        """Enqueues the run.

        Raises:
            CoreError: An output is too small, or an id is outside a table of the CPU's gather.
        """
        views = (FeArray * len(outputs))(*map(view, outputs))
        check(self.machine.library.FeRun(self._handle, views, len(views)))


def view(array: Array | None) -> FeArray:
    """What core gets; None: no elements."""
    return FeArray() if array is None else FeArray(array.address if array.size else 0, array.size)


def _batches(
    lookups: Sequence[Lookup], outputs: Sequence[Sequence[Array]]
) -> tuple[FeBatches, tuple]:
    """The struct, and what it points to."""
    inputs = (_Pointer * len(lookups))(*(ctypes.addressof(lookup.struct) for lookup in lookups))
    views = [view(array) for arrays in outputs for array in arrays]
    flat = (FeArray * len(views))(*views)
    name = lookups[0].name.encode()
    struct = FeBatches(name, inputs, flat, len(lookups), len(views) // len(lookups))
    return struct, (inputs, flat, name)
