"""do_fusion="check" in a worker whose tables are on parameter servers."""

import logging

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from checking import sparse
from distributed import cluster

tf1 = tf.compat.v1

pytestmark = pytest.mark.slow

TABLE = np.random.default_rng(1).uniform(-1, 1, [8, 3]).astype(np.float32)
IDS = sparse([1, 2, 2, 7, 1], [0, 0, 2, 2, 3], 5)


@pytest.fixture(scope="module")
def worker():
    """A worker in this process, as a check needs it, and the cluster that it is part of."""
    ports = cluster.free_ports(3)
    jobs = {"ps": [f"localhost:{p}" for p in ports[:2]], "worker": [f"localhost:{ports[2]}"]}
    specification = tf.train.ClusterSpec(jobs)
    servers = [tf.distribute.Server(specification, "ps", task) for task in (0, 1)]
    servers.append(tf.distribute.Server(specification, "worker", 0))
    return specification, servers[-1].target


def train(version, worker, *, partitions, use_resource):
    """The table after three steps."""
    specification, target = worker
    setter = tf1.train.replica_device_setter(cluster=specification, worker_device="/job:worker")
    partitioner = tf1.fixed_size_partitioner(partitions)
    scope = tf1.variable_scope("", partitioner=partitioner, use_resource=use_resource)
    with tf.Graph().as_default(), tf1.device(setter), scope:
        table = tf1.get_variable(f"table_{partitions}_{use_resource}", [8, 3])
        ids = tf.SparseTensor(
            *(tf.constant(tensor.numpy()) for tensor in tf.nest.flatten(IDS, True))
        )
        output = fe.nn.fused_safe_embedding_lookup_sparse(
            table, ids, fusion_version=version, name="user"
        )
        step = tf1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(output**2))
        with tf1.Session(target) as session:
            session.run(tf1.global_variables_initializer())
            for part, rows in zip(table, np.array_split(TABLE, partitions), strict=True):
                part.load(rows, session)
            for _ in range(3):
                session.run(step)
            return np.concatenate([session.run(part) for part in table])


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("partitions", [1, 2])
def test_trains_as_without_a_check(partitions, use_resource, worker, caplog):
    caplog.set_level(logging.INFO, "fused_embedding")
    how = {"partitions": partitions, "use_resource": use_resource}
    want = train("v2", worker, **how)
    got = train(fe.FusionCheck(every=2), worker, **how)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    records = [record for record in caplog.records if record.name == "fused_embedding"]
    steps = [record.getMessage().partition(" differ")[0] for record in records]
    assert steps == [f"user, step {n}: {w}" for n in (1, 3) for w in ("outputs", "gradients")]
