"""fe.export_for_serving of Keras models: layers over EmbeddingVariables and feature columns."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases
from cases.kerases import KERASES
from serving.serving_cases import UNKNOWN, assert_same, assert_served, tensors

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
USERS = np.r_[np.arange(6), UNKNOWN, 3].reshape(-1, 2)
LABELS = np.linspace(-1, 1, len(USERS)).astype(np.float32)[:, None]
ITEMS = [[1, 2], [], [5], [10**11, 1, 1], [-4], [], [0]]


def fitted(keras):
    """A model with dense and padded ids, trained."""
    embedding = fe.keras.embedding_layer(keras)
    users = keras.Input((2,), dtype="int64", name="users")
    items = keras.Input((3,), dtype="int64", name="items")
    layers = [
        keras.layers.Flatten()(embedding(4, name="user")(users)),
        embedding(3, "mean", max_norm=0.2, name="item")(items),
        embedding(3, "sqrtn", default_id=7, name="other")(items),
    ]
    hidden = keras.layers.Dropout(0.5)(keras.layers.concatenate(layers))
    hidden = keras.layers.BatchNormalization()(hidden)
    model = keras.Model({"users": users, "items": items}, keras.layers.Dense(2)(hidden))
    model.compile(fe.keras.wrap(keras.optimizers.Adagrad(0.1)), "mse")
    model.fit(given_to_model(), LABELS, epochs=3, verbose=0)
    return model


def given_to_model():
    items = np.full([len(ITEMS), 3], -1, np.int64)
    for i, ids in enumerate(ITEMS):
        items[i, : len(ids)] = ids
    return {"users": USERS, "items": items}


@EACH_KERAS
def test_keras_models_become_stock_ops(tmp_path, server, keras):
    model = fitted(keras)
    given = given_to_model()
    want = {"output_0": np.asarray(model(tensors(given), training=False))}
    fe.export_for_serving(model, tmp_path)
    assert_served(server, tmp_path, given, want)


@EACH_KERAS
def test_keras_models_with_fused_ops(tmp_path, fused_server, keras):
    model = fitted(keras)
    given = given_to_model()
    want = {"output_0": np.asarray(model(tensors(given), training=False))}
    fe.export_for_serving(model, tmp_path, ops="fused")
    assert_same(fused_server.serve(tmp_path, given, loader="v1")[0], want)


def ragged_items():
    return tf.ragged.constant(ITEMS, dtype=tf.int64)


PARTS = {
    "sparse": lambda ids: {
        "items_indices": ids.to_sparse().indices,
        "items_values": ids.to_sparse().values,
        "items_dense_shape": ids.to_sparse().dense_shape,
    },
    "ragged": lambda ids: {"items_values": ids.values, "items_row_splits": ids.row_splits},
}


@pytest.mark.parametrize("kind", PARTS)
def test_sparse_and_ragged_inputs_are_given_in_parts(tmp_path, server, kind):
    keras = cases.keras()
    layer = fe.keras.embedding_layer(keras)(4, combiner="mean")
    items = keras.Input((None,), dtype="int64", name="items", **{kind: True})
    model = keras.Model(items, layer(items))
    layer.table.upsert(tf.range(6), np.random.default_rng(0).normal(size=[6, 4]))
    ids = ragged_items()
    want = {"output_0": model(ids if kind == "ragged" else ids.to_sparse(), training=False)}
    fe.export_for_serving(model, tmp_path)
    given = {name: part.numpy() for name, part in PARTS[kind](ids).items()}
    assert_served(server, tmp_path, given, want)


@pytest.mark.slow
@pytest.mark.parametrize("do_fusion", ["v1", "v2", True])
def test_dense_features(tmp_path, server, do_fusion):
    """Feature columns in layers of Keras 2, on variables, vocabularies and EmbeddingVariables."""
    keras = cases.keras()
    columns = [
        fe.feature_column.embedding_column(column, 3, do_fusion=do_fusion)
        for column in cases.categorical_columns(tmp_path)
    ]
    keys = fe.feature_column.categorical_column_with_embedding("keys", tf.int64)
    columns.append(fe.feature_column.embedding_column(keys, 5, do_fusion=do_fusion))
    for layer in (keras.layers.DenseFeatures, fe.feature_column.DenseFeatures):
        model = keras.Sequential([layer(columns), keras.layers.Dense(2)])
        features = cases.features()
        features["keys"] = features["ids"]
        model(features)  # as in training: inserts keys
        features["keys"] = features["ids"].with_values(tf.constant([3, 11, 0, 8, 9**15], tf.int64))
        want = {"output_0": model(features, training=False)}
        folder = tmp_path / layer.__module__
        fe.export_for_serving(model, folder)
        assert_served(server, folder, parts_of(features), want)


def parts_of(features):
    given = {}
    for name, value in features.items():
        if isinstance(value, tf.SparseTensor):
            for part in ("indices", "values", "dense_shape"):
                given[f"{name}_{part}"] = getattr(value, part).numpy()
        else:
            given[name] = value.numpy()
    return {k: v.astype("S") if v.dtype == object else v for k, v in given.items()}


@EACH_KERAS
@pytest.mark.parametrize("error", [AttributeError, ValueError])
def test_a_model_that_was_never_called_needs_signatures(tmp_path, keras, error):
    class Model(keras.Model):
        @property
        def input(self):
            raise error("never called")  # versions of Keras 3 raise one or the other

        def call(self, inputs):
            return inputs

    with pytest.raises(ValueError, match="signatures="):
        fe.export_for_serving(Model(), tmp_path)


@EACH_KERAS
def test_signatures_of_a_keras_model(tmp_path, server, keras):
    model = fitted(keras)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.int64)])
    def users_alone(users):
        items = -tf.ones([tf.shape(users)[0], 3], tf.int64)
        return {"scores": model({"users": users, "items": items}, training=False)}

    fe.export_for_serving(model, tmp_path, signatures=users_alone)
    want = {"scores": np.asarray(users_alone(tf.constant(USERS))["scores"])}
    assert_served(server, tmp_path, {"users": USERS}, want)
