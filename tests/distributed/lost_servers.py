"""Kills parameter servers under training, and counts the steps that read a row that was lost.

    PYTHONPATH=python:tests python -m distributed.lost_servers --kills=100 --output=kills.json

Two servers have a partition each of a table of ROWS rows near 1; a row that was lost reads 0. A
chief and a worker train, each in a MonitoredSession, and the chief saves. Every fifth time the
chief is killed before the server, and starts again only after the worker was watched for a while:
it must wait. This process only forks: TensorFlow does nothing in it.
"""

import argparse
import contextlib
import json
import os
import pathlib
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from distributed import cluster

tf1 = tf.compat.v1

ROWS, DIM, BATCH = 1000, 4, 64
SAVE_STEPS, STEP_SECONDS = 10, 0.05
RECOVERY_SECONDS = 1
WATCHED_SECONDS = 10  # how long the worker has no chief
DEADLINE_SECONDS = 300
GOOD, LOST = b".", b"x"  # what a process says of a step


def serve(addresses: dict[str, list[str]], task: int) -> None:
    config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    tf.distribute.Server(addresses, job_name="ps", task_index=task, config=config).join()


def impatient(creator_class: type) -> type:
    """A session creator that looks every second whether the model is ready."""

    class Creator(creator_class):
        def _get_session_manager(self):
            manager = super()._get_session_manager()
            manager._recovery_wait_secs = RECOVERY_SECONDS
            return manager

    return Creator


def train(addresses: dict[str, list[str]], task: int, folder: str, say: int) -> None:
    """Trains until it is killed. Task 0 is the chief."""
    server = tf.distribute.Server(addresses, job_name="worker", task_index=task)
    setter = tf1.train.replica_device_setter(
        cluster=tf.train.ClusterSpec(addresses), worker_device=f"/job:worker/task:{task}"
    )
    with tf.Graph().as_default(), tf1.device(setter):
        ids = tf1.placeholder(tf.int64, [None], "ids")
        table = fe.get_embedding_variable(
            "table",
            DIM,
            initializer=tf.zeros_initializer(),
            partitioner=tf1.fixed_size_partitioner(2),
        )
        num_ids = tf.size(ids, out_type=tf.int64)
        sp_ids = tf.SparseTensor(tf.stack([tf.range(num_ids)] * 2, axis=1), ids, [num_ids] * 2)
        rows = fe.nn.fused_safe_embedding_lookup_sparse(table, sp_ids)
        step = tf1.train.get_or_create_global_step()
        optimizer = tf1.train.GradientDescentOptimizer(1e-6)
        training = optimizer.minimize(tf.reduce_sum(rows), step)
        lowest = tf.reduce_min(rows)
        fill = table.upsert(tf.range(ROWS, dtype=tf.int64), tf.ones([ROWS, DIM]))
        with session_of(task, server.target, folder, fill) as session:
            random = np.random.default_rng(task)
            while True:
                batch = random.choice(ROWS, BATCH, replace=False)
                value, _ = session.run([lowest, training], {ids: batch})
                os.write(say, GOOD if value > 0.5 else LOST)
                time.sleep(STEP_SECONDS)


def session_of(
    task: int, target: str, folder: str, fill: tf.Operation
) -> tf1.train.MonitoredSession:
    filters = ["/job:ps", f"/job:worker/task:{task}"]  # as Estimators set them
    config = tf1.ConfigProto(device_filters=filters, operation_timeout_in_ms=60_000)
    if task == 0:
        scaffold = tf1.train.Scaffold(init_fn=lambda _, session: session.run(fill))
        creator = impatient(tf1.train.ChiefSessionCreator)(
            scaffold, target, config=config, checkpoint_dir=folder
        )
        saving = tf1.train.CheckpointSaverHook(folder, save_steps=SAVE_STEPS, scaffold=scaffold)
        return tf1.train.MonitoredSession(creator, hooks=[saving])
    creator = impatient(tf1.train.WorkerSessionCreator)(master=target, config=config)
    return tf1.train.MonitoredSession(creator)


# --- The process that forks and kills ---


class Process:
    """A process that says of each step whether a row was lost."""

    def __init__(self, run: Callable[[int], None]) -> None:
        self._listen, say = os.pipe()
        self.said = {GOOD: 0, LOST: 0}
        self._pid = os.fork()
        if self._pid == 0:
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), sys.stderr.fileno())
            try:
                run(say)
            finally:
                os._exit(1)
        os.close(say)

    def listen(self, seconds: float) -> None:
        """Counts what it says, for as long."""
        end = time.monotonic() + seconds
        while select.select([self._listen], [], [], max(0.0, end - time.monotonic()))[0]:
            news = os.read(self._listen, 4096)
            if not news:
                raise RuntimeError("a process ended by itself")
            for what in self.said:
                self.said[what] += news.count(what)

    def wait_for_steps(self, count: int) -> float:
        """Waits until it has made as many further steps; how long that took."""
        start, goal = time.monotonic(), sum(self.said.values()) + count
        while sum(self.said.values()) < goal:
            if time.monotonic() - start > DEADLINE_SECONDS:
                raise RuntimeError(f"fewer than {count} steps in {DEADLINE_SECONDS} seconds")
            self.listen(0.2)
        return time.monotonic() - start

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._listen)


class Cluster:
    """Two servers, a chief and a worker."""

    def __init__(self, folder: str) -> None:
        ports = [f"localhost:{port}" for port in cluster.free_ports(4)]
        self._addresses = {"ps": ports[:2], "worker": ports[2:]}
        self._folder = folder
        self.servers = [self._server(0), self._server(1)]
        self.chief, self.worker = self._trainer(0), self._trainer(1)
        self.lost = 0  # steps on lost rows by those who were killed

    def _server(self, task: int) -> Process:
        return Process(lambda _: serve(self._addresses, task))

    def _trainer(self, task: int) -> Process:
        return Process(lambda say: train(self._addresses, task, self._folder, say))

    def restart_server(self, task: int) -> None:
        self.servers[task].kill()
        self.servers[task] = self._server(task)

    def kill_chief(self) -> None:
        self.lost += self.chief.said[LOST]
        self.chief.kill()

    def start_chief(self) -> None:
        self.chief = self._trainer(0)

    def wait(self) -> float:
        """Waits until both train; how long that took."""
        return sum(process.wait_for_steps(SAVE_STEPS) for process in (self.chief, self.worker))

    def num_lost(self) -> int:
        return self.lost + self.chief.said[LOST] + self.worker.said[LOST]

    def stop(self) -> None:
        for process in (*self.servers, self.chief, self.worker):
            with contextlib.suppress(OSError):
                process.kill()


def kill_once(run: Cluster, index: int, is_without_chief: bool) -> dict[str, float]:
    """Kills a server, and waits until all train again."""
    lost = run.num_lost()
    if is_without_chief:
        run.kill_chief()
    # Server 0 also has the global step, for which a worker waits in any case.
    run.restart_server(1 if is_without_chief else index % 2)
    run.worker.listen(0)
    steps = sum(run.worker.said.values())
    if is_without_chief:
        run.worker.listen(WATCHED_SECONDS)
        steps = sum(run.worker.said.values()) - steps
        run.start_chief()
    seconds = run.wait()
    found = {"lost": run.num_lost() - lost, "seconds": round(seconds, 1)}
    return found | ({"steps_without_chief": steps} if is_without_chief else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--without_chief", type=int, default=5, help="every how many-th time")
    parser.add_argument("--output", type=pathlib.Path)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Cluster(folder)
        kills = []
        try:
            run.wait()
            for index in range(flags.kills):
                is_without_chief = (index + 1) % flags.without_chief == 0
                kills.append(kill_once(run, index, is_without_chief))
                print(index, kills[-1], flush=True)
        finally:
            run.stop()
            write(flags, kills)


def write(flags: argparse.Namespace, kills: list[dict[str, float]]) -> None:
    alone = [kill["steps_without_chief"] for kill in kills if "steps_without_chief" in kill]
    result = {
        "kills_of_servers": len(kills),
        "of_them_without_chief": len(alone),
        "recovery_wait_secs": RECOVERY_SECONDS,
        "steps_on_lost_rows": sum(kill["lost"] for kill in kills),
        "steps_without_chief": sum(alone),
        "longest_recovery_seconds": max((kill["seconds"] for kill in kills), default=None),
        "tensorflow": tf.__version__,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if flags.output is not None:
        flags.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
