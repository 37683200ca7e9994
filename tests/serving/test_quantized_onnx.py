"""fe.export_for_serving(format="onnx", quantize=): onnxruntime decodes rows in fewer bytes."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from oracle.small_rows import rounded_rows
from serving import serving_cases as cases

for package in ("tf2onnx", "onnx", "onnxruntime"):
    pytest.importorskip(package, reason="pip install tf2onnx onnx onnxruntime")
onnxruntime = importlib.import_module("onnxruntime")

v1 = tf.compat.v1
NUM_KEYS, DIM = 400, 65
CONSTANT = v1.constant_initializer(0.5)  # which each format has exactly


def random_rows(num_rows, seed, row_format):
    rows = np.random.default_rng(seed).normal(size=[num_rows, DIM]).astype(np.float32)
    return rounded_rows(rows, row_format) if row_format else rows


class Model(tf.Module):
    """A table and a variable that are looked up, and a variable that is used otherwise."""

    def __init__(self, row_format=None):
        super().__init__()
        self.users = fe.get_embedding_variable("users", DIM, initializer=CONSTANT)
        self.users.upsert(np.arange(NUM_KEYS) * 7, random_rows(NUM_KEYS, 0, row_format))
        self.words = tf.Variable(random_rows(12, 1, row_format), name="words")
        self.kernel = tf.Variable(random_rows(DIM, 2, None), name="kernel")

    @tf.function(input_signature=list(cases.SPECS.values()))
    def serve(self, ids, indices, dense_shape, weights):
        sp_ids = tf.SparseTensor(indices, ids, dense_shape)
        sp_weights = tf.SparseTensor(indices, weights, dense_shape)
        lookup = fe.nn.fused_safe_embedding_lookup_sparse
        users = lookup(self.users, sp_ids, sp_weights, combiner="mean", default_id=7)
        return {
            "users": users,
            "words": lookup(self.words, sp_ids, combiner="sqrtn", max_norm=1.0),
            "word": tf.gather(self.words, tf.math.floormod(tf.stack([ids, ids]), 12)),
            "layer": tf.matmul(users, self.kernel),
        }


def run(path, given):
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


@pytest.fixture(scope="module")
def size_of_floats(tmp_path_factory):
    """Bytes of a file whose rows are not quantized."""
    path, model = tmp_path_factory.mktemp("floats") / "model.onnx", Model()
    fe.export_for_serving(model, path, signatures=model.serve, format="onnx")
    return path.stat().st_size


@pytest.mark.parametrize("row_format", ["int8", "int4"])
def test_files_compute_what_inference_does_of_rounded_rows(tmp_path, size_of_floats, row_format):
    path = tmp_path / "model.onnx"
    model, twin = Model(), Model(row_format)
    errors = fe.export_for_serving(
        model, path, signatures=model.serve, format="onnx", quantize=row_format
    )
    assert {name: error.rows for name, error in errors.items()} == {"users": NUM_KEYS, "words": 12}
    for given in (cases.batch(), cases.NO_IDS):
        want = cases.inferred(twin.serve, given)
        got = run(path, given)
        assert got.keys() == want.keys()
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    row_bytes = {"int8": DIM + 8, "int4": (DIM + 1) // 2 + 8}[row_format]
    saved = (NUM_KEYS + 1 + 12) * (4 * DIM - row_bytes)
    assert abs(size_of_floats - path.stat().st_size - saved) < 20_000  # of nodes


def test_one_table_of_a_session(tmp_path):
    path = tmp_path / "model.onnx"
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None], name="ids")
        table = fe.get_embedding_variable("ads", DIM, initializer=CONSTANT)
        other = v1.get_variable("other", [9, DIM], use_resource=True)
        rows = tf.nn.embedding_lookup(table, ids)
        others = tf.nn.embedding_lookup(other, ids)
        session.run(v1.global_variables_initializer())
        session.run(table.upsert([3, 4], random_rows(2, 5, None)))
        exact = session.run(others, {ids: [3, 4]})
        errors = fe.export_for_serving(
            session,
            path,
            inputs={"ids": ids},
            outputs={"rows": rows, "others": others},
            format="onnx",
            quantize={"ads": "int4"},
        )
    assert errors.keys() == {"ads"}
    got = run(path, {"ids": np.array([3, 4], np.int64)})
    np.testing.assert_allclose(got["rows"], random_rows(2, 5, "int4"), rtol=1e-6)
    np.testing.assert_array_equal(got["others"], exact)


def test_a_format_that_runtimes_do_not_read(tmp_path):
    model = Model()
    with pytest.raises(NotImplementedError, match="'bfloat16', whose numbers not every runtime"):
        fe.export_for_serving(
            model, tmp_path / "x", signatures=model.serve, format="onnx", quantize="bfloat16"
        )
    assert not list(tmp_path.iterdir())
