"""Vocabularies for the layers of Keras that look tokens up, and what is compared of results."""

import tensorflow as tf

import fused_embedding as fe
from fused_embedding.keras.vocabulary import MAX_SMALL

WORDS = ["b", "a", "zé\u4e2d", "", "a b"]
NUMBERS = [7, -3, 0, 1 << 62, -(1 << 63)]
TOKENS = {"StringLookup": WORDS, "IntegerLookup": NUMBERS}
DTYPES = {"StringLookup": tf.string, "IntegerLookup": tf.int64}
MASKS = {"StringLookup": "[MASK]", "IntegerLookup": 99}
UNKNOWN = {"StringLookup": "other", "IntegerLookup": 1234567}
LARGE = {
    "StringLookup": [f"token {i}" for i in range(MAX_SMALL + 1)],
    "IntegerLookup": list(range(5, MAX_SMALL + 6)),
}


def ours(keras, name):
    return getattr(fe.keras.fused_layers(keras), name)


def stock(keras, name):
    return getattr(keras.layers, name)


def classes(keras, name):
    return ours(keras, name), stock(keras, name)


def values_of(result):
    if isinstance(result, tf.RaggedTensor | tf.SparseTensor):
        parts = tf.nest.flatten(result, expand_composites=True)
        return type(result), [values_of(part) for part in parts]
    return result.dtype, result.numpy().tolist()
