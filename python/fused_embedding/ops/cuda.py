"""Loads `_ops_cuda.so`, the kernels for GPUs of the ops in `_ops.so`, where they can run.

Once loaded, TensorFlow places ops on a GPU. So whatever would fail there is found out before.
"""

import ctypes
import json
import pathlib
import re
from collections.abc import Callable, Iterable

import tensorflow as tf
from absl import logging


def _driver_version() -> int | None:
    """The newest CUDA that the driver knows, 12040 for 12.4; None: there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return version.value


def _compute_capabilities() -> list[tuple[int, int]]:
    """Those of the GPUs that TensorFlow sees, (9, 0) for an H200."""
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return [found["compute_capability"] for found in details if "compute_capability" in found]


def _capabilities_of_machine() -> list[tuple[int, int]] | None:
    """Those of all GPUs, whether TensorFlow sees them or not; None: NVML does not tell.

    NVML leaves CUDA uninitialised. A process that has initialised CUDA cannot fork others that use
    it, and importing a package must not be what does it.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")

        def call(name: str, *arguments: object) -> None:
            if getattr(nvml, name)(*arguments) != 0:
                raise OSError(f"{name} failed")

        call("nvmlInit_v2")
        try:
            return _capabilities(call)
        finally:
            nvml.nvmlShutdown()
    except (OSError, AttributeError):  # a function that an old NVML lacks
        return None


def _capabilities(call: Callable[..., None]) -> list[tuple[int, int]]:
    count, major, minor = ctypes.c_uint(), ctypes.c_int(), ctypes.c_int()
    call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    found = []
    for i in range(count.value):
        gpu = ctypes.c_void_p()
        call("nvmlDeviceGetHandleByIndex_v2", i, ctypes.byref(gpu))
        numbers = ctypes.byref(major), ctypes.byref(minor)
        call("nvmlDeviceGetCudaComputeCapability", gpu, *numbers)
        found.append((major.value, minor.value))
    return found


def _has_code_for(capability: tuple[int, int], architectures: Iterable[str]) -> bool:
    """Whether code for `architectures` runs: machine code within a major version, PTX above it."""
    for architecture in architectures:
        built_for = divmod(int(re.sub(r"\D", "", architecture)), 10)
        has_machine_code = not architecture.endswith("-virtual")
        has_ptx = not architecture.endswith("-real")
        is_same_major = built_for[0] == capability[0]
        if built_for <= capability and (has_ptx or (has_machine_code and is_same_major)):
            return True
    return False


def _obstacle(library: pathlib.Path, driver_version: int | None) -> str | None:
    """Why GPUs cannot be used, and what to do; None where they can, or where there is none."""
    if not library.exists():
        return "this fused_embedding was built without CUDA; build it as docs/building.md says"
    if driver_version is None:
        return None
    built = json.loads(library.with_suffix(".json").read_text())
    if driver_version // 1000 < int(built["cuda_version"].split(".")[0]):
        return (
            f"the driver of the GPU is for CUDA {driver_version // 1000}, but fused_embedding was "
            f"built with CUDA {built['cuda_version']}; update the driver, or build with an older "
            "CUDA"
        )
    of_machine = _capabilities_of_machine()
    if of_machine is not None and all(_has_code_for(c, built["architectures"]) for c in of_machine):
        return None
    for capability in _compute_capabilities():
        if not _has_code_for(capability, built["architectures"]):
            found = "{}.{}".format(*capability)
            return (
                f"a GPU has compute capability {found}, but fused_embedding was built for "
                f"{', '.join(built['architectures'])}; build it with FE_CUDA_ARCHITECTURES="
                f"{found.replace('.', '')}"
            )
    return None


_loaded: list[pathlib.Path] = []
_obstacles: list[str] = []  # why not, of the last attempt


def has_kernels() -> bool:
    """Whether the ops have kernels for GPUs in this process."""
    return bool(_loaded)


def why_no_kernels() -> str | None:
    """Why the ops have no kernels for GPUs in this process, and what to do; None: not known."""
    return None if has_kernels() or not _obstacles else _obstacles[-1]


def load_kernels(library: pathlib.Path) -> None:
    """Loads the kernels where TensorFlow has CUDA; says once why where a GPU cannot use them.

    Args:
        library: `_ops_cuda.so`, whether it is there or not.
    """
    if not tf.sysconfig.get_build_info().get("is_cuda_build"):
        _obstacles.append("this TensorFlow was built without CUDA; install tensorflow[and-cuda]")
        return
    driver_version = _driver_version()
    obstacle = _obstacle(library, driver_version)
    if obstacle is None:
        try:
            tf.load_op_library(str(library))
            _loaded.append(library)
        except tf.errors.NotFoundError as error:
            obstacle = f"{error.message}; build it again"
    if obstacle is not None:
        _obstacles.append(obstacle)
    if obstacle is not None and driver_version is not None:
        logging.warning("fused_embedding's ops will not use GPUs, only the CPU: %s", obstacle)
