import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import fused_embedding as fe
import oracle.lookup
import stages
import strategies
from checking import VALUE_DTYPES, dtype_name
from stages import BATCHES, VERSIONS, Batch, Options

pytestmark = pytest.mark.usefixtures("device")


def forward(version, inputs, options):
    """The combined rows."""
    if version == "v1":
        return fe.raw_ops.FusedEmbeddingSparsePostLookUp(**inputs, **options.attrs()).emb_vectors
    attrs = stages.v2_attrs(options)
    return fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(**inputs, **attrs).emb_vectors


def weights_of(version, inputs):
    """Weights in shard order: what the gradient is taken with respect to."""
    return inputs["partitioned_weights"] if version == "v1" else [inputs["sp_weights_values"]]


def with_weights(version, inputs, weights):
    name = "partitioned_weights" if version == "v1" else "sp_weights_values"
    return inputs | {name: weights if version == "v1" else weights[0]}


def assert_matches_oracle(
    version, batch, options, table, dtype=tf.float64, weight_dtype=tf.float64
):
    inputs, _ = stages.post_lookup(version, batch, options, table, dtype, weight_dtype)
    weights = weights_of(version, inputs)
    top_grad = np.random.default_rng(5).standard_normal((batch.num_rows, table.shape[1]))
    top_grad = tf.cast(top_grad, dtype)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        out = forward(version, with_weights(version, inputs, weights), options)
    got = tape.gradient(out, weights, output_gradients=top_grad)

    pairs = options.pairs(batch)
    rounded = tf.cast(pairs.weights, weight_dtype).numpy().astype(np.float64)
    is_zero = oracle.lookup.is_zero_row(pairs, options.default_id)
    masked = np.where(is_zero, 0.0, top_grad.numpy().astype(np.float64))
    want = oracle.lookup.post_lookup_weights_grad(
        masked,
        table[pairs.ids],
        pairs.indices[:, 0],
        options.combiner,
        rounded,
        options.max_norm,
    )
    if version == "v1":
        shard_rows = [len(s) for s in stages.shards_of(table, options)]
        _, permutation = oracle.lookup.partition(pairs.ids, shard_rows, options.strategy)
        want = stages.routed(want, permutation, options.num_shards)
    else:
        want = [want]
    # A weight's gradient is a difference of dot products that may cancel.
    eps = max(np.finfo(np.float32).eps if d != tf.float64 else 2.0**-52 for d in (dtype,))
    scale = 64 * eps * (1 + max((np.abs(w).max(initial=0) for w in want), default=0))
    for g, w in zip(got, want, strict=True):
        assert g.dtype == weight_dtype
        step = {tf.float16: 2.0**-10, tf.bfloat16: 2.0**-7, tf.float32: 2.0**-22}
        rtol = max(step.get(weight_dtype, 0.0), 64 * eps)
        np.testing.assert_allclose(g.numpy().astype(np.float64), w, rtol=rtol, atol=scale * 8)


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("default_id", [None, 9])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("version", VERSIONS)
def test_matches_oracle(version, batch, combiner, default_id, max_norm):
    options = Options(combiner, max_norm, default_id, is_weighted=True)
    assert_matches_oracle(version, batch, options, stages.make_table())


@pytest.mark.parametrize(("num_shards", "strategy"), [(3, "div"), (4, "mod")])
@pytest.mark.parametrize("version", VERSIONS)
def test_shards(version, num_shards, strategy):
    for combiner in oracle.lookup.COMBINERS:
        options = Options(combiner, 1.0, None, num_shards, strategy, is_weighted=True)
        assert_matches_oracle(version, BATCHES["duplicates"], options, stages.make_table())


@pytest.mark.parametrize("weight_dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("version", VERSIONS)
def test_dtypes(version, dtype, weight_dtype):
    batch = Batch([1, 2, 3, 1, 9], [0, 0, 0, 1, 2], 4, [0.3, 1.7, 2.2, 0.1, 5.0])
    for combiner in oracle.lookup.COMBINERS:
        options = Options(combiner, None, None, is_weighted=True)
        table = stages.make_table(5, dtype)
        assert_matches_oracle(version, batch, options, table, dtype, weight_dtype)


@pytest.mark.parametrize("dim", [1, 7, 8, 16, 17, 33, 64, 129])
@pytest.mark.parametrize("version", VERSIONS)
def test_dims(version, dim):
    options = Options("mean", 1.0, None, is_weighted=True)
    assert_matches_oracle(version, BATCHES["duplicates"], options, stages.make_table(dim))


@hypothesis.given(
    version=st.sampled_from(VERSIONS),
    batch=strategies.batches(),
    options=strategies.options(),
    dim=st.integers(1, 9),
)
def test_matches_oracle_on_random_input(version, batch, options, dim):
    assert_matches_oracle(
        version, batch, options._replace(is_weighted=True), stages.make_table(dim)
    )


@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_row_flagged_empty_is_zero_and_passes_no_gradient(version, combiner):
    """Whatever its pairs are: here two, of different weights."""
    batch = Batch([1, 2, 3], [0, 0, 1], 2, [0.5, 3.0, 1.0])
    options = Options(combiner, is_weighted=True)
    inputs, _ = stages.post_lookup(version, batch, options, stages.make_table())
    if version == "v1":
        inputs["row_empty_and_invalid_flags"] = np.array([1, 0, 1, 1, 1], np.int32)
    else:
        inputs["is_row_empty"] = np.array([True, False])
    weights = weights_of(version, inputs)
    with tf.GradientTape() as tape:
        tape.watch([weights, inputs["emb_shards"]])
        out = forward(version, with_weights(version, inputs, weights), options)
    weights_grad, shards_grad = tape.gradient(out, [weights, inputs["emb_shards"]])
    np.testing.assert_array_equal(out[0], np.zeros(3))
    assert np.any(out[1])
    np.testing.assert_array_equal(weights_grad[0][:2], np.zeros(2))
    np.testing.assert_array_equal(shards_grad[0][:2], np.zeros((2, 3)))
    assert np.any(shards_grad[0][2])


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_equals_finite_differences(version, combiner, max_norm):
    options = Options(combiner, max_norm, 2, is_weighted=True)
    batch = BATCHES["rows_in_any_order"]
    inputs, _ = stages.post_lookup(version, batch, options, stages.make_table())
    direction = np.array([[1.0, -2.0, 0.5]])

    def loss(weights):
        out = forward(version, with_weights(version, inputs, [weights]), options)
        return tf.reduce_sum(out * direction)

    theoretical, numerical = tf.test.compute_gradient(loss, [weights_of(version, inputs)[0]])
    np.testing.assert_allclose(theoretical[0], numerical[0], atol=1e-6)
