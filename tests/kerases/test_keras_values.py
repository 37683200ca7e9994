"""What Keras does with the values of weights that are tables: copies, histograms, counts."""

import copy
import pickle
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.keras_optimizers import ours
from cases.kerases import KERASES
from cases.tiers import needs_rocksdb
from fused_embedding.variable import snapshot

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
DIM = 3
IDS = np.array([[3, 1], [7, 1 << 60], [5, 3], [0, 0]], np.int64)
LABELS = np.float32([[1], [-1], [0], [2]])
# The trained ids, and some that no table has seen.
QUERIES = np.array([[3, 1], [7, 1 << 60], [40, 41], [0, 42]], np.int64)


def model_of(keras, trained_ids=IDS, **options):
    """A model with two tables, trained for a step."""
    layers = fe.keras.fused_layers(keras)
    inputs = keras.Input((2,), dtype="int64")
    bags = [layers.EmbeddingBag(output_dim=DIM, **options) for _ in range(2)]
    dense = keras.layers.Dense(1, dtype="float32")
    model = keras.Model(inputs, dense(keras.layers.Add()([bag(inputs) for bag in bags])))
    model.compile(ours(keras).Adagrad(0.5), "mse", run_eagerly=True)
    if trained_ids is not None:
        step(model, trained_ids)
    return model


def step(model, ids=IDS):
    return model.fit(ids, LABELS[: len(ids)], batch_size=4, verbose=0, shuffle=False)


def tables_of(model):
    return [layer.table for layer in model.layers if hasattr(layer, "ev_option")]


def exported(model):
    return [part.numpy() for table in tables_of(model) for part in table.export()[:2]]


def predicted(model):
    return model(QUERIES, training=False).numpy()


def assert_same(got, want):
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


@EACH_KERAS
@pytest.mark.parametrize("copied", ["same", "deepcopy", "pickle"])
def test_weights_come_back_bit_by_bit(keras, copied):
    model = model_of(keras, IDS[:3])
    weights, rows, outputs = model.get_weights(), exported(model), predicted(model)
    assert len(weights) == len(model.weights)
    step(model)  # moves rows and inserts the key 0
    tables_of(model)[0].erase([7])
    assert not np.array_equal(predicted(model), outputs)
    copies = {
        "same": lambda: weights,
        "deepcopy": lambda: copy.deepcopy(weights),
        "pickle": lambda: pickle.loads(pickle.dumps(weights)),
    }
    model.set_weights(copies[copied]())
    assert_same(exported(model), rows)
    assert_same([predicted(model)], [outputs])
    assert_same(model.get_weights(), weights)


@EACH_KERAS
def test_weights_go_into_another_model(keras):
    """With what ids without a row read, which depends on the name of a table."""
    source, target = model_of(keras), model_of(keras, IDS[:1] + 20)
    target.set_weights(source.get_weights())
    assert_same(exported(target), exported(source))
    assert_same([predicted(target)], [predicted(source)])
    step(target)


def test_slots_and_frequencies_stay():
    """As those of dense variables do; a key that comes back starts with new ones."""
    keras = KERASES["keras"]
    model = model_of(keras)
    table = tables_of(model)[0]
    weights, before = model.get_weights(), table.export_content()
    model.set_weights(weights)
    after = table.export_content()
    for name in ("slots", "frequencies", "versions", "slot_names", "step"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name), name)
    table.erase([7])
    model.set_weights(weights)
    at = np.searchsorted(after.keys, 7)
    slots, frequencies = table.export_content().slots.numpy(), table.get_frequency([7, 3]).numpy()
    assert frequencies.tolist() == [0, 2]
    np.testing.assert_allclose(slots[at], [0.1] * DIM, rtol=1e-5)  # Adagrad's first
    assert not np.array_equal(slots[at - 1], slots[at])


@EACH_KERAS
def test_early_stopping_restores_the_best_weights(keras):
    model = model_of(keras)
    stop = keras.callbacks.EarlyStopping("loss", mode="min", patience=1, restore_best_weights=True)
    stop.set_model(model)
    stop.on_train_begin()
    stop.on_epoch_end(0, {"loss": 1.0})
    best = exported(model)
    step(model)
    stop.on_epoch_end(1, {"loss": 2.0})
    stop.on_train_end()
    assert_same(exported(model), best)


BAD_VALUES = {
    "a plain array": (lambda rows: np.array(rows), "without their keys"),
    "arithmetic": (lambda rows: rows * 2, "without their keys"),
    "rows in another order": (lambda rows: rows[::-1], "without their keys"),
    "numbers of another shape": (lambda rows: rows.reshape(DIM, -1), "shape"),
}


@EACH_KERAS
@pytest.mark.parametrize("case", BAD_VALUES)
def test_other_values_are_refused(keras, case):
    model = model_of(keras)
    make, message = BAD_VALUES[case]
    weights, rows = model.get_weights(), exported(model)
    weights[0] = make(weights[0])
    with pytest.raises((TypeError, ValueError), match=message):
        model.set_weights(weights)
    assert_same(exported(model), rows)


@needs_rocksdb
@EACH_KERAS
def test_a_table_on_an_ssd_is_refused(keras, tmp_path):
    storage = fe.StorageOption(fe.StorageType.DRAM_SSD, str(tmp_path), [1 << 24])
    table = fe.get_embedding_variable(
        "table", DIM, ev_option=fe.EmbeddingVariableOption(storage_option=storage)
    )
    weight = fe.keras.variable(table) if hasattr(keras, "Variable") else table
    with pytest.raises(NotImplementedError, match=r"rows on an SSD .* tf\.train\.Checkpoint"):
        weight.numpy()


@EACH_KERAS
def test_parameters_are_counted(keras):
    model = model_of(keras)
    num_rows = len(np.unique(IDS))
    assert [layer.count_params() for layer in model.layers if hasattr(layer, "ev_option")] == [
        num_rows * DIM
    ] * 2
    assert model.count_params() == 2 * num_rows * DIM + DIM + 1
    step(model, IDS[:1] + 20)
    assert model.count_params() == 2 * (num_rows + 2) * DIM + DIM + 1
    lines = []
    model.summary(print_fn=lines.append)
    assert f"Trainable params: {model.count_params()} " in "\n".join(lines)


@EACH_KERAS
def test_histograms_are_of_sampled_rows(keras, monkeypatch, tmp_path):
    model = model_of(keras)
    seen = {}

    def histogram(name, data, step=None):
        seen[name] = tf.reshape(data, [-1])

    callback = keras.callbacks.TensorBoard(str(tmp_path), histogram_freq=1, write_graph=False)
    # TensorBoard, which has tf.summary.histogram, is not installed with TensorFlow everywhere.
    if hasattr(type(callback), "summary"):  # Keras 3
        writer = tf.summary.create_file_writer
        fake = types.SimpleNamespace(histogram=histogram, create_file_writer=writer)
        monkeypatch.setattr(type(callback), "summary", fake)
    else:
        module = sys.modules[type(callback).__module__].tf.summary
        monkeypatch.setattr(module, "histogram", histogram)
    monkeypatch.setattr(callback, "_log_epoch_metrics", lambda *_: None)
    callback.set_model(model)
    callback.on_epoch_end(0, {})
    sizes = sorted(value.shape[0] for value in seen.values())
    assert sizes == sorted([np.unique(IDS).size * DIM] * 2 + [DIM, 1])
    monkeypatch.setattr(snapshot, "NUM_SAMPLED_ROWS", 4)
    callback.on_epoch_end(1, {})
    assert sorted(value.shape[0] for value in seen.values()) == sorted([4 * DIM] * 2 + [DIM, 1])
    with pytest.raises(NotImplementedError, match="one dense tensor"):
        tf.convert_to_tensor(model.weights[0])


# --- Mixed precision ---


@pytest.fixture
def mixed_float16(request):
    """A Keras in whose models layers compute in float16."""
    keras = request.param
    policies = keras.mixed_precision
    set_policy = getattr(policies, "set_global_policy", None) or keras.config.set_dtype_policy
    set_policy("mixed_float16")
    yield keras
    set_policy("float32")


MIXED = pytest.mark.parametrize("mixed_float16", KERASES.values(), ids=KERASES, indirect=True)


def loss_scale_of(keras):
    optimizers = keras.optimizers
    return getattr(optimizers, "LossScaleOptimizer", None) or (
        keras.mixed_precision.LossScaleOptimizer
    )


@MIXED
@pytest.mark.parametrize("wrapped", ["by Keras", "wrap(LossScale)"])
def test_tables_train_with_a_loss_scale(mixed_float16, wrapped):
    """As without one; a step with infinities is left out."""
    keras = mixed_float16
    sgd = keras.optimizers.SGD(32.0)
    optimizer = sgd if wrapped == "by Keras" else loss_scale_of(keras)(sgd)
    model = model_of(keras, None)
    model.compile(fe.keras.wrap(optimizer), "mse")
    weight = 2.0**-7  # so that the first scale, 2^15, fits in float16
    model.layers[-1].set_weights([np.full((DIM, 1), weight), np.zeros(1)])
    table = tables_of(model)[0]
    table.upsert([3, 1], np.ones((2, DIM), np.float32))
    error = model(IDS[:1], training=False).numpy()[0, 0] - LABELS[0, 0]
    step(model, IDS[:1])
    rows = tf.nn.embedding_lookup(table, [3, 1]).numpy()
    # The gradient of the mean of two rows is half of 2 * error * weight for each.
    np.testing.assert_allclose(rows, np.full((2, DIM), 1 - 32 * error * weight), rtol=4e-3)
    before = exported(model)
    model.fit(IDS[:1], LABELS[:1] * np.inf, verbose=0)
    assert_same(exported(model), before)


@MIXED
def test_stock_optimizers_are_refused_with_a_loss_scale(mixed_float16):
    model = model_of(mixed_float16, None)
    model.compile(mixed_float16.optimizers.Adagrad(0.5), "mse")
    with pytest.raises(NotImplementedError, match=r"compile the model with fe\.keras\.wrap"):
        step(model)
