"""Trains under tf.distribute's ParameterServerStrategy: `strategy_program.py CLUSTER_JSON OUT.npz`.

A program, because a coordinator takes over the runtime of its process.
"""

import json
import sys

import numpy as np
import tensorflow as tf

import fused_embedding as fe

NUM_IDS, DIM, NUM_STEPS, LEARNING_RATE = 12, 3, 4, 0.5
INITIAL = np.arange(NUM_IDS * DIM, dtype=np.float32).reshape(NUM_IDS, DIM) / 10


def batch(step: int) -> np.ndarray:
    """Ids by row; -1 is none."""
    return np.random.default_rng(step).integers(-1, NUM_IDS, (6, 4))


def train_step(lookup, table, shards: list[tf.Variable], dense_ids: tf.Tensor) -> tf.Tensor:
    """One step of gradient descent on the squares of the embeddings looked up; returns its loss."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(lookup(table, tf.sparse.from_dense(dense_ids)) ** 2)
    gradients = tape.gradient(loss, shards)
    for shard, gradient in zip(shards, gradients, strict=True):
        shard.scatter_sub(tf.IndexedSlices(LEARNING_RATE * gradient.values, gradient.indices))
    return loss


def train_alone(lookup) -> tuple[list[float], np.ndarray]:
    """Losses and the trained table, in one process."""
    table = tf.Variable(INITIAL)
    losses = [
        float(train_step(lookup, table, [table], tf.constant(batch(k)))) for k in range(NUM_STEPS)
    ]
    return losses, table.numpy()


def train_on_cluster(
    addresses: dict[str, list[str]],
) -> tuple[list[float], list[tf.Variable]]:
    """Losses and the shards of a tf.Variable on parameter servers."""
    spec = tf.train.ClusterSpec({**addresses, "chief": ["localhost:0"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        table = tf.Variable(INITIAL)
    lookup = fe.nn.fused_safe_embedding_lookup_sparse

    @tf.function
    def step(dense_ids: tf.Tensor) -> tf.Tensor:
        return strategy.run(
            lambda ids: train_step(lookup, table, table.variables, ids), [dense_ids]
        )

    losses = []
    for k in range(NUM_STEPS):  # waits for each: two workers' steps would come in any order
        losses.append(float(coordinator.schedule(step, args=(tf.constant(batch(k)),)).fetch()))
    return losses, table.variables


if __name__ == "__main__":
    cluster_losses, trained_shards = train_on_cluster(json.loads(sys.argv[1]))
    np.savez(
        sys.argv[2],
        losses=cluster_losses,
        table=np.concatenate([shard.numpy() for shard in trained_shards]),
        devices=[shard.device for shard in trained_shards],
    )
