import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import fused_embedding as fe
import oracle.lookup
import stages
import strategies
from checking import VALUE_DTYPES, assert_close, dtype_name, int32, int64, needs_check_of_pairs
from stages import BATCHES, VERSIONS, Batch, Options

pytestmark = pytest.mark.usefixtures("device")


def assert_matches_oracle(
    version, batch, options, table, dtype=tf.float64, weight_dtype=tf.float64
):
    _, got = stages.post_lookup(version, batch, options, table, dtype, weight_dtype)
    combined, counts = stages.want_post_lookup(batch, options, table, weight_dtype)
    assert_close(got.emb_vectors, combined, terms=2 * len(batch.ids) + 4)
    np.testing.assert_array_equal(got.feature_nums, counts)


@pytest.mark.parametrize("is_weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("default_id", [None, 0, 9])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("version", VERSIONS)
def test_matches_oracle(version, batch, combiner, default_id, is_weighted):
    options = Options(combiner, None, default_id, is_weighted=is_weighted)
    assert_matches_oracle(version, batch, options, stages.make_table())


@pytest.mark.parametrize("max_norm", [None, 0.5, 1.5, 1e6])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize(
    ("num_shards", "strategy"), strategies.SHARDS.values(), ids=strategies.SHARDS.keys()
)
@pytest.mark.parametrize("version", VERSIONS)
def test_max_norm_and_shards(version, num_shards, strategy, combiner, max_norm):
    for is_weighted in (False, True):
        options = Options(combiner, max_norm, None, num_shards, strategy, is_weighted)
        assert_matches_oracle(version, BATCHES["duplicates"], options, stages.make_table())


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("weight_dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("version", VERSIONS)
def test_dtypes(version, dtype, weight_dtype, max_norm):
    batch = Batch([1, 2, 3, 1, 9], [0, 0, 0, 1, 2], 4, [0.3, 1.7, 2.2, 0.1, 5.0])
    for combiner in oracle.lookup.COMBINERS:
        options = Options(combiner, max_norm, None, 2, "div", is_weighted=True)
        table = stages.make_table(5, dtype)
        assert_matches_oracle(version, batch, options, table, dtype, weight_dtype)


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 128, 129, 1025])
@pytest.mark.parametrize("version", VERSIONS)
def test_dims(version, dim, dtype):
    options = Options("mean", 1.0 if dim % 2 else None, None, 1 + dim % 2)
    table = stages.make_table(dim, dtype)
    assert_matches_oracle(version, BATCHES["duplicates"], options, table, dtype)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=dtype_name)
@pytest.mark.parametrize("version", VERSIONS)
def test_16_bit_rounds_once(version, dtype):
    """1 + 2048 small terms: rounding at each addition would lose every one of them."""
    num = 2049
    small = float(tf.cast(2.0**-9, dtype))
    table = np.full((stages.NUM_IDS, 1), small)
    table[0] = 1.0
    batch = Batch([0] + [1] * (num - 1), [0] * num, 1, [1.0] * num)
    _, got = stages.post_lookup(version, batch, Options("sum"), table, dtype)
    assert got.emb_vectors.numpy().item() == 5.0


@pytest.mark.parametrize("version", VERSIONS)
def test_16_bit_sums_beyond_its_range(version):
    """The sum overflows float16, the mean does not."""
    table = np.full((stages.NUM_IDS, 2), 60000.0)
    options = Options("mean")
    _, got = stages.post_lookup(version, BATCHES["duplicates"], options, table, tf.float16)
    want = np.float16(60000.0)
    np.testing.assert_array_equal(got.emb_vectors, np.full((2, 2), want))


@pytest.mark.parametrize("version", VERSIONS)
def test_max_norm_of_long_16_bit_rows(version):
    """||e||^2 overflows float16; the norm is taken in float32."""
    table = np.full((stages.NUM_IDS, 16), 1000.0)
    batch = Batch([1], [0], 1, [1.0])
    options = Options("sum", max_norm=4.0)
    _, got = stages.post_lookup(version, batch, options, table, tf.float16)
    np.testing.assert_array_equal(got.emb_vectors, np.ones((1, 16)))


@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_nan_and_infinite_weights_reach_the_row(version, combiner):
    batch = Batch([1, 2, 3], [0, 1, 2], 3, [np.nan, np.inf, 1.0])
    options = Options(combiner, is_weighted=True)
    _, got = stages.post_lookup(version, batch, options, stages.make_table())
    rows = got.emb_vectors.numpy()
    assert np.isnan(rows[0]).all()
    assert not np.isfinite(rows[1]).any()
    assert np.isfinite(rows[2]).all()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_nan_embedding_stays_in_its_row(version):
    table = stages.make_table()
    table[3] = np.nan
    batch = Batch([1, 3, 2], [0, 1, 2], 3, [1.0] * 3)
    _, got = stages.post_lookup(version, batch, Options("mean", max_norm=1.0), table)
    np.testing.assert_array_equal(np.isnan(got.emb_vectors.numpy()).any(axis=1), [0, 1, 0])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_zero_embedding_under_max_norm(version):
    table = np.zeros((stages.NUM_IDS, 3))
    _, got = stages.post_lookup(version, Batch([1], [0], 1, [1.0]), Options(max_norm=1.0), table)
    np.testing.assert_array_equal(got.emb_vectors, np.zeros((1, 3)))


@hypothesis.given(
    version=st.sampled_from(VERSIONS),
    batch=strategies.batches(),
    options=strategies.options(),
    dim=st.integers(1, 9),
)
def test_matches_oracle_on_random_input(version, batch, options, dim):
    assert_matches_oracle(version, batch, options, stages.make_table(dim))


def test_v2_without_filling_leaves_empty_rows_zero():
    inputs = stages.v2_inputs(Batch([1, 2], [0, 2], 3, [1.0, 1.0]), Options(), stages.make_table())
    keep = inputs["indices_before_unique"][:, 0] != 1  # drop the filled pair
    table = stages.make_table()
    inputs |= {
        "emb_shards": [table[[1, 2]]],
        "partition_permutation": np.array([[0, 0], [0, 1]], np.int32),
        "indices_before_unique": inputs["indices_before_unique"][keep],
        "unique_idxs": np.array([0, 1], np.int32),
    }
    for default_id in (-1, 4):
        got = fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(
            **inputs, combiner="mean", fill_empty_row=False, default_id=default_id
        )
        np.testing.assert_array_equal(got.emb_vectors, [table[1], np.zeros(3), table[2]])


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_zero_denominator_gives_zero_whatever_the_embeddings_are(combiner):
    table = tf.constant([[np.nan, 1.0], [np.inf, 2.0]])
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([0, 1, 1], tf.int64), [2, 2])
    weights = tf.SparseTensor(ids.indices, tf.constant([0.0, 0.0, 1.0]), [2, 2])
    want = tf.nn.embedding_lookup_sparse(table, ids, weights, combiner=combiner)
    got = fe.nn.embedding_lookup_sparse(table, ids, weights, combiner=combiner)
    np.testing.assert_array_equal(got, [[0, 0], [np.inf, 2]])
    np.testing.assert_array_equal(got, want)


def run_v2(rows, **attrs):
    """Ids 0, 1, ... of a table of ones, in the given rows."""
    return fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(
        emb_shards=[np.ones((len(rows), 2))],
        partition_permutation=np.zeros((0, 2), np.int32),
        sp_dense_shape=int64(7, 1),
        indices_before_unique=np.array([[row, 0] for row in rows], np.int64).reshape(-1, 2),
        is_row_empty=np.zeros(0, bool),
        unique_idxs=np.arange(len(rows), dtype=np.int32),
        combiner="sum",
        **attrs,
    )


@pytest.mark.parametrize("rows", [[], [0], [0, 0, 2], [3], [9]])
def test_rows_end_at_last_id(rows):
    got = run_v2(rows, rows_end_at_last_id=True)
    want = np.bincount(rows, minlength=0) if rows else np.zeros(0)
    np.testing.assert_array_equal(got.feature_nums, want)
    np.testing.assert_array_equal(got.emb_vectors, np.stack([want, want], axis=1))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([2, 1], r"indices_before_unique\[1, 0\] = 1 follows 2; call tf.sparse.reorder first"),
        ([0, -1], r"indices_before_unique\[1, 0\] = -1"),
        ([-5], r"indices_before_unique\[0, 0\] = -5"),
    ],
)
def test_rows_end_at_last_id_rejects(rows, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run_v2(rows, rows_end_at_last_id=True)


@pytest.mark.parametrize("row", [2**62, 2**63 - 1])
def test_rows_end_at_last_id_with_more_rows_than_memory(row):
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)):
        run_v2([0, row], rows_end_at_last_id=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_rejects_partition_axis_other_than_0(version):
    inputs, _ = stages.post_lookup(version, BATCHES["one_pair"], Options(), stages.make_table())
    name = {"v1": "FusedEmbeddingSparsePostLookUp", "v2": "FusedEmbeddingSparsePostLookUpV2"}
    with pytest.raises(
        (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError), match="partition_axis"
    ):
        getattr(fe.raw_ops, name[version])(**inputs, combiner="sum", partition_axis=1)


# What is changed of valid inputs of two shards, and what the error names.
MALFORMED_V2 = {
    "row_too_large": (
        {"indices_before_unique": int64([2, 0], [0, 0], [1, 0])},
        r"indices_before_unique\[0, 0\] = 2",
    ),
    "row_negative": ({"indices_before_unique": int64([0, 0], [-1, 0], [1, 0])}, "= -1"),
    "row_int64_min": (
        {"indices_before_unique": int64([0, 0], [-(2**63), 0], [1, 0])},
        "-9223372036854775808",
    ),
    "unique_idx_too_large": ({"unique_idxs": int32(0, 1, 3)}, "unique_idxs"),
    "unique_idx_negative": ({"unique_idxs": int32(0, -1, 1)}, "unique_idxs"),
    "too_few_unique_idxs": ({"unique_idxs": int32(0, 1)}, "unique_idxs"),
    "shard_too_large": (
        {"partition_permutation": int32([2, 0], [1, 0], [0, 1])},
        "partition_permutation",
    ),
    "shard_negative": (
        {"partition_permutation": int32([-1, 0], [1, 0], [0, 1])},
        "partition_permutation",
    ),
    "position_too_large": (
        {"partition_permutation": int32([0, 2], [1, 0], [0, 1])},
        "partition_permutation",
    ),
    "position_negative": (
        {"partition_permutation": int32([0, -1], [1, 0], [0, 1])},
        "partition_permutation",
    ),
    "permutation_of_rank_1": (
        {"partition_permutation": int32(0, 1)},
        "partition_permutation",
    ),
    "negative_num_rows": ({"sp_dense_shape": int64(-1, 3)}, "sp_dense_shape"),
    "no_num_rows": ({"sp_dense_shape": int64()}, "sp_dense_shape"),
    "is_row_empty_too_short": ({"is_row_empty": np.zeros(1, bool)}, "is_row_empty"),
    "other_dim": ({"emb_shards": [np.ones((2, 3)), np.ones((1, 4))]}, "emb_shards"),
    "shard_of_rank_1": ({"emb_shards": [np.ones(2), np.ones(1)]}, "emb_shards"),
    "too_few_weights": (
        {"sp_weights_values": np.ones(2), "use_sparse_weights": True},
        "sp_weights_values",
    ),
}


@pytest.mark.parametrize("name", MALFORMED_V2)
def test_v2_rejects(device, name):
    if name.startswith(("row_", "unique_idx_")):
        needs_check_of_pairs(device)
    change, message = MALFORMED_V2[name]
    inputs = {
        "emb_shards": [np.ones((2, 3)), np.ones((1, 3))],
        "partition_permutation": np.array([[0, 0], [1, 0], [0, 1]], np.int32),
        "sp_dense_shape": np.array([2, 9]),
        "indices_before_unique": np.array([[0, 0], [0, 1], [1, 0]]),
        "is_row_empty": np.zeros(2, bool),
        "unique_idxs": np.array([0, 1, 2], np.int32),
        "combiner": "sum",
        "fill_empty_row": True,
    }
    fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(**inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(**(inputs | change))


@pytest.mark.gpu
def test_pairs_that_do_not_exist_are_left_out_on_a_gpu():
    pairs = {
        "emb_shards": [np.array([[1.0, 2.0], [10.0, 20.0]])],
        "partition_permutation": np.zeros((0, 2), np.int32),
        "indices_before_unique": int64([0, 0], [2, 0], [-1, 0], [1, 0], [1, 0], [1, 0]),
        "is_row_empty": np.zeros(2, bool),
        "unique_idxs": int32(0, 1, 1, 2, -1, 1),
        "combiner": "mean",
    }
    with tf.device("/GPU:0"):
        got = fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(**pairs, sp_dense_shape=int64(2, 9))
        grads = fe.raw_ops.FusedEmbeddingSparsePostLookUpV2Grad(
            **pairs, top_grad=np.ones((2, 2)), feature_nums=got.feature_nums
        )
    np.testing.assert_array_equal(got.emb_vectors, [[1, 2], [10, 20]])
    np.testing.assert_array_equal(got.feature_nums, [1, 1])
    np.testing.assert_array_equal(grads[0], np.ones((2, 2)))


# What is changed of valid inputs of two shards, and what the error names.
MALFORMED_V1 = {
    "row_too_large": (
        {"partitioned_indices": [int64([0, 0], [2, 0]), int64([1, 0])]},
        r"concat\(partitioned_indices\)\[1, 0\] = 2 is outside \[0, num_rows = 2\)",
    ),
    "row_negative": (
        {"partitioned_indices": [int64([0, 0], [-1, 0]), int64([1, 0])]},
        r"concat\(partitioned_indices\)\[1, 0\] = -1 is outside",
    ),
    "other_length": (
        {"partitioned_indices": [int64([0, 0]), int64([1, 0])]},
        "partitioned_indices|emb_shards",
    ),
    "other_dim": ({"emb_shards": [np.ones((2, 3)), np.ones((1, 4))]}, "emb_shards"),
    "too_few_flags": (
        {"row_empty_and_invalid_flags": np.zeros(1, np.int32)},
        "row_empty_and_invalid_flags",
    ),
    "negative_num_rows": ({"sp_dense_shape": int64(-1, 3)}, "sp_dense_shape"),
    "too_few_weights": (
        {"partitioned_weights": [np.ones(1), np.ones(1)]},
        "partitioned_weights",
    ),
}


@pytest.mark.parametrize("name", MALFORMED_V1)
def test_v1_rejects(device, name):
    if name.startswith("row_"):
        needs_check_of_pairs(device)
    change, message = MALFORMED_V1[name]
    inputs = {
        "emb_shards": [np.ones((2, 3)), np.ones((1, 3))],
        "partitioned_indices": [np.array([[0, 0], [0, 1]]), np.array([[1, 0]])],
        "sp_dense_shape": np.array([2, 9]),
        "row_empty_and_invalid_flags": np.array([0, 0, 1, 1, 1], np.int32),
        "partitioned_values": [np.array([0, 1]), np.array([0])],
        "combiner": "sum",
    }
    fe.raw_ops.FusedEmbeddingSparsePostLookUp(**inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fe.raw_ops.FusedEmbeddingSparsePostLookUp(**(inputs | change))


@pytest.mark.parametrize("version", VERSIONS)
def test_rejects_an_unknown_combiner(version):
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="combiner"):
        stages.post_lookup(version, BATCHES["one_pair"], Options("max"), stages.make_table())


@pytest.mark.parametrize(("dim", "num_rows"), [(None, None), (3, None), (3, 7)])
@pytest.mark.parametrize("version", VERSIONS)
def test_shapes(version, dim, num_rows):
    shape = None if num_rows is None else tf.constant([num_rows, 4], tf.int64)

    def forward(shard, dense_shape):
        dense_shape = dense_shape if shape is None else shape
        pairs = tf.shape(shard, tf.int64)[0]
        indices = tf.zeros(tf.stack([pairs, 2]), tf.int64)
        if version == "v1":
            return fe.raw_ops.FusedEmbeddingSparsePostLookUp(
                emb_shards=[shard],
                partitioned_indices=[indices],
                sp_dense_shape=dense_shape,
                row_empty_and_invalid_flags=tf.zeros([5], tf.int32),
                partitioned_values=[tf.zeros([pairs], tf.int64)],
                combiner="sum",
            )
        return fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(
            emb_shards=[shard],
            partition_permutation=tf.zeros(tf.stack([pairs, 2]), tf.int32),
            sp_dense_shape=dense_shape,
            indices_before_unique=indices,
            is_row_empty=tf.zeros([tf.cast(dense_shape[0], tf.int32)], tf.bool),
            unique_idxs=tf.zeros([pairs], tf.int32),
            combiner="sum",
        )

    specs = [tf.TensorSpec([None, dim], tf.float32), tf.TensorSpec([2], tf.int64)]
    traced = tf.function(lambda *args: tuple(forward(*args)))
    got = traced.get_concrete_function(*specs).structured_outputs
    assert [o.shape.as_list() for o in got] == [[num_rows, dim], [num_rows]]
