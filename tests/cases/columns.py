"""Columns and rows that the feature column tests share, and one way to run them."""

import collections
import typing

import numpy as np
import pytest
import tensorflow as tf

tf1 = tf.compat.v1
fc = tf.feature_column

FUSED_OP = {
    "v1": "FusedEmbeddingSparsePostLookUp",
    "v2": "FusedEmbeddingSparsePostLookUpV2",
    "v3": "FusedEmbeddingResourceGroupLookup",
    True: "FusedEmbeddingResourceGroupLookup",
}
STOCK_OPS = {"SparseFillEmptyRows", "SparseSegmentMean", "SparseSegmentSum", "SparseSegmentSqrtN"}
VOCABULARY = ["ash", "birch", "elm", "oak", "yew"]
# A row has up to three ids; values and gradients stay below 4 in these tests.
ATOL = 16 * np.finfo(np.float32).eps

# Four rows: two ids, none, three with a repeated one, none.
INDICES = np.array([[0, 0], [0, 2], [2, 0], [2, 1], [2, 2]], np.int64)
VALUES = {
    "ids": np.array([3, 11, 0, 7, 7], np.int64),
    "other_ids": np.array([5, 3, 3, 0, 1], np.int64),
    "words": np.array(["oak", "fig", "elm", "", "elm"]),  # "fig" is not in the vocabulary
    "weights": np.array([0.5, -1.0, 2.0, 0.0, 0.25], np.float32),  # two are not positive
}
DENSE = {
    "price": np.array([[0.1, 9.0], [3.0, 1.5], [2.5, 2.5], [-1.0, 4.0]], np.float32),
    "dense_words": np.array([["oak", ""], ["", ""], ["elm", "oak"], ["fig", ""]]),
}


def keras():
    """Keras 2: part of TensorFlow 2.15, the package tf_keras later."""
    if hasattr(tf.keras.layers, "DenseFeatures"):
        return tf.keras
    return pytest.importorskip("tf_keras", reason="DenseFeatures needs the package tf_keras")


def identity(key="ids"):
    return fc.categorical_column_with_identity(key, 12)


def write_vocabulary(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_text("\n".join(VOCABULARY))
    return str(path)


def bucketized():
    return fc.bucketized_column(fc.numeric_column("price", shape=2), [0.0, 2.0, 4.0])


CATEGORICAL = {
    "identity": lambda tmp_path: identity(),
    "hashed": lambda tmp_path: fc.categorical_column_with_hash_bucket("words", 7),
    "vocabulary_list": lambda tmp_path: fc.categorical_column_with_vocabulary_list(
        "words", VOCABULARY
    ),
    "vocabulary_file": lambda tmp_path: fc.categorical_column_with_vocabulary_file(
        "words", write_vocabulary(tmp_path), 5, num_oov_buckets=2
    ),
    "dense_strings": lambda tmp_path: fc.categorical_column_with_vocabulary_list(
        "dense_words", VOCABULARY
    ),
    "bucketized": lambda tmp_path: bucketized(),
    "crossed": lambda tmp_path: fc.crossed_column(["words", identity("other_ids")], 9),
    "weighted": lambda tmp_path: fc.weighted_categorical_column(identity(), "weights"),
}


def categorical_columns(tmp_path):
    """One column of each kind; no two have the same name."""
    columns = [case(tmp_path) for case in CATEGORICAL.values()]
    return {column.name: column for column in columns}.values()


def features():
    """The batch as tensors of the current graph, their number of rows unknown to it."""

    def unknown(value):
        return tf1.placeholder_with_default(value, [None, *value.shape[1:]])

    def sparse(values):
        return tf.SparseTensor(unknown(INDICES), unknown(values), np.array([4, 3], np.int64))

    if tf.executing_eagerly():
        tensors = {key: tf.SparseTensor(INDICES, value, [4, 3]) for key, value in VALUES.items()}
        return {**tensors, **{key: tf.constant(value) for key, value in DENSE.items()}}
    sparse_tensors = {key: sparse(value) for key, value in VALUES.items()}
    return {**sparse_tensors, **{key: unknown(value) for key, value in DENSE.items()}}


def initializer(seed=3):
    """Values that depend on nothing but the seed, as TensorFlow's own also count earlier ops."""

    def values(shape, dtype=tf.float32, partition_info=None):
        full = shape if partition_info is None else partition_info.full_shape
        offset = 0 if partition_info is None else partition_info.var_offset[0]
        table = np.random.default_rng(seed).uniform(-1, 1, full)
        return tf.constant(table[offset : offset + shape[0]], dtype)

    return values


class Run(typing.NamedTuple):
    """All that a user can see of a few training steps in a graph."""

    outputs: list
    gradients: list
    variables: dict
    collections: dict
    ops: collections.Counter


def variables_by_collection(graph):
    """Names of the variables in each collection of a graph that has some."""
    members = {key: graph.get_collection(key) for key in graph.get_all_collection_keys()}
    return {
        str(key): [item.name for item in items]
        for key, items in members.items()
        if items and all(isinstance(item, tf.Variable) for item in items)
    }


def weighted_sum(output):
    """A loss in which no two elements of `output` have the same weight."""
    weights = tf.sin(tf.range(1, tf.size(output) + 1, dtype=tf.float32))
    return tf.reduce_sum(output * tf.reshape(weights, tf.shape(output)))


def train(build, *, partitions=None, use_resource=True, num_steps=3):
    """Trains `build(features)`, a tensor of four rows, with Adagrad in a graph."""
    partitioner = tf1.fixed_size_partitioner(partitions) if partitions else None
    scope = tf1.variable_scope("", partitioner=partitioner, use_resource=use_resource)
    with tf.Graph().as_default() as graph, scope:
        output = build(features())
        variables = tf1.trainable_variables()
        by_collection = variables_by_collection(graph)
        optimizer = tf1.train.AdagradOptimizer(0.5)
        pairs = optimizer.compute_gradients(weighted_sum(output), variables)
        step = optimizer.apply_gradients(pairs)
        gradients = [tf.convert_to_tensor(gradient) for gradient, _ in pairs]
        ops = collections.Counter(op.type for op in graph.get_operations())
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
            outputs, all_gradients = [], []
            for _ in range(num_steps):
                before = session.run([output, gradients])
                outputs.append(before[0])
                all_gradients.append(before[1])
                session.run(step)
            values = dict(zip([v.name for v in variables], session.run(variables), strict=True))
    return Run(outputs, all_gradients, values, by_collection, ops)


def assert_close(got, want):
    """The same structure of the same numbers."""

    def compare(got, want):
        np.testing.assert_allclose(got, want, rtol=0, atol=ATOL)

    tf.nest.map_structure(compare, got, want)


def assert_same_training(got, want):
    """The same variables in the same collections, and the same numbers after each step."""
    assert got.collections == want.collections
    for name in ("outputs", "gradients", "variables"):
        assert_close(getattr(got, name), getattr(want, name))


def assert_fused(run, do_fusion, num_columns):
    """The fused op stands in the graph once per column, with its gradient, instead of stock's."""
    op = FUSED_OP[do_fusion]
    assert run.ops[op] == num_columns, run.ops
    assert run.ops[op + "Grad"] == num_columns, run.ops
    assert not STOCK_OPS & run.ops.keys()
