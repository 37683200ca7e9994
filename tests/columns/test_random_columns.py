"""2,000 random categorical columns over random features: the ids of one op are stock's.

In eager mode, where a stock column takes a millisecond; `test_raw_features.py` has the layers.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as fc_v2

from fused_embedding.columns.raw_features import with_raw_features
from fused_embedding.lookup.feature_ids import FeatureIds, make_ids

fc = tf.feature_column
NUM_CALLS = 100
COLUMNS_OF_CALL = 20
WORDS = np.array([b"", b"a", b"-1", b"12", b"oak", b"a longer text than sixteen bytes"], object)
INTEGERS = np.array([-1, 0, 1, 2, 7, 12, -7, 10**7, 10**12, -(2**63), 2**63 - 1])
FLOATS = np.array([-np.inf, -1.0, 0.0, 0.5, 2.0, 2.5, np.inf, np.nan], np.float32)


def values_of(rng, dtype, size):
    if dtype == tf.string:
        return rng.choice(WORDS, size)
    if dtype == tf.float32:
        return rng.choice(FLOATS, size)
    return rng.choice(INTEGERS, size).astype(dtype.as_numpy_dtype)


def feature_of(rng, dtype, num_rows, *, is_dense=None):
    """A vector, a matrix or a SparseTensor."""
    if is_dense or (is_dense is None and rng.integers(2)):
        width = int(rng.integers(1, 4))
        values = tf.constant(values_of(rng, dtype, (num_rows, width)), dtype)
        return values[:, 0] if rng.integers(3) == 0 and dtype != tf.float32 else values
    lengths = rng.integers(0, 3, num_rows)
    values = tf.constant(values_of(rng, dtype, lengths.sum()), dtype)
    return tf.RaggedTensor.from_row_lengths(values, lengths).to_sparse()


def identity(rng, key):
    return fc.categorical_column_with_identity(key, 9, rng.choice([None, 0, 8]))


def hashed(rng, key, dtype=tf.string):
    return fc.categorical_column_with_hash_bucket(key, int(rng.choice([1, 7, 2**40])), dtype)


def vocabulary(rng, key, dtype=tf.string):
    words = WORDS[1:4] if dtype == tf.string else INTEGERS[rng.permutation(len(INTEGERS))[:4]]
    num_oov_buckets = int(rng.integers(3))
    default_value = int(rng.integers(-1, 3)) if num_oov_buckets == 0 else -1
    return fc.categorical_column_with_vocabulary_list(
        key, list(words), dtype, default_value, num_oov_buckets
    )


def simple_column(rng, key, num_rows):
    """A column over one feature, and its feature."""
    kind = rng.choice(["identity", "hash", "vocabulary", "bucketized"])
    if kind == "bucketized":
        feature = feature_of(rng, tf.float32, num_rows, is_dense=True)
        numbers = fc.numeric_column(key, shape=feature.shape[1])
        boundaries = sorted({float(b) for b in rng.choice(FLOATS[1:6], rng.integers(1, 4))})
        return fc.bucketized_column(numbers, boundaries), feature
    of_integers = (tf.int32, tf.int64)
    dtype = (tf.string, *of_integers)[rng.integers(0 if kind != "identity" else 1, 3)]
    feature = feature_of(rng, dtype, num_rows)
    if kind == "identity":
        return identity(rng, key), feature
    return (hashed if kind == "hash" else vocabulary)(rng, key, dtype), feature


def crossed_column(rng, key, num_rows):
    """A cross of columns and of features, and its features by name."""
    parts, features = [], {}
    for i in range(rng.integers(2, 4)):
        name = f"{key}_{i}"
        column, features[name] = simple_column(rng, name, num_rows)
        # Stock refuses hashed columns in crosses, and floats.
        is_raw = isinstance(column, fc_v2.HashedCategoricalColumn) or rng.integers(3) == 0
        is_float = isinstance(column, fc_v2.BucketizedColumn)
        parts.append(name if is_raw and not is_float else column)
    hash_key = rng.choice([None, 1, 2**40])
    column = fc.crossed_column(parts, int(rng.integers(1, 2000)), hash_key and int(hash_key))
    return column, features


def call_of(rng):
    """Columns, and a batch of their features."""
    num_rows = int(rng.integers(0, 6))
    columns, batch = [], {}
    for i in range(COLUMNS_OF_CALL):
        key = f"x{i}"
        if rng.integers(5) == 0:
            column, features = crossed_column(rng, key, num_rows)
        else:
            column, feature = simple_column(rng, key, num_rows)
            features = {key: feature}
        columns.append(column)
        batch |= features
    return columns, batch


@pytest.mark.parametrize("part", range(4))
def test_ids_are_stocks(part):
    rng = np.random.default_rng(part)
    num_compared = 0
    for _ in range(NUM_CALLS // 4):
        columns, batch = call_of(rng)
        cache = fc_v2.FeatureTransformationCache(batch)
        answers = [with_raw_features(c, cache, None).get_sparse_tensors() for c in columns]
        features = [answer.id_tensor for answer in answers]
        assert all(isinstance(feature, FeatureIds) for feature in features)
        for column, ids in zip(columns, make_ids(features), strict=True):
            want = column.get_sparse_tensors(cache, None).id_tensor
            rows = ids.indices if ids.indices.shape.rank == 1 else ids.indices[:, 0]
            np.testing.assert_array_equal(ids.values, want.values, column.name)
            np.testing.assert_array_equal(rows, want.indices[:, 0], column.name)
            assert int(ids.dense_shape[0]) == int(want.dense_shape[0])
            num_compared += 1
    assert num_compared == NUM_CALLS // 4 * COLUMNS_OF_CALL
