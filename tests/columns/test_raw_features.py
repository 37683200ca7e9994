"""Columns whose features become ids in one op, against stock's columns."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import fused_embedding as fe
from cases import columns as cases

pytestmark = pytest.mark.one_version

tf1 = tf.compat.v1
fc = tf.feature_column
KEYS_OP = "FusedEmbeddingColumnKeys"
NUM_ROWS = 4
# Ops by which stock's columns make ids of features.
TRANSFORMATIONS = {
    *("StringToHashBucketFast", "AsString", "Where", "GatherNd", "ExpandDims"),
    *("LookupTableFindV2", "Bucketize", "SparseCross"),
}


def dense(values):
    """As users feed them: the number of rows is not known."""
    return tf1.placeholder_with_default(values, [None, *np.shape(values)[1:]])


def features():
    words = np.array([["oak", ""], ["", ""], ["elm", "oak"], ["fig", ""]])
    numbers = np.array([[3, -1], [-1, -1], [-7, 10**12], [11, 0]], np.int64)
    sparse = cases.features()
    return {
        "sparse_words": sparse["words"],
        "sparse_ids": sparse["ids"],
        "words": dense(words),
        "word": dense(words[:, 0]),
        "numbers": dense(numbers),
        "number": dense(numbers[:, :1].astype(np.int32)),
        "weights": sparse["weights"],
        "prices": dense(np.array([[0.5, 9.0], [2.0, -1.0], [np.nan, 4.0], [-3.0, 2.5]], "f4")),
        "dense_weights": dense(np.array([[0.5, 0.0], [0.0, 0.0], [1.5, 2.0], [-1.0, 0.25]], "f4")),
    }


def hashed(key, num_buckets=7, dtype=tf.string):
    return fc.categorical_column_with_hash_bucket(key, num_buckets, dtype)


def identity(key, default_value=None):
    return fc.categorical_column_with_identity(key, 12, default_value)


def vocabulary(key, words=("oak", "elm", "ash"), num_oov_buckets=0, default_value=-1):
    return fc.categorical_column_with_vocabulary_list(
        key, words, default_value=default_value, num_oov_buckets=num_oov_buckets
    )


def bucketized():
    return fc.bucketized_column(fc.numeric_column("prices", shape=2), [0.0, 2.0, 4.0])


CATEGORICAL = [
    hashed("sparse_words"),
    hashed("words"),
    hashed("word", 1),
    hashed("numbers", 9, tf.int64),
    hashed("number", 2**40, tf.int32),
    identity("sparse_ids"),
    identity("number", 5),
    fc.weighted_categorical_column(hashed("sparse_ids", 5, tf.int64), "weights"),
    fc.weighted_categorical_column(hashed("numbers", 10, tf.int64), "dense_weights"),
    vocabulary("words", num_oov_buckets=3),
    vocabulary("sparse_words"),
    vocabulary("word", default_value=1),
    vocabulary("numbers", (-7, 3, 10**12), default_value=0),
    fc.weighted_categorical_column(vocabulary("sparse_ids", (0, 3, 7), 2), "weights"),
    bucketized(),
    fc.crossed_column(["words", "sparse_words"], 9),
    fc.crossed_column(["word", "number", identity("sparse_ids")], 5, hash_key=3),
    fc.crossed_column([bucketized(), vocabulary("words", default_value=2), "numbers"], 2**31),
    fc.crossed_column([fc.crossed_column(["word", "sparse_words"], 4), bucketized()], 11),
]
# A table of 2**40 rows does not fit.
TRAINED = [column for column in CATEGORICAL if getattr(column, "hash_bucket_size", 0) < 2**30]


def embedding(column, i=0):
    return fc.embedding_column(
        column,
        2 + i % 3,
        combiner=("mean", "sum", "sqrtn")[i % 3],
        initializer=cases.initializer(i),
    )


def embeddings(categorical):
    """Columns with different names: no two of one feature."""
    by_name = {column.name: column for column in categorical}
    return [embedding(column, i) for i, column in enumerate(by_name.values())]


def two_of_each_feature():
    """All columns in two parts, as embeddings of one feature have the same name."""
    last = {column.name: column for column in TRAINED}
    first = {column.name: column for column in TRAINED[::-1]}
    return [embeddings(first.values()), embeddings(last.values())]


def input_layer(module, columns):
    return lambda _: module.input_layer(features(), columns)


@pytest.mark.parametrize(
    ("columns", "partitions"),
    [(columns, p) for columns in two_of_each_feature() for p in (None, 2)],
)
def test_trains_as_stock(columns, partitions):
    want = cases.train(input_layer(tf1.feature_column, columns), partitions=partitions)
    got = cases.train(input_layer(fe.feature_column, columns), partitions=partitions)
    cases.assert_same_training(got, want)
    assert got.ops[KEYS_OP] == 1
    assert not TRANSFORMATIONS - {"Where", "GatherNd"} & got.ops.keys()  # weights keep these


def test_no_op_of_a_transformation_is_left():
    columns = embeddings([c for c in TRAINED if not hasattr(c, "weight_feature_key")])
    got = cases.train(input_layer(fe.feature_column, columns))
    assert got.ops[KEYS_OP] == 1
    assert not TRANSFORMATIONS & got.ops.keys()


@pytest.mark.parametrize("is_matrix", [False, True])
def test_features_in_variables_are_read_as_they_are(is_matrix):
    results = []
    for module in (tf1.feature_column, fe.feature_column):
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            batch = {
                key: tf.Variable(np.reshape(values, [4, 1] if is_matrix else [4]), trainable=False)
                for key, values in {
                    "word": ["oak", "", "elm", "oak"],
                    "number": [3, -1, 7, 0],
                }.items()
            }
            columns = embeddings([hashed("word"), hashed("number", 9, tf.int64)])
            result = module.input_layer(batch, columns)
            session.run(tf1.global_variables_initializer())
            results.append(session.run(result))
    np.testing.assert_array_equal(*results)
    assert not TRANSFORMATIONS & {op.type for op in graph.get_operations()}


def test_other_columns_of_a_feature_get_what_they_got():
    word = hashed("words")
    columns = [embedding(word), fc.indicator_column(word), fc.indicator_column(hashed("word"))]
    want = cases.train(input_layer(tf1.feature_column, columns))
    for order in (columns, columns[::-1]):
        got = cases.train(input_layer(fe.feature_column, order))
        cases.assert_same_training(got, want)
        assert got.ops[KEYS_OP] == 1


def test_shared_columns():
    def build(module):
        with tf.Graph().as_default():
            columns = tf1.feature_column.shared_embedding_columns(
                [hashed("words"), hashed("sparse_words")], 3, initializer=cases.initializer()
            )
        return cases.train(input_layer(module, columns))

    got, want = build(fe.feature_column), build(tf1.feature_column)
    cases.assert_same_training(got, want)
    assert got.ops[KEYS_OP] == 1


def test_a_checked_column_stays_apart():
    checked = fe.feature_column.embedding_column(
        hashed("words"), 3, initializer=cases.initializer(), do_fusion="check"
    )
    stock = fc.embedding_column(hashed("words"), 3, initializer=cases.initializer())
    want = cases.train(input_layer(tf1.feature_column, [stock]))
    got = cases.train(input_layer(fe.feature_column, [checked]))
    cases.assert_close(got.outputs, want.outputs)
    assert not got.ops[KEYS_OP]


def test_columns_in_a_scope():
    def columns(module):
        with fe.feature_column.group_embedding_column_scope("all"):
            return [
                module.embedding_column(c, 3, initializer=cases.initializer())
                for c in (hashed("words"), identity("sparse_ids"))
            ]

    want = cases.train(input_layer(tf1.feature_column, columns(fc)))
    with fe.compat.install():
        got = cases.train(
            lambda _: tf1.feature_column.input_layer(features(), columns(fe.feature_column))
        )
    cases.assert_same_training(got, want)
    assert got.ops[KEYS_OP] == 1


@pytest.mark.parametrize(
    ("fusions", "partitions"), [(["v3", "v1"], None), ([True, "v3", "v1"], None), ([True, "v3"], 2)]
)
def test_a_column_in_stocks_input_layer(fusions, partitions):
    stock = embeddings(TRAINED)
    ours = [
        fe.feature_column.embedding_column(
            column.categorical_column,
            column.dimension,
            combiner=column.combiner,
            initializer=column.initializer,
            do_fusion=do_fusion,
        )
        for column, do_fusion in zip(stock, fusions * 6, strict=False)
    ]
    want = cases.train(input_layer(tf1.feature_column, stock), partitions=partitions)
    got = cases.train(input_layer(tf1.feature_column, ours), partitions=partitions)
    cases.assert_same_training(got, want)
    num_single = sum(column.do_fusion == "v3" for column in ours)
    assert got.ops[KEYS_OP] == (1 if True in fusions else num_single)


def test_a_layer_that_is_handed_over_has_stocks_names():
    stock = embeddings(TRAINED)
    ours = [fe.feature_column.embedding_column(*stock[0][:2], do_fusion=True), *stock[1:]]

    def layer(columns):
        with tf.Graph().as_default() as graph:
            to_vars, to_tensors = {}, {}
            tf1.feature_column.input_layer(
                features(),
                iter(columns),
                ["mine"],
                cols_to_vars=to_vars,
                cols_to_output_tensors=to_tensors,
            )
            names = {
                column.name: [v.name for v in variables] for column, variables in to_vars.items()
            }
            shapes = {column.name: tensor.shape.as_list() for column, tensor in to_tensors.items()}
            mine = [v.name for v in tf1.get_collection("mine")]
            return set(to_vars), names, shapes, mine, [op.type for op in graph.get_operations()]

    (got_columns, *got, ops), (_, *want, stock_ops) = layer(ours), layer(stock)
    assert got == want
    assert got_columns == set(ours)
    assert ops.count(KEYS_OP) == 1
    assert KEYS_OP not in stock_ops


def test_a_column_whose_fusion_was_removed():
    column = fe.feature_column.embedding_column(hashed("words"), 3, do_fusion=True)
    column = column._replace(do_fusion=None, initializer=cases.initializer())
    want = cases.train(input_layer(tf1.feature_column, [column]))
    got = cases.train(input_layer(fe.feature_column, [column]))
    cases.assert_same_training(got, want)
    assert want.ops[KEYS_OP] == got.ops[KEYS_OP] == 0


class Unusual(fc.categorical_column_with_hash_bucket("words", 7).__class__):
    """A user's column, whose ids are the lengths of strings."""

    def _transform_input_tensor(self, input_tensor):
        ids = tf.cast(tf.strings.length(input_tensor.values), tf.int64)
        return tf.SparseTensor(input_tensor.indices, ids, input_tensor.dense_shape)


def test_a_subclass_transforms_its_feature_itself():
    columns = [embedding(Unusual("words", 7, tf.string))]
    want = cases.train(input_layer(tf1.feature_column, columns))
    got = cases.train(input_layer(fe.feature_column, columns))
    cases.assert_same_training(got, want)
    assert not got.ops[KEYS_OP]


@pytest.mark.parametrize(
    ("column", "feature", "message"),
    [
        (hashed("x", 5, tf.int64), np.array([["a"]]), "must be compatible"),
        (hashed("x", 5), np.array([[1.5]], "f4"), r"must be string or integer|compatible"),
        (identity("x"), np.array([["a"]]), "Invalid input, not integer"),
    ],
)
def test_stocks_errors_stay(column, feature, message):
    for module in (tf1.feature_column, fe.feature_column):
        with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
            module.input_layer({"x": tf.constant(feature)}, [embedding(column)])


def test_a_missing_feature_is_stocks_error():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="x is not in features"):
        fe.feature_column.input_layer({"y": tf.zeros([1, 1])}, [embedding(hashed("x"))])


def test_an_id_outside_the_table_is_an_error_of_its_feature():
    with tf.Graph().as_default(), tf1.Session() as session:
        columns = [embedding(identity("number"))]
        result = fe.feature_column.input_layer({"number": tf.constant([[3], [12]])}, columns)
        session.run(tf1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"feature 'number'.* 12 "):
            session.run(result)


def test_ragged_features():
    rows = [["oak", "elm"], [], ["", "fig"]]
    columns = [embedding(hashed("words"))]
    results = []
    for module, feature in (
        (tf1.feature_column, lambda: tf.ragged.constant(rows).to_sparse()),
        (fe.feature_column, lambda: tf.ragged.constant(rows)),
    ):
        with tf.Graph().as_default(), tf1.Session() as session:
            result = module.input_layer({"words": feature()}, columns)
            session.run(tf1.global_variables_initializer())
            results.append(session.run(result))
    np.testing.assert_array_equal(*results)


def test_keys_of_a_table_are_made_by_the_same_op():
    key = fe.feature_column.categorical_column_with_embedding
    results = []
    for do_group in (False, True):
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            columns = [
                fe.feature_column.embedding_column(
                    key(name, dtype),
                    3,
                    initializer=tf1.constant_initializer(0.5),
                    use_safe_embedding_lookup=dtype == tf.string,
                )
                for name, dtype in (("words", tf.string), ("numbers", tf.int64))
            ]
            layer = (fe.feature_column if do_group else tf1.feature_column).input_layer
            tables = {}
            result = layer(features(), columns, cols_to_vars=tables)
            session.run(tf1.global_variables_initializer())
            session.run(result)
            tables = tf1.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)
            keys = [sorted(session.run(table.export()).keys) for table in tables]
            results.append((session.run(result).tolist(), keys))
            num_ops = [op.type for op in graph.get_operations()].count(KEYS_OP)
            assert num_ops == 1  # stock's layer hands over
    assert results[0] == results[1]


VALUES = {
    tf.string: st.sampled_from([b"", b"a", b"-1", b"12", b"a longer text than sixteen bytes"]),
    tf.int64: st.one_of(st.integers(-3, 13), st.integers(-(2**63), 2**63 - 1)),
}


@st.composite
def specs(draw):
    """A categorical column with its feature, an array or a SparseTensorValue."""
    dtype = draw(st.sampled_from([tf.string, tf.int64]))
    if dtype == tf.string or draw(st.booleans()):
        column = hashed("x", draw(st.integers(1, 20)), dtype)
        values = VALUES[dtype]
    else:
        column = identity("x", draw(st.one_of(st.none(), st.integers(0, 11))))
        values = VALUES[dtype] if column.default_value is not None else st.integers(-3, 11)
    width = draw(st.integers(1, 3))
    cells = draw(
        st.lists(
            st.lists(values, min_size=width, max_size=width), min_size=NUM_ROWS, max_size=NUM_ROWS
        )
    )
    array = np.array(cells, object if dtype == tf.string else np.int64)
    if draw(st.booleans()):
        return column, array[:, 0] if width == 1 and draw(st.booleans()) else array
    kept = np.argwhere(draw(st.lists(st.booleans(), min_size=array.size, max_size=array.size)))
    indices = np.stack(np.unravel_index(kept[:, 0], array.shape), axis=1).astype(np.int64)
    return column, tf1.SparseTensorValue(indices, array.reshape(-1)[kept[:, 0]], array.shape)


@given(st.lists(specs(), min_size=1, max_size=5))
def test_rows_are_stocks_bit_by_bit(drawn):
    results = []
    for module in (tf1.feature_column, fe.feature_column):
        with tf.Graph().as_default(), tf1.Session() as session:
            columns, batch = [], {}
            for i, (column, feature) in enumerate(drawn):
                column = column._replace(key=f"x{i}")
                is_sparse = isinstance(feature, tf1.SparseTensorValue)
                batch[column.key] = tf.SparseTensor(*feature) if is_sparse else tf.constant(feature)
                columns.append(fc.embedding_column(column, 2, initializer=cases.initializer(i)))
            result = module.input_layer(batch, columns)
            session.run(tf1.global_variables_initializer())
            results.append(session.run(result))
    np.testing.assert_array_equal(*results)
