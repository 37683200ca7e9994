"""FusedEmbeddingColumnKeys against stock's ops, bit by bit."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import fused_embedding as fe
from cases.keys import stock_keys

MAX = 2**63 - 1


def layout_of(feature):
    if isinstance(feature, tf.SparseTensor):
        return "sparse"
    return "ragged" if isinstance(feature, tf.RaggedTensor) else "dense"


def column_keys(features, rules, names=()):
    """Calls the op on tensors, SparseTensors and RaggedTensors."""
    ragged = [f for f in features if isinstance(f, tf.RaggedTensor)]
    layouts = [
        {tf.SparseTensor: "sparse"}.get(
            type(f), "ragged" if isinstance(f, tf.RaggedTensor) else "dense"
        )
        for f in features
    ]
    kinds, num_buckets, default_keys = zip(*rules, strict=True)
    return fe.raw_ops.FusedEmbeddingColumnKeys(
        values=[getattr(f, "values", f) for f in features],
        row_splits=[f.row_splits for f in ragged],
        Tkeys=[tf.int64] * len(features),
        Trows=[tf.int64] * sum(layout != "sparse" for layout in layouts),
        layouts=layouts,
        kinds=kinds,
        num_buckets=num_buckets,
        default_keys=default_keys,
        column_names=names,
    )


def stock_pairs(feature, rule):
    """Keys, rows and the number of rows of a dense feature."""
    matrix = feature if feature.shape.rank == 2 else feature[:, None]
    sparse = tf.sparse.from_dense(tf.cast(tf.not_equal(matrix, none_of(matrix)), tf.int32))
    values = tf.gather_nd(matrix, sparse.indices)
    return stock_keys(values, *rule), sparse.indices[:, 0].numpy(), matrix.shape.as_list()


def none_of(values):
    return "" if values.dtype == tf.string else -1


INTEGERS = st.one_of(
    st.integers(-2, 12),
    st.integers(-(2**63), MAX),
    st.builds(
        lambda power, step: min(10**power + step, MAX), st.integers(0, 18), st.integers(-1, 1)
    ),
)
TEXTS = st.binary(max_size=80)
RULES = st.one_of(
    st.tuples(st.just("hash"), st.one_of(st.integers(1, 20), st.integers(1, MAX)), st.just(-1)),
    st.tuples(st.just("identity"), st.just(11), st.integers(-1, 10)),
)


def matrix_of(draw, dtype):
    """`[num_rows, 2]`."""
    value = TEXTS if dtype == tf.string else INTEGERS
    values = draw(st.lists(st.lists(value, min_size=2, max_size=2), max_size=6))
    array = np.array(values, object).reshape(-1, 2)
    if dtype != tf.string:  # numbers beyond int32 wrap around
        array = array.astype(np.int64).astype(dtype.as_numpy_dtype)
    return tf.constant(array, dtype)


def laid_out(draw, matrix):
    """The same values in any layout."""
    layout = draw(st.sampled_from(["matrix", "vector", "sparse", "ragged"]))
    if layout == "matrix":
        return matrix
    values = tf.reshape(matrix, [-1])
    if layout == "vector":
        return values
    size = values.shape[0]
    inner = sorted(draw(st.lists(st.integers(0, size), max_size=4)))
    splits = tf.constant([0, *inner, size], tf.int64)
    ragged = tf.RaggedTensor.from_row_splits(values, splits)
    return ragged if layout == "ragged" else ragged.to_sparse()


@st.composite
def features_with_rules(draw):
    rule = draw(RULES)
    dtypes = [tf.int32, tf.int64, *([tf.string] if rule[0] == "hash" else [])]
    return laid_out(draw, matrix_of(draw, draw(st.sampled_from(dtypes)))), rule


@settings(max_examples=400, deadline=None)
@given(st.lists(features_with_rules(), min_size=1, max_size=4))
def test_keys_and_rows_are_stocks(columns):
    features, rules = zip(*columns, strict=True)
    got = column_keys(features, rules)
    placed = iter(zip(got.rows, got.dense_shapes, strict=True))
    for feature, rule, keys in zip(features, rules, got.keys, strict=True):
        if isinstance(feature, tf.SparseTensor):
            np.testing.assert_array_equal(keys, stock_keys(feature.values, *rule))
            continue
        rows, dense_shape = next(placed)
        if isinstance(feature, tf.RaggedTensor):
            want = stock_keys(feature.values, *rule), feature.value_rowids(), [feature.nrows(), 1]
        else:
            want = stock_pairs(feature, rule)
        for g, w in zip((keys, rows, dense_shape), want, strict=True):
            np.testing.assert_array_equal(g, w)


def test_many_values_are_split_among_threads():
    values = np.random.default_rng(0).integers(-1, 10**9, [50_000, 4])
    values[1000:, :] = np.abs(values[1000:, :])  # none are missing in most ranges
    feature, rule = tf.constant(values), ("hash", 10**6, -1)
    got = column_keys([feature, feature], [rule, rule])
    keys, rows, _ = stock_pairs(feature, rule)
    for i in range(2):
        np.testing.assert_array_equal(got.keys[i], keys)
        np.testing.assert_array_equal(got.rows[i], rows)


HASH = ("hash", 5, -1)
ONE = tf.constant([1, 2], tf.int64)


@pytest.mark.parametrize(
    ("features", "rules", "message"),
    [
        ([tf.constant([["a"]])], [("identity", 5, -1)], "texts have no identity"),
        ([ONE], [("hash", 0, -1)], "num_buckets must be at least 1, got 0"),
        ([ONE], [("identity", 5, 5)], "default_key must be below num_buckets = 5, got 5"),
        ([ONE], [("crossed", 5, -1)], "kind must be identity or hash, got 'crossed'"),
        ([tf.zeros([2, 2, 2], tf.int64)], [HASH], r"rank at most 2|\[num_rows, width\]"),
        ([tf.constant(3, tf.int64)], [HASH], r"\[num_rows, width\], got shape \[\]"),
    ],
)
def test_bad_columns_are_refused(features, rules, message):
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
        column_keys(features, rules)


@pytest.mark.parametrize("splits", [[], [0], [0, 3, 2], [1, 2], [0, 1], [0, 3], [[0, 2]]])
def test_bad_row_splits_are_refused(splits):
    with pytest.raises(tf.errors.InvalidArgumentError, match="user: row_splits must"):
        fe.raw_ops.FusedEmbeddingColumnKeys(
            values=[ONE],
            row_splits=[tf.constant(splits, tf.int64)],
            Tkeys=[tf.int64],
            Trows=[tf.int64],
            layouts=["ragged"],
            kinds=["hash"],
            num_buckets=[5],
            default_keys=[-1],
            column_names=["user"],
        )


@pytest.mark.parametrize(
    "changed",
    [
        {"layouts": ["dense", "dense"]},
        {"kinds": []},
        {"num_buckets": []},
        {"default_keys": [1, 2]},
        {"column_names": ["a", "b"]},
        {"Tkeys": [tf.int64] * 2},
        {"Trows": []},
        {"Trows": [tf.int64] * 2},
        {"layouts": ["wide"]},
        {"layouts": ["ragged"]},
    ],
)
def test_attrs_must_agree(changed):
    attrs = {
        "layouts": ["dense"],
        "kinds": ["hash"],
        "num_buckets": [5],
        "default_keys": [-1],
        "Tkeys": [tf.int64],
        "Trows": [tf.int64],
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be"):
        fe.raw_ops.FusedEmbeddingColumnKeys(values=[ONE], row_splits=[], **{**attrs, **changed})


def test_shapes_are_known_in_a_graph():
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int64), tf.TensorSpec([7], tf.int64)])
    def shapes(dense, values):
        sparse = tf.SparseTensor(tf.zeros([7, 2], tf.int64), values, [7, 1])
        got = column_keys([dense, sparse], [HASH, HASH])
        assert got.keys[0].shape.as_list() == [None]
        assert got.keys[1].shape.as_list() == [7]
        assert got.rows[0].shape.as_list() == [None]
        assert got.dense_shapes[0].shape.as_list() == [2]
        return got.keys[0]

    assert shapes.get_concrete_function() is not None
