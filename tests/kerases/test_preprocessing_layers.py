"""StringLookup and IntegerLookup of fe.keras against the stock layers that they stand in for."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import fused_embedding as fe
from cases.kerases import KERASES, is_keras_3
from fused_embedding.keras.vocabulary import MAX_SMALL

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
EACH_NAME = pytest.mark.parametrize("name", ["StringLookup", "IntegerLookup"])

WORDS = ["b", "a", "zé\u4e2d", "", "a b"]
NUMBERS = [7, -3, 0, 1 << 62, -(1 << 63)]
TOKENS = {"StringLookup": WORDS, "IntegerLookup": NUMBERS}
DTYPES = {"StringLookup": tf.string, "IntegerLookup": tf.int64}
MASKS = {"StringLookup": "[MASK]", "IntegerLookup": 99}
UNKNOWN = {"StringLookup": "other", "IntegerLookup": 1234567}
LARGE = {
    "StringLookup": [f"token {i}" for i in range(MAX_SMALL + 1)],
    "IntegerLookup": list(range(5, MAX_SMALL + 6)),
}


def ours(keras, name):
    return getattr(fe.keras.fused_layers(keras), name)


def stock(keras, name):
    return getattr(keras.layers, name)


def classes(keras, name):
    return ours(keras, name), stock(keras, name)


def outcome(function):
    """What a function returns, or the type and text of its error."""
    try:
        return function()
    except Exception as error:  # noqa: BLE001  # any, of stock
        return type(error), str(error)


def values_of(result):
    if isinstance(result, tf.RaggedTensor | tf.SparseTensor):
        parts = tf.nest.flatten(result, expand_composites=True)
        return type(result), [values_of(part) for part in parts]
    return result.dtype, result.numpy().tolist()


def batches(name):
    """Batches as a dense tensor, a scalar, a RaggedTensor and a SparseTensor."""
    tokens = [*TOKENS[name], UNKNOWN[name], MASKS[name]]
    flat = tf.constant(tokens * 2, DTYPES[name])
    splits = tf.constant([0, 3, 3, len(tokens), 2 * len(tokens)], tf.int64)
    indices = [[i, i % 4] for i in range(2 * len(tokens))]
    return [
        tf.reshape(flat, [2, -1]),
        flat[0],
        tf.RaggedTensor.from_row_splits(flat, splits),
        tf.SparseTensor(indices, flat, [2 * len(tokens), 4]),
    ]


def assert_same(got, want, name):
    """Asserts that two layers have one vocabulary and give the same results."""
    assert got.vocabulary_size() == want.vocabulary_size()
    for has_special in (True, False):
        assert got.get_vocabulary(has_special) == want.get_vocabulary(has_special)
    for batch in batches(name):
        if want.invert:
            batch = tf.constant([[0, 1, 2], [3, 4, 100]], tf.int64)
        assert outcome(lambda: values_of(got(batch))) == outcome(lambda: values_of(want(batch)))


OPTIONS = [
    {},
    {"num_oov_indices": 0},
    {"num_oov_indices": 3},
    {"mask": True},
    {"mask": True, "num_oov_indices": 0},
    {"mask": True, "num_oov_indices": 3},
    {"max_tokens": 6},
    {"max_tokens": 5},
    {"output_mode": "multi_hot"},
    {"output_mode": "one_hot", "mask": True},
    {"output_mode": "count", "max_tokens": 9, "pad_to_max_tokens": True},
    {"output_mode": "count", "sparse": True},
    {"output_mode": "tf_idf", "idf": True},
    {"invert": True},
    {"invert": True, "mask": True, "num_oov_indices": 2},
]


def arguments(name, options):
    arguments = dict(options)
    if arguments.pop("mask", False):
        arguments["mask_token"] = MASKS[name]
    if arguments.pop("idf", False):
        arguments["idf_weights"] = [0.5, 1.0, 1.5, 2.0, 2.5]
    return arguments


@EACH_KERAS
@EACH_NAME
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_list_gives_stocks_layer(keras, name, options):
    layers = [
        outcome(
            lambda make=make: make(vocabulary=TOKENS[name], name="l", **arguments(name, options))
        )
        for make in classes(keras, name)
    ]
    if isinstance(layers[1], tuple):
        assert layers[0] == layers[1]
        return
    assert isinstance(layers[0], stock(keras, name))
    assert_same(*layers, name)
    assert layers[0].get_config() == layers[1].get_config()


@EACH_KERAS
@EACH_NAME
@pytest.mark.parametrize(
    "kind", ["tuple", "array", "objects", "tensor", "file", "special", "bytes"]
)
def test_each_kind_of_vocabulary(keras, name, kind, tmp_path):
    tokens = [token for token in TOKENS[name] if token != ""]  # a file has no empty line at its end
    path = tmp_path / "tokens"
    path.write_text("\n".join(map(str, tokens)), encoding="utf-8")
    vocabulary = {
        "tuple": tuple(tokens),
        "array": np.array(tokens),
        "objects": np.array(tokens, object),
        "tensor": tf.constant(tokens, DTYPES[name]),
        "file": str(path),
        "special": [MASKS[name], *2 * ["[UNK]" if name == "StringLookup" else -1], *tokens],
        "bytes": [str(token).encode() for token in tokens],
    }[kind]
    options = {"mask_token": MASKS[name], "num_oov_indices": 2}
    layers = [
        outcome(lambda make=make: make(vocabulary=vocabulary, **options))
        for make in classes(keras, name)
    ]
    if isinstance(layers[1], tuple):  # stock takes no bytes, and no integers as objects
        assert kind == "objects" or layers[0] == layers[1]
    else:
        assert_same(*layers, name)


BAD = {
    "repeated": ["b", "a", "b"],
    "mask": ["b", "a", "[MASK]"],
    "special tokens elsewhere": ["a", "[MASK]", "[UNK]"],
    "empty": [],
    "too many": list("abcdefgh"),
    "mixed": ["a", 1],
    "nested": [["a"], ["b"]],
    "no file": "/does/not/exist",
    "surrogate": ["a", "\ud800"],
    "NUL": ["a\0", "b"],
    "NUL repeats": ["a\0", "a"],
    "unknown": ["a", "[UNK]", "b"],
}


@EACH_KERAS
@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("case", BAD)
def test_errors_are_stocks(keras, case, invert):
    def build(make):
        layer = make(mask_token="[MASK]", max_tokens=8, invert=invert, name="layer")
        layer.set_vocabulary(BAD[case])
        return layer.get_vocabulary()

    got, want = (outcome(lambda make=make: build(make)) for make in classes(keras, "StringLookup"))
    assert got == want


@EACH_KERAS
def test_repeated_integers_raise(keras):
    with pytest.raises(ValueError, match=r"repeated.*7"):
        ours(keras, "IntegerLookup")(vocabulary=[7, 8, 7])


@EACH_KERAS
def test_set_vocabulary_in_a_function_is_stocks(keras):
    def set_in_function(make):
        layer = make()

        @tf.function
        def step():
            layer.set_vocabulary(["b", "a"])
            return layer(tf.constant(["a"]))

        return values_of(step()), layer.get_vocabulary()

    got, want = (
        outcome(lambda make=make: set_in_function(make)) for make in classes(keras, "StringLookup")
    )
    assert got == want


ADAPTED = {
    "StringLookup": [
        "a",
        "b",
        "b",
        "c",
        "é",
        "",
        "a\0b",
        "",
        "ab",
        "c",
        "[UNK]",
        "[MASK]",
        "x" * 300,
    ],
    "IntegerLookup": [3, -1, 5, 5, 1 << 40, -7, 99, -7],
}
ADAPT_OPTIONS = [
    {},
    {"mask": True},
    {"max_tokens": 4},
    {"num_oov_indices": 3},
    {"num_oov_indices": 0},
    {"output_mode": "multi_hot"},
    {"output_mode": "tf_idf"},
    {"invert": True, "mask": True},
]


@EACH_KERAS
@EACH_NAME
@pytest.mark.parametrize("options", ADAPT_OPTIONS, ids=str)
@pytest.mark.parametrize("kind", ["array", "matrix", "tensor", "dataset", "ragged"])
def test_adapt_learns_stocks_vocabulary(keras, name, options, kind):
    array = np.array(ADAPTED[name], object if name == "StringLookup" else np.int64)
    tensor = tf.constant(ADAPTED[name], DTYPES[name])
    data = {
        "array": array,
        "matrix": array[:8].reshape(4, 2),
        "tensor": tensor,
        "dataset": tf.data.Dataset.from_tensor_slices(tensor).batch(3),
        "ragged": tf.data.Dataset.from_tensors(
            tf.RaggedTensor.from_row_lengths(tensor[:5], [2, 3])
        ),
    }[kind]
    layers = []
    for make in classes(keras, name):
        layer = make(name="layer", **arguments(name, options))
        error = outcome(lambda layer=layer: layer.adapt(data))
        layers.append(error or layer)
    if isinstance(layers[1], tuple):
        assert layers[0][0] == layers[1][0]
        return
    assert_same(*layers, name)
    assert layers[0].get_config() == layers[1].get_config()


@EACH_KERAS
def test_tokens_that_end_with_nul_are_learned_in_stocks_order(keras):
    tokens = np.array(["a\0", "a", "a\0\0", "\0", "", "b"], object)
    got, want = (make() for make in classes(keras, "StringLookup"))
    for layer in (got, want):
        layer.adapt(tokens)
    assert values_of(got(tf.constant(tokens))) == values_of(want(tf.constant(tokens)))
    assert got.get_vocabulary() == ["[UNK]", "b", "a\0\0", "a\0", "a", "\0", ""]  # stock drops NULs


@EACH_KERAS
@EACH_NAME
@pytest.mark.parametrize("kind", [tuple, np.array, tf.constant])
def test_a_large_vocabulary_is_one_string_in_a_configuration(keras, name, kind):
    tokens = LARGE[name] if kind is not tf.constant else tf.constant(LARGE[name], DTYPES[name])
    layer = ours(keras, name)(vocabulary=kind(tokens), num_oov_indices=2)
    config = layer.get_config()
    assert config["vocabulary"] == {"lines": "\n".join(map(str, LARGE[name]))}
    want = stock(keras, name)(vocabulary=LARGE[name], num_oov_indices=2)
    assert {**config, "vocabulary": LARGE[name], "name": want.name} == want.get_config()
    copy = type(layer).from_config(config)
    assert copy.get_vocabulary() == want.get_vocabulary()
    assert copy.get_config() == config


@EACH_KERAS
def test_adapt_again_forgets(keras):
    layer = ours(keras, "StringLookup")()
    for data in (["a", "b", "b"], ["c"]):
        layer.adapt(np.array(data))
    assert layer.get_vocabulary() == ["[UNK]", "c"]
    layer.adapt(tf.data.Dataset.from_tensors(["d", "e"]), steps=1)
    assert layer.get_vocabulary() == ["[UNK]", "e", "d"]
    layer.reset_state()
    layer.update_state(tf.constant(["d", "d", "e"]))
    layer.update_state(tf.constant(["f", "d", "e"]))
    layer.finalize_state()
    assert layer.get_vocabulary() == ["[UNK]", "d", "e", "f"]


@EACH_KERAS
def test_adapt_of_a_vocabulary_that_was_given_raises_as_stock(keras):
    got, want = (
        outcome(lambda make=make: make(vocabulary=["a"], name="l").adapt(np.array(["b"])))
        for make in classes(keras, "StringLookup")
    )
    assert got == want
    assert got[0] is ValueError


def model_of(keras, layer):
    dtype = layer.vocabulary_dtype if not layer.invert else "int64"
    inputs = keras.Input((2,), dtype=tf.as_dtype(dtype).name)
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
    layer = ours(keras, "StringLookup")(output_mode="tf_idf")
    layer.adapt(tf.constant([["a", "b"], ["a", "c"]]))
    model = model_of(keras, layer)
    model.save(str(tmp_path / "model.keras"))
    loaded = keras.models.load_model(str(tmp_path / "model.keras"))
    batch = tf.constant([["a", "c"], ["b", "d"]])
    assert values_of(loaded(batch)) == values_of(model(batch))


SERVE = """
    import sys, tensorflow as tf
    for path, values, dtype, want in eval(sys.argv[1]):
        loaded = tf.saved_model.load(path)
        got = loaded.serve(tf.constant(values, dtype)).numpy().tolist()
        assert got == want, (path, got, want)
    assert "fused_embedding" not in sys.modules
"""


def test_exports_load_without_this_package(tmp_path):
    cases = []
    for keras_name, keras in KERASES.items():
        for name, layers in [("StringLookup", slice(2)), ("IntegerLookup", slice(2, 3))]:
            for i, layer in enumerate(saved_layers(keras, name)[layers]):
                path = str(tmp_path / f"{keras_name}{name}{i}")
                values = [[LARGE[name][1], UNKNOWN[name]], [TOKENS[name][0], LARGE[name][-1]]]
                model_of(keras, layer).export(path)
                want = layer(tf.constant(values, DTYPES[name])).numpy().tolist()
                cases.append((path, values, DTYPES[name].name, want))
    code = textwrap.dedent(SERVE)
    subprocess.run([sys.executable, "-c", code, repr(cases)], check=True, timeout=300)


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
    """Calls of Python functions, and of C functions from Python."""
    count = 0

    def note(*_):
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        function([f"{i:x}" for i in range(num_tokens)])
    finally:
        sys.setprofile(None)
    return count


@EACH_KERAS
def test_no_python_code_runs_per_token(keras, tmp_path):
    make = ours(keras, "StringLookup")
    path = str(tmp_path / "model.keras")

    def use(tokens):
        layer = make(vocabulary=tokens)
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
