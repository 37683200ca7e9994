"""Kills servers, workers and chiefs under training, and counts the steps that read a lost row.

    PYTHONPATH=python:tests python -m distributed.lost_servers --kills=100 --output=kills.json

Two servers have the parts of four tables of ROWS rows near 1, two ordinary ones and two
EmbeddingVariables, which are looked up together; a row that was lost reads 0. A chief and a worker
train, each in a MonitoredSession, and the chief saves. KINDS are killed in turn. Steps after a kill
must go on from the last checkpoint that was complete, or later. This process only forks: TensorFlow
does nothing in it.
"""

import argparse
import collections
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
from typing import Any

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
# Who is killed, and when. Without a chief the worker must wait for its rows.
KINDS = ("server", "server_in_save", "worker", "chief_in_save", "server_without_chief")
# What a process says of a step, and the chief of a checkpoint; then the number of the step.
GOOD, LOST, SAVING, SAVED = "good", "lost", "saving", "saved"


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
        tables, fill = make_tables()
        num_ids = tf.size(ids, out_type=tf.int64)
        sp_ids = tf.SparseTensor(tf.stack([tf.range(num_ids)] * 2, axis=1), ids, [num_ids] * 2)
        columns = fe.nn.group_embedding_lookup_sparse(
            tables, [sp_ids] * len(tables), ["sum"] * len(tables), partition_strategy="div"
        )
        rows = tf.concat(columns, axis=1)
        step = tf1.train.get_or_create_global_step()
        optimizer = tf1.train.GradientDescentOptimizer(1e-6)
        training = optimizer.minimize(tf.reduce_sum(rows), step)
        with tf.control_dependencies([training]):
            number = tf.identity(step.value())
        lowest = tf.reduce_min(rows)
        with session_of(task, server.target, folder, fill, say) as session:
            random = np.random.default_rng(task)
            while True:
                batch = random.choice(ROWS, BATCH, replace=False)
                value, made = session.run([lowest, number], {ids: batch})
                tell(say, GOOD if value > 0.5 else LOST, made)
                time.sleep(STEP_SECONDS)


def make_tables() -> tuple[list[Any], tf.Operation]:
    """Four tables, and what makes their rows 1."""
    with tf1.variable_scope("model", partitioner=tf1.fixed_size_partitioner(2)):
        ordinary = [
            tf1.get_variable(f"ordinary{i}", [ROWS, DIM], initializer=tf1.ones_initializer())
            for i in range(2)
        ]
        keyed = [
            fe.get_embedding_variable(f"keyed{i}", DIM, initializer=tf1.zeros_initializer())
            for i in range(2)
        ]
    keys = tf.range(ROWS, dtype=tf.int64)
    return [*ordinary, *keyed], tf.group(*[t.upsert(keys, tf.ones([ROWS, DIM])) for t in keyed])


def tell(say: int, what: str, step: int) -> None:
    """Says it to the process that kills."""
    os.write(say, f"{what} {step}\n".encode())


class SaysWhenItSaves(tf1.train.CheckpointSaverListener):
    """Tells of checkpoints that begin and that are complete."""

    def __init__(self, say: int) -> None:
        self._say = say

    def before_save(self, session: tf1.Session, global_step_value: int) -> None:
        tell(self._say, SAVING, global_step_value)

    def after_save(self, session: tf1.Session, global_step_value: int) -> None:
        tell(self._say, SAVED, global_step_value)


def session_of(
    task: int, target: str, folder: str, fill: tf.Operation, say: int
) -> tf1.train.MonitoredSession:
    filters = ["/job:ps", f"/job:worker/task:{task}"]  # as Estimators set them
    config = tf1.ConfigProto(device_filters=filters, operation_timeout_in_ms=60_000)
    if task == 0:
        scaffold = tf1.train.Scaffold(init_fn=lambda _, session: session.run(fill))
        creator = impatient(tf1.train.ChiefSessionCreator)(
            scaffold, target, config=config, checkpoint_dir=folder
        )
        saving = tf1.train.CheckpointSaverHook(
            folder, save_steps=SAVE_STEPS, scaffold=scaffold, listeners=[SaysWhenItSaves(say)]
        )
        return tf1.train.MonitoredSession(creator, hooks=[saving])
    creator = impatient(tf1.train.WorkerSessionCreator)(master=target, config=config)
    return tf1.train.MonitoredSession(creator)


# --- The process that forks and kills ---


class Process:
    """A process that says of each step whether a row was lost."""

    def __init__(self, run: Callable[[int], None]) -> None:
        self._listen, say = os.pipe()
        self._rest = b""
        self.said = dict.fromkeys((GOOD, LOST, SAVING, SAVED), 0)
        self.saved = 0  # step of the last complete checkpoint
        self.lowest_step: int | None = None  # since it was set to None
        self._pid = os.fork()
        if self._pid == 0:
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), sys.stderr.fileno())
            try:
                run(say)
            finally:
                os._exit(1)
        os.close(say)

    @property
    def num_steps(self) -> int:
        return self.said[GOOD] + self.said[LOST]

    def listen(self, seconds: float, until: str = "") -> None:
        """Notes what it says, for as long, or until it says something."""
        end = time.monotonic() + seconds
        heard = self.said.get(until)
        while select.select([self._listen], [], [], max(0.0, end - time.monotonic()))[0]:
            news = os.read(self._listen, 4096)
            if not news:
                raise RuntimeError("a process ended by itself")
            *lines, self._rest = (self._rest + news).split(b"\n")
            for line in lines:
                self._note(*line.decode().split())
            if self.said.get(until) != heard:
                return

    def _note(self, what: str, step: str) -> None:
        self.said[what] += 1
        if what == SAVED:
            self.saved = int(step)
        elif what != SAVING:
            self.lowest_step = min(self.lowest_step or int(step), int(step))

    def wait_for_steps(self, count: int) -> float:
        """Waits until it has made as many further steps; how long that took."""
        start, goal = time.monotonic(), self.num_steps + count
        while self.num_steps < goal:
            if time.monotonic() - start > DEADLINE_SECONDS:
                raise RuntimeError(f"fewer than {count} steps in {DEADLINE_SECONDS} seconds")
            self.listen(0.2)
        return time.monotonic() - start

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        with contextlib.suppress(RuntimeError):
            self.listen(0)
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

    def kill_chief(self) -> int:
        """Kills it; the step of the last complete checkpoint."""
        self.chief.kill()
        self.lost += self.chief.said[LOST]
        return self.chief.saved

    def start_chief(self) -> None:
        self.chief = self._trainer(0)

    def restart_worker(self) -> None:
        self.worker.kill()
        self.lost += self.worker.said[LOST]
        self.worker = self._trainer(1)

    def wait(self) -> float:
        """Waits until both train; how long that took."""
        return sum(process.wait_for_steps(2 * SAVE_STEPS) for process in (self.chief, self.worker))

    def num_lost(self) -> int:
        return self.lost + self.chief.said[LOST] + self.worker.said[LOST]

    def stop(self) -> None:
        for process in (*self.servers, self.chief, self.worker):
            with contextlib.suppress(OSError):
                process.kill()


def kill_once(run: Cluster, index: int, kind: str) -> dict[str, Any]:
    """Kills, starts what was killed again, and waits until all train."""
    lost, found = run.num_lost(), {"kind": kind}
    if kind.endswith("in_save"):
        run.chief.listen(DEADLINE_SECONDS, until=SAVING)
    run.chief.listen(0)
    saved = run.chief.saved
    run.chief.lowest_step = None
    if kind == "worker":
        run.restart_worker()
    elif kind == "chief_in_save":
        saved = run.kill_chief()
        run.start_chief()
    elif kind == "server_without_chief":
        saved = run.kill_chief()
        # Server 0 also has the global step, for which a worker waits in any case.
        run.restart_server(1)
        run.worker.listen(0)
        steps = run.worker.num_steps
        run.worker.listen(WATCHED_SECONDS)
        found["steps_without_chief"] = run.worker.num_steps - steps
        run.start_chief()
    else:
        run.restart_server(index // len(KINDS) % 2)
    found["seconds"] = round(run.wait(), 1)
    is_behind = run.chief.lowest_step is not None and run.chief.lowest_step <= saved
    return found | {"lost": run.num_lost() - lost, "undone_checkpoints": int(is_behind)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of kills, in turn")
    parser.add_argument("--output", type=pathlib.Path)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Cluster(folder)
        kills = []
        try:
            run.wait()
            kinds = flags.kinds.split(",")
            for index in range(flags.kills):
                kills.append(kill_once(run, index, kinds[index % len(kinds)]))
                print(index, kills[-1], flush=True)
        finally:
            run.stop()
            write(flags, kills)


def write(flags: argparse.Namespace, kills: list[dict[str, Any]]) -> None:
    result = {
        "kills": len(kills),
        "kinds": collections.Counter(kill["kind"] for kill in kills),
        "recovery_wait_secs": RECOVERY_SECONDS,
        "steps_on_lost_rows": sum(kill["lost"] for kill in kills),
        "steps_without_chief": sum(kill.get("steps_without_chief", 0) for kill in kills),
        "undone_checkpoints": sum(kill["undone_checkpoints"] for kill in kills),
        "longest_recovery_seconds": max((kill["seconds"] for kill in kills), default=None),
        "tensorflow": tf.__version__,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if flags.output is not None:
        flags.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
