"""EmbeddingVariableApply: which rows it changes. tests/train has the numbers."""

import numpy as np
import pytest
import tensorflow as tf
from table_cases import (
    DIM,
    apply,
    export,
    int64,
    lookup,
    make_table,
    statistics,
    upsert,
    values_of,
)

from checking import VALUE_DTYPES, assert_rounded_once, assert_same_bits, dtype_name
from fused_embedding import raw_ops
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

InvalidArgumentError = tf.errors.InvalidArgumentError
# Rule -> hyperparameters, and the names and widths of its slots.
RULES = {
    "sgd": ([0.5], {}),
    "momentum": ([0.5, 0.9, 0.0], {"momentum": DIM}),
    "adagrad": ([0.5, 0.0, 0.1], {"accumulator": DIM}),
    "adagrad_decay": (
        [0.5, 3.0, 2.0, 0.9, 0.1],
        {"accumulator": DIM, "accumulator_decay_power": 1},
    ),
    "row_wise_adagrad": ([0.5, 1e-3, 0.1], {"accumulator": 1}),
    "rmsprop": ([0.5, 0.9, 0.1, 1e-3], {"rms": DIM, "momentum": DIM}),
    "centered_rmsprop": ([0.5, 0.9, 0.1, 1e-3], {"rms": DIM, "mg": DIM, "momentum": DIM}),
    "adam": ([0.5, 0.9, 0.99, 1e-3, 0.9, 0.99], {"m": DIM, "v": DIM}),
    "adamw": ([0.5, 0.9, 0.99, 1e-3, 0.9, 0.99, 0.01], {"m": DIM, "v": DIM}),
    "adam_async": ([0.5, 0.9, 0.99, 1e-3, 0.9, 0.99, 0.0], {"m": DIM, "v": DIM}),
    "ftrl": ([0.5, -0.5, 0.01, 0.1, 0.0, 0.1], {"accum": DIM, "linear": DIM}),
    "keras_momentum": ([0.5, 0.9, 1.0], {"velocity": DIM}),
    "keras_adagrad": ([0.5, 1e-3, 0.1], {"accumulator": DIM}),
    "keras_rmsprop": ([0.5, 0.9, 1e-3], {"velocity": DIM}),
    "keras_centered_rmsprop": ([0.5, 0.9, 1e-3], {"velocity": DIM, "average_gradient": DIM}),
}
KEYS = [5, INT64_MIN, 9, INT64_MAX, -1]


def gradient(num_rows, dtype=tf.float32, seed=0):
    rows = np.random.default_rng(seed).integers(-8, 9, [num_rows, DIM]) / 4
    return tf.cast(rows, dtype)


def filled_table(dtype=tf.float32, keys=KEYS):
    table = make_table(dtype, initializer="constant")
    upsert(table, keys, gradient(len(keys), dtype, seed=1), dtype)
    return table


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_a_step_in_every_dtype(dtype, rule):
    hyperparameters, slots = RULES[rule]
    results = {}
    for kind in {dtype, tf.float64}:
        table = filled_table(kind)
        apply(table, KEYS, gradient(len(KEYS), kind), rule, hyperparameters)
        results[kind] = export(table, kind)
    got, want = results[dtype], results[tf.float64]
    assert_rounded_once(got.values, want.values, dtype)
    names = [f"Optimizer/{name}" for name in slots]
    assert got.slot_names.numpy().astype(str).tolist() == names
    assert got.slot_widths.numpy().tolist() == list(slots.values())
    assert got.slots.shape == (len(KEYS), sum(slots.values()))
    slot_dtype = tf.float64 if dtype == tf.float64 else tf.float32
    assert_rounded_once(got.slots, want.slots, slot_dtype)
    assert np.abs(want.values - export(filled_table(tf.float64), tf.float64).values).max() > 0.1


def test_sgd_by_hand():
    table = filled_table()
    before, grad = values_of(table, KEYS), gradient(len(KEYS))
    apply(table, KEYS[::-1], grad[::-1], "sgd", [0.5])
    assert_same_bits(values_of(table, KEYS), before - 0.5 * grad.numpy())


def test_keys_without_a_row_are_left():
    table = filled_table()
    apply(table, [1000, 5, 2000], gradient(3), "adagrad", RULES["adagrad"][0])
    assert export(table).keys.numpy().tolist() == sorted(KEYS)
    np.testing.assert_array_equal(values_of(table, [1000]), np.zeros([1, DIM]))


def test_keys_that_are_not_admitted_are_left():
    table = make_table(admission="counter", min_frequency=2)
    handles = lookup(table, [1, 2], [1, 2]).handles
    apply(table, [1, 2], gradient(2), handles=handles)
    assert export(table).keys.numpy().tolist() == [2]


@pytest.mark.parametrize("rule", RULES)
def test_handles_change_no_result_and_save_the_probes(rule):
    keys = np.random.default_rng(0).permutation(5000)
    contents = []
    for has_handles in (False, True):
        table = make_table()
        handles = lookup(table, keys).handles
        before = statistics(table)["index_probes"]
        for step in range(2):
            arguments = {"handles": handles} if has_handles else {}
            apply(table, keys, gradient(5000, seed=step), rule, RULES[rule][0], **arguments)
        assert statistics(table)["index_probes"] - before == (0 if has_handles else 2 * 5000)
        contents.append(export(table))
    for name, got in contents[0]._asdict().items():
        np.testing.assert_array_equal(got, getattr(contents[1], name), name)


HOSTILE = [-1, -2, INT64_MIN, INT64_MAX, 0, 1, 1 << 32, 17 << 32, (1 << 32) - 1, 2**31, 255 << 32]


@pytest.mark.parametrize("handle", HOSTILE)
def test_a_handle_of_another_row_or_none_is_probed_for(handle):
    table, want = filled_table(), filled_table()
    apply(table, KEYS, gradient(len(KEYS)), handles=np.full(len(KEYS), handle))
    apply(want, KEYS, gradient(len(KEYS)))
    assert_same_bits(export(table).values, export(want).values)


def test_handles_of_rows_that_went_since():
    table = make_table()
    handles = lookup(table, [1, 2, 3]).handles
    raw_ops.EmbeddingVariableErase(resource=table, keys=int64([1, 2, 3]))
    lookup(table, [3, 4, 2])  # in the rows that are free again
    before = values_of(table, [2, 3, 4])
    apply(table, [1, 2, 3], gradient(3), handles=handles)
    want = before - 0.5 * np.stack([*gradient(3)[1:], np.zeros(DIM)]).astype(np.float32)
    assert_same_bits(values_of(table, [2, 3, 4]), want)


def test_rows_of_any_size_in_parallel_are_as_one_by_one():
    keys = np.arange(20_000)
    grad = gradient(len(keys))
    whole, parts = make_table(), make_table()
    for table in (whole, parts):
        lookup(table, keys)
    apply(whole, keys, grad, "adagrad", RULES["adagrad"][0])
    for begin in range(0, len(keys), 1000):
        part = slice(begin, begin + 1000)
        apply(parts, keys[part], grad[part], "adagrad", RULES["adagrad"][0])
    assert_same_bits(export(whole).values, export(parts).values)
    assert_same_bits(export(whole).slots, export(parts).slots)


def test_slots_of_two_optimizers():
    table = filled_table()
    apply(table, KEYS[:3], gradient(3), "adagrad", [0.5, 0.0, 0.25], slot_prefix="A")
    apply(table, KEYS[3:], gradient(2), "momentum", RULES["momentum"][0], slot_prefix="B")
    apply(table, KEYS[:1], gradient(1), "adagrad", [0.5, 0.0, 0.25], slot_prefix="A_1")
    content = export(table)
    names = ["A/accumulator", "B/momentum", "A_1/accumulator"]
    assert content.slot_names.numpy().astype(str).tolist() == names
    assert content.slot_initials.numpy().tolist() == [0.25, 0.0, 0.25]
    slots = dict(zip(content.keys.numpy(), content.slots.numpy(), strict=True))
    np.testing.assert_array_equal(slots[KEYS[4]][:DIM], [0.25] * DIM)
    np.testing.assert_array_equal(slots[KEYS[2]][DIM:], [0.0] * DIM + [0.25] * DIM)
    # A row that is made later has them all.
    lookup(table, [77])
    slots = export(table).slots.numpy()[list(export(table).keys.numpy()).index(77)]
    np.testing.assert_array_equal(slots, [0.25] * DIM + [0.0] * DIM + [0.25] * DIM)


def test_one_name_for_slots_of_two_widths_is_an_error():
    table = filled_table()
    apply(table, KEYS, gradient(len(KEYS)), "adagrad", RULES["adagrad"][0])
    before = export(table)
    with pytest.raises(InvalidArgumentError, match=r"Optimizer/accumulator has width 3 .* not 1"):
        apply(table, KEYS, gradient(len(KEYS)), "row_wise_adagrad", [0.5, 0.0, 0.1])
    assert_same_bits(export(table).values, before.values)


def test_a_step_is_counted():
    table = filled_table()
    for _ in range(3):
        apply(table, [], gradient(0))
    lookup(table, [5])
    assert int(export(table).step) == 3
    assert export(table).versions.numpy()[sorted(KEYS).index(5)] == 3


def test_what_is_not_finite_stays_in_its_row():
    table = filled_table()
    before = values_of(table, KEYS)
    grad = gradient(len(KEYS)).numpy()
    grad[1, 0], grad[3, 1] = np.nan, np.inf
    apply(table, KEYS, grad)
    np.testing.assert_array_equal(values_of(table, KEYS), before - 0.5 * grad)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": [1], "grad": np.zeros([1, 2], np.float32)}, r"grads must have shape \[1, 3\]"),
        ({"keys": [1], "grad": np.zeros([2, 3], np.float32)}, r"grads must have shape \[1, 3\]"),
        ({"keys": [1], "grad": np.zeros([3], np.float32)}, r"grads must have shape \[1, 3\]"),
        ({"keys": [1], "grad": np.zeros([1, 3])}, "grads is double, but the table holds float"),
        ({"keys": [1], "handles": int64([1, 2])}, "handles .* each of the 1 keys, got 2"),
        ({"keys": [[1]]}, "keys"),
        ({"keys": [1], "handles": int64([[1]])}, "handles"),
        ({"keys": [1], "hyperparameters": []}, "sgd takes 1 hyperparameters, but got 0"),
        ({"keys": [1], "hyperparameters": [0.5, 1]}, "in this order: learning_rate"),
        ({"keys": [1], "hyperparameters": 0.5}, "hyperparameters"),
        ({"keys": [1], "rule": "adam_max"}, "rule must be one of sgd, .* got adam_max"),
    ],
)
def test_wrong_steps_change_nothing(arguments, message):
    table = filled_table(keys=[1])
    before = values_of(table, [1])
    with pytest.raises(InvalidArgumentError, match=message):
        apply(table, **{"grad": np.ones([1, 3], np.float32)} | arguments)
    assert_same_bits(values_of(table, [1]), before)
    assert int(export(table).step) == 0


def apply_to_all(tables, keys, grads, **arguments):
    """One op for several tables."""
    given = {
        "handles": [int64([])] * len(tables),
        "hyperparameters": [np.array([0.5, 0.0, 0.25])] * len(tables),
        "rule": "adagrad",
        "slot_prefixes": ["Adagrad"] * len(tables),
    }
    raw_ops.EmbeddingVariableApply(
        resources=tables, keys=[int64(k) for k in keys], grads=grads, **given | arguments
    )


def test_several_tables_are_updated_as_each_by_itself():
    """Small ones beside each other, a large one by all threads; types and numbers may differ."""
    keys = [KEYS, np.arange(20_000), [3, 2**62]]
    dtypes = [tf.float32, tf.float32, tf.float64]
    numbers = [[0.5, 0.0, 0.25], [0.25, 0.0, 0.5], [0.5, 0.0, 0.25]]
    grads = [tf.cast(gradient(len(k), seed=i), dtypes[i]) for i, k in enumerate(keys)]
    got, want = (
        [filled_table(keys=k, dtype=d) for k, d in zip(keys, dtypes, strict=True)] for _ in range(2)
    )
    for _ in range(2):
        apply_to_all(got, keys, grads, hyperparameters=[np.array(n) for n in numbers])
        for table, k, grad, n in zip(want, keys, grads, numbers, strict=True):
            apply(table, k, grad, "adagrad", n, slot_prefix="Adagrad")
    for g, w, dtype in zip(got, want, dtypes, strict=True):
        for g_column, w_column in zip(export(g, dtype), export(w, dtype), strict=True):
            np.testing.assert_array_equal(g_column, w_column)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": [int64([1]), int64([[1]])]}, "keys"),
        ({"grads": [np.ones([1, 3], np.float32), np.ones([1, 2], np.float32)]}, "grads must"),
        ({"grads": [np.ones([1, 3], np.float32)] * 3}, "3"),
        ({"handles": [int64([0]), int64([1, 2])]}, "each of the 1 keys, got 2"),
        ({"hyperparameters": [np.array([0.5, 0.0, 0.25]), np.array([0.5])]}, "takes 3"),
        ({"slot_prefixes": ["Adagrad"]}, "slot_prefixes .* each of the 2 tables, got 2 and 1"),
    ],
)
def test_one_wrong_table_leaves_all_as_they_were(arguments, message):
    tables = [filled_table(keys=[1]) for _ in range(2)]
    before = [values_of(table, [1]) for table in tables]
    given = {"keys": [[1], [1]], "grads": [np.ones([1, 3], np.float32)] * 2} | arguments
    with pytest.raises(InvalidArgumentError, match=message):
        apply_to_all(tables, **given)
    for table, value in zip(tables, before, strict=True):
        assert_same_bits(values_of(table, [1]), value)
        content = export(table)
        assert (int(content.step), content.slot_names.numpy().tolist()) == (0, [])


def test_a_slot_of_another_width_leaves_all_as_they_were():
    tables = [filled_table(keys=[1]) for _ in range(2)]
    grad = np.ones([1, 3], np.float32)
    apply(tables[1], [1], grad, "row_wise_adagrad", [0.5, 0.0, 0.1], slot_prefix="Adagrad")
    with pytest.raises(InvalidArgumentError, match="slot Adagrad/accumulator has width 1"):
        apply_to_all(tables, [[1], [1]], [grad] * 2)
    assert export(tables[0]).slot_names.numpy().tolist() == []


def test_a_table_that_is_there_twice_is_an_error():
    table = filled_table(keys=[1])
    before = values_of(table, [1])
    with pytest.raises(InvalidArgumentError, match="a table is there twice"):
        apply_to_all([table] * 2, [[1], [1]], [np.ones([1, 3], np.float32)] * 2)
    assert_same_bits(values_of(table, [1]), before)


@pytest.mark.parametrize("name", ["keys", "handles", "grad"])
def test_shape_function_rejects_other_ranks(name):
    @tf.function
    def step(keys, handles, grad):
        apply_op(make_table(), keys, handles, grad)

    specs = {
        "keys": tf.TensorSpec([None], tf.int64),
        "handles": tf.TensorSpec([None], tf.int64),
        "grad": tf.TensorSpec([None, DIM], tf.float32),
    }
    step.get_concrete_function(**specs)
    specs[name] = tf.TensorSpec([1, 1, 1], specs[name].dtype)
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        step.get_concrete_function(**specs)


def apply_op(table, keys, handles, grad):
    raw_ops.EmbeddingVariableApply(
        resources=[table],
        keys=[keys],
        handles=[handles],
        grads=[grad],
        rule="sgd",
        hyperparameters=[np.array([0.5])],
        slot_prefixes=["SGD"],
    )
