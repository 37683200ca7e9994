"""Exports that are loaded where TensorFlow puts variables on another device than tables.

A machine with a GPU is one: variables are on the GPU, hash tables and EmbeddingVariables on the
CPU. Two CPUs stand for them here.
"""

import pytest

import processes

PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import fused_embedding as fe

ops, folder = sys.argv[1:]


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.users = fe.get_embedding_variable(
            "users", 4, initializer=tf.compat.v1.constant_initializer(0.5)
        )
        self.users.upsert([1, 2], np.ones([2, 4]))
        self.dense = tf.Variable(tf.ones([4]), name="dense")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
    def serve(self, ids):
        rows = tf.nn.embedding_lookup(self.users, ids)
        return {"y": tf.reduce_sum(rows * self.dense, axis=1)}


model = Model()
fe.export_for_serving(model, f"{folder}/export", ops, signatures={"serving_default": model.serve})
manager = fe.train.IncrementalCheckpointManager(
    tf.train.Checkpoint(model=model), f"{folder}/saves", max_to_keep=10
)
manager.save(0)
model.users.upsert([2], np.full([1, 4], 3.0))
model.dense.assign(2 * model.dense)
fe.write_serving_delta(f"{folder}/delta", f"{folder}/export", manager.save(1))

make = UninitializedVariable.__init__


def on_the_other(self, *args, **kwargs):
    with tf.device("/CPU:1"):
        make(self, *args, **kwargs)


UninitializedVariable.__init__ = on_the_other
loaded = tf.saved_model.load(f"{folder}/export")
serve = loaded.signatures["serving_default"]
assert {v.device[-5:] for v in serve.variables if v.dtype != tf.resource} >= {"CPU:1"}


def print_answer():
    print(serve(ids=tf.constant([1, 2, 3], tf.int64))["y"].numpy().tolist(), flush=True)


print_answer()
if ops == "stock":
    loaded.signatures["apply_delta"](path=tf.constant(f"{folder}/delta"))
    print_answer()
"""


@pytest.mark.parametrize(
    ("ops", "answers"),
    [("stock", ["[4.0, 4.0, 2.0]", "[8.0, 24.0, 4.0]"]), ("fused", ["[4.0, 4.0, 2.0]"])],
)
def test_variables_may_be_on_another_device_than_tables(tmp_path, ops, answers):
    done = processes.run_program(PROGRAM, ops, tmp_path)
    assert processes.output_of(done).splitlines() == answers
