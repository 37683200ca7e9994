"""Errors of sums of rows against float64, beside those of stock's lookup, however long a row is."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from checking import like, sparse

NUM_ROWS = 4000
# Those around which the order of additions changes, and long ones. Rows of up to nine ids are added
# as stock adds them.
LENGTHS = (1, 2, 8, 9, 10, 16, 17, 33, 100, 128, 129, 300, 1000, 4096, 4097, 10_000, 65_536)
# The dims are those of sums of pairs as they are read, and of sums of blocks.
LOOKUPS = [("group", 16), ("group", 20), ("v1", 16), ("v2", 20)]


def look_up(version, table, sp_ids, sp_weights=None, combiner="sum"):
    if version == "group":
        return fe.nn.group_embedding_lookup_sparse([table], [sp_ids], [combiner], [sp_weights])[0]
    return fe.nn.fused_safe_embedding_lookup_sparse(
        table, sp_ids, sp_weights, combiner, fusion_version=version
    )


def root_mean_square(error):
    return float(np.sqrt(np.mean(np.square(error))))


def errors(version, length, dim, combiner, is_weighted, seed=0):
    """The errors of stock and of ours, for several rows of `length` ids."""
    rng = np.random.default_rng(seed)
    table = rng.uniform(0.25, 1, (NUM_ROWS, dim)).astype(np.float32)
    rows = max(2, 2000 // length)
    ids = rng.integers(0, NUM_ROWS, rows * length)
    row_ids = np.repeat(np.arange(rows), length)
    weights = rng.uniform(0.5, 1.5, len(ids)).astype(np.float32) if is_weighted else None
    sp_ids = sparse(ids, row_ids, rows)
    sp_weights = None if weights is None else like(sp_ids, tf.constant(weights))
    stock = tf.nn.safe_embedding_lookup_sparse(table, sp_ids, sp_weights, combiner)
    ours = look_up(version, table, sp_ids, sp_weights, combiner)
    factors = np.ones(len(ids)) if weights is None else weights.astype(np.float64)
    terms = (factors[:, None] * table[ids]).reshape(rows, length, dim)
    factors = factors.reshape(rows, length, 1)
    denominators = {"sum": 1.0, "mean": factors.sum(1), "sqrtn": np.sqrt((factors**2).sum(1))}
    exact = terms.sum(1) / denominators[combiner]
    return [root_mean_square(np.asarray(each) - exact) for each in (stock, ours)]


@pytest.mark.parametrize("is_weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize(("version", "dim"), LOOKUPS)
def test_no_sum_has_a_larger_error_than_stock_has(version, dim, combiner, is_weighted):
    for length in LENGTHS:
        of_stock, of_ours = errors(version, length, dim, combiner, is_weighted)
        # As many roundings, but not of the same numbers.
        assert of_ours <= 1.1 * of_stock, length


@pytest.mark.parametrize(("version", "dim"), LOOKUPS)
def test_no_gradient_has_a_larger_error_than_stock_has(version, dim):
    for length in LENGTHS:
        rng = np.random.default_rng(1)
        num_ids = max(2, 2000 // length)
        ids = rng.permutation(np.repeat(np.arange(num_ids), length))
        sp_ids = sparse(ids, np.arange(len(ids)), len(ids))
        grads = rng.uniform(0.25, 1, (len(ids), dim)).astype(np.float32)
        table = tf.Variable(np.ones((num_ids, dim), np.float32))
        with tf.GradientTape() as tape:
            combined = look_up(version, table, sp_ids)
        ours = tape.gradient(combined, table, output_gradients=tf.constant(grads))
        stock = tf.math.unsorted_segment_sum(grads, ids, num_ids)  # as stock's optimizers add
        exact = np.zeros((num_ids, dim))
        np.add.at(exact, ids, grads.astype(np.float64))
        of_stock = root_mean_square(stock - exact)
        of_ours = root_mean_square(tf.convert_to_tensor(ours) - exact)
        assert of_ours <= 1.1 * of_stock, length


@pytest.mark.parametrize(("version", "dim"), LOOKUPS)
def test_an_id_a_million_times_is_as_exact_as_one(version, dim):
    row = np.random.default_rng(0).uniform(0.25, 1, (1, dim)).astype(np.float32)
    table = tf.Variable(row)
    ids = np.zeros(1_000_000, np.int64)
    with tf.GradientTape() as tape:
        combined = look_up(version, table, sparse(ids, ids, 1))
    exact = 1e6 * row.astype(np.float64)
    np.testing.assert_allclose(combined, exact, rtol=4e-7)
    if version != "v1":  # whose rows, one an id, TensorFlow adds up, as for stock
        gradient = tape.gradient(combined, table, output_gradients=tf.constant(row))
        np.testing.assert_allclose(gradient.values, exact, rtol=4e-7)


def test_a_repeated_row_of_a_step_is_as_exact_as_one():
    row = np.random.default_rng(0).uniform(0.25, 1, (1, 16)).astype(np.float32)
    table = tf.Variable(np.zeros((2, 16), np.float32))
    values = np.broadcast_to(row, (1_000_000, 16))
    slices = tf.IndexedSlices(tf.constant(values), tf.zeros(1_000_000, tf.int64), table.shape)
    optimizer = fe.train.GradientDescentOptimizer(1.0)
    optimizer.apply_gradients([(slices, table)])
    np.testing.assert_allclose(table[0], -1e6 * row[0].astype(np.float64), rtol=4e-7)
