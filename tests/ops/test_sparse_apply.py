"""The ops that update rows of ordinary variables: against stock's optimizers, and their limits."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from checking import VALUE_DTYPES, assert_close, assert_rounded_once, assert_same_bits, dtype_name
from fused_embedding import raw_ops
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

pytestmark = pytest.mark.usefixtures("device")
v1 = tf.compat.v1
InvalidArgumentError = tf.errors.InvalidArgumentError
NUM_ROWS, DIM = 7, 3
LR = 0.1

# Rule -> the stock optimizer, hyperparameters of the rule, the optimizer's names of its slots.
RULES = {
    "sgd": (v1.train.GradientDescentOptimizer(LR), [LR], []),
    "momentum": (v1.train.MomentumOptimizer(LR, 0.9), [LR, 0.9, 0.0], ["momentum"]),
    "nesterov": (
        v1.train.MomentumOptimizer(LR, 0.9, use_nesterov=True),
        [LR, 0.9, 1.0],
        ["momentum"],
    ),
    "adagrad": (v1.train.AdagradOptimizer(LR), [LR, 0.0, 0.1], ["accumulator"]),
    "rmsprop": (
        v1.train.RMSPropOptimizer(LR, 0.8, 0.5, 1e-3),
        [LR, 0.8, 0.5, 1e-3],
        ["rms", "momentum"],
    ),
    "centered_rmsprop": (
        v1.train.RMSPropOptimizer(LR, 0.8, 0.5, 1e-3, centered=True),
        [LR, 0.8, 0.5, 1e-3],
        ["rms", "mg", "momentum"],
    ),
    "ftrl": (
        v1.train.FtrlOptimizer(LR, -0.5, 0.2, 0.01, 0.1),
        [LR, -0.5, 0.01, 0.1, 0.0, 0.2],
        ["accum", "linear"],
    ),
}
INDICES = {
    "none": [],
    "sorted": [0, 2, 6],
    "distinct": [5, 0, 6, 1],
    "repeated": [5, 1, 5, 0, 1, 5],
    "all_one": [3, 3],
}


def rows(num_rows, dtype=tf.float32, seed=0, shape=(DIM,)):
    values = np.random.default_rng(seed).standard_normal((num_rows, *shape))
    return values.astype(dtype.as_numpy_dtype)


def gradient(indices, dtype=tf.float32, seed=1):
    return rows(len(indices), dtype, seed)


def rule_name(name):
    return "momentum" if name == "nesterov" else name


def as_slots(values, dtype):
    """Variables of what stock's slots hold."""
    return [tf.Variable(tf.cast(value, dtype)) for value in values]


def stock_step(name, value, grads, indices):
    """Value and slots of stock's optimizer before and after one sparse step.

    On the CPU: on a GPU stock has not all of them.
    """
    optimizer, _, slot_names = RULES[name]
    with tf.device("/CPU:0"):
        variable = tf.Variable(value)
        with tf.init_scope():
            optimizer._create_slots([variable])
        slots = [optimizer.get_slot(variable, slot) for slot in slot_names]
        before = [slot.numpy() for slot in slots]
        slices = tf.IndexedSlices(tf.constant(grads), tf.constant(indices, tf.int64))
        optimizer.apply_gradients([(slices, variable)])
    return before, [variable.numpy(), *(slot.numpy() for slot in slots)]


def apply(variables, slots, grads, indices, rule="sgd", hyperparameters=(LR,)):
    return raw_ops.FusedEmbeddingResourceSparseApply(
        variables=[variable.handle for variable in variables],
        slots=[slot.handle for slot in slots],
        grads=[tf.convert_to_tensor(grad) for grad in grads],
        indices=[tf.constant(i, tf.int64) if isinstance(i, list) else i for i in indices],
        # As stock has them, whose tensors of numbers are float32.
        hyperparameters=tf.cast(tf.constant(hyperparameters, tf.float32), tf.float64),
        rule=rule,
    )


@pytest.mark.parametrize("indices", INDICES.values(), ids=INDICES)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=dtype_name)
@pytest.mark.parametrize("name", RULES)
def test_equals_stock(name, dtype, indices):
    value, grad = rows(NUM_ROWS, dtype), gradient(indices, dtype)
    before, want = stock_step(name, value, grad, indices)
    variable, slots = tf.Variable(value), as_slots(before, dtype)
    apply([variable], slots, [grad], [indices], rule_name(name), RULES[name][1])
    for got, expected in zip([variable, *slots], want, strict=True):
        assert_close(got.numpy(), expected, terms=32)
    assert not indices or not np.array_equal(variable, value)


@pytest.mark.parametrize("indices", INDICES.values(), ids=INDICES)
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=dtype_name)
@pytest.mark.parametrize("name", RULES)
def test_16_bits_are_stock_in_float32_rounded_once(name, dtype, indices):
    value, grad = rows(NUM_ROWS, dtype), gradient(indices, dtype)
    sums = np.zeros((NUM_ROWS, DIM), np.float32)
    np.add.at(sums, indices, grad.astype(np.float32))
    distinct = sorted(set(indices))
    summed = tf.cast(tf.cast(sums[distinct], dtype), tf.float32)
    optimizer, _, slot_names = RULES[name]
    with tf.device("/CPU:0"):  # as stock_step
        wide = tf.Variable(value.astype(np.float32))
        optimizer._create_slots([wide])
        wide_slots = [optimizer.get_slot(wide, slot) for slot in slot_names]
        for slot in wide_slots:
            slot.assign(tf.cast(tf.cast(slot, dtype), tf.float32))
    slots = as_slots(wide_slots, dtype)
    slices = tf.IndexedSlices(summed, tf.constant(distinct, tf.int64))
    with tf.device("/CPU:0"):
        optimizer.apply_gradients([(slices, wide)])
    variable = tf.Variable(value)
    apply([variable], slots, [grad], [indices], rule_name(name), RULES[name][1])
    for got, want in zip([variable, *slots], [wide, *wide_slots], strict=True):
        assert_rounded_once(got.numpy(), want.numpy(), dtype)


def test_adam_by_hand():
    value, grad = rows(NUM_ROWS, tf.float64), gradient([2, 2, 5], tf.float64)
    hyperparameters = np.float32([0.1, 0.8, 0.9, 1e-3, 0.64, 0.81]).astype(np.float64).tolist()
    lr, beta1, beta2, epsilon, power1, power2 = hyperparameters
    m, v = rows(NUM_ROWS, tf.float64, 3), rows(NUM_ROWS, tf.float64, 4) ** 2
    variable, slots = tf.Variable(value), as_slots([m, v], tf.float64)
    apply([variable], slots, [grad], [[2, 2, 5]], "adam", hyperparameters)
    for row, g in ((2, grad[0] + grad[1]), (5, grad[2])):
        m[row] = beta1 * m[row] + (1 - beta1) * g
        v[row] = beta2 * v[row] + (1 - beta2) * g**2
        rate = lr * np.sqrt(1 - power2) / (1 - power1)
        value[row] -= rate * m[row] / (np.sqrt(v[row]) + epsilon)
    for got, want in zip([variable, *slots], [value, m, v], strict=True):
        assert_close(got.numpy(), want)


@pytest.mark.parametrize("shape", [(), (1,), (2, 5), (0,), (65,)], ids=str)
@pytest.mark.parametrize("index_dtype", [tf.int32, tf.int64], ids=dtype_name)
def test_rows_of_any_shape(shape, index_dtype):
    value, grad = rows(NUM_ROWS, shape=shape), rows(3, seed=1, shape=shape)
    variable = tf.Variable(value)
    apply([variable], [], [grad], [tf.constant([4, 0, 4], index_dtype)], hyperparameters=[0.5])
    value[4] -= np.float32(0.5) * (grad[0] + grad[2])
    value[0] -= np.float32(0.5) * grad[1]
    assert_close(variable.numpy(), value)


def flat(lists):
    return [value for values in lists for value in values]


def make_mixed(num_slots):
    """Variables of each dtype, with slots; gradients and indices of both types."""
    variables, slots, grads, indices = [], [], [], []
    for i, dtype in enumerate(VALUE_DTYPES):
        variables.append(tf.Variable(rows(50 + i, dtype, seed=i, shape=(i + 1,))))
        slots.append([tf.Variable(tf.ones_like(variables[-1]) * (k + 1)) for k in range(num_slots)])
        grads.append(rows(40, dtype, seed=9 + i, shape=(i + 1,)))
        index = np.random.default_rng(i).integers(0, 50, 40)
        indices.append(tf.constant(index, [tf.int32, tf.int64][i % 2]))
    return variables, slots, grads, indices


@pytest.mark.parametrize("rule", ["sgd", "adagrad", "rmsprop", "centered_rmsprop"])
def test_variables_of_several_types_and_sizes_at_once(rule):
    _, hyperparameters, slot_names = RULES[rule]
    hyperparameters = [*hyperparameters[:-1], 5.0]  # of the centered one: keeps the variance > 0
    variables, slots, grads, indices = make_mixed(len(slot_names))
    apply(variables, flat(slots), grads, indices, rule, hyperparameters)
    alone = make_mixed(len(slot_names))
    for variable, own_slots, grad, index in zip(*alone, strict=True):
        apply([variable], own_slots, [grad], [index], rule, hyperparameters)
    got, want = variables + flat(slots), alone[0] + flat(alone[1])
    for one, other in zip(got, want, strict=True):
        assert_same_bits(one, other)


def test_in_a_function():
    variable, slot = tf.Variable(rows(NUM_ROWS)), tf.Variable(tf.ones([NUM_ROWS, DIM]))
    want, want_slot = tf.Variable(variable), tf.Variable(slot)

    @tf.function
    def step(grad, indices):
        apply([variable], [slot], [grad], [indices], "adagrad", RULES["adagrad"][1])
        return variable.read_value()

    grad, indices = gradient([5, 1, 5]), tf.constant([5, 1, 5], tf.int64)
    got = step(grad, indices)
    apply([want], [want_slot], [grad], [indices], "adagrad", RULES["adagrad"][1])
    assert_same_bits(got, want)
    assert_same_bits(slot, want_slot)


def reference_step(session, variables, slots, grads, indices, **kwargs):
    session.run(v1.global_variables_initializer())
    kwargs = {"rule": "sgd", "hyperparameters": [LR]} | kwargs
    session.run(
        raw_ops.FusedEmbeddingSparseApply(
            variables=variables, slots=slots, grads=grads, indices=indices, **kwargs
        )
    )
    return session.run([*variables, *slots])


@pytest.mark.parametrize("use_locking", [False, True])
@pytest.mark.parametrize("indices", INDICES.values(), ids=INDICES)
def test_reference_variables(indices, use_locking):
    """Steps of reference variables have no kernel for GPUs."""
    value, grad = rows(NUM_ROWS), gradient(indices)
    with tf.Graph().as_default(), tf.device("/CPU:0"), v1.Session() as session:
        variables = [v1.Variable(value, use_resource=False), v1.Variable(value, use_resource=False)]
        slots = [v1.Variable(tf.ones_like(value), use_resource=False) for _ in variables]
        both = [tf.constant(indices, tf.int64), tf.constant(indices, tf.int32)]
        got = reference_step(
            session,
            *(variables, slots, [grad, grad], both),
            rule="adagrad",
            hyperparameters=RULES["adagrad"][1],
            use_locking=use_locking,
        )
    with tf.device("/CPU:0"):
        want, want_slot = tf.Variable(value), tf.Variable(tf.ones_like(value))
        apply([want], [want_slot], [grad], [indices], "adagrad", RULES["adagrad"][1])
    for one, expected in zip(got, [want, want, want_slot, want_slot], strict=True):
        assert_same_bits(one, expected)


def test_reference_variable_that_is_there_twice():
    with tf.Graph().as_default(), tf.device("/CPU:0"), v1.Session() as session:
        variable, grad = v1.Variable(rows(NUM_ROWS), use_resource=False), gradient([1])
        with pytest.raises(InvalidArgumentError, match="there twice"):
            reference_step(session, [variable] * 2, [], [grad] * 2, [[1], [1]])


# --- What is in memory ---


def address(variable):
    """Where a variable's values are."""
    return np.asarray(memoryview(variable.read_value())).ctypes.data


def test_updates_in_place(device):
    """The memory stays where it is, and dense reads go on sharing it: nothing copies the table."""
    if device == "GPU":
        pytest.skip("numpy sees copies of what is on a GPU")
    variable = tf.Variable(rows(4096))
    apply([variable], [], [gradient([1])], [[1]])  # the initial value may be shared until then
    before = address(variable)
    for _ in range(3):
        apply([variable], [], [gradient([1, 4000])], [[1, 4000]])
        assert address(variable) == before


def test_a_dense_read_that_is_held_keeps_its_values():
    value = rows(NUM_ROWS)
    variable = tf.Variable(value)
    held = variable.read_value()
    apply([variable], [], [gradient([2])], [[2]])
    assert_same_bits(held, value)
    assert not np.array_equal(variable, value)


def test_beside_stocks_sparse_updates():
    """Those put a variable into copy_on_read_mode."""
    value = rows(NUM_ROWS)
    variable, want = tf.Variable(value), tf.Variable(value)
    for step in range(3):
        grad = gradient([2, 5], seed=step)
        variable.scatter_sub(tf.IndexedSlices(grad, [2, 5]))
        held = variable.read_value()
        kept = held.numpy().copy()
        apply([variable], [], [grad], [[2, 5]])
        assert_same_bits(held, kept)
        for rate in (1.0, LR):
            want.scatter_sub(tf.IndexedSlices(grad * np.float32(rate), [2, 5]))
    assert_close(variable.numpy(), want.numpy())


def test_concurrent_steps_are_whole():
    """Whatever the order in which they name the variables: none is lost, none waits forever."""
    num_threads, num_steps, num_rows = 4, 40, 20_000
    variables = [tf.Variable(tf.zeros([num_rows, DIM])) for _ in range(3)]
    grads = [np.ones((num_rows, DIM), np.float32)] * 3
    indices = [tf.range(num_rows, dtype=tf.int64)] * 3

    def work(thread):
        mine = variables if thread % 2 else variables[::-1]
        for _ in range(num_steps):
            apply(mine, [], grads, indices, hyperparameters=[1.0])

    threads = [threading.Thread(target=work, args=[i]) for i in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for variable in variables:
        assert_same_bits(variable, -num_threads * num_steps * grads[0])


# --- Errors ---


@pytest.mark.parametrize("bad", [NUM_ROWS, -1, INT64_MIN, INT64_MAX])
def test_an_index_outside_changes_no_variable(bad):
    variables = [tf.Variable(rows(NUM_ROWS)) for _ in range(2)]
    grad = gradient([0, 0, 0])
    message = rf"index {bad} at position 1 of indices\[1\] is outside \[0, 7\)"
    with pytest.raises(InvalidArgumentError, match=message):
        apply(variables, [], [grad, grad], [[0, 1, 2], [0, bad, bad]])
    for variable in variables:
        assert_same_bits(variable, rows(NUM_ROWS))


def test_the_first_of_many_bad_indices_is_named():
    indices = np.arange(200_000)
    indices[[777, 150_000]] = [-9, 10**9]
    variable = tf.Variable(tf.zeros([200_000, 1]))
    with pytest.raises(InvalidArgumentError, match="index -9 at position 777 "):
        apply([variable], [], [np.zeros((200_000, 1), np.float32)], [indices.tolist()])


def variable_of(value):
    return tf.Variable(tf.constant(value))


BAD = {
    "variable_twice": ("there twice", lambda c: c | {"variables": [c["variables"][0]] * 2}),
    "variable_as_slot": ("there twice", lambda c: c | {"slots": c["variables"]}),
    "slots_missing": (
        "1 slots for each of the 2 variables, got 1",
        lambda c: c | {"slots": c["slots"][:1]},
    ),
    "grads_missing": (
        "gradient and indices for each of the 2",
        lambda c: c | {"grads": c["grads"][:1], "indices": c["indices"][:1]},
    ),
    "slot_shape": (
        r"slots\[1\] must be of the type and shape of variables\[1\]",
        lambda c: c | {"slots": [c["slots"][0], variable_of(np.ones((NUM_ROWS, 2), np.float32))]},
    ),
    "slot_dtype": (
        r"slots\[1\] must be of the type .* got double",
        lambda c: c | {"slots": [c["slots"][0], variable_of(np.ones((NUM_ROWS, DIM)))]},
    ),
    "grad_dtype": (
        r"variables\[0\] holds float, but grads\[0\] is double",
        lambda c: c | {"grads": [c["grads"][0].astype(np.float64), c["grads"][1]]},
    ),
    "grad_width": (
        r"rows of the same shape, got shapes \[7,3\] and \[2,2\]",
        lambda c: c | {"grads": [c["grads"][0][:, :2], c["grads"][1]]},
    ),
    "grad_rank": (
        "rows of the same shape",
        lambda c: c | {"grads": [c["grads"][0][:, :, None], c["grads"][1]]},
    ),
    "grad_scalar": (
        f"rows of the same shape|{SHAPE_ERROR}",
        lambda c: c | {"grads": [np.float32(1), c["grads"][1]]},
    ),
    "grad_rows": (
        f"an index for each row|{SHAPE_ERROR}",
        lambda c: c | {"grads": [c["grads"][0][:1], c["grads"][1]]},
    ),
    "indices_rank": (
        f"must be a vector|{SHAPE_ERROR}",
        lambda c: c | {"indices": [tf.constant([[0], [1]], tf.int64), c["indices"][1]]},
    ),
    "hyperparameters": ("takes 3 hyperparameters", lambda c: c | {"hyperparameters": [0.1]}),
    "no_hyperparameters": ("takes 3 hyperparameters", lambda c: c | {"hyperparameters": []}),
    "hyperparameters_rank": (
        f"hyperparameters must be a vector|{SHAPE_ERROR}",
        lambda c: c | {"hyperparameters": [[0.1]]},
    ),
    "rule": ("rule must be one of sgd", lambda c: c | {"rule": "nothing"}),
    "rule_of_rows": ("keeps one number a row", lambda c: c | {"rule": "row_wise_adagrad"}),
    "scalar_variable": (
        "must be a table",
        lambda c: c | {"variables": [variable_of(np.float32(1)), c["variables"][1]]},
    ),
}


def call():
    """Arguments of a valid step on two variables."""
    return {
        "variables": [tf.Variable(rows(NUM_ROWS)) for _ in range(2)],
        "slots": [tf.Variable(tf.ones([NUM_ROWS, DIM])) for _ in range(2)],
        "grads": [gradient([0, 1]), gradient([0, 1])],
        "indices": [[0, 1], [2, 3]],
        "rule": "adagrad",
        "hyperparameters": RULES["adagrad"][1],
    }


@pytest.mark.parametrize("case", BAD)
def test_rejects(case):
    message, spoil = BAD[case]
    good = call()
    apply(**good)
    bad = spoil(good)
    before = [variable.numpy() for variable in good["variables"] + good["slots"]]
    with pytest.raises((InvalidArgumentError, ValueError), match=message):
        apply(**bad)
    for variable, value in zip(good["variables"] + good["slots"], before, strict=True):
        assert_same_bits(variable, value)


def test_rejects_a_variable_that_is_not_initialised():
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("v", [NUM_ROWS, DIM], use_resource=True)
        operation = apply([variable], [], [gradient([1])], [[1]])
        with pytest.raises(tf.errors.FailedPreconditionError, match="run its initializer"):
            session.run(operation)


def test_rejects_what_is_no_handle_of_a_variable():
    text = tf.Variable(["text"])
    held = text.read_value()
    with pytest.raises(InvalidArgumentError, match="holds string"):
        apply([text], [], [gradient([0])], [[0]])
    assert held.numpy() == [b"text"]
    handles = tf.stack([text.handle, text.handle])
    for handle in (handles, handles[:0]):
        with pytest.raises(InvalidArgumentError, match=r"must be one handle|Empty resource handle"):
            raw_ops.FusedEmbeddingResourceSparseApply(
                variables=[handle],
                slots=[],
                grads=[tf.zeros([0, 1])],
                indices=[tf.zeros([0], tf.int64)],
                hyperparameters=tf.constant([LR], tf.float64),
                rule="sgd",
            )


def test_shape_function():
    with tf.Graph().as_default():
        variable = v1.get_variable("v", [NUM_ROWS, DIM], use_resource=True)
        unknown = v1.placeholder(tf.float32)
        apply([variable], [], [unknown], [v1.placeholder(tf.int64)])
        with pytest.raises(ValueError, match="Dimensions must be equal"):
            apply([variable], [], [tf.zeros([2, DIM])], [[1]])
        with pytest.raises(ValueError, match=SHAPE_ERROR):
            apply([variable], [], [tf.zeros([])], [[1]])
        with pytest.raises(ValueError, match=SHAPE_ERROR):
            apply([variable], [], [tf.zeros([1, DIM])], [tf.zeros([1, 1], tf.int64)])
