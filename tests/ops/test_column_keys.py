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


NO_OTHER_INPUTS = {"tables": [], "sparse_indices": [], "sparse_shapes": []}


def column_keys(features, rules, names=(), **more):
    """Calls the op on tensors, SparseTensors and RaggedTensors."""
    ragged = [f for f in features if isinstance(f, tf.RaggedTensor)]
    layouts = [
        {tf.SparseTensor: "sparse"}.get(
            type(f), "ragged" if isinstance(f, tf.RaggedTensor) else "dense"
        )
        for f in features
    ]
    kinds, num_buckets, default_keys = zip(*rules, strict=True)
    arguments = {
        **NO_OTHER_INPUTS,
        "Tkeys": [tf.int64] * len(features),
        "Trows": [tf.int64] * sum(layout != "sparse" for layout in layouts),
        "layouts": layouts,
        **more,
    }
    return fe.raw_ops.FusedEmbeddingColumnKeys(
        values=[getattr(f, "values", f) for f in features],
        row_splits=[f.row_splits for f in ragged],
        kinds=kinds,
        num_buckets=num_buckets,
        default_keys=default_keys,
        column_names=names,
        **arguments,
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


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_full_feature_has_a_value_in_each_place(data):
    dtype = data.draw(st.sampled_from([tf.int32, tf.int64, tf.string]))
    matrix = matrix_of(data.draw, dtype)
    feature = matrix if data.draw(st.booleans()) else tf.reshape(matrix, [-1])
    rule = data.draw(RULES.filter(lambda rule: dtype != tf.string or rule[0] == "hash"))
    got = column_keys([feature, feature], [rule, rule], layouts=["full", "dense"])
    width = 2 if feature.shape.rank == 2 else 1
    np.testing.assert_array_equal(got.keys[0], stock_keys(tf.reshape(matrix, [-1]), *rule))
    np.testing.assert_array_equal(got.rows[0], np.arange(tf.size(feature)) // width)
    np.testing.assert_array_equal(got.dense_shapes[0], [feature.shape[0], width])
    np.testing.assert_array_equal(got.keys[1], stock_pairs(feature, rule)[0])


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_an_index_counts_from_the_end(dtype):
    values = tf.constant([[0, -1], [4, -5], [-6, 7]], dtype)
    got = column_keys([values], [("index", 5, -1)], layouts=["full"])
    np.testing.assert_array_equal(got.keys[0], [0, 4, 4, 0, -1, 7])  # of -6: none of the five
    np.testing.assert_array_equal(got.rows[0], [0, 0, 1, 1, 2, 2])


def test_many_values_are_split_among_threads():
    values = np.random.default_rng(0).integers(-1, 10**9, [50_000, 4])
    values[1000:, :] = np.abs(values[1000:, :])  # none are missing in most ranges
    feature, rule = tf.constant(values), ("hash", 10**6, -1)
    got = column_keys([feature, feature], [rule, rule])
    keys, rows, _ = stock_pairs(feature, rule)
    for i in range(2):
        np.testing.assert_array_equal(got.keys[i], keys)
        np.testing.assert_array_equal(got.rows[i], rows)


WORDS = [b"", b"a", b"oak", b"elm", b"-1", b"a text of more than 16 bytes"]


@pytest.mark.parametrize("num_oov", [0, 1, 7])
@pytest.mark.parametrize("dtype", [tf.string, tf.int32, tf.int64])
def test_vocabularies_are_stocks(dtype, num_oov):
    values = tf.constant(WORDS * 2 if dtype == tf.string else [5, -1, 7, 0, 2**30, 3] * 2, dtype)
    kept = values[1:4] if dtype == tf.string else tf.cast(values[:3], tf.int64)
    indices = tf.constant([0, 1, 2], tf.int64)
    content = tf.lookup.KeyValueTensorInitializer(kept, indices)
    default = 4
    table = tf.lookup.StaticHashTable(content, -1 if num_oov else default)
    oracle = tf.lookup.StaticVocabularyTable(content, num_oov) if num_oov else table
    rule = ("vocabulary", num_oov, default)
    sparse = tf.SparseTensor([[i, 0] for i in range(12)], values, [12, 1])
    matrix = tf.reshape(values, [4, 3])
    tables = [table.resource_handle] * 2
    got = column_keys([sparse, matrix], [rule, rule], tables=tables)
    want = oracle.lookup(values if dtype == tf.string else tf.cast(values, tf.int64))
    np.testing.assert_array_equal(got.keys[0], want)
    is_there = (values != none_of(values)).numpy()
    np.testing.assert_array_equal(got.keys[1], want[is_there])
    np.testing.assert_array_equal(got.rows[0], np.arange(12)[is_there] // 3)


@pytest.mark.parametrize(("key", "value"), [("a", 0), (1, "a")])
def test_a_table_of_other_types_is_refused(key, value):
    types = [tf.string if isinstance(v, str) else tf.int64 for v in (key, value)]
    content = tf.lookup.KeyValueTensorInitializer([key], [value], *types)
    table = tf.lookup.StaticHashTable(content, value)
    message = f"must map int64 to int64, but it maps {types[0].name} to {types[1].name}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"user: the vocabulary {message}"):
        column_keys(
            [ONE],
            [("vocabulary", 0, -1)],
            names=["user"],
            tables=[table.resource_handle],
        )


FLOATS = st.one_of(
    st.sampled_from([0.0, 1.0, 2.5, np.inf, -np.inf, np.nan]), st.floats(-4, 4, width=32)
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(FLOATS, FLOATS), max_size=5),
    st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.5, 3.0]), max_size=5).map(sorted),
)
def test_buckets_are_stocks(rows, boundaries):
    values = tf.reshape(tf.constant(rows, tf.float32), [-1, 2])
    num_buckets = len(boundaries) + 1
    rule = ("bucketized", num_buckets, -1)
    got = column_keys([values], [rule], boundaries=boundaries)
    buckets = tf.raw_ops.Bucketize(input=values, boundaries=boundaries).numpy()
    np.testing.assert_array_equal(got.keys[0], (buckets + np.array([0, num_buckets])).reshape(-1))
    np.testing.assert_array_equal(got.rows[0], np.repeat(np.arange(len(rows)), 2))


def part_of_cross(draw, num_rows, dtype):
    """Any number of values in each row, as stock's cross takes them: a SparseTensor or a matrix."""
    value = TEXTS if dtype == tf.string else INTEGERS
    if draw(st.booleans()):
        width = draw(st.integers(1, 2))
        size = num_rows * width
        values = draw(st.lists(value, min_size=size, max_size=size))
        return tf.reshape(tf.constant(np.array(values, dtype.as_numpy_dtype)), [num_rows, width])
    rows = draw(st.lists(st.lists(value, max_size=2), min_size=num_rows, max_size=num_rows))
    flat = np.array([v for row in rows for v in row], dtype.as_numpy_dtype)
    lengths = [len(row) for row in rows]
    return tf.RaggedTensor.from_row_lengths(tf.constant(flat, dtype), lengths).to_sparse()


@st.composite
def crosses(draw):
    num_rows = draw(st.integers(0, 4))
    dtypes = draw(st.lists(st.sampled_from([tf.string, tf.int64]), min_size=2, max_size=3))
    parts = [part_of_cross(draw, num_rows, dtype) for dtype in dtypes]
    return parts, draw(st.integers(1, 1000)), draw(st.sampled_from([1, 0xDECAFCAFFE, -5]))


@settings(max_examples=150, deadline=None)
@given(crosses())
def test_crosses_are_stocks(drawn):
    parts, num_buckets, hash_key = drawn
    parts.sort(key=lambda part: isinstance(part, tf.Tensor))  # as stock's function orders them
    want = tf.sparse.cross_hashed(parts, num_buckets, hash_key)
    sparse = [part for part in parts if isinstance(part, tf.SparseTensor)]
    got = column_keys(
        [*parts, ONE],
        [("cross_part", 1, -1)] * len(parts) + [HASH],
        Tkeys=[tf.int64] * 2,
        Trows=[tf.int64] * 2,
        sparse_indices=[part.indices for part in sparse],
        sparse_shapes=[part.dense_shape for part in sparse],
        num_parts=[len(parts), 1],
        cross_num_buckets=[num_buckets],
        hash_keys=[hash_key],
    )
    np.testing.assert_array_equal(got.keys[0], want.values)
    np.testing.assert_array_equal(got.rows[0], want.indices[:, 0])
    np.testing.assert_array_equal(got.dense_shapes[0], want.dense_shape)
    np.testing.assert_array_equal(got.keys[1], stock_keys(ONE, *HASH))


@pytest.mark.parametrize(
    ("indices", "shape", "message"),
    [
        ([[1, 0], [0, 0]], [2, 1], r"ascending and below 2, but its value 1 is in row 0"),
        ([[0, 0], [2, 0]], [2, 1], r"ascending and below 2, but its value 1 is in row 2"),
        ([[-1, 0], [0, 0]], [2, 1], r"its value 0 is in row -1"),
        ([[0, 0], [2, 0]], [3, 1], r"must have as many rows, got 2 and 3"),
        (
            [[0, 0]],
            [2, 1],
            r"must be \[nnz, 2\] for nnz = 2 values and .* got shapes \[1,2\] and \[2\]",
        ),
        ([[0, 0], [1, 0]], [2, 1, 1], r"sparse_shapes \[2\], got shapes \[2,2\] and \[3\]"),
    ],
)
def test_bad_crosses_are_refused(indices, shape, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"user: .*{message}"):
        column_keys(
            [ONE, tf.SparseTensor([[0, 0], [1, 0]], ONE, [2, 1])],
            [("cross_part", 1, -1)] * 2,
            names=["user"],
            Tkeys=[tf.int64],
            Trows=[tf.int64],
            sparse_indices=[tf.constant(indices, tf.int64)],
            sparse_shapes=[tf.constant(shape, tf.int64)],
            num_parts=[2],
            cross_num_buckets=[5],
            hash_keys=[1],
        )


HASH = ("hash", 5, -1)
ONE = tf.constant([1, 2], tf.int64)
SPARSE_FLOATS = tf.SparseTensor([[0, 0]], [1.0], [1, 1])


@pytest.mark.parametrize(
    ("features", "rules", "message"),
    [
        ([tf.constant([["a"]])], [("identity", 5, -1)], "texts have no identity"),
        ([tf.constant([["a"]])], [("index", 5, -1)], "texts have no identity"),
        ([ONE], [("index", 0, -1)], "num_buckets must be at least 1, got 0"),
        ([ONE], [("hash", 0, -1)], "num_buckets must be at least 1, got 0"),
        ([ONE], [("identity", 5, 5)], "default_key must be below num_buckets = 5, got 5"),
        ([ONE], [("crossed", 5, -1)], "kind must be identity, index, hash, .* got 'crossed'"),
        ([ONE], [("vocabulary", -1, -1)], "must not be negative, got -1"),
        ([ONE], [("bucketized", 1, -1)], "the kind of float values, and of no others"),
        ([tf.constant([1.0])], [HASH], "the kind of float values, and of no others"),
        ([ONE], [("cross_part", 1, -1)], "cross_part is for features of a cross"),
        ([SPARSE_FLOATS], [("bucketized", 1, -1)], "bucketized values must be dense"),
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
            **NO_OTHER_INPUTS,
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
        {"kinds": ["vocabulary"]},
        {"sparse_indices": [tf.zeros([0, 2], tf.int64)], "sparse_shapes": [ONE]},
        {"boundaries": [1.0]},
        {"num_parts": [2]},
        {"num_parts": [0]},
        {"num_parts": [-1]},
        {"num_parts": [1, 1]},
        {"hash_keys": [1]},
        {"cross_num_buckets": [1]},
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
        fe.raw_ops.FusedEmbeddingColumnKeys(
            values=[ONE], row_splits=[], **{**NO_OTHER_INPUTS, **attrs, **changed}
        )


def test_shapes_are_known_in_a_graph():
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int64), tf.TensorSpec([7], tf.int64)])
    def shapes(dense, values):
        sparse = tf.SparseTensor(tf.zeros([7, 2], tf.int64), values, [7, 1])
        got = column_keys([dense, sparse], [HASH, HASH])
        full = column_keys([tf.ensure_shape(dense, [4, 3])], [HASH], layouts=["full"])
        assert full.keys[0].shape.as_list() == [12]
        assert got.keys[0].shape.as_list() == [None]
        assert got.keys[1].shape.as_list() == [7]
        assert got.rows[0].shape.as_list() == [None]
        assert got.dense_shapes[0].shape.as_list() == [2]
        return got.keys[0]

    assert shapes.get_concrete_function() is not None
