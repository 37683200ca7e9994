"""Where and from what a result comes: machine, software, commit."""

import datetime
import os
import pathlib
import platform
import re
import subprocess
import sys

from benchmarks.harness import fitness

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def describe() -> dict[str, object]:
    """Returns processor, cores, operating system and versions."""
    import tensorflow as tf

    return describe_host() | {"tensorflow": tf.__version__}


def describe_host() -> dict[str, object]:
    """Returns the same without TensorFlow."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "os": platform.platform(),
        "python": platform.python_version(),
    }


def provenance(module: str = "benchmarks.harness.run") -> dict[str, object]:
    """Returns commit, whether the sources differ from it, date and command.

    Results and pages made from results may differ: they do not change what is measured.
    """
    # Git's `*` matches slashes too: the sources in all rooms.
    sources = ["tf_ops", "python", "benchmarks/*.py", "benchmarks/*.cc", "CMakeLists.txt"]
    return {
        "commit": _git("rev-parse", "--short=10", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--", *sources)),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": " ".join([f"python -m {module}", *sys.argv[1:]]),
        "load_average": round(os.getloadavg()[0], 2),
        **fitness.of_record(),
    }


def l3_bytes() -> int | None:
    """Returns the size of the last cache that the system tells of core 0; None: it does not."""
    path = pathlib.Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    return int(path.read_text().strip().removesuffix("K")) << 10 if path.exists() else None


def folder(machine: dict[str, object]) -> pathlib.Path:
    """Returns the folder for results of a machine, named after its GPU, or processor, and cores."""
    model = re.sub(r"\(R\)|\(TM\)|@.*|CPU|Processor", "", str(machine.get("gpu", machine["cpu"])))
    words = re.findall(r"[a-z0-9]+", model.lower())
    return RESULTS / "-".join([*words, f"{machine['cores']}-cores"])


def _cpu_model() -> str:
    info = pathlib.Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.processor()


def _git(*arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return result.stdout.strip() if result.returncode == 0 else "unknown"
