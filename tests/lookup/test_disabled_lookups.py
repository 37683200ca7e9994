"""FE_DISABLE=lookup: the functions of fe.nn and the layers of fe.keras use stock's ops."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import nn as cases
from cases.disabled import assert_no_op_of_ours, assert_same_graph, new_graph
from cases.kerases import KERASES
from checking import densify, like, sparse

tf1 = tf.compat.v1
nn = fe.nn
BATCH = cases.BATCH
IDS = [max(i, 0) for i in BATCH.ids]  # for lookups that do not prune


@pytest.fixture
def off(monkeypatch):
    monkeypatch.setenv("FE_DISABLE", "lookup")


def table_and_batch(dtype=tf.float64, num_shards=1, ids=BATCH.ids):
    """Shards of one table, ids and weights, as variables and tensors of the current context."""
    rows = cases.make_table()
    shards = [tf.Variable(tf.cast(part, dtype)) for part in np.array_split(rows, num_shards)]
    sp_ids = sparse(ids, BATCH.row_ids, BATCH.num_rows)
    return shards, sp_ids, like(sp_ids, tf.constant(BATCH.weights, dtype))


# --- Functions that tf.nn has ---

TWINS = {
    "safe": (nn.safe_embedding_lookup_sparse, tf.nn.safe_embedding_lookup_sparse),
    "safe_v1": (
        fe.compat.v1.nn.safe_embedding_lookup_sparse,
        tf1.nn.safe_embedding_lookup_sparse,
    ),
    "unsafe": (nn.embedding_lookup_sparse, tf.nn.embedding_lookup_sparse),
    "unsafe_v1": (fe.compat.v1.nn.embedding_lookup_sparse, tf1.nn.embedding_lookup_sparse),
    "dense": (
        lambda params, ids, _, **how: nn.embedding_lookup(params, ids.values),
        lambda params, ids, _, **how: tf.nn.embedding_lookup(params, ids.values),
    ),
}
TWIN = pytest.mark.parametrize("twin", TWINS)


def graph_of_lookup(lookup, kind, num_shards, **how):
    """The graph of a lookup and its gradient: in a v1 graph or in a tf.function."""

    def build(shards, sp_ids, weights):
        with tf.GradientTape() as tape:
            tape.watch(weights.values)
            loss = tf.reduce_sum(lookup(shards, sp_ids, weights, **how) ** 2)
        return tape.gradient(loss, [*shards, weights.values])

    if kind == "function":
        inputs = table_and_batch(num_shards=num_shards, ids=IDS)
        return tf.function(lambda: build(*inputs)).get_concrete_function().graph
    with new_graph() as graph:
        shards, sp_ids, weights = table_and_batch(num_shards=num_shards, ids=IDS)
        build(shards, sp_ids, weights)
    return graph


@TWIN
@pytest.mark.parametrize("kind", ["graph", "function"])
@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("how", [{}, {"name": "user", "max_norm": 2.0, "combiner": "sqrtn"}])
def test_the_graph_is_that_of_tf_nn(off, twin, kind, num_shards, how):
    ours, stock = TWINS[twin]
    got = graph_of_lookup(ours, kind, num_shards, **how)
    assert_no_op_of_ours(got)
    assert_same_graph(got, graph_of_lookup(stock, kind, num_shards, **how))


@TWIN
def test_eager_results_are_those_of_tf_nn(off, twin):
    ours, stock = TWINS[twin]
    inputs = table_and_batch(ids=IDS)
    assert np.array_equal(ours(*inputs), stock(*inputs))


# --- Functions of DeepRec ---

SAFE = {
    "safe_v1": lambda *a, **how: nn.fused_safe_embedding_lookup_sparse(
        *a, fusion_version="v1", **how
    ),
    "safe_v2": lambda *a, **how: nn.fused_safe_embedding_lookup_sparse(
        *a, fusion_version="v2", **how
    ),
    "safe_v3": nn.fused_safe_embedding_lookup_sparse,
    "safe_check": lambda *a, **how: nn.fused_safe_embedding_lookup_sparse(
        *a, fusion_version="check", **how
    ),
}
UNSAFE = {
    "v1": nn.fused_embedding_lookup_sparse,
    "v2": nn.fused_embedding_lookup_sparse_v2,
    "v3": nn.fused_embedding_lookup_sparse_v3,
}


def outcome(lookup, mode, inputs, **how):
    """Result and gradients of a lookup, as numpy. A session also checks the ops of its graph."""

    def build(shards, sp_ids, weights):
        with tf.GradientTape() as tape:
            tape.watch(weights.values)
            out = lookup(shards, sp_ids, weights, **how)
            top = tf.sin(tf.range(tf.size(out, tf.int64), dtype=tf.float64))
            loss = tf.reduce_sum(out * tf.cast(tf.reshape(top, tf.shape(out)), out.dtype))
        grads = tape.gradient(loss, [*shards, weights.values])
        return out, [tf.convert_to_tensor(grad) for grad in grads]

    if mode == "session":
        with new_graph() as graph, tf1.Session() as session:
            results = build(*table_and_batch(**inputs))
            session.run(tf1.global_variables_initializer())
            results = session.run(results)
        return graph, results
    arguments = table_and_batch(**inputs)
    run = tf.function(build) if mode == "function" else build
    results = run(*arguments)
    graph = run.get_concrete_function(*arguments).graph if mode == "function" else None
    return graph, results


def assert_same_numbers(lookup, mode, monkeypatch, tolerance=1e-12, inputs=None, **how):
    inputs = inputs or {}
    monkeypatch.setenv("FE_DISABLE", "")
    _, (want, want_grads) = outcome(lookup, mode, inputs, **how)
    monkeypatch.setenv("FE_DISABLE", "lookup")
    graph, (got, got_grads) = outcome(lookup, mode, inputs, **how)
    if graph is not None:
        assert_no_op_of_ours(graph)
    close = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(np.float64(got), np.float64(want), **close)
    for one, other in zip(got_grads, want_grads, strict=True):
        np.testing.assert_allclose(np.float64(one), np.float64(other), **close)


@pytest.mark.parametrize("mode", cases.MODES)
@pytest.mark.parametrize("lookup", SAFE)
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("max_norm", [None, 5.0])
@pytest.mark.parametrize("default_id", [None, 2])
def test_numbers_of_safe_lookups(lookup, mode, combiner, max_norm, default_id, monkeypatch):
    how = {"combiner": combiner, "max_norm": max_norm, "default_id": default_id}
    assert_same_numbers(SAFE[lookup], mode, monkeypatch, **how)


@pytest.mark.parametrize("mode", cases.MODES)
@pytest.mark.parametrize("lookup", UNSAFE)
@pytest.mark.parametrize("fill_empty_row", [False, True])
def test_numbers_of_lookups_that_do_not_prune(lookup, fill_empty_row, mode, monkeypatch):
    how = {"fill_empty_row": fill_empty_row, "default_id": 1, "combiner": "sqrtn"}
    assert_same_numbers(UNSAFE[lookup], mode, monkeypatch, inputs={"ids": IDS}, **how)


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_numbers_of_partitioned_tables(strategy, monkeypatch):
    assert_same_numbers(
        nn.fused_safe_embedding_lookup_sparse,
        "session",
        monkeypatch,
        inputs={"num_shards": 2 if strategy == "mod" else 3},
        partition_strategy=strategy,
        default_id=7,
    )


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16], ids=str)
def test_numbers_of_other_dtypes(dtype, monkeypatch):
    tolerance = {tf.float32: 1e-5, tf.float16: 2e-2, tf.bfloat16: 1e-1}[dtype]
    assert_same_numbers(
        nn.fused_safe_embedding_lookup_sparse,
        "function",
        monkeypatch,
        tolerance,
        inputs={"dtype": dtype},
    )


def test_a_row_of_zeros_has_a_finite_gradient(off):
    """Of the norm that max_norm asks for there is none."""
    table = tf.Variable(tf.zeros([2, 3], tf.float64))
    with tf.GradientTape() as tape:
        out = nn.fused_safe_embedding_lookup_sparse(table, sparse([1], [0], 1), max_norm=2.0)
    assert as_rows(tape.gradient(out, table)) == [[0, 0, 0], [1, 1, 1]]


def as_rows(grad):
    return densify(grad, 2).tolist()


GROUPS = {
    "sparse": lambda tables, ids: nn.group_embedding_lookup_sparse(
        tables, ids, ["sum", "mean"], default_ids=[None, 2]
    ),
    "concat": lambda tables, ids: nn.group_embedding_lookup_sparse(
        tables, ids, ["sum", "sqrtn"], concat=True, max_norms=[1.0, None]
    ),
    "sequence": lambda tables, ids: nn.group_embedding_lookup_sparse(
        tables, ids, ["sum", "mean"], is_sequence=True
    ),
    "dense": lambda tables, ids: nn.group_embedding_lookup(
        tables, [tf.maximum(i.values, 0)[None] for i in ids]
    ),
}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
def test_numbers_of_groups(group, in_function, monkeypatch):
    rows = cases.make_table()
    tables = [tf.Variable(rows), tf.Variable(rows[::-1])]
    ids = sparse(BATCH.ids, BATCH.row_ids, BATCH.num_rows)

    def run():
        with tf.GradientTape() as tape:
            outputs = GROUPS[group](tables, [ids, ids])
            loss = sum(tf.reduce_sum(tf.sin(out)) for out in tf.nest.flatten(outputs))
        return outputs, tape.gradient(loss, tables)

    results = []
    for value in ("", "lookup"):
        monkeypatch.setenv("FE_DISABLE", value)
        function = tf.function(run) if in_function else run
        outputs, grads = function()
        results.append([*tf.nest.flatten(outputs), *(densify(g, cases.NUM_IDS) for g in grads)])
    if in_function:
        assert_no_op_of_ours(function.get_concrete_function().graph)
    for want, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


# --- Keras ---


@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES.keys())
@pytest.mark.parametrize("kind", ["bag", "bag_of_dense", "embedding", "embedding_of_sparse"])
def test_layers(keras, kind, monkeypatch):
    """Eagerly and in a tf.function, by the numbers of the fused lookups."""
    layers = fe.keras.fused_layers(keras)
    dense = np.array([[1, 2, 2], [0, 7, 1]], np.int64)
    ids = tf.sparse.from_dense(dense) if kind in ("bag", "embedding_of_sparse") else dense
    layer = (layers.EmbeddingBag if "bag" in kind else layers.Embedding)(8, 4)
    want = layer(ids)
    monkeypatch.setenv("FE_DISABLE", "lookup")
    np.testing.assert_allclose(layer(ids), want, rtol=1e-6)
    function = tf.function(layer)
    assert_no_op_of_ours(function.get_concrete_function(ids).graph)
    np.testing.assert_allclose(function(ids), want, rtol=1e-6)


# --- What stays ---


def test_embedding_variables_stay_ours(off):
    with new_graph() as graph:
        tables = [fe.get_embedding_variable(name, 3) for name in ("a", "b")]
        ids = sparse(IDS, BATCH.row_ids, BATCH.num_rows)
        nn.safe_embedding_lookup_sparse(tables[0], ids)
        nn.embedding_lookup_sparse(tables[0], ids, None)
        nn.fused_safe_embedding_lookup_sparse(tables[0], ids)
        nn.group_embedding_lookup_sparse(tables, [ids, ids], ["sum", "sum"])
    types = [op.type for op in graph.get_operations()]
    assert types.count("EmbeddingVariableGroupLookup") == 3
    assert types.count("EmbeddingVariableLookup") == 1


def test_explain(off):
    table = tf.Variable(cases.make_table())
    ids = sparse(IDS, BATCH.row_ids, BATCH.num_rows)
    dense = [ids.values]

    def build():
        nn.safe_embedding_lookup_sparse(table, ids, name="stocks")
        nn.embedding_lookup_sparse(table, ids, None, name="unsafe")
        nn.fused_safe_embedding_lookup_sparse(table, ids, name="fused", fusion_version="v1")
        nn.group_embedding_lookup_sparse([table] * 2, [ids] * 2, ["sum", "mean"], name="group")
        nn.group_embedding_lookup([table], dense, name="dense")

    lookups = fe.explain(tf.function(build).get_concrete_function())
    assert sorted((o.name.split("/")[0], o.path, o.why) for o in lookups) == [
        (name, "stock", "FE_DISABLE=lookup")
        for name in ("dense", "fused", "group", "group", "stocks", "unsafe")
    ]


@pytest.mark.parametrize("value", ["lookup,aply", "all"])
def test_an_unknown_word_is_an_error_of_the_first_lookup(value, monkeypatch):
    monkeypatch.setenv("FE_DISABLE", value)
    with pytest.raises(ValueError, match=f"FE_DISABLE is '{value}'"):
        nn.fused_safe_embedding_lookup_sparse(*table_and_batch())
    with pytest.raises(ValueError, match=f"FE_DISABLE is '{value}'"):
        nn.safe_embedding_lookup_sparse(*table_and_batch())
