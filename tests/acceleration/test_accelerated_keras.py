"""fe.accelerate and the optimizers of Keras: equal ones are replaced, all of them with "lazy"."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES, is_keras_3

NUM_IDS, WIDTH, NUM_STEPS, BATCH = 40, 3, 50, 8
EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)

# Whether stock's update has the numbers of the op: in Keras 2, and in Keras 3.
OPTIMIZERS = {
    "SGD": ({}, True, True),
    "SGD with momentum": ({"momentum": 0.9}, False, False),
    "Adagrad": ({}, True, False),
    "Adam": ({}, False, False),
    "RMSprop": ({}, False, False),
}


def make(keras, name):
    options, *_ = OPTIMIZERS[name]
    return getattr(keras.optimizers, name.split()[0])(0.1, **options)


def is_equal(keras, name):
    return OPTIMIZERS[name][2 if is_keras_3(keras) else 1]


def fit(keras, optimizer):
    """A model with a table, of whose rows some rest for steps and some are there twice."""
    # A seed of the process would be that of the tests behind this one, too.
    first, second = (keras.initializers.RandomUniform(-0.1, 0.1, seed) for seed in (1, 2))
    ids = keras.Input((WIDTH,), dtype="int64")
    rows = keras.layers.Embedding(NUM_IDS, 4, embeddings_initializer=first)(ids)
    outputs = keras.layers.Dense(1, kernel_initializer=second)(keras.layers.Flatten()(rows))
    model = keras.Model(ids, outputs)
    model.compile(optimizer, "mse", **({"jit_compile": False} if is_keras_3(keras) else {}))
    rng = np.random.default_rng(0)
    batches = rng.integers(0, NUM_IDS, (NUM_STEPS * BATCH, WIDTH)) // 2 * 2
    labels = rng.normal(size=(NUM_STEPS * BATCH, 1)).astype("f4")
    losses = []

    class Losses(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            losses.append(logs["loss"])

    model.fit(batches, labels, BATCH, verbose=0, shuffle=False, callbacks=[Losses()])
    return losses, model.get_weights()


@EACH_KERAS
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_numbers_are_stocks(name, keras):
    want_losses, want_weights = fit(keras, make(keras, name))
    with fe.accelerate() as acceleration:
        losses, weights = fit(keras, make(keras, name))
    np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
    for got, want in zip(weights, want_weights, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    [(record, _)] = acceleration.records.items()
    assert record.kind == f"{name.split()[0]} of Keras"
    assert (record.left is None) == is_equal(keras, name)
    assert record.left is None or 'optimizers="lazy"' in record.left


@EACH_KERAS
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lazy_is_that_of_ours(name, keras):
    options, *_ = OPTIMIZERS[name]
    ours = getattr(fe.keras.fused_optimizers(keras), name.split()[0])(0.1, **options)
    want_losses, want_weights = fit(keras, ours)
    with fe.accelerate(optimizers="lazy") as acceleration:
        losses, weights = fit(keras, make(keras, name))
    np.testing.assert_array_equal(losses, want_losses)
    for got, want in zip(weights, want_weights, strict=True):
        np.testing.assert_array_equal(got, want)
    assert [record.left for record in acceleration.records] == [None]


@EACH_KERAS
def test_a_subclass_with_an_update_of_its_own_is_left(keras):
    class Doubled(keras.optimizers.SGD):
        def update_step(self, gradient, *args):
            gradient = tf.IndexedSlices(2 * gradient.values, gradient.indices, gradient.dense_shape)
            super().update_step(gradient, *args)

    variable = tf.Variable(tf.zeros([4, 1]))
    gradient = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([1, 1]), tf.constant([4, 1]))
    if is_keras_3(keras):
        variable = keras.Variable(np.zeros([4, 1], "f4"))
    with fe.accelerate(optimizers="lazy") as acceleration:
        Doubled(1.0).apply_gradients([(gradient, variable)])
    np.testing.assert_array_equal(np.asarray(variable)[:, 0], [0, -4, 0, 0])
    [record] = acceleration.records
    assert "update" in record.left


@EACH_KERAS
@pytest.mark.parametrize("num_lookups", [1, 2])
def test_adagrad_of_lookups_that_pool(num_lookups, keras):
    """Keras 3 squares the gradients of an id in two lookups one by one. One lookup has it once."""

    def train():
        table = (keras.Variable if is_keras_3(keras) else tf.Variable)(np.ones([6, 2], "f4"))
        optimizer = keras.optimizers.Adagrad(0.1)
        weight = tf.Variable([1.0, 2.0])  # a dense gradient beside the sparse one

        @tf.function
        def step(ids):
            with tf.GradientTape() as tape:
                bags = [ids, ids[:, :1]][:num_lookups]
                rows = [lookup(table, bag) for bag in bags]
                loss = tf.add_n([tf.reduce_sum(tf.sin(of)) for of in rows]) + tf.reduce_sum(weight)
            variables = [table.value if is_keras_3(keras) else table, weight]
            grads = tape.gradient(loss, variables)
            optimizer.apply_gradients([(grads[0], table)])
            return loss

        for _ in range(5):
            step(tf.constant([[1, 1, 2], [1, 4, 4]], tf.int64))
        return np.asarray(table)

    def lookup(table, bag):
        params = table.value if is_keras_3(keras) else table
        return tf.nn.safe_embedding_lookup_sparse(params, tf.sparse.from_dense(bag), combiner="sum")

    want = train()
    with fe.accelerate() as acceleration:
        got = train()
    np.testing.assert_allclose(got, want, rtol=1e-5)
    records = [record for record in acceleration.records if "Adagrad" in record.kind]
    assert [r.left is None for r in records] == [num_lookups == 1 or not is_keras_3(keras)]
