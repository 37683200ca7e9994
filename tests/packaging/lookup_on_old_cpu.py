"""One fused lookup and its gradient against stock TensorFlow; `make qemu` runs it."""

import numpy as np
import tensorflow as tf

import fused_embedding as fe

IDS = tf.sparse.from_dense([[3, 1, 3], [0, 2, 0], [0, 0, 0], [9, 8, 7]])
DIMS = (1, 8, 16, 19)  # below, at and beside the widths of the vector registers


def lookup_and_gradient(lookup, table: tf.Variable) -> list[tf.Tensor]:
    """The combined rows, and the gradient of the sum of their squares."""
    with tf.GradientTape() as tape:
        combined = lookup(table, IDS, combiner="mean")
        loss = tf.reduce_sum(combined**2)
    return [combined, tf.convert_to_tensor(tape.gradient(loss, table))]


for dim in DIMS:
    table = tf.Variable(np.linspace(-1, 1, 10 * dim, dtype=np.float32).reshape(10, dim))
    fused = lookup_and_gradient(fe.nn.fused_safe_embedding_lookup_sparse, table)
    stock = lookup_and_gradient(tf.nn.safe_embedding_lookup_sparse, table)
    for got, want in zip(fused, stock, strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6, atol=1e-6)
print(f"fused and stock lookups agree for dims {DIMS}")
