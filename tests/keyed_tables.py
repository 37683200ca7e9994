"""EmbeddingVariables made by the raw ops from known rows, and what they have counted."""

import itertools

import numpy as np
import tensorflow as tf

import fused_embedding as fe

_numbers = itertools.count()


def make_table(rows, keys=None, **attrs):
    """Handle of a table with `rows` of keys 0, 1, ... or `keys`; other keys start at zero."""
    rows = np.asarray(rows)
    attrs = {"initializer": "constant", "shared_name": f"keyed_{next(_numbers)}"} | attrs
    handle = fe.raw_ops.EmbeddingVariableHandle(
        dim=rows.shape[1], dtype=tf.as_dtype(rows.dtype), **attrs
    )
    keys = np.arange(len(rows)) if keys is None else keys
    keys = np.array(keys, np.int64)
    fe.raw_ops.EmbeddingVariableUpsert(resource=handle, keys=keys, values=rows)
    return handle


def metadata(resource, keys):
    """Frequencies and versions of keys."""
    found = fe.raw_ops.EmbeddingVariableMetadata(resource=resource, keys=np.array(keys, np.int64))
    return found.frequencies.numpy().tolist(), found.versions.numpy().tolist()


def statistic(resource, name):
    """One number that a table counts."""
    counted = fe.raw_ops.EmbeddingVariableStatistics(resource=resource)
    return dict(zip(counted.names.numpy().astype(str), counted.values.numpy(), strict=True))[name]


def lists(tensors):
    """Tensors as lists."""
    return [tensor.numpy().tolist() for tensor in tensors]
