"""Session threads that train one table at once, and what a step costs them.

python concurrent_training.py           # prints medians of rounds, one thread and eight in turn

One thread is held to one core: left alone, it has the session's own threads work beside it on the
others. What eight of them reach on all cores is then a share of that many cores.

A program and no test: the figures are the machine's as much as ours. Those of one run are in
concurrent_training.json.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import tempfile
import threading
import time

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from fused_embedding import raw_ops

v1 = tf.compat.v1
DIM, NUM_IDS, NUM_KEYS = 16, 512, 20_000


@dataclasses.dataclass
class Program:
    """A graph that trains a table, with all that may run beside it."""

    session: v1.Session
    ids: tf.Tensor
    train: tf.Operation
    table: fe.EmbeddingVariable | None = None
    evaluate: tf.Tensor | None = None
    save: tf.Operation | None = None
    expire: tf.Tensor | None = None


def rows_of(table, ids):
    sp_ids = tf.RaggedTensor.from_tensor(tf.reshape(ids, [-1, 1]))
    return fe.nn.fused_safe_embedding_lookup_sparse(table, sp_ids, combiner="sum")


def build(folder):
    """Every gradient is all ones, and the learning rate is 1: a row falls by its steps."""
    table = fe.get_embedding_variable("table", DIM, initializer=tf.zeros_initializer())
    ids = v1.placeholder(tf.int64, [NUM_IDS])
    loss = tf.reduce_sum(rows_of(table, ids))
    train = v1.train.GradientDescentOptimizer(1.0).minimize(loss)
    with fe.inference():
        evaluate = rows_of(table, ids)
    path = os.path.join(folder, "table")
    save = raw_ops.EmbeddingVariableSave(resource=table.handle, path=path)
    expire = table.expire(step=0, steps_to_live=10)  # looks at all rows, and removes none
    session = v1.Session()
    session.run(train, {ids: np.arange(NUM_IDS)})  # adds the slots
    return Program(session, ids, train, table, evaluate, save, expire)


def build_dense(_):
    """The same on a dense tf.Variable, trained by stock: what the machine and TensorFlow cost."""
    table = v1.get_variable("table", [NUM_KEYS, DIM], use_resource=True)
    ids = v1.placeholder(tf.int64, [NUM_IDS])
    loss = tf.reduce_sum(rows_of(table, ids))
    train = v1.train.GradientDescentOptimizer(1.0).minimize(loss)
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    return Program(session, ids, train)


def batches_of(thread, num_steps):
    """Ids of a thread's steps: skewed, so that threads meet at some rows."""
    rng = np.random.default_rng(thread)
    return (NUM_KEYS * rng.random([num_steps, NUM_IDS]) ** 3).astype(np.int64)


def run_threads(bodies):
    """Runs all at once; raises what one of them raised."""
    errors = []

    def guarded(body):
        try:
            body()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=[body]) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def hold_to(cores):
    """Lets all threads of this process run on these cores alone."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(int(thread), cores)


def train_for(program, batches, num_threads):
    """Steps per second of all threads together, and the seconds of each step."""
    seconds = []
    all_cores = os.sched_getaffinity(0)
    hold_to([min(all_cores)] if num_threads == 1 else all_cores)

    def work(thread):
        for ids in batches[thread]:
            start = time.perf_counter()
            program.session.run(program.train, {program.ids: ids})
            seconds.append(time.perf_counter() - start)

    start = time.perf_counter()
    run_threads([lambda t=t: work(t) for t in range(num_threads)])
    rate = len(seconds) / (time.perf_counter() - start)
    hold_to(all_cores)
    return rate, seconds


def measure(build, rounds=5, steps=400, num_threads=8):
    """Medians of rounds that alternate one thread and eight."""
    figures = {1: [], num_threads: []}
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        program = build(folder)
        batches = [batches_of(thread, steps) for thread in range(num_threads)]
        train_for(program, [b[:50] for b in batches], num_threads)
        for _ in range(rounds):
            for n in figures:
                rate, seconds = train_for(program, batches, n)
                p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
                figures[n].append((rate, p50, p99))
    medians = {
        n: [statistics.median(f) for f in zip(*rows, strict=True)] for n, rows in figures.items()
    }
    (one, *_), (many, p50, p99) = medians[1], medians[num_threads]
    return {
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "steps_per_second_of_1_on_one_core": one,
        f"steps_per_second_of_{num_threads}": many,
        "p50_ms": p50,
        "p99_ms": p99,
        "share_of_one_core_x_cores": many / (one * os.cpu_count()),
        "p99_by_p50": p99 / p50,
    }


if __name__ == "__main__":
    for program in (build, build_dense):
        print(program.__name__, json.dumps(measure(program), indent=1))
