"""StringLookup and IntegerLookup of fe.keras against the stock layers that they stand in for."""

import numpy as np
import pytest
import tensorflow as tf

from cases.kerases import KERASES
from cases.vocabularies import (
    DTYPES,
    LARGE,
    MASKS,
    TOKENS,
    UNKNOWN,
    classes,
    ours,
    stock,
    values_of,
)

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
EACH_NAME = pytest.mark.parametrize("name", ["StringLookup", "IntegerLookup"])


def outcome(function, *arguments):
    """What a function returns, or the type and text of its error."""
    try:
        return function(*arguments)
    except Exception as error:  # any, of stock
        return type(error), str(error)


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
        results = [
            outcome(lambda batch, layer=layer: values_of(layer(batch)), batch)
            for layer in (got, want)
        ]
        assert results[0] == results[1]


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
@EACH_NAME
def test_the_token_of_unknown_values_in_front_is_not_in_the_table(keras, name):
    special = ["[UNK]" if name == "StringLookup" else -1]
    layers = [make(vocabulary=special + TOKENS[name]) for make in classes(keras, name)]
    assert_same(*layers, name)


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
    layer.update_state(tf.constant(["g"]))
    layer.finalize_state()
    assert layer.get_vocabulary() == ["[UNK]", "g"]
    layer.update_state(tf.constant(["h"]))
    layer.adapt(np.array(["i"]))
    layer.finalize_state()  # nothing was counted since
    assert layer.get_vocabulary() == ["[UNK]", "i"]


@EACH_KERAS
def test_adapt_of_a_vocabulary_that_was_given_raises_as_stock(keras):
    got, want = (
        outcome(lambda make=make: make(vocabulary=["a"], name="l").adapt(np.array(["b"])))
        for make in classes(keras, "StringLookup")
    )
    assert got == want
    assert got[0] is ValueError
