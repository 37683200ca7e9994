"""fe.damo.save_model with torch.onnx.export's arguments: files that plain onnxruntime runs."""

import importlib
import pathlib
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES

for package in ("tf2onnx", "onnx", "onnxruntime"):
    pytest.importorskip(package, reason="pip install tf2onnx onnx onnxruntime")
onnxruntime = importlib.import_module("onnxruntime")

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/migration/damo.md"
EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
DIM = 3
IDS = np.array([[1, 5], [5, -9], [2**60, 0], [1, 1]], np.int64)
NUMBERS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def model_of(keras, structure=list):
    """Scores, and the rows of the ids."""
    ids = keras.Input((2,), dtype="int64", name="ids")
    numbers = keras.Input((3,), name="numbers")
    layer = fe.damo.embedding_class(keras)(DIM)
    rows = keras.layers.Flatten()(layer(ids))
    scores = keras.layers.Dense(1)(keras.layers.Concatenate()([rows, numbers]))
    keys = np.unique(IDS[IDS != 0])
    layer.table.upsert(keys, np.linspace(-2, 2, len(keys) * DIM).reshape(-1, DIM))
    given = {"numbers": numbers, "ids": ids} if structure is dict else [ids, numbers]
    return keras.Model(given, [scores, rows])


def save(model, folder, **arguments):
    fe.damo.save_model(model, folder, training=False, **arguments)
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]
    return onnxruntime.InferenceSession(str(folder / "model.onnx"))


def shapes(values):
    return [(value.name, value.shape) for value in values]


@EACH_KERAS
def test_names_and_axes_are_as_given(keras, tmp_path):
    model = model_of(keras)
    session = save(
        model,
        tmp_path / "new" / "folder",
        dummy_input=(IDS[:1], NUMBERS[:1]),
        input_names=["zips", "amounts"],  # no order of the alphabet
        output_names=["score", "embedded"],
        dynamic_axes={"zips": {0: "batch"}, "amounts": [0], "score": {0: "batch"}},
    )
    inputs = [("zips", ["batch", 2]), ("amounts", ["amounts_axis_0", 3])]
    assert shapes(session.get_inputs()) == inputs
    (score, embedded) = shapes(session.get_outputs())
    assert score == ("score", ["batch", 1])
    assert (embedded[0], embedded[1][1]) == ("embedded", 2 * DIM)
    assert [value.type for value in session.get_inputs()] == ["tensor(int64)", "tensor(float)"]
    for size in (4, 1):
        given = [IDS[:size], NUMBERS[:size]]
        got = session.run(None, {"zips": given[0], "amounts": given[1]})
        for value, want in zip(got, model(given, training=False), strict=True):
            np.testing.assert_allclose(value, want, rtol=1e-6, atol=1e-6)


@EACH_KERAS
def test_other_axes_have_the_sizes_of_dummy_input(keras, tmp_path):
    model = model_of(keras)
    session = save(model, tmp_path / "model", dummy_input=[tf.constant(IDS), NUMBERS])
    assert shapes(session.get_inputs()) == [("input_0", [4, 2]), ("input_1", [4, 3])]
    assert shapes(session.get_outputs()) == [("output_0", [4, 1]), ("output_1", [4, 2 * DIM])]
    got = session.run(["output_0"], {"input_0": IDS, "input_1": NUMBERS})
    want = model([IDS, NUMBERS], training=False)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-6, atol=1e-6)
    with pytest.raises(Exception, match=r"(?s)invalid dimensions.*input_0.*Got: 3 Expected: 4"):
        session.run(None, {"input_0": IDS[:3], "input_1": NUMBERS})


@EACH_KERAS
def test_a_dictionary_names_its_inputs(keras, tmp_path):
    model = model_of(keras, dict)
    dummy = {"numbers": NUMBERS, "ids": IDS}
    session = save(model, tmp_path / "model", dummy_input=dummy, dynamic_axes={"ids": [0]})
    assert shapes(session.get_inputs()) == [("ids", ["ids_axis_0", 2]), ("numbers", [4, 3])]
    (score, rows) = session.run(None, dummy)
    want = model(dummy, training=False)
    np.testing.assert_allclose(score, want[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(rows, want[1])


@EACH_KERAS
def test_one_input_in_a_tuple(keras, tmp_path):
    ids = keras.Input((2,), dtype="int64")
    layer = fe.damo.embedding_class(keras)(DIM, initializer={"name": "ones"})
    model = keras.Model(ids, layer(ids))
    session = save(model, tmp_path / "model", dummy_input=(IDS,), output_names=["rows"])
    got = session.run(["rows"], {"input_0": IDS})[0]
    np.testing.assert_array_equal(got, np.repeat((IDS != 0)[..., None], DIM, axis=2))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"training": True}, ValueError, "dummy_input, which ask for.*pass training=False"),
        (
            {"dummy_input": None, "input_names": ["a", "b"]},
            ValueError,
            "given input_names without dummy_input: give an array",
        ),
        ({"dummy_input": [[1, 2], NUMBERS]}, TypeError, "an array .*got 1: give numpy arrays"),
        ({"dummy_input": tf.sparse.from_dense(IDS)}, TypeError, "got SparseTensor"),
        ({"dummy_input": []}, ValueError, "dummy_input has no array"),
        ({"input_names": ["a"]}, ValueError, "must be a list of 2 names.*got \\['a'\\]"),
        ({"input_names": "ab"}, ValueError, "must be a list of 2 names.*got 'ab'"),
        ({"input_names": ["a", "b.1"]}, ValueError, "identifiers, got 'b.1': rename it"),
        ({"input_names": ["a", "in"]}, ValueError, "identifiers, got 'in'"),
        ({"input_names": ["a", "a"]}, ValueError, "'a', which is the name of two tensors"),
        ({"output_names": ["a"]}, ValueError, "output_names must be a list of 2 names"),
        ({"output_names": ["input_0", "b"]}, ValueError, "'input_0', which is the name of two"),
        (
            {"dynamic_axes": {"ids": [0]}},
            ValueError,
            "has the name 'ids', but inputs and outputs are input_0, input_1, output_0, output_1",
        ),
        ({"dynamic_axes": {"input_0": [2]}}, ValueError, "axis 2 of 'input_0', which has 2 axes"),
        ({"dynamic_axes": {"input_0": [-1]}}, ValueError, "axis -1 of 'input_0'.*count from 0"),
        ({"dynamic_axes": {"output_0": [2]}}, ValueError, "axis 2 of 'output_0', which has 2"),
        ({"dynamic_axes": {"input_0": {0: ""}}}, ValueError, "axis 0 of 'input_0' '': give it a"),
        ({"dynamic_axes": {"input_0": {"x": "y"}}}, ValueError, "has axis 'x' of 'input_0'"),
    ],
)
def test_errors(arguments, error, message, tmp_path):
    model = model_of(tf.keras)
    with pytest.raises(error, match=message):
        fe.damo.save_model(
            model,
            tmp_path / "model",
            **{"training": False, "dummy_input": [IDS, NUMBERS], **arguments},
        )
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_file_that_is_there(tmp_path, monkeypatch):
    model = model_of(tf.keras)
    save(model, tmp_path, dummy_input=[IDS, NUMBERS])
    before = (tmp_path / "model.onnx").read_bytes()
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match="pip install tf2onnx onnx"):
        save(model, tmp_path, dummy_input=[IDS, NUMBERS])
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert (tmp_path / "model.onnx").read_bytes() == before


@pytest.mark.slow
def test_examples_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "example"}
    examples = re.findall("```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "<example>", "exec"), namespace)  # AutoGraph: no source
