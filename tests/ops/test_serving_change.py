"""EmbeddingVariableServingChange: what a delta says is put into tables and variables."""

import numpy as np
import pytest
import tensorflow as tf
from table_cases import DIM, export, int64, lookup, make_table, upsert, values_of

from checking import VALUE_DTYPES, dtype_name
from fused_embedding import raw_ops
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

pytestmark = pytest.mark.on_cpu

InvalidArgumentError = tf.errors.InvalidArgumentError


def rows(keys, value, dtype=tf.float32):
    return tf.cast(np.full([len(keys), DIM], value), dtype)


def changes(tables, **lists):
    """Arguments of the op: for each table nothing, but for what is given."""
    count = len(tables)
    arguments = {
        "resources": tables,
        "keys": [int64([])] * count,
        "values": [rows([], 0)] * count,
        "removed_keys": [int64([])] * count,
        "is_full": [False] * count,
        "variables": [],
        "new_values": [],
    }
    return arguments | lists


def change(tables, **lists):
    raw_ops.EmbeddingVariableServingChange(**changes(tables, **lists))


def content(table, dtype=tf.float32):
    exported = export(table, dtype)
    values = tf.cast(exported.values, tf.float64).numpy()
    return dict(zip(exported.keys.numpy().tolist(), values.tolist(), strict=True))


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_rows_are_set_and_removed(dtype, is_frozen):
    table = make_table(dtype, frozen=is_frozen)
    upsert(table, [1, 2, 3, INT64_MIN], rows([1, 2, 3, 4], 0.5, dtype), dtype)
    keys = [2, 5, INT64_MAX]
    change(
        [table],
        keys=[int64(keys)],
        values=[rows(keys, 2.0, dtype)],
        removed_keys=[int64([1, 7, INT64_MIN])],
    )
    want = {2: 2.0, 3: 0.5, 5: 2.0, INT64_MAX: 2.0}
    assert content(table, dtype) == {key: [value] * DIM for key, value in want.items()}


def test_several_tables_and_variables_change_together():
    first, second = make_table(), make_table(tf.float64, dim=1)
    upsert(first, [1, 2], rows([1, 2], 1.0))
    number, name = tf.Variable(1, dtype=tf.int64), tf.Variable("old")
    change(
        [first, second],
        keys=[int64([3]), int64([4, 5])],
        values=[rows([3], 3.0), np.array([[4.0], [5.0]])],
        is_full=[True, False],
        variables=[number.handle, name.handle],
        new_values=[tf.constant(2, tf.int64), tf.constant("new")],
    )
    assert content(first) == {3: [3.0] * DIM}
    assert content(second, tf.float64) == {4: [4.0], 5: [5.0]}
    assert (int(number), name.numpy()) == (2, b"new")


def test_a_filter_admits_what_is_given():
    attrs = {"admission": "counter", "min_frequency": 3, "no_permission_value": 9.0}
    table = make_table(frozen=True, **attrs)
    change([table], keys=[int64([7])], values=[rows([7], 2.0)])
    assert values_of(table, [7, 8])[:, 0].tolist() == [2.0, 9.0]


@pytest.mark.parametrize("eviction", ["none", "lru", "lfu"])
def test_a_full_table_keeps_what_it_was_not_told_to_remove(eviction):
    table = make_table(max_capacity=4, eviction=eviction)
    upsert(table, [1, 2, 3, 4], rows([1, 2, 3, 4], 1.0))
    change(
        [table],
        keys=[int64([5, 6])],
        values=[rows([5, 6], 2.0)],
        removed_keys=[int64([1, 4])],
    )
    assert sorted(content(table)) == [2, 3, 5, 6]
    change([table], keys=[int64([7, 8, 9, 10])], values=[rows([0] * 4, 3.0)], is_full=[True])
    assert sorted(content(table)) == [7, 8, 9, 10]


def test_what_failed_half_way_is_refused_from_then_on():
    first, second = make_table(), make_table(max_capacity=1)
    upsert(second, [1], rows([1], 1.0))
    number = tf.Variable(1)
    given = {"keys": [int64([1]), int64([2])], "values": [rows([1], 2.0)] * 2}
    variables = {"variables": [number.handle], "new_values": [tf.constant(2)]}
    with pytest.raises(tf.errors.ResourceExhaustedError, match="do not fit"):
        change([first, second], **given, **variables)
    assert int(number) == 1
    for _ in range(2):
        with pytest.raises(tf.errors.FailedPreconditionError, match="load the export again"):
            raw_ops.EmbeddingVariableServingLock(resource=first)
        with pytest.raises(tf.errors.FailedPreconditionError, match="apply all deltas"):
            change([first, second], removed_keys=[int64([]), int64([1])])
    assert content(second) == {1: [1.0] * DIM}


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"keys": [int64([[1]])]}, "keys"),
        ({"keys": [int64([1])]}, r"\[1, 3\]"),
        ({"values": [np.zeros([0, 2], np.float32)]}, r"\[0, 3\]"),
        ({"values": [np.zeros([0, 3])]}, "values is double"),
        ({"values": [np.zeros([0, 3], np.float32)] * 2}, "each of the 1 tables, got 2"),
        ({"removed_keys": [int64([[1]])]}, "removed_keys"),
        ({"is_full": [[True]]}, "is_full must be a scalar"),
        ({"new_values": [1.0]}, "each of the 0 variables, got 1"),
    ],
)
def test_malformed_changes_change_nothing(lists, message):
    table = make_table()
    upsert(table, [1], rows([1], 1.0))
    given = {"is_full": [True]} | lists
    with pytest.raises(InvalidArgumentError, match=message):
        change([table], **given)
    assert content(table) == {1: [1.0] * DIM}
    raw_ops.EmbeddingVariableServingLock(resource=table)  # it is free, and not torn


def test_variables_of_another_type_are_an_error():
    table, number = make_table(), tf.Variable(1)
    with pytest.raises(InvalidArgumentError, match="holds int32, but new_values"):
        change([table], variables=[number.handle], new_values=[1.0])
    with pytest.raises(tf.errors.OpError, match=r"embedding|Trying|Var"):
        change([table], variables=[table], new_values=[1.0])
    with pytest.raises(tf.errors.OpError, match=r"EmbeddingVariable|Trying|Table"):
        change([number.handle])
    assert int(number) == 1


@pytest.mark.parametrize(
    "shapes",
    [
        {"keys": [2, 2]},
        {"keys": [2], "values": [3, 3]},
        {"values": [3]},
        {"removed_keys": []},
        {"is_full": [1]},
    ],
)
def test_shape_functions_reject_other_ranks(shapes):
    dtypes = {"keys": tf.int64, "removed_keys": tf.int64, "is_full": tf.bool}

    @tf.function
    def traced(given):
        change([make_table()], **{name: [tensor] for name, tensor in given.items()})

    specs = {n: tf.TensorSpec(s, dtypes.get(n, tf.float32)) for n, s in shapes.items()}
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function(specs)


def test_lookups_insert_nothing_into_what_is_frozen():
    table = make_table(frozen=True)
    change([table], keys=[int64([7])], values=[rows([7], 2.0)])
    lookup(table, [8])
    assert sorted(content(table)) == [7]
