"""The ids that stock TensorFlow makes of a feature's values: the oracle of their op."""

import numpy as np
import tensorflow as tf


def stock_keys(values, kind, num_buckets, default_key):
    """Keys of `[nnz]` values, a tensor or an array, by the ops of stock's columns."""
    values = tf.convert_to_tensor(values)
    if kind == "hash":
        texts = values if values.dtype == tf.string else tf.strings.as_string(values)
        return tf.strings.to_hash_bucket_fast(texts, num_buckets).numpy()
    keys = values.numpy().astype(np.int64)
    if default_key >= 0:
        keys[(keys < 0) | (keys >= num_buckets)] = default_key
    return keys
