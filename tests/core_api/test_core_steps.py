import numpy as np
import pytest
from benchmarks.gpu import core, lookups
from core_cases import RULES, assert_right, results, step_case

from oracle import step as oracle

machines = pytest.mark.parametrize("name", ["gpu", "cpu"])
paths = pytest.mark.parametrize("is_fused", [True, False], ids=["fused", "by_memory"])
rules = pytest.mark.parametrize("rule", RULES)


def asked(machine, rule, slots, table=None, **options):
    """A step on a table of three rows by ids 2, 0, 2, of the gradients [1, 2], [3, 4], [2, 2]."""
    table = machine.upload(np.ones((3, 2), np.float32)) if table is None else table
    column = lookups.Column(
        *(machine.upload(np.array([2, 0, 2])), machine.upload(np.arange(3)), table, 3),
        combiner="sum",
        combined_grad=machine.upload(np.array([[1, 2], [3, 4], [2, 2]], np.float32)),
    )
    numbers = options.pop("numbers", RULES.get(rule, (0.5, 0.25, 0)))
    slots = [[machine.upload(np.array(slot, np.float32)) for slot in slots]]
    return lookups.group_lookup_apply([column], lookups.Step(rule, numbers, slots, **options))


def after(machine, lookup):
    """The table, then its slots."""
    machine.run(lookup)
    columns, step, _ = lookup.used
    return [array.numpy() for array in (columns[0].table, *step.slots[0])]


# The gradients of rows 0 and 2 are [3, 4] and [3, 4]; roots of the sums are whole numbers.
BY_HAND = {
    "sgd": ((), [[-0.5, -1], [1, 1], [-0.5, -1]], ()),
    "adagrad": (
        [[[7, 9], [5, 6], [0, 0]]],  # roots 4, 5; 3, 4
        [[1 - 0.5 * 3 / 4.25, 1 - 0.5 * 4 / 5.25], [1, 1], [1 - 1.5 / 3.25, 1 - 2 / 4.25]],
        [[[16, 25], [5, 6], [9, 16]]],
    ),
    "row_wise_adagrad": (
        [[3.5, 5, 12.5]],  # and 12.5 each
        [[1 - 1.5 / 4.25, 1 - 2 / 4.25], [1, 1], [1 - 1.5 / 5.25, 1 - 2 / 5.25]],
        [[16, 5, 25]],
    ),
}


@machines
@paths
@rules
def test_is_what_it_is_by_hand(request, name, rule, is_fused):
    machine = request.getfixturevalue(name)
    slots, values, slots_after = BY_HAND[rule]
    got = after(machine, asked(machine, rule, slots, is_fused=is_fused))
    assert_right(got, [np.array(want) for want in (values, *slots_after)], terms=1)


@rules
def test_the_oracle_is_what_it_is_by_hand(rule):
    slots, values, slots_after = BY_HAND[rule]
    slot = np.array(slots[0])[[0, 2]] if slots else None
    got = oracle.step(rule, np.ones((2, 2)), slot, [[3, 4], [3, 4]], 0.5, 0.25)
    np.testing.assert_allclose(got.values, np.array(values)[[0, 2]], rtol=1e-15)
    if slots:
        np.testing.assert_array_equal(got.slot, np.array(slots_after[0])[[0, 2]])
    assert not got.values_error.any()


@rules
@pytest.mark.parametrize("size", [3, 60])
def test_fused_equals_the_gradient_and_then_the_step(gpu, rule, size):
    for seed in range(10):
        cases = [
            step_case(np.random.default_rng(seed), size, rule, is_fused)
            for is_fused in (True, False)
        ]
        fused, by_memory = (results(case, gpu) for case in cases)
        # Each is off by that much at most.
        for got, other, error in zip(fused, by_memory, cases[0].errors, strict=True):
            assert (abs(got.astype(float) - other) <= 2 * error).all(), f"seed {seed}"


@paths
@pytest.mark.parametrize("dim", [128, 160])
def test_many_ids_of_wide_rows_equal_the_oracle(gpu, is_fused, dim):
    # 160 float32 are more than lanes hold at once. Whole numbers: sums are exact in any order.
    size, table_rows = (2_000, 300) if gpu.is_emulated else (300_000, 5_000)
    rng = np.random.default_rng(dim)
    ids = np.minimum(rng.zipf(1.2, size) - 1, table_rows - 1)
    grad = rng.integers(-4, 5, (size, dim)).astype(np.float32)
    table, slot = np.ones((table_rows, dim), np.float32), np.ones(table_rows, np.float32)
    sums = np.zeros((table_rows, dim))
    np.add.at(sums, ids, grad)
    eps = np.finfo(np.float32).eps
    precision = oracle.Precision(0, eps, eps)
    want = oracle.step("row_wise_adagrad", table, slot, sums, 0.5, 0.25, precision)
    on_gpu, on_gpu_slot = gpu.upload(table), gpu.upload(slot)
    column = lookups.Column(
        *(gpu.upload(ids), gpu.upload(np.arange(size)), on_gpu, size),
        combiner="sum",
        combined_grad=gpu.upload(grad),
    )
    step = lookups.Step("row_wise_adagrad", (0.5, 0.25, 0), [[on_gpu_slot]], is_fused)
    gpu.run(lookups.group_lookup_apply([column], step))
    assert (abs(on_gpu.numpy() - want.values) <= want.values_error).all()
    assert (abs(on_gpu_slot.numpy() - want.slot) <= want.slot_error).all()


@paths
def test_a_group_waits_once_and_its_run_never(gpu, is_fused):
    tables = [gpu.upload(np.ones((40, 4), np.float32)) for _ in range(26)]
    slots = [[gpu.upload(np.zeros(40, np.float32))] for _ in tables]
    ids, grad = gpu.upload(np.arange(40)), gpu.upload(np.ones((40, 4), np.float32))
    columns = [
        lookups.Column(ids, ids, table, 40, table_number=t, combined_grad=grad)
        for t, table in enumerate(tables)
    ]
    step = lookups.Step("row_wise_adagrad", (0.5, 0.25, 0), slots, is_fused)
    before = gpu.counters()
    planned = gpu.plan(lookups.group_lookup_apply(columns, step))
    assert (gpu.counters() - before)["waits"] == 1
    assert planned.sizes() == []
    for _ in range(2):
        planned.run([])
    assert (gpu.counters() - before)["waits"] == 1
    assert (gpu.counters() - before)["launches"] > 0
    # Two steps by the gradient 1 of each row.
    want = 1 - 0.5 / 1.25 - 0.5 / (np.sqrt(2) + 0.25)
    for table in tables:
        np.testing.assert_allclose(table.numpy(), np.full((40, 4), want), rtol=1e-6)


def test_rules_that_are_not_fused_step_by_memory(gpu, cpu):
    slots = [np.zeros((3, 2)), np.zeros((3, 2))]
    numbers = (0.5, 0.9, 0.99, 1e-8, 0.9, 0.99)
    with pytest.raises(core.CoreError, match="adam has no kernel that also computes the gradient"):
        gpu.run(asked(gpu, "adam", slots, numbers=numbers))
    found = [
        after(machine, asked(machine, "adam", slots, numbers=numbers, is_fused=False))
        for machine in (gpu, cpu)
    ]
    assert (found[0][0] != 1).any()
    assert_right(found[0], found[1], terms=1, roundings=8)


@machines
@paths
@pytest.mark.parametrize(
    ("rule", "slots", "numbers", "error"),
    [
        ("lion", [], (1,), "rule must be one of sgd, .*, got lion"),
        ("adagrad", [np.zeros((3, 2))], (1, 2), "takes 3 hyperparameters, but got 2"),
        ("adagrad", [], (1, 2, 3), "has 1 slots for each of the 1 tables, got 0"),
        ("sgd", [np.zeros(3)], (1,), "has 0 slots for each of the 1 tables, got 1"),
        ("adagrad", [np.zeros(3)], (1, 2, 3), "table 0: slot must have 3 x 2 elements, got 3"),
        ("row_wise_adagrad", [np.zeros(2)], (1, 2, 3), "slot must have 3 x 1 elements, got 2"),
        ("row_wise_adagrad", [np.zeros((3, 2))], (1, 2, 3), "3 x 1 elements, got 6"),
    ],
)
def test_a_wrong_step_is_an_error_and_changes_nothing(
    request, name, is_fused, rule, slots, numbers, error
):
    machine = request.getfixturevalue(name)
    lookup = asked(machine, rule, slots, numbers=numbers, is_fused=is_fused)
    with pytest.raises(core.CoreError, match=error):
        machine.plan(lookup)
    np.testing.assert_array_equal(lookup.used[0][0].table.numpy(), 1)


@machines
@pytest.mark.parametrize("data", [None, 2], ids=["null", "not_aligned"])
def test_a_slot_without_memory_is_an_error(request, name, data):
    machine = request.getfixturevalue(name)
    lookup = asked(machine, "row_wise_adagrad", [np.zeros(3)])
    slot = lookup.struct.slots[0]
    lookup.struct.slots[0] = core.FeArray(data and slot.data + data, 3)
    error = "null pointer and the size 3" if data is None else "multiple of 4 bytes"
    with pytest.raises(core.CoreError, match=f"table 0: slot.*{error}"):
        machine.plan(lookup)


@machines
def test_pointers_that_are_null_are_errors(request, name):
    machine = request.getfixturevalue(name)
    lookup = asked(machine, "row_wise_adagrad", [np.zeros(3)])
    lookup.struct.slots = None
    with pytest.raises(core.CoreError, match="1 slots for each of the 1 tables, got 0"):
        machine.plan(lookup)
    lookup.struct.rule = None
    with pytest.raises(core.CoreError, match="rule must be one of"):
        machine.plan(lookup)


@machines
def test_columns_must_agree_on_the_tables(request, name):
    machine = request.getfixturevalue(name)
    table = machine.upload(np.ones((3, 2), np.float32))
    columns = asked(machine, "sgd", [], table).used[0]
    step = lookups.Step("sgd", (1,), [])
    shorter = [*columns, *asked(machine, "sgd", [], table.part(0, (2, 2))).used[0]]
    with pytest.raises(core.CoreError, match="table_number 0 stands for another table"):
        machine.plan(lookups.group_lookup_apply(shorter, step))
    columns = [columns[0], columns[0]]
    lookup = lookups.group_lookup_apply(columns, step)
    lookup.struct.group.num_tables = 2
    with pytest.raises(core.CoreError, match="table 1 must have a column"):
        machine.plan(lookup)


@machines
def test_rows_without_ids_change_nothing(request, name):
    machine = request.getfixturevalue(name)
    table, grad = (machine.upload(np.ones((3, 2), np.float32)) for _ in range(2))
    none = machine.upload(np.empty(0, np.int64))
    column = lookups.Column(none, none, table, 3, default_id=-1, combined_grad=grad)
    slot = machine.upload(np.ones(3, np.float32))
    step = lookups.Step("row_wise_adagrad", (0.5, 0.25, 0), [[slot]])
    for array in after(machine, lookups.group_lookup_apply([column], step)):
        np.testing.assert_array_equal(array, 1)
