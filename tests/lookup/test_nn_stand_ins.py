"""The stand-ins for tf.nn's functions: same signatures, results, gradients and errors."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import oracle.lookup
from cases.nn import (
    BATCH,
    DIM,
    MODES,
    Batch,
    assert_same_outcome,
    make_table,
    run,
    run_in_session,
)
from checking import like, sparse

# On a GPU stock has zeros for what is an error here.
pytestmark = pytest.mark.on_cpu

NAMES = ("safe_embedding_lookup_sparse", "embedding_lookup_sparse")
# For the lookup that is not safe: every id valid, rows 1 and 5 empty.
DENSE_ROWS = Batch([3, 1, 3, 0, 6, 2], [0, 0, 2, 2, 3, 4], 6, [0.5, 2.0, -1.5, 1.0, 0.0, 3.0])
WEIGHTS = np.array(DENSE_ROWS.weights)


def untyped_signature(function):
    """TensorFlow's functions have no annotations."""
    signature = inspect.signature(function)
    params = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=params, return_annotation=signature.empty)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("ours", "theirs"), [(fe.nn, tf.nn), (fe.compat.v1.nn, tf.compat.v1.nn)], ids=["v2", "v1"]
)
def test_signatures_are_those_of_tf(ours, theirs, name):
    want = inspect.signature(getattr(theirs, name))
    assert untyped_signature(getattr(ours, name)) == want


@pytest.mark.parametrize("weights", [None, np.array(BATCH.weights)], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("options", [{}, {"combiner": "sqrtn", "max_norm": 5.0, "default_id": 2}])
@pytest.mark.parametrize("mode", MODES)
def test_safe_equals_stock(mode, options, weights):
    got = run(
        mode,
        lambda *a: fe.nn.safe_embedding_lookup_sparse(*a, **options),
        [make_table()],
        BATCH,
        weights,
    )
    want = run(
        "eager",
        lambda *a: tf.nn.safe_embedding_lookup_sparse(*a, **options),
        [make_table()],
        BATCH,
        weights,
    )
    assert_same_outcome(got, want)


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_v1_safe_with_shards_equals_stock(strategy):
    params = oracle.lookup.split_table(make_table(), 3, strategy)
    options = {"partition_strategy": strategy, "combiner": "sum"}
    weights = np.array(BATCH.weights)
    got = run(
        "eager",
        lambda *a: fe.compat.v1.nn.safe_embedding_lookup_sparse(*a, **options),
        params,
        BATCH,
        weights,
    )
    want = run(
        "eager",
        lambda *a: tf.compat.v1.nn.safe_embedding_lookup_sparse(*a, **options),
        params,
        BATCH,
        weights,
    )
    assert_same_outcome(got, want)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("combiner", [None, *oracle.lookup.COMBINERS])
@pytest.mark.parametrize("mode", MODES)
def test_unsafe_equals_stock(mode, combiner, weights):
    got = run(
        mode,
        lambda *a: fe.nn.embedding_lookup_sparse(*a, combiner=combiner),
        [make_table()],
        DENSE_ROWS,
        weights,
    )
    want = run(
        "eager",
        lambda *a: tf.nn.embedding_lookup_sparse(*a, combiner=combiner),
        [make_table()],
        DENSE_ROWS,
        weights,
    )
    assert got.out.shape == (5, DIM)  # max(row) + 1: the last row has no ids and no result
    assert_same_outcome(got, want)


def test_v1_unsafe_partitions_by_mod_unless_told():
    params = oracle.lookup.split_table(make_table(), 3, "mod")
    got = run("eager", fe.compat.v1.nn.embedding_lookup_sparse, params, DENSE_ROWS, WEIGHTS)
    want = run("eager", tf.compat.v1.nn.embedding_lookup_sparse, params, DENSE_ROWS, WEIGHTS)
    assert_same_outcome(got, want)


def test_v1_unsafe_in_a_session_with_reference_variables():
    params = oracle.lookup.split_table(make_table(), 2, "mod")
    got = run_in_session(
        fe.compat.v1.nn.embedding_lookup_sparse, params, DENSE_ROWS, None, np.int64, False
    )
    want = run("eager", tf.compat.v1.nn.embedding_lookup_sparse, params, DENSE_ROWS)
    assert_same_outcome(got, want)


def test_unsafe_without_ids():
    sp_ids = sparse([], [], 4)
    got = fe.nn.embedding_lookup_sparse(make_table(), sp_ids, None)
    want = tf.nn.embedding_lookup_sparse(tf.constant(make_table()), sp_ids, None)
    assert got.shape == want.shape == [0, DIM]


def both_raise(error, name, *args, **kwargs):
    """The stand-in raises where stock does, an error that a handler for stock's catches."""
    for module in (tf.nn, fe.nn):
        with pytest.raises(error):
            getattr(module, name)(*args, **kwargs)


def test_unsafe_rejects_what_stock_rejects():
    table, sp_ids = tf.constant(make_table()), sparse(*DENSE_ROWS[:3])
    both_raise(TypeError, "embedding_lookup_sparse", table, [1, 2], None)
    both_raise(TypeError, "embedding_lookup_sparse", table, tf.constant([[1, 2]]), None)
    both_raise(TypeError, "embedding_lookup_sparse", table, sp_ids, np.ones(6))
    both_raise(ValueError, "embedding_lookup_sparse", table, sp_ids, None, combiner="max")
    both_raise(ValueError, "embedding_lookup_sparse", table, sp_ids, like_of_other_length(sp_ids))


def like_of_other_length(sp_ids):
    return tf.SparseTensor(sp_ids.indices[:2], np.ones(2), sp_ids.dense_shape)


@pytest.mark.parametrize("weights", [None, np.ones(3)], ids=["unweighted", "weighted"])
def test_unsafe_rejects_unsorted_rows(weights):
    sp_ids = tf.SparseTensor([[1, 0], [0, 0], [2, 0]], np.array([1, 2, 3]), [3, 1])
    sp_weights = None if weights is None else like(sp_ids, weights)
    both_raise(
        tf.errors.InvalidArgumentError,
        "embedding_lookup_sparse",
        tf.constant(make_table()),
        sp_ids,
        sp_weights,
    )


@pytest.mark.parametrize("bad", [-1, 8])
def test_unsafe_rejects_ids_outside_the_table(bad):
    both_raise(
        tf.errors.InvalidArgumentError,
        "embedding_lookup_sparse",
        tf.constant(make_table()),
        sparse([1, bad], [0, 0], 1),
        None,
        combiner="sum",
        max_norm=1.0,
    )


def test_safe_rejects_what_stock_rejects():
    sp_ids = sparse(*BATCH[:3])
    both_raise(ValueError, "safe_embedding_lookup_sparse", None, sp_ids)
    both_raise(ValueError, "safe_embedding_lookup_sparse", [], sp_ids)
    both_raise(ValueError, "safe_embedding_lookup_sparse", make_table(), sp_ids, combiner="max")


def test_a_negative_default_id_is_an_error_on_an_empty_row():
    both_raise(
        tf.errors.InvalidArgumentError,
        "safe_embedding_lookup_sparse",
        tf.constant(make_table()),
        sparse(*BATCH[:3]),
        default_id=-1,
        max_norm=1.0,
    )


def test_a_negative_default_id_without_empty_rows_does_nothing():
    sp_ids, table = sparse([3, 1], [0, 1], 2), tf.constant(make_table())
    got = fe.nn.safe_embedding_lookup_sparse(table, sp_ids, default_id=-1)
    np.testing.assert_allclose(got, make_table()[[3, 1]])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 1.5, 1.0]], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("params", ["tensor", "variable"])
def test_allow_fast_lookup(params, weights, name):
    sp_ids = sparse([3, 1, 3, 0], [0, 0, 1, 2], 3)
    sp_weights = None if weights is None else like(sp_ids, np.array(weights))
    table = tf.constant(make_table()) if params == "tensor" else tf.Variable(make_table())
    got = getattr(fe.nn, name)(table, sp_ids, sp_weights, allow_fast_lookup=True)
    want = getattr(tf.nn, name)(table, sp_ids, sp_weights, allow_fast_lookup=True)
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 1.5, 1.0]], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("shape", [(8, 2, 3), (8, 2, 1, 2)])
def test_params_of_higher_rank(shape, weights, max_norm, name):
    table = np.random.default_rng(0).standard_normal(shape)
    sp_ids = sparse([3, 1, 3, 0], [0, 0, 1, 2], 3)
    sp_weights = None if weights is None else like(sp_ids, np.array(weights))
    options = {"max_norm": max_norm} | ({"default_id": 1} if name.startswith("safe") else {})
    results = []
    for module in (fe.nn, tf.nn):
        params = tf.Variable(table)
        with tf.GradientTape() as tape:
            out = getattr(module, name)(params, sp_ids, sp_weights, **options)
            loss = tf.reduce_sum(tf.square(out))
        results.append((out, tf.convert_to_tensor(tape.gradient(loss, params))))
    assert results[0][0].shape == results[1][0].shape == [3, *shape[1:]]
    np.testing.assert_allclose(results[0][0], results[1][0], atol=1e-12)
    np.testing.assert_allclose(results[0][1], results[1][1], atol=1e-12)


@pytest.mark.parametrize("max_norm", [None, 0.5])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 1.5, 1.0]], ids=["unweighted", "weighted"])
def test_params_of_rank_1(weights, max_norm):
    table = np.array([0.25, -2.0, 3.0, 0.5])
    sp_ids = sparse([3, 1, 3, 0], [0, 0, 1, 2], 3)
    sp_weights = None if weights is None else like(sp_ids, np.array(weights))
    got = fe.nn.embedding_lookup_sparse(tf.Variable(table), sp_ids, sp_weights, max_norm=max_norm)
    want = tf.nn.embedding_lookup_sparse(tf.Variable(table), sp_ids, sp_weights, max_norm=max_norm)
    assert got.shape == want.shape == [3]
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64])
@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name, dtype):
    table = tf.cast(make_table(), dtype)
    sp_ids = sparse([3, 1, 3, 0], [0, 0, 1, 2], 3)
    for weights in (None, like(sp_ids, tf.cast([0.5, 2.0, 1.5, 1.0], dtype))):
        got = getattr(fe.nn, name)(table, sp_ids, weights)
        want = getattr(tf.nn, name)(table, sp_ids, weights)
        assert got.dtype == want.dtype == dtype
        tol = 0 if dtype == tf.float64 else 2.0**-6
        np.testing.assert_allclose(
            tf.cast(got, tf.float64), tf.cast(want, tf.float64), rtol=tol + 1e-14, atol=tol
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weighted", [False, True])
def test_ragged(name, weighted):
    ids = tf.ragged.constant([[3, 1], [3], [0, 6, 6]], dtype=tf.int64)
    weights = ids.with_values(tf.constant([0.5, 2.0, 1.5, 1.0, 0.25, 3.0], tf.float64))
    table, weights = tf.Variable(make_table()), weights if weighted else None
    got = getattr(fe.nn, name)(table, ids, weights)
    want = getattr(tf.nn, name)(table, ids, weights)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want)


def test_ragged_with_empty_rows():
    ids = tf.ragged.constant([[], [3, -1], [], [2, 2], []], dtype=tf.int64)
    for default_id in (None, 4):
        got = fe.nn.safe_embedding_lookup_sparse(make_table(), ids, default_id=default_id)
        want = tf.nn.safe_embedding_lookup_sparse(
            tf.constant(make_table()), ids.to_sparse(), default_id=default_id
        )
        np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [[None, None], [7, None], None])
@pytest.mark.parametrize("table", ["known", "unknown"])
def test_static_shapes_are_at_least_as_known_as_stocks(table, shape, name):
    spec = tf.TensorSpec([None, DIM] if table == "known" else None, tf.float64)
    sp_spec = tf.SparseTensorSpec(shape, tf.int64)
    shapes = []
    for module in (fe.nn, tf.nn):
        args = (None,) if name == "embedding_lookup_sparse" else ()
        traced = tf.function(lambda p, i, m=module, a=args: getattr(m, name)(p, i, *a))
        shapes.append(traced.get_concrete_function(spec, sp_spec).structured_outputs.shape)
    got, want = shapes
    assert got.is_compatible_with(want)
    if want.rank is not None:
        assert got.rank == want.rank
        for g, w in zip(got.as_list(), want.as_list(), strict=True):
            assert w is None or g == w


@pytest.mark.parametrize("name", NAMES)
def test_name_is_that_of_the_op(name):
    with tf.Graph().as_default():
        args = (None,) if name == "embedding_lookup_sparse" else ()
        sp_ids = tf.compat.v1.sparse_placeholder(tf.int64)
        out = getattr(fe.nn, name)(tf.constant(make_table()), sp_ids, *args, name="mine")
        assert out.op.name.startswith("mine")
