"""SyncReplicasOptimizer on two servers and two workers: updates are means of both gradients.

Two EmbeddingVariables and two ordinary variables, each in two parts, are looked up together; a
dense variable that stock looks up and trains says what is right.
"""

import concurrent.futures
import threading
from typing import Any

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
    """Distinct rows, other ones for each worker, some of which both have.

    They ascend, as stock's accumulators of sparse gradients take for granted: in any other order a
    row of two workers may be summed up, with stock's lookups as well.
    """
    return np.sort(np.random.default_rng([task, step]).permutation(NUM_ROWS)[:5])


def make_tables() -> tuple[list[Any], list[Any]]:
    """EmbeddingVariables and ordinary variables, resource and reference, in two parts."""
    with tf1.variable_scope("grouped", partitioner=tf1.fixed_size_partitioner(2)):
        zeros = tf1.zeros_initializer()
        keyed = [fe.get_embedding_variable(f"keyed{i}", DIM, initializer=zeros) for i in range(2)]
        ordinary = [
            tf1.get_variable(
                f"ordinary{i}", [NUM_ROWS, DIM], initializer=zeros, use_resource=bool(i)
            )
            for i in range(2)
        ]
    return keyed, ordinary


def train(addresses: dict[str, list[str]], task: int, is_ready: threading.Event) -> dict[str, Any]:
    """Trains all tables, and a dense variable by stock, in one loss; returns what is in them."""
    setter = tf1.train.replica_device_setter(
        cluster=tf.train.ClusterSpec(addresses), worker_device=f"/job:worker/task:{task}"
    )
    with tf.Graph().as_default(), tf1.device(setter):
        keyed, ordinary = make_tables()
        dense = tf1.get_variable(
            "dense", [NUM_ROWS, DIM], initializer=tf1.zeros_initializer(), use_resource=True
        )
        ids = tf1.placeholder(tf.int64, [None])
        rows = tf.range(tf.size(ids, tf.int64))
        sparse = tf.SparseTensor(
            tf.stack([rows, tf.zeros_like(rows)], axis=1), ids, [tf.size(ids, tf.int64), 1]
        )
        tables = [*keyed, *ordinary]
        embedded = fe.nn.group_embedding_lookup_sparse(
            tables, [sparse] * len(tables), ["sum"] * len(tables), partition_strategy="div"
        )
        embedded.append(tf.nn.embedding_lookup(dense, ids))
        loss = tf.add_n([tf.reduce_sum((one - 1.0) ** 2) for one in embedded])
        step = tf1.train.get_or_create_global_step()
        optimizer = tf1.train.SyncReplicasOptimizer(tf1.train.AdagradOptimizer(0.1), 2)
        train_op = optimizer.minimize(loss, step)
        messages = [op.type for op in tf1.get_default_graph().get_operations()]
        for kind in ("EmbeddingVariable", "FusedEmbeddingResource", "FusedEmbedding"):
            assert messages.count(f"{kind}RemoteRows") == 2
        content = {
            "keyed": [[part.export() for part in table] for table in keyed],
            "ordinary": [tf.convert_to_tensor(table) for table in ordinary],
            "want": tf.identity(dense),
        }
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
            return session.run(content)


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
        want = content["want"]
        assert np.all(want[seen] > 0)
        for rows in content["ordinary"]:
            np.testing.assert_allclose(rows, want, rtol=1e-6)
        for parts in content["keyed"]:
            keys = np.concatenate([part.keys for part in parts])
            np.testing.assert_array_equal(np.sort(keys), seen)
            values = np.concatenate([part.values for part in parts])
            np.testing.assert_allclose(values, want[keys], rtol=1e-6)
