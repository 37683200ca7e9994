"""Models with the Keras layers: training beside stock layers, inputs of tf.data, files, export."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import processes
from cases.keras_layers import (
    DIM,
    HOLDERS,
    NUM_ROWS,
    VALUES,
    batch,
    make_layer,
    rows_of,
    weights_batch,
)
from cases.keras_optimizers import APPLY, make, op_types, ours
from cases.kerases import KERASES, is_keras_3, takes_ragged_inputs
from checking import assert_close

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
EACH_HOLDER = pytest.mark.parametrize("holder", HOLDERS)
# Ids that a row and a batch repeat.
IDS = np.array([[0, 5], [7, 1], [2, 2], [9, 11], [3, 0], [1, 6], [5, 4], [8, 8]], np.int64)
LABELS = np.linspace(-1, 1, len(IDS)).astype(np.float32)[:, None]


def model_of(keras, layer, pool=None):
    inputs = keras.Input((2,), dtype="int64")
    embedded = layer(inputs)
    dense = keras.layers.Dense(1, kernel_initializer="ones", name="dense")
    return keras.Model(inputs, dense(embedded if pool is None else pool(embedded)))


def fit(model, optimizer, epochs=2):
    model.compile(optimizer, "mse")
    model.fit(IDS, LABELS, batch_size=4, epochs=epochs, shuffle=False, verbose=0)
    return model.get_layer("dense").get_weights()


def stock_fit(keras, optimizer):
    """Rows and dense weights that stock trains, with a gradient that is dense: sums."""

    class Mean(keras.layers.Layer):
        def build(self, _):
            self.embeddings = self.add_weight(shape=VALUES.shape, name="embeddings")
            self.embeddings.assign(VALUES)

        def call(self, ids):
            one_hot = tf.one_hot(ids, NUM_ROWS)
            return tf.tensordot(
                tf.reduce_mean(one_hot, 1), tf.convert_to_tensor(self.embeddings), 1
            )

        def compute_output_shape(self, shape):
            return (shape[0], DIM)

    layer = Mean()
    weights = fit(model_of(keras, layer), optimizer)
    return layer.get_weights()[0], weights


@EACH_KERAS
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
@pytest.mark.parametrize("optimizer", ["stock", "ours"])
@pytest.mark.parametrize("case", ["sgd", "adagrad"])
def test_ordinary_weights_are_trained_as_by_stock(keras, name, optimizer, case):
    layer = make_layer(keras, name, "weights")
    pool = keras.layers.GlobalAveragePooling1D() if name == "Embedding" else None
    module = keras.optimizers if optimizer == "stock" else ours(keras)
    weights = fit(model_of(keras, layer, pool), make(module, case))
    want_rows, want = stock_fit(keras, make(keras.optimizers, case))
    assert_close(rows_of(layer), want_rows, terms=128)
    for one, other in zip(weights, want, strict=True):
        assert_close(one, other, terms=128)


@EACH_KERAS
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_tables_are_trained_as_ordinary_weights(keras, name):
    layer = make_layer(keras, name, "table")
    pool = keras.layers.GlobalAveragePooling1D() if name == "Embedding" else None
    fit(model_of(keras, layer, pool), make(ours(keras), "sgd"))
    want, _ = stock_fit(keras, make(keras.optimizers, "sgd"))
    assert_close(rows_of(layer), want, terms=128)


@EACH_KERAS
def test_stock_layers_are_replaced_by_name(keras, tmp_path):
    """keras.layers.Embedding and fe's, with the same first values, and each other's files."""
    initial = keras.initializers.RandomUniform(-1, 1, seed=5)
    models = []
    for layers in (keras.layers, fe.keras.fused_layers(keras)):
        layer = layers.Embedding(NUM_ROWS, DIM, embeddings_initializer=initial, name="ids")
        models.append(model_of(keras, layer, keras.layers.GlobalAveragePooling1D()))
    stock, fused = models
    assert_close(fused.predict(IDS, verbose=0), stock.predict(IDS, verbose=0))
    fit(stock, keras.optimizers.SGD(0.25))
    fit(fused, keras.optimizers.SGD(0.25))
    assert_close(fused.predict(IDS, verbose=0), stock.predict(IDS, verbose=0), terms=128)
    for writer, reader in ((stock, fused), (fused, stock)):
        fit(writer, keras.optimizers.SGD(0.25))
        writer.save_weights(tmp_path / "ids.weights.h5")
        assert not np.allclose(reader.predict(IDS, verbose=0), writer.predict(IDS, verbose=0))
        reader.load_weights(tmp_path / "ids.weights.h5")
        assert_close(reader.predict(IDS, verbose=0), writer.predict(IDS, verbose=0))


@EACH_KERAS
@EACH_HOLDER
def test_a_step_is_one_op_a_lookup_and_one_for_all_updates(keras, holder):
    bags = [make_layer(keras, "EmbeddingBag", holder) for _ in range(2)]
    inputs = keras.Input((2,), dtype="int64")
    concatenated = keras.layers.Concatenate()([bag(inputs) for bag in bags])
    model = keras.Model(inputs, keras.layers.Dense(1)(concatenated))
    model.compile(make(ours(keras), "adagrad"), "mse")
    step = tf.function(lambda: model.train_step((tf.constant(IDS), tf.constant(LABELS))))
    types = op_types(step)
    lookup = {
        "weights": "FusedEmbeddingResourceGroupLookup",
        "table": "EmbeddingVariableGroupLookup",
    }
    apply = {"weights": APPLY, "table": "EmbeddingVariableApply"}
    assert types.count(lookup[holder]) == 2
    assert types.count(apply[holder]) == 1
    assert not [t for t in types if t in ("ResourceGather", "ResourceScatterAdd")]


@EACH_KERAS
@EACH_HOLDER
@pytest.mark.parametrize("kind", ["dense", "sparse", "ragged"])
@pytest.mark.parametrize("weighted", [False, True])
def test_functional_models_train_on_every_kind(keras, holder, kind, weighted):
    """From tf.data, in two batches; against one step of SGD written out."""
    layer = make_layer(keras, "EmbeddingBag", holder, combiner="sum")
    width = None if kind == "ragged" else 3
    flag = {} if kind == "dense" else {kind: True}
    inputs = {"ids": keras.Input((width,), dtype="int64", name="ids", **flag)}
    features = {"ids": batch(kind)}
    if weighted:
        inputs["weights"] = keras.Input((width,), dtype="float32", name="weights", **flag)
        features["weights"] = weights_batch(kind)
    bag = layer(inputs["ids"], weights=inputs.get("weights"))
    output = keras.layers.Dense(1, kernel_initializer="ones", trainable=False)(bag)
    model = keras.Model(inputs, output)
    model.compile(make(ours(keras), "sgd"), "mse")
    labels = tf.constant(LABELS[:5])
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(5)
    model.fit(data, epochs=1, verbose=0)

    sums = batch("sparse")
    flat = weights_batch("sparse").values if weighted else tf.ones_like(sums.values, tf.float32)
    pairs = list(zip(sums.indices.numpy()[:, 0], sums.values.numpy(), flat.numpy(), strict=True))
    errors = -LABELS[:5, 0].astype(np.float64)
    for row, i, weight in pairs:
        errors[row] += weight * VALUES[i].astype(np.float64).sum()
    want = VALUES.astype(np.float64)
    for row, i, weight in pairs:
        want[i] -= 0.125 * weight * 2 * errors[row] / 5
    assert_close(rows_of(layer), want, terms=64)
    assert model.predict(data, verbose=0).shape == (5, 1)


@EACH_KERAS
@EACH_HOLDER
def test_models_that_keras_builds_while_it_infers_shapes(keras, holder):
    options = {"input_dim": NUM_ROWS} if holder == "weights" else {}

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            layers = fe.keras.fused_layers(keras)
            self.bag = layers.EmbeddingBag(output_dim=DIM, **options)
            self.dense = keras.layers.Dense(1)

        def call(self, ids):
            return self.dense(self.bag(ids))

    model = Model()
    model.compile(make(ours(keras), "sgd"), "mse")
    history = model.fit(IDS, LABELS, batch_size=4, epochs=3, shuffle=False, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    if holder == "table":
        assert int(model.bag.table.total_count()) == len(set(IDS.ravel()))


@EACH_KERAS
@pytest.mark.filterwarnings("ignore:Model doesn't support")
def test_jit_compile(keras):
    model = model_of(keras, make_layer(keras, "EmbeddingBag", "weights"))
    model.compile(keras.optimizers.SGD(), "mse", jit_compile=True)
    if is_keras_3(keras):
        model.fit(IDS, LABELS, verbose=0)
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="XLA"):
            model.fit(IDS, LABELS, verbose=0)


# --- Files ---

LOAD = """
import importlib, sys
import numpy as np
import fused_embedding as fe
name, folder, *paths = sys.argv[1:]
keras = importlib.import_module(name)
if name == "tf_keras":  # imported after fused_embedding, which has registered with keras
    fe.keras.fused_layers(keras)
    fe.keras.fused_optimizers(keras)
ids = np.load(folder + "/ids.npy")
for path in paths:
    if path.endswith(".weights.h5"):
        model = keras.models.load_model(path.removesuffix(".weights.h5") + ".keras")
        model = keras.models.clone_model(model)  # without what it was trained to
        model.load_weights(path)
    else:  # Keras 3 cannot read the loss of the older form
        model = keras.models.load_model(path, compile=path.endswith(".keras"))
    np.save(path + ".npy", model.predict(ids, verbose=0))
    labels = np.linspace(-1, 1, len(ids)).astype(np.float32)[:, None]
    if path.endswith(".keras"):
        model.fit(ids, labels, batch_size=4, shuffle=False, verbose=0)
        np.save(path + ".trained.npy", model.predict(ids, verbose=0))
"""


def saved_model(keras, holder, name, folder):
    option = fe.EmbeddingVariableOption(max_capacity=1000, eviction="lru")
    options = {"ev_option": option} if holder == "table" else {}
    layer = make_layer(keras, name, holder, name="ids", **options)
    pool = keras.layers.GlobalAveragePooling1D() if name == "Embedding" else None
    model = model_of(keras, layer, pool)
    fit(model, make(ours(keras), "adagrad"))
    path = str(folder / f"{holder}_{name}")
    model.save(path + ".keras")
    model.save_weights(path + ".weights.h5")
    if holder == "weights":
        model.save(path + ".h5")
    return path, model


@EACH_KERAS
@pytest.mark.parametrize(
    "names", [("Embedding", "EmbeddingBag"), ("EmbeddingBag", "Embedding")], ids="-".join
)
@pytest.mark.slow
def test_files_hold_the_layers_for_other_processes(keras, names, tmp_path):
    """Rows, slots and configuration: training goes on as it would have here."""
    np.save(tmp_path / "ids.npy", IDS)
    saved = {}
    for holder, name in zip(HOLDERS, names, strict=True):
        path, model = saved_model(keras, holder, name, tmp_path)
        saved[path] = model
    suffixes = {p: [".keras", ".weights.h5"] + [".h5"] * ("weights_" in p) for p in saved}
    paths = [path + suffix for path, its in suffixes.items() for suffix in its]
    processes.output_of(processes.run_program(LOAD, keras.__name__, tmp_path, *paths))
    for path, model in saved.items():
        want = model.predict(IDS, verbose=0)
        for suffix in suffixes[path]:
            np.testing.assert_array_equal(np.load(path + suffix + ".npy"), want, err_msg=suffix)
        model.fit(IDS, LABELS, batch_size=4, shuffle=False, verbose=0)
        trained = np.load(path + ".keras.trained.npy")
        np.testing.assert_array_equal(trained, model.predict(IDS, verbose=0))
        assert not np.array_equal(trained, want)


@EACH_KERAS
def test_files_of_the_other_kind_are_refused(keras, tmp_path):
    """Before the layer changes."""
    for holder, other in (HOLDERS, HOLDERS[::-1]):
        writer, reader = (
            model_of(keras, make_layer(keras, "EmbeddingBag", kind, name="ids"))
            for kind in (holder, other)
        )
        path = str(tmp_path / f"{holder}.weights.h5")
        writer.save_weights(path)
        before = rows_of(reader.get_layer("ids"))
        message = "has an EmbeddingVariable, but the file has" if other == "table" else ""
        with pytest.raises(ValueError, match=message):
            reader.load_weights(path)
        np.testing.assert_array_equal(rows_of(reader.get_layer("ids")), before)


@EACH_KERAS
def test_the_older_form_of_files_refuses_tables(keras, tmp_path):
    model = model_of(keras, make_layer(keras, "EmbeddingBag", "table"))
    with pytest.raises(NotImplementedError, match="was read or assigned as one dense tensor"):
        model.save(tmp_path / "model.h5")


@EACH_KERAS
@EACH_HOLDER
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
@pytest.mark.parametrize("how", ["export", "saved_model"])
def test_exported_models_compute_the_same(keras, holder, name, how, tmp_path):
    layer = make_layer(keras, name, holder)
    pool = keras.layers.GlobalAveragePooling1D() if name == "Embedding" else None
    model = model_of(keras, layer, pool)
    fit(model, make(ours(keras), "sgd"))
    path = str(pathlib.Path(tmp_path) / "model")
    if how == "export":
        model.export(path)
        loaded = tf.saved_model.load(path)
        got = loaded.serve(tf.constant(IDS))
    else:
        spec = tf.TensorSpec([None, 2], tf.int64)
        serve = tf.function(lambda ids: model(ids, training=False), input_signature=[spec])
        tf.saved_model.save(model, path, signatures=serve)
        loaded = tf.saved_model.load(path)
        (got,) = loaded.signatures["serving_default"](tf.constant(IDS)).values()
    assert_close(got.numpy(), model.predict(IDS, verbose=0))


@pytest.mark.skipif(
    not takes_ragged_inputs(tf.keras), reason="keras.Input of this Keras cannot be ragged"
)
def test_layers_of_the_page():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/training.md").read_text()
    section = page[page.index("### Layers") :]
    example = re.search("```python\n(.*?)```", section, re.DOTALL).group(1)
    names = {"fe": fe, "keras": tf.keras}
    exec(compile(example, "docs/training.md", "exec"), names)
    model = tf.keras.Model(
        [names["ads"], names["prices"], names["pages"]], [names["bag"], names["steps"]]
    )
    ads, prices = (
        tf.ragged.constant([[1, 2], []], dtype=tf.int64),
        tf.ragged.constant([[0.5, 2.0], []]),
    )
    bag, steps = model([ads, prices, tf.zeros([2, 20], tf.int64)])
    assert (bag.shape, steps.shape) == ((2, 16), (2, 20, 16))
    assert not bag[1].numpy().any()


@EACH_KERAS
@EACH_HOLDER
def test_summaries_of_models(keras, holder, capsys):
    model_of(keras, make_layer(keras, "EmbeddingBag", holder)).summary()
    assert "embedding_bag" in capsys.readouterr().out
