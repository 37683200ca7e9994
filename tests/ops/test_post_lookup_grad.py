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


def run(version, batch, options, table, dtype=tf.float64, weight_dtype=tf.float64):
    """The op's gradient rows by shard, and those of the oracle."""
    top_grad = tf.cast(
        np.random.default_rng(3).standard_normal((batch.num_rows, table.shape[1])), dtype
    )
    inputs, out = stages.post_lookup(version, batch, options, table, dtype, weight_dtype)
    got = stages.post_lookup_grad(version, inputs, options, out.feature_nums, top_grad)
    got = [got] if isinstance(got, tf.Tensor) else list(getattr(got, "grad_shards", got))
    want = stages.want_shard_grads(version, batch, options, table, top_grad, weight_dtype)
    return got, want


def assert_matches_oracle(version, batch, options, table, *dtypes):
    got, want = run(version, batch, options, table, *dtypes)
    assert len(got) == options.num_shards
    for p, (g, w) in enumerate(zip(got, want, strict=True)):
        # Of a clipped embedding the part along it goes: with one value, all of about 1.
        scale = 0.0 if options.max_norm is None else 1.0
        assert_close(g, w, terms=4 * len(batch.ids) + 12, err_msg=f"shard {p}", scale=scale)


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


@pytest.mark.parametrize("version", VERSIONS)
def test_max_norm_at_the_tie(version):
    """||(3, 4)|| = 5 = max_norm: the derivative has the projection term, as TensorFlow's."""
    table = np.zeros((stages.NUM_IDS, 2))
    table[1] = [3.0, 4.0]
    batch, options = Batch([1], [0], 1, [1.0]), Options("sum", max_norm=5.0)
    inputs, out = stages.post_lookup(version, batch, options, table)
    got = stages.post_lookup_grad(
        version, inputs, options, out.feature_nums, np.array([[1.0, 0.0]])
    )
    np.testing.assert_allclose(got[0], [[16 / 25, -12 / 25]])


@pytest.mark.parametrize("version", VERSIONS)
def test_zero_embedding_under_max_norm(version):
    table = np.zeros((stages.NUM_IDS, 3))
    got, _ = run(version, Batch([1], [0], 1, [1.0]), Options("sum"), table)
    clipped, _ = run(version, Batch([1], [0], 1, [1.0]), Options("sum", max_norm=1.0), table)
    np.testing.assert_array_equal(clipped[0], got[0])


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


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 129, 1025])
@pytest.mark.parametrize("version", VERSIONS)
def test_dims(version, dim):
    for dtype in VALUE_DTYPES:
        options = Options("mean", 1.0 if dim % 2 else None, None, 1 + dim % 2)
        assert_matches_oracle(
            version, BATCHES["duplicates"], options, stages.make_table(dim, dtype), dtype
        )


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=dtype_name)
def test_16_bit_sums_duplicates_in_float32(dtype):
    """One id in 2049 rows: 1 + 2048 small gradients."""
    num, small = 2049, 2.0**-9
    top_grad = np.full((num, 1), small)
    top_grad[0] = 1.0
    batch = Batch([1] * num, list(range(num)), num, [1.0] * num)
    options, table = Options("sum"), np.ones((stages.NUM_IDS, 1))
    inputs, out = stages.post_lookup("v2", batch, options, table, dtype)
    top_grad = tf.cast(top_grad, dtype)
    got = stages.post_lookup_grad("v2", inputs, options, out.feature_nums, top_grad)
    assert np.asarray(got[0]).item() == 5.0


@hypothesis.given(
    version=st.sampled_from(VERSIONS),
    batch=strategies.batches(),
    options=strategies.options(),
    dim=st.integers(1, 9),
)
def test_matches_oracle_on_random_input(version, batch, options, dim):
    assert_matches_oracle(version, batch, options, stages.make_table(dim))


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_registered_gradient_equals_finite_differences(version, combiner, max_norm):
    options = Options(combiner, max_norm, 2, is_weighted=True)
    batch = BATCHES["first_and_last_row_empty"]
    inputs, _ = stages.post_lookup(version, batch, options, stages.make_table())
    weights = np.array([[1.0, -2.0, 0.5]])

    def loss(rows):
        changed = inputs | {"emb_shards": [rows]}
        if version == "v1":
            out = fe.raw_ops.FusedEmbeddingSparsePostLookUp(**changed, **options.attrs())
        else:
            out = fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(**changed, **stages.v2_attrs(options))
        return tf.reduce_sum(out.emb_vectors * weights)

    theoretical, numerical = tf.test.compute_gradient(loss, [inputs["emb_shards"][0]])
    np.testing.assert_allclose(theoretical[0], numerical[0], atol=1e-6)


# What is changed of valid inputs of two shards, and what the error names.
MALFORMED_V2 = {
    "row_too_large": (
        {"indices_before_unique": int64([2, 0], [0, 0], [1, 0])},
        r"indices_before_unique\[0, 0\] = 2",
    ),
    "row_negative": ({"indices_before_unique": int64([0, 0], [-1, 0], [1, 0])}, "= -1"),
    "unique_idx_too_large": ({"unique_idxs": int32(0, 1, 3)}, "unique_idxs"),
    "unique_idx_negative": ({"unique_idxs": int32(0, -1, 1)}, "unique_idxs"),
    "too_few_unique_idxs": ({"unique_idxs": int32(0, 1)}, "unique_idxs"),
    "shard_too_large": ({"partition_permutation": int32([2, 0], [1, 0], [0, 1])}, "permutation"),
    "position_too_large": (
        {"partition_permutation": int32([0, 2], [1, 0], [0, 1])},
        "permutation",
    ),
    "other_dim_of_top_grad": ({"top_grad": np.ones((2, 4))}, "top_grad"),
    "too_few_rows_of_top_grad": ({"top_grad": np.ones((1, 3))}, r"top_grad|is_row_empty"),
    "top_grad_of_rank_1": ({"top_grad": np.ones(3)}, "top_grad"),
    "other_dim": ({"emb_shards": [np.ones((2, 3)), np.ones((1, 4))]}, "emb_shards"),
    "is_row_empty_too_short": ({"is_row_empty": np.zeros(1, bool)}, "is_row_empty"),
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
        "top_grad": np.ones((2, 3)),
        "emb_shards": [np.ones((2, 3)), np.ones((1, 3))],
        "partition_permutation": np.array([[0, 0], [1, 0], [0, 1]], np.int32),
        "feature_nums": np.array([2, 1], np.int32),
        "indices_before_unique": np.array([[0, 0], [0, 1], [1, 0]]),
        "unique_idxs": np.array([0, 1, 2], np.int32),
        "is_row_empty": np.zeros(2, bool),
        "combiner": "mean",
        "fill_empty_row": True,
    }
    fe.raw_ops.FusedEmbeddingSparsePostLookUpV2Grad(**inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fe.raw_ops.FusedEmbeddingSparsePostLookUpV2Grad(**(inputs | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"partitioned_indices": [np.array([[0, 0], [2, 0]]), np.array([[1, 0]])]},
            r"concat\(partitioned_indices\)\[1, 0\] = 2 is outside \[0, num_rows = 2\)",
        ),
        (
            {"partitioned_indices": [np.array([[0, 0], [-1, 0]]), np.array([[1, 0]])]},
            r"concat\(partitioned_indices\)\[1, 0\] = -1 is outside",
        ),
        ({"partitioned_indices": [np.array([[0, 0]])] * 2}, "partitioned_indices|emb_shards"),
        ({"top_grad": np.ones((2, 4))}, "top_grad"),
        ({"row_empty_and_invalid_flags": np.zeros(1, np.int32)}, "row_empty_and_invalid_flags"),
        ({"partitioned_weights": [np.ones(1), np.ones(1)]}, "partitioned_weights"),
    ],
)
def test_v1_rejects(device, change, message):
    if "is outside" in message:
        needs_check_of_pairs(device)
    inputs = {
        "top_grad": np.ones((2, 3)),
        "emb_shards": [np.ones((2, 3)), np.ones((1, 3))],
        "partitioned_indices": [np.array([[0, 0], [0, 1]]), np.array([[1, 0]])],
        "feature_nums": np.array([2, 1], np.int32),
        "row_empty_and_invalid_flags": np.array([0, 0, 1, 1, 1], np.int32),
        "combiner": "mean",
    }
    fe.raw_ops.FusedEmbeddingSparsePostLookUpGrad(**inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fe.raw_ops.FusedEmbeddingSparsePostLookUpGrad(**(inputs | change))


@pytest.mark.parametrize("shape", [[None, 3], [5, 3], None])
def test_shapes(shape):
    def backward(top_grad, shard):
        return fe.raw_ops.FusedEmbeddingSparsePostLookUpV2Grad(
            top_grad=top_grad,
            emb_shards=[shard],
            partition_permutation=np.zeros([1, 2], np.int32),
            feature_nums=np.zeros([2], np.int32),
            indices_before_unique=np.zeros([1, 2], np.int64),
            unique_idxs=np.zeros([1], np.int32),
            is_row_empty=np.zeros([2], bool),
            combiner="sum",
        )

    specs = [tf.TensorSpec([2, None], tf.float32), tf.TensorSpec(shape, tf.float32)]
    got = tf.function(backward).get_concrete_function(*specs).outputs[0].shape
    assert got.rank in (None, 2)
    if shape is not None:
        assert got.as_list() == shape
