r"""Counts the training steps that two workers make in a second beside one.

    python -m benchmarks.distributed.two_workers

The models and their options are those of benchmarks.distributed.parameter_servers. Workers train
one model at a time, each at its own speed: one alone for `--seconds`, then both. This process is
the first worker; the second is another process. Workers and servers share the cores of a machine,
so the CPU time of a step says whether more workers make steps dearer. Writes one JSON file.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.distributed import parameter_servers
from benchmarks.report import results

_PERIOD = flags.DEFINE_float("period", 2.0, "Seconds of a count.", lower_bound=0.05)
_PERIODS = flags.DEFINE_integer("periods", 7, "Counts of each system.", lower_bound=2)
_CLUSTER = flags.DEFINE_string("cluster", "", "JSON of the second worker's cluster.")

SYSTEMS = ("stock", "each_column", "messages", "keyed_each_column", "keyed_messages")
_SHARED_OPTIONS = ("columns", "ids", "rows", "dim", "servers")  # of both workers
_READY = "ready"


def main(argv: list[str]) -> None:
    """Measures, and writes the JSON file; or is the second worker."""
    del argv
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if _CLUSTER.value:
        _be_second(json.loads(_CLUSTER.value))
        return
    from fused_embedding.inspection import local_servers

    num_servers = flags.FLAGS.servers
    with local_servers.running(num_servers, num_workers=2) as running:
        systems = {name: parameter_servers.System(name, running.target) for name in SYSTEMS}
        second = _Second(running.addresses)
        counts: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
        for _ in range(_PERIODS.value):
            for name, system in systems.items():
                counts[name].append(_count(system, name, second, running))
        second.stop()
    figures = {name: _figures(of_system) for name, of_system in counts.items()}
    for name, of_system in figures.items():
        print(f"{name:18s} {of_system}")
    axes: dict[str, object] = {"mode": "two_workers", "workload": f"{flags.FLAGS.columns} columns"}
    axes |= {"columns": flags.FLAGS.columns, "batch_size": flags.FLAGS.ids}
    axes |= {"dim": flags.FLAGS.dim, "rows": flags.FLAGS.rows, "servers": num_servers}
    axes |= {"period": _PERIOD.value, "periods": _PERIODS.value}
    cell = {"phase": "adagrad", "systems": figures}
    record = results.record_of("benchmarks.distributed.two_workers", axes, [cell])
    results.write(record, "two_workers", flags.FLAGS.output)


def _steps_in(system: parameter_servers.System, seconds: float) -> int:
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        system.step(count)
        count += 1
    return count


def _count(
    system: parameter_servers.System, name: str, second: "_Second", running: Any
) -> dict[str, float]:
    """Steps a second of one worker and of two, and CPU milliseconds of a step, all processes."""

    def cpu() -> float:
        return time.process_time() + second.cpu_seconds() + sum(running.cpu_seconds())

    found: dict[str, float] = {}
    for workers in ("one", "two"):
        start, cpu_start = time.monotonic(), cpu()
        if workers == "two":
            second.start(name)
        steps = _steps_in(system, _PERIOD.value)
        if workers == "two":
            steps += second.steps()
        seconds, used = time.monotonic() - start, cpu() - cpu_start
        found |= {workers: steps / seconds, f"{workers}_cpu_ms": 1e3 * used / steps}
    return found


def _figures(counts: list[dict[str, float]]) -> dict[str, float]:
    medians = {key: float(np.median([count[key] for count in counts])) for key in counts[0]}
    medians["gain"] = float(np.median([count["two"] / count["one"] for count in counts]))
    return {key: round(value, 3) for key, value in medians.items()}


class _Second:
    """The other worker's process."""

    def __init__(self, addresses: dict[str, list[str]]) -> None:
        options = [f"--{name}={flags.FLAGS[name].value}" for name in _SHARED_OPTIONS]
        command = [sys.executable, "-m", "benchmarks.distributed.two_workers", *options]
        self._process = subprocess.Popen(
            [*command, f"--cluster={json.dumps(addresses)}", f"--period={_PERIOD.value}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self._read() != _READY:
            raise RuntimeError("the second worker did not start; free the machine's memory")

    def _read(self) -> str:
        return self._process.stdout.readline().strip() if self._process.stdout else ""

    def start(self, name: str) -> None:
        if self._process.stdin:
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()

    def steps(self) -> int:
        return int(self._read())

    def cpu_seconds(self) -> float:
        from fused_embedding.inspection import local_servers

        return local_servers.cpu_seconds_of(self._process.pid)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _be_second(addresses: dict[str, list[str]]) -> None:
    import tensorflow as tf

    import fused_embedding  # noqa: F401  its ops

    server = tf.distribute.Server(addresses, job_name="worker", task_index=1)
    systems = {name: parameter_servers.System(name, server.target, task=1) for name in SYSTEMS}
    for system in systems.values():
        system.step(0)
    print(_READY, flush=True)
    for line in sys.stdin:
        print(_steps_in(systems[line.strip()], _PERIOD.value), flush=True)


if __name__ == "__main__":
    app.run(main)
