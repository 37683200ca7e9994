"""Gradients of lookups inside a branch of tf.cond, in TF1 control flow.

There a branch gets the handle of a table through a Switch. Its stock gradient merges what comes out
of the branch with zeros of the shape of the variable, for when the other branch is taken; a table
has no such shape. Here the other branch gives no rows.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_GRADIENT = "FusedEmbeddingTableSwitch"


@tf.RegisterGradient(_GRADIENT)
def _switch_grad(op: tf.Operation, *grads: Any) -> list[Any]:
    branch = next(i for i, grad in enumerate(grads) if isinstance(grad, tf.IndexedSlices))
    grad = grads[branch]

    def or_no_rows(rows: tf.Tensor) -> tf.Tensor:
        none = tf.zeros([0, *rows.shape[1:]], rows.dtype)
        other = tf.raw_ops.Switch(data=none, pred=op.inputs[1])[1 - branch]
        return tf.raw_ops.Merge(inputs=[rows, other]).output

    slices = tf.IndexedSlices(or_no_rows(grad.values), or_no_rows(grad.indices), grad.dense_shape)
    return [slices, None]


@contextlib.contextmanager
def branch_gradients() -> Iterator[None]:
    """Makes the table lookups built inside differentiable in branches of TF1's tf.cond."""
    if tf.executing_eagerly():
        yield
    else:
        with tf.compat.v1.get_default_graph().gradient_override_map({"Switch": _GRADIENT}):
            yield
