"""The cases of TensorFlow's own tests of its sparse lookups, for the stand-ins, in TF1 graphs."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import oracle.lookup

NUM_IDS, ROW_SHAPE, NUM_ROWS = 13, [2, 5], 10
V1 = fe.compat.v1.nn
# Rows: several ids of which one is invalid; none valid; no ids; one id; no weight above zero.
ROWS_2D = [[0, 0], [0, 1], [0, 2], [1, 0], [3, 0], [4, 0], [4, 1]]
ROWS_3D = [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]
IDS, WEIGHTS = [0, 1, -1, -1, 2, 0, 1], [1.0, 2.0, 1.0, 1.0, 3.0, 0.0, -0.5]


def random_batch(rng, num_rows=NUM_ROWS):
    """One to five ids in every row, with weights in [1, 2)."""
    counts = rng.integers(1, 6, num_rows)
    row_ids = np.repeat(np.arange(num_rows), counts).tolist()
    ids = rng.integers(0, NUM_IDS, len(row_ids)).tolist()
    return ids, row_ids, 1 + rng.random(len(row_ids))


def constant_sparse(indices, values, dense_shape, dtype):
    return tf.SparseTensor(tf.constant(indices, tf.int64), tf.constant(values, dtype), dense_shape)


@pytest.mark.parametrize("ignore_weights", [True, False])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("num_shards", [1, 5])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_lookup_of_matrices_by_mod(dtype, num_shards, combiner, ignore_weights):
    """params of rank 3, int32 ids, float32 weights beside params of any dtype."""
    rng = np.random.default_rng(num_shards)
    ids, row_ids, weights = random_batch(rng)
    table = rng.random([NUM_IDS, *ROW_SHAPE]) + 1
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        shards = oracle.lookup.split_table(table, num_shards, "mod")
        params = [tf.constant(shard, dtype) for shard in shards]
        indices = oracle.lookup.as_indices(row_ids)
        sp_ids = constant_sparse(indices, ids, [NUM_ROWS, 6], tf.int32)
        sp_weights = constant_sparse(indices, weights, [NUM_ROWS, 6], tf.float32)
        out = V1.embedding_lookup_sparse(
            params, sp_ids, None if ignore_weights else sp_weights, combiner=combiner
        )
        assert out.shape.as_list() == [None, *ROW_SHAPE]
        assert out.dtype == dtype
        got = session.run(out).astype(np.float64)
    want = oracle.lookup.embedding_lookup_sparse(
        table.reshape(NUM_IDS, -1), ids, row_ids, None if ignore_weights else weights, combiner
    )
    tol = {tf.bfloat16: 1e-2, tf.float16: 1e-3}.get(dtype, 1e-6)
    np.testing.assert_allclose(got, want.reshape(-1, *ROW_SHAPE), rtol=tol, atol=tol)


@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
def test_rows_without_ids_before_the_last(combiner):
    indices = [[1, 0], [3, 0]]
    sp_ids = constant_sparse(indices, [0, 2], [4, 1], tf.int32)
    sp_weights = constant_sparse(indices, [1.0, 1.0], [4, 1], tf.float32)
    got = fe.nn.embedding_lookup_sparse(tf.ones((4, 5)), sp_ids, sp_weights, combiner=combiner)
    np.testing.assert_array_equal(got, np.repeat([[0], [1], [0], [1]], 5, axis=1))


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("num_shards", [1, 3])
def test_gradients_equal_differences(num_shards, dtype):
    rng = np.random.default_rng(7)
    ids, row_ids, weights = random_batch(rng, 4)
    ids = [i % 5 for i in ids]  # a difference for each element of the table: a small one
    indices = oracle.lookup.as_indices(row_ids)
    sp_ids = constant_sparse(indices, ids, [4, 6], tf.int32)
    shards = oracle.lookup.split_table(rng.random([5, 2, 3]) + 1, num_shards, "mod")
    params = [tf.constant(shard, dtype) for shard in shards]
    for combiner, ignore_weights in itertools.product(oracle.lookup.COMBINERS, [True, False]):
        sp_weights = constant_sparse(indices, weights, [4, 6], tf.float32)
        sp_weights = None if ignore_weights else sp_weights

        def lookup(*params, combiner=combiner, sp_weights=sp_weights):
            return V1.embedding_lookup_sparse(list(params), sp_ids, sp_weights, combiner=combiner)

        theoretical, numerical = tf.test.compute_gradient(lookup, params)
        for got, want in zip(theoretical, numerical, strict=True):
            tol = 1e-5 if dtype == tf.float64 else 2e-3
            np.testing.assert_allclose(got, want, atol=tol)


def partitions(num_shards):
    """Parts of a table of four rows, as arrays, and the table."""
    table = np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)
    return np.array_split(table, num_shards), table


def safe_batch(indices):
    dense_shape = [5, 4] if len(indices[0]) == 2 else [2, 3, 4]
    sp_ids = constant_sparse(indices, IDS, dense_shape, tf.int64)
    return sp_ids, constant_sparse(indices, WEIGHTS, dense_shape, tf.float32)


@pytest.mark.parametrize("default_id", [None, 3])
@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("indices", [ROWS_2D, ROWS_3D], ids=["2d", "3d"])
@pytest.mark.parametrize("wants_graph", [True, False], ids=["graph", "eager"])
def test_safe_weighted_mean(wants_graph, indices, num_shards, default_id):
    parts, table = partitions(num_shards)
    empty = np.zeros(4) if default_id is None else table[default_id]
    first, single = (table[0] + 2.0 * table[1]) / 3.0, table[2]
    if indices is ROWS_2D:
        want = [first, empty, empty, single, empty]
    else:
        want = [[first, empty, empty], [single, empty, empty]]
    got = evaluate(wants_graph, parts, indices, True, default_id)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("indices", [ROWS_2D, ROWS_3D], ids=["2d", "3d"])
@pytest.mark.parametrize("wants_graph", [True, False], ids=["graph", "eager"])
def test_safe_mean_without_weights(wants_graph, indices, num_shards):
    parts, table = partitions(num_shards)
    empty, both, single = np.zeros(4), (table[0] + table[1]) / 2.0, table[2]
    if indices is ROWS_2D:
        want = [both, empty, empty, single, both]
    else:
        want = [[both, empty, empty], [single, both, empty]]
    got = evaluate(wants_graph, parts, indices, False, None)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def evaluate(wants_graph, parts, indices, is_weighted, default_id):
    def lookup():
        sp_ids, sp_weights = safe_batch(indices)
        return fe.nn.safe_embedding_lookup_sparse(
            parts, sp_ids, sp_weights if is_weighted else None, default_id=default_id
        )

    if not wants_graph:
        return lookup().numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(lookup())


@pytest.mark.parametrize("indices", [ROWS_2D, ROWS_3D], ids=["2d", "3d"])
def test_safe_rejects_parts_of_different_dtypes(indices):
    parts, _ = partitions(3)
    parts[1] = parts[1].astype(np.float64)
    with tf.Graph().as_default(), pytest.raises(TypeError, match="float64"):
        V1.safe_embedding_lookup_sparse(parts, safe_batch(indices)[0])


@pytest.mark.parametrize("indices", [ROWS_2D, ROWS_3D], ids=["2d", "3d"])
def test_safe_rejects_tensors_of_another_dtype_than_the_weights(indices):
    with tf.Graph().as_default():
        sp_ids, sp_weights = safe_batch(indices)
        parts = [tf.constant(part, tf.float64) for part in partitions(3)[0]]
        with pytest.raises(ValueError, match="float64"):
            V1.safe_embedding_lookup_sparse(parts, sp_ids, sp_weights)
