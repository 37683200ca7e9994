"""fe.feature_column.input_layer against stock's."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases

tf1 = tf.compat.v1
fc = tf.feature_column
GROUP_OP = {True: "FusedEmbeddingResourceGroupLookup", False: "FusedEmbeddingGroupLookup"}


def embedding(categorical_column, module=fc, **kwargs):
    return module.embedding_column(categorical_column, 5, initializer=cases.initializer(), **kwargs)


def layer(module, columns, **kwargs):
    return lambda features: module.input_layer(features, columns, **kwargs)


def columns_of(tmp_path):
    """Embedding columns of every kind, of stock and ours, beside others."""
    embeddings = [embedding(column) for column in cases.categorical_columns(tmp_path)]
    embeddings[0] = embedding(cases.identity(), fe.feature_column, do_fusion="v1", max_norm=0.5)
    with tf.Graph().as_default():  # which stock asks for
        shared = tf1.feature_column.shared_embedding_columns(
            [cases.identity("ids"), cases.identity("other_ids")],
            3,
            initializer=cases.initializer(),
        )
    return [*embeddings, *shared, fc.numeric_column("price", shape=2)]


@pytest.mark.parametrize(("partitions", "use_resource"), [(None, True), (None, False), (3, True)])
def test_trains_as_stock(partitions, use_resource, tmp_path):
    how = {"partitions": partitions, "use_resource": use_resource}
    want = cases.train(layer(tf1.feature_column, columns_of(tmp_path)), **how)
    got = cases.train(layer(fe.feature_column, columns_of(tmp_path)), **how)
    cases.assert_same_training(got, want)
    if partitions is None:
        assert got.ops[GROUP_OP[use_resource]] == 1
        assert got.ops[GROUP_OP[use_resource] + "Grad"] == 1
    assert not cases.STOCK_OPS & got.ops.keys()


def test_embedding_columns_alone_are_not_even_concatenated(tmp_path):
    columns = [embedding(column) for column in cases.categorical_columns(tmp_path)]
    want = cases.train(layer(tf1.feature_column, columns))
    got = cases.train(layer(fe.feature_column, columns))
    cases.assert_same_training(got, want)
    with tf.Graph().as_default() as graph:
        fe.feature_column.input_layer(cases.features(), columns)
        names = [op.name for op in graph.get_operations() if op.type == GROUP_OP[True]]
        names += [op.name for op in graph.get_operations() if op.type == GROUP_OP[False]]
        assert len(names) == 1
        [output] = graph.get_operation_by_name(names[0]).outputs
        assert output.shape.as_list()[1] == 5 * len(columns)


def test_fills_the_dicts_that_are_given(tmp_path):
    results = []
    for module in (tf1.feature_column, fe.feature_column):
        with tf.Graph().as_default(), tf1.Session() as session:
            columns, variables, outputs = columns_of(tmp_path), {}, {}
            module.input_layer(
                cases.features(), columns, cols_to_vars=variables, cols_to_output_tensors=outputs
            )
            assert set(outputs) == set(variables) == set(columns)
            session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
            names = [[v.name for v in variables[column]] for column in columns]
            results.append((names, [session.run(outputs[column]) for column in columns]))
    (want_names, want), (names, got) = results
    assert names == want_names
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=0, atol=cases.ATOL)


def test_columns_without_a_safe_lookup(tmp_path):
    column = embedding(cases.identity(), use_safe_embedding_lookup=False)
    want = cases.train(layer(tf1.feature_column, [column]))
    got = cases.train(layer(fe.feature_column, [column]))
    # The batch ends with an empty row: stock's result lacks it.
    assert [output.shape for output in got.outputs] == [(4, 5)] * 3
    got = got._replace(outputs=[output[:3] for output in got.outputs])
    cases.assert_same_training(got, want)


def test_embedding_variables_are_a_group_of_their_own():
    column = fe.feature_column.categorical_column_with_embedding("ids", tf.int64)
    columns = [
        fe.feature_column.embedding_column(column, 5),
        fe.feature_column.embedding_column(
            fe.feature_column.categorical_column_with_embedding("other_ids", tf.int64), 3
        ),
        embedding(cases.bucketized()),
    ]
    results = []
    for module in (tf1.feature_column, fe.feature_column):
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            output = module.input_layer(cases.features(), columns)
            ops = collections.Counter(op.type for op in graph.get_operations())
            session.run(tf1.global_variables_initializer())
            results.append(session.run(output))
    np.testing.assert_allclose(*results, rtol=0, atol=cases.ATOL)
    assert ops["EmbeddingVariableGroupLookup"] == 1
    assert sum(ops[name] for name in GROUP_OP.values()) == 1


def test_other_columns_are_refused_as_stock_does():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="must be a _DenseColumn"):
        fe.feature_column.input_layer(cases.features(), [cases.identity()])
