"""The Keras layers and fe.nn under tf.distribute strategies: ordinary weights and tables."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.keras_optimizers import ours
from cases.kerases import KERASES
from checking import assert_close

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
NUM_ROWS, DIM = 10, 3
VALUES = np.arange(NUM_ROWS * DIM, dtype=np.float32).reshape(NUM_ROWS, DIM) / 10
# Ids that a row, a batch and two batches repeat.
IDS = np.array([[0, 5], [7, 1], [2, 2], [9, 0]] * 2, np.int64)
LABELS = np.linspace(-1, 1, len(IDS)).astype(np.float32)[:, None]
STRATEGIES = {
    "mirrored": lambda: tf.distribute.MirroredStrategy(["/cpu:0"]),
    "workers": tf.distribute.MultiWorkerMirroredStrategy,
    "none": tf.distribute.get_strategy,
}
SCOPES = ["mirrored", "workers"]


def mirrored():
    return STRATEGIES["mirrored"]()


def batches():
    return tf.data.Dataset.from_tensor_slices((IDS, LABELS)).batch(4)


def model_of(keras, embed):
    inputs = keras.Input((2,), dtype="int64")
    dense = keras.layers.Dense(1, kernel_initializer="ones")
    return keras.Model(inputs, dense(embed(inputs)))


def initial(shape, dtype=None, **_):
    return tf.constant(VALUES, dtype)


@EACH_KERAS
@pytest.mark.parametrize("strategy", SCOPES)
def test_ordinary_weights_train_as_stocks(keras, strategy):
    """Three layers in the same place of one model: stock's and ours stay equal."""
    with STRATEGIES[strategy]().scope():
        ours_layers = fe.keras.fused_layers(keras)
        classes = [keras.layers.Embedding, ours_layers.Embedding, ours_layers.EmbeddingBag]
        layers = [cls(NUM_ROWS, DIM, embeddings_initializer=initial) for cls in classes]
        pool = keras.layers.GlobalAveragePooling1D()

        def embed(ids):
            sequences = [pool(layer(ids)) for layer in layers[:2]]
            return keras.layers.Concatenate()([*sequences, layers[2](ids)])

        model = model_of(keras, embed)
        model.compile(ours(keras).SGD(0.25), "mse")
    model.fit(batches(), verbose=0)
    stock, *fused = (layer.get_weights()[0] for layer in layers)
    assert not np.allclose(stock, VALUES)
    for rows in fused:
        assert_close(rows, stock, terms=64)
    outside = model(tf.constant(IDS))  # not in the scope, where a model is read as in a replica
    assert_close(outside, model.predict_on_batch(IDS), terms=8)


def table_model(keras, optimizer, strategy="mirrored"):
    with STRATEGIES[strategy]().scope():
        layer = fe.keras.fused_layers(keras).EmbeddingBag(output_dim=DIM)
        model = model_of(keras, layer)
        model.compile(optimizer(), "mse")
    layer.table.upsert(tf.range(NUM_ROWS), VALUES)
    return model, layer.table


@EACH_KERAS
def test_a_table_trains_under_mirrored_strategy_as_without(keras):
    def rows(strategy):
        model, table = table_model(keras, lambda: ours(keras).Adagrad(0.1), strategy)
        model.fit(batches(), epochs=2, verbose=0)
        return table.export().values.numpy()

    want = rows("none")
    assert not np.allclose(want, VALUES)
    assert_close(rows("mirrored"), want, terms=64)


@EACH_KERAS
def test_a_table_is_not_trained_by_workers_or_by_stocks_optimizer(keras):
    wrapped, stock = lambda: ours(keras).Adagrad(0.1), lambda: keras.optimizers.Adagrad(0.1)
    refused = {"workers": "cannot be trained under", "mirrored": "cannot train the Embedding"}
    for strategy, optimizer in (("workers", wrapped), ("mirrored", stock)):
        model, _ = table_model(keras, optimizer, strategy)
        with pytest.raises(NotImplementedError, match=refused[strategy]):
            model.fit(batches(), verbose=0)


@EACH_KERAS
def test_a_table_predicts_under_a_strategy(keras):
    model, _ = table_model(keras, lambda: keras.optimizers.SGD(0.1))
    want = VALUES[IDS].mean(axis=1).sum(axis=1, keepdims=True)
    assert_close(model.predict(batches(), verbose=0), want, terms=16)
    loss = np.float32(model.evaluate(batches(), verbose=0))
    assert_close(loss, np.mean((want - LABELS) ** 2), terms=64)


LOOKUPS = {
    "v1": lambda table, ids: fe.nn.fused_safe_embedding_lookup_sparse(table, ids),
    "v2": lambda table, ids: fe.nn.fused_safe_embedding_lookup_sparse(
        table, ids, fusion_version="v2"
    ),
    "group": lambda table, ids: fe.nn.group_embedding_lookup_sparse([table], [ids], ["mean"])[0],
}


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("synchronization", ["ON_WRITE", "ON_READ"])
@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
def test_a_variable_of_a_strategy_is_read_in_every_context(lookup, synchronization, in_function):
    strategy, ids = mirrored(), tf.sparse.from_dense(IDS + 1)
    with strategy.scope():
        table = tf.Variable(
            np.concatenate([VALUES, VALUES[:1]]),
            synchronization=tf.VariableSynchronization[synchronization],
            aggregation=tf.VariableAggregation.SUM,
        )

    def look():
        return LOOKUPS[lookup](table, ids)

    look = tf.function(look) if in_function else look
    want = tf.nn.safe_embedding_lookup_sparse(table, ids)
    with strategy.scope():
        cross_replica = look()
    for got in (cross_replica, strategy.run(look), look()):
        assert_close(got, want, terms=8)
