"""Sequence columns whose ids one op makes, against stock's columns."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as fc_v2

import fused_embedding as fe
from cases import columns as cases
from fused_embedding.columns.sequence_input_layer import sequence_input_layer

pytestmark = pytest.mark.one_version

tf1 = tf.compat.v1
fc = tf.feature_column
KEYS_OP = "FusedEmbeddingColumnKeys"
GROUP_OP = "FusedEmbeddingResourceGroupLookup"
# Ops by which stock's columns make ids of features.
TRANSFORMATIONS = {
    *("StringToHashBucketFast", "AsString", "LookupTableFindV2", "Where", "GatherNd", "ExpandDims")
}
# Row 1 is empty, row 2 has a hole, and no sequence is as long as the batch is wide.
INDICES = [[0, 0], [0, 1], [2, 0], [2, 2], [3, 1]]
SHAPE = [5, 4]
WORDS = ["oak", "fig", "elm", "oak", ""]
NUMBERS = [3, 11, 0, 3, 7]
# Other lengths than those of the sparse features: a layer has features of one kind.
DENSE_WORDS = np.array([["oak", "fig", ""], ["", "", ""], ["", "", "elm"], ["", "", ""]])
DENSE_NUMBERS = np.array([[3, 11, -1], [-1, -1, -1], [-1, -1, 3], [-1, -1, -1]], np.int64)


def sparse_features():
    def sparse(values):
        if tf.executing_eagerly():
            return tf.SparseTensor(INDICES, values, SHAPE)
        indices = tf1.placeholder_with_default(np.array(INDICES, np.int64), [None, 2])
        shape = tf1.placeholder_with_default(np.array(SHAPE, np.int64), [2])
        return tf.SparseTensor(indices, values, shape)

    return {
        "words": sparse(WORDS),
        "ids": sparse(np.array(NUMBERS, np.int64)),
        "numbers": sparse(np.array(NUMBERS, np.int32)),
    }


def dense_features():
    def dense(values):
        if tf.executing_eagerly():
            return tf.constant(values)
        return tf1.placeholder_with_default(values, [None, *values.shape[1:]])

    return {
        "words": dense(DENSE_WORDS),
        "ids": dense(DENSE_NUMBERS),
        "numbers": dense(DENSE_NUMBERS.astype(np.int32)),
    }


FEATURES = {"sparse": sparse_features, "dense": dense_features}


def vocabulary_file(tmp_path):
    return fc.sequence_categorical_column_with_vocabulary_file(
        "words", cases.write_vocabulary(tmp_path), 5, num_oov_buckets=2
    )


def categorical_columns(tmp_path):
    return [
        fc.sequence_categorical_column_with_hash_bucket("words", 7),
        fc.sequence_categorical_column_with_identity("ids", 12),
        fc.sequence_categorical_column_with_hash_bucket("numbers", 5, tf.int64),
        vocabulary_file(tmp_path),
        fc.sequence_categorical_column_with_vocabulary_list("words", cases.VOCABULARY),
        fc.sequence_categorical_column_with_identity("numbers", 8, default_value=2),
        fc.sequence_categorical_column_with_vocabulary_list("ids", [3, 7], default_value=1),
    ]


def embeddings(module, categorical, **how):
    """Columns with different names."""
    return [
        module.embedding_column(column, 2 + i % 3, initializer=cases.initializer(i), **how)
        for i, column in enumerate({c.name: c for c in categorical}.values())
    ]


def one_of_each(tmp_path):
    """All columns in parts, as columns of one feature have the same name."""
    columns = categorical_columns(tmp_path)
    return [columns[:3], columns[3:6], columns[4:5] + columns[6:]]


def assert_bit_equal(got, want):
    assert got.collections == want.collections
    for name in ("outputs", "gradients", "variables"):
        tf.nest.map_structure(
            np.testing.assert_array_equal, getattr(got, name), getattr(want, name)
        )


def train(columns, features, layer=sequence_input_layer):
    """Trains on what a layer makes of sequences, their lengths beside them."""

    def build(_):
        rows, lengths = layer(features(), columns)
        return tf.concat(
            [
                rows,
                tf.broadcast_to(
                    tf.cast(lengths, tf.float32)[:, None, None],
                    [*tf.unstack(tf.shape(rows)[:2]), 1],
                ),
            ],
            axis=2,
        )

    return cases.train(build)


def keras_layer(features, columns):
    layer = cases.keras().experimental.SequenceFeatures(columns, name="layer")
    return layer(features)


@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())
@pytest.mark.parametrize("part", range(3))
def test_sequence_input_layer_trains_as_stock(part, features, tmp_path):
    categorical = one_of_each(tmp_path)[part]
    want = train(embeddings(fc, categorical), features)
    got = train(embeddings(fe.feature_column, categorical, do_fusion=True), features)
    assert_bit_equal(got, want)
    assert (got.ops[KEYS_OP], got.ops[GROUP_OP], got.ops[GROUP_OP + "Grad"]) == (1, 1, 1)
    assert TRANSFORMATIONS & want.ops.keys()
    assert not TRANSFORMATIONS & got.ops.keys()


@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())
@pytest.mark.parametrize("in_scope", [True, False])
def test_a_layer_of_keras_trains_as_stock(in_scope, features, tmp_path):
    categorical = categorical_columns(tmp_path)[:3]
    want = train(embeddings(fc, categorical), features, keras_layer)
    if in_scope:
        with fe.feature_column.group_embedding_column_scope("steps"):
            columns = embeddings(fe.feature_column, categorical)
    else:
        columns = embeddings(fe.feature_column, categorical, do_fusion=True)
    got = train(columns, features, keras_layer)
    assert_bit_equal(got, want)
    assert got.ops[KEYS_OP] == got.ops[GROUP_OP] == (1 if in_scope else 3)
    assert not TRANSFORMATIONS & got.ops.keys()


@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())
def test_a_layer_of_keras_in_eager_mode_and_in_functions(features, tmp_path):
    categorical = [*categorical_columns(tmp_path)[1:3], vocabulary_file(tmp_path)]
    sequence_features = cases.keras().experimental.SequenceFeatures
    with fe.feature_column.group_embedding_column_scope("steps"):
        layer = sequence_features(embeddings(fe.feature_column, categorical))
    want = sequence_features(embeddings(fc, categorical))(features())
    function = tf.function(layer)
    for got in (layer(features()), function(features())):
        tf.nest.map_structure(np.testing.assert_array_equal, got, want)
    graph = function.get_concrete_function(features()).graph
    ops = collections.Counter(op.type for op in graph.get_operations())
    assert (ops[KEYS_OP], ops[GROUP_OP]) == (1, 1)


@pytest.mark.parametrize(
    "feature",
    [
        tf1.SparseTensorValue(np.zeros([0, 2], np.int64), np.zeros([0], np.int64), [3, 0]),
        tf1.SparseTensorValue(np.zeros([0, 2], np.int64), np.zeros([0], np.int64), [0, 2]),
        tf1.SparseTensorValue(np.array([[1, 1]]), np.array([-5]), [3, 2]),  # an invalid id
        np.zeros([3, 0], np.int64),
        np.zeros([0, 2], np.int64),
        np.array([4, -1, 0]),  # one step a row
    ],
    ids=["no steps", "no rows", "invalid", "dense, no steps", "dense, no rows", "vector"],
)
def test_edges(feature):
    results = []
    for module, how in ((fc, {}), (fe.feature_column, {"do_fusion": True})):
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            is_sparse = isinstance(feature, tf1.SparseTensorValue)
            tensor = tf.SparseTensor(*feature) if is_sparse else tf.constant(feature)
            column = fc.sequence_categorical_column_with_identity("ids", 12)
            columns = embeddings(module, [column], **how)
            result = sequence_input_layer({"ids": tensor}, columns)
            session.run(tf1.global_variables_initializer())
            results.append([result.input_tensor.shape[-1], *session.run(result)])
            is_ours = KEYS_OP in [op.type for op in graph.get_operations()]
            assert is_ours == bool(how)
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)


def test_ragged_features():
    rows = [[3, 11], [], [0, 3, 7]]
    results = []
    for module, how, feature in (
        (fc, {}, tf.ragged.constant(rows, tf.int64).to_sparse()),
        (fe.feature_column, {"do_fusion": True}, tf.ragged.constant(rows, tf.int64)),
    ):
        column = fc.sequence_categorical_column_with_identity("ids", 12)
        layer = cases.keras().experimental.SequenceFeatures(embeddings(module, [column], **how))
        results.append([tensor.numpy() for tensor in layer({"ids": feature})])
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)


def test_shared_columns():
    def make(module, **how):
        keys = ("ids", "numbers")
        columns = [fc.sequence_categorical_column_with_identity(key, 12) for key in keys]
        with tf.Graph().as_default():
            return module.shared_embedding_columns(
                columns, 3, initializer=cases.initializer(), **how
            )

    want = train(make(tf1.feature_column), sparse_features)
    got = train(make(fe.feature_column, do_fusion=True), sparse_features)
    # The gradients of a shared table are added in another order.
    np.testing.assert_array_equal(got.outputs[0], want.outputs[0])
    cases.assert_same_training(got, want)
    assert (got.ops[KEYS_OP], got.ops[GROUP_OP]) == (1, 1)


def test_shared_embeddings_in_a_layer():
    def layer(module, **how):
        def of_features(features, _):
            keys = ("ids", "numbers")
            columns = [fc.sequence_categorical_column_with_identity(key, 12) for key in keys]
            columns = module.shared_embeddings(columns, 3, initializer=cases.initializer(), **how)
            return keras_layer(features, columns)

        return of_features

    want = train(None, sparse_features, layer(fc))
    got = train(None, sparse_features, layer(fe.feature_column, do_fusion=True))
    assert_bit_equal(got, want)
    assert not TRANSFORMATIONS & got.ops.keys()
    assert got.ops[KEYS_OP]


@pytest.mark.parametrize("do_fusion", ["v1", "v2", "check"])
def test_other_versions_keep_stocks_transformation(do_fusion):
    categorical = [fc.sequence_categorical_column_with_hash_bucket("words", 7)]
    want = train(embeddings(fc, categorical), sparse_features)
    columns = embeddings(fe.feature_column, categorical, do_fusion=do_fusion)
    got = train(columns, sparse_features)
    cases.assert_same_training(got, want)
    assert not got.ops[KEYS_OP]


def sequence_of(column):
    return fc_v2.SequenceCategoricalColumn(column)


class OfLengths(fc.categorical_column_with_hash_bucket("words", 7).__class__):
    """A user's column, whose ids are the lengths of strings."""

    def _transform_input_tensor(self, input_tensor):
        ids = tf.cast(tf.strings.length(input_tensor.values), tf.int64)
        return tf.SparseTensor(input_tensor.indices, ids, input_tensor.dense_shape)


@pytest.mark.parametrize(
    ("column", "feature"),
    [
        (sequence_of(OfLengths("words", 7, tf.string)), sparse_features),
        (
            sequence_of(
                fc.weighted_categorical_column(fc.categorical_column_with_identity("ids", 12), "w")
            ),
            lambda: {
                "ids": tf.SparseTensor(INDICES, tf.constant(NUMBERS, tf.int64), SHAPE),
                "w": tf.SparseTensor(INDICES, [0.5, 2.0, 1.0, 3.0, 0.25], SHAPE),
            },
        ),
        (
            sequence_of(fc.bucketized_column(fc.numeric_column("price", shape=2), [0.0, 2.0])),
            lambda: {"price": tf.constant(cases.DENSE["price"])},
        ),
        (
            fc.sequence_categorical_column_with_identity("ids", 12),
            lambda: {"ids": tf.constant([[[3, 1], [0, -1]], [[-1, -1], [7, 7]]], tf.int64)},
        ),
    ],
    ids=["subclass", "weighted", "bucketized", "rank 3"],
)
def test_other_columns_and_features_stay_stocks(column, feature):
    want = train(embeddings(fc, [column]), feature)
    got = train(embeddings(fe.feature_column, [column], do_fusion=True), feature)
    cases.assert_same_training(got, want)
    assert not got.ops[KEYS_OP]


def test_linear_model_over_a_sequence():
    column = fc.sequence_categorical_column_with_identity("ids", 12)

    def build(**how):
        return lambda _: fe.feature_column.linear_model(sparse_features(), [column], **how)

    cases.assert_same_training(cases.train(build(do_fusion=True)), cases.train(build()))


@pytest.mark.parametrize(
    ("column", "feature", "error", "message"),
    [
        (
            fc.sequence_categorical_column_with_identity("x", 12),
            lambda: {"x": tf.constant([["a"]])},
            ValueError,
            "Invalid input, not integer",
        ),
        (
            fc.sequence_categorical_column_with_hash_bucket("x", 12),
            lambda: {"y": tf.constant([["a"]])},
            ValueError,
            "x is not in features",
        ),
        (
            fc.categorical_column_with_hash_bucket("x", 12),
            lambda: {"x": tf.constant([["a"]])},
            ValueError,
            "must be of type SequenceCategoricalColumn",
        ),
    ],
)
def test_stocks_errors_stay(column, feature, error, message):
    for module, how in ((fc, {}), (fe.feature_column, {"do_fusion": True})):
        with tf.Graph().as_default(), pytest.raises(error, match=message):
            sequence_input_layer(feature(), embeddings(module, [column], **how))


def test_an_id_outside_the_table_is_an_error_of_its_feature():
    column = fc.sequence_categorical_column_with_identity("ids", 12)
    columns = embeddings(fe.feature_column, [column], do_fusion=True)
    layer = cases.keras().experimental.SequenceFeatures(columns)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"feature 'ids'.* 12 "):
        layer({"ids": tf.constant([[3, 12]], tf.int64)})


@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())
def test_keys_of_a_table(features):
    option = fe.EmbeddingVariableOption()
    results = []
    for do_fusion in ("v2", True):
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            columns = [
                fe.feature_column.embedding_column(
                    fe.feature_column.sequence_categorical_column_with_embedding(
                        key, dtype, ev_option=option
                    ),
                    3,
                    initializer=tf1.constant_initializer(0.5),
                    do_fusion=do_fusion,
                )
                for key, dtype in (("words", tf.string), ("ids", tf.int64))
            ]
            result = sequence_input_layer(features(), columns)
            session.run(tf1.global_variables_initializer())
            session.run(result)
            tables = tf1.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)
            keys = [sorted(session.run(table.export()).keys) for table in tables]
            results.append(([r.tolist() for r in session.run(result)], keys))
            ops = collections.Counter(op.type for op in graph.get_operations())
            assert ops[KEYS_OP] == (do_fusion is True)
    assert results[0] == results[1]
