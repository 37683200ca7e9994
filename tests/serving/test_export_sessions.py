"""fe.export_for_serving of TF1 sessions: feature columns, variables of both kinds, tables."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import processes
from cases import columns as cases
from serving.serving_cases import OURS, UNKNOWN, assert_same, assert_served

v1 = tf.compat.v1
fc = tf.feature_column
KEYS = np.r_[np.arange(8), UNKNOWN].reshape(5, 3)


def columns_of(tmp_path, do_fusion):
    """Every kind of column; each with a table of its own, one of them in partitions."""
    columns = [
        fe.feature_column.embedding_column(
            column,
            3 + i % 2,
            combiner=("sum", "mean", "sqrtn")[i % 3],
            max_norm=(None, 0.7)[i % 2],
            initializer=cases.initializer(i),
            do_fusion=do_fusion,
        )
        for i, column in enumerate(cases.categorical_columns(tmp_path))
    ]
    keys = fe.feature_column.categorical_column_with_embedding("keys", tf.int64)
    table = fe.feature_column.embedding_column(keys, 4, do_fusion=do_fusion)
    return [*columns, table, fc.numeric_column("price", shape=2)]


def exported(tmp_path, do_fusion, use_resource, ops="stock"):
    """Builds, trains and exports a model; its outputs for what is fed."""
    with tf.Graph().as_default(), v1.Session() as session:
        features = cases.features()
        keys = v1.placeholder(tf.int64, [None, 3], "keys")
        features["keys"] = keys
        partitioner = v1.fixed_size_partitioner(2)
        scope = {"partitioner": partitioner, "use_resource": use_resource}
        with v1.variable_scope("model", **scope):
            dense = fe.feature_column.input_layer(features, columns_of(tmp_path, do_fusion))
        kernel = v1.get_variable("kernel", [dense.shape[1], 2], use_resource=use_resource)
        loss = tf.reduce_mean(tf.square(tf.matmul(dense, kernel)))
        train = v1.train.AdagradOptimizer(0.3).minimize(loss)
        with v1.variable_scope("model", reuse=True, **scope), fe.inference():
            inferred = fe.feature_column.input_layer(features, columns_of(tmp_path, do_fusion))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        for _ in range(3):
            session.run(train, {keys: KEYS[:4]})
        words = features["words"]
        inputs = {"keys": keys, "words": words, "price": features["price"]}
        given = {"keys": KEYS[1:], "price": cases.DENSE["price"]}
        given["words_indices"] = cases.INDICES
        given["words_values"] = cases.VALUES["words"]
        given["words_dense_shape"] = np.array([4, 3], np.int64)
        outputs = {"scores": tf.matmul(inferred, kernel), "keys": keys}
        want = session.run(outputs, {keys: KEYS[1:]})
        fe.export_for_serving(session, tmp_path / "model", ops, inputs=inputs, outputs=outputs)
    return given, want


@pytest.mark.slow
@pytest.mark.parametrize(
    ("do_fusion", "use_resource"),
    [("v1", False), ("v2", True), ("v3", False), ("v3", True), (None, True)],
)
def test_feature_columns_become_stock_ops(tmp_path, server, do_fusion, use_resource):
    given, want = exported(tmp_path, do_fusion, use_resource)
    assert_served(server, tmp_path / "model", given, want)


@pytest.mark.slow
def test_fused_ops_of_a_session(tmp_path, fused_server):
    given, want = exported(tmp_path, "v3", True, ops="fused")
    got, ops = fused_server.serve(tmp_path / "model", given, loader="v1")
    assert ops & OURS
    assert_same(got, want)


@pytest.mark.slow
def test_a_program_without_eager_execution(tmp_path, server):
    """In a process of its own, as v2 behavior cannot be switched on again."""
    program = """
import sys
import numpy as np
import tensorflow as tf
import fused_embedding as fe
v1 = tf.compat.v1
v1.disable_v2_behavior()
keys = v1.placeholder(tf.int64, [None])
table = fe.get_embedding_variable("users", 4)
with fe.inference():
    rows = tf.nn.embedding_lookup(table, keys)
scale = v1.get_variable("scale", initializer=2.0)
outputs = {"rows": tf.cond(scale > 1, lambda: scale * rows, lambda: rows)}
with v1.Session() as session:
    session.run([v1.global_variables_initializer(), table.upsert([1, 2], np.ones([2, 4]))])
    np.savez(sys.argv[2], **session.run(outputs, {keys: [1, 2, 3]}))
    fe.export_for_serving(session, sys.argv[1], inputs={"keys": keys}, outputs=outputs)
"""
    folder, want = tmp_path / "model", tmp_path / "want.npz"
    processes.output_of(processes.run_program(program, folder, want))
    assert_served(server, folder, {"keys": np.array([1, 2, 3], np.int64)}, dict(np.load(want)))


def simple_session():
    keys = v1.placeholder(tf.int64, [None], "keys")
    table = fe.get_embedding_variable("users", 4)
    return (
        keys,
        table,
        fe.nn.fused_safe_embedding_lookup_sparse(table, tf.sparse.from_dense(keys[:, None])),
    )


def test_what_is_not_needed_is_left_out(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.get_or_create_global_step()
        keys, _, rows = simple_session()
        session.run(v1.global_variables_initializer())
        fe.export_for_serving(session, tmp_path, inputs={"keys": keys}, outputs={"rows": rows})
    loaded = tf.saved_model.load(tmp_path)
    assert not loaded.dense_variables
    assert len(loaded.embedding_tables) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "needs inputs="),
        ({"inputs": {"a b": "keys"}}, ValueError, "identifier"),
        ({"inputs": {"x": "other"}, "outputs": {"rows": "rows"}}, ValueError, "placeholder 'keys'"),
        (
            {"inputs": {"keys": "keys"}, "outputs": {"counts": "counts"}},
            NotImplementedError,
            "EmbeddingVariableMetadata.*beside lookups",
        ),
        (
            {"inputs": {"keys": "keys"}, "outputs": {"grad": "grad"}},
            NotImplementedError,
            "it trains",
        ),
        ({"signatures": {}}, ValueError, "no signatures="),
    ],
)
def test_errors_say_what_to_do(tmp_path, arguments, error, message):
    with tf.Graph().as_default(), v1.Session() as session:
        keys, table, rows = simple_session()
        grad = tf.gradients(rows, table)[0].values
        known = {"keys": keys, "rows": rows, "counts": table.get_frequency(keys), "grad": grad}
        known["other"] = v1.placeholder(tf.int64, [None])
        arguments = {
            argument: {name: known[tensor] for name, tensor in value.items()}
            for argument, value in arguments.items()
        }
        if "inputs" in arguments:
            arguments.setdefault("outputs", {"rows": rows})
        with pytest.raises(error, match=message):
            fe.export_for_serving(session, tmp_path, **arguments)


def test_a_finalized_graph_is_an_error(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        keys, _, rows = simple_session()
        session.graph.finalize()
        with pytest.raises(ValueError, match="finalized"):
            fe.export_for_serving(session, tmp_path, inputs={"keys": keys}, outputs={"rows": rows})


@pytest.mark.parametrize("has_table", [False, True])
def test_a_loop_of_tf1_needs_fused_ops(tmp_path, has_table):
    with tf.Graph().as_default(), v1.Session() as session:
        before = v1.control_flow_v2_enabled()
        v1.disable_control_flow_v2()
        keys, _, rows = simple_session()
        looped = tf.while_loop(lambda i: i < 3, lambda i: i + tf.size(keys), [0])
        positive = tf.cond(tf.size(keys) > 1, lambda: rows + 1, lambda: rows)
        if before:
            v1.enable_control_flow_v2()
        outputs = {"n": tf.nest.flatten(looped)[0]} | ({"rows": positive} if has_table else {})
        session.run(v1.global_variables_initializer())
        want = session.run(outputs, {keys: [5, 6]})
        with pytest.raises(NotImplementedError, match="enable_control_flow_v2"):
            fe.export_for_serving(session, tmp_path, inputs={"keys": keys}, outputs=outputs)
        fe.export_for_serving(
            session, tmp_path / "fused", "fused", inputs={"keys": keys}, outputs=outputs
        )
    loaded = tf.saved_model.load(tmp_path / "fused")
    got = loaded.signatures["serving_default"](keys=tf.constant([5, 6], tf.int64))
    assert_same({name: value.numpy() for name, value in got.items()}, want)
