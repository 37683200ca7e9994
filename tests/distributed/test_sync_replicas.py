"""SyncReplicasOptimizer on two servers and two workers: updates are means of both gradients."""

import concurrent.futures
import threading

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from distributed import cluster

tf1 = tf.compat.v1

# Stock's queue runner raises in its thread when its session is closed.
unhandled = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
pytestmark = [pytest.mark.slow, unhandled]

DIM, NUM_ROWS, NUM_STEPS = 4, 12, 5


def ids_of(task: int, step: int) -> np.ndarray:
    """Distinct rows, other ones for each worker, some of which both have."""
    return np.random.default_rng([task, step]).permutation(NUM_ROWS)[:5]


def train(
    addresses: dict[str, list[str]], task: int, is_ready: threading.Event
) -> dict[str, np.ndarray]:
    """Trains a table, and a dense variable by stock, in one loss; returns what is in them."""
    setter = tf1.train.replica_device_setter(
        cluster=tf.train.ClusterSpec(addresses), worker_device=f"/job:worker/task:{task}"
    )
    zeros = tf1.zeros_initializer()
    with tf.Graph().as_default(), tf1.device(setter):
        table = fe.get_embedding_variable("synchronous", DIM, initializer=zeros)
        dense = tf1.get_variable("dense", [NUM_ROWS, DIM], initializer=zeros, use_resource=True)
        ids = tf1.placeholder(tf.int64, [None])
        loss = sum(
            tf.reduce_sum((tf.nn.embedding_lookup(params, ids) - 1.0) ** 2)
            for params in (table, dense)
        )
        step = tf1.train.get_or_create_global_step()
        optimizer = tf1.train.SyncReplicasOptimizer(tf1.train.AdagradOptimizer(0.1), 2)
        train_op = optimizer.minimize(loss, step)
        rows, want = table.export(), tf.identity(dense)
        if task != 0:
            is_ready.wait()  # else it sleeps for 30 seconds before it looks again
        with tf1.train.MonitoredTrainingSession(
            f"grpc://{addresses['worker'][task]}",
            is_chief=task == 0,
            hooks=[optimizer.make_session_run_hook(task == 0, num_tokens=0)],
            stop_grace_period_secs=1,
        ) as session:
            is_ready.set()
            for i in range(NUM_STEPS):
                session.run(train_op, {ids: ids_of(task, i)})
            # A worker passes a step when its update has been made.
            return session.run({"keys": rows.keys, "values": rows.values, "want": want})


def test_two_workers_in_step_train_as_a_dense_variable():
    is_ready = threading.Event()
    with (
        cluster.running({"ps": 2, "worker": 2}) as addresses,
        concurrent.futures.ThreadPoolExecutor(2) as threads,
    ):
        workers = [threads.submit(train, addresses, task, is_ready) for task in range(2)]
        contents = [worker.result(timeout=300) for worker in workers]
    seen = np.unique([ids_of(task, step) for task in range(2) for step in range(NUM_STEPS)])
    for content in contents:
        np.testing.assert_array_equal(np.sort(content["keys"]), seen)
        assert np.all(content["want"][seen] > 0)
        want = content["want"][content["keys"]]
        np.testing.assert_allclose(content["values"], want, rtol=1e-6)
