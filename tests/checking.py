"""Comparisons and inputs that tests of ops and functions share."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import oracle.lookup

VALUE_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
EPS = {
    tf.float64: 2.0**-52,
    tf.float32: 2.0**-23,
    tf.float16: 2.0**-10,
    tf.bfloat16: 2.0**-7,
}


def dtype_name(dtype):
    """For ids of parametrised tests."""
    return dtype.name if isinstance(dtype, tf.DType) else str(dtype)


def int32(*values):
    """An int32 array."""
    return np.array(values, np.int32)


def int64(*values):
    """An int64 array."""
    return np.array(values, np.int64)


def needs_check_of_pairs(device):
    """Skips the rest of a test on a GPU, which leaves out pairs that do not exist."""
    if device == "GPU":
        pytest.skip("a GPU does not wait to name a pair without a row, or without an embedding")


def assert_close(got, want, terms=8, err_msg="", scale=0.0):
    """Floats agree within `terms` roundings of the dtype of `got`, relative to the largest.

    `scale` is the size of what was added up, where that may cancel: largest then are the parts.
    """
    eps = EPS[tf.as_dtype(got.dtype)]
    got, want = np.asarray(got).astype(np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, f"{err_msg}: shape {got.shape}, want {want.shape}"
    finite = np.abs(want[np.isfinite(want)])
    atol = terms * eps * max(scale, finite.max() if finite.size else 0.0)
    np.testing.assert_allclose(got, want, rtol=terms * eps, atol=atol, err_msg=err_msg)


def assert_rounded_once(got, want, dtype, roundings=1, err_msg=""):
    """Floats are those of float32 arithmetic, or float64, then rounded to `dtype`: once."""
    got, want = np.asarray(got).astype(np.float64), np.asarray(want, np.float64)
    arithmetic = EPS[tf.float64] if dtype == tf.float64 else EPS[tf.float32]
    atol = 64 * arithmetic * max(1.0, np.abs(want).max(initial=0.0))
    rtol = 0.51 * roundings * EPS[dtype] + 64 * arithmetic
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=err_msg)


def assert_same_bits(got, want, err_msg=""):
    """Arrays agree in shape and in every bit."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), err_msg
    assert got.tobytes() == want.tobytes(), err_msg


def random_rows(rng, num_rows, dim, dtype=tf.float64):
    """Rows that `dtype` represents exactly, so that an oracle sees the same numbers."""
    return tf.cast(rng.standard_normal((num_rows, dim)), dtype).numpy()


def sparse(ids, row_ids, num_rows, dtype=np.int64):
    """A SparseTensor of rank 2 in canonical order whose rows hold `ids`."""
    indices = oracle.lookup.as_indices(list(row_ids))
    width = int(indices[:, 1].max(initial=0)) + 1
    return tf.SparseTensor(indices, np.asarray(ids, dtype), [num_rows, width])


def like(sp_ids, values):
    """A SparseTensor with the indices of another: weights beside ids."""
    return tf.SparseTensor(sp_ids.indices, values, sp_ids.dense_shape)


def as_indexed_slices(grad):
    """Ids and rows of a gradient, dense or sparse, as numpy."""
    if isinstance(grad, tf.IndexedSlices):
        return np.asarray(grad.indices), np.asarray(grad.values)
    return np.arange(grad.shape[0]), np.asarray(grad)


def densify(grad, num_rows):
    """A gradient as float64 `[num_rows, dim]`, duplicates summed."""
    ids, rows = as_indexed_slices(grad)
    dense = np.zeros((num_rows, *rows.shape[1:]))
    np.add.at(dense, ids, rows.astype(np.float64))
    return dense


def executed_ops(session, fetches, feeds=None):
    """How often each type of op ran for `fetches` in a session of TF1."""
    tf1 = tf.compat.v1
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    metadata = tf1.RunMetadata()
    session.run(fetches, feeds, options=options, run_metadata=metadata)
    nodes = [n for device in metadata.step_stats.dev_stats for n in device.node_stats]
    labels = [node.timeline_label for node in nodes if " = " in node.timeline_label]
    return collections.Counter(label.split(" = ")[1].split("(")[0] for label in labels)
