"""tf.contrib.feature_column's `sequence_input_layer`, which stock TensorFlow 2 does not have.

The only place that imports the feature columns' private `_LazyBuilder`, which computes each feature
once. Same signature in TensorFlow 2.15 to 2.21.

Columns with `do_fusion=True` or "v3" are looked up together.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.feature_column.feature_column import _LazyBuilder

from fused_embedding.columns.groups import (
    Recording,
    is_looked_up_by_one_op,
    looked_up,
    recording_lookups,
)

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
    columns = sorted(feature_columns, key=lambda column: column.name)
    recorded = []
    with v1.variable_scope(None, default_name="sequence_input_layer"):
        for column in columns:
            recording = Recording.ALL if is_looked_up_by_one_op(column) else Recording.NONE
            scope = v1.variable_scope(None, default_name=column._var_scope_name)
            with scope, recording_lookups(recording):
                recorded.append(
                    column._get_sequence_dense_tensor(
                        builder, weight_collections=weight_collections, trainable=trainable
                    )
                )
        sequences = looked_up(recorded)
        outputs = [_flat(s.dense_tensor, c) for s, c in zip(sequences, columns, strict=True)]
        lengths = [sequence.sequence_length for sequence in sequences]
        checks = [
            tf.debugging.assert_equal(
                lengths[0], other, message="sequence columns differ in the lengths of sequences"
            )
            for other in lengths[1:]
        ]
        with tf.control_dependencies(checks):
            return SequenceInput(tf.concat(outputs, axis=-1), tf.identity(lengths[0]))


def _flat(rows: tf.Tensor, column: Any) -> tf.Tensor:
    """`[batch, max_len, dim]`, with the dimensions of a row in one."""
    dim = column._variable_shape.num_elements()
    return tf.reshape(rows, tf.concat([tf.shape(rows)[:2], [dim]], axis=0))
