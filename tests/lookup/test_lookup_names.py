"""Errors of lookups name the feature, layer or argument that has the ids, and the table."""

import re

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.columns import keras as keras_2
from cases.kerases import KERASES

# Gathers on a GPU have zeros for what is an error here: docs/gpu.md.
pytestmark = pytest.mark.on_cpu

v1 = tf.compat.v1
fc = fe.feature_column
SAFE = fe.nn.fused_safe_embedding_lookup_sparse
GROUP = fe.nn.group_embedding_lookup_sparse
ROW = tf.sparse.from_dense([[7]])
OUTSIDE = "id 7 at position 0 is outside [0, 5)"


def refuses(name, wrong=OUTSIDE):
    message = re.escape(f"{name}: {wrong}")
    return pytest.raises(tf.errors.InvalidArgumentError, match=rf"(?<!\w){message}")


def table(name="users"):
    return tf.Variable(np.ones([5, 2], np.float32), name=name)


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "check"])
def test_an_argument_and_its_table(version):
    ids = "sp_ids" if version == "check" else "sparse_ids"
    with refuses(f"{ids} (embedding 'users')"):
        SAFE(table(), ROW, fusion_version=version)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_table_in_shards_and_one_that_is_a_tensor(version):
    shards = [
        tf.Variable(np.ones([rows, 2], np.float32), name=f"users/part_{i}")
        for i, rows in enumerate([3, 2])
    ]
    with refuses("sparse_ids (embedding 'users')"):
        SAFE(shards, ROW, fusion_version=version)
    with refuses("sparse_ids"):
        SAFE(tf.ones([5, 2]), ROW, fusion_version=version)


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_a_row_outside_the_batch(version):
    ids = tf.SparseTensor([[2, 0]], tf.constant([1], tf.int64), [2, 1])
    name = "sparse_ids (embedding 'users')"
    with refuses(name, "sp_indices[0, 0] = 2 is outside [0, num_rows = 2)"):
        SAFE(table(), ids, fusion_version=version)


def test_the_column_of_a_group_where_some_are_looked_up_by_themselves():
    tables = [[table(), table()], table("items"), table("shops")]
    ids = [tf.sparse.from_dense([[1]])] * 2 + [ROW]
    with refuses("sp_ids[2] (embedding 'shops')"):
        GROUP(tables, ids, ["sum"] * 3)
    with refuses("ids[1] (embedding 'items')"):
        fe.nn.group_embedding_lookup(tables[2:] + tables[1:2], [[1], [7]])


@pytest.mark.parametrize("kind", ["variable", "tensor", "EmbeddingVariable"])
def test_gradients_have_the_names_of_their_lookup(kind):
    with tf.Graph().as_default() as graph:
        tables = {
            "variable": lambda: v1.get_variable("users", [5, 2], use_resource=True),
            "tensor": lambda: v1.placeholder(tf.float32, [5, 2], "users"),
            "EmbeddingVariable": lambda: fe.get_embedding_variable("users", 2),
        }
        of_kind, weights = tables[kind](), tf.constant([1.0])
        [combined] = GROUP([of_kind], [tf.sparse.from_dense([[1]])], ["sum"], [weights])
        tf.gradients(combined, [of_kind, weights])
        names = {
            operation.type: operation.get_attr("column_names")
            for operation in graph.get_operations()
            if "GroupLookup" in operation.type
        }
    assert len(names) == 3, names
    assert list(names.values()) == [[b"sp_ids[0] (embedding 'users')"]] * 3


def columns(keys, version):
    return [
        fc.embedding_column(tf.feature_column.categorical_column_with_identity(key, 5), 2, **how)
        for key, how in zip(keys, [{"do_fusion": version}] * len(keys), strict=True)
    ]


def run(build):
    """Runs a graph that reads a good item, and a user that no table has."""
    with tf.Graph().as_default(), v1.Session() as session:
        features = {"item": tf.constant([[2]]), "user": tf.constant([[7]])}
        outputs = build(features)
        session.run(v1.global_variables_initializer())
        session.run(outputs)


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "group"])
def test_feature_columns(version):
    is_group = version == "group"
    layer = fc.input_layer if is_group else v1.feature_column.input_layer
    name = "feature 'user' (embedding 'input_layer/user_embedding/embedding_weights')"
    with refuses(name):
        run(lambda inputs: layer(inputs, columns(["user", "item"], not is_group and version)))


def test_a_weighted_shared_column_of_a_partitioned_table():
    def build(inputs):
        user = tf.feature_column.categorical_column_with_identity("user", 5)
        weighted = tf.feature_column.weighted_categorical_column(user, "weight")
        made = fc.shared_embedding_columns([weighted], 2, do_fusion=True)
        partitioner = v1.fixed_size_partitioner(2)
        with v1.variable_scope("model", partitioner=partitioner):
            inputs |= {"weight": tf.constant([[1.0]])}
            return v1.feature_column.input_layer(inputs, made)

    name = "model/input_layer/user_weighted_by_weight_shared_embedding/embedding_weights"
    with refuses(f"feature 'user' (embedding {name!r})"):
        run(build)


def test_linear_model():
    user = tf.feature_column.categorical_column_with_identity("user", 5)
    with refuses("feature 'user' (embedding 'linear_model/user/weights')"):
        run(lambda inputs: fc.linear_model(inputs, [user], do_fusion=True))


def test_a_scope_of_columns_in_a_layer_of_keras():
    with fc.group_embedding_column_scope():
        made = columns(["user", "item"], None)
    layer = keras_2().layers.DenseFeatures(made)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"feature 'user' \(embedding '.*user"):
        layer({"item": tf.constant([[2]]), "user": tf.constant([[7]])})


@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_layers(keras, kind):
    layer = getattr(fe.keras.fused_layers(keras), kind)(5, 2, name="of_users")
    with refuses("layer 'of_users' (embedding 'of_users/embeddings')"):
        layer(tf.constant([[7]]))


def test_a_column_with_an_embedding_variable():
    def build(_):
        ids = tf.SparseTensor([[2, 0]], tf.constant([1], tf.int64), [2, 1])
        user = fc.categorical_column_with_embedding("user", tf.int64)
        return fc.input_layer({"user": ids}, [fc.embedding_column(user, 2)])

    name = "feature 'user' (embedding 'input_layer/user_embedding/embedding_weights')"
    with refuses(name, "sp_indices[0, 0] = 2 is outside [0, num_rows = 2)"):
        run(build)
