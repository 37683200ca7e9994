"""Valid calls of the op that parses examples, and what its results must be: stock's."""

import numpy as np
import tensorflow as tf

from cases.examples import entry, example, floats, integers, texts

TYPES = [tf.string, tf.float32, tf.int64]
KEYS = np.array([b"s", b"f", b"i"], object)
NO_KEYS = np.array([], object)
PADDING = [np.array([b"padding"], object), np.float32([-1.0]), np.int64([7])]
EMPTY = [np.array([], object), np.float32([]), np.int64([])]


def make(rng):
    """Arguments: one of few kinds of calls, as kernels are kept."""
    layout = ("sparse", "ragged", "fixed", "required", "padded")[rng.integers(5)]
    is_dense = layout in ("fixed", "required", "padded")
    num_examples = int(rng.integers(0, 5))
    names = [b"row %d" % i for i in range(num_examples)] if rng.integers(2) else []
    shape = [None] if layout == "padded" else [1]
    return {
        "serialized": np.array([_example(rng) for _ in range(num_examples)], object),
        "names": np.array(names, object),
        "sparse_keys": KEYS if layout == "sparse" else NO_KEYS,
        "dense_keys": KEYS if is_dense else NO_KEYS,
        "ragged_keys": KEYS if layout == "ragged" else NO_KEYS,
        "dense_defaults": (EMPTY if layout == "required" else PADDING) if is_dense else [],
        "num_sparse": 3 if layout == "sparse" else 0,
        "sparse_types": TYPES if layout == "sparse" else [],
        "ragged_value_types": TYPES if layout == "ragged" else [],
        "ragged_split_types": [tf.int32, tf.int64, tf.int32] if layout == "ragged" else [],
        "dense_shapes": [shape] * 3 if is_dense else [],
    }


def _example(rng):
    """One value of each feature, which all layouts take, in a random order."""
    lists = {
        b"s": texts(rng.bytes(rng.integers(30))),
        b"f": floats(rng.normal()),
        b"i": integers(5),
    }
    entries = [entry(name, values) for name, values in lists.items()]
    return example(*(entries[i] for i in rng.permutation(3)))


def check(args, result):
    """Compares all outputs with stock's."""
    want = tf.raw_ops.ParseExampleV2(**args)
    leaves = zip(tf.nest.flatten(list(result)), tf.nest.flatten(list(want)), strict=True)
    for got, of_stock in leaves:
        assert got.dtype == of_stock.dtype
        np.testing.assert_array_equal(got.numpy(), of_stock.numpy())


CASES = {"FusedEmbeddingParseExample": (make, check)}
