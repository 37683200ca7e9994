"""fe.keras.group: clones of models of Keras 3, whose outputs are those of the models bit by bit."""

import collections
import doctest
import importlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES, is_keras_3
from checking import assert_same_bits

ALL_KERAS_3 = {name: keras for name, keras in KERASES.items() if is_keras_3(keras)}
KERAS_3 = pytest.mark.parametrize("keras", ALL_KERAS_3.values(), ids=ALL_KERAS_3)
NUM_ROWS = 12
BATCH = {
    "user": tf.constant([3, 0, 3], tf.int64),
    "item": tf.constant([[1], [11], [0]], tf.int64),
    "words": tf.constant([["oak", ""], ["elm", "oak"], ["ash", "fir"]]),
    "places": tf.constant([[5, 1, 0], [2, 0, 0], [7, 7, 1]], tf.int64),
    "numbers": tf.constant([[0.5, -1.0], [2.0, 0.25], [1.0, 1.0]]),
}
LABELS = np.array([[1.0], [-1.0], [0.5]], np.float32)


def inputs_of(keras, *names):
    specs = {
        name: tf.TensorSpec([None, *BATCH[name].shape[1:]], BATCH[name].dtype) for name in names
    }
    return {
        name: keras.Input(spec.shape[1:], dtype=spec.dtype.name, name=name)
        for name, spec in specs.items()
    }


def batch_of(model):
    return {tensor.name: BATCH[tensor.name] for tensor in model.inputs}


def rows_in_front(keras):
    """All kinds of lookups, one with a mask; a table that two of them share; one behind another."""
    layers, ours = keras.layers, fe.keras.fused_layers(keras)
    inputs = inputs_of(keras, *BATCH)
    shared = layers.Embedding(NUM_ROWS, 4)
    hashing = layers.Hashing(NUM_ROWS)
    hashed = hashing(inputs["words"])
    sequence = layers.Embedding(NUM_ROWS, 4, mask_zero=True)(inputs["places"])
    user = shared(inputs["user"])
    scores = keras.ops.cast(keras.ops.abs(100 * keras.ops.sum(user, axis=-1)), "int32")
    weights = keras.ops.cast(1 + inputs["places"], "float32")
    parts = [
        user,
        layers.Flatten()(shared(inputs["item"])),
        ours.EmbeddingBag(NUM_ROWS, 4)(hashed),
        ours.EmbeddingBag(NUM_ROWS, 2)(inputs["places"], weights=weights),
        layers.GlobalAveragePooling1D()(sequence),
        layers.LSTM(2)(sequence),
        layers.Embedding(200, 3)(scores % 200),
        ours.Embedding(200, 3)(scores % 150),
        inputs["numbers"],
    ]
    return inputs, layers.Concatenate()(parts), hashed


def big_model(keras):
    inputs, rows, hashed = rows_in_front(keras)
    outputs = {
        "y": keras.layers.Dense(1, name="y")(rows),
        "words_again": keras.layers.CategoryEncoding(NUM_ROWS, name="encoded")(hashed),
    }
    return keras.Model(inputs, outputs, name="big")


@KERAS_3
def test_outputs_names_and_structures_are_the_models(keras):
    model = big_model(keras)
    clone = fe.keras.group(model)
    batch = batch_of(model)
    want, got = model(batch), clone(batch)
    assert list(got) == list(want)
    for name, values in want.items():
        assert_same_bits(got[name], values)
    assert clone.name == model.name
    assert clone.output_names == model.output_names
    assert [tensor.name for tensor in clone.inputs] == [tensor.name for tensor in model.inputs]
    assert {id(v) for v in clone.weights} == {id(v) for v in model.weights}
    groups = [layer for layer in clone.layers if type(layer).__name__ == "EmbeddingGroup"]
    assert [sorted(of._features.of_name) for of in groups] == [
        ["item", "places", "places_1", "user", "words"],
        sorted(layer.name for layer in groups[1].sublayers),  # what no input names
    ]


@KERAS_3
def test_a_step_of_the_clone_has_one_op_for_each_kind(keras):
    inputs = inputs_of(keras, "user", "item", "words")
    rows = [keras.layers.Embedding(NUM_ROWS, 4)(inputs["user"])]
    rows.append(keras.layers.Flatten()(keras.layers.Embedding(NUM_ROWS, 4)(inputs["item"])))
    ids = keras.layers.Hashing(NUM_ROWS)(inputs["words"])
    rows.append(keras.layers.Flatten()(keras.layers.Embedding(NUM_ROWS, 4)(ids)))
    model = keras.Model(inputs, keras.layers.Concatenate()(rows))
    clone = fe.keras.group(model)
    graph = tf.function(clone).get_concrete_function(batch_of(model)).graph
    types = collections.Counter(op.type for op in graph.get_operations())
    assert types["FusedEmbeddingColumnKeys"] == types["FusedEmbeddingResourceGroupLookup"] == 1
    assert not {"ResourceGather", "GatherV2", "StringToHashBucketFast"} & set(types)


@KERAS_3
@pytest.mark.parametrize(
    "case", ["all", "all_and_output", "run", "gap", "twice", "other_use", "half"]
)
def test_a_concatenate_behind_the_lookups_is_part_of_the_group(keras, case):
    layers = keras.layers
    inputs = inputs_of(keras, "user", "numbers")
    policy = "mixed_float16" if case == "half" else None
    made = [layers.Embedding(NUM_ROWS, 2 + i, dtype=policy) for i in range(3)]
    rows = [layer(inputs["user"]) for layer in made]
    numbers = inputs["numbers"]
    parts = {
        "gap": [rows[2], numbers, rows[0], rows[1]],
        "run": [numbers, rows[2], rows[0], rows[1], numbers],
        "half": [rows[2], rows[0], rows[1], numbers],
        "twice": [*rows, rows[0]],
    }.get(case, rows[::-1])
    concatenated = layers.Concatenate(name="concat")(parts)
    outputs = [layers.Dense(1)(concatenated)]
    outputs += [concatenated] if case == "all_and_output" else []
    outputs += [layers.Dense(1)(rows[0])] if case == "other_use" else []
    model = keras.Model(inputs, outputs)
    clone = fe.keras.group(model)
    [group] = [layer for layer in clone.layers if type(layer).__name__ == "EmbeddingGroup"]
    assert group.concat == (case in ("all", "run"))
    assert ("concat" in [layer.name for layer in clone.layers]) == (case != "all")
    batch = batch_of(model)
    for got, want in zip(clone(batch), model(batch), strict=True):
        assert_same_bits(got, want)
    assert clone.output_names == model.output_names


@KERAS_3
def test_training_the_clone_trains_the_model(keras):
    model, same = big_model(keras), big_model(keras)
    same.set_weights(model.get_weights())
    clone = fe.keras.group(model)
    results = []
    for trained in (clone, same):
        outputs = {"y": LABELS, "words_again": np.zeros([3, NUM_ROWS], np.float32)}
        trained.compile(fe.keras.fused_optimizers(keras).Adagrad(0.1), "mse")
        trained.fit(batch_of(model), outputs, epochs=3, batch_size=3, shuffle=False, verbose=0)
        results.append((model if trained is clone else same).get_weights())
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert getattr(model, "optimizer", None) is None


@KERAS_3
def test_clones_are_saved_and_loaded(keras, tmp_path):
    model = big_model(keras)
    clone = fe.keras.group(model)
    batch = batch_of(model)
    for name, saved in (("clone", clone), ("model", model)):
        saved.save(tmp_path / f"{name}.keras")
        loaded = keras.models.load_model(tmp_path / f"{name}.keras")
        assert_same_bits(loaded(batch)["y"], model(batch)["y"])
        assert not {id(v) for v in loaded.weights} & {id(v) for v in model.weights}


@KERAS_3
def test_sequential_models_and_what_is_left_alone(keras):
    """Lookups that are outputs, of floats, with LoRA, and those of nested models."""
    layers = keras.layers
    inputs = inputs_of(keras, "user", "item", "numbers")
    tower = keras.Sequential([keras.Input((), dtype="int64"), layers.Embedding(NUM_ROWS, 4)])
    with pytest.raises(ValueError, match="no two embedding layers that can share an op"):
        fe.keras.group(tower)
    out = layers.Embedding(NUM_ROWS, 2, name="out")(inputs["user"])
    rows = [
        layers.Embedding(NUM_ROWS, 4, name="first")(inputs["user"]),
        layers.Flatten()(layers.Embedding(NUM_ROWS, 4, name="second")(inputs["item"])),
        layers.Flatten()(layers.Embedding(NUM_ROWS, 4, name="floats")(inputs["numbers"])),
        tower(inputs["user"]),
    ]
    rows.append(layers.Embedding(NUM_ROWS, 4, name="lora", lora_rank=2)(inputs["user"]))
    model = keras.Model(inputs, [layers.Add()([rows[0], rows[1]]), out, layers.Concatenate()(rows)])
    clone = fe.keras.group(model)
    batch = {**batch_of(model), "numbers": tf.constant([[1.0, 2.5], [3.0, 0.0], [4.0, 4.0]])}
    for got, want in zip(clone(batch), model(batch), strict=True):
        assert_same_bits(got, want)
    assert clone.output_names == model.output_names
    [grouped] = [layer for layer in clone.layers if type(layer).__name__ == "EmbeddingGroup"]
    assert {layer.name for layer in grouped.sublayers} == {"first", "second"}
    assert {"out", "floats", "lora", tower.name} <= {layer.name for layer in clone.layers}


@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_other_models_are_refused(keras):
    class Own(keras.Model):
        pass

    inputs = keras.Input((), dtype="int64")
    own = Own(inputs, keras.layers.Embedding(NUM_ROWS, 4)(inputs))
    for given in (own, 3, keras.layers.Dense(1)):
        with pytest.raises(TypeError, match=r"Functional or Sequential.*fe.keras.*EmbeddingGroup"):
            fe.keras.group(given)
    if not is_keras_3(keras):
        with pytest.raises(TypeError, match=r"of Keras 3, got .*Functional"):
            fe.keras.group(keras.Model(inputs, keras.layers.Embedding(NUM_ROWS, 4)(inputs)))
        return
    with pytest.raises(ValueError, match="has no inputs yet"):
        fe.keras.group(keras.Sequential([keras.layers.Embedding(NUM_ROWS, 4)]))


@pytest.mark.parametrize("module", ["group_layer", "group_model"])
def test_docstring_examples(module):
    if module == "group_model" and not is_keras_3(tf.keras):
        pytest.skip("clones are of Keras 3")
    module = importlib.import_module(f"fused_embedding.keras.{module}")
    results = doctest.testmod(module, extraglobs={"fe": fe, "tf": tf})
    assert results.attempted > 0
    assert results.failed == 0
