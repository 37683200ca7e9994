"""Files, exports and Python calls of StringLookup and IntegerLookup of fe.keras."""

import gc
import json
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from cases.kerases import KERASES, is_keras_3, major_and_minor
from cases.vocabularies import DTYPES, LARGE, MASKS, TOKENS, UNKNOWN, classes, ours, values_of

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
EACH_NAME = pytest.mark.parametrize("name", ["StringLookup", "IntegerLookup"])


def model_of(keras, layer):
    dtype = layer.vocabulary_dtype if not layer.invert else "int64"
    inputs = keras.Input((2,), dtype=tf.as_dtype(dtype).name, name="tokens")
    return keras.Model(inputs, layer(inputs))


def saved_layers(keras, name):
    """Layers with a large and a small vocabulary that was given, and with one that was learned."""
    make = ours(keras, name)
    learned = make(mask_token=MASKS[name])
    learned.adapt(tf.constant(LARGE[name], DTYPES[name]))
    return [make(vocabulary=LARGE[name], num_oov_indices=2), make(vocabulary=TOKENS[name]), learned]


@EACH_KERAS
@EACH_NAME
def test_files_keep_the_vocabulary(keras, name, tmp_path):
    batch = tf.constant(
        [[LARGE[name][0], LARGE[name][1000]], [UNKNOWN[name], TOKENS[name][1]]], DTYPES[name]
    )
    for i, layer in enumerate(saved_layers(keras, name)):
        model = model_of(keras, layer)
        path = str(tmp_path / f"{i}.keras")
        model.save(path)
        loaded = keras.models.load_model(path)
        clone = keras.models.clone_model(model)
        twice = type(layer).from_config(json.loads(json.dumps(layer.get_config(), default=int)))
        assert isinstance(loaded.layers[-1], ours(keras, name))
        copies = [loaded.layers[-1]]
        if i < 2:
            copies += [
                clone.layers[-1],
                twice,
                keras.models.model_from_json(model.to_json()).layers[-1],
            ]
        for copy in copies:
            assert copy.get_vocabulary() == layer.get_vocabulary()
            assert values_of(copy(batch)) == values_of(layer(batch))


STRANGE = {
    "newline": ["a\nb", "c"],
    "carriage return": ["a\r", "b"],
    "separator": ["a\u2028b", "c"],
    "empty first": ["", "b"],
    "empty last": ["b", ""],
}


@EACH_KERAS
@pytest.mark.parametrize("case", STRANGE)
@pytest.mark.parametrize("is_given", [False, True])
def test_files_keep_tokens_that_stocks_lose(keras, case, is_given, tmp_path):
    tokens = STRANGE[case] + LARGE["StringLookup"] * is_given
    layer = ours(keras, "StringLookup")(num_oov_indices=0, vocabulary=tokens if is_given else None)
    layer.set_vocabulary(tokens)
    model_of(keras, layer).save(str(tmp_path / "model.keras"))
    loaded = keras.models.load_model(str(tmp_path / "model.keras"))
    assert loaded.layers[-1].get_vocabulary() == tokens


@EACH_KERAS
@EACH_NAME
def test_files_of_plain_tokens_are_stocks(keras, name, tmp_path):
    layers = [make(mask_token=MASKS[name]) for make in classes(keras, name)]
    for layer, folder in zip(layers, ("ours", "stock"), strict=True):
        layer.set_vocabulary([token for token in TOKENS[name] if token != ""])
        (tmp_path / folder).mkdir()
        layer.save_assets(str(tmp_path / folder))
    files = [(tmp_path / folder / "vocabulary.txt").read_bytes() for folder in ("ours", "stock")]
    assert files[0] == files[1]
    copy = ours(keras, name)(mask_token=MASKS[name])
    copy.load_assets(str(tmp_path / "stock"))
    assert copy.get_vocabulary() == layers[1].get_vocabulary()


@EACH_KERAS
def test_tf_idf_is_saved(keras, tmp_path):
    if (3, 0) <= major_and_minor(keras.__version__) < (3, 14):
        pytest.skip(f"stock's layer of Keras {keras.__version__} is not loaded either")
    layer = ours(keras, "StringLookup")(output_mode="tf_idf")
    layer.adapt(tf.constant([["a", "b"], ["a", "c"]]))
    model = model_of(keras, layer)
    model.save(str(tmp_path / "model.keras"))
    loaded = keras.models.load_model(str(tmp_path / "model.keras"))
    batch = tf.constant([["a", "c"], ["b", "d"]])
    assert values_of(loaded(batch)) == values_of(model(batch))


def test_exports_load_without_this_package(tmp_path, server):
    for keras_name, keras in KERASES.items():
        for name, layers in [("StringLookup", slice(2)), ("IntegerLookup", slice(2, 3))]:
            for i, layer in enumerate(saved_layers(keras, name)[layers]):
                path = str(tmp_path / f"{keras_name}{name}{i}")
                values = [[LARGE[name][1], UNKNOWN[name]], [TOKENS[name][0], LARGE[name][-1]]]
                model_of(keras, layer).export(path)
                outputs, _ = server.serve(path, {"tokens": np.array(values)})
                want = layer(tf.constant(values, DTYPES[name])).numpy()
                np.testing.assert_array_equal([*outputs.values()], [want], err_msg=path)


def num_strings(path):
    """The strings in the constants of a SavedModel."""
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    graph = saved.meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return sum(len(node.attr["value"].tensor.string_val) for node in nodes)


@EACH_KERAS
@pytest.mark.parametrize("invert", [False, True])
def test_a_large_vocabulary_is_one_string_in_a_saved_model(keras, invert, tmp_path):
    layer = ours(keras, "StringLookup")(vocabulary=LARGE["StringLookup"], invert=invert)
    module = tf.Module()
    values, result = ([5], [b"token 4"]) if invert else (["token 4"], [5])
    spec = tf.TensorSpec([None], tf.constant(values).dtype if not invert else tf.int64)
    module.layer, module.serve = layer, tf.function(layer, [spec])
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert loaded.serve(tf.constant(values, spec.dtype)).numpy().tolist() == result
    assert num_strings(tmp_path / "saved" / "saved_model.pb") < 20


@EACH_KERAS
def test_a_saved_model_of_keras_2_is_loaded(keras, tmp_path):
    if is_keras_3(keras):
        pytest.skip("Keras 3 has no SavedModels of its own")
    for i, layer in enumerate(saved_layers(keras, "StringLookup")):
        model_of(keras, layer).save(str(tmp_path / str(i)))
        loaded = keras.models.load_model(str(tmp_path / str(i))).layers[-1]
        assert loaded.get_vocabulary() == layer.get_vocabulary()
        batch = tf.constant([["token 7", "other"]])
        assert values_of(loaded(batch)) == values_of(layer(batch))


def calls_with(num_tokens, function):
    """Calls of Python functions, and of C functions from Python.

    Finalizers of what earlier tests made are not among them: nothing is collected meanwhile.
    """
    count = 0

    def note(*_):
        nonlocal count
        count += 1

    gc.disable()
    sys.setprofile(note)
    try:
        function([f"{i:x}" for i in range(num_tokens)])
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@EACH_KERAS
def test_no_python_code_runs_per_token(keras, tmp_path):
    make = ours(keras, "StringLookup")
    path = str(tmp_path / "model.keras")

    def use(tokens):
        layer = make(vocabulary=tokens)
        text = tmp_path / str(len(tokens))  # TensorFlow shares the table of a path
        text.write_text("\n".join(tokens))
        make(vocabulary=str(text)).get_vocabulary()
        learned = make()
        learned.adapt(np.array(tokens))
        for each in (layer, learned):
            each.get_vocabulary()
            model_of(keras, each).save(path)
            keras.models.load_model(path)
            module = tf.Module()
            module.layer, module.serve = each, tf.function(each, [tf.TensorSpec([None], tf.string)])
            tf.saved_model.save(module, str(tmp_path / "saved"))

    use([f"{i:x}" for i in range(2000)])  # warms up
    few, many = calls_with(2000, use), calls_with(22_000, use)
    assert many - few < 10_000  # one call per token would be 40,000 in each step
