"""Trains on two replicas: `keras_replicas_program.py KERAS` prints the rows of three variables.

They are a weight that our optimizer trains, one that stock's does, and an EmbeddingVariable. A
program, because the number of CPU devices is that of a process. Both replicas name row 1, one of
them twice; stock gets dense gradients.
"""

import importlib
import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from cases.keras_optimizers import make, numbers, ours, variable_of
from cases.kerases import is_keras_3

IDS = [[0, 1, 1], [1, 2, 4]]


def table_of(keras: Any) -> Any:
    """An EmbeddingVariable, as Keras has it."""
    ones = tf.compat.v1.ones_initializer()
    table = fe.get_embedding_variable("table", 2, initializer=ones)
    table.upsert(tf.range(5), tf.ones([5, 2]))
    return fe.keras.variable(table) if is_keras_3(keras) else table


def train(keras: Any, strategy: Any, of: str) -> list[list[float]]:
    """The rows of a variable after three steps."""
    is_ours = of != "stock"
    with strategy.scope():
        weight = variable_of(keras, np.ones((5, 2), np.float32))
        variable = table_of(keras) if of == "table" else weight
        optimizer = make(ours(keras) if is_ours else keras.optimizers, "adagrad")
        optimizer.build([variable])

    @tf.function
    def step() -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        ids = tf.gather(tf.constant(IDS), tf.convert_to_tensor(replica))
        values = tf.constant([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])
        grad = tf.IndexedSlices(values, ids, tf.constant([5, 2]))
        grad = grad if is_ours else tf.convert_to_tensor(grad)
        optimizer.apply_gradients([(grad, variable)])

    for _ in range(3):
        strategy.run(step)
    rows = variable.numpy() if of == "table" else numbers(variable)
    return np.asarray(rows).tolist()


if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    module = importlib.import_module(sys.argv[1])
    replicas = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    print(json.dumps([train(module, replicas, of) for of in ("ours", "stock", "table")]))
