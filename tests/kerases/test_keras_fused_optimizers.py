"""fe.keras's optimizers: Keras's formulas on sums of duplicates, its variables and its files."""

import doctest
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import fused_embedding.keras.fused
import processes
from cases.keras_optimizers import (
    APPLY,
    NUM_ROWS,
    NUM_STEPS,
    OPTIMIZERS,
    SLOTS,
    TERMS,
    buffer_of,
    first_slots,
    lazy_step,
    make,
    numbers,
    op_types,
    ours,
    rows,
    variable_of,
)
from cases.kerases import KERASES, is_keras_3
from checking import assert_close, assert_same_bits, dtype_name

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
OPTIMIZER = pytest.mark.parametrize("name", OPTIMIZERS)
IN_FUNCTION = pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
SHAPES = {
    "a": ((3,), tf.int64),
    "b": ((17,), tf.int32),
    "c": ((2, 2), tf.int64),
    "d": ((), tf.int64),
}


def slot_of(optimizer, attribute, i):
    return numbers(getattr(optimizer, attribute)[i])


def batches(every_row=False):
    """Ids with repeats; or such that have every row."""
    rng = np.random.default_rng(5)
    every = np.arange(NUM_ROWS if every_row else 0)
    for _ in range(NUM_STEPS):
        ids = rng.permutation(np.concatenate([every, rng.integers(0, NUM_ROWS, 9)]))
        yield (
            ids,
            [
                rng.standard_normal((len(ids), *shape)).astype(np.float32)
                for shape, _ in SHAPES.values()
            ],
        )


def stepper(optimizer, variables, in_function):
    """A function of ids and gradients of rows."""

    def step(ids, grads):
        slices = [
            tf.IndexedSlices(grad, tf.cast(ids, dtype), tf.shape(variable))
            for grad, variable, (_, dtype) in zip(grads, variables, SHAPES.values(), strict=True)
        ]
        optimizer.apply_gradients(list(zip(slices, variables, strict=True)))

    if not in_function:
        return lambda ids, grads: step(tf.constant(ids), [tf.constant(g) for g in grads])
    specs = [tf.TensorSpec([None, *shape], tf.float32) for shape, _ in SHAPES.values()]
    return tf.function(step, input_signature=[tf.TensorSpec([None], tf.int64), specs])


def tables(keras):
    shapes = {name: shape for name, (shape, _) in SHAPES.items()}
    return [variable_of(keras, rows(shapes[name], i), name) for i, name in enumerate(shapes)]


@EACH_KERAS
@OPTIMIZER
@IN_FUNCTION
def test_twenty_steps_follow_the_formula(keras, name, in_function):
    """Values and slots after each step; the oracle leaves rows without a gradient alone."""
    variables, optimizer = tables(keras), make(ours(keras), name)
    values = [numbers(v).astype(np.float64) for v in variables]
    slots = [first_slots(name, value) for value in values]
    step = stepper(optimizer, variables, in_function)
    for number, (ids, grads) in enumerate(batches()):
        step(ids, grads)
        for i, (value, own, grad) in enumerate(zip(values, slots, grads, strict=True)):
            lazy_step(name, number + 1, value, own, ids, grad.astype(np.float64))
            assert_close(numbers(variables[i]), value, TERMS, err_msg=f"step {number}, table {i}")
            for slot, want in zip(SLOTS[name], own, strict=True):
                assert_close(slot_of(optimizer, slot, i), want, TERMS, err_msg=f"{slot} {number}")
    assert int(numbers(optimizer.iterations)) == NUM_STEPS


@EACH_KERAS
@OPTIMIZER
def test_twenty_steps_are_stocks_with_dense_gradients(keras, name):
    """Rows that are all in each step, whose gradients stock gets as sums."""
    variables, optimizer = tables(keras), make(ours(keras), name)
    stock_variables, stock = tables(keras), make(keras.optimizers, name)
    step = stepper(optimizer, variables, in_function=False)
    for ids, grads in batches(every_row=True):
        step(ids, grads)
        sums = [np.zeros((NUM_ROWS, *shape), np.float32) for shape, _ in SHAPES.values()]
        for total, grad in zip(sums, grads, strict=True):
            np.add.at(total, ids, grad)
        stock.apply_gradients(list(zip(map(tf.constant, sums), stock_variables, strict=True)))
        for got, want in zip(variables, stock_variables, strict=True):
            assert_close(numbers(got), numbers(want), TERMS)
    assert [v.name for v in optimizer.variables] == [v.name for v in stock.variables]
    for slot in SLOTS[name]:
        for i in range(len(variables)):
            assert_close(slot_of(optimizer, slot, i), slot_of(stock, slot, i), TERMS)


@EACH_KERAS
@pytest.mark.parametrize("name", ["momentum", "adagrad"])
@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16], ids=dtype_name)
def test_other_types(keras, name, dtype):
    """Gradients of float32 are cast to the type of the variable."""
    given = tf.cast(rows((3,), 0), dtype)
    variable, optimizer = variable_of(keras, given, dtype=dtype.name), make(ours(keras), name)
    value = tf.cast(given, tf.float64).numpy()
    ids, grads = np.array([3, 1, 3]), np.float32([[1, 2, -1], [0.5, 0, 4], [1, -3, 0.25]])
    lazy_step(name, 1, value, first_slots(name, value), ids, grads.astype(np.float64))
    slices = tf.IndexedSlices(tf.constant(grads), tf.constant(ids), tf.constant([12, 3]))
    optimizer.apply_gradients([(slices, variable)])
    assert numbers(variable).dtype == dtype.as_numpy_dtype
    assert_close(numbers(variable), value, terms=2)


@EACH_KERAS
def test_no_ids(keras):
    for name in OPTIMIZERS:
        if name == "adamw":
            continue
        variable, optimizer = variable_of(keras, rows((3,), 0)), make(ours(keras), name)
        none = tf.IndexedSlices(tf.zeros([0, 3]), tf.zeros([0], tf.int64), tf.constant([12, 3]))
        optimizer.apply_gradients([(none, variable)])
        assert_same_bits(numbers(variable), rows((3,), 0))
        assert int(numbers(optimizer.iterations)) == 1


@EACH_KERAS
def test_stock_is_right_only_with_distinct_ids(keras):
    """What docs/optimizers.md says of Keras 3: else these optimizers had less of a reason."""
    wrong = []
    for name in ("sgd", "momentum", "adagrad", "rmsprop", "adam", "ftrl"):
        ids, grads = np.array([1, 4, 1]), np.ones((3, 3), np.float32)
        value = np.ones((5, 3), np.float32)
        results = []
        for grad in (
            tf.IndexedSlices(tf.constant(grads), tf.constant(ids), tf.constant([5, 3])),
            tf.constant(np.float32([[0] * 3, [2] * 3, [0] * 3, [0] * 3, [1] * 3])),
        ):
            variable, optimizer = variable_of(keras, value), make(keras.optimizers, name)
            for _ in range(2):
                optimizer.apply_gradients([(grad, variable)])
            results.append(numbers(variable)[1])
        if np.abs(results[0] - results[1]).max() > 1e-3:
            wrong.append(name)
    assert wrong == (["adagrad", "rmsprop", "adam", "ftrl"] if is_keras_3(keras) else [])


# --- The op ---


@EACH_KERAS
@OPTIMIZER
def test_one_op_updates_all_tables(keras, name):
    """Nothing else does: no scatter, no unique; a decay of weights is stock's."""
    variables, optimizer = tables(keras), make(ours(keras), name)
    types = op_types(stepper(optimizer, variables, in_function=True))
    assert types.count(APPLY) == 1
    assert not [t for t in types if "Scatter" in t or "Unique" in t or "SegmentSum" in t]
    num_decays = len(variables) if name == "adamw" else 0
    assert types.count("AssignSubVariableOp") == num_decays


@EACH_KERAS
@IN_FUNCTION
def test_no_step_copies_a_table(keras, in_function):
    """Values and slots stay where they are in memory, though they are also read as a whole."""
    variable = variable_of(keras, np.ones((200_000, 16), np.float32))
    optimizer = make(ours(keras), "adam")

    def step(ids):
        grad = tf.IndexedSlices(tf.ones([tf.size(ids), 16]), ids, tf.shape(variable))
        optimizer.apply_gradients([(grad, variable)])

    step = tf.function(step) if in_function else step
    ids = tf.constant([3, 11, 3], tf.int64)
    step(ids)  # until then the initial values may be shared
    everything = [variable, optimizer._momentums[0], optimizer._velocities[0]]
    before = [buffer_of(v) for v in everything]
    for _ in range(3):
        step(ids)
    assert [buffer_of(v) for v in everything] == before


@EACH_KERAS
def test_an_index_outside_is_an_error_and_changes_nothing(keras):
    variable, optimizer = variable_of(keras, rows((3,), 0)), make(ours(keras), "sgd")
    bad = tf.IndexedSlices(tf.ones([1, 3]), tf.constant([NUM_ROWS], tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="index 12 at position 0"):
        optimizer.apply_gradients([(bad, variable)])
    assert_same_bits(numbers(variable), rows((3,), 0))


# --- Classes ---


@EACH_KERAS
@OPTIMIZER
def test_classes_and_configs_are_stocks(keras, name):
    optimizer, stock = make(ours(keras), name, name="x"), make(keras.optimizers, name, name="x")
    assert isinstance(optimizer, type(stock))
    assert type(optimizer).__init__ is type(stock).__init__
    assert type(optimizer).__name__ == type(stock).__name__
    assert optimizer.get_config() == stock.get_config()
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config() == stock.get_config()


def test_names_are_those_of_tf_keras():
    assert fe.keras.optimizers.Adam is fe.keras.fused_optimizers().Adam
    assert issubclass(fe.keras.optimizers.Adam, tf.keras.optimizers.Adam)
    with pytest.raises(AttributeError, match="Nadam"):
        fe.keras.optimizers.Nadam  # noqa: B018


# --- Options ---


def train(keras, module, name, sparse, every_row=True, steps=6, **options):
    """The first table after a few steps; with the sums as dense gradients if not sparse."""
    variable, optimizer = variable_of(keras, rows((3,), 0)), make(module, name, **options)
    for ids, (grad, *_) in list(batches(every_row))[:steps]:
        if sparse:
            slices = tf.IndexedSlices(tf.constant(grad), tf.constant(ids), tf.constant([12, 3]))
        else:
            slices = np.zeros((NUM_ROWS, 3), np.float32)
            np.add.at(slices, ids, grad)
            slices = tf.constant(slices)
        optimizer.apply_gradients([(slices, variable)])
    return numbers(variable), optimizer


OPTIONS = {
    "clipnorm": ("sgd", {"clipnorm": 0.5}),
    "global_clipnorm": ("momentum", {"global_clipnorm": 0.5}),
    "clipvalue": ("adagrad", {"clipvalue": 0.25}),
    "weight_decay": ("adagrad", {"weight_decay": 0.5}),
    "use_ema": ("adam", {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2}),
    "amsgrad": ("adam", {"amsgrad": True}),
}


@EACH_KERAS
@pytest.mark.parametrize("option", OPTIONS)
def test_options_do_what_they_do_to_sums(keras, option):
    name, options = OPTIONS[option]
    got, _ = train(keras, ours(keras), name, sparse=True, **options)
    want, _ = train(keras, keras.optimizers, name, sparse=False, **options)
    plain, _ = train(keras, keras.optimizers, name, sparse=False)
    assert_close(got, want, TERMS)
    assert np.abs(want - plain).max() > 1e-3, "the option changes nothing"


@EACH_KERAS
def test_learning_rate_schedules(keras):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    for name in ("momentum", "adam"):
        got, _ = train(keras, ours(keras), name, sparse=True, learning_rate=schedule)
        want, _ = train(keras, keras.optimizers, name, sparse=False, learning_rate=schedule)
        assert_close(got, want, TERMS)


def test_gradient_accumulation_of_keras_3():
    keras = KERASES["keras"]
    if not is_keras_3(keras):
        pytest.skip("Keras 2 has none")
    options = {"gradient_accumulation_steps": 2}
    got, _ = train(keras, ours(keras), "adam", sparse=True, **options)
    want, _ = train(keras, keras.optimizers, "adam", sparse=False, **options)
    assert_close(got, want, TERMS)


@pytest.mark.parametrize("wrap", [False, True], ids=["variable", "table"])
def test_adaptive_epsilon_of_tf_keras(wrap):
    keras = KERASES.get("tf_keras")
    if keras is None or not hasattr(keras.optimizers.Adam(), "adaptive_epsilon"):
        pytest.skip("this tf_keras has none")
    want, _ = train(keras, keras.optimizers, "adam", sparse=False, adaptive_epsilon=True)
    if not wrap:
        got, _ = train(keras, ours(keras), "adam", sparse=True, adaptive_epsilon=True)
    else:
        table = fe.get_embedding_variable("adaptive", embedding_dim=3)
        table.upsert(tf.range(NUM_ROWS), rows((3,), 0))
        optimizer = fe.keras.wrap(make(keras.optimizers, "adam", adaptive_epsilon=True))
        for ids, (grad, *_) in list(batches(every_row=True))[:6]:
            slices = tf.IndexedSlices(tf.constant(grad), tf.constant(ids))
            optimizer.apply_gradients([(slices, table)])
        got = tf.nn.embedding_lookup(table, tf.range(NUM_ROWS)).numpy()
    assert_close(got, want, TERMS)


@EACH_KERAS
def test_untouched_rows_rest(keras):
    for name in OPTIMIZERS:
        if name == "adamw":
            continue
        variable, optimizer = variable_of(keras, rows((3,), 0)), make(ours(keras), name)
        for ids in ([1, 2, 1], [2, 2]):
            grad = tf.IndexedSlices(tf.ones([len(ids), 3]), tf.constant(ids), tf.constant([12, 3]))
            optimizer.apply_gradients([(grad, variable)])
            if len(ids) == 3:
                after_one = numbers(variable)
        others = [i for i in range(NUM_ROWS) if i not in (1, 2)]
        assert_same_bits(numbers(variable)[others], rows((3,), 0)[others])
        assert_same_bits(numbers(variable)[1], after_one[1])
        assert not np.array_equal(numbers(variable)[2], after_one[2])


@EACH_KERAS
def test_beside_an_embedding_variable(keras):
    """Both in one optimizer, without fe.keras.wrap: both the same rows."""
    table = fe.get_embedding_variable("both", embedding_dim=3)
    table.upsert(tf.range(NUM_ROWS), rows((3,), 0))
    held = fe.keras.variable(table) if is_keras_3(keras) else table
    variable, optimizer = variable_of(keras, rows((3,), 0)), make(ours(keras), "adam")
    assert fe.keras.wrap(optimizer) is optimizer
    for ids, (grad, *_) in list(batches())[:5]:
        slices = tf.IndexedSlices(tf.constant(grad), tf.constant(ids), tf.constant([12, 3]))
        optimizer.apply_gradients([(slices, variable), (slices, held)])
    assert int(numbers(optimizer.iterations)) == 5
    got = tf.nn.embedding_lookup(table, tf.range(NUM_ROWS)).numpy()
    assert_close(got, numbers(variable), TERMS)
    assert not np.array_equal(got, rows((3,), 0))


@EACH_KERAS
def test_a_subclass_with_an_update_of_its_own_is_asked(keras):
    class Half(ours(keras).SGD):
        def update_step(self, gradient, variable, *rest):
            self.seen = gradient
            half = tf.IndexedSlices(gradient.values / 2, gradient.indices, gradient.dense_shape)
            return super().update_step(half, variable, *rest)

    variable = variable_of(keras, rows((3,), 0))
    optimizer = Half(1.0)
    grad = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1, 1]), tf.constant([12, 3]))
    optimizer.apply_gradients([(grad, variable)])
    assert optimizer.seen is not None
    want = rows((3,), 0)
    want[1] -= 1
    assert_close(numbers(variable), want)


@EACH_KERAS
def test_a_variable_on_a_gpu_is_updated_by_stock(keras, monkeypatch):
    """There is none here: the place of the variable is what counts."""
    monkeypatch.setattr("fused_embedding.keras.fused.can_update", lambda _: False)
    variable, optimizer = tables(keras), make(ours(keras), "adagrad")
    types = op_types(stepper(optimizer, variable, in_function=True))
    assert APPLY not in types
    got, _ = train(keras, ours(keras), "adagrad", sparse=True)
    want, _ = train(keras, keras.optimizers, "adagrad", sparse=False)
    assert_close(got, want, TERMS)


@EACH_KERAS
@pytest.mark.slow
def test_under_a_strategy(keras):
    """Rows are summed over replicas, then updated once on each; row 3 is nobody's."""
    folder = pathlib.Path(__file__).parent
    done = processes.run_module("keras_replicas_program", keras.__name__, cwd=folder)
    last_line = processes.output_of(done).splitlines()[-1]
    got, want, table = (np.float32(rows) for rows in json.loads(last_line))
    assert_close(got, want, terms=TERMS)
    assert_close(table, want, terms=TERMS)
    moved = np.any(got != 1, axis=1)
    assert moved.tolist() == [True, True, True, False, True]


@EACH_KERAS
def test_an_unknown_variable_is_stocks_error(keras):
    optimizer = make(ours(keras), "momentum")
    optimizer.build([variable_of(keras, rows((3,), 0))])
    grad = tf.IndexedSlices(tf.ones([1, 3]), tf.constant([1]), tf.constant([12, 3]))
    with pytest.raises((KeyError, ValueError), match=r"recognize variable|Unknown variable"):
        optimizer.apply_gradients([(grad, variable_of(keras, rows((3,), 0)))])


@EACH_KERAS
def test_no_gradient_is_stocks_error(keras):
    variable = variable_of(keras, rows((3,), 0))
    with pytest.raises(ValueError, match="No gradients provided"):
        make(ours(keras), "sgd").apply_gradients([(None, variable)])


def test_examples():
    results = doctest.testmod(fused_embedding.keras.fused, extraglobs={"fe": fe})
    assert results.attempted > 0
    assert results.failed == 0
