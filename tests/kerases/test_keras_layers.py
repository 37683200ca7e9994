"""The Keras layers over an EmbeddingVariable, in fit, evaluate and predict."""

import doctest
import importlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES
from cases.training import DIM, NUM_IDS, ROWS
from checking import assert_close

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
IDS = np.array([[0, 5], [7, 1], [2, 2], [9, 11], [3, 0], [1, 6], [10, 4], [8, 8]], np.int64)
LABELS = np.linspace(-1, 1, len(IDS)).astype(np.float32)[:, None]


def initial_rows(table):
    table.upsert(tf.range(NUM_IDS), ROWS)


def layer_of(keras, combiner=None, **options):
    layers = fe.keras.fused_layers(keras)
    if combiner is None:
        return layers.Embedding(output_dim=DIM, **options)
    return layers.EmbeddingBag(output_dim=DIM, combiner=combiner, **options)


def rows_of(table):
    with fe.inference():
        return tf.nn.embedding_lookup(table, tf.range(NUM_IDS)).numpy()


def model_of(keras, layer, pool):
    inputs = keras.Input((2,), dtype="int64")
    dense = keras.layers.Dense(1, kernel_initializer="ones")
    return keras.Model(inputs, dense(pool(layer(inputs))))


def mean_pool(keras):
    return keras.layers.GlobalAveragePooling1D()


@EACH_KERAS
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("combiner", [None, "mean"])
def test_fit_is_that_of_keras_embedding(keras, run_eagerly, combiner):
    def fit(layer, pool, optimizer):
        model = model_of(keras, layer, pool)
        model.compile(optimizer, "mse", run_eagerly=run_eagerly)
        return model, lambda: model.fit(
            IDS, LABELS, batch_size=4, epochs=2, shuffle=False, verbose=0
        )

    stock = keras.layers.Embedding(NUM_IDS, DIM)
    want_model, run = fit(stock, mean_pool(keras), keras.optimizers.SGD(0.3))
    stock.set_weights([ROWS])
    want = run().history["loss"]

    layer = layer_of(keras, combiner)
    pool = mean_pool(keras) if combiner is None else keras.layers.Identity()
    got_model, run = fit(layer, pool, fe.keras.wrap(keras.optimizers.SGD(0.3)))
    initial_rows(layer.table)
    got = run().history["loss"]

    assert_close(np.array(got), np.array(want), terms=2**30)  # losses are float32 made float64
    assert_close(rows_of(layer.table), stock.get_weights()[0], terms=64)
    for one, other in zip(
        got_model.layers[-1].get_weights(), want_model.layers[-1].get_weights(), strict=True
    ):
        assert_close(one, other, terms=64)


@EACH_KERAS
def test_evaluation_changes_nothing(keras):
    layer = layer_of(keras, "sum")
    model = model_of(keras, layer, keras.layers.Identity())
    model.compile(fe.keras.wrap(keras.optimizers.Adam()), "mse")
    model.fit(IDS[:2], LABELS[:2], verbose=0)
    assert int(layer.table.total_count()) == 4
    before = rows_of(layer.table)
    model.evaluate(IDS, LABELS, verbose=0)
    model.predict(IDS, verbose=0)
    assert int(layer.table.total_count()) == 4
    np.testing.assert_array_equal(rows_of(layer.table), before)
    layer.trainable = False
    model.compile(fe.keras.wrap(keras.optimizers.Adam()), "mse")
    model.fit(IDS, LABELS, verbose=0)
    assert int(layer.table.total_count()) == 4
    np.testing.assert_array_equal(rows_of(layer.table), before)


@EACH_KERAS
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_fit_with_another_optimizer_raises(keras, run_eagerly):
    layer = layer_of(keras, "sum")
    model = model_of(keras, layer, keras.layers.Identity())
    for optimizer in (keras.optimizers.SGD(), keras.optimizers.Nadam(), "adam"):
        model.compile(optimizer, "mse", run_eagerly=run_eagerly)
        with pytest.raises(NotImplementedError, match=r"cannot train the EmbeddingVariable.*wrap"):
            model.fit(IDS, LABELS, verbose=0)


@EACH_KERAS
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_a_table_in_a_layer_of_ones_own(keras, dtype):
    class Sum(keras.layers.Layer):
        def build(self, input_shape):
            table = fe.get_embedding_variable("own", embedding_dim=DIM)
            initial_rows(table)
            self.table = fe.keras.variable(table) if hasattr(keras, "Variable") else table
            self.built = True

        def call(self, ids):
            rows = fe.nn.fused_safe_embedding_lookup_sparse(self.table, tf.sparse.from_dense(ids))
            return tf.cast(rows, self.compute_dtype)

        def compute_output_shape(self, shape):
            return (shape[0], DIM)

    layer = Sum(dtype=dtype)
    dense = keras.layers.Dense(1, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((2,), dtype="int64"), layer, dense])
    model.compile(fe.keras.wrap(keras.optimizers.Adagrad(0.1)), "mse")
    model.fit(IDS, LABELS, batch_size=4, verbose=0)
    table = getattr(layer.table, "_value", layer.table)
    moved = np.any(rows_of(table) != ROWS, axis=1)
    assert moved.tolist() == [i in IDS and i != 0 for i in range(NUM_IDS)]


@EACH_KERAS
def test_forms_of_ids(keras):
    layer = layer_of(keras, "sum")
    dense = tf.constant([[1, 2], [3, -1], [-1, -1]], tf.int64)
    layer(dense)
    initial_rows(layer.table)
    want = np.stack([ROWS[1] + ROWS[2], ROWS[3], np.zeros(DIM, np.float32)])
    sparse = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 2, 3], tf.int64), [3, 2])
    ragged = tf.RaggedTensor.from_row_lengths(tf.constant([1, 2, 3], tf.int64), [2, 1, 0])
    for ids in (dense, tf.cast(dense, tf.int32), sparse, ragged):
        assert_close(layer(ids).numpy(), want)
    each = layer_of(keras)
    big = tf.constant([[2**60 + 1, 2**60 + 2]], tf.int64)  # one number as floats
    rows = each(big).numpy()
    assert rows.shape == (1, 2, DIM)
    assert not np.array_equal(rows[0, 0], rows[0, 1])


def trained_model(keras, epochs=1):
    layer = layer_of(keras, "sum", name="ids")
    model = model_of(keras, layer, keras.layers.Identity())
    model.compile(fe.keras.wrap(keras.optimizers.Adam(0.1)), "mse")
    model.fit(IDS, LABELS, batch_size=4, epochs=epochs, shuffle=False, verbose=0)
    return model, layer


@EACH_KERAS
def test_files_of_keras_hold_the_table(keras, tmp_path):
    """Rows and slots: training goes on as if it had not been interrupted."""
    model, layer = trained_model(keras)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    table = loaded.get_layer("ids").table
    assert table is not layer.table
    other, other_layer = trained_model(keras, epochs=2)
    assert not np.array_equal(rows_of(other_layer.table), rows_of(layer.table))
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(rows_of(table), rows_of(layer.table))
    np.testing.assert_array_equal(rows_of(other_layer.table), rows_of(layer.table))
    np.testing.assert_array_equal(loaded.predict(IDS, verbose=0), model.predict(IDS, verbose=0))
    assert int(loaded.optimizer.iterations.numpy()) == 2
    for each in (model, loaded):
        each.fit(IDS, LABELS, batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_array_equal(rows_of(table), rows_of(layer.table))


@EACH_KERAS
def test_checkpoint_of_a_model(keras, tmp_path):
    model, layer = trained_model(keras)
    checkpoint = tf.train.Checkpoint(model=model)
    path = checkpoint.save(tmp_path / "checkpoint")
    rows, want = rows_of(layer.table), model.predict(IDS, verbose=0)
    model.fit(IDS, LABELS, verbose=0)
    assert not np.array_equal(rows_of(layer.table), rows)
    checkpoint.restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(rows_of(layer.table), rows)
    np.testing.assert_array_equal(model.predict(IDS, verbose=0), want)


@EACH_KERAS
def test_saved_model_of_a_model(keras, tmp_path):
    model, _ = trained_model(keras)
    want = model(IDS, training=False).numpy()
    spec = tf.TensorSpec([None, 2], tf.int64)
    serve = tf.function(lambda ids: model(ids, training=False), input_signature=[spec])
    tf.saved_model.save(model, tmp_path / "model", signatures=serve)
    loaded = tf.saved_model.load(tmp_path / "model")
    (got,) = loaded.signatures["serving_default"](tf.constant(IDS)).values()
    assert_close(got.numpy(), want)


def test_variable_errors():
    with pytest.raises(TypeError, match=r"without partitions is required, got <tf.Variable"):
        fe.keras.variable(tf.Variable(1.0))


@pytest.mark.parametrize("module", ["compression", "layers", "table_training"])
def test_docstring_examples(module):
    module = importlib.import_module(f"fused_embedding.keras.{module}")
    results = doctest.testmod(module, extraglobs={"fe": fe, "tf": tf})
    assert results.attempted > 0
    assert results.failed == 0
