"""Sequence columns: one op makes the ids of all steps, and each step is looked up alone.

Stock's sequence column makes ids of a feature and gives them a third dimension. Here each step of
the feature becomes a row, and the lookup has the shape of the steps back at its end. Stock's method
of an embedding column asks the ids for the lengths of the sequences: `with_lengths` answers for ids
that are yet to be made.
"""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import utils as fc_utils

from fused_embedding.columns.stock_functions import with_globals
from fused_embedding.lookup.feature_ids import Feature, FeatureIds, is_none


def ids_by_step(feature: Feature) -> FeatureIds:
    """The ids of a feature whose steps are looked up one by one.

    Args:
        feature: A feature of sequences, `[num_rows, num_steps]`; a dense `[num_rows]` has one step.

    Returns:
        Ids with one row for each step, whose `leading_shape` is `[num_rows, num_steps]`.
    """
    matrix = _as_matrix(feature.tensor)
    is_sparse = isinstance(matrix, tf.SparseTensor)
    shape = matrix.dense_shape if is_sparse else tf.shape(matrix, out_type=tf.int64)
    if is_sparse:
        steps = tf.sparse.reshape(matrix, tf.stack([tf.reduce_prod(shape), 1]))
    else:
        steps = tf.reshape(matrix, [-1])
    return FeatureIds(
        (feature._replace(tensor=steps),),
        leading_shape=shape,
        static_leading_shape=matrix.shape,
        lengths=_sparse_lengths(matrix) if is_sparse else _dense_lengths(matrix),
    )


def _as_matrix(tensor: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.to_sparse()
    return tensor if tensor.shape.rank == 2 else tensor[:, None]


def _sparse_lengths(matrix: tf.SparseTensor) -> tf.Tensor:
    lengths: tf.Tensor = fc_utils.sequence_length_from_sparse_tensor(matrix)
    return lengths


def _dense_lengths(matrix: tf.Tensor) -> tf.Tensor:
    """`[num_rows]` int64: the number of the last step with a value, counted from 1."""
    with tf.name_scope("sequence_length"):
        steps = tf.range(1, tf.shape(matrix, out_type=tf.int64)[1] + 1)
        last = tf.reduce_max(tf.where(is_none(matrix), tf.zeros_like(steps), steps), axis=1)
        return tf.maximum(last, 0)  # of rows without steps


class _Lengths:
    """Stands for TensorFlow's module `fc_utils`."""

    def sequence_length_from_sparse_tensor(self, ids: Any) -> tf.Tensor:
        """`[num_rows]` int64 lengths, which a `FeatureIds` knows."""
        return ids.lengths if isinstance(ids, FeatureIds) else _sparse_lengths(ids)


def with_lengths(stock: Callable) -> Callable:
    """A method of stock's columns that also takes ids that are yet to be made.

    Args:
        stock: A function of a column, `get_sequence_dense_tensor` or `_get_sequence_dense_tensor`.

    Returns:
        A function of the same arguments.
    """
    return with_globals(inspect.unwrap(stock), fc_utils=_Lengths())
