"""`rows=` of fe.feature_column.input_layer against tf.gather of what stock's columns give."""

import re

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases

pytestmark = pytest.mark.one_version

tf1 = tf.compat.v1
fc = tf.feature_column
GROUP_OP = "FusedEmbeddingResourceGroupLookup"
KEYS_OP = "FusedEmbeddingColumnKeys"
INDEX = np.array([1, 0, 1, 1, 0, 1, 2])
NUM_ITEMS = len(INDEX)
USER_FEATURES = ("user", "seen", "age", "weight")
# User 2 is read by one item, user 3 by none.
SEEN = ([[0, 0], [0, 2], [1, 1], [2, 0], [2, 1]], [3, 3, 7, 3, 0], [4, 3])


def features():
    def unknown(values):
        return tf1.placeholder_with_default(values, [None, *values.shape[1:]])

    return {
        "user": unknown(np.array([["ann"], ["bob"], [""], ["cid"]])),
        "seen": tf.SparseTensor(SEEN[0], np.array(SEEN[1], np.int64), SEEN[2]),
        "weight": tf.SparseTensor(SEEN[0], [0.5, 2.0, 1.0, 3.0, 0.25], SEEN[2]),
        "age": unknown(np.array([[30.0], [20.5], [0.0], [7.0]], np.float32)),
        "item": unknown(np.arange(NUM_ITEMS)[:, None] % 5),
        "tags": unknown(np.array([["a", "b"], ["", ""]] * 3 + [["b", "c"]])),
    }


def user_categorical():
    user = fc.categorical_column_with_hash_bucket("user", 9)
    seen = fc.categorical_column_with_identity("seen", 8)
    return [user, seen, fc.crossed_column(["user", seen], 11)]


def columns_of_user(module=fc, **how):
    embedded = [
        module.embedding_column(
            column, 2 + i, combiner=combiner, initializer=cases.initializer(i), **how
        )
        for i, (column, combiner) in enumerate(
            zip(user_categorical(), ("sum", "mean", "sqrtn"), strict=True)
        )
    ]
    weighted = fc.weighted_categorical_column(
        fc.categorical_column_with_hash_bucket("seen", 6, tf.int64), "weight"
    )
    embedded.append(module.embedding_column(weighted, 3, initializer=cases.initializer(7), **how))
    return [*embedded, fc.numeric_column("age"), fc.indicator_column(user_categorical()[0])]


def columns_of_item(module=fc, **how):
    categorical = [
        fc.categorical_column_with_identity("item", 5),
        fc.categorical_column_with_vocabulary_list("tags", ["a", "b", "c"]),
    ]
    return [
        module.embedding_column(column, 4, initializer=cases.initializer(5 + i), **how)
        for i, column in enumerate(categorical)
    ]


def want_layer(columns):
    """The outputs of stock's columns, gathered where their features are a user's."""

    def build(_):
        outputs = {}
        # Its own result, of batches of different sizes, is not used.
        tf1.feature_column.input_layer(features(), columns, cols_to_output_tensors=outputs)
        rows = []
        for column in sorted(columns, key=lambda column: column.name):
            is_user = set(column._parse_example_spec) <= set(USER_FEATURES)
            rows.append(tf.gather(outputs[column], INDEX) if is_user else outputs[column])
        return tf.concat(rows, axis=1)

    return build


def rows(index=INDEX):
    index = tf.constant(index) if isinstance(index, np.ndarray) else index
    return dict.fromkeys(USER_FEATURES, index)


@pytest.mark.parametrize(("partitions", "use_resource"), [(None, True), (None, False), (2, True)])
def test_trains_as_the_gathered_outputs_of_stock(partitions, use_resource):
    how = {"partitions": partitions, "use_resource": use_resource}
    columns = [*columns_of_user(), *columns_of_item()]
    want = cases.train(want_layer(columns), **how)
    got = cases.train(
        lambda _: fe.feature_column.input_layer(features(), columns, rows=rows()), **how
    )
    cases.assert_same_training(got, want)
    assert got.ops[KEYS_OP] == 1
    if partitions is None and use_resource:
        assert (got.ops[GROUP_OP], got.ops[GROUP_OP + "Grad"]) == (1, 1)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_one_user_and_all_items(dtype):
    """The gradients of an op are dense, and the table's row of the user is read once."""
    columns = [*columns_of_user(fe.feature_column, do_fusion=True), *columns_of_item()]
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        index = tf1.placeholder_with_default(np.zeros([NUM_ITEMS], dtype), [None])
        outputs = {}
        result = fe.feature_column.input_layer(
            features(), columns, cols_to_output_tensors=outputs, rows=rows(index)
        )
        tables = tf1.trainable_variables()
        gradients = tf.gradients(cases.weighted_sum(result), tables)
        assert all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients)
        lookups = [op for op in graph.get_operations() if op.type == GROUP_OP]
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        got, of_columns, looked_up = session.run([result, outputs, lookups[0].outputs])
    assert outputs.keys() == set(columns)
    assert {len(output) for output in of_columns.values()} == {NUM_ITEMS}
    assert {len(output) for output in looked_up} == {4, NUM_ITEMS}
    ordered = [of_columns[column] for column in sorted(columns, key=lambda column: column.name)]
    np.testing.assert_array_equal(got, np.concatenate(ordered, axis=1))
    user_output = of_columns[columns[0]]
    np.testing.assert_array_equal(user_output, np.tile(user_output[:1], (NUM_ITEMS, 1)))


def test_a_column_as_the_key_goes_before_its_features():
    first, second = columns_of_user()[0], fc.numeric_column("user_age")
    with tf.Graph().as_default(), tf1.Session() as session:
        batch = {**features(), "user_age": tf.constant([[1.0], [2.0]])}
        outputs = {}
        fe.feature_column.input_layer(
            batch,
            [first, second],
            cols_to_output_tensors=outputs,
            rows={first: [3, 0], "user": [9, 9, 9], second: [1, 1]},
        )
        session.run(tf1.global_variables_initializer())
        of_first, of_second = session.run([outputs[first], outputs[second]])
    assert of_first.shape == (2, 2)
    np.testing.assert_array_equal(of_second, [[2.0], [2.0]])


def test_layers_without_items():
    """All columns have an index: the batch is as long as the index."""
    with tf.Graph().as_default(), tf1.Session() as session:
        column = columns_of_user()[0]
        result = fe.feature_column.input_layer(features(), [column], rows={"user": [2, 0, 0]})
        empty = fe.feature_column.input_layer(
            features(), [column], rows={"user": np.zeros([0], np.int64)}
        )
        session.run(tf1.global_variables_initializer())
        result, empty = session.run([result, empty])
    assert (result.shape, empty.shape) == ((3, 2), (0, 2))
    np.testing.assert_array_equal(result[0], 0)  # the user without a name
    np.testing.assert_array_equal(result[1], result[2])


@pytest.mark.parametrize("index", [[0, 4], [-1, 0], [7, 7]])
def test_an_index_outside_the_batch_names_the_features(index):
    columns = [*columns_of_user()[:2], fc.numeric_column("age")]
    with tf.Graph().as_default(), tf1.Session() as session:
        given = dict.fromkeys(("user", "seen", "age"), tf.constant(index))
        result = fe.feature_column.input_layer(features(), columns, rows=given)
        session.run(tf1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            session.run(result)
    for name in ("user", "seen", "age"):
        assert f"rows of feature \\'{name}\\'" in raised.value.message
    assert f"[go from] [{min(index)}] [to] [{max(index)}]" in raised.value.message


def test_a_small_batch_is_named_alone():
    columns = [columns_of_user()[0], fc.numeric_column("age")]
    with tf.Graph().as_default(), tf1.Session() as session:
        given = {**features(), "age": tf.zeros([2, 1])}
        index = tf.constant([3, 0])
        result = fe.feature_column.input_layer(given, columns, rows={"user": index, "age": index})
        session.run(tf1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            session.run(result)
    # Not any "user" in it: the traceback names the folders of this checkout.
    assert set(re.findall(r"rows of feature \\'(\w+)\\'", raised.value.message)) == {"age"}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([0, 1], TypeError, "rows must be a dict from feature keys or columns"),
        ({"usr": [0]}, ValueError, r"rows has the keys \['usr'\], but no column"),
        ({"user": [0.5]}, TypeError, "rows of feature 'user' must be int32 or int64, got float32"),
        ({"user": [[0]]}, ValueError, r"rows of feature 'user' must have shape \[num_items\]"),
        ({"user": tf.ragged.constant([[1]])}, TypeError, "rows of feature 'user' must be a dense"),
    ],
)
def test_wrong_arguments(given, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        fe.feature_column.input_layer(features(), columns_of_user()[:1], rows=given)


def test_the_features_of_a_column_have_one_index():
    with tf.Graph().as_default():
        crossed = columns_of_user()[2]
        for given in ({"user": [0]}, {"user": tf.constant([0]), "seen": tf.constant([0])}):
            with pytest.raises(ValueError, match=r"\['seen', 'user'\], which must have the same"):
                fe.feature_column.input_layer(features(), [crossed], rows=given)


def test_static_batch_sizes_may_differ():
    columns = [columns_of_user()[0], columns_of_item()[0]]
    with tf.Graph().as_default():
        batch = {"user": tf.constant([["ann"]]), "item": tf.constant([[1], [2]], tf.int64)}
        result = fe.feature_column.input_layer(batch, columns, rows={"user": tf.constant([0, 0])})
        assert result.shape == [2, 6]


def test_tables_without_a_vocabulary():
    key = fe.feature_column.categorical_column_with_embedding
    columns = [
        fe.feature_column.embedding_column(key(name, dtype), 3)
        for name, dtype in (("user", tf.string), ("item", tf.int64))
    ]
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        outputs = {}
        result = fe.feature_column.input_layer(
            features(), columns, cols_to_output_tensors=outputs, rows={"user": tf.constant(INDEX)}
        )
        loss = cases.weighted_sum(result)
        step = tf1.train.AdagradOptimizer(0.5).minimize(loss)
        ops = [op.type for op in graph.get_operations()]
        session.run(tf1.global_variables_initializer())
        users = []
        for _ in range(2):
            users.append(session.run(outputs[columns[0]]))
            session.run(step)
    assert ops.count("EmbeddingVariableGroupLookup") == 1
    first, second = users
    first_item_of_row = [INDEX.tolist().index(row) for row in INDEX]
    for output in users:
        np.testing.assert_array_equal(output, output[first_item_of_row])
    assert np.any(first != second)


def test_other_versions_of_the_lookup():
    want = cases.train(want_layer(columns_of_user()))
    for do_fusion in ("v1", "check", None):
        columns = columns_of_user(fe.feature_column, do_fusion=do_fusion)
        got = cases.train(
            lambda _, c=columns: fe.feature_column.input_layer(features(), c, rows=rows())
        )
        cases.assert_same_training(got, want)
