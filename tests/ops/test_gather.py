import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import fused_embedding as fe
from checking import VALUE_DTYPES, assert_same_bits, dtype_name, random_rows
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

pytestmark = pytest.mark.usefixtures("device")

ID_DTYPES = (tf.int32, tf.int64)
# Row sizes with a compiled copy (32 to 256 bytes), their neighbours, and the smallest.
DIMS = (1, 3, 7, 8, 9, 16, 32, 33, 64, 65)


def gather(params, ids, id_dtype=tf.int64):
    return fe.raw_ops.FusedEmbeddingGather(params=params, ids=tf.constant(ids, id_dtype))


def resource_gather(variable, ids, id_dtype=tf.int64):
    return fe.raw_ops.FusedEmbeddingResourceGather(
        resource=variable.handle, ids=tf.constant(ids, id_dtype), dtype=variable.dtype
    )


@pytest.mark.parametrize("id_dtype", ID_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("dim", DIMS)
def test_copies_rows(dim, dtype, id_dtype):
    rng = np.random.default_rng(dim)
    table, ids = random_rows(rng, 50, dim, dtype), rng.integers(0, 50, 97)
    assert_same_bits(gather(table, ids, id_dtype), table[ids])
    assert_same_bits(resource_gather(tf.Variable(table), ids, id_dtype), table[ids])


@pytest.mark.parametrize("shape", [(5,), (5, 2, 3), (5, 0), (0, 3)])
def test_rows_of_params_of_other_ranks_are_flat(shape):
    table = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    ids = np.array([4, 0, 4] if shape[0] else [], np.int64)
    want = table[ids].reshape(len(ids), int(np.prod(shape[1:])))
    assert_same_bits(gather(table, ids), want)
    assert_same_bits(resource_gather(tf.Variable(table), ids), want)


def test_no_ids():
    assert gather(np.ones((4, 3), np.float32), []).shape == [0, 3]


@hypothesis.given(
    ids=st.lists(st.integers(0, 6), max_size=60), dim=st.integers(0, 70), seed=st.integers(0, 9)
)
def test_equals_numpy_on_random_input(ids, dim, seed):
    table = np.random.default_rng(seed).standard_normal((7, dim))
    assert_same_bits(gather(table, ids), table[np.array(ids, np.int64)])


@pytest.fixture
def checks_ids(device):
    if device == "GPU":
        pytest.skip("a gather on a GPU does not wait: see the next test")


@pytest.mark.gpu
def test_ids_outside_the_table_get_zeros_on_a_gpu():
    with tf.device("/GPU:0"):
        rows = gather(np.ones((4, 3), np.float32), [0, 4, -1, INT64_MAX])
    np.testing.assert_array_equal(rows, np.outer([1, 0, 0, 0], np.ones(3)))


@pytest.mark.usefixtures("checks_ids")
@pytest.mark.parametrize("run", ["tensor", "variable"])
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 1, 4], r"id 4 at position 2 is outside \[0, 4\)"),
        ([-1, 9], r"id -1 at position 0 is outside \[0, 4\)"),
        ([3, INT64_MAX], "id 9223372036854775807 at position 1"),
        ([3, INT64_MIN], "id -9223372036854775808 at position 1"),
    ],
)
def test_rejects_ids_outside_the_table(run, ids, message):
    table = np.ones((4, 3), np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        gather(table, ids) if run == "tensor" else resource_gather(tf.Variable(table), ids)


@pytest.mark.usefixtures("checks_ids")
def test_names_the_first_of_many_bad_ids():
    ids = np.zeros(200_000, np.int64)
    ids[[777, 150_000]] = [9, -9]
    with pytest.raises(tf.errors.InvalidArgumentError, match="id 9 at position 777 "):
        gather(np.ones((4, 32), np.float32), ids)


@pytest.mark.usefixtures("checks_ids")
def test_rejects_an_id_in_an_empty_table():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"id 0 at position 0 .*\[0, 0\)"):
        gather(np.ones((0, 3), np.float32), [0])


def test_rejects_a_scalar_table():
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="params"):
        gather(np.float32(1), [0])


def test_rejects_a_variable_of_another_dtype():
    variable = tf.Variable(np.ones((4, 3), np.float32))
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=r"dtype|float"):
        fe.raw_ops.FusedEmbeddingResourceGather(
            resource=variable.handle, ids=np.array([0]), dtype=tf.float64
        )


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_gradient_is_indexed_slices(dtype):
    table, ids = tf.cast(np.ones((4, 3)), dtype), tf.constant([2, 0], tf.int64)
    top_grad = tf.cast([[1, 2, 3], [4, 5, 6]], dtype)
    with tf.GradientTape() as tape:
        tape.watch(table)
        out = fe.raw_ops.FusedEmbeddingGather(params=table, ids=ids)
    grad = tape.gradient(out, table, output_gradients=top_grad)
    assert isinstance(grad, tf.IndexedSlices)
    assert_same_bits(grad.indices, ids)
    assert_same_bits(grad.values, top_grad)
    np.testing.assert_array_equal(grad.dense_shape, [4, 3])


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_gradient_merges_duplicates(dtype):
    """Ids in the order of their first occurrence; 16-bit rows are summed in float32."""
    table = tf.cast(np.ones((4, 1)), dtype)
    ids = tf.constant([2, 0] + [2] * 2048, tf.int64)
    top_grad = tf.cast([[1.0], [7.0]] + [[2.0**-9]] * 2048, dtype)
    with tf.GradientTape() as tape:
        tape.watch(table)
        out = fe.raw_ops.FusedEmbeddingGather(params=table, ids=ids)
    grad = tape.gradient(out, table, output_gradients=top_grad)
    np.testing.assert_array_equal(grad.indices, [2, 0])
    np.testing.assert_array_equal(grad.values, [[5.0], [7.0]])


def test_gradient_of_ids_that_are_unique_by_promise():
    table, ids = tf.ones((4, 3)), tf.constant([2, 0], tf.int64)
    with tf.GradientTape() as tape:
        tape.watch(table)
        out = fe.raw_ops.FusedEmbeddingGather(params=table, ids=ids, ids_are_unique=True)
    grad = tape.gradient(out, table)
    np.testing.assert_array_equal(grad.indices, [2, 0])
    np.testing.assert_array_equal(grad.values, np.ones((2, 3)))


@pytest.mark.parametrize("params_shape", [None, [4, 2, 3]])
def test_gradient_of_a_variable_has_the_shape_of_its_rows(params_shape):
    variable, attrs = tf.Variable(np.ones((4, 2, 3))), {}
    if params_shape is not None:
        attrs["params_shape"] = params_shape
    with tf.GradientTape() as tape:
        tape.watch(variable.handle)
        out = fe.raw_ops.FusedEmbeddingResourceGather(
            resource=variable.handle, ids=np.array([3]), dtype=tf.float64, **attrs
        )
    grad = tape.gradient(out, variable.handle, output_gradients=tf.ones_like(out))
    assert out.shape == [1, 6]
    assert grad.values.shape == [1, 2, 3]
    np.testing.assert_array_equal(grad.dense_shape, [4, 2, 3])


def test_gradient_of_a_variable():
    variable, ids = tf.Variable(np.ones((4, 3))), tf.constant([2, 0], tf.int64)
    with tf.GradientTape() as tape:
        tape.watch(variable.handle)
        out = fe.raw_ops.FusedEmbeddingResourceGather(
            resource=variable.handle, ids=ids, dtype=tf.float64
        )
    grad = tape.gradient(out, variable.handle, output_gradients=tf.ones_like(out))
    assert isinstance(grad, tf.IndexedSlices)
    assert_same_bits(grad.indices, ids)


def test_reads_the_variable_in_program_order():
    variable = tf.Variable(np.zeros((4, 3), np.float32))
    before = resource_gather(variable, [1])
    variable.assign(np.ones((4, 3), np.float32))
    np.testing.assert_array_equal(before, np.zeros((1, 3)))
    np.testing.assert_array_equal(resource_gather(variable, [1]), np.ones((1, 3)))


@pytest.mark.parametrize(
    ("params", "ids", "want"),
    [
        ([4, 3], [None], [None, 3]),
        ([None, 3], [2], [2, 3]),
        (None, [2], [2, None]),
        ([4], [2], [2, 1]),
        ([4, 3, 5], [None], [None, 15]),
        ([4, None, 5], [2], [2, None]),
    ],
)
def test_shapes(params, ids, want):
    traced = tf.function(lambda p, i: fe.raw_ops.FusedEmbeddingGather(params=p, ids=i))
    specs = [tf.TensorSpec(params, tf.float32), tf.TensorSpec(ids, tf.int64)]
    assert traced.get_concrete_function(*specs).structured_outputs.shape.as_list() == want


@pytest.mark.parametrize(("params", "ids"), [([], [2]), ([4, 3], []), ([4, 3], [2, 2])])
def test_shape_function_rejects(params, ids):
    traced = tf.function(lambda p, i: fe.raw_ops.FusedEmbeddingGather(params=p, ids=i))
    specs = [tf.TensorSpec(params, tf.float32), tf.TensorSpec(ids, tf.int64)]
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function(*specs)


def test_shape_of_a_variable_is_known():
    variable = tf.Variable(np.ones((4, 3), np.float32))
    traced = tf.function(
        lambda ids: fe.raw_ops.FusedEmbeddingResourceGather(
            resource=variable.handle, ids=ids, dtype=tf.float32
        )
    )
    outputs = traced.get_concrete_function(tf.TensorSpec([None], tf.int64)).structured_outputs
    assert outputs.shape.as_list() == [None, 3]
