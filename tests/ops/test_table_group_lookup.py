"""EmbeddingVariableGroupLookup against the oracle of a grouped lookup in dense tables."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import group_stages
from checking import VALUE_DTYPES, assert_close, assert_rounded_once, assert_same_bits, dtype_name
from group_stages import Column
from keyed_tables import lists, make_table, metadata, statistic
from stages import SHAPE_ERROR

pytestmark = pytest.mark.on_cpu

InvalidArgumentError = tf.errors.InvalidArgumentError
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

# The example of tf_ops/core/lookup/group/table_group_lookup.h.
BY_HAND = [Column(0, [7, -1, 3], [0, 0, 2], 3, None, "sum", None, 5), Column(0, [3, 9], [0, 1], 2)]


def test_a_case_by_hand():
    table = make_table(np.arange(20.0).reshape(10, 2))
    got = group_stages.table_lookup([table], BY_HAND, step=4)
    assert lists(got.combined) == [
        [[14.0, 15.0], [10.0, 11.0], [6.0, 7.0]],
        [[6.0, 7.0], [18.0, 19.0]],
    ]
    assert lists(got.keys) == [[7, 3, 5, 9]]
    assert lists(got.rows) == [[[14.0, 15.0], [6.0, 7.0], [10.0, 11.0], [18.0, 19.0]]]
    assert lists(got.positions) == [[0, -1, 1], [1, 3]]
    assert got.default_positions.numpy().tolist() == [2, -1]
    assert min(got.handles[0].numpy()) >= 0
    assert metadata(table, [7, 3, 5, 9]) == ([1, 2, 0, 1], [4, 4, 4, 4])


@pytest.mark.parametrize("insert", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_equals_the_oracle_on_random_columns(seed, insert):
    rng = np.random.default_rng(seed)
    rows = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, rows, int(rng.integers(1, 6)))
    tables = [make_table(r) for r in rows]
    got = group_stages.table_lookup(tables, columns, insert=insert)
    for g, want in zip(got.combined, group_stages.want_combined(rows, columns), strict=True):
        assert_close(g, want, terms=64)
    want = group_stages.want_keys(columns, len(rows))
    assert lists(got.keys) == [of_table.keys for of_table in want]
    for t, (keys, counts) in enumerate(want):
        np.testing.assert_array_equal(got.rows[t], rows[t][keys])
        assert metadata(tables[t], keys)[0] == [counts[k] * insert for k in keys]
    for column, positions in zip(columns, got.positions, strict=True):
        keys, positions = got.keys[column.table].numpy(), positions.numpy()
        ids = np.array(column.ids, np.int64)
        np.testing.assert_array_equal(keys[positions[positions >= 0]], ids[positions >= 0])


@pytest.mark.parametrize("seed", range(5))
def test_one_output_is_the_results_side_by_side(seed):
    rng = np.random.default_rng(seed)
    rows = group_stages.random_tables(rng)
    columns = [c._replace(num_rows=8) for c in group_stages.random_columns(rng, rows, 4)]
    tables = [make_table(r) for r in rows]
    [got] = group_stages.table_lookup(tables, columns, concat=True).combined
    assert_same_bits(got, tf.concat(group_stages.table_lookup(tables, columns).combined, axis=1))


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_dtypes_are_rounded_once(dtype):
    rng = np.random.default_rng(3)
    rows = tf.cast(rng.standard_normal((6, 19)), dtype).numpy()
    ids, row_ids = rng.integers(-1, 6, 50), rng.integers(0, 7, 50)
    weights = rng.choice([0.5, 2.0], 50).tolist()
    columns = [
        Column(0, ids.tolist(), row_ids, 7, combiner="mean"),
        Column(0, ids.tolist(), np.sort(row_ids), 7, weights, "sqrtn", max_norm=2.0),
    ]
    got = group_stages.table_lookup([make_table(rows)], columns, dtype=dtype)
    for g, want in zip(got.combined, group_stages.want_combined([rows], columns), strict=True):
        assert_rounded_once(g, want, dtype)


def test_every_key_is_legal_without_pruning():
    ids = [INT64_MIN, -1, 0, INT64_MAX]
    table = make_table(np.zeros([0, 2]))
    values = np.arange(8.0).reshape(4, 2)
    fe.raw_ops.EmbeddingVariableUpsert(resource=table, keys=np.array(ids), values=values)
    columns = [Column(0, ids, range(4), 4, combiner="sum")]
    got = group_stages.table_lookup([table], columns, prune=False, fill_empty_row=False)
    np.testing.assert_array_equal(got.combined[0], values)
    assert metadata(table, ids)[0] == [1] * 4


def test_many_ids_and_threads_give_the_same():
    """Tables that one thread looks up beside others, and tables worth all threads.

    A dense table of the same rows is the oracle, whose lookup has tests of its own.
    """
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((40_000, 2)), rng.standard_normal((50, 3)), np.ones((9, 1))]
    columns = [
        Column(t, rng.integers(-1, len(rows[t]), n).tolist(), np.sort(rng.integers(0, 99, n)), 99)
        for t, n in ((0, 60_000), (1, 500), (0, 20_000), (2, 0))
    ]
    tables = [make_table(r) for r in rows]
    # Rows alone: the columns of indices take the helpers long to find.
    batch = {
        "sp_values": [np.array(c.ids, np.int64) for c in columns],
        "sp_indices": [np.array(c.row_ids, np.int64) for c in columns],
    }
    bare = [c._replace(ids=[], row_ids=[]) for c in columns]
    got = group_stages.table_lookup(tables, bare, **batch)
    for g, want in zip(got.combined, group_stages.lookup(rows, bare, **batch), strict=True):
        assert_same_bits(g, want)
    want = group_stages.want_keys(columns, len(rows))
    assert lists(got.keys) == [of_table.keys for of_table in want]
    for t, (keys, counts) in enumerate(want):
        assert metadata(tables[t], keys)[0] == [counts[k] for k in keys]


def test_keys_that_a_filter_holds_back_read_a_constant_and_have_no_row():
    attrs = {"admission": "counter", "min_frequency": 3, "no_permission_value": 0.5}
    table = make_table(np.zeros([0, 2]), **attrs)
    columns = [Column(0, [7, 7, 8], [0, 1, 2], 3), Column(0, [7, 8, 9], [0, 0, 0], 1)]
    got = group_stages.table_lookup([table], columns)
    # 7 occurs three times in the columns together, and is admitted for all of them.
    np.testing.assert_array_equal(got.combined[0], [[0, 0], [0, 0], [0.5, 0.5]])
    assert (got.handles[0].numpy() >= 0).tolist() == [True, False, False]


def test_a_full_table_refuses_by_its_check_mode():
    columns = [Column(0, [0, 1, 2], [0, 1, 2], 3)]
    table = make_table(np.ones([1, 2]), max_capacity=1)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="2 keys do not fit"):
        group_stages.table_lookup([table], columns)
    assert metadata(table, [0]) == ([0], [0])
    table = make_table(np.ones([1, 2]), max_capacity=1, check_mode="ignore")
    got = group_stages.table_lookup([table], columns).combined
    np.testing.assert_array_equal(got[0], [[1, 1], [0, 0], [0, 0]])


ONE = [Column(0, [1, 2], [0, 1], 2)]


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        (ONE, {"sp_values": [np.array([1])]}, "column 0: sp_values .* sp_indices"),
        ([ONE[0]._replace(row_ids=[0, 2])], {}, r"column 0: .*sp_indices\[1, 0\] = 2"),
        ([ONE[0]._replace(row_ids=[-1, 0])], {}, r"column 0: .*sp_indices\[0, 0\] = -1"),
        (ONE, {"sp_dense_shapes": [np.array([2])]}, "sp_dense_shape"),
        (ONE, {"step": tf.constant([1, 2], tf.int64)}, "step must be a scalar"),
        (ONE, {"table_of_column": [1]}, r"table_of_column has 1, which is outside \[0, 1\)"),
        (ONE, {"combiners": []}, "combiners must have one entry for each of the 1 columns"),
        (ONE, {"num_outputs": 2}, "num_outputs must be 1 or the number of columns, 1, got 2"),
        (ONE, {"dtype": tf.float32}, "dtype is float, but the table holds double"),
    ],
)
def test_errors_leave_the_table_as_it_was(columns, arguments, message):
    table = make_table(np.ones([1, 2]))
    given = {"num_outputs": 1, "dtype": tf.float64, "step": tf.constant(-1, tf.int64)}
    with pytest.raises(InvalidArgumentError, match=message):
        fe.raw_ops.EmbeddingVariableGroupLookup(
            resources=[table],
            insert=True,
            **group_stages.arguments(columns) | given | arguments,
        )
    assert statistic(table, "size") == 1
    assert metadata(table, [0]) == ([0], [0])


def test_columns_of_one_output_must_agree_in_rows():
    table = make_table(np.ones([1, 2]))
    columns = [*ONE, ONE[0]._replace(num_rows=3)]
    with pytest.raises(InvalidArgumentError, match="one number of rows, but got 2 and 3"):
        group_stages.table_lookup([table], columns, concat=True)
    assert statistic(table, "size") == 1


def test_shapes():
    @tf.function
    def traced(values, step):
        table = fe.raw_ops.EmbeddingVariableHandle(
            dim=2, dtype=tf.float64, initializer="constant", shared_name="shapes"
        )
        return group_stages.table_lookup(
            [table], ONE, sp_values=[values], sp_indices=[tf.zeros([2, 2], tf.int64)]
        )

    spec = tf.TensorSpec([2], tf.int64)
    outputs = traced.get_concrete_function(spec, tf.TensorSpec([], tf.int64)).outputs
    got = [output.shape.as_list() for output in outputs]
    assert got == [[2, 2], [None], [None], [None, 2], [2], [1]]
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function(tf.TensorSpec([3], tf.int64), tf.TensorSpec([], tf.int64))
