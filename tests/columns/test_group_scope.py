"""fe.feature_column.group_embedding_column_scope against stock columns."""

import collections
import copy
import doctest
import pickle
import threading

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases
from checking import executed_ops
from fused_embedding.columns import group_scope

pytestmark = pytest.mark.one_version

tf1 = tf.compat.v1
fc = tf.feature_column
scope = fe.feature_column.group_embedding_column_scope
GROUP_OPS = {"FusedEmbeddingResourceGroupLookup", "FusedEmbeddingGroupLookup"}
# 20 steps add up the roundings of 20 steps.
TOLERANCE = {"rtol": 1e-5, "atol": 20 * cases.ATOL}


def initializer(seed):
    """As of cases, but with a configuration."""
    return tf1.random_uniform_initializer(-1.0, 1.0, seed=seed)


def make_columns(module, tmp_path, **kwargs):
    """Columns of every kind, with weights, every combiner, and norms above and below max_norm."""
    combiners, max_norms = ("sum", "mean", "sqrtn"), (None, 0.7, 5.0, None)
    return [
        module.embedding_column(
            column,
            3 + i % 2,
            combiner=combiners[i % 3],
            max_norm=max_norms[i % 4],
            initializer=cases.initializer(i),
            **kwargs,
        )
        for i, column in enumerate(cases.categorical_columns(tmp_path))
    ]


def in_scope(make, name="items"):
    with scope(name):
        return make(fe.feature_column)


def dense_features(columns, **kwargs):
    return lambda features: cases.keras().layers.DenseFeatures(columns, name="layer", **kwargs)(
        features
    )


def input_layer(columns, module=tf1.feature_column):
    return lambda features: module.input_layer(features, columns)


def num_groups(run):
    return sum(run.ops[name] for name in GROUP_OPS)


def assert_trains_as_stock(got, want):
    assert got.collections == want.collections

    def compare(a, b):
        np.testing.assert_allclose(a, b, **TOLERANCE)

    for name in ("outputs", "gradients", "variables"):
        tf.nest.map_structure(compare, getattr(got, name), getattr(want, name))


def test_a_layer_of_keras_looks_a_group_up_by_one_op(tmp_path):
    other = fc.numeric_column("price", shape=2)
    want_columns = [*make_columns(fc, tmp_path), other]
    columns = [*in_scope(lambda module: make_columns(module, tmp_path)), other]
    want = cases.train(dense_features(want_columns), num_steps=20)
    got = cases.train(dense_features(columns), num_steps=20)
    assert_trains_as_stock(got, want)
    assert num_groups(got) == 1
    assert not cases.STOCK_OPS & got.ops.keys()


def test_a_layer_of_keras_in_eager_mode_and_in_functions(tmp_path):
    columns = in_scope(lambda module: make_columns(module, tmp_path))
    stock = cases.keras().layers.DenseFeatures(make_columns(fc, tmp_path))
    layer = cases.keras().layers.DenseFeatures(columns)
    features = cases.features()
    cases.assert_close(layer(features), stock(features))
    # Another batch: what was looked up for the first one is not kept.
    ids = tf.SparseTensor(cases.INDICES, cases.VALUES["ids"][::-1].copy(), [4, 3])
    cases.assert_close(layer({**features, "ids": ids}), stock({**features, "ids": ids}))
    function = tf.function(layer).get_concrete_function(features)
    cases.assert_close(function(features), stock(features))
    types = collections.Counter(op.type for op in function.graph.get_operations())
    assert sum(types[name] for name in GROUP_OPS) == 1
    with tf.GradientTape() as tape, tf.GradientTape() as stock_tape:
        losses = [cases.weighted_sum(one(features)) for one in (layer, stock)]
    gradients = tape.gradient(losses[0], layer.weights)
    want = stock_tape.gradient(losses[1], stock.weights)
    cases.assert_close(*([tf.convert_to_tensor(g) for g in each] for each in (gradients, want)))


@pytest.mark.parametrize("use_resource", [True, False])
def test_our_input_layer_looks_all_columns_up_by_one_op(use_resource, tmp_path):
    how = {"use_resource": use_resource, "num_steps": 20}
    first, second = (make_columns(fc, tmp_path)[i::2] for i in (0, 1))
    columns = in_scope(lambda module: make_columns(module, tmp_path)[::2], "first")
    columns += in_scope(lambda module: make_columns(module, tmp_path)[1::2], "second")
    want = cases.train(input_layer(first + second), **how)
    got = cases.train(input_layer(columns, fe.feature_column), **how)
    assert_trains_as_stock(got, want)
    assert num_groups(got) == 1


def test_stocks_input_layer_looks_each_column_up(tmp_path):
    columns = in_scope(lambda module: make_columns(module, tmp_path))
    want = cases.train(input_layer(make_columns(fc, tmp_path)), num_steps=20)
    got = cases.train(input_layer(columns), num_steps=20)
    assert_trains_as_stock(got, want)
    assert num_groups(got) == len(columns)


@pytest.mark.parametrize("partitions", [None, 3])
def test_deeprec_programs_look_groups_up_by_one_op(partitions, tmp_path):
    def make(module):
        columns = [cases.identity("ids"), cases.identity("other_ids")]
        shared = module.shared_embedding_columns(columns, 3, initializer=cases.initializer())
        weighted = fc.weighted_categorical_column(cases.identity(), "weights")
        how = {"combiner": "sum", "max_norm": 0.5, "initializer": cases.initializer(2)}
        return [*shared, module.embedding_column(weighted, 4, **how)]

    how = {"partitions": partitions, "num_steps": 20}
    bucketized = fc.embedding_column(cases.bucketized(), 2, initializer=cases.initializer())
    others = [bucketized, fc.numeric_column("price", shape=2)]
    want = cases.train(
        lambda features: input_layer([*make(tf1.feature_column), *others])(features), **how
    )

    def build(features):
        with fe.compat.install():
            assert tf1.nn.group_embedding_lookup_sparse is fe.nn.group_embedding_lookup_sparse
            with tf1.feature_column.group_embedding_column_scope(name="items"):
                columns = make(tf1.feature_column)
            outputs, variables = {}, {}
            result = tf1.feature_column.input_layer(
                features, [*columns, *others], None, True, variables, outputs
            )
        assert list(outputs) == list(variables)
        assert set(outputs) == {*columns, *others}
        assert all(isinstance(output, tf.Tensor) for output in outputs.values())
        return result

    got = cases.train(build, **how)
    assert_trains_as_stock(got, want)
    assert num_groups(got) == (partitions is None)
    assert got.ops["FusedEmbeddingRemoteLookup"] == (1 if partitions else 0)
    assert cases.STOCK_OPS & got.ops.keys()  # bucketized is in no group


def test_a_column_of_no_group_keeps_its_lookup_beside_groups():
    def build(features):
        columns = in_scope(
            lambda module: [module.embedding_column(cases.identity("ids"), 4, max_norm=1.0)]
        )
        columns.append(
            fe.feature_column.embedding_column(cases.identity("other_ids"), 4, do_fusion="v1")
        )
        with fe.compat.install():
            return tf1.feature_column.input_layer(features, columns)

    run = cases.train(build)
    assert num_groups(run) == 1
    assert run.ops["FusedEmbeddingSparsePostLookUp"] == 1


def test_shared_embeddings_in_a_layer():
    def build(module, make_scope):
        def layer(features):
            keys = [cases.identity("ids"), cases.identity("other_ids")]
            with make_scope():
                shared = module.shared_embeddings(keys, 3, initializer=cases.initializer())
                column = module.embedding_column(
                    cases.bucketized(), 5, initializer=cases.initializer()
                )
            return dense_features([*shared, column])(features)

        return layer

    want = cases.train(build(fc, tf.init_scope), num_steps=20)
    got = cases.train(build(fe.feature_column, scope), num_steps=20)
    assert_trains_as_stock(got, want)
    assert num_groups(got) == 1


def test_each_scope_of_a_layer_is_an_op(tmp_path):
    def make(module, part):
        return make_columns(module, tmp_path)[part]

    parts = [slice(0, 3), slice(3, 5), slice(5, 6)]
    first = in_scope(lambda module: make(module, parts[0]), "first")
    second = in_scope(lambda module: make(module, parts[1]), "second")
    outside = make(fe.feature_column, parts[2])
    want = cases.train(dense_features([c for part in parts for c in make(fc, part)]))
    got = cases.train(dense_features([*first, *second, *outside]))
    assert_trains_as_stock(got, want)
    assert num_groups(got) == 2
    assert cases.STOCK_OPS & got.ops.keys()


def test_three_kernels_run_for_the_columns_of_a_group(tmp_path):
    with tf.Graph().as_default(), tf1.Session() as session:
        columns = in_scope(lambda module: make_columns(module, tmp_path))
        output = dense_features(columns)(cases.features())
        tables = tf1.trainable_variables()
        gradients = tf.gradients(cases.weighted_sum(output), tables)
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        types = executed_ops(session, [output, *gradients])
    assert {name: n for name, n in types.items() if name in fe.raw_ops.__all__} == {
        "FusedEmbeddingColumnKeys": 1,
        "FusedEmbeddingResourceGroupLookup": 1,
        "FusedEmbeddingResourceGroupLookupGrad": 1,
    }


def test_sequence_columns_of_a_group():
    def make(module):
        keys = ("ids", "other_ids")
        columns = [fc.sequence_categorical_column_with_identity(key, 12) for key in keys]
        return [
            module.embedding_column(column, dim, initializer=cases.initializer(dim), **how)
            for column, dim, how in zip(columns, (3, 5), ({}, {"max_norm": 0.5}), strict=True)
        ]

    sequence_features = cases.keras().experimental.SequenceFeatures
    stock, layer = sequence_features(make(fc)), sequence_features(in_scope(make))
    features = cases.features()
    cases.assert_close(layer(features), stock(features))
    graph = tf.function(layer).get_concrete_function(features).graph
    types = collections.Counter(op.type for op in graph.get_operations())
    assert sum(types[name] for name in GROUP_OPS) == 1


def columns_with_a_table():
    """Columns of which the first one, by name, has a dense variable and the second a table."""
    identity = cases.identity("ids")
    table = fe.feature_column.categorical_column_with_embedding("other_ids", tf.int64)
    return [fe.feature_column.embedding_column(column, 4) for column in (identity, table)]


@pytest.mark.parametrize("is_trainable", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_embedding_variables_of_a_group_grow_in_training_alone(training, is_trainable):
    with scope():
        columns = columns_with_a_table()
    layer = cases.keras().layers.DenseFeatures(columns, trainable=is_trainable)
    features = cases.features()
    layer(features, training=False)
    (table,) = (w for w in layer.weights if isinstance(w, fe.EmbeddingVariable))
    assert int(table.total_count()) == 0
    got = layer(features, training=training)
    num_keys = len(set(cases.VALUES["other_ids"])) if training and is_trainable else 0
    assert int(table.total_count()) == num_keys
    assert got.shape == [4, 8]
    assert np.any(got[:, 4:])
    with fe.inference():
        np.testing.assert_array_equal(got, layer(features))


def test_do_fusion_in_a_scope():
    def make(do_fusion):
        return fe.feature_column.embedding_column(cases.identity(), 4, do_fusion=do_fusion)

    with scope("items"):
        for do_fusion in (None, True, "v1", "v2", "v3"):
            column = make(do_fusion)
            assert (column.do_fusion, column.group) == ("v3", "items")
        assert type(make(False)) is fc.embedding_column(cases.identity(), 4).__class__
        with pytest.raises(ValueError, match="do_fusion must be None"):
            make("v4")
        table = fe.feature_column.categorical_column_with_embedding("ids", tf.int64)
        column = fe.feature_column.embedding_column(table, 4)
        assert (column.do_fusion, column.group) == ("v3", "items")
        alone = fe.feature_column.embedding_column(table, 4, do_fusion=False)
        assert (alone.do_fusion, alone.group) == (True, None)
    assert make("v3").group is None


def test_a_column_that_is_taken_out_of_its_group():
    with scope("items"):
        columns = [
            fe.feature_column.embedding_column(cases.identity(key), 4)
            for key in ("ids", "other_ids")
        ]
    columns[1] = columns[1]._replace(do_fusion=None)
    run = cases.train(dense_features(columns))
    assert num_groups(run) == 1
    assert cases.STOCK_OPS & run.ops.keys()


def test_copies_keep_the_group():
    with scope("items"):
        column = fe.feature_column.embedding_column(cases.identity(), 4, initializer=initializer(1))
    for again in (copy.copy(column), column._replace(combiner="sum"), copy.deepcopy(column)):
        assert again.group == "items"
    plain = column._replace(initializer=None)
    assert pickle.loads(pickle.dumps(plain)) == plain
    config = column.get_config()
    assert type(column).from_config(config).group == "items"
    del config["group"]  # as it was before there were groups
    assert type(column).from_config(config).group is None


def test_a_model_of_keras_keeps_its_groups(tmp_path):
    layers = cases.keras().layers
    with scope("items"):
        columns = [
            fe.feature_column.embedding_column(cases.identity(key), 4)
            for key in ("ids", "other_ids")
        ]
    again = layers.DenseFeatures.from_config(layers.DenseFeatures(columns).get_config())
    graph = tf.function(again).get_concrete_function(cases.features()).graph
    assert sum(op.type in GROUP_OPS for op in graph.get_operations()) == 1


def test_scopes():
    column = fc.categorical_column_with_identity("ids", 12)

    def group():
        return getattr(fe.feature_column.embedding_column(column, 4), "group", None)

    items = scope("items")
    with items as entered:
        assert entered.name == group() == "items"
        with pytest.raises(ValueError, match=r"scope\('users'\) is inside the one of 'items'"):
            scope("users").__enter__()
        with pytest.raises(ValueError, match="is inside the one of 'items'"):
            items.__enter__()
        assert group() == "items"
        seen = []
        thread = threading.Thread(target=lambda: seen.append(group()))
        thread.start()
        thread.join()
        assert seen == [None]
    assert group() is None
    with items:
        assert group() == "items"
    with pytest.raises(KeyError), scope("items"):
        raise KeyError
    assert group() is None
    names = {scope().name for _ in range(3)}
    assert len(names) == 3


@pytest.mark.parametrize(("name", "error"), [(3, TypeError), (b"x", TypeError), ("", ValueError)])
def test_names_are_strings(name, error):
    with pytest.raises(error, match="name must"):
        scope(name)


def test_doctests():
    results = doctest.testmod(group_scope, extraglobs={"fe": fe, "tf": tf})
    assert results.attempted
    assert not results.failed
