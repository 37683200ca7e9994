"""Parameter servers on this machine, each a process whose CPU time can be read.

`python -m fused_embedding.inspection.local_servers CLUSTER_JSON TASK` is one: it prints "ready",
and ends with its standard input.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

import fused_embedding.ops.library  # noqa: F401  the servers run this package's ops

_READY = "ready"


class LocalCluster(NamedTuple):
    """Servers of the job "ps", and the first of the job "worker", in this process.

    Attributes:
        target: Of sessions of the worker.
        processes: The servers.
        addresses: Those of each job's tasks. Further workers are the caller's to run.
    """

    target: str
    processes: list[subprocess.Popen]
    addresses: dict[str, list[str]]

    def cpu_seconds(self) -> list[float]:
        """CPU seconds of each server since it started.

        This takes about a microsecond a server, so a single step can be timed.
        """
        return [cpu_seconds_of(process.pid) for process in self.processes]


@contextlib.contextmanager
def running(num_servers: int, num_workers: int = 1) -> Iterator[LocalCluster]:
    """Runs servers.

    Args:
        num_servers: Number of parameter servers.
        num_workers: Number of workers that the cluster has.

    Yields:
        The cluster.

    Raises:
        RuntimeError: If a server does not start.
    """
    tasks = [f"localhost:{port}" for port in _free_ports(num_servers + num_workers)]
    cluster = {"ps": tasks[:num_servers], "worker": tasks[num_servers:]}
    processes = [_start(cluster, task) for task in range(num_servers)]
    try:
        for process in processes:
            if _line_of(process) != _READY:
                raise RuntimeError("a server did not start; free the machine's ports and memory")
        worker = tf.distribute.Server(cluster, job_name="worker", task_index=0)
        yield LocalCluster(worker.target, processes, cluster)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _start(cluster: dict[str, list[str]], task: int) -> subprocess.Popen:
    package = pathlib.Path(__file__).parents[2]
    path = os.pathsep.join([str(package), *filter(None, [os.getenv("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(cluster), str(task)],
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _line_of(process: subprocess.Popen) -> str:
    return process.stdout.readline().strip() if process.stdout else ""


def cpu_seconds_of(pid: int) -> float:
    """CPU seconds of all threads of a process since it started."""
    # Linux's clock of a process, as clock_getcpuclockid (3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


def _serve(cluster: dict[str, list[str]], task: int) -> None:
    server = tf.distribute.Server(cluster, job_name="ps", task_index=task)
    print(_READY, flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]), int(sys.argv[2]))
