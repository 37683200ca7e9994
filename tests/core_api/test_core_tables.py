import numpy as np
import pytest
from benchmarks.gpu import core, core_rows, lookups

TINY = core_rows.SIZES["tiny"]
GROUPS = {
    name.removeprefix("forward: "): row.make.args[1]
    for name, row in core_rows.ROWS.items()
    if name.startswith("forward: ")
}


@pytest.fixture(params=["gpu", "cpu"])
def machine(request):
    """A GPU, or the emulation of one, and a CPU."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_tables_without_a_vocabulary_give_what_arrays_give(machine, group):
    columns = group.columns(machine, TINY)
    arrays = [array.numpy() for array in machine.run(lookups.group_lookup(columns))]
    tables = [array.numpy() for array in machine.run(lookups.table_group_lookup(columns))]
    for of_array, of_table in zip(arrays, tables, strict=True):
        np.testing.assert_array_equal(of_array, of_table)


def test_columns_of_one_number_share_a_table(machine):
    first, second, third = core_rows.Group(4).columns(machine, TINY)
    second.table, second.table_number, third.table_number = first.table, 0, 1
    columns = [first, second, third]
    want = machine.run(lookups.group_lookup(columns))
    got = machine.run(lookups.table_group_lookup(columns))
    for one, other in zip(want, got, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_table_without_a_column_is_an_error(machine):
    columns = core_rows.Group(4).columns(machine, TINY)
    columns[1].table_number = 2
    columns[1].table = columns[2].table
    with pytest.raises(core.CoreError, match="table 1 must have a column"):
        machine.run(lookups.table_group_lookup(columns))


def test_a_number_of_no_table_is_an_error(machine):
    lookup = lookups.table_group_lookup(core_rows.Group(4).columns(machine, TINY))
    lookup.struct.num_tables -= 1
    with pytest.raises(core.CoreError, match=r"table_number must be in \[0, 2\), got 2"):
        machine.run(lookup)


def test_a_step_on_one_table_is_what_it_is_by_hand(machine):
    table = machine.upload(np.ones((3, 2), np.float32))
    slots = machine.upload(np.array([[[7, 9], [5, 6], [0, 0]]], np.float32))
    gradient = (
        machine.upload(np.array([2, 0, 2])),
        machine.upload(np.array([[1, 2], [3, 4], [2, 2]], np.float32)),
    )
    machine.run(lookups.sparse_apply(table, slots, gradient, ("adagrad", (0.5, 0.25, 0))))
    np.testing.assert_array_equal(slots.numpy(), [[[16, 25], [5, 6], [9, 16]]])
    want = [[1 - 1.5 / 4.25, 1 - 2 / 5.25], [1, 1], [1 - 1.5 / 3.25, 1 - 2 / 4.25]]
    np.testing.assert_allclose(table.numpy(), want, rtol=1e-6)


def test_a_step_names_the_array_that_is_wrong(machine):
    table, values = (machine.upload(np.ones((3, 2), np.float32)) for _ in range(2))
    slots, rows = machine.upload(np.ones((2, 2), np.float32)), machine.upload(np.arange(3))
    lookup = lookups.sparse_apply(table, slots, (rows, values), ("adagrad", (0.5, 0.25, 0)))
    with pytest.raises(core.CoreError, match="slots must have 1 x 6 elements, got 4"):
        machine.run(lookup)
