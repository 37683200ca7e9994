import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import fused_embedding as fe
import oracle.lookup
from checking import VALUE_DTYPES, assert_same_bits, dtype_name
from stages import BATCHES, INT64_MAX, INT64_MIN, SHAPE_ERROR

pytestmark = pytest.mark.usefixtures("device")

SWITCHES = {
    "prune_and_fill": {"prune": True, "fill_empty_row": True},
    "prune": {"prune": True},
    "fill": {"fill_empty_row": True},
    "neither": {},
}


def run(ids, indices, num_rows, weights=None, **attrs):
    if weights is not None:
        attrs |= {"sp_weights_values": weights, "use_sparse_weights": True}
    return fe.raw_ops.PruneInvalidAndFillEmptyRows(
        sp_values=np.asarray(ids, np.int64),
        sp_indices=np.asarray(indices, np.int64).reshape(-1, 2),
        sp_dense_shape=np.array([num_rows, 5], np.int64),
        **attrs,
    )


def assert_matches_oracle(ids, indices, num_rows, weights=None, dtype=tf.float64, **attrs):
    values = None if weights is None else tf.cast(weights, dtype)
    got = run(ids, indices, num_rows, values, **attrs)
    want = oracle.lookup.prune_and_fill(
        ids,
        indices,
        num_rows,
        None if weights is None else values.numpy().astype(np.float64),
        prune=attrs.get("prune", False),
        fill=attrs.get("fill_empty_row", False),
        prune_weights=attrs.get("prune_sparse_weights", False),
        default_id=attrs.get("default_id", -1),
        default_weight=attrs.get("default_weight", 1.0),
    )
    np.testing.assert_array_equal(got.sp_values_out, want.ids, "ids")
    np.testing.assert_array_equal(got.sp_indices_out, want.indices, "indices")
    np.testing.assert_array_equal(got.is_row_empty, want.is_row_empty, "is_row_empty")
    if weights is not None:
        assert_same_bits(got.sp_weights_values_out, tf.cast(want.weights, dtype), "weights")


@pytest.mark.parametrize("default_id", [-1, 0, 11, INT64_MAX])
@pytest.mark.parametrize("attrs", SWITCHES.values(), ids=SWITCHES.keys())
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_matches_oracle(batch, attrs, default_id):
    indices = oracle.lookup.as_indices(batch.row_ids)
    assert_matches_oracle(batch.ids, indices, batch.num_rows, default_id=default_id, **attrs)


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("prune_sparse_weights", [False, True])
@pytest.mark.parametrize("attrs", SWITCHES.values(), ids=SWITCHES.keys())
def test_weights_match_oracle(attrs, prune_sparse_weights, dtype):
    weights = [0.5, -1.0, 0.0, np.nan, 2.0, -0.0, np.inf]
    ids, row_ids = [3, 4, 5, 6, -1, 0, 9], [0, 0, 1, 2, 2, 4, 5]
    attrs = attrs | {"prune_sparse_weights": prune_sparse_weights, "default_weight": 1.75}
    assert_matches_oracle(ids, oracle.lookup.as_indices(row_ids), 7, weights, dtype, **attrs)


@pytest.mark.parametrize("prune", [False, True])
def test_extreme_ids_and_columns(prune):
    ids = [INT64_MAX, INT64_MIN, 0, -1]
    indices = [[2, INT64_MAX], [1, INT64_MIN], [0, -1], [1, 0]]
    assert_matches_oracle(ids, indices, 3, prune=prune, fill_empty_row=True)


@hypothesis.given(data=st.data(), num_rows=st.integers(1, 8))
def test_matches_oracle_on_random_input(data, num_rows):
    row_ids = data.draw(st.lists(st.integers(0, num_rows - 1), max_size=20))
    size = {"min_size": len(row_ids), "max_size": len(row_ids)}
    ids = data.draw(st.lists(st.integers(-2, 5) | st.integers(INT64_MIN, INT64_MAX), **size))
    columns = data.draw(st.lists(st.integers(INT64_MIN, INT64_MAX), **size))
    weights = data.draw(st.none() | st.lists(st.floats(-2, 2, width=32), **size))
    attrs = data.draw(
        st.fixed_dictionaries(
            {name: st.booleans() for name in ("prune", "fill_empty_row")}
            | {"default_id": st.integers(-5, 2**40), "default_weight": st.sampled_from([1.0, 0.25])}
        )
    )
    attrs["prune_sparse_weights"] = weights is not None and data.draw(st.booleans())
    indices = np.array([*zip(row_ids, columns, strict=True)], np.int64).reshape(-1, 2)
    assert_matches_oracle(ids, indices, num_rows, weights, **attrs)


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_gradient_of_weights(dtype):
    weights = tf.constant([1.0, 2.0, -3.0, 4.0], dtype)
    top_grad = tf.constant([5.0, 6.0, 7.0, 8.0], dtype)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        out = run(
            [5, -1, 2, 3],
            [[0, 0], [0, 1], [1, 0], [3, 0]],
            4,
            weights,
            prune=True,
            prune_sparse_weights=True,
            fill_empty_row=True,
        ).sp_weights_values_out
        loss = tf.reduce_sum(out * top_grad)
    np.testing.assert_array_equal(tape.gradient(loss, weights), [5.0, 0.0, 0.0, 6.0])


@pytest.mark.parametrize(
    ("ids", "indices", "dense_shape", "message"),
    [
        ([1], [[2, 0]], [2, 5], r"sp_indices\[0, 0\] = 2 is outside \[0, num_rows = 2\)"),
        ([1, 1], [[0, 0], [-1, 0]], [2, 5], r"sp_indices\[1, 0\] = -1 is outside"),
        ([1], [[INT64_MIN, 0]], [2, 5], r"sp_indices\[0, 0\] = -9223372036854775808 is outside"),
        ([1], [[0, 0]], [0, 5], r"sp_indices\[0, 0\] = 0 is outside \[0, num_rows = 0\)"),
        ([1, 2], [[0, 0]], [2, 5], r"sp_indices"),
        ([[1]], [[0, 0]], [2, 5], r"sp_values"),
        ([1], [0, 0], [2, 5], r"sp_indices"),
        ([1], [[0, 0, 0]], [2, 5], r"sp_indices"),
        ([1], [[0, 0]], [-2, 5], r"sp_dense_shape"),
        ([1], [[0, 0]], [], r"sp_dense_shape"),
        ([1], [[0, 0]], [[2, 5]], r"sp_dense_shape"),
    ],
)
@pytest.mark.parametrize("attrs", SWITCHES.values(), ids=SWITCHES.keys())
def test_rejects(ids, indices, dense_shape, message, attrs):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fe.raw_ops.PruneInvalidAndFillEmptyRows(
            sp_values=np.array(ids, np.int64),
            sp_indices=np.array(indices, np.int64),
            sp_dense_shape=np.array(dense_shape, np.int64),
            **attrs,
        )


def test_higher_rank_rows_are_flat():
    """sp_dense_shape [2, 3, 9]: six rows."""
    got = fe.raw_ops.PruneInvalidAndFillEmptyRows(
        sp_values=np.array([7, 8]),
        sp_indices=np.array([[5, 0], [1, 0]]),
        sp_dense_shape=np.array([2, 3, 9]),
        fill_empty_row=True,
    )
    np.testing.assert_array_equal(got.is_row_empty, [1, 0, 1, 1, 1, 0])


@pytest.mark.parametrize(
    "dense_shape", [[2**40, 2**40, 4], [-2, -3, 4], [INT64_MIN, 2, 4], [-1, 0, 4], [7]]
)
def test_rejects_impossible_row_counts(dense_shape):
    with pytest.raises(tf.errors.InvalidArgumentError, match="sp_dense_shape"):
        fe.raw_ops.PruneInvalidAndFillEmptyRows(
            sp_values=np.zeros([0], np.int64),
            sp_indices=np.zeros([0, 2], np.int64),
            sp_dense_shape=np.array(dense_shape),
            fill_empty_row=True,
        )


@pytest.mark.parametrize("dense_shape", [[7], [[2, 5]], [], 7])
def test_shape_function_rejects_impossible_dense_shapes(dense_shape):
    @tf.function
    def run():
        fe.raw_ops.PruneInvalidAndFillEmptyRows(
            sp_values=np.zeros([0], np.int64),
            sp_indices=np.zeros([0, 2], np.int64),
            sp_dense_shape=tf.constant(dense_shape, tf.int64),
        )

    with pytest.raises(ValueError, match=f"{SHAPE_ERROR}|sp_dense_shape"):
        run.get_concrete_function()


def test_without_switches_nothing_is_changed():
    weights = np.array([1.0, -1.0])
    got = run([-5, 3], [[1, 7], [0, 2]], 3, weights)
    np.testing.assert_array_equal(got.sp_values_out, [-5, 3])
    np.testing.assert_array_equal(got.sp_indices_out, [[1, 7], [0, 2]])
    np.testing.assert_array_equal(got.sp_weights_values_out, weights)
    np.testing.assert_array_equal(got.is_row_empty, [False, False, True])


@pytest.mark.parametrize("num_weights", [0, 1, 3])
def test_rejects_weights_of_another_length(num_weights):
    message = f"sp_weights_values must hold one weight for each of the 2 ids, but has {num_weights}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run([1, 2], [[0, 0], [0, 1]], 1, np.ones(num_weights), prune=True, fill_empty_row=True)


@pytest.mark.parametrize(
    ("values", "indices", "dense_shape", "num_rows"),
    [([None], [None, 2], [2], None), ([3], [3, 2], [2], None), (None, None, None, None)],
)
def test_shapes(values, indices, dense_shape, num_rows):
    specs = [tf.TensorSpec(shape, tf.int64) for shape in (values, indices, dense_shape)]
    traced = tf.function(
        lambda v, i, s: tuple(
            fe.raw_ops.PruneInvalidAndFillEmptyRows(
                sp_values=v, sp_indices=i, sp_dense_shape=s, prune=True, fill_empty_row=True
            )
        )
    )
    shapes = [s.shape for s in traced.get_concrete_function(*specs).structured_outputs]
    assert shapes[0].as_list() == [None]
    assert shapes[1].as_list() == [None, 2]
    assert shapes[3].as_list() == [num_rows]


def test_static_number_of_rows():
    traced = tf.function(
        lambda v, i: tuple(
            fe.raw_ops.PruneInvalidAndFillEmptyRows(
                sp_values=v, sp_indices=i, sp_dense_shape=np.array([7, 5], np.int64), prune=True
            )
        )
    )
    specs = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 2], tf.int64)]
    outputs = traced.get_concrete_function(*specs).structured_outputs
    assert outputs[3].shape.as_list() == [7]


@pytest.mark.parametrize(
    ("values", "indices", "dense_shape"),
    [
        ([3, 1], [3, 2], [2]),
        ([3], [4, 2], [2]),
        ([3], [3, 3], [2]),
        ([3], [3], [2]),
        ([3], [3, 2], []),
    ],
)
def test_shape_function_rejects(values, indices, dense_shape):
    specs = [tf.TensorSpec(shape, tf.int64) for shape in (values, indices, dense_shape)]
    traced = tf.function(
        lambda v, i, s: tuple(
            fe.raw_ops.PruneInvalidAndFillEmptyRows(sp_values=v, sp_indices=i, sp_dense_shape=s)
        )
    )
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function(*specs)
