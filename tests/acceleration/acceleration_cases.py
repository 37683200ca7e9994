"""Small lookups for tests of fe.accelerate, and comparisons of programs with and without it."""

import functools

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from fused_embedding import raw_ops

v1 = tf.compat.v1
fc = tf.feature_column
NUM_ROWS, DIM = 5, 3
ROWS = np.random.RandomState(0).standard_normal((NUM_ROWS, DIM)).astype(np.float32)
INDICES = [[0, 0], [0, 1], [2, 0], [3, 0]]  # a repeated id, two empty rows; row 4 is never named
SHAPE = [5, 2]


def ids(values=(1, 1, 0, 3), dtype=tf.int64):
    """Ids of five rows."""
    return tf.SparseTensor(INDICES, tf.constant(values, dtype), SHAPE)


def weights(values=(1.0, 2.0, 0.5, 3.0), dtype=tf.float32):
    """A weight for each of `ids()`."""
    return tf.SparseTensor(INDICES, tf.constant(values, dtype), SHAPE)


def rows(shape, dtype=tf.float32, partition_info=None):
    """An initializer. Those of TensorFlow draw other numbers when a graph has other ops."""
    offset = 0 if partition_info is None else partition_info.var_offset[0]
    return tf.constant(np.resize(ROWS, (64, shape[1]))[offset : offset + shape[0]], dtype)


def embedding(key="ids", size=NUM_ROWS, **options):
    """An embedding column."""
    column = fc.categorical_column_with_identity(key, size)
    return fc.embedding_column(column, DIM, initializer=rows, **options)


def variable(name="table", value=ROWS, **options):
    """A variable of a TF1 graph."""
    return v1.get_variable(name, initializer=value, **{"use_resource": True, **options})


def in_session(build, config=None):
    """A function that builds tensors in a new graph and returns their values."""

    @functools.wraps(build)
    def run():
        with tf.Graph().as_default(), v1.Session(config=config) as session:
            fetches, steps = build()
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            for step in steps:
                session.run(step)
            return session.run(fetches)

    return run


def dense(gradient):
    """A gradient as a tensor."""
    return tf.convert_to_tensor(gradient)


def loss_of(table, **options):
    """A loss of a lookup, with another weight for each element."""
    found = tf.nn.safe_embedding_lookup_sparse(table, ids(), **options)
    return tf.reduce_sum(tf.sin(found) * tf.reshape(tf.range(15.0), [NUM_ROWS, DIM]))


def types_of(graph):
    """Types of the ops of a graph and its functions."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return [node.op for node in nodes]


def ours_in(graph):
    """The ops of this package in a graph."""
    return [op for op in types_of(graph) if hasattr(raw_ops, op)]


def outcome(program):
    """What a program returns, or the class of what it raises."""
    try:
        return program()
    except Exception as error:
        return type(error)


def assert_fails_alike(program):
    """A program raises an error of the same class with and without fe.accelerate.

    Returns:
        The records.
    """
    want = outcome(program)
    with fe.accelerate() as acceleration:
        got = outcome(program)
    assert isinstance(want, type)
    assert got is want, f"{got}, want {want}"
    return acceleration.records


def assert_same(program):
    """A program gives the same numbers with and without fe.accelerate.

    Returns:
        The records.
    """
    want = program()
    with fe.accelerate() as acceleration:
        got = program()
    tf.nest.map_structure(
        lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6), got, want
    )
    return acceleration.records


def replaced(records):
    """The kinds of calls that were replaced."""
    return {record.kind for record in records if record.left is None}


def left(records):
    """Why calls were left to stock, by their kind."""
    return {record.kind: record.left for record in records if record.left is not None}
