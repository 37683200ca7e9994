"""Exports in a server in C: the loader that TensorFlow Serving has, and no Python beside it."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import fused_embedding as fe
from serving.serving_cases import LIBRARY, assert_same, inferred

TENSORFLOW = pathlib.Path(tf.__file__).with_name("libtensorflow_cc.so.2")


def signatures_of(folder):
    model = saved_model_pb2.SavedModel()
    model.ParseFromString((folder / "saved_model.pb").read_bytes())
    return model.meta_graphs[0].signature_def


def call(signature, given, output):
    """A call that saves one output; `given` names an array, or is a string, by input."""
    feeds = {signature.inputs[name].name: value for name, value in given.items()}
    (name, fetched), *_ = sorted(signature.outputs.items())
    return name, {"feeds": feeds, "fetch": fetched.name, "output": str(output)}


def serve(folder, given, calls, ops=()):
    np.savez(folder / "given.npz", **given)
    request = folder / "request.json"
    request.write_text(
        json.dumps(
            {
                "tensorflow": str(TENSORFLOW),
                "ops": list(map(str, ops)),
                "folder": str(folder),
                "given": str(folder / "given.npz"),
                "calls": calls,
            }
        )
    )
    script = str(pathlib.Path(__file__).with_name("c_server.py"))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["LD_LIBRARY_PATH"] = str(TENSORFLOW.parent)
    run = subprocess.run(
        [sys.executable, script, str(request)], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == []


class Model(tf.Module):
    """A lookup in a table of partitions."""

    def __init__(self):
        super().__init__()
        self.users = fe.get_embedding_variable(
            "users", 4, partitioner=tf.compat.v1.fixed_size_partitioner(2)
        )
        self.users.upsert(tf.range(10, dtype=tf.int64), tf.ones([10, 4]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def serve(self, keys):
        ids = tf.RaggedTensor.from_row_lengths(keys, tf.ones_like(keys)).to_sparse()
        return {"rows": fe.nn.fused_safe_embedding_lookup_sparse(self.users, ids)}


GIVEN = {"keys": np.array([3, -1, 7, 1 << 40, 3], np.int64)}


@pytest.mark.parametrize("ops", ["stock", "fused"])
def test_a_server_in_c_computes_what_inference_does(tmp_path, ops):
    model, folder = Model(), tmp_path / "export"
    fe.export_for_serving(model, folder, ops, signatures=model.serve)
    signature = signatures_of(folder)["serving_default"]
    name, asked = call(signature, {"keys": "keys"}, tmp_path / "rows.npy")
    serve(folder, GIVEN, [asked], [LIBRARY] if ops == "fused" else [])
    assert_same({name: np.load(asked["output"])}, inferred(model.serve, GIVEN))


def test_a_server_in_c_applies_a_delta(tmp_path):
    model, folder = Model(), tmp_path / "export"
    manager = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(model=model), str(tmp_path / "saves"), max_to_keep=2
    )
    manager.save()
    fe.export_for_serving(model, folder, signatures=model.serve)
    before = inferred(model.serve, GIVEN)
    model.users.upsert([3, 1 << 40], [[5.0] * 4, [6.0] * 4])
    delta = str(tmp_path / "delta")
    fe.write_serving_delta(delta, folder, manager.save(), names={"users": "model/users"})
    signatures = signatures_of(folder)
    served = signatures["serving_default"]
    name, first = call(served, {"keys": "keys"}, tmp_path / "first.npy")
    _, applied = call(signatures["apply_delta"], {"path": delta}, tmp_path / "generation.npy")
    _, second = call(served, {"keys": "keys"}, tmp_path / "second.npy")
    serve(folder, GIVEN, [first, applied, second])
    assert_same({name: np.load(first["output"])}, before)
    assert_same({name: np.load(second["output"])}, inferred(model.serve, GIVEN))
    assert np.load(applied["output"]) == 1
