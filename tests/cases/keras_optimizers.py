"""Keras's optimizers, and their sparse updates once more in numpy: row by row, in float64."""

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import is_keras_3

APPLY = "FusedEmbeddingResourceSparseApply"
# Twenty steps multiply what was rounded before, those of Adam and centered RMSprop most.
TERMS = 512
NUM_ROWS, NUM_STEPS = 12, 20
# By name: the class of Keras and its arguments, which are numbers that float32 has exactly.
OPTIMIZERS = {
    "sgd": ("SGD", {"learning_rate": 0.125}),
    "momentum": ("SGD", {"learning_rate": 0.125, "momentum": 0.75}),
    "nesterov": ("SGD", {"learning_rate": 0.125, "momentum": 0.75, "nesterov": True}),
    "adagrad": (
        "Adagrad",
        {"learning_rate": 0.125, "epsilon": 0.0625, "initial_accumulator_value": 0.125},
    ),
    "rmsprop": ("RMSprop", {"learning_rate": 0.03125, "rho": 0.75, "epsilon": 0.0625}),
    "rmsprop_momentum": (
        "RMSprop",
        {"learning_rate": 0.03125, "rho": 0.75, "momentum": 0.5, "epsilon": 0.0625},
    ),
    "centered": (
        "RMSprop",
        {"learning_rate": 0.03125, "rho": 0.75, "epsilon": 0.0625, "centered": True},
    ),
    "centered_momentum": (
        "RMSprop",
        {"learning_rate": 0.03125, "momentum": 0.5, "epsilon": 0.0625, "centered": True}
        | {"rho": 0.75},
    ),
    "adam": (
        "Adam",
        {"learning_rate": 0.03125, "beta_1": 0.75, "beta_2": 0.875, "epsilon": 0.0625},
    ),
    "adamw": (
        "AdamW",
        {"learning_rate": 0.03125, "beta_1": 0.75, "beta_2": 0.875, "epsilon": 0.0625}
        | {"weight_decay": 0.25},
    ),
    "ftrl": (
        "Ftrl",
        {
            "learning_rate": 0.125,
            "initial_accumulator_value": 0.25,
            "l1_regularization_strength": 0.015625,
            "l2_regularization_strength": 0.125,
            "l2_shrinkage_regularization_strength": 0.03125,
            "beta": 0.0625,
        },
    ),
    "ftrl_power": (
        "Ftrl",
        {"learning_rate": 0.125, "learning_rate_power": -0.75, "initial_accumulator_value": 0.25},
    ),
}
# Where Keras keeps the slots, in the order of the oracle's.
SLOTS = {
    "sgd": (),
    "momentum": ("momentums",),
    "nesterov": ("momentums",),
    "adagrad": ("_accumulators",),
    "rmsprop": ("_velocities",),
    "rmsprop_momentum": ("_velocities", "_momentums"),
    "centered": ("_velocities", "_average_gradients"),
    "centered_momentum": ("_velocities", "_average_gradients", "_momentums"),
    "adam": ("_momentums", "_velocities"),
    "adamw": ("_momentums", "_velocities"),
    "ftrl": ("_accumulators", "_linears"),
    "ftrl_power": ("_accumulators", "_linears"),
}


def make(module, case, **more):
    """An optimizer of keras.optimizers, or of ours."""
    cls, arguments = OPTIMIZERS[case]
    return getattr(module, cls)(**{**arguments, **more})


def first_slots(name, value):
    """What the slots of a variable hold before the first step."""
    initial = {"_accumulators": OPTIMIZERS[name][1].get("initial_accumulator_value", 0.1)}
    return [np.full(value.shape, initial.get(slot, 0.0)) for slot in SLOTS[name]]


def _sgd(options, _, grad, value, slots):
    lr, momentum = options["learning_rate"], options.get("momentum", 0.0)
    if not momentum:
        return value - lr * grad, slots
    velocity = momentum * slots[0] - lr * grad
    move = momentum * velocity - lr * grad if options.get("nesterov") else velocity
    return value + move, [velocity]


def _adagrad(options, _, grad, value, slots):
    accumulator = slots[0] + grad**2
    move = options["learning_rate"] * grad / np.sqrt(accumulator + options["epsilon"])
    return value - move, [accumulator]


def _rmsprop(options, _, grad, value, slots):
    rho, rest = options["rho"], list(slots[1:])
    new = [rho * slots[0] + (1 - rho) * grad**2]
    variance = new[0] + options["epsilon"]
    if options.get("centered"):
        new.append(rho * rest.pop(0) + (1 - rho) * grad)
        variance = variance - new[-1] ** 2
    move = options["learning_rate"] * grad / np.sqrt(variance)
    if options.get("momentum"):
        move = options["momentum"] * rest.pop(0) + move
        new.append(move)
    return value - move, new


def _adam(options, step, grad, value, slots):
    beta_1, beta_2 = options["beta_1"], options["beta_2"]
    m = beta_1 * slots[0] + (1 - beta_1) * grad
    v = beta_2 * slots[1] + (1 - beta_2) * grad**2
    lr = options["learning_rate"] * np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
    return value - lr * m / (np.sqrt(v) + options["epsilon"]), [m, v]


def _ftrl(options, _, grad, value, slots):
    lr, power = options["learning_rate"], -options.get("learning_rate_power", -0.5)
    l1, l2 = (options.get(f"l{i}_regularization_strength", 0.0) for i in (1, 2))
    l2 += options.get("beta", 0.0) / (2 * lr)
    shrinkage = options.get("l2_shrinkage_regularization_strength", 0.0)
    accumulator = slots[0] + grad**2
    sigma = (accumulator**power - slots[0] ** power) / lr
    linear = slots[1] + grad + 2 * shrinkage * value - sigma * value
    clipped = np.clip(linear, -l1, l1)
    return (clipped - linear) / (accumulator**power / lr + 2 * l2), [accumulator, linear]


_FORMULAS = {
    "SGD": _sgd,
    "Adagrad": _adagrad,
    "RMSprop": _rmsprop,
    "Adam": _adam,
    "AdamW": _adam,
    "Ftrl": _ftrl,
}


def lazy_step(name, step, value, slots, ids, grads):
    """One step on the rows that `ids` name, each once, by the sum of its gradients; in place.

    `step` counts from 1. Weights decay in all rows, as Keras has it.
    """
    cls, options = OPTIMIZERS[name]
    sums = np.zeros_like(value)
    np.add.at(sums, ids, grads)
    value *= 1 - options.get("weight_decay", 0.0) * options["learning_rate"]
    for row in set(ids.tolist()):
        old = [slot[row] for slot in slots]
        value[row], new = _FORMULAS[cls](options, step, sums[row], value[row], old)
        for slot, numbers in zip(slots, new, strict=True):
            slot[row] = numbers


def ours(keras):
    """The optimizers of fe.keras for a Keras."""
    return fe.keras.fused_optimizers(keras)


def rows(shape, seed):
    """What a table holds at first."""
    values = np.random.default_rng(seed).standard_normal((NUM_ROWS, *shape))
    return values.astype(np.float32)


def variable_of(keras, value, name="table", dtype="float32"):
    """A variable of Keras 3, or a tf.Variable."""
    make_variable = keras.Variable if is_keras_3(keras) else tf.Variable
    return make_variable(value, name=name, dtype=dtype)


def numbers(variable):
    """The value of either."""
    return tf.convert_to_tensor(variable).numpy()


def buffer_of(variable):
    """Where a variable is in memory."""
    tensor = variable.value.read_value() if hasattr(variable, "path") else variable.read_value()
    return np.asarray(memoryview(tensor)).ctypes.data


def op_types(function):
    """Of a tf.function's graph and the functions that it calls."""
    definition = function.get_concrete_function().graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return [node.op for node in nodes]
