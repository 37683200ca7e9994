import numpy as np
import pytest
import tensorflow as tf

import group_stages
from checking import VALUE_DTYPES, assert_close, assert_rounded_once, dtype_name
from group_stages import Column

pytestmark = pytest.mark.usefixtures("device")

KINDS = {"tensors": np.asarray, "variables": tf.Variable}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    return request.param


def top_grads(rng, tables, columns, dtype=np.float64):
    return [
        rng.standard_normal((c.num_rows, tables[c.table].shape[1])).astype(dtype) for c in columns
    ]


def gradient(tables, columns, grads, **args):
    args = group_stages.arguments(columns) | args
    got = group_stages.call("GroupLookupGrad", tables, combined_grads=grads, **args)
    return list(zip(got.unique_ids, got.rows_grad, strict=True))


def assert_gradients(got, want, compare):
    for (ids, rows), of_table in zip(got, want, strict=True):
        assert ids.numpy().tolist() == list(of_table)
        want_rows = np.array(list(of_table.values())).reshape(rows.shape)
        compare(rows, want_rows)


@pytest.mark.parametrize("seed", range(30))
def test_equals_the_oracle_on_random_columns(kind, seed):
    rng = np.random.default_rng(seed)
    tables = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, tables, int(rng.integers(1, 6)))
    grads = top_grads(rng, tables, columns)
    want, _ = group_stages.want_gradients(tables, columns, grads)
    got = gradient([kind(t) for t in tables], columns, grads)
    assert_gradients(got, want, lambda g, w: assert_close(g, w, terms=128))


def test_columns_that_share_a_table_share_its_gradient(kind):
    columns = [Column(0, [3, 1], [0, 1], 2, combiner="sum"), Column(0, [1], [1], 2)]
    grads = [np.array([[1.0], [2.0]]), np.array([[8.0], [16.0]])]
    [(ids, rows)] = gradient([kind(np.ones((4, 1)))], columns, grads)
    # The second column has an empty row: id 0 with a row of zeros.
    assert ids.numpy().tolist() == [3, 1, 0]
    np.testing.assert_array_equal(rows, [[1.0], [18.0], [0.0]])


def test_without_filling_there_is_no_id_0(kind):
    column = Column(0, [1], [1], 3, default_id=2)
    [(ids, rows)] = gradient([kind(np.ones((4, 1)))], [column], [np.ones((3, 1))])
    assert ids.numpy().tolist() == [1, 2]
    np.testing.assert_array_equal(rows, [[1.0], [2.0]])
    [(ids, _)] = gradient(
        [kind(np.ones((4, 1)))], [column], [np.ones((3, 1))], fill_empty_row=False
    )
    assert ids.numpy().tolist() == [1]


def test_a_table_that_no_column_reads_has_no_ids(kind):
    tables = [kind(np.ones((4, 1))), kind(np.ones((2, 3)))]
    column = Column(1, [1], [0], 1)
    (ids, rows), (others, _) = gradient(tables, [column], [np.ones((1, 3))])
    assert ids.shape == [0]
    assert rows.shape == [0, 1]
    assert others.numpy().tolist() == [1]


def test_columns_may_clip_one_table_to_different_norms(kind):
    table = np.array([[3.0, 4.0], [0.3, 0.4]])
    columns = [
        Column(0, [0, 1, 0], [0, 1, 1], 2, combiner="sum", max_norm=norm)
        for norm in (1.0, None, 5.0, 0.25)
    ]
    grads = top_grads(np.random.default_rng(0), [table], columns)
    want, _ = group_stages.want_gradients([table], columns, grads)
    assert_gradients(gradient([kind(table)], columns, grads), want, assert_close)


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_dtypes_are_rounded_once(kind, dtype):
    rng = np.random.default_rng(5)
    table = tf.cast(rng.standard_normal((6, 19)), dtype).numpy()
    ids, rows = rng.integers(-1, 6, 80), rng.integers(0, 9, 80)
    columns = [Column(0, ids, rows, 9), Column(0, ids, np.sort(rows), 9, max_norm=2.0)]
    grads = top_grads(rng, [table], columns, table.dtype)
    want, _ = group_stages.want_gradients([table], columns, [g.astype(float) for g in grads])
    got = gradient([kind(table)], columns, grads)
    assert_gradients(got, want, lambda g, w: assert_rounded_once(g, w, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_ids_with_very_many_pairs(kind, dtype):
    """More than one part of a sum, and a table large enough to be worked on by several threads."""
    rng = np.random.default_rng(7)
    ids = np.where(rng.random(60_000) < 0.7, 5, rng.integers(0, 3000, 60_000))
    table, grads = np.ones((3000, 3), dtype), rng.integers(-4, 5, (60_000, 3)).astype(dtype)
    column = Column(0, ids, np.arange(60_000), 60_000, combiner="sum")
    [(got_ids, rows)] = gradient([kind(table)], [column], [grads])
    want = np.zeros((3000, 3))
    np.add.at(want, ids, grads.astype(float))
    assert len(got_ids) == len(set(ids.tolist()))
    np.testing.assert_array_equal(rows, want[got_ids].astype(dtype))


@pytest.mark.parametrize("shape", [(2, 2), (1, 1), (2,)])
def test_rejects_a_gradient_of_another_shape(kind, shape):
    column = Column(0, [1], [0], 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"combined_grads\[0\] must have"):
        gradient([kind(np.ones((4, 1)))], [column], [np.ones(shape)])


def test_rejects_another_number_of_gradients(kind):
    columns = [Column(0, [1], [0], 1)] * 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="one for each of the 3 columns"):
        gradient([kind(np.ones((4, 1)))], columns, [np.ones((1, 1))] * 2)


def test_rejects_ids_outside_the_table(kind):
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 0: id 4 at position 0"):
        gradient([kind(np.ones((4, 1)))], [Column(0, [4], [0], 1)], [np.ones((1, 1))])


def test_one_gradient_for_results_side_by_side(kind):
    rng = np.random.default_rng(9)
    tables = [rng.standard_normal((5, 3)), rng.standard_normal((4, 2))]
    columns = [Column(0, [1, 1, 4], [2, 0, 0], 3), Column(1, [3, 0, 3], [0, 1, 2], 3)]
    grads = top_grads(rng, tables, columns)
    variables = [kind(t) for t in tables]
    want, _ = group_stages.want_gradients(tables, columns, grads)
    got = gradient(variables, columns, [np.concatenate(grads, axis=1)])
    assert_gradients(got, want, assert_close)


def test_static_shapes():
    columns = [Column(0, [1], [0], 2)]
    traced = tf.function(
        lambda table: group_stages.call(
            "GroupLookupGrad",
            [table],
            combined_grads=[np.ones((2, 3))],
            **group_stages.arguments(columns),
        )
    )
    outputs = traced.get_concrete_function(tf.TensorSpec([4, 3], tf.float64)).structured_outputs
    assert outputs[0][0].shape.as_list() == [None]
    assert outputs[1][0].shape.as_list() == [None, 3]
