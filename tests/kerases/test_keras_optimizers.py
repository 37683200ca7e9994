"""Keras optimizers train EmbeddingVariables as they train variables, or refuse them."""

import gc

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES, is_keras_3
from cases.training import BATCHES, DIM, NUM_IDS, ROWS, read
from checking import assert_close
from fused_embedding.keras import table_training

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
OPTIMIZERS = {
    "sgd": lambda k: k.optimizers.SGD(0.1),
    "momentum": lambda k: k.optimizers.SGD(0.1, momentum=0.8),
    "nesterov": lambda k: k.optimizers.SGD(0.1, momentum=0.8, nesterov=True),
    "adagrad": lambda k: k.optimizers.Adagrad(0.1, epsilon=0.05),
    "rmsprop": lambda k: k.optimizers.RMSprop(0.1, rho=0.8, epsilon=0.01),
    "rmsprop_momentum": lambda k: k.optimizers.RMSprop(0.1, momentum=0.5, epsilon=0.01),
    "adam": lambda k: k.optimizers.Adam(0.1, beta_1=0.8, beta_2=0.9, epsilon=0.01),
    "adamw": lambda k: k.optimizers.AdamW(0.1, weight_decay=0.3, epsilon=0.01),
    "adam_weight_decay": lambda k: k.optimizers.Adam(0.1, weight_decay=0.3, epsilon=0.01),
    "ftrl": lambda k: k.optimizers.Ftrl(
        0.1,
        initial_accumulator_value=0.3,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.1,
        l2_shrinkage_regularization_strength=0.02,
        beta=0.05,
    ),
    "schedule": lambda k: k.optimizers.Adagrad(
        k.optimizers.schedules.ExponentialDecay(0.3, 1, 0.5)
    ),
    "clipnorm": lambda k: k.optimizers.Adagrad(0.1, clipnorm=0.5),
    "global_clipnorm": lambda k: k.optimizers.Adagrad(0.1, global_clipnorm=0.5),
    "clipvalue": lambda k: k.optimizers.Adagrad(0.1, clipvalue=0.2),
}
# Those move rows that a step has no gradient for, in Keras 3 or tf_keras: let there be none.
EVERY_ROW = [list(range(NUM_IDS))] * 4


def make_table(keras, name="table"):
    table = fe.get_embedding_variable(name, embedding_dim=DIM)
    table.upsert(tf.range(NUM_IDS), ROWS)
    return table, fe.keras.variable(table) if is_keras_3(keras) else table


def trained(keras, optimizer, variables, rows_of, batches, in_function):
    """Steps of a loss of a table and a scale; the rows of the table after each."""
    table, scale = variables

    def step(ids):
        with tf.GradientTape() as tape:
            rows = tf.nn.embedding_lookup(getattr(table, "_value", table), ids)
            loss = tf.reduce_sum(tf.tanh(rows * tf.convert_to_tensor(scale)) ** 2)
        grads = tape.gradient(loss, [table, scale])
        if not isinstance(getattr(table, "_value", table), fe.EmbeddingVariable):
            # Keras 3 does not sum rows of one index.
            ids, idx = tf.unique(grads[0].indices)
            values = tf.math.unsorted_segment_sum(grads[0].values, idx, tf.size(ids))
            grads[0] = tf.IndexedSlices(values, ids, grads[0].dense_shape)
        optimizer.apply_gradients(list(zip(grads, [table, scale], strict=True)))

    if in_function:
        step = tf.function(step, input_signature=[tf.TensorSpec([None], tf.int64)])
    history = []
    for batch in batches:
        step(tf.constant(batch, tf.int64))
        history.append(rows_of())
    return np.stack(history), tf.convert_to_tensor(scale).numpy()


def ones(keras):
    return (
        keras.Variable(np.ones(DIM, np.float32)) if is_keras_3(keras) else tf.Variable(tf.ones(DIM))
    )


@EACH_KERAS
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("in_function", [False, True])
def test_trains_as_keras(keras, name, in_function):
    batches = EVERY_ROW if name not in ("sgd", "adagrad", "schedule") else BATCHES
    stock = keras.Variable(ROWS) if is_keras_3(keras) else tf.Variable(ROWS)
    want, want_scale = trained(
        keras,
        OPTIMIZERS[name](keras),
        (stock, ones(keras)),
        lambda: tf.convert_to_tensor(stock).numpy(),
        batches,
        in_function,
    )
    table, variable = make_table(keras)
    optimizer = fe.keras.wrap(OPTIMIZERS[name](keras))
    got, got_scale = trained(
        keras, optimizer, (variable, ones(keras)), lambda: read(table).numpy(), batches, in_function
    )
    assert not np.array_equal(want[-1], ROWS)
    assert_close(got, want, terms=256)
    assert_close(got_scale, want_scale, terms=256)
    assert int(optimizer.iterations) == len(batches)


@EACH_KERAS
def test_tables_alone(keras):
    """A model without ordinary variables; steps are counted all the same."""
    table, variable = make_table(keras)
    optimizer = fe.keras.wrap(keras.optimizers.Adam(0.1))
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2]) ** 2)
        (grad,) = tape.gradient(loss, [variable])
        optimizer.apply_gradients([(grad, variable)])
    assert int(optimizer.iterations) == 3
    moved = np.any(read(table).numpy() != ROWS, axis=1)
    assert moved.tolist() == [i in (1, 2) for i in range(NUM_IDS)]


def test_an_optimizer_of_keras_before_3_5_counts_steps_of_tables_alone(monkeypatch):
    class Older(table_training.TrainsTables3):
        iterations = tf.Variable(0)  # and no _iterations

    monkeypatch.setattr(table_training, "_train_tables", lambda optimizer, given: [])
    optimizer = Older()
    optimizer.apply([tf.ones([1])], [tf.Variable([0.0])])
    assert optimizer.iterations.numpy() == 1


@EACH_KERAS
def test_learning_rate_can_be_set(keras):
    table, variable = make_table(keras)
    optimizer = fe.keras.wrap(keras.optimizers.SGD(0.1))
    optimizer.learning_rate = 0.0
    grad = tf.IndexedSlices(tf.ones([1, DIM]), tf.constant([3], tf.int64))
    optimizer.apply_gradients([(grad, variable)])
    np.testing.assert_array_equal(read(table), ROWS)
    optimizer.learning_rate = 1.0
    optimizer.apply_gradients([(grad, variable)])
    assert_close(read(table).numpy()[3], ROWS[3] - 1.0)


@EACH_KERAS
@pytest.mark.parametrize("option", ["clipnorm", "global_clipnorm"])
def test_clipping_counts_sums_of_duplicates(keras, option):
    table, variable = make_table(keras)
    optimizer = fe.keras.wrap(keras.optimizers.SGD(1.0, **{option: 0.5}))
    grad = tf.IndexedSlices(tf.ones([2, DIM]), tf.constant([3, 3], tf.int64))
    optimizer.apply_gradients([(grad, variable)])
    moved = ROWS - read(table).numpy()
    assert_close(np.linalg.norm(moved).astype(np.float32), 0.5)
    assert_close(moved[3], np.full(DIM, 0.5 / np.sqrt(DIM)), terms=64)


@EACH_KERAS
def test_wrap_is_idempotent_and_keeps_the_object(keras):
    optimizer = keras.optimizers.Adagrad(0.1)
    assert fe.keras.wrap(optimizer) is optimizer
    assert fe.keras.wrap(optimizer) is optimizer
    assert isinstance(optimizer, keras.optimizers.Adagrad)
    assert type(keras.optimizers.Adagrad(0.1)) is keras.optimizers.Adagrad


@EACH_KERAS
def test_a_table_without_weight_decay_beside_one_with_it(keras):
    decayed, of_decayed = make_table(keras, "decayed")
    excluded, of_excluded = make_table(keras, "excluded")
    optimizer = fe.keras.wrap(keras.optimizers.AdamW(0.125, weight_decay=0.25))
    optimizer.exclude_from_weight_decay(var_names=["excluded"])
    grad = tf.IndexedSlices(tf.zeros([2, DIM]), tf.constant([1, 4], tf.int64))  # Adam moves nothing
    optimizer.apply_gradients([(grad, of_decayed), (grad, of_excluded)])
    want = ROWS.copy()
    want[[1, 4]] *= 1 - 0.125 * 0.25
    assert_close(read(decayed), want)
    np.testing.assert_array_equal(read(excluded), ROWS)


def refused(keras):
    class Adagrad(keras.optimizers.Adagrad):
        def update_step(self, *args):
            return super().update_step(*args)

    optimizers = keras.optimizers
    yield "Nadam cannot train.*use one of SGD", lambda: optimizers.Nadam()
    yield "Lion cannot train", lambda: optimizers.Lion()
    yield "Adagrad cannot train.*rule", lambda: Adagrad()
    yield "amsgrad.*leave amsgrad out", lambda: optimizers.Adam(amsgrad=True)
    yield "centered.*leave centered out", lambda: optimizers.RMSprop(centered=True)
    yield "use_ema", lambda: optimizers.SGD(use_ema=True)
    yield "SGD with weight_decay", lambda: optimizers.SGD(weight_decay=0.1)
    if is_keras_3(keras):
        yield "gradient_accumulation_steps", lambda: optimizers.SGD(gradient_accumulation_steps=2)
        yield "loss_scale_factor", lambda: optimizers.SGD(loss_scale_factor=2.0)
    else:
        yield "legacy.*cannot train", lambda: optimizers.legacy.Adagrad()


@EACH_KERAS
def test_wrap_refuses_by_name(keras):
    for message, make in refused(keras):
        with pytest.raises(NotImplementedError, match=message):
            fe.keras.wrap(make())


@EACH_KERAS
@pytest.mark.parametrize("in_function", [False, True])
def test_other_optimizers_refuse_by_name(keras, in_function):
    """Wrapped or not is what counts: SGD would train it, and is not wrapped."""
    optimizers = keras.optimizers
    makers = [lambda: optimizers.SGD(), lambda: optimizers.Adam(), lambda: optimizers.Adadelta()]
    if is_keras_3(keras):
        makers.append(lambda: optimizers.LossScaleOptimizer(optimizers.SGD()))
    else:
        makers.append(lambda: optimizers.legacy.SGD())
    for make in makers:
        check_refusal(keras, make(), in_function)


def check_refusal(keras, optimizer, in_function):
    table, variable = make_table(keras, "refusing")

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1]))
        (grad,) = tape.gradient(loss, [variable])
        optimizer.apply_gradients([(grad, variable)])

    name = type(optimizer).__name__
    # fe.keras.wrap refuses Adadelta, so wrapping it is no way out.
    advice = r"wrap\(optimizer\), where optimizer is one of SGD" if name == "Adadelta" else "wrap"
    with pytest.raises(NotImplementedError, match=rf"{name} cannot train.*'refusing.*{advice}"):
        (tf.function(step) if in_function else step)()
    np.testing.assert_array_equal(read(table), ROWS)


@EACH_KERAS
@pytest.mark.parametrize("in_function", [False, True])
def test_table_that_nobody_trains_is_refused(keras, in_function):
    """A lookup for training of a table that the optimizer does not get."""
    table, _ = make_table(keras, "forgotten")
    scale = ones(keras)
    optimizer = fe.keras.wrap(keras.optimizers.SGD(0.1))

    def loss():
        rows = tf.nn.embedding_lookup(table, [1, 2])
        return tf.reduce_sum(rows * tf.convert_to_tensor(scale))

    def step(is_inference):
        with tf.GradientTape() as tape:
            if is_inference:
                with fe.inference():
                    value = loss()
            else:
                value = loss()
        optimizer.apply_gradients(zip(tape.gradient(value, [scale]), [scale], strict=True))

    step = tf.function(step) if in_function else step
    step(True)
    loss()  # outside of a step: to see or to insert rows
    step(True)
    with pytest.raises(NotImplementedError, match=r"'forgotten.*is looked up.*never change"):
        step(False)
    step(True)


@EACH_KERAS
def test_table_of_a_dropped_model_is_not_in_training(keras):
    table = make_table(keras, "dropped")[0]
    with tf.GradientTape():
        tf.nn.embedding_lookup(table, [1, 2])
    model = {"table": table}
    model["model"] = model
    gc.disable()
    try:
        del table, model  # only the collector of cycles can tell that nobody has the table
        scale = ones(keras)
        fe.keras.wrap(keras.optimizers.SGD(0.1)).apply_gradients([(tf.ones(DIM), scale)])
    finally:
        gc.enable()
    assert_close(tf.convert_to_tensor(scale), np.full(DIM, 0.9, np.float32))


@EACH_KERAS
def test_dense_gradient_is_refused(keras):
    _, variable = make_table(keras, "refuses_dense")
    with pytest.raises(TypeError, match=r"refuses_dense.*IndexedSlices"):
        fe.keras.wrap(keras.optimizers.SGD()).apply_gradients([(tf.ones([1, DIM]), variable)])


def test_strategies_of_several_processes_are_refused():
    keras = KERASES["keras"]
    _, variable = make_table(keras, "in_strategy")
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        optimizer = fe.keras.wrap(keras.optimizers.SGD())
        grad = tf.IndexedSlices(tf.ones([1, DIM]), tf.constant([3], tf.int64))
        with pytest.raises(NotImplementedError, match=r"in_strategy.*under Collective"):
            optimizer.apply_gradients([(grad, variable)])
