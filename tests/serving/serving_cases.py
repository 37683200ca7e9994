"""Exports, and a server in a process of its own that answers from them."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf

import fused_embedding as fe

TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}
OURS = set(fe.raw_ops.__all__)
LIBRARY = pathlib.Path(fe.__file__).with_name("_ops.so")


class Server:
    """A process that does not import the package; with a library, it loads its ops."""

    def __init__(self, *library):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        script = pathlib.Path(__file__).with_name("stock_server.py")
        self._process = subprocess.Popen(
            [sys.executable, script, *map(str, library)],
            env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def serve(self, folder, given, loader="v2"):
        """Outputs by name, and the types of all ops of the SavedModel."""
        folder = pathlib.Path(folder)
        files = {name: str(folder / f"{name}.npz") for name in ("given", "outputs")}
        np.savez(files["given"], **given)
        request = {"folder": str(folder), "loader": loader, **files}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        assert answer["modules"] == []
        return dict(np.load(files["outputs"])), set(answer["ops"])

    def stop(self):
        self._process.stdin.close()
        self._process.wait(60)


class Deltas:
    """Deltas of an export, one for each save, in order.

    Attributes:
        paths: Those that were written.
    """

    def __init__(self, export, prefix, names=None):
        self._export, self._prefix, self._names = export, prefix, names
        self.paths = []

    def write(self, checkpoint, **options):
        """Writes the next one; its path."""
        path = f"{self._prefix}-{len(self.paths)}"
        before = self.paths[-1] if self.paths else None
        fe.write_serving_delta(
            path, self._export, checkpoint, continues=before, names=self._names, **options
        )
        self.paths.append(path)
        return path


def assert_served(server, folder, given, want, loader="v2"):
    """A server of stock TensorFlow computes `want` with stock ops."""
    got, ops = server.serve(folder, given, loader)
    assert not ops & OURS
    assert_same(got, want)


def assert_same(got, want):
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_allclose(got[name], np.asarray(value), **TOLERANCE, err_msg=name)


def tensors(given):
    return {name: tf.constant(value) for name, value in given.items()}


@functools.lru_cache(maxsize=2)
def _inference_of(function):
    """The same function, to be traced in inference."""
    return tf.function(function.python_function, input_signature=function.input_signature)


def inferred(function, given):
    """What this package computes in inference, as arrays by name."""
    with fe.inference():
        results = _inference_of(function)(**tensors(given))
    return {name: value.numpy() for name, value in results.items()}


# --- A batch: 7 rows, some empty, ids that no table has, invalid ids, rows in any order ---

ROW_IDS = np.array([2, 0, 0, 6, 4, 4, 4, 5], np.int64)
IDS = np.array([1, 5, 11, 9, 9, 0, 10, -7], np.int64)  # tables do not know 10 and 11
KEYS = np.array([1, 1007, 10**12, 77, 2**62 + 5, 9, 10, -7], np.int64)
WEIGHTS = np.array([0.5, 2.0, 1.5, 0.0, -1.0, 0.25, 3.0, 1.0], np.float32)
NUM_ROWS = 7
UNKNOWN = np.array([10**12, 7, -7, -(2**63), 2**63 - 1, 123456789, 5], np.int64)


def batch(ids=IDS):
    order = np.arange(len(ROW_IDS), dtype=np.int64)
    return {
        "ids": np.asarray(ids, np.int64),
        "indices": np.stack([ROW_IDS, order], axis=1),
        "dense_shape": np.array([NUM_ROWS, len(ROW_IDS)], np.int64),
        "weights": WEIGHTS,
    }


SPECS = {
    "ids": tf.TensorSpec([None], tf.int64),
    "indices": tf.TensorSpec([None, 2], tf.int64),
    "dense_shape": tf.TensorSpec([2], tf.int64),
    "weights": tf.TensorSpec([None], tf.float32),
}
NO_IDS = {
    "ids": np.zeros([0], np.int64),
    "indices": np.zeros([0, 2], np.int64),
    "dense_shape": np.array([3, 4], np.int64),
    "weights": np.zeros([0], np.float32),
}

# Options of a lookup, each once off its default.
LOOKUPS = {
    "mean": {},
    "sum": {"combiner": "sum"},
    "sqrtn_clipped": {"combiner": "sqrtn", "max_norm": 0.3},
    "default": {"default_id": 3, "combiner": "sum"},
    "weighted_sum": {"combiner": "sum", "weighted": True},
    "weighted_mean": {"combiner": "mean", "weighted": True, "default_id": 1},
    "weighted_sqrtn": {"combiner": "sqrtn", "weighted": True, "max_norm": 0.5},
}
# Together they have each option, for tables whose rows are read as those of others are.
FEW_LOOKUPS = {name: LOOKUPS[name] for name in ("default", "sqrtn_clipped", "weighted_mean")}
