"""tf.contrib.feature_column's `sequence_input_layer`, which stock TensorFlow 2 does not have.

The only place that imports the feature columns' private `_LazyBuilder`, which computes each feature
once. Same signature in TensorFlow 2.15 to 2.21.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.feature_column.feature_column import _LazyBuilder

v1 = tf.compat.v1


class SequenceInput(NamedTuple):
    """What `sequence_input_layer` returns.

    Attributes:
        input_tensor: `[batch, max_len, sum of dims]`.
        sequence_length: `[batch]` int64.
    """

    input_tensor: tf.Tensor
    sequence_length: tf.Tensor


def sequence_input_layer(
    features: Mapping[str, Any],
    feature_columns: Sequence[Any],
    weight_collections: Sequence[str] | None = None,
    trainable: bool = True,
) -> SequenceInput:
    """The inputs of a model of sequences: embeddings of sequence columns side by side.

    Args:
        features: SparseTensors by key of their column.
        feature_columns: Sequence columns.
        weight_collections: Further graph collections that variables are added to.
        trainable: Whether variables are.

    Returns:
        Embeddings, in the order of the columns' names, and lengths. Those of all columns must be
        equal.
    """
    builder = _LazyBuilder(dict(features))
    outputs, lengths = [], []
    with v1.variable_scope(None, default_name="sequence_input_layer"):
        for column in sorted(feature_columns, key=lambda column: column.name):
            with v1.variable_scope(None, default_name=column._var_scope_name):
                sequence = column._get_sequence_dense_tensor(
                    builder, weight_collections=weight_collections, trainable=trainable
                )
                rows = sequence.dense_tensor
                dim = column._variable_shape.num_elements()
                outputs.append(tf.reshape(rows, tf.concat([tf.shape(rows)[:2], [dim]], axis=0)))
                lengths.append(sequence.sequence_length)
        checks = [
            tf.debugging.assert_equal(
                lengths[0], other, message="sequence columns differ in the lengths of sequences"
            )
            for other in lengths[1:]
        ]
        with tf.control_dependencies(checks):
            return SequenceInput(tf.concat(outputs, axis=-1), tf.identity(lengths[0]))
