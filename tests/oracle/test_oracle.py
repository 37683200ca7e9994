"""The oracle against stock TensorFlow, forward and autodiff, and against cases worked by hand."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import oracle.lookup
import oracle.small_rows
import oracle.step
from checking import as_indexed_slices, assert_close, densify, like, sparse

NUM_IDS, DIM = 7, 3
ROW_IDS = [1, 1, 1, 2, 4, 4, 5]
IDS = [3, -1, 3, 0, 6, 2, -5]
WEIGHTS = [0.5, 2.0, 1.5, -1.0, 0.0, 3.0, 1.0]


def table():
    return np.random.default_rng(0).standard_normal((NUM_IDS, DIM))


def stock(ids, row_ids, num_rows, weights, top_grad, **kwargs):
    """Result, table gradient and weight gradient of tf.nn.safe_embedding_lookup_sparse."""
    params, sp_ids = tf.Variable(table()), sparse(ids, row_ids, num_rows)
    values = None if weights is None else tf.constant(weights, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([] if values is None else values)
        sp_weights = None if values is None else like(sp_ids, values)
        out = tf.nn.safe_embedding_lookup_sparse(params, sp_ids, sp_weights, **kwargs)
        loss = tf.reduce_sum(out * top_grad)
    sources = [params] + ([] if values is None else [values])
    grads = tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return out.numpy(), grads[0], None if weights is None else densify(grads[1], len(weights))


def assert_safe_lookup_equals_stock(ids, row_ids, num_rows, weights, **kwargs):
    top_grad = np.random.default_rng(1).standard_normal((num_rows, DIM))
    want, want_grad, want_weights_grad = stock(ids, row_ids, num_rows, weights, top_grad, **kwargs)
    args = (table(), ids, row_ids, num_rows, weights)
    np.testing.assert_allclose(oracle.lookup.safe_lookup(*args, **kwargs), want, atol=1e-13)
    got = oracle.lookup.safe_lookup_grad(top_grad, *args, **kwargs)
    want_ids, _ = as_indexed_slices(want_grad)
    assert set(got.ids) == set(want_ids)
    dense = np.zeros((NUM_IDS, DIM))
    dense[got.ids] = got.rows
    np.testing.assert_allclose(dense, densify(want_grad, NUM_IDS), atol=1e-12)
    if weights is not None:
        np.testing.assert_allclose(got.weights, want_weights_grad, atol=1e-12)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("default_id", [None, 0, 5])
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_safe_lookup_equals_stock(weights, combiner, default_id, max_norm):
    assert_safe_lookup_equals_stock(
        IDS, ROW_IDS, 7, weights, combiner=combiner, default_id=default_id, max_norm=max_norm
    )


@hypothesis.given(data=st.data(), num_rows=st.integers(1, 5))
def test_safe_lookup_equals_stock_on_random_input(data, num_rows):
    row_ids = sorted(data.draw(st.lists(st.integers(0, num_rows - 1), max_size=12)))
    size = {"min_size": len(row_ids), "max_size": len(row_ids)}
    ids = data.draw(st.lists(st.integers(-2, NUM_IDS - 1), **size))
    weights = data.draw(st.none() | st.lists(st.sampled_from([-1.5, 0, 0.25, 1, 3]), **size))
    assert_safe_lookup_equals_stock(
        ids,
        row_ids,
        num_rows,
        weights,
        combiner=data.draw(st.sampled_from(oracle.lookup.COMBINERS)),
        default_id=data.draw(st.sampled_from([None, 0, 4])),
        max_norm=data.draw(st.sampled_from([None, 0.5, 2.0])),
    )


def test_gradient_at_the_tie_equals_stock():
    e = np.array([3.0, 4.0])  # ||e|| = max_norm = 5, exactly
    grad = np.array([1.0, 0.0])
    x = tf.constant(e)
    with tf.GradientTape() as tape:
        tape.watch(x)
        out = tf.clip_by_norm(x, 5.0)
    want = tape.gradient(out, x, output_gradients=grad)
    got = oracle.lookup.clip_grad(e, grad, 5.0)
    np.testing.assert_allclose(got, want, atol=1e-15)
    np.testing.assert_allclose(got, [16 / 25, -12 / 25])


@pytest.mark.parametrize("weights", [None, [0.5, 2.0, -1.5, 1.0]])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
def test_unsafe_lookup_equals_stock(weights, combiner):
    ids, row_ids = [3, 1, 3, 0], [0, 0, 2, 2]
    sp_ids = sparse(ids, row_ids, 6)
    sp_weights = None if weights is None else like(sp_ids, np.array(weights))
    want = tf.nn.embedding_lookup_sparse(tf.constant(table()), sp_ids, sp_weights, combiner)
    got = oracle.lookup.embedding_lookup_sparse(table(), ids, row_ids, weights, combiner)
    assert got.shape == (3, DIM)
    assert_close(want, got)


def test_nan_weight_is_pruned_unless_summed():
    args = (table(), [1, 2], [0, 0], 1, [np.nan, 2.0])
    np.testing.assert_allclose(oracle.lookup.safe_lookup(*args, combiner="mean")[0], table()[2])
    assert np.isnan(oracle.lookup.safe_lookup(*args, combiner="sum")).all()


def test_zero_denominator_gives_zero():
    got = oracle.lookup.post_lookup([[1.0, 2.0]] * 2, [0, 0], 1, "mean", [1.0, -1.0])
    np.testing.assert_array_equal(got.rows, [[0, 0]])
    np.testing.assert_array_equal(got.feature_nums, [2])


def test_prune_and_fill_by_hand():
    got = oracle.lookup.prune_and_fill(
        [5, -1, 4, 7], [[2, 9], [0, 0], [2, 3], [1, 8]], 4, [1, 2, 0, 3], prune_weights=True
    )
    np.testing.assert_array_equal(got.ids, [5, 7, 0, 0])
    np.testing.assert_array_equal(got.indices, [[2, 9], [1, 8], [0, 0], [3, 0]])
    np.testing.assert_array_equal(got.weights, [1, 3, 1, 1])
    np.testing.assert_array_equal(got.is_row_empty, [True, False, False, True])


@pytest.mark.parametrize(
    ("row_format", "row", "stored", "read"),
    [
        # Scale 1 / 2, bias 1; 1.25 lies between two quants, of which 0 is even.
        (
            "int8",
            [1, 128.5, 1.25, 2],
            b"\x00\xff\x00\x02\x00\x00\x00\x3f\x00\x00\x80\x3f",
            [1, 128.5, 1, 2],
        ),
        # Scale 2, bias -10: quants 0, 15, 1 in the low halves, 7 and 3 in the high ones.
        (
            "int4",
            [-10, 20, -8, 4.5, -4.5],
            b"\x70\x3f\x01\x00\x40\x00\xc9",
            [-10, 20, -8, 4, -4],
        ),
        ("int4", [0, 0], b"\x00\x00\x00\x00\x00", [0, 0]),
        (
            "bfloat16",
            [1 + 2**-8, 1 + 3 * 2**-8, -3],
            b"\x80\x3f\x82\x3f\x40\xc0",
            [1, 1 + 2**-6, -3],
        ),
    ],
)
def test_small_rows_by_hand(row_format, row, stored, read):
    assert oracle.small_rows.stored_row(np.float32(row), row_format) == stored
    got = oracle.small_rows.numbers_of(stored, len(row), row_format)
    np.testing.assert_array_equal(got, np.float32(read))


def test_unique_by_hand():
    keys, idx, counts = oracle.lookup.unique_with_counts([7, -2, 7, 0, -2, 7])
    np.testing.assert_array_equal(keys, [7, -2, 0])
    np.testing.assert_array_equal(idx, [0, 1, 0, 2, 1, 0])
    np.testing.assert_array_equal(counts, [3, 2, 1])


def test_mix64_by_hand():
    # The first three from the published test of MurmurHash3's finaliser: 0 maps to 0.
    assert oracle.lookup.mix64(0) == 0
    assert oracle.lookup.mix64(1) == 0xB456BCFC34C2CB2C
    assert oracle.lookup.mix64(-1) == 0x64B5720B4B825F21


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        ("div", [(0, 5), (1, 0), (1, 2), (2, 0), (2, 6)]),
        ("mod", [(2, 1), (0, 2), (2, 2), (0, 3), (0, 5)]),
        ("mod_ev", [(2, 5), (0, 6), (2, 8), (0, 9), (0, 15)]),
    ],
)
def test_partition_by_hand(strategy, want):
    rows = [6, 3, 7]
    assert [oracle.lookup.shard_of(i, rows, strategy) for i in [5, 6, 8, 9, 15]] == want


def test_mod_ev_is_a_floor_modulo():
    assert oracle.lookup.shard_of(-1, [1, 1], "mod_ev") == (999 % 2, -1)
    assert oracle.lookup.shard_of(2003, [1, 1], "mod_ev") == (1, 2003)


@pytest.mark.parametrize(("key", "strategy"), [(-1, "div"), (16, "div"), (-3, "mod"), (10, "mod")])
def test_ids_outside_every_shard(key, strategy):
    assert oracle.lookup.shard_of(key, [6, 3, 7], strategy) is None


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_split_table_equals_stock(strategy):
    ids = list(range(NUM_IDS))
    shards = oracle.lookup.split_table(table(), 3, strategy)
    want = tf.compat.v1.nn.embedding_lookup([tf.constant(s) for s in shards], ids, strategy)
    np.testing.assert_array_equal(want, table())
    values, permutation = oracle.lookup.partition(ids, [len(s) for s in shards], strategy)
    rows = [s[v] for s, v in zip(shards, values, strict=True)]
    np.testing.assert_array_equal([rows[p][o] for p, o in permutation], table())


def test_pre_lookup_by_hand():
    values, indices, flags = oracle.lookup.pre_lookup(
        [0, 4, -3, 9], [[0, 0], [0, 4], [1, 2], [3, 0]], 4, [5, 5], prune=True, fill=True
    )
    np.testing.assert_array_equal(values[0], [0, 4, 0, 0])
    np.testing.assert_array_equal(values[1], [4])
    np.testing.assert_array_equal(indices[0], [[0, 0], [0, 4], [1, 0], [2, 0]])
    np.testing.assert_array_equal(indices[1], [[3, 0]])
    np.testing.assert_array_equal(flags, [0, 1, 1, 0, 1, 1, 0, 1])


@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_gradients_equal_finite_differences(combiner, max_norm):
    rng = np.random.default_rng(2)
    rows, weights = rng.standard_normal((5, 2)), rng.uniform(0.5, 2.0, 5)
    row_ids, top_grad = [0, 0, 2, 0, 2], rng.standard_normal((3, 2))

    def loss(rows, weights):
        out = oracle.lookup.post_lookup(rows, row_ids, 3, combiner, weights, max_norm)
        return float(np.sum(out.rows * top_grad))

    args = (top_grad, rows, row_ids, combiner, weights, max_norm)
    step = 1e-6
    for at in np.ndindex(rows.shape):
        bump = np.zeros_like(rows)
        bump[at] = step
        slope = (loss(rows + bump, weights) - loss(rows - bump, weights)) / (2 * step)
        assert oracle.lookup.post_lookup_grad(*args)[at] == pytest.approx(slope, abs=1e-7)
    for k in range(5):
        bump = np.eye(5)[k] * step
        slope = (loss(rows, weights + bump) - loss(rows, weights - bump)) / (2 * step)
        assert oracle.lookup.post_lookup_weights_grad(*args)[k] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("rule", ["sgd", "adagrad"])
def test_step_equals_stock(rule):
    grad = np.random.default_rng(2).standard_normal((NUM_IDS, DIM))
    values, slot = tf.Variable(table()), tf.Variable(np.full((NUM_IDS, DIM), 0.5))
    got = oracle.step.step(rule, table(), slot.numpy(), grad, 0.3, 0.25)
    if rule == "sgd":
        tf.raw_ops.ResourceApplyGradientDescent(
            var=values.handle, alpha=tf.constant(0.3, tf.float64), delta=grad
        )
    else:
        tf.raw_ops.ResourceApplyAdagradV2(
            **{"var": values.handle, "accum": slot.handle, "grad": grad},
            lr=tf.constant(0.3, tf.float64),
            epsilon=tf.constant(0.25, tf.float64),
        )
        np.testing.assert_allclose(got.slot, slot.numpy(), atol=1e-14)
    np.testing.assert_allclose(got.values, values.numpy(), atol=1e-14)
