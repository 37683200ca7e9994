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


def _keys():
    rules = {
        "Tkeys": [tf.int64] * 3,
        "key_names": ["s", "i", "i"],
        "key_types": [tf.string, tf.int64, tf.int64],
        "key_kinds": ["hash", "hash", "identity"],
        "key_num_buckets": [10, 1000, 8],
        "key_defaults": [-1, -1, 3],
    }
    return _sparse() | rules


NO_RULES = {
    "Tkeys": [],
    "key_names": [],
    "key_types": [],
    "key_kinds": [],
    "key_num_buckets": [],
    "key_defaults": [],
}
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
    _keys(),
)


def make(rng):
    """Arguments: features in one layout."""
    num_examples = int(rng.integers(0, 5))
    names = [b"row %d" % i for i in range(num_examples)] if rng.integers(2) else []
    return {
        "serialized": np.array([_example(rng) for _ in range(num_examples)], object),
        "names": np.array(names, object),
        **NOTHING,
        **NO_RULES,
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
    want = tf.raw_ops.ParseExampleV2(**{k: v for k, v in args.items() if k not in NO_RULES})
    *of_stock, keys, rows, shapes = list(result)
    leaves = zip(tf.nest.flatten(of_stock), tf.nest.flatten(list(want)), strict=True)
    for got, wanted in leaves:
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    rules = zip(*(args[name] for name in NO_RULES if name != "Tkeys"), strict=True)
    outputs = zip(keys, rows, shapes, strict=True)
    for (name, dtype, kind, num_buckets, default), got in zip(rules, outputs, strict=True):
        sparse = tf.io.parse_example(args["serialized"], {name: tf.io.VarLenFeature(dtype)})[name]
        np.testing.assert_array_equal(got[0], _keys_of(sparse.values, kind, num_buckets, default))
        np.testing.assert_array_equal(got[1], sparse.indices[:, 0])
        np.testing.assert_array_equal(got[2], sparse.dense_shape)


def _keys_of(values, kind, num_buckets, default):
    """What stock's columns make of values."""
    if kind == "hash":
        texts_ = values if values.dtype == tf.string else tf.as_string(values)
        return tf.strings.to_hash_bucket_fast(texts_, num_buckets)
    is_inside = (values >= 0) & (values < num_buckets)
    return values if default < 0 else tf.where(is_inside, values, tf.cast(default, tf.int64))


CASES = {"FusedEmbeddingParseExample": (make, check)}
