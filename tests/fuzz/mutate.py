"""Ways to spoil the arguments of an op. Sizes stay small, or so large that no machine has them."""

import functools

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from fuzz import file_cases

DIM = 3  # of the tables in table_cases.py
INT64 = (-(2**63), -(2**31) - 1, -1, 0, 1, 2**31, 2**50, 2**62, 2**63 - 1)
SMALL, HUGE = 2**16, 2**45  # numbers of rows between these might really be allocated
INT32 = (-(2**31), -1, 0, 1, 3, 2**31 - 1)
FLOATS = (np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1e-30, 1e30)
ATTRS = {
    "combiner": ("sum", "mean", "sqrtn", "max", ""),
    "max_norm": (-1.0, 0.25, 1e30, float("inf")),
    "default_id": (-1, 0, 9, 10, 2**62, -(2**63)),
    "partition_strategy": ("div", "mod", "mod_ev", "hash", "DIV"),
    "partition_axis": (0, 1, -1),
    "default_weight": (1.0, float("nan"), -3.0),
    "CounterType": (tf.int32, tf.int64, tf.float32),
    "dtype": (tf.float32, tf.float64, tf.int32),
    "slot_dtype": (tf.float32, tf.float64, tf.int32),
    "rule": ("sgd", "adagrad", "momentum", "row_wise_adagrad", "zipf", ""),
    "partition_index": (0, 1, -1, 2**62),
    "num_partitions": (1, 2, 0, -1, 2**31),
    "num_outputs": (1, 2, 0, -1, 2**31),
    "num_servers": (1, 2, 3, 0, -1, 2**31),
    "num_tables": (1, 2, 3, 4, 0, -1, 2**31),
    "embedding_dim": (DIM, 0, -1, 2**24, 2**40, 2**63 - 1),
    "dim": (DIM, 0, -1, 2**24, 2**40, 2**63 - 1),
    "seed": (0, -1, 2**63 - 1),
    "admission": ("all", "counter", "bloom", "none"),
    "min_frequency": (0, 1, -1, 255, 256, 65_536, 2**62),
    "bloom_counters": (0, -1, 1, 2**62, 2**63 - 1),
    "bloom_hashes": (0, -1, 1, 16, 17, 2**62),
    "no_permission_value": (0.0, float("nan"), 1e30),
    "max_capacity": (0, -1, 1, 2**40, 2**63 - 1),
    "eviction": ("none", "lru", "lfu", "fifo"),
    "check_mode": ("error", "warning", "ignore", "panic"),
    "initializer": ("constant", "uniform", "normal", "truncated_normal", "matrix", "zipf"),
    "initializer_a": FLOATS,
    "initializer_b": FLOATS,
    "initializer_matrix": (b"", b"x", b"\0" * 4 * DIM, b"\xff" * 8 * DIM),
    "shared_name": ("made",),
    "num_sparse": (0, 1, 3, 2, -1, 2**31),
    "storage_path": ("", "/dev/null"),
    "storage_name": ("", "made", "a/../b", "x" * 1000),
    "dram_bytes": (0, -1, 4 << 20, 16 << 20, 2**63 - 1, -(2**63)),
    "cache_strategy": ("lru", "lfu", "fifo"),
}
# Attributes with an entry for each column of a group, or each table.
LIST_ATTRS = {
    "combiners": ATTRS["combiner"],
    "max_norms": ATTRS["max_norm"],
    "default_ids": (-1, 0, 5, 6, 2**62, -(2**63)),
    "table_of_column": (0, 1, 2, 3, -1, 2**31, 2**62),
    "weighted_columns": (0, 1, 2, 3, -1, 2**62),
    "slot_prefixes": ("sgd", "", "a/b"),
    "layouts": ("dense", "sparse", "ragged", "DENSE"),
    "kinds": ("identity", "hash", ""),
    "num_buckets": (1, 0, -1, 5, 2**63 - 1, -(2**63)),
    "default_keys": (-1, 0, 5, 2**62, -(2**63)),
    "formats": ("int8", "int4", "bfloat16", "float8", ""),
    "dims": (1, 2, 3, 17, 18, 0, -1, 2**30, 2**62, -(2**63)),
    "num_parts": (1, 2, 3, 0, -1, 2**31, 2**62),
    "part_rows": (0, 1, 3, 6, -1, 2**62, 2**63 - 1),
    "part_servers": (0, 1, 2, -1, 2**62),
    "partition_strategies": ATTRS["partition_strategy"],
    "are_inserted": (True, False),
    "table_names": ("a", "", "x" * 1000),
    "Tkeys": (tf.int64, tf.int32),
    "Trows": (tf.int64, tf.int32),
    "sparse_types": (tf.string, tf.float32, tf.int64, tf.int32),
    "ragged_value_types": (tf.string, tf.float32, tf.int64, tf.int32),
    "ragged_split_types": (tf.int32, tf.int64, tf.float32),
    "dense_shapes": (
        [],
        [1],
        [2],
        [None],
        [None, 2],
        [None, 0],
        [0],
        [2**40, 2**40],
        None,
        [1, None],
    ),
}
STRINGS = (b"", b"A", b"A/accumulator", b"\0\xff", b"x" * 100_000)


def extreme_element(rng, array):
    """One element becomes an extreme of its type."""
    if not array.size:
        return array
    changed = array.copy()
    values = {"i": INT64 if array.dtype == np.int64 else INT32, "b": (True, False)}
    values |= {"u": (0, 1, 255), "O": STRINGS, "S": STRINGS}
    choice = values.get(array.dtype.kind, FLOATS)
    changed.reshape(-1)[rng.integers(array.size)] = choice[rng.integers(len(choice))]
    return changed


def off_by_one_element(rng, array):
    """One integer moves by one: the smallest step out of a range."""
    if not array.size or array.dtype.kind != "i":
        return array
    changed = array.copy()
    at = rng.integers(array.size)
    flat = changed.reshape(-1)
    if abs(int(flat[at])) < 2**30:
        flat[at] += rng.choice([-1, 1])
    return changed


def other_length(rng, array):
    """An axis loses or repeats its last entry."""
    if not array.ndim:
        return array
    axis = int(rng.integers(array.ndim))
    if rng.integers(2):
        return np.take(array, range(max(array.shape[axis] - 1, 0)), axis=axis)
    return np.concatenate(
        [array, np.take(array, range(-1, 0), axis=axis)] if array.shape[axis] else [array],
        axis=axis,
    )


def other_rank(rng, array):
    """One dimension more or less."""
    if rng.integers(2):
        return array[np.newaxis]
    return (
        array.reshape(-1)
        if array.ndim != 1
        else array[:1].reshape(array[:1].shape[1:] if len(array) else (0, 1))
    )


def empty(rng, array):
    """No elements; a random axis has size zero."""
    if not array.ndim:
        return array
    axis = int(rng.integers(array.ndim))
    return np.take(array, range(0), axis=axis)


def other_dtype(rng, array):
    """A type that the op may not take."""
    dtype = [np.int32, np.int64, np.float32, np.float64, np.bool_][rng.integers(5)]
    return np.zeros(array.shape, dtype) if array.dtype.kind in "OS" else array.astype(dtype)


ARRAY_MUTATIONS = (
    extreme_element,
    extreme_element,
    off_by_one_element,
    off_by_one_element,
    other_length,
    other_rank,
    empty,
    other_dtype,
)


def mutate_list(rng, values):
    """Another number of shards, or one spoiled shard."""
    choice = rng.integers(4)
    if choice == 0 and values:
        return values[:-1]
    if choice == 1 and values:
        return [*values, values[-1]]
    if not values:
        return values
    at = int(rng.integers(len(values)))
    # One that was spoiled before may be a variant, which is no array either.
    is_handle = isinstance(values[at], tf.Tensor) and values[at].dtype in (tf.resource, tf.variant)
    spoil = other_resource if is_handle else mutate_array
    return [*values[:at], spoil(rng, values[at]), *values[at + 1 :]]


def mutate_entries(rng, values, choices):
    """One entry more, less or other."""
    entry, at = choices[rng.integers(len(choices))], int(rng.integers(len(values) + 1))
    kind = rng.integers(4)
    if kind == 0:
        return [*values[:at], entry, *values[at:]]
    return [*values[:at], *([] if kind == 1 else [entry]), *values[at + 1 :]]


def mutate_array(rng, array):
    return ARRAY_MUTATIONS[rng.integers(len(ARRAY_MUTATIONS))](rng, np.asarray(array))


def is_costly(rng, num_rows):
    """Whether so many rows would be allocated, or, but for one time in 64, waited for.

    TensorFlow waits 10 s before it reports that there is no memory.
    """
    if np.any((num_rows > SMALL) & (num_rows < HUGE)):
        return True
    return bool(np.any(num_rows >= HUGE)) and rng.integers(64) > 0


@functools.cache
def other_resources():
    """What is no handle of a table: a variable of text, a deleted table, two, none, a number."""
    variable = tf.Variable(["text"])
    deleted = fe.raw_ops.EmbeddingVariableHandle(
        shared_name="deleted", dtype=tf.float32, dim=DIM, initializer="debug"
    )
    tf.raw_ops.DestroyResourceOp(resource=deleted)
    handles = tf.stack([deleted, deleted])
    other = tf.raw_ops.EmptyTensorList(
        element_shape=-1, max_num_elements=1, element_dtype=tf.float32
    )  # a variant that is no lock
    return variable, (
        variable.handle,
        deleted,
        handles,
        handles[:0],
        handles[:1],
        tf.constant(1.0),
        other,
    )


def other_resource(rng, _):
    """A handle of something else."""
    choices = other_resources()[1]
    return choices[rng.integers(len(choices))]


def mutate_named_list(rng, name, values):
    """Another list for the argument `name`."""
    if name in LIST_ATTRS:
        return mutate_entries(rng, values, LIST_ATTRS[name])
    if name == "resources":
        return mutate_entries(rng, values, other_resources()[1])
    changed = mutate_list(rng, values)
    if name == "sp_dense_shapes" and any(is_costly(rng, shape) for shape in changed):
        return values
    return changed


def mutate_paths(rng, name, array, is_written):
    """One path becomes another, or all of them get another shape."""
    if not array.size or array.dtype != object or rng.integers(4) == 0:
        # No extreme strings: those are files of the current folder.
        reshape = (other_length, other_rank, empty, other_dtype)
        return reshape[rng.integers(len(reshape))](rng, array)
    changed = array.copy()
    at = rng.integers(array.size)
    path = changed.reshape(-1)[at]
    changed.reshape(-1)[at] = file_cases.other_path(rng, path, is_written and name != "base_paths")
    return changed


def mutate(rng, args):
    """Spoils one argument of a copy of `args`."""
    name = sorted(args)[rng.integers(len(args))]
    if name in file_cases.PATHS:
        is_written = "resource" in args and name != "paths"
        return args | {name: mutate_paths(rng, name, args[name], is_written)}
    return args | {name: mutate_value(rng, name, args[name])}


def mutate_value(rng, name, value):
    """Another value of an argument that is no path."""
    if isinstance(value, bool):
        return not value
    if name in ("resource", "lock"):
        return other_resource(rng, value)
    if name in ATTRS and not isinstance(value, np.ndarray):
        return ATTRS[name][rng.integers(len(ATTRS[name]))]
    if isinstance(value, list):
        return mutate_named_list(rng, name, value)
    if name == "input" and isinstance(value, tf.Tensor):
        return tf.constant(mutate_array(rng, value.numpy()))
    return mutate_named_array(rng, name, value) if isinstance(value, np.ndarray) else value


def mutate_named_array(rng, name, array):
    """Another array, unless an op would take long for it."""
    changed = mutate_array(rng, array)
    is_size = name in ("sp_dense_shape", "indices_before_unique")
    return array if is_size and is_costly(rng, changed) else changed
