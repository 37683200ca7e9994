"""fe.nn.fused_* against tf.nn.safe_embedding_lookup_sparse, forward and gradients."""

import functools

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import fused_embedding as fe
import oracle.lookup
from cases.nn import (
    BATCH,
    DIM,
    MODES,
    NUM_IDS,
    Batch,
    assert_same_outcome,
    grid,
    make_table,
    name_of,
    run,
    run_in_session,
    top_grad_for,
)
from checking import VALUE_DTYPES, assert_rounded_once, dtype_name, like, sparse

VERSIONS = ("v1", "v2", "v3")
WEIGHTS = np.array(BATCH.weights)


def fused(version, **kwargs):
    return functools.partial(
        fe.nn.fused_safe_embedding_lookup_sparse, fusion_version=version, **kwargs
    )


def stock(default_id=None, **kwargs):
    """tf.compat.v1.nn's, which takes a partition strategy; a negative default_id means None."""
    default_id = None if default_id is not None and default_id < 0 else default_id
    lookup = tf.compat.v1.nn.safe_embedding_lookup_sparse
    return functools.partial(lookup, default_id=default_id, **kwargs)


def assert_equals_stock(mode, version, params, batch, weights, **kwargs):
    got = run(mode, fused(version, **kwargs), params, batch, weights)
    want = run("eager", stock(**kwargs), params, batch, weights)
    assert_same_outcome(got, want)
    return got


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize(
    "options",
    grid(combiner=oracle.lookup.COMBINERS, max_norm=[None, 1.0, 5.0], default_id=[None, 0, 5, -1]),
    ids=name_of,
)
@pytest.mark.parametrize("version", VERSIONS)
def test_equals_stock_eagerly(version, options, weights):
    assert_equals_stock("eager", version, [make_table()], BATCH, weights, **options)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize(
    "options",
    grid(combiner=oracle.lookup.COMBINERS, max_norm=[None, 5.0], default_id=[None]),
    ids=name_of,
)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["function", "session"])
def test_equals_stock_in_graphs(mode, version, options, weights):
    assert_equals_stock(mode, version, [make_table()], BATCH, weights, **options)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize(("num_shards", "partition_strategy"), [(3, "div"), (3, "mod")])
@pytest.mark.parametrize("version", VERSIONS)
def test_shards_equal_stock(version, num_shards, partition_strategy, combiner, weights):
    params = oracle.lookup.split_table(make_table(), num_shards, partition_strategy)
    options = {"combiner": combiner, "partition_strategy": partition_strategy, "max_norm": 2.0}
    assert_equals_stock("eager", version, params, BATCH, weights, **options)


@pytest.mark.parametrize("partition_strategy", ["mod_ev", "hash"])
@pytest.mark.parametrize("version", VERSIONS)
def test_strategies_with_global_ids(version, partition_strategy):
    """Each shard knows an id by its own name: with whole tables as shards, one table's result."""
    params, options = [make_table()] * 3, {"combiner": "sum", "default_id": 5}
    sharded = fused(version, partition_strategy=partition_strategy, **options)
    got = run("eager", sharded, params, BATCH)
    want = run("eager", stock(**options), [make_table()], BATCH)
    np.testing.assert_allclose(got.out, want.out)
    for p, ids in enumerate(got.grad_ids):
        shards = [oracle.lookup.shard_of(i, [NUM_IDS] * 3, partition_strategy)[0] for i in ids]
        assert shards == [p] * len(ids)


@pytest.mark.parametrize("id_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_id_dtypes(version, mode, id_dtype):
    got = run(mode, fused(version), [make_table()], BATCH, WEIGHTS, id_dtype)
    want = run("eager", stock(), [make_table()], BATCH, WEIGHTS, id_dtype)
    assert_same_outcome(got, want)


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("weight_dtype", [None, *VALUE_DTYPES], ids=dtype_name)
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("version", VERSIONS)
def test_dtypes(version, dtype, weight_dtype, max_norm):
    table = tf.cast(make_table(), dtype).numpy()
    weights = None if weight_dtype is None else tf.cast(WEIGHTS, weight_dtype).numpy()
    exact = None if weights is None else weights.astype(np.float64)
    top_grad = tf.cast(top_grad_for([BATCH.num_rows, DIM]), dtype).numpy().astype(np.float64)
    for combiner in oracle.lookup.COMBINERS:
        options = {"combiner": combiner, "max_norm": max_norm}
        got = run("eager", fused(version, **options), [table], BATCH, weights)
        args = (table.astype(np.float64), *BATCH[:3], exact)
        assert got.out.dtype == table.dtype
        assert_rounded_once(got.out, oracle.lookup.safe_lookup(*args, **options), dtype)
        want = oracle.lookup.safe_lookup_grad(top_grad, *args, **options)
        np.testing.assert_array_equal(got.grad_ids[0], want.ids)
        # v1 stores one gradient row per pair, and merges those: two roundings.
        roundings = 1 if version == "v2" else 2
        assert_rounded_once(got.grad_rows[0], want.rows, dtype, roundings, "gradient")
        if weights is not None:
            # Computed in the table's arithmetic, stored in the weights' dtype.
            stored = tf.float32 if (weight_dtype, dtype) != (tf.float64,) * 2 else tf.float64
            stored = weight_dtype if weight_dtype in (tf.float16, tf.bfloat16) else stored
            assert_rounded_once(
                got.weights_grad, want.weights, stored, err_msg="gradient of weights"
            )


@pytest.mark.parametrize("weights", [[np.nan, 2.0, -1.0], [0.0, -0.0, np.inf], [-1.0, -2.0, 0.0]])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_odd_weights(version, combiner, weights):
    batch = Batch([1, 2, 3], [0, 0, 1], 3, weights)
    got = run("eager", fused(version, combiner=combiner), [make_table()], batch, np.array(weights))
    want = run("eager", stock(combiner=combiner), [make_table()], batch, np.array(weights))
    np.testing.assert_allclose(got.out, want.out)


@pytest.mark.parametrize(
    "batch",
    [
        Batch([], [], 4, []),
        Batch([], [], 0, []),
        Batch([-1, -2], [0, 2], 3, [1.0, 1.0]),
        Batch([7], [0], 1, [1.0]),
    ],
    ids=["no_ids", "no_rows", "all_invalid", "one"],
)
@pytest.mark.parametrize("default_id", [None, 5])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_small_batches(version, mode, default_id, batch):
    options = {"default_id": default_id, "combiner": "mean"}
    assert_equals_stock(mode, version, [make_table()], batch, None, **options)


@pytest.mark.parametrize("dim", [1, 7, 16, 33])
@pytest.mark.parametrize("version", VERSIONS)
def test_dims(version, dim):
    table = np.random.default_rng(dim).standard_normal((NUM_IDS, dim))
    assert_equals_stock("eager", version, [table], BATCH, WEIGHTS, max_norm=2.0)


@pytest.mark.parametrize("version", VERSIONS)
def test_gradient_ids_are_in_first_occurrence_order(version):
    got = run("eager", fused(version), [make_table()], BATCH)
    np.testing.assert_array_equal(got.grad_ids[0], [3, 0, 6, 2])
    batch = Batch([6, 3, 6, 2], [1, 1, 3, 3], 4, [])
    got = run("eager", fused(version), [make_table()], batch)
    np.testing.assert_array_equal(got.grad_ids[0], [6, 3, 2, 0])  # 0 fills the empty rows


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_row_without_default_id_gives_id_0_a_zero_row(version):
    batch = Batch([4], [0], 2, [])
    got = run("eager", fused(version), [make_table()], batch)
    np.testing.assert_array_equal(got.grad_ids[0], [4, 0])
    np.testing.assert_array_equal(got.grad_rows[0][1], np.zeros(DIM))
    assert got.grad_rows[0][0].any()
    full = run("eager", fused(version), [make_table()], Batch([4], [0], 1, []))
    np.testing.assert_array_equal(full.grad_ids[0], [4])


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("version", VERSIONS)
def test_reference_variables(version, num_shards, weights):
    params = oracle.lookup.split_table(make_table(), num_shards, "div")
    got = run_in_session(fused(version), params, BATCH, weights, np.int64, use_resource=False)
    assert_same_outcome(got, run("eager", stock(), params, BATCH, weights))


@hypothesis.given(data=st.data(), version=st.sampled_from(VERSIONS), num_rows=st.integers(1, 5))
def test_equals_stock_on_random_input(data, version, num_rows):
    row_ids = sorted(data.draw(st.lists(st.integers(0, num_rows - 1), max_size=12)))
    size = {"min_size": len(row_ids), "max_size": len(row_ids)}
    ids = data.draw(st.lists(st.integers(-2, NUM_IDS - 1), **size))
    weights = data.draw(st.none() | st.lists(st.sampled_from([-1.5, 0, 0.25, 1, 3]), **size))
    weights = None if weights is None else np.array(weights, np.float64)
    params = oracle.lookup.split_table(make_table(), data.draw(st.integers(1, 3)), "div")
    options = {
        "combiner": data.draw(st.sampled_from(oracle.lookup.COMBINERS)),
        "default_id": data.draw(st.sampled_from([None, 0, 4, -1])),
        "max_norm": data.draw(st.sampled_from([None, 0.5, 2.0, 5.0])),
    }
    batch = Batch(ids, row_ids, num_rows, weights)
    assert_equals_stock("eager", version, params, batch, weights, **options)


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_in_any_order_and_any_column(version):
    indices = np.array([[4, 2**60], [1, -3], [4, 0], [0, 7], [1, 7]], np.int64)
    ids, num_rows = [3, 2, 1, 6, 3], 6
    sp_ids = tf.SparseTensor(indices, np.array(ids), [num_rows, 2])
    got = fused(version)(tf.Variable(make_table()), sp_ids)
    want = oracle.lookup.safe_lookup(make_table(), ids, indices[:, 0].tolist(), num_rows)
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("shape", [[2, 4, 3], [2, 2, 2, 3], [0, 4, 3]])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_ids_of_higher_rank(mode, version, shape):
    rng = np.random.default_rng(4)
    dense = rng.integers(-1, NUM_IDS, shape) * (rng.random(shape) < 0.5)
    sp_ids = tf.sparse.from_dense(dense)
    sp_weights = like(sp_ids, rng.random(sp_ids.values.shape[0]))
    table = tf.Variable(make_table())
    wrap = tf.function if mode == "function" else (lambda f: f)
    for weights in (None, sp_weights):
        got = wrap(fused(version))(table, sp_ids, weights)
        want = tf.nn.safe_embedding_lookup_sparse(table, sp_ids, weights)
        assert got.shape == want.shape == [*shape[:-1], DIM]
        np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("default_id", [None, 2])
@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("version", VERSIONS)
def test_ragged_ids(version, mode, default_id):
    ids = tf.ragged.constant([[], [3, -1, 3], [0], [], [6, 2], [-5]], dtype=tf.int64)
    weights = ids.with_values(tf.constant([0.5, 2.0, 1.5, 1.0, 0.25, 3.0, 1.0], tf.float64))
    table = tf.Variable(make_table())
    wrap = tf.function if mode == "function" else (lambda f: f)
    for sparse_weights in (None, weights):
        got = wrap(fused(version, default_id=default_id))(table, ids, sparse_weights)
        want = tf.nn.safe_embedding_lookup_sparse(
            table,
            ids.to_sparse(),
            None if sparse_weights is None else weights.to_sparse(),
            default_id=default_id,
        )
        np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize(
    ("ids", "want"),
    [([None, None], [None, DIM]), ([7, None], [None, DIM]), ([2, 3, 4], [None, None, DIM])],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_static_shapes(version, ids, want):
    table = tf.Variable(make_table())
    traced = tf.function(fused(version)).get_concrete_function(
        table, tf.SparseTensorSpec(ids, tf.int64)
    )
    stock_traced = tf.function(tf.nn.safe_embedding_lookup_sparse).get_concrete_function(
        table, tf.SparseTensorSpec(ids, tf.int64)
    )
    got = traced.structured_outputs.shape
    assert got.is_compatible_with(want)
    assert got.rank == len(want)
    assert got[-1] == DIM
    assert stock_traced.structured_outputs.shape.is_compatible_with(got)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.on_cpu
def test_prune_false_keeps_invalid_ids_which_is_an_error(version):
    sp_ids = sparse([3, -2], [0, 1], 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="id -2 at position 1"):
        fused(version, prune=False)(tf.Variable(make_table()), sp_ids)


@pytest.mark.parametrize("version", VERSIONS)
def test_prune_false_with_valid_ids_still_fills(version):
    sp_ids, table = sparse([3, 2], [0, 2], 4), tf.Variable(make_table())
    got = fused(version, prune=False, default_id=1)(table, sp_ids)
    np.testing.assert_allclose(got, make_table()[[3, 1, 2, 1]])


@pytest.mark.parametrize("ids", [[NUM_IDS], [2**62], [2**63 - 1]])
@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.on_cpu
def test_ids_beyond_the_table(version, num_shards, ids):
    params = [tf.Variable(s) for s in np.array_split(make_table(), num_shards)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"id {ids[0]} at position 0"):
        fused(version)(params, sparse(ids, [0], 1))


def test_v1_and_v2_functions_equal_the_safe_one():
    table, sp_ids = tf.Variable(make_table()), sparse(*BATCH[:3])
    want = tf.nn.safe_embedding_lookup_sparse(table, sp_ids, combiner="mean")
    v1 = fe.nn.fused_embedding_lookup_sparse(table, sp_ids, prune_invalid_ids=True)
    v2 = fe.nn.fused_embedding_lookup_sparse_v2(table, sp_ids, prune=True)
    np.testing.assert_allclose(v1, want)
    np.testing.assert_allclose(v2, want)


@pytest.mark.parametrize("default_id", [None, 1])
def test_fill_empty_row_false_leaves_zeros_and_no_gradient_for_id_0(default_id):
    sp_ids = sparse([3, 2], [0, 2], 4)
    for lookup in (fe.nn.fused_embedding_lookup_sparse, fe.nn.fused_embedding_lookup_sparse_v2):
        table = tf.Variable(make_table())
        with tf.GradientTape() as tape:
            out = lookup(table, sp_ids, fill_empty_row=False, default_id=default_id)
        np.testing.assert_allclose(out[0], make_table()[3])
        np.testing.assert_allclose(out[2], make_table()[2])
        np.testing.assert_array_equal(out.numpy()[[1, 3]], np.zeros((2, DIM)))
        np.testing.assert_array_equal(tape.gradient(out, table).indices, [3, 2])
