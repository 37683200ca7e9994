"""FE_DISABLE=lookup: feature columns are looked up by stock TensorFlow's graph."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import processes
from cases import columns as cases
from cases.disabled import assert_no_op_of_ours, assert_same_graph, new_graph

pytestmark = pytest.mark.one_version

tf1 = tf.compat.v1
fc = tf.feature_column
DO_FUSION = pytest.mark.parametrize("do_fusion", [True, "v1", "v2", "check"])


@pytest.fixture
def off(monkeypatch):
    monkeypatch.setenv("FE_DISABLE", "lookup")


def embedding(column, module=fe.feature_column, **kwargs):
    return module.embedding_column(column, 5, initializer=cases.initializer(), **kwargs)


def trained_graph(build, partitions=None):
    """The graph of an Adagrad step on what `build` makes of the batch."""
    partitioner = tf1.fixed_size_partitioner(partitions) if partitions else None
    with new_graph(partitioner=partitioner) as graph:
        loss = cases.weighted_sum(build(cases.features()))
        tf1.train.AdagradOptimizer(0.5).minimize(loss)
    return graph


def assert_stocks(build, build_stock, partitions=None):
    got = trained_graph(build, partitions)
    assert_no_op_of_ours(got)
    assert_same_graph(got, trained_graph(build_stock, partitions))


@DO_FUSION
@pytest.mark.parametrize("partitions", [None, 3])
def test_stock_input_layer(off, do_fusion, partitions, tmp_path):
    columns = cases.categorical_columns(tmp_path)
    fused = [embedding(c, do_fusion=do_fusion) for c in columns]
    stock = [embedding(c, fc) for c in columns]
    layer = tf1.feature_column.input_layer
    assert_stocks(lambda f: layer(f, fused), lambda f: layer(f, stock), partitions)


@pytest.mark.parametrize("is_safe", [False, True])
def test_our_input_layer(off, is_safe, tmp_path):
    columns, price = cases.categorical_columns(tmp_path), fc.numeric_column("price", shape=2)
    how = {"use_safe_embedding_lookup": is_safe, "max_norm": 0.7, "combiner": "sqrtn"}
    stock = [*(embedding(c, fc, **how) for c in columns), price]
    mixed = [
        *(embedding(c, **how, do_fusion=[None, "v2", True][i % 3]) for i, c in enumerate(columns)),
        price,
    ]
    assert_stocks(
        lambda f: fe.feature_column.input_layer(f, mixed),
        lambda f: tf1.feature_column.input_layer(f, stock),
    )


def test_columns_in_a_group(off, tmp_path):
    columns = cases.categorical_columns(tmp_path)
    with fe.feature_column.group_embedding_column_scope("all"):
        grouped = [embedding(c, do_fusion=True) for c in columns]
    stock = [embedding(c, fc) for c in columns]
    for layer in (tf1.feature_column.input_layer, fe.feature_column.input_layer):
        assert_stocks(
            lambda f, layer=layer: layer(f, grouped),
            lambda f: tf1.feature_column.input_layer(f, stock),
        )


@DO_FUSION
def test_shared_embedding_columns(off, do_fusion):
    def layer(module, **kwargs):
        keys = [cases.identity("ids"), cases.identity("other_ids")]
        kwargs["initializer"] = cases.initializer()
        return lambda f: tf1.feature_column.input_layer(
            f, module.shared_embedding_columns(keys, 5, **kwargs)
        )

    ours = layer(fe.feature_column, do_fusion=do_fusion)
    assert_stocks(ours, layer(tf1.feature_column))


@DO_FUSION
@pytest.mark.parametrize("partitions", [None, 2])
def test_linear_model(off, do_fusion, partitions, tmp_path):
    columns = [*cases.categorical_columns(tmp_path), fc.numeric_column("price", shape=2)]
    assert_stocks(
        lambda f: fe.feature_column.linear_model(f, columns, units=3, do_fusion=do_fusion),
        lambda f: tf1.feature_column.linear_model(f, columns, units=3),
        partitions,
    )


def dense_features(columns, layer):
    """The concrete function of a call of DenseFeatures, and the layer."""
    made = layer(columns, name="dense_features")
    features = cases.features()
    made(features)
    return tf.function(lambda: made(features, training=True)).get_concrete_function(), made


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("is_ours", [False, True], ids=["stock_layer", "our_layer"])
def test_dense_features(off, is_ours, is_grouped, tmp_path):
    """Eagerly and in a tf.function."""
    stock_layer = cases.keras().layers.DenseFeatures
    layer = fe.feature_column.DenseFeatures if is_ours else stock_layer
    columns = [cases.identity("ids"), cases.identity("other_ids"), cases.bucketized()]
    make = lambda: [embedding(c, do_fusion=True) for c in columns]  # noqa: E731
    if is_grouped:
        with fe.feature_column.group_embedding_column_scope("all"):
            ours = make()
    else:
        ours = make()
    got, got_layer = dense_features(ours, layer)
    want, want_layer = dense_features([embedding(c, fc) for c in columns], stock_layer)
    assert_no_op_of_ours(got.graph)
    assert_same_graph(got.graph, want.graph)
    assert np.array_equal(got_layer(cases.features()), want_layer(cases.features()))


# Builds a wide & deep model and writes its GraphDef; argv: a path, and whether to use the package.
PROGRAM = """
import os
import sys
import tensorflow as tf

os.environ["FE_DISABLE"] = "lookup,apply"
tf1, fc = tf.compat.v1, tf.feature_column
how = {}
train, columns, layers = tf1.train, fc, tf1.feature_column
if sys.argv[2] == "ours":
    import fused_embedding as fe

    how = {"do_fusion": True}
    train, columns, layers = fe.train, fe.feature_column, fe.feature_column
with tf.Graph().as_default() as graph:
    tf1.set_random_seed(1)
    ids = [fc.categorical_column_with_hash_bucket(k, 100) for k in ("user", "item")]
    ids.append(fc.categorical_column_with_vocabulary_list("shop", ["a", "b"]))
    features = {k: tf1.placeholder(tf.string, [None, 2]) for k in ("user", "item", "shop")}
    deep = layers.input_layer(features, [columns.embedding_column(c, 8, **how) for c in ids])
    wide = layers.linear_model(features, ids, **how)
    loss = tf.reduce_mean(deep[:, :1] * wide)
    train.AdagradOptimizer(0.1).minimize(loss, tf1.train.get_or_create_global_step())
assert ("fused_embedding" in sys.modules) == (sys.argv[2] == "ours")
with open(sys.argv[1], "wb") as file:
    file.write(graph.as_graph_def().SerializeToString())
"""


def test_the_graph_is_that_of_a_program_without_the_package(tmp_path):
    ours, stock = tmp_path / "ours", tmp_path / "stock"
    processes.output_of(processes.run_program(PROGRAM, ours, "ours"))
    subprocess.run([sys.executable, "-c", PROGRAM, stock, "stock"], check=True, timeout=120)
    graphs = [tf1.GraphDef.FromString(path.read_bytes()) for path in (ours, stock)]
    assert_no_op_of_ours(graphs[0])
    assert_same_graph(*graphs)


def test_ragged_features_become_sparse(off):
    """Stock's columns do not take them, and a job that is started anew must not fail by it."""
    ragged = tf.ragged.constant([[3, 11], [], [0, 7, 7], []], dtype=tf.int64)
    column = embedding(cases.identity())

    def outputs():
        with new_graph(), tf1.Session() as session:
            output = fe.feature_column.input_layer({"ids": ragged_in_graph()}, [column])
            session.run(tf1.global_variables_initializer())
            return session.run(output)

    def ragged_in_graph():
        return tf.RaggedTensor.from_row_splits(ragged.values.numpy(), ragged.row_splits.numpy())

    got = outputs()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FE_DISABLE")
        cases.assert_close(got, outputs())


def test_columns_over_embedding_variables_stay_ours(off):
    """Beside stock's, in one layer; alone, shared, in a group."""
    keys = [
        fe.feature_column.categorical_column_with_embedding(k, tf.int64)
        for k in ("ids", "other_ids")
    ]
    dense = embedding(fc.categorical_column_with_hash_bucket("words", 7), do_fusion=True)
    for layer in (fe.feature_column.input_layer, tf1.feature_column.input_layer):
        with new_graph() as graph:
            with fe.feature_column.group_embedding_column_scope("tables"):
                columns = fe.feature_column.shared_embedding_columns(keys, 4)
            layer(cases.features(), [*columns, dense])
        types = [op.type for op in graph.get_operations()]
        assert "EmbeddingVariableGroupLookup" in types
        assert "StringToHashBucketFast" in types
        assert not [t for t in types if t.startswith("FusedEmbeddingResource")]


@pytest.mark.parametrize("first", ["", "lookup,apply"])
def test_checkpoints_and_numbers_go_both_ways(first, tmp_path, monkeypatch):
    """A run goes on from the other's checkpoint, as it would have gone on itself."""

    def run(value, path, restore=None):
        monkeypatch.setenv("FE_DISABLE", value)
        columns = [embedding(c, do_fusion=True) for c in cases.categorical_columns(tmp_path)]
        with new_graph(), tf1.Session() as session:
            features = cases.features()
            deep = fe.feature_column.input_layer(features, columns)
            wide = fe.feature_column.linear_model(features, [cases.identity()], do_fusion=True)
            loss = cases.weighted_sum(deep) + cases.weighted_sum(wide)
            step = fe.train.AdagradOptimizer(0.5).minimize(loss)
            session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
            saver = tf1.train.Saver()
            if restore:
                saver.restore(session, restore)
            for _ in range(3):
                session.run(step)
            saved = saver.save(session, str(path))
            return saved, session.run({v.name: v for v in tf1.global_variables()})

    second = "" if first else "lookup,apply"
    path, values = run(first, tmp_path / "first")
    _, other_values = run(second, tmp_path / "second")
    cases.assert_close(other_values, values)
    _, same = run(first, tmp_path / "same", path)
    _, other = run(second, tmp_path / "other", path)
    cases.assert_close(other, same)


def test_explain(off, capsys):
    fused, stock = embedding(cases.identity(), do_fusion=True), embedding(cases.identity("b"), fc)
    table = fe.feature_column.embedding_column(
        fe.feature_column.categorical_column_with_embedding("key"), 4
    )
    lookups = fe.explain([fused, stock, table])
    assert [(o.path, o.why.split(";")[0]) for o in lookups] == [
        ("stock", "FE_DISABLE=lookup"),
        ("stock", "its do_fusion is not set"),
        ("v3", "remote if its table is divided into shards or in another task"),
    ]
    with new_graph() as graph:
        tf1.feature_column.input_layer(cases.features(), [fused])
        fe.feature_column.linear_model(cases.features(), [cases.identity()], do_fusion=True)
    assert [(o.path, o.why) for o in fe.explain(graph)] == [("stock", "FE_DISABLE=lookup")] * 2


def test_a_column_is_turned_on_again(monkeypatch):
    """The variable is read when a graph is built, not when a column is made."""
    monkeypatch.setenv("FE_DISABLE", "lookup")
    column = embedding(cases.identity(), do_fusion=True)
    monkeypatch.delenv("FE_DISABLE")
    run = cases.train(lambda f: tf1.feature_column.input_layer(f, [column]))
    cases.assert_fused(run, True, num_columns=1)
