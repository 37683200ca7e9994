"""A cluster on this machine: a process for each parameter server, and this one as the worker."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

_READY = "ready"


class Cluster(NamedTuple):
    """Running servers.

    Attributes:
        jobs: Addresses of the tasks of each job.
        target: Of sessions: the worker, which is this process.
        pids: Processes of the parameter servers.
    """

    jobs: dict[str, list[str]]
    target: str
    pids: list[int]

    def cpu_ns(self) -> int:
        """CPU time of all threads of the parameter servers, in nanoseconds."""
        total = 0
        for pid in self.pids:
            for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    total += int(stat.read_text().split()[0])
        return total


@contextlib.contextmanager
def running(num_servers: int, threads: int) -> Iterator[Cluster]:
    """Runs parameter servers until the block ends, each with `threads` intra-op threads."""
    import tensorflow as tf

    ports = _free_ports(num_servers + 1)
    jobs = {"ps": [f"localhost:{port}" for port in ports[1:]], "worker": [f"localhost:{ports[0]}"]}
    with contextlib.ExitStack() as stack:
        servers = [_start(stack, jobs, task, threads) for task in range(num_servers)]
        for server in servers:
            assert server.stdout is not None
            if server.stdout.readline().strip() != _READY:
                raise RuntimeError("a parameter server did not start")
        worker = tf.distribute.Server(jobs, "worker", 0, config=_config(threads))
        yield Cluster(jobs, worker.target, [server.pid for server in servers])


def _start(
    stack: contextlib.ExitStack, jobs: dict[str, list[str]], task: int, threads: int
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", __name__, json.dumps(jobs), str(task), str(threads)]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    stack.callback(server.wait)
    stack.callback(server.kill)
    return server


def _free_ports(num_ports: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(num_ports)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _config(threads: int):  # type: ignore[no-untyped-def]
    import tensorflow as tf

    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2
    )


def _serve(jobs: dict[str, list[str]], task: int, threads: int) -> None:
    import tensorflow as tf

    import fused_embedding  # noqa: F401  # the server runs its ops

    server = tf.distribute.Server(jobs, "ps", task, config=_config(threads))
    print(_READY, flush=True)
    sys.stdin.read()
    del server
    os._exit(0)  # a server's threads do not end


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
