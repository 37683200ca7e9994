"""One optimizer step on an EmbeddingVariable: its gradient to its table, rows updated in place."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding import raw_ops
from fused_embedding._tf_private import colocate_with


def pack_hyperparameters(values: Sequence[Any]) -> tf.Tensor:
    """Numbers, scalar tensors and variables as the `[h]` float64 tensor that a rule reads."""
    return tf.stack([tf.cast(value, tf.float64) for value in values])


def sum_duplicates(grad: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds the rows of a gradient that are for one key.

    Args:
        grad: `[n]` integer indices, `[n, dim]` values.

    Returns:
        `[m]` int64 distinct keys in order of first occurrence, `[m, dim]` sums of their rows.
    """
    keys, key_idxs, counts = raw_ops.UniqueWithCountsV3(input=tf.cast(grad.indices, tf.int64))
    dtype = grad.values.dtype
    # 16-bit rows are summed in float32.
    rows = tf.cast(grad.values, tf.float32) if dtype.size == 2 else grad.values
    return keys, tf.cast(tf.math.unsorted_segment_sum(rows, key_idxs, tf.size(counts)), dtype)


def _lookups_of(keys: tf.Tensor) -> list[tf.Operation]:
    """The lookups, in any table, of just these keys; none eagerly."""
    if tf.executing_eagerly() or not hasattr(keys, "graph"):
        return []
    consumers = [op for op in keys.consumers() if op.type == "EmbeddingVariableLookup"]
    return [op for op in consumers if op.inputs[1] is keys]


def _producing_lookup(resource: tf.Tensor, keys: tf.Tensor) -> tf.Operation | None:
    """The one lookup in `resource` of just these keys, where the graph has it."""
    lookups = _lookups_of(keys)
    if lookups and hasattr(keys.graph, "capture"):  # a function has an outer handle as its argument
        resource = keys.graph.capture(resource)
    lookups = [op for op in lookups if op.inputs[0] is resource]
    # Of several, the step may need one alone, and must not run and count the others.
    return lookups[0] if len(lookups) == 1 else None


def with_distinct_keys(variable: Any, grad: tf.IndexedSlices) -> tf.IndexedSlices:
    """A gradient of an EmbeddingVariable with one row for each key: itself, if it has that."""
    if _producing_lookup(variable.handle, grad.indices) is not None:
        return grad
    keys, rows = sum_duplicates(grad)
    return tf.IndexedSlices(rows, keys, grad.dense_shape)


def apply_embedding_gradient(
    variable: Any,
    grad: tf.IndexedSlices,
    rule: str,
    slot_prefix: str,
    hyperparameters: tf.Tensor,
) -> tf.Operation | None:
    """Updates the rows of an EmbeddingVariable that a gradient names, and their slots.

    Where the gradient's indices are the keys of one lookup, untouched, its row handles save the
    update from finding the rows again, and its keys are known to be distinct. Any other gradient
    (of two lookups, averaged over towers, accumulated) has its duplicates summed first.

    Args:
        variable: The EmbeddingVariable.
        grad: `[n]` keys and `[n, dim]` rows of the variable's dtype.
        rule: Name of a rule of the table: "adagrad".
        slot_prefix: Name of the optimizer, under which the table keeps its slots.
        hyperparameters: `[h]` float64, in the order of the rule.

    Returns:
        The update; None eagerly, where it has happened.
    """
    lookup = _producing_lookup(variable.handle, grad.indices)
    with colocate_with(variable.handle):
        if lookup is None:
            keys, rows = sum_duplicates(grad)
            row_handles = tf.zeros([0], tf.int64)
        else:
            keys, rows, row_handles = grad.indices, grad.values, lookup.outputs[1]
        return raw_ops.EmbeddingVariableApply(
            resource=variable.handle,
            keys=keys,
            handles=row_handles,
            grad=tf.cast(rows, variable.dtype),
            hyperparameters=hyperparameters,
            rule=rule,
            slot_prefix=slot_prefix,
        )
