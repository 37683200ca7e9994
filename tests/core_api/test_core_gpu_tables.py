"""Tables by key in the memory of a GPU, against a dict."""

import numpy as np
import pytest
from benchmarks.gpu import core, lookups, tables

DIM = 4
MEGABYTE = 1 << 20


def table_of(gpu, **options):
    return tables.GpuTable(gpu, DIM, **{"max_bytes": MEGABYTE, **options})


def upload(gpu, keys):
    return gpu.upload(np.asarray(keys, np.int64))


def values_of(gpu, lookup):
    return gpu.run(lookup)[0].numpy().view(np.float32)


def erase(gpu, table, keys):
    return gpu.run(table.erase(upload(gpu, keys)))[0].numpy()


def test_a_row_keeps_its_value_and_a_missing_key_reads_the_same(gpu):
    table, keys = table_of(gpu), upload(gpu, [5, -1, 2**62, 0, -(2**63)])
    first = values_of(gpu, table.find(keys))
    assert len(np.unique(first, axis=0)) == 5
    assert np.all(np.abs(first) <= 1)
    assert not erase(gpu, table, [5, 0]).any()  # to find a key inserts nothing
    np.testing.assert_array_equal(values_of(gpu, table.find_or_insert(keys)), first)
    assert list(erase(gpu, table, [0, 7, 5])) == [True, False, True]
    np.testing.assert_array_equal(values_of(gpu, table.find(keys)), first)


@pytest.mark.parametrize("eviction", ["none", "lru", "lfu"])
def test_random_steps_leave_the_keys_of_a_dict(gpu, eviction):
    rng = np.random.default_rng(3)
    table, present = table_of(gpu, eviction=eviction), {}
    for step in range(40):
        keys = rng.choice(600, rng.integers(1, 80), replace=False)
        if step % 4 == 3:
            erased = erase(gpu, table, keys)
            assert list(erased) == [present.pop(key, None) is not None for key in keys]
            continue
        values = values_of(gpu, table.find_or_insert(upload(gpu, keys), step))
        for key, value in zip(keys, values, strict=True):
            np.testing.assert_array_equal(present.setdefault(key, value), value)
    assert list(erase(gpu, table, np.arange(600))) == [key in present for key in range(600)]


def test_a_table_grows_within_its_budget_and_then_says_so(gpu):
    table = table_of(gpu, max_bytes=16_000)
    buckets, num_bytes = table.sizes()
    assert buckets == 1

    def fill():
        for first in range(0, 4096, 64):
            gpu.run(table.find_or_insert(upload(gpu, np.arange(first, first + 64))))

    with pytest.raises(core.CoreError, match="max_bytes"):
        fill()
    grown, grown_bytes = table.sizes()
    assert grown > buckets
    assert num_bytes < grown_bytes <= 16_000


def test_a_full_table_evicts_the_row_used_longest_ago(gpu):
    bucket = tables.ROWS_PER_BUCKET
    _, of_one_bucket = table_of(gpu).sizes()
    table = table_of(gpu, max_bytes=of_one_bucket, eviction="lru")
    gpu.run(table.find_or_insert(upload(gpu, np.arange(bucket)), 1))
    gpu.run(table.find_or_insert(upload(gpu, np.arange(1, bucket)), 2))
    gpu.run(table.find_or_insert(upload(gpu, [1000]), 3))
    gone = np.flatnonzero(~erase(gpu, table, [*range(bucket), 1000]))
    assert list(gone) == [0]


def test_a_full_table_has_the_same_keys_in_each_run(gpu):
    _, of_one_bucket = table_of(gpu).sizes()

    def run():
        rng, results = np.random.default_rng(5), []
        table = table_of(gpu, max_bytes=of_one_bucket, eviction="lru")
        for step in range(30):
            keys = rng.choice(300, 20, replace=False)
            results.append(values_of(gpu, table.find_or_insert(upload(gpu, keys), step)))
            assert table.sizes() == (1, of_one_bucket)
        return np.concatenate(results), keys, erase(gpu, table, np.arange(300))

    values, last_keys, present = run()
    assert present.sum() == tables.ROWS_PER_BUCKET
    assert present[last_keys].all()
    again = run()
    np.testing.assert_array_equal(again[0], values)
    np.testing.assert_array_equal(again[2], present)


def test_a_batch_does_not_evict_its_own_rows(gpu):
    bucket = tables.ROWS_PER_BUCKET
    _, of_one_bucket = table_of(gpu).sizes()
    table = table_of(gpu, max_bytes=of_one_bucket, eviction="lfu")
    for step in range(3):
        gpu.run(table.find_or_insert(upload(gpu, np.arange(bucket)), step))
    new = np.arange(1000, 1010)  # used least of all
    gpu.run(table.find_or_insert(upload(gpu, new), 3))
    assert erase(gpu, table, new).all()


def test_a_search_is_two_launches_whatever_the_number_of_keys(gpu):
    table = table_of(gpu, min_buckets=64)
    for num_keys in (1, 1000):
        before = gpu.counters()
        gpu.run(table.find(upload(gpu, np.arange(num_keys))))
        gpu.wait()
        assert (gpu.counters() - before)["launches"] == 2


def test_a_step_waits_once_or_for_new_keys_twice_and_a_search_never(gpu):
    table, keys = table_of(gpu, min_buckets=4), upload(gpu, np.arange(30))
    step = table.find_or_insert(keys)
    for lookup, num_waits in ((step, 2), (step, 1), (table.find(keys), 0)):
        before = gpu.counters()
        planned = gpu.plan(lookup)
        planned.run(planned.allocate())
        assert (gpu.counters() - before)["waits"] == num_waits


def test_a_plan_is_stale_after_another_changed_the_table(gpu):
    table, keys = table_of(gpu), upload(gpu, [1, 2])
    planned = gpu.plan(table.find_or_insert(keys))
    erase(gpu, table, [1])
    with pytest.raises(core.CoreError, match="plan"):
        planned.run(planned.allocate())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_bytes": 0}, "max_bytes"),
        ({"min_buckets": 3}, "power of two"),
        ({"rule": ("no_such_rule", ())}, "no_such_rule"),
        ({"rule": ("adagrad", (0.5,))}, "learning_rate, epsilon, initial_accumulator_value"),
    ],
)
def test_a_config_that_makes_no_sense_is_an_error(gpu, options, message):
    with pytest.raises(core.CoreError, match=message):
        table_of(gpu, **options)


def test_wrong_calls_are_errors(gpu, cpu):
    table, keys = table_of(gpu), upload(gpu, [1, 2])
    with pytest.raises(core.CoreError, match="needs a GPU"):
        table_of(cpu)
    with pytest.raises(core.CoreError, match="a GPU has the table"):
        cpu.run(table.find(keys))
    for spoil in ({"table": None}, {"keys": core.FeArray(keys.address, -1)}):
        lookup = table.find_or_insert(keys)
        for name, value in spoil.items():
            setattr(lookup.struct, name, value)
        with pytest.raises(core.CoreError, match=next(iter(spoil))):
            gpu.run(lookup)


# Hyperparameters in each rule's order, and what its slots begin with.
RULES = {
    "sgd": ((0.5,), ()),
    "momentum": ((0.5, 0.9, 0), (0,)),
    "adagrad": ((0.5, 0.25, 0.1), (0.1,)),
    "adam": ((0.1, 0.9, 0.8, 1e-7, 0.9, 0.8), (0, 0)),
}


@pytest.mark.parametrize("dim", [3, 4, 40])
@pytest.mark.parametrize("rule", RULES)
def test_steps_on_rows_equal_those_on_an_array(gpu, cpu, rule, dim):
    numbers, first = RULES[rule]
    rng = np.random.default_rng(dim)
    keys = rng.choice(10**6, 30, replace=False)
    table = tables.GpuTable(gpu, dim, max_bytes=MEGABYTE, rule=(rule, numbers))
    values = gpu.run(table.find_or_insert(upload(gpu, keys)))[0].numpy().view(np.float32)
    array = cpu.upload(values)
    slots = cpu.upload(np.stack([np.full(values.shape, x, np.float32) for x in (*first, 0)]))
    slots = slots.part(0, (len(first), *values.shape))
    for _ in range(3):
        # Of some rows in any order, and of keys without rows, which get none.
        rows = rng.choice(30, 12, replace=False)
        grads = rng.standard_normal((14, dim)).astype(np.float32)
        asked = upload(gpu, [*keys[rows], -5, -6])
        gpu.run(table.apply(asked, gpu.upload(grads), (rule, numbers)))
        gradient = (cpu.upload(rows), cpu.upload(grads[:12]))
        cpu.run(lookups.sparse_apply(array, slots, gradient, (rule, numbers)))
    got = gpu.run(table.find(upload(gpu, keys)))[0].numpy().view(np.float32)
    np.testing.assert_allclose(got, array.numpy(), rtol=1e-5, atol=1e-6)
    assert not np.allclose(got, values)
    assert list(erase(gpu, table, [-5, -6])) == [False, False]


def test_a_rule_with_a_number_a_row_is_what_it_is_by_hand(gpu):
    rule = ("row_wise_adagrad", (0.5, 0.25, 3.5))
    table = tables.GpuTable(gpu, 2, max_bytes=MEGABYTE, rule=rule)
    keys = upload(gpu, [9])
    value = gpu.run(table.find_or_insert(keys))[0].numpy().view(np.float32)
    gpu.run(table.apply(keys, gpu.upload(np.array([[3, 4]], np.float32)), rule))
    got = gpu.run(table.find(keys))[0].numpy().view(np.float32)
    # The accumulator becomes 3.5 + 12.5, whose root is 4.
    np.testing.assert_allclose(got, value - 0.5 * np.array([[3, 4]]) / 4.25, rtol=1e-5)


def test_a_step_waits_for_nothing(gpu):
    rule = ("adagrad", (0.5, 0.25, 0.1))
    table, keys = table_of(gpu, rule=rule), upload(gpu, np.arange(30))
    gpu.run(table.find_or_insert(keys))
    grads = gpu.upload(np.ones((30, DIM), np.float32))
    before = gpu.counters()
    gpu.run(table.apply(keys, grads, rule))
    assert (gpu.counters() - before)["waits"] == 0
    gpu.wait()
    assert (gpu.counters() - before)["launches"] == 2  # the search, and the step


def test_wrong_steps_are_errors(gpu):
    keys, grads = upload(gpu, [1, 2]), gpu.upload(np.ones((2, DIM), np.float32))
    adagrad = ("adagrad", (0.5, 0.25, 0.1))
    table = table_of(gpu, rule=adagrad)
    gpu.run(table.find_or_insert(keys))
    for lookup, message in (
        (table.apply(keys, grads, ("momentum", (0.5, 0.9, 0))), "no slot step/momentum"),
        (table.apply(keys, grads, ("adagrad", (0.5,))), "learning_rate, epsilon"),
        (table.apply(keys, gpu.upload(np.ones(7, np.float32)), adagrad), "grads must have 2 x 4"),
        (table_of(gpu).apply(keys, grads, adagrad), "no slot step/accumulator"),
    ):
        with pytest.raises(core.CoreError, match=message):
            gpu.run(lookup)
