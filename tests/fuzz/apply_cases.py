"""Valid calls of the op that updates ordinary variables, and what one that succeeds must have done.

The variables live from call to call, so a check compares with what it saw after the one before: a
call that failed in between must have changed nothing.
"""

import numpy as np
import tensorflow as tf

NUM_ROWS = 6
SHAPES = ((), (3,), (16,), (2, 2))
RULES = {
    "sgd": ([0.5], 0),
    "momentum": ([0.5, 0.5, 0.0], 1),
    "adagrad": ([0.5, 0.0, 0.25], 1),
}
_VARIABLES: dict = {}


def variables_of(shape):
    """A variable and its slot, made once: TensorFlow keeps kernels by attributes alone."""
    if shape not in _VARIABLES:
        _VARIABLES[shape] = [tf.Variable(tf.ones([NUM_ROWS, *shape])) for _ in range(2)]
    return _VARIABLES[shape]


def all_variables():
    """Those that were made, with their slots."""
    return [variable for pair in _VARIABLES.values() for variable in pair]


_SEEN: dict = {}  # values by variable, after the last call that succeeded


def make_apply(rng):
    for variable in all_variables():
        variable.assign(tf.ones_like(variable))
    shapes = [SHAPES[i] for i in rng.choice(len(SHAPES), rng.integers(1, 4), replace=False)]
    pairs = [variables_of(shape) for shape in shapes]
    rule = str(rng.choice(list(RULES)))
    hyperparameters, num_slots = RULES[rule]
    indices = [rng.integers(0, NUM_ROWS, rng.integers(0, 9)) for _ in shapes]
    grads = [
        (rng.integers(-8, 9, [len(index), *shape]) / 4).astype(np.float32)
        for index, shape in zip(indices, shapes, strict=True)
    ]
    _SEEN.clear()
    _SEEN.update({id(v.handle): v.numpy() for v in all_variables()})
    return {
        "variables": [variable.handle for variable, _ in pairs],
        "slots": [slot.handle for _, slot in pairs[: len(pairs) * num_slots]],
        "grads": grads,
        "indices": indices,
        "hyperparameters": np.array(hyperparameters),
        "rule": rule,
    }


def step(rule, hyperparameters, value, slot, grad):
    """New rows of a variable and its slot."""
    lr = np.float32(hyperparameters[0])
    if rule == "sgd":
        return value - lr * grad, slot
    if rule == "adagrad":
        slot = slot + grad * grad
        return value - lr * grad / (np.sqrt(slot) + np.float32(hyperparameters[1])), slot
    momentum = np.float32(hyperparameters[1])
    slot = slot * momentum + grad
    if hyperparameters[2]:
        return value - (lr * grad + momentum * lr * slot), slot
    return value - lr * slot, slot


def check_apply(args, got):
    rule, hyperparameters = args["rule"], args["hyperparameters"]
    known, num_slots = RULES[rule]
    assert hyperparameters.shape == (len(known),)
    assert len(args["slots"]) == num_slots * len(args["variables"])
    by_handle = {id(v.handle): v for pair in _VARIABLES.values() for v in pair}
    want = dict(_SEEN)
    for i, handle in enumerate(args["variables"]):
        index, grad = np.asarray(args["indices"][i]), np.asarray(args["grads"][i])
        assert not index.size or (index.min() >= 0 and index.max() < NUM_ROWS)
        rows = np.unique(index)
        sums = np.zeros((NUM_ROWS, *grad.shape[1:]), np.float32)
        np.add.at(sums, index, grad)
        value = want[id(handle)].copy()
        slot_id = id(args["slots"][i]) if num_slots else None
        slot = want[slot_id].copy() if num_slots else np.zeros_like(value)
        value[rows], slot[rows] = step(rule, hyperparameters, value[rows], slot[rows], sums[rows])
        want[id(handle)] = value
        if num_slots:
            want[slot_id] = slot
    for key, variable in by_handle.items():
        np.testing.assert_allclose(variable.numpy(), want[key], rtol=1e-4, atol=1e-6)
        _SEEN[key] = variable.numpy()


CASES = {"FusedEmbeddingResourceSparseApply": (make_apply, check_apply)}
