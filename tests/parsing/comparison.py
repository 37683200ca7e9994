"""Both ops on the same examples."""

import collections
import re

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from cases.examples import is_same
from parsing import mutations

GROUP = 25  # examples of one numpy generator, and of a batch
NONE = tf.constant([], tf.string)
TYPES = [tf.string, tf.float32, tf.int64]
KEYS = tf.constant([b"s", b"f", b"i"])
ZEROS = [tf.constant([b"padding"]), tf.constant([-1.0]), tf.constant([7], tf.int64)]
EMPTY = [tf.constant([], dtype) for dtype in TYPES]
SPARSE, NO_SPARSE = (
    {"sparse_keys": KEYS, "num_sparse": 3, "sparse_types": TYPES},
    {"sparse_keys": NONE, "num_sparse": 0, "sparse_types": []},
)
RAGGED = {
    "ragged_keys": KEYS,
    "ragged_value_types": TYPES,
    "ragged_split_types": [tf.int32, tf.int64, tf.int32],
}
NO_RAGGED = {"ragged_keys": NONE, "ragged_value_types": [], "ragged_split_types": []}
NO_DENSE = {"dense_keys": NONE, "dense_defaults": [], "dense_shapes": []}


def _dense(defaults, shape):
    return {"dense_keys": KEYS, "dense_defaults": defaults, "dense_shapes": [shape] * 3}


SPECS = {
    "sparse": {**SPARSE, **NO_DENSE, **NO_RAGGED},
    "ragged": {**NO_SPARSE, **NO_DENSE, **RAGGED},
    "fixed": {**NO_SPARSE, **_dense(ZEROS, [1]), **NO_RAGGED},
    "required": {**NO_SPARSE, **_dense(EMPTY, [1]), **NO_RAGGED},
    "padded": {**NO_SPARSE, **_dense(ZEROS, [None]), **NO_RAGGED},
    "pairs": {**NO_SPARSE, **_dense(ZEROS, [None, 2]), **NO_RAGGED},
}
OPS = {"stock": tf.raw_ops.ParseExampleV2, "ours": fe.raw_ops.FusedEmbeddingParseExample}


def outcome(op, serialized, spec):
    """Arrays, or the text of an error."""
    try:
        outputs = OPS[op](serialized=serialized, names=NONE, **SPECS[spec])
    except tf.errors.InvalidArgumentError as error:
        return _text_of(error.message)
    except UnicodeDecodeError as error:  # of an error that quotes an example
        return _text_of(error.object.decode(errors="backslashreplace"))
    return [None] + [tensor.numpy() for tensor in tf.nest.flatten(list(outputs))]


def _text_of(message):
    return message.split("}} ", 1)[-1].split(" [Op:")[0]


# A length of 5 bytes and more: stock does not survive 2^31.
LONG_LENGTH = re.compile(rb"[\x80-\xff]{4}")


def may_end_stock(text, spec, of_ours):
    """Whether the process might not survive stock's op, or wait for gigabytes."""
    if not isinstance(of_ours, str):
        return False
    if "Can't parse" in of_ours and LONG_LENGTH.search(text):
        return True
    is_count = "Values size" in of_ours or "was not parsed" in of_ours
    return is_count and (b"\x0d" in text or bool(LONG_LENGTH.search(text)))


def examples(seed, group):
    rng = np.random.default_rng((seed, group))
    return [mutations.mutated(rng, mutations.make(rng)) for _ in range(GROUP)]


def compare(seed, group, counts, differences):
    """Compares a group of examples: one by one, the accepted ones as a batch, and all."""
    spec = list(SPECS)[group % len(SPECS)]
    is_single = group // len(SPECS) % 3 == 0
    asked, accepted = [], []
    for text in examples(seed, group):
        serialized = tf.constant(text if is_single else [text])
        got = outcome("ours", serialized, spec)
        counts["accepted" if not isinstance(got, str) else "rejected"] += 1
        if may_end_stock(text, spec, got):
            counts["not asked of stock"] += 1
            continue
        asked.append(text)
        want = outcome("stock", serialized, spec)
        if not isinstance(want, str):
            accepted.append(text)
        if not is_same(got, want):
            differences.append((spec, text, got, want))
    for batch in (accepted, asked):
        serialized = tf.constant(batch, tf.string, [len(batch)])
        got, want = outcome("ours", serialized, spec), outcome("stock", serialized, spec)
        counts["batches"] += 1
        if not is_same(got, want):
            differences.append((spec, batch, got, want))


def run(seed, first, num_examples):
    """Counts and differences of so many examples."""
    counts, differences = collections.Counter(), []
    for group in range(first // GROUP, (first + num_examples + GROUP - 1) // GROUP):
        compare(seed, group, counts, differences)
        if len(differences) > 20:
            break
    return counts, differences
