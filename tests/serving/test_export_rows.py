"""fe.export_for_serving of lookups with `rows=`: one user and many items."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from serving.serving_cases import OURS, assert_same, assert_served

v1 = tf.compat.v1
fc = tf.feature_column
GIVEN = {
    "user": np.array([["ann"]]),
    "item": np.array([[3], [0], [3], [8]], np.int64),
    "row": np.zeros([4], np.int64),
}


def exported(folder, ops="stock"):
    """Exports a layer; its outputs for what is fed."""
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = {
            "user": v1.placeholder(tf.string, [None, 1]),
            "item": v1.placeholder(tf.int64, [None, 1]),
            "row": v1.placeholder(tf.int64, [None]),
        }
        columns = [
            fc.embedding_column(fc.categorical_column_with_hash_bucket("user", 9), 3),
            fc.embedding_column(fc.categorical_column_with_identity("item", 9), 4),
        ]
        rows = {"user": inputs["row"]}
        layer = fe.feature_column.input_layer(inputs, columns, rows=rows)
        session.run(v1.global_variables_initializer())
        feed = {inputs[name]: value for name, value in GIVEN.items()}
        want = session.run({"layer": layer}, feed)
        fe.export_for_serving(session, folder, ops, inputs=inputs, outputs={"layer": layer})
    assert want["layer"].shape == (4, 7)
    return want


@pytest.mark.slow
def test_stock_ops(tmp_path, server):
    want = exported(tmp_path / "model")
    assert_served(server, tmp_path / "model", GIVEN, want)


@pytest.mark.slow
def test_fused_ops(tmp_path, fused_server):
    want = exported(tmp_path / "model", ops="fused")
    got, ops = fused_server.serve(tmp_path / "model", GIVEN, loader="v1")
    assert ops & OURS
    assert_same(got, want)


def test_an_index_outside_the_batch_is_refused_by_the_export(tmp_path):
    exported(tmp_path / "model")
    serve = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    given = {name: tf.constant(value) for name, value in {**GIVEN, "row": [0, 0, 0, 1]}.items()}
    given["row"] = tf.cast(given["row"], tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"rows of feature .'user.'"):
        serve(**given)
