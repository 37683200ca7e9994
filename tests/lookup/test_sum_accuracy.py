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
DIMS = (16, 20)  # sums of pairs as they are read, and sums of blocks


def errors(length, dim, combiner, is_weighted, seed=0):
    """Root mean squares of the errors of stock and of ours, for several rows of `length` ids."""
    rng = np.random.default_rng(seed)
    table = rng.uniform(0.25, 1, (NUM_ROWS, dim)).astype(np.float32)
    rows = max(2, 2000 // length)
    ids = rng.integers(0, NUM_ROWS, rows * length)
    row_ids = np.repeat(np.arange(rows), length)
    weights = rng.uniform(0.5, 1.5, len(ids)).astype(np.float32) if is_weighted else None
    sp_ids = sparse(ids, row_ids, rows)
    sp_weights = None if weights is None else like(sp_ids, tf.constant(weights))
    stock = tf.nn.safe_embedding_lookup_sparse(table, sp_ids, sp_weights, combiner)
    ours = fe.nn.group_embedding_lookup_sparse([table], [sp_ids], [combiner], [sp_weights])[0]
    factors = np.ones(len(ids)) if weights is None else weights.astype(np.float64)
    terms = (factors[:, None] * table[ids]).reshape(rows, length, dim)
    factors = factors.reshape(rows, length, 1)
    denominators = {"sum": 1.0, "mean": factors.sum(1), "sqrtn": np.sqrt((factors**2).sum(1))}
    exact = terms.sum(1) / denominators[combiner]
    return [float(np.sqrt(np.mean((np.asarray(x) - exact) ** 2))) for x in (stock, ours)]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("dim", DIMS)
def test_no_sum_has_a_larger_error_than_stock_has(dim, combiner):
    for length in LENGTHS:
        of_stock, of_ours = errors(length, dim, combiner, False)
        # As many roundings, but not of the same numbers. A mean is multiplied by 1 / denominator,
        # which is rounded, where stock divides.
        assert of_ours <= (1.1 if combiner == "sum" else 1.25) * of_stock, length


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("dim", DIMS)
def test_long_weighted_sums_have_smaller_errors_than_stock_has(dim, combiner):
    for length in LENGTHS:
        of_stock, of_ours = errors(length, dim, combiner, True)
        # Short ones are multiplied by 1 / denominator: a rounding more than stock's division.
        assert of_ours <= (1.6 if length <= 300 else 0.7) * of_stock, length


@pytest.mark.parametrize("dim", DIMS)
def test_an_id_a_million_times_is_as_exact_as_one(dim):
    table = np.random.default_rng(0).uniform(0.25, 1, (1, dim)).astype(np.float32)
    ids = np.zeros(1_000_000, np.int64)
    sp_ids = sparse(ids, ids, 1)
    ours = fe.nn.group_embedding_lookup_sparse([table], [sp_ids], ["sum"])[0]
    np.testing.assert_allclose(ours, 1e6 * table.astype(np.float64), rtol=4e-7)
