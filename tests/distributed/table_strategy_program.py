"""Trains tables without a vocabulary under tf.distribute's ParameterServerStrategy.

`table_strategy_program.py WHAT CLUSTER_JSON FOLDER`, from distributed.test_table_strategies; it
prints one line of JSON. A program, because a coordinator takes over the runtime of its process.
"""

import json
import os
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

import fused_embedding as fe

tf1 = tf.compat.v1
NUM_IDS, BATCH, NUM_STEPS, LEARNING_RATE = 40, 16, 6, 0.5
DIMS = {"users": 4, "items": 8}
COMBINERS = {"users": "sum", "items": "mean"}
SECONDS_TO_FAIL = 120


def batch(step: int) -> dict[str, np.ndarray]:
    """Ids by row of each column; -1 is none."""
    rng = np.random.default_rng(step)
    return {name: rng.integers(-1, NUM_IDS, (BATCH, 3)) for name in DIMS}


def loss_of(embedded: Any) -> tf.Tensor:
    return tf.reduce_mean((tf.reduce_sum(tf.concat(embedded, axis=1), axis=1) - 1.0) ** 2)


class Job:
    """A coordinator with two tables in the scope of its strategy."""

    def __init__(self, addresses: dict[str, list[str]], partitioner: Any = None) -> None:
        spec = tf.train.ClusterSpec({**addresses, "chief": ["localhost:0"]})
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            spec, task_type="chief", task_id=0, rpc_layer="grpc"
        )
        self.strategy = tf.distribute.ParameterServerStrategy(
            resolver, variable_partitioner=partitioner
        )
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)

    def make_tables(self) -> None:
        ones = tf1.ones_initializer()
        with self.strategy.scope():
            self.tables = {
                name: fe.get_embedding_variable(name, dim, initializer=ones)
                for name, dim in DIMS.items()
            }
        self.checkpoint = tf.train.Checkpoint(**self.tables)

    @property
    def parts(self) -> list[Any]:
        return [part for table in self.tables.values() for part in self._parts_of(table)]

    @staticmethod
    def _parts_of(table: Any) -> list[Any]:
        return [table] if isinstance(table, tf.Variable) else list(table)

    def step_with(self, optimizer: Any) -> tf.types.experimental.PolymorphicFunction:
        def train(ids: dict[str, tf.Tensor]) -> tf.Tensor:
            with tf.GradientTape() as tape:
                sparse = [tf.sparse.from_dense(ids[name] + 1) for name in self.tables]
                shifted = [tf.SparseTensor(s.indices, s.values - 1, s.dense_shape) for s in sparse]
                loss = loss_of(
                    fe.nn.group_embedding_lookup_sparse(
                        list(self.tables.values()), shifted, list(COMBINERS.values())
                    )
                )
            grads = tape.gradient(loss, self.parts)
            optimizer.apply_gradients(list(zip(grads, self.parts, strict=True)))
            return loss

        return tf.function(lambda ids: self.strategy.run(train, (ids,)))

    def run(self, step: Any, numbers: range) -> list[float]:
        """The losses of the steps, one after the other: two workers' would come in any order."""
        return [
            float(self.coordinator.schedule(step, args=(as_tensors(batch(k)),)).fetch())
            for k in numbers
        ]

    def await_servers(self) -> None:
        """Returns when the worker reaches all servers.

        For some seconds gRPC does not try again to reach one that was not there.
        """
        count = tf.function(lambda: tf.add_n([part.total_count() for part in self.parts]))
        deadline = time.monotonic() + 60
        while True:
            try:
                self.coordinator.schedule(count).fetch()
                return
            except tf.errors.UnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def content(self) -> dict[str, Any]:
        """Keys and rows of each table."""
        rows = {}
        for name, table in self.tables.items():
            parts = [part.export() for part in self._parts_of(table)]
            keys = np.concatenate([part.keys.numpy() for part in parts])
            values = np.concatenate([part.values.numpy() for part in parts])
            order = np.argsort(keys)
            rows[name] = [keys[order].tolist(), values[order].tolist()]
        return rows


def as_tensors(ids: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(of_column, tf.int64) for name, of_column in ids.items()}


def optimizers() -> dict[str, Any]:
    """Of TF1, stock's and ours; of Keras 2, in whichever package it is."""
    arguments = {"initial_accumulator_value": 0.1, "epsilon": 0.0}
    return {
        "stock": lambda: tf1.train.AdagradOptimizer(LEARNING_RATE),
        "fused": lambda: fe.train.AdagradOptimizer(LEARNING_RATE),
        "keras": lambda: fe.keras.wrap(keras_2().optimizers.Adagrad(LEARNING_RATE, **arguments)),
    }


def keras_2() -> Any:
    try:
        import tf_keras
    except ImportError:
        return tf.keras
    return tf_keras


def train(addresses: dict[str, list[str]], folder: str) -> dict[str, Any]:
    """Trains with each optimizer, saves what the last one trained, and fits a model."""
    partitioners = tf.distribute.experimental.partitioners
    job = Job(addresses, partitioners.FixedShardsPartitioner(2))
    results: dict[str, Any] = {"losses": {}, "rows": {}}
    for name, make in optimizers().items():
        job.make_tables()
        with job.strategy.scope():
            optimizer = make()
        step = job.step_with(optimizer)
        results["losses"][name] = job.run(step, range(NUM_STEPS))
        results["rows"][name] = job.content()
    results["devices"] = [part.handle.device for part in job.parts]
    ops = step.get_concrete_function(as_tensors(batch(0))).graph.get_operations()
    results["messages"] = [op.type for op in ops].count("EmbeddingVariableRemoteRows")
    job.checkpoint.write(os.path.join(folder, "saved"))
    results["fit"] = fit(job)
    return results


def fit(job: Job) -> dict[str, Any]:
    """A model of tf_keras: losses of its epochs, and the devices of its layer's table."""
    keras = keras_2()
    with job.strategy.scope():
        layer = fe.keras.fused_layers(keras).EmbeddingBag(output_dim=4)
        model = keras.Sequential([layer, keras.layers.Dense(1)])
        model.compile(fe.keras.wrap(keras.optimizers.Adagrad(LEARNING_RATE)), "mse")

    def dataset(_: Any) -> tf.data.Dataset:
        ids = np.abs(np.concatenate([batch(k)["users"] for k in range(8)]))
        rows = tf.data.Dataset.from_tensor_slices((ids, np.ones([len(ids), 1], np.float32)))
        return rows.repeat().batch(BATCH)

    creator = keras.utils.experimental.DatasetCreator(dataset)
    history = model.fit(creator, epochs=3, steps_per_epoch=8, verbose=0)
    devices = [part.handle.device for part in layer.table]
    return {
        "losses": history.history["loss"],
        "devices": devices,
        "weights": len(model.trainable_weights),
        "rows": int(layer.table.total_count()),
    }


def place(addresses: dict[str, list[str]], _: str) -> dict[str, Any]:
    """Where tables are without a partitioner, beside a variable."""
    job = Job(addresses)
    job.make_tables()
    with job.strategy.scope():
        variable = tf.Variable(tf.zeros([4]))
        divided = fe.get_embedding_variable("divided", 4, partitioner=tf1.fixed_size_partitioner(3))
    return {
        "devices": [part.handle.device for part in job.parts],
        "variable": variable.device,
        "divided": [part.handle.device for part in divided],
    }


def resume(addresses: dict[str, list[str]], folder: str) -> dict[str, Any]:
    """Restores what `train` saved on as many servers as there are, and goes on."""
    partitioners = tf.distribute.experimental.partitioners
    job = Job(addresses, partitioners.FixedShardsPartitioner(len(addresses["ps"])))
    job.make_tables()
    job.checkpoint.read(os.path.join(folder, "saved")).assert_consumed()
    restored = job.content()
    job.await_servers()
    step = job.step_with(fe.train.AdagradOptimizer(LEARNING_RATE))
    return {
        "restored": restored,
        "devices": [part.handle.device for part in job.parts],
        "losses": job.run(step, range(NUM_STEPS, 2 * NUM_STEPS)),
    }


def lose(addresses: dict[str, list[str]], folder: str) -> dict[str, Any]:
    """Trains until a server is lost, which FOLDER/training lets the test know it can be."""
    partitioners = tf.distribute.experimental.partitioners
    job = Job(addresses, partitioners.FixedShardsPartitioner(2))
    job.make_tables()
    step = job.step_with(fe.train.AdagradOptimizer(LEARNING_RATE))
    try:
        for k in range(1_000_000):
            job.run(step, range(k, k + 1))
            if k == 1:
                open(os.path.join(folder, "training"), "w").close()
    except tf.errors.OpError as error:
        return {"error": type(error).__name__}
    return {}


if __name__ == "__main__":
    what, given_addresses, given_folder = sys.argv[1:]
    print(json.dumps(globals()[what](json.loads(given_addresses), given_folder)), flush=True)
    os._exit(0)  # a coordinator whose server is gone does not end
