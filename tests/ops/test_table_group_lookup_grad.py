"""EmbeddingVariableGroupLookupGrad against the oracle of a grouped lookup in dense tables."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import group_stages
from checking import VALUE_DTYPES, assert_close, assert_rounded_once, dtype_name
from group_stages import Column
from stages import SHAPE_ERROR

pytestmark = pytest.mark.on_cpu

InvalidArgumentError = tf.errors.InvalidArgumentError


def gradient(rows, columns, grads, **args):
    return fe.raw_ops.EmbeddingVariableGroupLookupGrad(
        combined_grads=grads, **group_stages.found_by_table_lookup(rows, columns) | args
    )


def make_grads(rng, rows, columns):
    return [rng.standard_normal((c.num_rows, rows[c.table].shape[1])) for c in columns]


def want_rows(rows, columns, grads):
    """Of each table, in the order of its keys."""
    want, _ = group_stages.want_gradients(rows, columns, grads)
    wanted = group_stages.want_keys(columns, len(rows))
    return [
        np.array([of_key[k] for k in of_table.keys]).reshape(len(of_table.keys), table.shape[1])
        for of_key, of_table, table in zip(want, wanted, rows, strict=True)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_equals_the_oracle_on_random_columns(seed):
    rng = np.random.default_rng(seed)
    rows = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, rows, int(rng.integers(1, 6)))
    grads = make_grads(rng, rows, columns)
    got = gradient(rows, columns, grads)
    for g, want in zip(got, want_rows(rows, columns, grads), strict=True):
        assert_close(g, want, terms=64, scale=8.0)


@pytest.mark.parametrize("seed", range(5))
def test_one_gradient_of_columns_side_by_side(seed):
    rng = np.random.default_rng(seed)
    rows = group_stages.random_tables(rng)
    columns = [c._replace(num_rows=8) for c in group_stages.random_columns(rng, rows, 4)]
    grads = make_grads(rng, rows, columns)
    got = gradient(rows, columns, [np.concatenate(grads, axis=1)])
    for g, want in zip(got, gradient(rows, columns, grads), strict=True):
        np.testing.assert_array_equal(g, want)


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_dtypes_are_rounded_once(dtype, max_norm):
    rng = np.random.default_rng(3)
    rows = [tf.cast(rng.standard_normal((6, 19)), dtype).numpy()]
    ids, row_ids = rng.integers(-1, 6, 50).tolist(), rng.integers(0, 7, 50).tolist()
    columns = [Column(0, ids, row_ids, 7, combiner="sqrtn", max_norm=max_norm)]
    grads = [tf.cast(rng.standard_normal((7, 19)), dtype).numpy()]
    [got] = gradient(rows, columns, grads)
    assert_rounded_once(got, want_rows(rows, columns, grads)[0], dtype)


def test_an_id_with_many_pairs():
    """Its sum is taken in parts."""
    rows = [np.ones((3, 2))]
    columns = [Column(0, [1] * 9000 + [2], [0] * 9001, 1, combiner="sum")]
    [got] = gradient(rows, columns, [np.array([[1.0, 2.0]])])
    np.testing.assert_array_equal(got, [[9000, 18000], [1, 2]])


def test_no_columns_have_ids():
    [got] = gradient([np.ones((3, 2))], [Column(0, [], [], 2)], [np.ones((2, 2))])
    assert got.shape == (0, 2)


ROWS = [np.ones((3, 2))]
ONE = [Column(0, [1, 2], [0, 1], 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sp_values": [np.array([0, 2], np.int32)]}, r"column 0: id 2 .*outside \[0, 2\)"),
        ({"tables": [np.ones((3, 2))]}, "distinct rows has 3 of them, but only 2 ids read it"),
        ({"default_positions": np.array([], np.int32)}, "default_positions .* 1 columns"),
        ({"default_positions": np.array([[0]], np.int32)}, "default_positions .* 1 columns"),
        ({"default_positions": np.array([2], np.int32)}, None),  # no row is empty
        (
            {"combined_grads": [np.ones((3, 2))]},
            r"combined_grads\[0\] must have the shape \[2, 2\]",
        ),
        ({"sp_indices": [np.array([[0, 0], [2, 0]])]}, r"sp_indices\[1, 0\] = 2"),
    ],
)
def test_errors(arguments, message):
    given = group_stages.found_by_table_lookup(ROWS, ONE)
    given |= {"combined_grads": [np.ones((2, 2))]} | arguments
    if message is None:
        fe.raw_ops.EmbeddingVariableGroupLookupGrad(**given)
        return
    with pytest.raises(InvalidArgumentError, match=message):
        fe.raw_ops.EmbeddingVariableGroupLookupGrad(**given)


def test_a_default_position_that_is_no_row_is_an_error():
    columns = [Column(0, [1], [0], 2, default_id=2)]
    with pytest.raises(InvalidArgumentError, match=r"id 2, which fills row 1.* outside \[0, 2\)"):
        gradient(ROWS, columns, [np.ones((2, 2))], default_positions=np.array([2], np.int32))


def test_shapes():
    @tf.function
    def traced(rows):
        return gradient(ROWS, ONE, [np.ones((2, 2))], tables=[rows])

    [shape] = traced.get_concrete_function(tf.TensorSpec([None, 2], tf.float64)).output_shapes
    assert shape.as_list() == [None, 2]
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function(tf.TensorSpec([None], tf.float64))
