"""Which kernels `_ops_cuda.so` registers, and when it is loaded at all."""

import json
import pathlib
import re
import subprocess
import sys
import types

import pytest
import tensorflow as tf
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

import fused_embedding as fe
from fused_embedding.ops import cuda

LIBRARY = pathlib.Path(fe.__file__).with_name("_ops_cuda.so")
IS_CUDA_BUILD = tf.sysconfig.get_build_info()["is_cuda_build"]
# The ops that run on a GPU, and the types of each that have kernels of their own.
VALUES = {tf.float32, tf.float64, tf.float16, tf.bfloat16}
IDS = {tf.int32, tf.int64}
GPU_OPS = {
    "EmbeddingVariableApply": {},
    "EmbeddingVariableErase": {},
    "EmbeddingVariableExpire": {},
    "EmbeddingVariableExport": {},
    "EmbeddingVariableGroupLookup": {"dtype": VALUES},
    "EmbeddingVariableGroupLookupGrad": {"T": VALUES},
    "EmbeddingVariableImport": {},
    "EmbeddingVariableInitialize": {},
    "EmbeddingVariableIsInitialized": {},
    "EmbeddingVariableLookup": {},
    "EmbeddingVariableMetadata": {},
    "EmbeddingVariablePrefetch": {},
    "EmbeddingVariableRestore": {},
    "EmbeddingVariableSave": {},
    "EmbeddingVariableSeed": {},
    "EmbeddingVariableStatistics": {},
    "EmbeddingVariableUpsert": {},
    "FusedEmbeddingGather": {"Tid": IDS},
    "FusedEmbeddingGroupLookup": {"T": VALUES},
    "FusedEmbeddingGroupLookupGrad": {"T": VALUES},
    "FusedEmbeddingGroupLookupWeightsGrad": {"T": VALUES},
    "FusedEmbeddingResourceGather": {"Tid": IDS},
    "FusedEmbeddingResourceGroupLookup": {"dtype": VALUES},
    "FusedEmbeddingResourceGroupLookupGrad": {"dtype": VALUES},
    "FusedEmbeddingResourceGroupLookupWeightsGrad": {"dtype": VALUES},
    "FusedEmbeddingResourceSparseApply": {},
    "FusedEmbeddingSparsePostLookUp": {"T": VALUES},
    "FusedEmbeddingSparsePostLookUpGrad": {"T": VALUES},
    "FusedEmbeddingSparsePostLookUpV2": {"T": VALUES},
    "FusedEmbeddingSparsePostLookUpV2Grad": {"T": VALUES},
    "FusedEmbeddingSparsePostLookUpV2WeightsGrad": {"T": VALUES, "Tw": VALUES},
    "FusedEmbeddingSparsePostLookUpWeightsGrad": {"T": VALUES, "Tw": VALUES},
    "FusedEmbeddingSparsePreLookUp": {},
    "PartitionWithPermutation": {},
    "PruneInvalidAndFillEmptyRows": {"Tw": VALUES},
    "PruneInvalidAndFillEmptyRowsGrad": {"Tw": VALUES},
    "UniqueWithCountsV3": {"KeyType": IDS, "CounterType": IDS},
}


def registered(op: str, device: str) -> set[frozenset[tuple[str, tf.DType]]]:
    """The constraints of the kernels of an op, each a set of pairs of an attr and a type."""
    return {
        frozenset(
            (constraint.name, tf.as_dtype(dtype))
            for constraint in kernel.constraint
            for dtype in constraint.allowed_values.list.type
        )
        for kernel in get_registered_kernels_for_op(op).kernel
        if kernel.device_type == device
    }


@pytest.mark.skipif(
    not (IS_CUDA_BUILD and LIBRARY.exists()),
    reason="needs TensorFlow with CUDA and _ops_cuda.so: make cuda",
)
@pytest.mark.parametrize("op", GPU_OPS)
def test_gpu_has_the_kernels_of_the_cpu(op):
    kernels = registered(op, "GPU")
    assert kernels == registered(op, "CPU")
    found = {}
    for constraint in kernels:
        for attr, dtype in constraint:
            found.setdefault(attr, set()).add(dtype)
    assert found == GPU_OPS[op]


@pytest.mark.skipif(
    not (IS_CUDA_BUILD and LIBRARY.exists()),
    reason="needs TensorFlow with CUDA and _ops_cuda.so: make cuda",
)
def test_a_table_in_hbm_has_a_handle():
    assert registered("EmbeddingVariableGpuHandle", "GPU") == {frozenset()}


@pytest.mark.parametrize(
    ("architectures", "runs_on"),
    [
        (["75-real", "90-real"], {(7, 5), (9, 0)}),
        (["80-real"], {(8, 0), (8, 6), (8, 9)}),
        (["80"], {(8, 0), (8, 6), (8, 9), (9, 0), (10, 0)}),
        (["89-virtual"], {(8, 9), (9, 0), (10, 0)}),
        (["90a-real"], {(9, 0)}),
        ([], set()),
    ],
)
def test_knows_which_gpus_its_code_runs_on(architectures, runs_on):
    capabilities = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0)]
    assert {c for c in capabilities if cuda._has_code_for(c, architectures)} == runs_on


@pytest.fixture
def seen():
    """Has an item for each time that TensorFlow was asked for its GPUs, which initialises CUDA."""
    return []


@pytest.fixture
def machine(monkeypatch, tmp_path, seen):
    """Pretends that there is a TensorFlow, a driver, a GPU and a library; returns what happened."""

    def pretend(
        *,
        is_cuda_build=True,
        driver=13000,
        capability=(9, 0),
        of_machine=None,
        is_built=True,
        fails=False,
    ):
        loaded, warnings = [], []
        seen.clear()

        def load(path):
            if fails:
                raise tf.errors.NotFoundError(None, None, "undefined symbol")
            loaded.append(path)

        monkeypatch.setattr(
            tf.sysconfig, "get_build_info", lambda: {"is_cuda_build": is_cuda_build}
        )
        monkeypatch.setattr(tf, "load_op_library", load)
        monkeypatch.setattr(cuda, "_driver_version", lambda: driver)
        monkeypatch.setattr(cuda, "_compute_capabilities", lambda: seen.append(1) or [capability])
        monkeypatch.setattr(cuda, "_capabilities_of_machine", lambda: of_machine)
        monkeypatch.setattr(
            cuda.logging, "warning", lambda *args: warnings.append(args[0] % args[1:])
        )
        library = tmp_path / "_ops_cuda.so"
        if is_built:
            library.touch()
            built = {"cuda_version": "13.0.88", "architectures": ["80-real", "90-real"]}
            library.with_suffix(".json").write_text(json.dumps(built))
        cuda.load_kernels(library)
        return loaded, warnings

    return pretend


@pytest.mark.parametrize("changed", [{}, {"driver": 13010}, {"driver": None}])
def test_loads_where_it_can(machine, changed):
    loaded, warnings = machine(**changed)
    assert [pathlib.Path(path).name for path in loaded] == ["_ops_cuda.so"]
    assert not warnings


@pytest.mark.parametrize(
    ("of_machine", "is_initialised"),
    [(None, True), ([], False), ([(8, 0), (9, 0)], False), ([(9, 0), (7, 5)], True)],
)
def test_cuda_is_initialised_only_to_tell_gpus_apart(machine, seen, of_machine, is_initialised):
    loaded, warnings = machine(of_machine=of_machine)
    assert len(loaded) == 1
    assert not warnings
    assert bool(seen) == is_initialised


NVML = (
    "nvmlInit_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetCudaComputeCapability",
)


def nvml_of(gpus, opened):
    """NVML's functions by name, on a machine with these GPUs; `opened` has an item while it is."""

    def put(*values):
        for pointer, value in values:
            pointer._obj.value = value
        return 0

    functions = (
        lambda: opened.append(1) or 0,
        lambda count: put((count, len(gpus))),
        lambda i, gpu: put((gpu, 100 + i)),
        lambda gpu, *numbers: put(*zip(numbers, gpus[gpu.value - 100], strict=True)),
    )
    return dict(zip(NVML, functions, strict=True)) | {"nvmlShutdown": opened.clear}


def capabilities_by(monkeypatch, functions):
    """What is known of the machine from an NVML that has these functions."""
    library = types.SimpleNamespace(**functions)
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda _: library)
    return cuda._capabilities_of_machine()


@pytest.mark.parametrize("gpus", [[], [(9, 0)], [(8, 0), (9, 0)]])
def test_nvml_tells_the_gpus_of_the_machine(monkeypatch, gpus):
    opened = []
    assert capabilities_by(monkeypatch, nvml_of(gpus, opened)) == gpus
    assert not opened


@pytest.mark.parametrize("name", NVML)
@pytest.mark.parametrize("is_there", [True, False])
def test_nvml_that_fails_or_lacks_a_function_tells_nothing(monkeypatch, name, is_there):
    opened = []
    functions = nvml_of([(9, 0)], opened)
    del functions[name]
    if is_there:
        functions[name] = lambda *_: 999
    assert capabilities_by(monkeypatch, functions) is None
    assert not opened


def test_a_machine_without_nvml_tells_nothing(monkeypatch):
    def cannot_open(name):
        raise OSError(name)

    monkeypatch.setattr(cuda.ctypes, "CDLL", cannot_open)
    assert cuda._capabilities_of_machine() is None


FORKS = """
import os, sys
import fused_embedding as fe
import tensorflow as tf

pid = os.fork()
if pid == 0:
    with tf.device("/GPU:0"):
        table = tf.Variable([[1.0], [2.0]])
        rows = fe.nn.group_embedding_lookup_sparse([table], [tf.sparse.from_dense([[1]])], ["sum"])
    os._exit(0 if rows[0].numpy().tolist() == [[2.0]] else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.gpu
def test_a_process_that_imported_the_package_can_fork_one_that_uses_a_gpu():
    subprocess.run([sys.executable, "-c", FORKS], check=True)


@pytest.mark.gpu
def test_nvml_knows_the_gpus_that_tensorflow_sees():
    assert set(cuda._compute_capabilities()) <= set(cuda._capabilities_of_machine())


@pytest.mark.parametrize("changed", [{"is_cuda_build": False}, {"is_built": False, "driver": None}])
def test_says_nothing_where_no_gpu_could_be_used(machine, changed):
    assert machine(**changed) == ([], [])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"is_built": False}, "was built without CUDA; build it as docs/building.md says"),
        ({"driver": 12040}, "driver of the GPU is for CUDA 12, but .* 13.0.88; update the driver"),
        ({"capability": (7, 5)}, "compute capability 7.5, .* 80-real, 90-real; .*ARCHITECTURES=75"),
        ({"fails": True}, "undefined symbol; build it again"),
    ],
)
def test_says_once_why_gpus_are_not_used(machine, changed, message):
    loaded, warnings = machine(**changed)
    assert not loaded
    (warning,) = warnings
    assert re.search("only the CPU.*" + message, warning)
