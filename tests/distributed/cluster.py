"""A cluster of TensorFlow servers on this machine, each a process of its own.

The processes are those of `processes`, which find TensorFlow imported. A server ends when its pipe
does: a test that dies takes its servers along.
"""

import contextlib
import multiprocessing
import os
import pathlib
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator
from multiprocessing.connection import Connection

import tensorflow as tf

import fused_embedding
import processes

START_SECONDS = 300
STOP_SECONDS = 10
REACH_SECONDS = 120
Addresses = dict[str, list[str]]


@contextlib.contextmanager
def running(num_tasks: dict[str, int]) -> Iterator[Addresses]:
    """Runs servers, e.g. `{"ps": 2, "worker": 2}`, and yields the addresses of each job's tasks."""
    with running_processes(num_tasks) as (addresses, _):
        yield addresses


@contextlib.contextmanager
def running_processes(
    num_tasks: dict[str, int],
) -> Iterator[tuple[Addresses, dict[tuple[str, int], int]]]:
    """As `running`; also yields the process of each (job, task)."""
    attempts = 3  # another process may take a free port before the server does
    tasks = [(job, task) for job, count in num_tasks.items() for task in range(count)]
    for _ in range(attempts):
        addresses = free_addresses(num_tasks)
        servers = {task: _Server(addresses, *task) for task in tasks}
        try:
            if all(server.is_ready() for server in servers.values()):
                yield addresses, {task: server.pid for task, server in servers.items()}
                return
        finally:
            _stop(servers.values())
    raise RuntimeError(f"no cluster after {attempts} attempts")


@contextlib.contextmanager
def replaced(addresses: Addresses, job: str, task: int) -> Iterator[None]:
    """Runs a server again that was killed."""
    server = _Server(addresses, job, task)
    try:
        if not server.is_ready():
            raise RuntimeError(f"no server {job}:{task}")
        yield
    finally:
        _stop([server])


def when_reached(run: Callable[[], None]) -> None:
    """Runs it, and again while a server is not reached, as TensorFlow's monitored sessions do.

    Each server has a channel of its own to each other, and gRPC waits longer from one attempt to
    reach a server that is gone to the next: it refuses calls meanwhile, though the server is back.
    """
    deadline = time.monotonic() + REACH_SECONDS
    while True:
        try:
            return run()
        except tf.errors.UnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def free_addresses(num_tasks: dict[str, int]) -> Addresses:
    ports = iter(free_ports(sum(num_tasks.values())))
    return {
        job: [f"localhost:{next(ports)}" for _ in range(count)] for job, count in num_tasks.items()
    }


def free_ports(num_ports: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(num_ports)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def environment() -> dict[str, str]:
    """Of programs that import the package under test, which may be an installed one."""
    package = pathlib.Path(fused_embedding.__file__).parents[1]
    path = os.pathsep.join([str(package), *filter(None, [os.getenv("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}


class _Server:
    """A server in a process."""

    def __init__(self, addresses: Addresses, job: str, task: int) -> None:
        self._pipe, its_end = multiprocessing.Pipe()
        self._process = processes.start(_serve, addresses, job, task, its_end)
        its_end.close()
        self.pid = self._process.pid

    def is_ready(self) -> bool:
        """Waits until it serves; False if it does not."""
        try:
            return self._pipe.poll(START_SECONDS) and self._pipe.recv()
        except EOFError:
            return False

    def tell_to_stop(self) -> None:
        self._pipe.close()

    def wait(self) -> None:
        self._process.join(STOP_SECONDS)
        self._process.kill()
        self._process.join()


def _stop(servers: Collection[_Server]) -> None:
    for server in servers:
        server.tell_to_stop()
    for server in servers:
        server.wait()


def _serve(addresses: Addresses, job: str, task: int, pipe: Connection) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=2
    )
    try:
        # The reference keeps it alive.
        server = tf.distribute.Server(addresses, job_name=job, task_index=task, config=config)
        pipe.send(True)
        with contextlib.suppress(EOFError):
            pipe.recv()
        del server
    finally:
        os._exit(0)  # a server's threads do not end
