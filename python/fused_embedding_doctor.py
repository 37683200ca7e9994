"""`fused-embedding doctor`: whether this installation works, what is missing, and what to do.

A module beside the package, as `fused_embedding_cli` is, because it runs where the import of the
package fails. It imports neither the package nor TensorFlow. A process of its own does, and if that
one fails or crashes, the doctor says how.
"""

import argparse
import ctypes
import importlib.util
import json
import mmap
import os
import pathlib
import platform
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

PACKAGE = pathlib.Path(__file__).with_name("fused_embedding")
SUPPORTED = "2.15 to 2.21"
_SYSTEM = pathlib.Path("/")  # a test has another one
_MAX_SECONDS = 300  # for TensorFlow's import from a slow disk

# What core/base/simd.cc asks of a CPU, by the names in /proc/cpuinfo; best level first.
SIMD_LEVELS = {
    "AVX-512": ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "AVX2": ("avx2", "fma", "f16c"),
}

# Prints a JSON object after each step, so that the last one tells how far a crash came.
_PROBE = """
import json
def tell(**facts):
    print("DOCTOR", json.dumps(facts), flush=True)
import tensorflow as tf
tell(tensorflow=tf.__version__, is_cuda_build=bool(tf.sysconfig.get_build_info()["is_cuda_build"]))
try:
    import keras
    tell(keras=keras.__version__)
except Exception as error:
    tell(keras_error=str(error))
import fused_embedding as fe
from fused_embedding.ops import cuda, disabled
tell(imported=fe.__version__)
ids = tf.RaggedTensor.from_row_splits(tf.constant([2, 0, 1], tf.int64), [0, 2, 3])
table = tf.Variable([[1.0], [2.0], [4.0]])
sums = fe.nn.fused_safe_embedding_lookup_sparse(table, ids.to_sparse(), combiner="sum")
tell(sums=sums.numpy().ravel().tolist())
disabled.is_disabled("lookup")
tell(disabled_is_valid=True)
tell(gpus=len(tf.config.list_physical_devices("GPU")), has_gpu_kernels=cuda.has_kernels(),
     no_gpu_kernels=cuda.why_no_kernels())
"""
_SUMS = [5.0, 2.0]  # what the lookup of the probe must give


class Check(NamedTuple):
    """One line of the doctor.

    Attributes:
        name: What was looked at.
        state: "OK"; "missing": an optional part is not there; "slower": it works, and would be
            faster; "BROKEN": the package cannot work; "not known".
        found: What was found.
        to_do: What to do about it; "" if nothing.
    """

    name: str
    state: str
    found: str
    to_do: str = ""


class Probe(NamedTuple):
    """What a process of its own found.

    Attributes:
        facts: What it told, by name; those of steps that it did not reach are missing.
        error: Its last line of errors, or the signal that ended it; "": it reached the end.
    """

    facts: Mapping[str, Any]
    error: str


def main(argv: Sequence[str]) -> int:
    """Prints what was found.

    Args:
        argv: The arguments after the command: `--json` or none.

    Returns:
        The exit status: 0 if the package works, 1 if it cannot, 2 for unusable arguments.
    """
    parser = argparse.ArgumentParser(
        prog="fused-embedding doctor", description="Says what this installation has and lacks."
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    try:
        as_json = parser.parse_args(list(argv)).json
    except SystemExit as stopped:
        return int(stopped.code or 0)
    checks = examine()
    is_usable = all(check.state != "BROKEN" for check in checks)
    if as_json:
        found = {"usable": is_usable, "checks": [check._asdict() for check in checks]}
        print(json.dumps(found, indent=2))
    else:
        print(as_text(checks, is_usable))
    return 0 if is_usable else 1


def examine() -> list[Check]:
    """Looks at everything, in the order of the output.

    Returns:
        The checks.
    """
    probe = run_probe()
    flags = cpu_flags()
    return [
        tensorflow_check(probe),
        library_check(probe.facts.get("tensorflow")),
        import_check(probe),
        switch_check(probe, os.environ.get("FE_DISABLE", "")),
        keras_check(probe, is_there("tf_keras")),
        cpu_check(flags),
        cores_check(num_cores(), cpu_quota()),
        memory_check(),
        huge_pages_check(),
        gpu_check(probe, has_driver()),
        rocksdb_check(),
        plots_check([name for name in ("matplotlib", "scipy", "tqdm") if not is_there(name)]),
    ]


def as_text(checks: Sequence[Check], is_usable: bool) -> str:
    """The checks as a table, with what to do below each.

    Args:
        checks: The checks.
        is_usable: Whether none is broken.

    Returns:
        Lines for a terminal.
    """
    widths = [max(len(check[column]) for check in checks) for column in (0, 1)]
    lines = []
    for check in checks:
        found, *more = check.found.splitlines() or [""]
        lines.append(f"{check.name:{widths[0]}}  {check.state:{widths[1]}}  {found}".rstrip())
        indent = " " * (sum(widths) + 4)
        lines += [indent + line for line in more]
        lines += [f"{indent}to do: {check.to_do}"] if check.to_do else []
    verdict = "fused_embedding works here" if is_usable else "fused_embedding cannot work here"
    return "\n".join([*lines, "", verdict])


def run_probe(python: str = sys.executable) -> Probe:
    """Imports TensorFlow and the package in a process of its own, and does one lookup.

    Args:
        python: The interpreter.

    Returns:
        What it told.
    """
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [python, "-c", _PROBE]
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=_MAX_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Probe({}, f"it did not end within {_MAX_SECONDS} s")
    facts: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("DOCTOR "):
            facts.update(json.loads(line.removeprefix("DOCTOR ")))
    if done.returncode < 0:
        return Probe(facts, f"the process was ended by {signal.Signals(-done.returncode).name}")
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return Probe(facts, last if done.returncode else "")


# --- What must be there ---


def built_for() -> str | None:
    """The TensorFlow that the library was built for: "2.21.0"; None: the build has not run."""
    info = PACKAGE / "_build_info.py"
    found = re.search(r'^TENSORFLOW_VERSION = "(.+)"$', _text(info), re.MULTILINE)
    return found[1] if found else None


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def tensorflow_check(probe: Probe) -> Check:
    """Whether there is a TensorFlow, and one that the library is for."""
    version, wanted = probe.facts.get("tensorflow"), built_for()
    wheel = f'pip install "tensorflow-cpu=={_minor(wanted)}.*"' if wanted else ""
    if version is None and not is_there("tensorflow"):
        to_do = wheel or f"pip install tensorflow-cpu, a version of {SUPPORTED}"
        return Check("TensorFlow", "BROKEN", f"not installed for {sys.executable}", to_do)
    if version is None:
        return Check("TensorFlow", "BROKEN", f"import tensorflow fails: {probe.error}", wheel)
    if wanted is None or _minor(wanted) == _minor(version):
        is_for_it = ", which the library was built for" if wanted else ""
        return Check("TensorFlow", "OK", f"{version}{is_for_it}; Python {_python()}")
    found = f"{version}, but the library was built for {wanted}"
    to_do = f"{_distribution('command_for_tensorflow', _minor(version))}; or {wheel}"
    return Check("TensorFlow", "BROKEN", found, to_do)


def _python() -> str:
    return platform.python_version()


def library_check(tensorflow: str | None) -> Check:
    """Whether `_ops.so` is there, and what it was built for."""
    library, wanted = PACKAGE / "_ops.so", built_for()
    if wanted is None or not library.exists():
        to_do = "pip install . in the source folder, or make build"
        return Check("library", "BROKEN", f"{library} has not been built", to_do)
    megabytes = library.stat().st_size / 1e6
    found = f"{library} ({megabytes:.1f} MB), built for TensorFlow {wanted}"
    fits = tensorflow is None or _minor(tensorflow) == _minor(wanted)
    return Check("library", "OK" if fits else "BROKEN", found)


def import_check(probe: Probe) -> Check:
    """Whether `import fused_embedding` works, and a lookup gives the sums that it must."""
    sums = probe.facts.get("sums")
    if "imported" not in probe.facts:
        why = probe.error if "tensorflow" in probe.facts else "TensorFlow does not import"
        return Check("import", "BROKEN", f"import fused_embedding fails: {why}")
    if sums != _SUMS:
        wrong = f"it gave {sums}, not {_SUMS}" if sums is not None else probe.error
        to_do = "report this with the output of fused-embedding doctor --json"
        return Check("import", "BROKEN", f"a fused lookup fails: {wrong}", to_do)
    version = probe.facts["imported"]
    return Check("import", "OK", f"fused_embedding {version}; a fused lookup gives the right sums")


def switch_check(probe: Probe, value: str) -> Check:
    """What FE_DISABLE turns off."""
    if not value:
        return Check("FE_DISABLE", "OK", "not set: nothing is turned off")
    if "sums" in probe.facts and "disabled_is_valid" not in probe.facts:
        return Check("FE_DISABLE", "BROKEN", probe.error, "unset FE_DISABLE")
    found = f"{value}: stock TensorFlow does these parts"
    return Check("FE_DISABLE", "slower", found, "unset FE_DISABLE once it is not needed")


def keras_check(probe: Probe, has_tf_keras: bool) -> Check:
    """Which Keras there is: DenseFeatures needs Keras 2, which is tf_keras from 2.16 on."""
    version = probe.facts.get("keras")
    if version is None:
        return Check("Keras", "not known", probe.facts.get("keras_error", "it was not reached"))
    if version.startswith("2.") or has_tf_keras:
        more = " and tf_keras" if not version.startswith("2.") else ""
        return Check("Keras", "OK", f"{version}{more}")
    to_do = "for DenseFeatures and Keras 2 models only: pip install tf_keras of your TensorFlow"
    return Check("Keras", "missing", f"{version}, without tf_keras", to_do)


# --- The machine ---


def cpu_flags() -> set[str] | None:
    """The features that the system says all CPUs have; None: it does not say."""
    found = re.search(r"^flags\s*: (.*)$", _text(_SYSTEM / "proc/cpuinfo"), re.MULTILINE)
    return set(found[1].split()) if found else None


def cpu_check(flags: set[str] | None) -> Check:
    """Which instructions the ops use: the library chooses when it runs."""
    name = re.search(r"^model name\s*: (.*)$", _text(_SYSTEM / "proc/cpuinfo"), re.MULTILINE)
    model = name[1] if name else platform.processor() or platform.machine()
    if flags is None:
        return Check("CPU", "not known", f"{model}; /proc/cpuinfo does not list its features")
    for level, needed in SIMD_LEVELS.items():
        if flags.issuperset(needed):
            return Check("CPU", "OK", f"{model}; the ops use {level}")
    lacks = ", ".join(sorted({*SIMD_LEVELS["AVX2"]} - flags))
    found = f"{model}; the ops use plain x86-64 code, because it has no {lacks}"
    to_do = "in a virtual machine: have it pass on the features of the host's CPU"
    return Check("CPU", "slower", found, to_do)


def num_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def cpu_quota() -> float | None:
    """Cores that a container may use at once; None: all."""
    quota, _, period = _text(_SYSTEM / "sys/fs/cgroup/cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.strip().isdigit() else None


def cores_check(cores: int, quota: float | None) -> Check:
    """Cores, and how many threads an op has: TensorFlow's, one a core if nothing is set."""
    found = f"{cores} cores, so an op has {cores} threads unless TensorFlow is told otherwise"
    if quota is None or quota >= cores:
        return Check("cores", "OK", found)
    threads = max(int(quota), 1)
    to_do = f"tf.config.threading.set_intra_op_parallelism_threads({threads})"
    return Check("cores", "slower", f"{found}; the container may use {quota:g} at once", to_do)


def memory_check() -> Check:
    """Memory of the machine and of the container."""
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _text(_SYSTEM / "proc/meminfo"), re.MULTILINE))
    if not {"MemTotal", "MemAvailable"} <= sizes.keys():
        return Check("memory", "not known", "/proc/meminfo does not say")
    total, free = (int(sizes[name]) / (1 << 20) for name in ("MemTotal", "MemAvailable"))
    found = f"{total:.1f} GiB, {free:.1f} GiB of it available"
    limit = _text(_SYSTEM / "sys/fs/cgroup/memory.max").strip()
    if limit.isdigit() and int(limit) / (1 << 30) < total:
        found += f"; the container may use {int(limit) / (1 << 30):.1f} GiB"
    return Check("memory", "OK", found)


def huge_pages_check() -> Check:
    """Whether tables and variables can be on huge pages: tried on 4 MiB of this process."""
    modes = _text(_SYSTEM / "sys/kernel/mm/transparent_hugepage/enabled").strip()
    mode = re.search(r"\[(\w+)\]", modes)
    if mode is None:
        found = "this system has no transparent huge pages, or does not show them"
        return Check("huge pages", "slower", found)
    if mode[1] == "never":
        to_do = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)"
        return Check("huge pages", "slower", "transparent huge pages are off (never)", to_do)
    if "huge_pages" in os.environ.get("FE_DISABLE", ""):
        to_do = "take huge_pages out of FE_DISABLE"
        return Check("huge pages", "slower", "FE_DISABLE turns them off for variables", to_do)
    advice, collapse = try_huge_pages()
    if advice and collapse:
        found = f"mode {mode[1]}; madvise and MADV_COLLAPSE work"
        return Check("huge pages", "OK", found)
    if advice:
        found = f"mode {mode[1]}; madvise works, MADV_COLLAPSE does not: {collapse_reason()}"
        return Check("huge pages", "slower", f"{found}. Variables move slowly or not at all")
    return Check("huge pages", "slower", f"mode {mode[1]}, but the system refuses madvise")


def try_huge_pages() -> tuple[bool, bool]:
    """Whether the system takes madvise(MADV_HUGEPAGE), and MADV_COLLAPSE after it."""
    page = 2 << 20
    memory = mmap.mmap(-1, 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = (ctypes.c_char * len(memory)).from_buffer(memory)
    address = (ctypes.addressof(begin) + page - 1) // page * page
    ctypes.memset(address, 1, page)
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    results = [madvise(address, page, advice) == 0 for advice in (14, 25)]  # linux/mman.h
    del begin
    memory.close()
    return results[0], results[1]


def collapse_reason() -> str:
    """Why MADV_COLLAPSE may have failed."""
    version = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    has_it = version >= (6, 1)
    return "memory is short or fragmented" if has_it else f"Linux {platform.release()} is below 6.1"


# --- Optional parts ---


def has_driver() -> bool:
    """Whether NVIDIA's driver is there."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def gpu_check(probe: Probe, driver: bool) -> Check:
    """Whether ops can run on a GPU."""
    is_built = (PACKAGE / "_ops_cuda.so").exists()
    is_cuda = probe.facts.get("is_cuda_build")
    facts = [
        "an NVIDIA driver" if driver else "no NVIDIA driver",
        f"_ops_cuda.so {'is' if is_built else 'was not'} built",
        {None: "TensorFlow's CUDA is not known", True: "TensorFlow has CUDA"}.get(
            is_cuda, "TensorFlow has no CUDA"
        ),
    ]
    found = "; ".join(facts)
    if not driver:
        return Check("GPU", "missing", f"{found}. The ops run on the CPU")
    if probe.facts.get("has_gpu_kernels"):
        gpus = probe.facts.get("gpus", 0)
        return Check("GPU", "OK", f"{gpus} GPUs; {found}")
    why = probe.facts.get("no_gpu_kernels") or "not known: the package did not import"
    return Check("GPU", "missing", f"{found}. The ops run on the CPU", why)


def rocksdb_check() -> Check:
    """Whether tables can have a tier on an SSD."""
    library = PACKAGE / "_cold_store_rocksdb.so"
    if not library.exists():
        command = _distribution("command_for_extra", "ssd")
        to_do = f"only for tables larger than memory: {command}"
        return Check("RocksDB", "missing", "built without it: no tables on an SSD", to_do)
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        to_do = "install the librocksdb that it names (Debian 12: apt-get install librocksdb7.8)"
        return Check("RocksDB", "missing", f"{library.name} does not load: {error}", to_do)
    return Check("RocksDB", "OK", f"{library.name} loads: tables may have a tier on an SSD")


def plots_check(missing: Sequence[str]) -> Check:
    """Whether the demo and the plots of inspect and advise have what they need."""
    if not missing:
        return Check("demo, plots", "OK", "matplotlib, scipy and tqdm are there")
    command = _distribution("command_for_extra", "demo")
    to_do = f"for the demo and plots of inspect only: {command}"
    return Check("demo, plots", "missing", f"not installed: {', '.join(missing)}", to_do)


def _distribution(function: str, argument: str) -> str:
    """Calls a function of `fused_embedding.distribution`, without the import of the package."""
    path = pathlib.Path(__file__).with_name("fused_embedding") / "distribution.py"
    return runpy.run_path(str(path))[function](argument)


def is_there(name: str) -> bool:
    """Whether a package can be found, without importing it."""
    return importlib.util.find_spec(name) is not None


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
