"""Batches of ids in every form that the Keras layers take, and what stock makes of them."""

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import is_keras_3

NUM_ROWS, DIM, WIDTH = 12, 3, 3
VALUES = np.random.RandomState(3).standard_normal((NUM_ROWS, DIM)).astype(np.float32)
VALUES[5] *= 10  # for max_norm
# An empty row, an id twice in a row, an id in two rows.
IDS = [[3, 1], [], [7, 7, 2], [0], [5, 3]]
WEIGHTS = [[0.5, 2.0], [], [1.5, -1.0, 3.0], [0.25], [1.0, 2.5]]
KINDS = ("dense", "sparse", "ragged")
HOLDERS = ("weights", "table")


def padded(rows, padding, dtype):
    return np.array([row + [padding] * (WIDTH - len(row)) for row in rows], dtype)


def batch(kind, rows=IDS, padding=-1, dtype=np.int64):
    """Rows of different lengths as a tensor of a kind."""
    if kind == "dense":
        return tf.constant(padded(rows, padding, dtype))
    if kind == "ragged":
        return tf.ragged.constant(rows, dtype=tf.as_dtype(dtype), row_splits_dtype=tf.int64)
    indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    flat = np.array([value for row in rows for value in row], dtype)
    return tf.SparseTensor(indices, flat, [len(rows), WIDTH])


def weights_batch(kind, rows=WEIGHTS):
    return batch(kind, rows, padding=9.0, dtype=np.float32)


def make_layer(keras, cls, holder, **options):
    """A layer that is built, whose rows 0 to 11 are VALUES."""
    if holder == "weights":
        options["input_dim"] = NUM_ROWS
    layer = getattr(fe.keras.fused_layers(keras), cls)(output_dim=DIM, **options)
    layer.build((None, WIDTH))
    if holder == "weights":
        layer.set_weights([VALUES])
    else:
        layer.table.upsert(tf.range(NUM_ROWS), VALUES)
    return layer


def variable_of(layer):
    """What gradients are taken of."""
    if not is_keras_3(layer._keras):
        return layer.embeddings
    return layer.embeddings._value


def rows_of(layer):
    """The rows 0 to 11."""
    variable = variable_of(layer)
    if isinstance(variable, fe.EmbeddingVariable):
        with fe.inference():
            return tf.nn.embedding_lookup(variable, tf.range(NUM_ROWS)).numpy()
    return variable.numpy()


def stock_bag(values, weighted, combiner, max_norm=None, default_id=None):
    """tf.nn's lookup of the batch: the embeddings, and the gradients of their weighted sum."""
    table = tf.Variable(values)
    weights = weights_batch("sparse").values
    ids = batch("sparse")
    with tf.GradientTape() as tape:
        tape.watch(weights)
        sp_weights = tf.SparseTensor(ids.indices, weights, ids.dense_shape) if weighted else None
        out = tf.nn.safe_embedding_lookup_sparse(
            table, ids, sp_weights, combiner, default_id, max_norm=max_norm
        )
        loss = loss_of(out)
    return out, *tape.gradient(loss, [table, weights])


def loss_of(out):
    shape = out.shape
    return tf.reduce_sum(out * np.random.RandomState(1).standard_normal(shape).astype(np.float32))
