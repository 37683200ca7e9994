"""What fe.export_for_serving refuses, and examples of its docs."""

import doctest
import importlib
import pathlib
import re
import tempfile

import pytest
import tensorflow as tf

import fused_embedding as fe

ROOT = pathlib.Path(__file__).parents[2]
KEYS = tf.TensorSpec([None], tf.int64)


class Model(tf.Module):
    """Looks up, and reads what is no lookup."""

    def __init__(self):
        super().__init__()
        self.table = fe.get_embedding_variable("users", 4)

    @tf.function(input_signature=[KEYS])
    def serve(self, keys):
        return tf.nn.embedding_lookup(self.table, keys)

    @tf.function(input_signature=[KEYS])
    def count(self, keys):
        return self.table.get_frequency(keys)

    @tf.function(input_signature=[KEYS])
    def handles(self, keys):
        return fe.raw_ops.EmbeddingVariableLookup(
            resource=self.table.handle,
            keys=keys,
            counts=tf.zeros([0], tf.int32),
            step=tf.constant(0, tf.int64),
            insert=False,
            dtype=tf.float32,
        ).handles

    @tf.function(input_signature=[KEYS])
    def names(self, keys):
        return {"a b": keys}

    @tf.function(input_signature=[KEYS])
    def dataset(self, keys):
        data = tf.data.Dataset.from_tensor_slices(keys).map(lambda key: key + 1)
        return data.reduce(tf.constant(0, tf.int64), lambda a, b: a + b)

    @tf.function
    def without_signature(self, keys):
        return keys


@pytest.mark.parametrize(
    ("signature", "error", "message"),
    [
        ("count", NotImplementedError, "EmbeddingVariableMetadata"),
        ("handles", NotImplementedError, "output 'handles'"),
        ("names", ValueError, "'a b'"),
        ("dataset", NotImplementedError, "calls functions"),
        ("without_signature", ValueError, "input_signature"),
        ("table", TypeError, "tf.function"),
    ],
)
def test_signatures_that_cannot_be_exported(tmp_path, signature, error, message):
    model = Model()
    with pytest.raises(error, match=message):
        fe.export_for_serving(model, tmp_path, signatures=getattr(model, signature))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ops": "onnx"}, '"stock" or "fused"'),
        ({"inputs": {}}, "are for a session"),
        ({"signatures": {}}, "empty"),
        ({}, "signatures="),
    ],
)
def test_arguments_that_do_not_fit(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        fe.export_for_serving(Model(), tmp_path, **arguments)


@pytest.mark.parametrize("form", [{}, {"ops": "fused"}, {"format": "onnx"}])
@pytest.mark.parametrize("model", ["folder", pathlib.Path("model.keras")], ids=str)
def test_a_path_is_no_model(tmp_path, model, form):
    with pytest.raises(TypeError, match=r"as the path .*: load it, .*tf\.saved_model\.load"):
        fe.export_for_serving(model, tmp_path / "export", **form)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession"])
def test_a_monitored_session_is_refused(tmp_path, kind):
    refused = pytest.raises(TypeError, match=f"a {kind}, whose graph is finalized.* restore")
    with tf.Graph().as_default(), getattr(tf.compat.v1.train, kind)() as session, refused:
        fe.export_for_serving(session, tmp_path / "export", inputs={}, outputs={})
    assert not list(tmp_path.iterdir())


def test_a_variable_that_nobody_keeps_is_no_part_of_an_export(tmp_path):
    @tf.function(input_signature=[KEYS])
    def serve(keys):
        return tables.lookup(keys)

    initializer = tf.lookup.KeyValueTensorInitializer([1], [2], tf.int64, tf.int64)
    tables = tf.lookup.StaticHashTable(initializer, 0)
    with pytest.raises(ValueError, match="no attribute of the model holds"):
        fe.export_for_serving(tf.Module(), tmp_path, signatures=serve)


def test_examples_of_the_docstring():
    module = importlib.import_module("fused_embedding.serving.export")
    names = {"fe": fe, "tf": tf, "tempfile": tempfile}
    results = doctest.testmod(module, extraglobs=names)
    assert results.attempted >= 5
    assert not results.failed


def test_examples_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/serving.md").read_text()
    examples = re.findall("```python\n(.*?)```", page, re.DOTALL)
    # That of ONNX needs other packages: test_export_onnx.py runs it.
    examples = [example for example in examples if "onnx" not in example]
    assert len(examples) >= 3
    namespace = {}  # an example goes on where the one before it ends
    for example in examples:
        exec(compile(example, "docs/serving.md", "exec"), namespace)


def test_python_in_a_graph_is_named(tmp_path):
    model = tf.Module()
    model.serve = tf.function(
        lambda keys: tf.numpy_function(lambda k: k + 1, [keys], tf.int64), input_signature=[KEYS]
    )
    with pytest.raises(NotImplementedError, match="PyFunc calls Python"):
        fe.export_for_serving(model, tmp_path, signatures=model.serve)
