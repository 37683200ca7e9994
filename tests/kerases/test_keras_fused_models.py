"""Models that fe.keras's optimizers train: results, one op a step, mixed precision, XLA, files."""

import numpy as np
import pytest
import tensorflow as tf

from cases.keras_optimizers import (
    APPLY,
    NUM_ROWS,
    TERMS,
    buffer_of,
    make,
    numbers,
    op_types,
    ours,
)
from cases.kerases import KERASES, is_keras_3
from checking import assert_close, assert_same_bits

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
IDS = np.random.default_rng(8).integers(0, NUM_ROWS, (24, 6))
LABELS = np.random.default_rng(9).standard_normal((24, 1)).astype(np.float32)


def embedding_of(keras, is_dense, i):
    """keras.layers.Embedding, or one whose gradient is dense: sums of what repeated ids have."""
    initial = keras.initializers.RandomUniform(-1, 1, seed=i)
    if not is_dense:
        return keras.layers.Embedding(NUM_ROWS, 4, embeddings_initializer=initial)

    class Product(keras.layers.Layer):
        def build(self, _):
            self.embeddings = self.add_weight(
                shape=(NUM_ROWS, 4), initializer=initial, name="embeddings"
            )

        def call(self, ids):
            table = tf.convert_to_tensor(self.embeddings)
            return tf.tensordot(tf.one_hot(ids, NUM_ROWS, dtype=table.dtype), table, 1)

        def compute_output_shape(self, shape):
            return (*shape, 4)

    return Product()


def model_of(keras, is_dense=False):
    """Three tables, of which each row of ids names two ids."""
    ids = keras.Input((6,), dtype="int64")
    parts = [ids[:, 2 * i : 2 * i + 2] for i in range(3)]
    embedded = [embedding_of(keras, is_dense, i)(part) for i, part in enumerate(parts)]
    flat = keras.layers.Flatten()(keras.layers.Concatenate()(embedded))
    dense = keras.layers.Dense(1, kernel_initializer="ones")
    return keras.Model(ids, dense(flat))


def fit(model, optimizer, epochs=3, **options):
    model.compile(optimizer, "mse", **options)
    model.fit(IDS, LABELS, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return [numbers(w) for w in model.weights]


@EACH_KERAS
@pytest.mark.parametrize("name", ["sgd", "adagrad"])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_models_are_trained_as_by_dense_gradients(keras, name, run_eagerly):
    got = fit(model_of(keras), make(ours(keras), name), run_eagerly=run_eagerly)
    want = fit(model_of(keras, is_dense=True), make(keras.optimizers, name))
    for one, other in zip(got, want, strict=True):
        assert_close(one, other, TERMS)


@EACH_KERAS
def test_a_model_runs_one_op_for_its_layers(keras):
    model = model_of(keras)
    model.compile(make(ours(keras), "adam"), "mse")
    model.build((None, 6))
    batch = tf.constant(IDS[:8]), tf.constant(LABELS[:8])
    run = tf.function(lambda: model.train_step(batch))
    assert op_types(run).count(APPLY) == 1


@EACH_KERAS
def test_under_mixed_precision(keras):
    """The table is float32, what is computed float16; the optimizer is wrapped."""
    set_policy = keras.mixed_precision.set_global_policy
    set_policy("mixed_float16")
    try:
        model = model_of(keras)
    finally:
        set_policy("float32")
    before = [numbers(w) for w in model.weights]
    scaled = keras.mixed_precision.LossScaleOptimizer(
        make(ours(keras), "adagrad"), initial_scale=8.0
    )
    got = fit(model, scaled, epochs=1)
    want = fit(model_of(keras, is_dense=True), make(keras.optimizers, "adagrad"), epochs=1)
    for old, one, other in zip(before, got, want, strict=True):
        assert not np.array_equal(old, one)
        np.testing.assert_allclose(one, other, atol=0.01)


@EACH_KERAS
@pytest.mark.parametrize("name", ["adagrad", "adam"])
def test_jit_compiled_steps_are_stocks(keras, name):
    """XLA knows no ops of ours: dense gradients are what stock gets there."""
    got = fit(model_of(keras), make(ours(keras), name), jit_compile=True)
    want = fit(model_of(keras, is_dense=True), make(keras.optimizers, name), jit_compile=True)
    for one, other in zip(got, want, strict=True):
        assert_close(one, other, TERMS)


@EACH_KERAS
def test_no_epoch_copies_a_table(keras):
    """With Keras's own layer, whose lookup in Keras 2 puts the variable in copy_on_read_mode."""
    model = model_of(keras)
    fit(model, make(ours(keras), "adam"), epochs=1)
    state = list(model.optimizer.variables)[2:]
    state += list(model.trainable_variables) if is_keras_3(keras) else []
    state = [v for v in state if len(v.shape) == 2]
    before = [buffer_of(v) for v in state]
    model.fit(IDS, LABELS, batch_size=8, epochs=2, verbose=0)
    copied = [v.name for v, b in zip(state, before, strict=True) if buffer_of(v) != b]
    assert not [name for name in copied if "embedding" in name], copied


# --- Files ---


@EACH_KERAS
@pytest.mark.parametrize("name", ["adagrad", "centered_momentum", "ftrl"])
def test_checkpoints_go_both_ways(keras, name, tmp_path):
    """Weights and the optimizer's state; training goes on as it would have."""
    for i, (writer, reader) in enumerate(
        [(ours(keras), keras.optimizers), (keras.optimizers, ours(keras))]
    ):
        model = model_of(keras)
        fit(model, make(writer, name))
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(
            str(tmp_path / f"checkpoint{i}")
        )
        other = model_of(keras)
        fit(other, make(reader, name), epochs=1)
        checkpoint = tf.train.Checkpoint(model=other, optimizer=other.optimizer)
        checkpoint.read(path).assert_consumed()
        assert_same_state(other, model)


@EACH_KERAS
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_weights_files_go_both_ways(keras, name, tmp_path):
    for i, (writer, reader) in enumerate(
        [(ours(keras), keras.optimizers), (keras.optimizers, ours(keras))]
    ):
        model, other = model_of(keras), model_of(keras)
        fit(model, make(writer, name))
        fit(other, make(reader, name), epochs=1)
        model.save_weights(tmp_path / f"{i}.weights.h5")
        other.load_weights(tmp_path / f"{i}.weights.h5")
        if not is_keras_3(keras):  # its files of weights have no optimizer
            other.optimizer.set_weights([numbers(v) for v in model.optimizer.variables])
        assert_same_state(other, model)


def assert_same_state(one, other):
    for model_variable, variable in zip(one.weights, other.weights, strict=True):
        assert_same_bits(numbers(model_variable), numbers(variable))
    pairs = zip(one.optimizer.variables, other.optimizer.variables, strict=True)
    for variable, want in pairs:
        assert_same_bits(numbers(variable), numbers(want), err_msg=variable.name)


@EACH_KERAS
def test_saved_models_have_the_optimizer(keras, tmp_path):
    model = model_of(keras)
    fit(model, make(ours(keras), "rmsprop_momentum"))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is ours(keras).RMSprop
    assert_same_state(loaded, model)
    loaded.fit(IDS, LABELS, batch_size=8, shuffle=False, verbose=0)
    model.fit(IDS, LABELS, batch_size=8, shuffle=False, verbose=0)
    assert_same_state(loaded, model)
