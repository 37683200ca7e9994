import copy
import doctest
import inspect
import pathlib
import pickle
import re

import pytest
import tensorflow as tf
from tensorflow.python.feature_column import serialization  # its public name is TF 2 only

import fused_embedding as fe
from cases import columns as cases
from fused_embedding.columns import api, stock_functions

tf1 = tf.compat.v1
fc = tf.feature_column
ROOT = pathlib.Path(__file__).resolve().parents[2]
DIMENSION = 5
# Arguments under which the lookup itself differs.
LOOKUPS = {
    "sum": {"combiner": "sum"},
    "mean": {"combiner": "mean"},
    "sqrtn_max_norm": {"combiner": "sqrtn", "max_norm": 0.7},
}


def embedding(categorical_column, module=fe.feature_column, **kwargs):
    return module.embedding_column(
        categorical_column, DIMENSION, initializer=cases.initializer(), **kwargs
    )


def input_layer(*columns):
    return lambda features: tf1.feature_column.input_layer(features, list(columns))


@pytest.mark.parametrize("do_fusion", ["v1", "v2", "v3"])
@pytest.mark.parametrize(
    ("case", "lookup"),
    [
        *((case, "mean") for case in cases.CATEGORICAL),
        ("weighted", "sum"),
        ("weighted", "sqrtn_max_norm"),
    ],
)
def test_input_layer_trains_as_stock(case, lookup, do_fusion, tmp_path):
    column, kwargs = cases.CATEGORICAL[case](tmp_path), LOOKUPS[lookup]
    want = cases.train(input_layer(embedding(column, fc, **kwargs)))
    got = cases.train(input_layer(embedding(column, **kwargs, do_fusion=do_fusion)))
    cases.assert_same_training(got, want)
    cases.assert_fused(got, do_fusion, num_columns=1)


@pytest.mark.parametrize(
    ("do_fusion", "partitions", "use_resource"),
    [("v1", 3, False), ("v2", 3, True), (True, None, True)],
)
def test_many_columns_train_as_stock(do_fusion, partitions, use_resource, tmp_path):
    columns = cases.categorical_columns(tmp_path)
    how = {"partitions": partitions, "use_resource": use_resource}
    want = cases.train(input_layer(*[embedding(c, fc) for c in columns]), **how)
    got = cases.train(input_layer(*[embedding(c, do_fusion=do_fusion) for c in columns]), **how)
    cases.assert_same_training(got, want)
    cases.assert_fused(got, do_fusion, num_columns=1 if do_fusion is True else len(columns))


@pytest.mark.parametrize(("do_fusion", "partitions"), [("v1", None), ("v2", 3)])
@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS.keys())
def test_shared_embedding_columns_train_as_stock(lookup, partitions, do_fusion):
    def build(module, **kwargs):
        keys = [cases.identity("ids"), cases.identity("other_ids")]
        kwargs = {"initializer": cases.initializer(), **lookup, **kwargs}
        return lambda features: tf1.feature_column.input_layer(
            features, module.shared_embedding_columns(keys, DIMENSION, **kwargs)
        )

    want = cases.train(build(tf1.feature_column), partitions=partitions)
    got = cases.train(build(fe.feature_column, do_fusion=do_fusion), partitions=partitions)
    cases.assert_same_training(got, want)
    cases.assert_fused(got, do_fusion, num_columns=2)


def linear_model(columns, names, module=fe.feature_column, **kwargs):
    """A linear model with a dense column too; `names` gets the names of its variables by column."""

    def build(features):
        cols_to_vars = {}
        columns_and_dense = [*columns, fc.numeric_column("price", shape=2)]
        output = module.linear_model(
            features, columns_and_dense, units=3, cols_to_vars=cols_to_vars, **kwargs
        )
        for column, variables in cols_to_vars.items():
            names[getattr(column, "name", column)] = [v.name for v in variables]
        return output

    return build


@pytest.mark.parametrize(
    ("do_fusion", "sparse_combiner", "partitions"),
    [("v1", "mean", 2), ("v2", "sum", None), (True, "sqrtn", None)],
)
def test_linear_model_trains_as_stock(sparse_combiner, partitions, do_fusion, tmp_path):
    columns = cases.categorical_columns(tmp_path)
    kwargs = {"sparse_combiner": sparse_combiner, "weight_collections": ["mine"]}
    want_names, got_names = {}, {}
    stock = linear_model(columns, want_names, tf1.feature_column, **kwargs)
    fused = linear_model(columns, got_names, **kwargs, do_fusion=do_fusion)
    want = cases.train(stock, partitions=partitions)
    got = cases.train(fused, partitions=partitions)
    assert got_names == want_names
    assert "mine" in got.collections
    cases.assert_same_training(got, want)
    cases.assert_fused(got, do_fusion, num_columns=1 if do_fusion is True else len(columns))


@pytest.mark.parametrize("partitions", [None, 2])
def test_linear_model_of_raw_features_has_two_ops(partitions):
    hashed = fc.categorical_column_with_hash_bucket("dense_words", 7)
    weighted = fc.weighted_categorical_column(cases.identity(), "weights")
    columns = [hashed, weighted, cases.identity("other_ids")]
    want = cases.train(linear_model(columns, {}, tf1.feature_column), partitions=partitions)
    got = cases.train(linear_model(columns, {}, do_fusion=True), partitions=partitions)
    cases.assert_same_training(got, want)
    assert got.ops["FusedEmbeddingColumnKeys"] == 1
    assert not {"StringToHashBucketFast", "SparseReshape"} & got.ops.keys()
    if partitions is None:
        cases.assert_fused(got, True, num_columns=1)


def test_linear_model_of_dense_columns_alone():
    want = cases.train(linear_model([], {}, tf1.feature_column))
    cases.assert_same_training(cases.train(linear_model([], {}, do_fusion=True)), want)


def test_an_error_of_a_linear_model_names_the_feature():
    with tf.Graph().as_default(), tf1.Session() as session:
        features = {"user": tf.constant([[3], [99]], tf.int64)}
        column = fc.categorical_column_with_identity("user", 10)
        result = fe.feature_column.linear_model(features, [column], do_fusion=True)
        session.run(tf1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"feature 'user'.* 99 "):
            session.run(result)


def test_linear_model_leaves_stock_as_it_is(tmp_path):
    columns = [cases.identity()]
    cases.train(linear_model(columns, {}, do_fusion="v2"))
    for module, kwargs in ((tf1.feature_column, {}), (fe.feature_column, {"do_fusion": False})):
        run = cases.train(linear_model(columns, {}, module, **kwargs))
        assert not set(cases.FUSED_OP.values()) & run.ops.keys()


def test_linear_model_keeps_the_fusion_of_its_dense_columns():
    column = embedding(cases.identity(), do_fusion="v1")
    run = cases.train(linear_model([column, cases.identity("other_ids")], {}, do_fusion="v2"))
    assert run.ops[cases.FUSED_OP["v1"]] == run.ops[cases.FUSED_OP["v2"]] == 1


@pytest.mark.parametrize("do_fusion", ["v1", "v2", "v3"])
@pytest.mark.parametrize("case", ["identity", "weighted"])
def test_unsafe_lookup_prunes_nothing_and_keeps_every_row(case, do_fusion, tmp_path):
    column = cases.CATEGORICAL[case](tmp_path)
    kwargs = {"use_safe_embedding_lookup": False, "combiner": "mean"}
    want = cases.train(input_layer(embedding(column, fc, **kwargs)))
    got = cases.train(input_layer(embedding(column, **kwargs, do_fusion=do_fusion)))
    # The batch ends with an empty row: stock's result lacks it.
    assert [output.shape for output in want.outputs] == [(3, DIMENSION)] * 3
    assert [output.shape for output in got.outputs] == [(4, DIMENSION)] * 3
    assert not any(output[3].any() for output in got.outputs)
    got = got._replace(outputs=[output[:3] for output in got.outputs])
    cases.assert_same_training(got, want)
    cases.assert_fused(got, do_fusion, num_columns=1)


def make_columns(do_fusion, module=fe.feature_column, module_v1=fe.feature_column):
    """One column of each class."""
    kwargs = {} if do_fusion is None else {"do_fusion": do_fusion}
    kwargs["initializer"] = tf1.zeros_initializer()
    keys = [cases.identity("ids"), cases.identity("other_ids")]
    with tf.Graph().as_default():  # stock makes shared columns in graphs only
        return [
            module.embedding_column(keys[0], 4, combiner="sum", **kwargs),
            module.shared_embeddings(keys, 4, combiner="sum", **kwargs)[0],
            module_v1.shared_embedding_columns(keys, 4, combiner="sum", **kwargs)[0],
        ]


CLASSES = ["embedding_column", "shared_embeddings", "shared_embedding_columns"]


@pytest.mark.parametrize("column", make_columns("v2"), ids=CLASSES)
def test_column_keeps_do_fusion(column):
    assert column.do_fusion == "v2"
    assert column._make(column) == column
    assert column._asdict()["do_fusion"] == "v2"
    assert repr(column).endswith("do_fusion='v2', group=None)")
    changed = column._replace(combiner="mean")
    assert (changed.combiner, changed.do_fusion) == ("mean", "v2")
    assert column._replace(do_fusion="v1").do_fusion == "v1"
    assert copy.copy(column) == column
    for copied in (copy.deepcopy(column), pickle.loads(pickle.dumps(column))):
        assert type(copied) is type(column)
        assert (copied.name, copied.combiner, copied.do_fusion) == (column.name, "sum", "v2")


def test_columns_of_different_fusion_are_different_keys():
    fused, stock = make_columns("v2"), make_columns(None, fc, tf1.feature_column)
    for column, stock_column in zip(fused, stock, strict=True):
        same_but_fusion = type(stock_column)(*column[: len(stock_column)])
        assert len({column, column._replace(do_fusion="v1"), same_but_fusion}) == 3


@pytest.mark.parametrize("do_fusion", [None, False])
def test_without_fusion_columns_are_stock(do_fusion):
    stock = make_columns(None, fc, tf1.feature_column)
    for column, stock_column in zip(make_columns(do_fusion), stock, strict=True):
        assert type(column) is type(stock_column)


def test_fusion_can_be_taken_back():
    column = embedding(cases.identity(), do_fusion="v2")._replace(do_fusion=None)
    run = cases.train(input_layer(column))
    cases.assert_same_training(run, cases.train(input_layer(embedding(cases.identity(), fc))))
    assert not set(cases.FUSED_OP.values()) & run.ops.keys()


@pytest.mark.parametrize("do_fusion", ["v1", "v2", "v3", True])
def test_config_keeps_do_fusion(do_fusion):
    column = fe.feature_column.embedding_column(cases.identity(), 4, do_fusion=do_fusion)
    config = serialization.serialize_feature_column(column)
    again = serialization.deserialize_feature_column(config)
    assert again._replace(initializer=None) == column._replace(initializer=None)
    assert again.initializer.get_config() == column.initializer.get_config()
    assert again.get_config() == column.get_config()
    stock = serialization.serialize_feature_column(fc.embedding_column(cases.identity(), 4))
    assert not hasattr(serialization.deserialize_feature_column(stock), "do_fusion")


def test_parse_example_spec_is_stock():
    column = embedding(cases.identity(), do_fusion="v2")
    want = {"ids": tf.io.VarLenFeature(tf.int64)}
    assert fc.make_parse_example_spec([column]) == want
    assert tf1.feature_column.make_parse_example_spec([column]) == want


@pytest.mark.parametrize(
    ("ours", "stock"),
    [
        (fe.feature_column.embedding_column, fc.embedding_column),
        (fe.feature_column.shared_embeddings, fc.shared_embeddings),
        (
            fe.feature_column.shared_embedding_columns,
            tf1.feature_column.shared_embedding_columns,
        ),
        (fe.feature_column.linear_model, tf1.feature_column.linear_model),
    ],
)
def test_signature_is_stock_with_do_fusion(ours, stock):
    def arguments(function):
        return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]

    assert arguments(ours) == [*arguments(stock), ("do_fusion", None)]


ENTRIES = {
    "embedding_column": lambda **kw: fe.feature_column.embedding_column(cases.identity(), 4, **kw),
    "shared_embeddings": lambda **kw: fe.feature_column.shared_embeddings(
        [cases.identity()], 4, **kw
    ),
    "shared_embedding_columns": lambda **kw: fe.feature_column.shared_embedding_columns(
        [cases.identity()], 4, **kw
    ),
    "linear_model": lambda **kw: fe.feature_column.linear_model(
        cases.features(), [cases.identity()], **kw
    ),
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES.keys())
@pytest.mark.parametrize("do_fusion", ["v4", "V2", "", 1, 0, 2.0])
def test_rejects_unknown_fusion(do_fusion, entry):
    message = (
        "do_fusion must be None, False, True, 'v1', 'v2', 'v3', 'check' or an fe.FusionCheck, but "
        f"{do_fusion!r} was given; use True, or None for stock TensorFlow"
    )
    with tf.Graph().as_default(), pytest.raises(ValueError, match=re.escape(message)):
        entry(do_fusion=do_fusion)


def test_a_column_with_an_unknown_fusion_is_rejected_when_it_is_used():
    column = embedding(cases.identity(), do_fusion="v2")._replace(do_fusion="fast")
    with pytest.raises(ValueError, match="but 'fast' was given"):
        cases.train(input_layer(column))


@pytest.mark.parametrize("name", ["shared_embeddings", "shared_embedding_columns"])
def test_shared_columns_need_a_graph_as_stock_does(name):
    with pytest.raises(RuntimeError, match="not supported when eager"):
        ENTRIES[name](do_fusion="v2")


def test_a_tensorflow_of_another_shape_is_named():
    with pytest.raises(RuntimeError, match=r"has no embedding_ops in .*; use TensorFlow 2.15"):
        stock_functions.with_globals(embedding, embedding_ops=None)


def test_examples_of_the_docstrings():
    results = doctest.testmod(api, extraglobs={"fe": fe})
    assert results.attempted >= 4
    assert not results.failed


def test_examples_of_the_page():
    page = (ROOT / "docs/feature_columns.md").read_text()
    cases.keras()  # one example has a layer
    namespace = {}  # an example goes on where the one before it ends
    for example in re.findall("```python\n(.*?)```", page, re.DOTALL):
        exec(compile(example, "docs/feature_columns.md", "exec"), namespace)
    assert namespace["column"].name == "user_embedding"
