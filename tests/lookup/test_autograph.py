"""Lookups inside tf.function, as AutoGraph sees them."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_a_lookup_in_a_function_warns_of_nothing(version, caplog):
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    table = tf.Variable(np.arange(8.0).reshape(4, 2))

    @tf.function
    def lookup(dense_ids):
        ids = tf.sparse.from_dense(dense_ids)
        return fe.nn.fused_safe_embedding_lookup_sparse(table, ids, fusion_version=version)

    try:
        combined = lookup(tf.constant([[1, 2], [3, 0]]))
    finally:
        logger.removeHandler(caplog.handler)
    np.testing.assert_array_equal(combined, [[3, 4], [6, 7]])
    assert not caplog.records
