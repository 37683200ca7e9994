"""A cluster of TensorFlow servers on this machine, each a process of its own.

As a program it is all of them: `cluster.py CLUSTER_JSON` imports TensorFlow once and forks a server
for each task; `cluster.py CLUSTER_JSON JOB TASK` is one. They end when the program's standard input
does: a test that dies takes them along.
"""

import contextlib
import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

import fused_embedding

READY = "ready"
START_SECONDS = 300
STOP_SECONDS = 10
REACH_SECONDS = 120


@contextlib.contextmanager
def running(num_tasks: dict[str, int]) -> Iterator[dict[str, list[str]]]:
    """Runs servers, e.g. `{"ps": 2, "worker": 2}`, and yields the addresses of each job's tasks."""
    with running_processes(num_tasks) as (addresses, _):
        yield addresses


@contextlib.contextmanager
def running_processes(
    num_tasks: dict[str, int],
) -> Iterator[tuple[dict[str, list[str]], dict[tuple[str, int], int]]]:
    """As `running`; also yields the process of each (job, task)."""
    attempts = 3  # another process may take a free port before the server does
    for attempt in range(attempts):
        ports = iter(free_ports(sum(num_tasks.values())))
        addresses = {
            job: [f"localhost:{next(ports)}" for _ in range(count)]
            for job, count in num_tasks.items()
        }
        servers = _start(addresses)
        try:
            problem = _wait_until_ready(servers, sum(num_tasks.values()))
            if problem is None:
                yield addresses, _children(servers.pid, addresses)
                return
            if attempt + 1 == attempts:
                raise RuntimeError(f"no cluster after {attempts} attempts: {problem}")
        finally:
            _stop(servers)


@contextlib.contextmanager
def replaced(addresses: dict[str, list[str]], job: str, task: int) -> Iterator[None]:
    """Runs a server again that was killed."""
    server = _start(addresses, job, str(task))
    try:
        problem = _wait_until_ready(server, 1)
        if problem is not None:
            raise RuntimeError(f"no server {job}:{task}: {problem}")
        yield
    finally:
        _stop(server)


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


def _children(pid: int, addresses: dict[str, list[str]]) -> dict[tuple[str, int], int]:
    # In the order in which `_serve_all` forks them.
    pids = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return dict(zip(_tasks(addresses), map(int, pids), strict=True))


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


def _start(addresses: dict[str, list[str]], *task: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, __file__, json.dumps(addresses), *task],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_until_ready(servers: subprocess.Popen, num_servers: int) -> str | None:
    """None when all servers run, else what happened."""
    deadline = time.monotonic() + START_SECONDS
    said = b""
    while said.split().count(READY.encode()) < num_servers:
        if not select.select([servers.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return f"only {said} was said in {START_SECONDS} seconds"
        news = os.read(servers.stdout.fileno(), 4096)
        said += news
        if not news or set(said.decode().split()) - {READY}:
            return f"a server ended while it started, after {said}"
    return None


def _stop(servers: subprocess.Popen) -> None:
    servers.stdin.close()
    try:
        servers.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(servers.pid, 9)  # their own session: see _start
        servers.wait()
    servers.stdout.close()


def _serve(addresses: dict[str, list[str]], job: str, task: int) -> None:
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=2
    )
    try:
        # The reference keeps it alive.
        server = tf.distribute.Server(addresses, job_name=job, task_index=task, config=config)
        print(READY, flush=True)
        sys.stdin.read()
        del server
    finally:
        os._exit(0)  # a server's threads do not end


def _tasks(addresses: dict[str, list[str]]) -> list[tuple[str, int]]:
    return [(job, task) for job in addresses for task in range(len(addresses[job]))]


def _serve_all(addresses: dict[str, list[str]]) -> None:
    tasks = _tasks(addresses)
    for job, task in tasks:
        if os.fork() == 0:
            _serve(addresses, job, task)
    for _ in tasks:
        os.wait()
        print("ended", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _serve(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        _serve_all(json.loads(sys.argv[1]))
