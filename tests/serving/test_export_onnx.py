"""fe.export_for_serving(format="onnx"): files that plain onnxruntime runs."""

import importlib
import pathlib
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES
from serving.serving_cases import (
    FEW_LOOKUPS,
    IDS,
    LOOKUPS,
    NO_IDS,
    UNKNOWN,
    assert_same,
    batch,
    inferred,
    tensors,
)
from serving.test_export_keras import fitted, given_to_model
from serving.test_export_lookups import (
    DIM,
    INITIALIZERS,
    KEYS,
    TABLES,
    Group,
    Lookups,
    Rows,
    rows,
    trained_table,
)

v1 = tf.compat.v1
for package in ("tf2onnx", "onnx", "onnxruntime"):
    pytest.importorskip(package, reason="pip install tf2onnx onnx onnxruntime")
onnxruntime = importlib.import_module("onnxruntime")
STANDARD = {"", "ai.onnx", "ai.onnx.ml"}
RANDOM = ("default", "uniform", "normal", "truncated_normal")


def run(path, given):
    """Outputs by name."""
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    assert {tensor.name for tensor in session.get_inputs()} == set(given)
    return dict(zip(names, session.run(None, given), strict=True))


def exported(model, path, **arguments):
    fe.export_for_serving(model, path, format="onnx", **arguments)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


ALL_LOOKUPS_OF = {("variable", "v3"), ("table", "v3")}


@pytest.mark.slow
# A file is made of the stock ops of an export, which test_export_lookups.py has of all versions.
@pytest.mark.parametrize(
    ("table", "version"), [*((t, "v3") for t in TABLES), ("variable", "v1"), ("hash", "v2")]
)
def test_lookups(path, table, version):
    lookups = LOOKUPS if (table, version) in ALL_LOOKUPS_OF else FEW_LOOKUPS
    model = Lookups(*TABLES[table](), version, lookups)
    exported(model, path, signatures=model.serve)
    known = np.where(np.isin(IDS, (10, 11)), 4, IDS)  # random first values are not in a file
    for given in (batch(known), NO_IDS):
        assert_same(run(path, given), inferred(model.serve, given))


def test_a_file_has_standard_ops_alone(path):
    model = Group(concat=True)
    exported(model, path, signatures=model.serve)
    onnx = importlib.import_module("onnx")
    file = onnx.load(path)
    onnx.checker.check_model(file)
    assert {node.domain for node in file.graph.node} <= STANDARD
    types = {node.op_type for node in file.graph.node}
    assert {"LabelEncoder", "Gather", "ScatterElements"} <= types


@pytest.mark.parametrize("concat", [False, True])
def test_groups(path, concat):
    model = Group(concat)
    exported(model, path, signatures=model.serve)
    given = batch(np.where(np.isin(IDS, (10, 11)), 4, IDS))
    assert_same(run(path, given), inferred(model.serve, given))


@pytest.mark.parametrize("initializer", ["zeros", "constant", "matrix"])
def test_unknown_keys_read_what_they_read_in_inference(path, initializer):
    model = Rows(trained_table(initializer=INITIALIZERS[initializer]))
    exported(model, path, signatures=model.serve)
    given = {"keys": KEYS}
    assert_same(run(path, given), inferred(model.serve, given))


@pytest.mark.parametrize("table", ["counter", "bloom"])
def test_unknown_keys_of_a_filtered_table(path, table):
    model = Rows(TABLES[table]()[0])
    exported(model, path, signatures=model.serve)
    given = {"keys": np.r_[UNKNOWN, KEYS]}
    assert_same(run(path, given), inferred(model.serve, given))


@pytest.mark.parametrize("initializer", RANDOM)
def test_unknown_keys_read_the_mean_of_a_random_initializer(path, initializer):
    model = Rows(trained_table(initializer=INITIALIZERS[initializer]))
    exported(model, path, signatures=model.serve)
    known = {"keys": np.r_[np.arange(10), 1007, 77]}
    assert_same(run(path, known), inferred(model.serve, known))
    mean = {"default": 0.0, "uniform": 0.75, "normal": 1.0, "truncated_normal": 0.0}[initializer]
    got = run(path, {"keys": UNKNOWN[2:6]})["rows"]
    np.testing.assert_allclose(got, np.full([4, DIM], mean), rtol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16])
def test_types_of_values(path, dtype):
    constant = v1.constant_initializer(0.3)
    table = trained_table(value_dtype=dtype, initializer=constant, train=dtype != tf.float16)
    model = Rows(table)
    exported(model, path, signatures=model.serve)
    given = {"keys": KEYS}
    assert_same(run(path, given), inferred(model.serve, given))


def test_a_table_without_rows(path):
    model = Rows(fe.get_embedding_variable("empty", DIM, initializer=rows(3, num_rows=7)))
    exported(model, path, signatures=model.serve)
    given = {"keys": KEYS}
    assert_same(run(path, given), inferred(model.serve, given))


@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_keras_models(path, keras):
    model = fitted(keras)
    given = given_to_model()
    given["items"] = np.where(given["items"] == -4, -1, given["items"])
    known = given["users"].reshape(-1)[:6]
    given["users"] = np.resize(known, given["users"].shape)
    want = {"output_0": np.asarray(model(tensors(given), training=False))}
    exported(model, path)
    got = run(path, given)
    assert_same(got, want)


def test_segments_of_a_model_that_are_none(path):
    model = tf.Module()
    model.serve = tf.function(
        lambda values, segments: tf.math.unsorted_segment_sum(values, segments, 3),
        input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32)],
    )
    exported(model, path, signatures=model.serve)
    given = {"values": np.ones(5, np.float32), "segments": np.array([0, -1, 2, 0, -2], np.int32)}
    assert_same(run(path, given), {"output_0": np.array([2, 0, 1])})


def test_the_example_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (pathlib.Path(__file__).parents[2] / "docs/serving.md").read_text()
    examples = [e for e in re.findall("```python\n(.*?)```", page, re.DOTALL) if "onnx" in e]
    assert len(examples) == 1
    exec(compile(examples[0], "docs/serving.md", "exec"), {})


def test_a_session(path):
    with tf.Graph().as_default(), v1.Session() as session:
        ads = v1.placeholder(tf.int64, [None], name="x")
        table = fe.get_embedding_variable("ads", DIM, initializer=v1.ones_initializer())
        scale = v1.get_variable("scale", initializer=2.0)
        upsert = table.upsert(tf.range(3, dtype=tf.int64), tf.constant(rows(num_rows=3)))
        sparse = tf.sparse.from_dense(ads[:, None] + 1)
        with fe.inference():
            found = scale * fe.nn.fused_safe_embedding_lookup_sparse(table, sparse)
        session.run([upsert, v1.global_variables_initializer()])
        given = {"ads": np.array([0, 1, 5, -4], np.int64)}
        want = {"rows": session.run(found, {ads: given["ads"]})}
        exported(session, path, inputs={"ads": ads}, outputs={"rows": found})
    assert_same(run(path, given), want)


def test_what_a_file_cannot_have(path, monkeypatch):
    model = Rows(trained_table(initializer=fe.DebugInitializer()))
    with pytest.raises(NotImplementedError, match=r"'users' has fe\.DebugInitializer"):
        exported(model, path, signatures=model.serve)
    model = Rows(trained_table())
    with pytest.raises(ValueError, match="one signature, got a, b"):
        exported(model, path, signatures={"a": model.serve, "b": model.serve})
    with pytest.raises(ValueError, match="no ops of this package"):
        exported(model, path, signatures=model.serve, ops="fused")
    with pytest.raises(ValueError, match='"saved_model" or "onnx", got \'tflite\''):
        fe.export_for_serving(model, path, signatures=model.serve, format="tflite")
    with monkeypatch.context() as patch:
        patch.setattr("fused_embedding.serving.onnx_file._MAX_BYTES", 100)
        with pytest.raises(ValueError, match="bytes of tables and 0 of variables"):
            exported(model, path, signatures=model.serve)
    unique = tf.function(
        lambda keys: tf.math.igamma(tf.cast(keys, tf.float32), 1.0),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    with pytest.raises(NotImplementedError, match="of type Igamma has no form in ONNX"):
        exported(tf.Module(), path, signatures=unique)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match="pip install tf2onnx onnx"):
        exported(model, path, signatures=model.serve)
    assert not list(path.parent.iterdir())
