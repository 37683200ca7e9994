"""EmbeddingGroup over serialized examples against its layers over what tf.io parses."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.examples import entry, example, floats, integers, texts
from cases.kerases import KERASES, is_keras_3
from checking import assert_close

pytestmark = pytest.mark.one_version

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
OURS = "FusedEmbeddingParseExample"
ROWS = [
    example(
        entry(b"words", texts(b"oak", b"")),
        entry(b"numbers", integers(5, -1)),
        entry(b"ids", integers(3, 1)),
        entry(b"fixed", integers(7, 2)),
        entry(b"ragged", integers(4)),
        entry(b"unused", floats(0.5)),
    ),
    example(entry(b"fixed", integers(0, 0)), entry(b"ids", integers(11))),
    example(entry(b"words", texts(b"elm")), entry(b"fixed", integers(1, 11))),
]
EXAMPLES = {
    "words": tf.io.VarLenFeature(tf.string),
    "numbers": tf.io.VarLenFeature(tf.int64),
    "ids": tf.io.VarLenFeature(tf.int64),
    "unknown": tf.io.VarLenFeature(tf.string),
    "fixed": tf.io.FixedLenFeature([2], tf.int64),
    "ragged": tf.io.RaggedFeature(tf.int64, "ragged", row_splits_dtype=tf.int64),
}


def layers_of(keras, seed=0):
    """Layers of each feature; "unknown" is in no example."""
    ours = fe.keras.fused_layers(keras)
    uniform = keras.initializers.RandomUniform(seed=seed)

    def bag(rows):
        return ours.EmbeddingBag(rows, 3, embeddings_initializer=uniform)

    return {
        "words": [keras.layers.Hashing(12), bag(12)],
        "numbers": [keras.layers.Hashing(20), bag(20)],
        "ids": bag(12),
        "unknown": [keras.layers.StringLookup(vocabulary=["oak"]), bag(2)],
        "fixed": ours.Embedding(12, 4, embeddings_initializer=uniform),
        "ragged": bag(12),
    }


def group(keras, **options):
    return fe.keras.fused_layers(keras).EmbeddingGroup(layers_of(keras), **options)


def copy_weights(source, target):
    for ours, theirs in zip(target.sublayers, source.sublayers, strict=True):
        ours.set_weights(theirs.get_weights())


@EACH_KERAS
def test_results_and_gradients_are_those_of_parsed_features(keras):
    plain, over_examples = group(keras), group(keras, examples=EXAMPLES)
    plain.build()
    over_examples.build()
    copy_weights(plain, over_examples)

    @tf.function
    def run(layer, inputs):
        with tf.GradientTape() as tape:
            rows = layer(inputs)
            loss = tf.add_n([tf.reduce_sum(of_feature**2) for of_feature in rows.values()])
        weights = [w for part in layer.sublayers for w in part.trainable_weights]
        grads = tape.gradient(loss, [w.value if is_keras_3(keras) else w for w in weights])
        return rows, [tf.convert_to_tensor(g) for g in grads]

    want = run(plain, tf.io.parse_example(ROWS, EXAMPLES))
    got = run(over_examples, tf.constant(ROWS))
    tf.nest.map_structure(lambda a, b: assert_close(a, b, terms=16), got, want)
    graph = run.get_concrete_function(over_examples, tf.constant(ROWS)).graph
    ops = [op.type for op in graph.get_operations()]
    assert ops.count(OURS) == 1
    assert "StringToHashBucketFast" not in ops
    assert_close(over_examples(ROWS)["ids"], plain(tf.io.parse_example(ROWS, EXAMPLES))["ids"], 16)


@EACH_KERAS
def test_a_dataset_parses_ahead_of_the_layer(keras):
    layer = group(keras, examples=EXAMPLES)
    batches = tf.data.Dataset.from_tensor_slices([ROWS, ROWS[::-1]])
    parsed = batches.map(layer.parse_example, num_parallel_calls=2)
    assert parsed.element_spec["words"].ids.dtype == tf.int64
    run = tf.function(lambda batch: layer(batch))
    for rows, batch in zip(batches, parsed, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, run(batch), layer(rows))
        tf.nest.map_structure(np.testing.assert_array_equal, layer(batch), layer(rows))
    graph = run.get_concrete_function(batch).graph
    assert OURS not in [op.type for op in graph.get_operations()]


@EACH_KERAS
def test_what_is_not_parsed_for_a_layer_is_refused(keras):
    with pytest.raises(ValueError, match="has no examples; make it with examples="):
        group(keras).parse_example(tf.constant(ROWS))
    layer = group(keras, examples=EXAMPLES)
    with pytest.raises(ValueError, match="must be called with a vector of serialized"):
        layer.parse_example(tf.constant([1]))
    parsed = layer.parse_example(tf.constant(ROWS))
    del parsed["ids"]
    with pytest.raises(ValueError, match=r"a value for each of .*'ids'"):
        layer(parsed)


@EACH_KERAS
def test_a_model_trains_on_what_a_dataset_has_parsed(keras):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.group = group(keras, examples=EXAMPLES)
            self.head = keras.layers.Dense(1)

        def call(self, inputs):
            return self.head(self.group(inputs)["words"])

    data = tf.data.Dataset.from_tensors((ROWS, np.float32([[1.0], [2.0], [3.0]]))).repeat(20)
    losses = {}
    for is_ahead in (False, True):
        keras.utils.set_random_seed(1)
        model = Model()
        model.compile(fe.keras.fused_optimizers(keras).Adagrad(0.5), "mse")
        model(tf.constant(ROWS))
        parse = model.group.parse_example if is_ahead else lambda rows: rows
        ahead = data.map(lambda rows, label, parse=parse: (parse(rows), label))
        losses[is_ahead] = model.fit(ahead, epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-6)


@EACH_KERAS
def test_a_model_over_examples_trains_and_is_saved(keras, tmp_path):
    inputs = keras.Input((), dtype="string")
    names = ["words", "numbers", "ids"]
    layers = {name: layers_of(keras)[name] for name in names}
    examples = {name: EXAMPLES[name] for name in names}
    rows = fe.keras.fused_layers(keras).EmbeddingGroup(layers, concat=True, examples=examples)
    outputs = keras.layers.Dense(1)(rows(inputs))
    model = keras.Model(inputs, outputs)
    model.compile(fe.keras.fused_optimizers(keras).Adagrad(0.5), "mse")
    data = tf.data.Dataset.from_tensor_slices((ROWS, np.float32([[1.0], [2.0], [3.0]]))).batch(3)
    losses = model.fit(data.repeat(40), steps_per_epoch=40, verbose=0, epochs=2).history["loss"]
    assert losses[-1] < losses[0]
    want = model.predict(tf.constant(ROWS), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_close(loaded.predict(tf.constant(ROWS), verbose=0), want, terms=16)
    tf.saved_model.save(model, str(tmp_path / "saved"))
    saved = tf.saved_model.load(str(tmp_path / "saved"))
    got = saved.signatures["serving_default"](tf.constant(ROWS))
    assert_close(next(iter(got.values())), want, terms=16)


@EACH_KERAS
def test_examples_are_in_the_config(keras):
    layer = group(
        keras, examples=EXAMPLES | {"fixed": tf.io.FixedLenFeature([2], tf.int64, [3, 4])}
    )
    again = type(layer).from_config(layer.get_config())
    config = again.get_config()["examples"]
    assert config == layer.get_config()["examples"]
    assert config["fixed"]["default"] == [3, 4]
    assert type(layer).from_config({**group(keras).get_config()})._examples is None
    old = group(keras).get_config()
    del old["examples"]
    assert type(layer).from_config(old)._examples is None


@EACH_KERAS
def test_arguments_that_do_not_fit(keras):
    with pytest.raises(ValueError, match=r"how each of the features .* is parsed"):
        group(keras, examples={"ids": EXAMPLES["ids"]})
    wrong = EXAMPLES | {"ids": tf.io.FixedLenSequenceFeature([], tf.int64, True)}
    with pytest.raises(ValueError, match=r"examples\['ids'\] must be a tf.io.VarLenFeature"):
        group(keras, examples=wrong)
    layer = group(keras, examples=EXAMPLES)
    with pytest.raises(ValueError, match="must be called with a vector of serialized"):
        layer(tf.constant([1, 2]))
    ours = fe.keras.fused_layers(keras)
    with pytest.raises(ValueError, match="masks"):
        ours.EmbeddingGroup(
            {"fixed": ours.Embedding(12, 4, mask_zero=True)}, examples={"fixed": EXAMPLES["fixed"]}
        )
    if not is_keras_3(keras):
        return
    with pytest.raises(ValueError, match="weights"):
        layer(tf.constant(ROWS), weights={"ids": tf.ones([3, 2])})
