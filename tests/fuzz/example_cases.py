"""Valid calls of the op that parses examples, and what its results must be: stock's."""

import numpy as np
import tensorflow as tf

from cases.examples import entry, example, floats, integers, texts

TYPES = [tf.string, tf.float32, tf.int64]
KEYS = np.array([b"s", b"f", b"i"], object)
NO_KEYS = np.array([], object)
PADDING = [np.array([b"padding"], object), np.float32([-1.0]), np.int64([7])]
EMPTY = [np.array([], object), np.float32([]), np.int64([])]


def _sparse():
    return {"sparse_keys": KEYS, "num_sparse": 3, "sparse_types": TYPES}


def _ragged():
    splits = [tf.int32, tf.int64, tf.int32]
    return {"ragged_keys": KEYS, "ragged_value_types": TYPES, "ragged_split_types": splits}


def _dense(defaults, shape):
    return {"dense_keys": KEYS, "dense_defaults": defaults, "dense_shapes": [shape] * 3}


NOTHING = {
    "sparse_keys": NO_KEYS,
    "dense_keys": NO_KEYS,
    "ragged_keys": NO_KEYS,
    "dense_defaults": [],
    "num_sparse": 0,
    "sparse_types": [],
    "ragged_value_types": [],
    "ragged_split_types": [],
    "dense_shapes": [],
}
# Few kinds of calls: kernels are kept.
LAYOUTS = (
    _sparse(),
    _ragged(),
    _dense(PADDING, [1]),
    _dense(EMPTY, [1]),
    _dense(PADDING, [None]),
)


def make(rng):
    """Arguments: features in one layout."""
    num_examples = int(rng.integers(0, 5))
    names = [b"row %d" % i for i in range(num_examples)] if rng.integers(2) else []
    return {
        "serialized": np.array([_example(rng) for _ in range(num_examples)], object),
        "names": np.array(names, object),
        **NOTHING,
        **LAYOUTS[rng.integers(len(LAYOUTS))],
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
