"""Keras layers whose tables have several parts: `compression=`."""

import json

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES, is_keras_3

pytestmark = pytest.mark.one_version

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
DIM = 4
ADMITS_FIFTH = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=5))
KINDS = {
    "add": {"input_dim": 12, "compression": fe.keras.MultiHash(3, 4)},
    "mul": {"compression": fe.keras.MultiHash(3, 4, operation="mul")},
    "concat": {"compression": fe.keras.MultiHash(3, 4, operation="concat")},
    "blocks": {"compression": fe.keras.DynamicDimension(2, compression_ratio=0.25)},
    "adaptive": {"ev_option": ADMITS_FIFTH, "compression": fe.keras.Adaptive(5)},
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)
IDS = np.array([[0, 5], [7, 1], [2, 2], [9, 11], [3, 0], [1, 6], [10, 4], [8, 8]], np.int64)
LABELS = np.linspace(-1, 1, len(IDS)).astype(np.float32)[:, None]


def layer_of(keras, kind, name="EmbeddingBag", **options):
    layers = fe.keras.fused_layers(keras)
    return getattr(layers, name)(**{"output_dim": DIM, **KINDS[kind], **options})


def model_of(keras, layer):
    inputs = keras.Input((2,), dtype="int64", name="ids")
    rows = layer(inputs)
    if len(rows.shape) == 3:
        rows = keras.layers.GlobalAveragePooling1D()(rows)
    model = keras.Model(inputs, keras.layers.Dense(1, name="dense")(rows))
    model.compile(fe.keras.wrap(keras.optimizers.Adagrad(0.1)), "mse")
    return model


def fit(model, epochs=3):
    fitted = model.fit(IDS, LABELS, batch_size=4, epochs=epochs, shuffle=False, verbose=0)
    return fitted.history["loss"]


def fitted_model(keras, kind, name="EmbeddingBag", **options):
    layer = layer_of(keras, kind, name, **options)
    model = model_of(keras, layer)
    fit(model)
    return model, layer


def predicted(model):
    return model.predict(IDS, verbose=0)


@EACH_KERAS
@EACH_KIND
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_a_layer_looks_up_its_table(keras, kind, name):
    layer = layer_of(keras, kind, name)
    for training in (True, True, False):
        got = layer(IDS, training=training)
    with fe.inference():
        rows = fe.nn.embedding_lookup(layer.table, IDS)
    want = rows if name == "Embedding" else tf.reduce_mean(rows, axis=1)
    assert layer.compute_output_shape(IDS.shape) == got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@EACH_KERAS
@EACH_KIND
def test_fit_trains_all_parts_and_evaluation_none(keras, kind):
    model, layer = fitted_model(keras, kind)
    before = [np.array(weight) for weight in layer.get_weights()]
    fit(model)
    after = layer.get_weights()
    changed = [not np.array_equal(*pair) for pair in zip(before, after, strict=True)]
    assert changed == [part != "bounds" for part in layer.compression.part_names()]
    first = predicted(model)
    model.evaluate(IDS, LABELS, verbose=0)
    np.testing.assert_array_equal(predicted(model), first)
    for part, of_part in zip(layer.get_weights(), after, strict=True):
        np.testing.assert_array_equal(part, of_part)


def called_layer(*args, **options):
    """One that has counted the ids three times."""
    layer = layer_of(*args, **options)
    for _ in range(3):
        layer(IDS, training=True)
    return layer


@EACH_KERAS
def test_the_parts_are_weights(keras):
    layer = called_layer(keras, "add")
    assert [w.shape[0] for w in layer.get_weights()] == [3, 4]
    assert layer.count_params() == 7 * DIM
    layer = called_layer(keras, "concat", "Embedding", output_dim=5)
    assert [w.shape for w in layer.get_weights()] == [(3, 3), (4, 2)]
    layer = called_layer(keras, "blocks")
    assert [v.shape[-1] for v in layer.trainable_variables] == [2, 2]
    assert [np.array(w).tolist() for w in layer.non_trainable_variables] == [[1, 2]]
    layer = called_layer(keras, "adaptive")
    assert [w.shape[0] for w in layer.get_weights()] == [5, 4]  # ids that are there twice


@EACH_KERAS
@EACH_KIND
def test_configurations_are_json(keras, kind):
    layer = layer_of(keras, kind)
    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(config)
    assert again.compression == layer.compression
    assert again.get_config() == layer.get_config()
    del config["compression"]  # as files of before have it
    assert type(layer).from_config(config).compression is None


@EACH_KERAS
@EACH_KIND
@pytest.mark.parametrize("file", ["model.keras", "model.weights.h5"])
def test_files_hold_parts_counts_and_slots(keras, kind, file, tmp_path):
    model, layer = fitted_model(keras, kind)
    if kind == "blocks":
        layer.table.bounds.assign([2, 4])
    want = predicted(model)
    if file == "model.keras":
        model.save(tmp_path / file)
        again = keras.models.load_model(tmp_path / file)
    else:
        model.save_weights(tmp_path / file)
        again = model_of(keras, layer_of(keras, kind))
        again.optimizer.build(again.trainable_variables)
        again.load_weights(tmp_path / file)
    np.testing.assert_array_equal(predicted(again), want)
    np.testing.assert_allclose(fit(again), fit(model), rtol=1e-6)
    np.testing.assert_allclose(predicted(again), predicted(model), rtol=1e-5, atol=1e-6)


@EACH_KERAS
@EACH_KIND
def test_checkpoints_and_weights(keras, kind, tmp_path):
    model, _ = fitted_model(keras, kind)
    again = model_of(keras, layer_of(keras, kind))
    saved = tf.train.Checkpoint(model=model).save(str(tmp_path / "saved"))
    tf.train.Checkpoint(model=again).restore(saved)
    np.testing.assert_array_equal(predicted(again), predicted(model))
    other = model_of(keras, layer_of(keras, kind))
    other.set_weights(model.get_weights())
    if kind != "blocks":  # counts of new keys begin anew
        np.testing.assert_array_equal(predicted(other), predicted(model))


@EACH_KERAS
def test_groups_look_them_up_together(keras):
    layers = {kind: layer_of(keras, kind) for kind in KINDS}
    layers |= {f"{kind}_rows": layer_of(keras, kind, "Embedding") for kind in ("add", "adaptive")}
    group = fe.keras.fused_layers(keras).EmbeddingGroup(layers)
    got = group(dict.fromkeys(layers, tf.constant(IDS)), training=True)
    for name, rows in got.items():
        np.testing.assert_allclose(rows, layers[name](IDS, training=False), rtol=1e-6, atol=1e-6)
    again = type(group).from_config(group.get_config())
    assert [layer.compression for layer in again.sublayers] == [
        layer.compression for layer in group.sublayers
    ]


@EACH_KERAS
def test_groups_write_one_tensor(keras):
    layers = {kind: layer_of(keras, kind) for kind in KINDS}
    group = fe.keras.fused_layers(keras).EmbeddingGroup(layers, concat=True)
    got = group(dict.fromkeys(layers, tf.constant(IDS)), training=True)
    want = tf.concat([layer(IDS, training=False) for layer in layers.values()], axis=1)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@EACH_KERAS
def test_bounds_follow_the_counts(keras):
    model, layer = fitted_model(keras, "blocks")
    assert layer.table.bounds.numpy().tolist() == [1, 2]
    layer.table.update_bounds()
    assert layer.table.bounds.numpy().tolist() != [1, 2]
    np.testing.assert_array_equal(layer.get_weights()[-1], layer.table.bounds.numpy())
    # Ids 0, 1, 2 and 8 occur twice as often as the others: they alone have blocks left.
    with fe.inference():
        has_blocks = np.any(fe.nn.embedding_lookup(layer.table, np.arange(12)) != 0, axis=1)
    assert np.flatnonzero(has_blocks).tolist() == [0, 1, 2, 8]
    assert np.isfinite(fit(model)).all()


@EACH_KERAS
def test_multihash_weights_may_be_regularized(keras):
    layer = layer_of(keras, "add", embeddings_regularizer="l2", embeddings_initializer="ones")
    layer(IDS)
    np.testing.assert_allclose(sum(layer.losses), 0.01 * 7 * DIM, rtol=1e-6)
    np.testing.assert_array_equal(layer(IDS), np.full([len(IDS), DIM], 2.0))


@EACH_KERAS
@pytest.mark.parametrize("ops", ["stock", "fused"])
def test_models_are_exported(keras, ops, tmp_path):
    inputs = keras.Input((2,), dtype="int64", name="ids")
    layers = [layer_of(keras, kind) for kind in KINDS]
    outputs = keras.layers.Concatenate()([layer(inputs) for layer in layers])
    model = keras.Model(inputs, keras.layers.Dense(1)(outputs))
    model(IDS, training=True)
    model(IDS[:3], training=True)
    fe.export_for_serving(model, tmp_path, ops)
    serve = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    (got,) = serve(ids=tf.constant(IDS)).values()
    np.testing.assert_allclose(got, model(IDS, training=False), rtol=1e-5, atol=1e-6)


@EACH_KERAS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "int8"}, r"compression must be .*MultiHash.*got 'int8'"),
        ({"compression": fe.keras.MultiHash(2, 2), "input_dim": 5}, r"2 \* 2 = 4 pairs.*5 ids"),
        ({"compression": fe.keras.MultiHash(2, 0)}, "numbers > 0"),
        ({"compression": fe.keras.MultiHash(2, 2, "sum")}, "operation must be one of add"),
        ({"compression": fe.keras.MultiHash(2, 2), "ev_option": ADMITS_FIFTH}, "ev_option.*leave"),
        ({"compression": fe.keras.DynamicDimension(3)}, "output_dim = 4 .* no multiple .* 3"),
        ({"compression": fe.keras.DynamicDimension(0)}, "num_blocks .* must be > 0"),
        ({"compression": fe.keras.DynamicDimension(2, 0.7)}, r"compression_ratio .* \(0, 0.5\]"),
        (
            {"compression": fe.keras.DynamicDimension(2), "ev_option": ADMITS_FIFTH},
            "the filter .* leave it out",
        ),
        ({"compression": fe.keras.Adaptive(0)}, "hash_bucket_size .* must be > 0"),
        (
            {"compression": fe.keras.Adaptive(3), "embeddings_regularizer": "l2"},
            "cannot read as a whole",
        ),
    ],
)
def test_what_is_refused(keras, options, message):
    layers = fe.keras.fused_layers(keras)
    with pytest.raises((TypeError, ValueError), match=message):
        layers.EmbeddingBag(output_dim=DIM, **options)


@EACH_KERAS
def test_files_of_another_compression_are_refused(keras, tmp_path):
    model = model_of(keras, layer_of(keras, "blocks"))
    model.save_weights(tmp_path / "model.weights.h5")
    other = model_of(keras, layer_of(keras, "adaptive"))
    with pytest.raises(ValueError, match=r"has Adaptive\(hash_bucket_size=5\), but the file has"):
        other.load_weights(tmp_path / "model.weights.h5")


def test_keras_3_clones_models_with_groups():
    for keras in filter(is_keras_3, KERASES.values()):
        inputs = {kind: keras.Input((2,), dtype="int64", name=kind) for kind in KINDS}
        rows = [layer_of(keras, kind)(inputs[kind]) for kind in KINDS]
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(rows)))
        clone = fe.keras.group(model)
        assert any(type(layer).__name__ == "EmbeddingGroup" for layer in clone.layers)
        given = dict.fromkeys(KINDS, IDS)
        model(given, training=True)
        np.testing.assert_allclose(
            clone(given, training=False), model(given, training=False), rtol=1e-5, atol=1e-6
        )
