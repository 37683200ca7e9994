"""fe.feature_column.input_layer over serialized examples: stock's parse_example and input_layer."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases
from cases.examples import entry, example, floats, integers, texts

pytestmark = pytest.mark.one_version

tf1 = tf.compat.v1
fc = tf.feature_column
OURS, STOCK = "FusedEmbeddingParseExample", "ParseExampleV2"
# Values, their indices, and string tensors of columns that have ids by a rule.
NOT_WANTED = {"FusedEmbeddingColumnKeys", "StringToHashBucketFast", "AsString", "SparseReshape"}


def lists_of(row):
    """The lists of a row of the batch of `cases`."""
    lists = {}
    for key, values in cases.VALUES.items():
        of_row = values[cases.INDICES[:, 0] == row]
        if not len(of_row):
            continue
        if key == "words":
            lists[key] = texts(*(text.encode() for text in of_row.tolist()))
        else:
            make = floats if key == "weights" else integers
            lists[key] = make(*of_row.tolist())
    words = [text.encode() for text in cases.DENSE["dense_words"][row].tolist() if text]
    if words:
        lists["dense_words"] = texts(*words)
    return lists | {"price": floats(*cases.DENSE["price"][row].tolist())}


ROWS = [
    example(*(entry(key.encode(), values) for key, values in lists_of(row).items()))
    for row in range(4)
]


def embedding(categorical_column, module=fc, **kwargs):
    return module.embedding_column(categorical_column, 5, initializer=cases.initializer(), **kwargs)


def rows():
    return tf1.placeholder_with_default(tf.constant(ROWS), [None])


def of_stock(columns):
    def layer(_):
        parsed = tf.io.parse_example(rows(), tf1.feature_column.make_parse_example_spec(columns))
        return tf1.feature_column.input_layer(parsed, columns)

    return layer


def of_ours(columns):
    return lambda _: fe.feature_column.input_layer(serialized=rows(), feature_columns=columns)


def of_dataset(columns):
    """The ids are made by the function of a dataset."""

    def layer(_):
        dataset = tf.data.Dataset.from_tensors(ROWS).repeat()
        dataset = dataset.map(
            lambda batch: fe.feature_column.parse_example(batch, columns), num_parallel_calls=2
        )
        features = tf1.data.make_one_shot_iterator(dataset).get_next()
        return fe.feature_column.input_layer(features, columns)

    return layer


@pytest.mark.parametrize("make", [of_ours, of_dataset])
def test_columns_of_every_kind_train_as_stocks(tmp_path, make):
    columns = [embedding(column) for column in cases.categorical_columns(tmp_path)]
    columns[0] = embedding(cases.identity(), fe.feature_column, do_fusion="v1", max_norm=0.5)
    columns += [
        fc.numeric_column("price", shape=2),
        fc.indicator_column(cases.identity("other_ids")),
        embedding(fc.categorical_column_with_hash_bucket("other_ids", 6, tf.int64)),
        embedding(fc.categorical_column_with_identity("ids", 9, default_value=2), combiner="sum"),
    ]
    columns = {column.name: column for column in columns}.values()
    with tf.Graph().as_default():  # which stock asks for
        shared = tf1.feature_column.shared_embedding_columns(
            [cases.identity("ids"), cases.identity("other_ids")], 3, initializer=cases.initializer()
        )
    columns = [*columns, *shared]
    want = cases.train(of_stock(columns))
    got = cases.train(make(columns))
    cases.assert_same_training(got, want)
    assert (got.ops[OURS], got.ops[STOCK]) == (int(make is of_ours), 0)
    assert got.ops["FusedEmbeddingResourceGroupLookup"] == 1


def test_columns_by_rule_have_no_op_between_parsing_and_lookup():
    columns = [
        embedding(cases.identity()),
        embedding(fc.categorical_column_with_hash_bucket("words", 7)),
        embedding(fc.categorical_column_with_hash_bucket("other_ids", 6, tf.int64)),
    ]
    want = cases.train(of_stock(columns))
    for make in (of_ours, of_dataset):
        got = cases.train(make(columns))
        cases.assert_same_training(got, want)
        assert not NOT_WANTED & got.ops.keys()


def test_wide_and_deep_columns_are_parsed_together():
    words = fc.categorical_column_with_hash_bucket("words", 7)
    crossed = fc.crossed_column(["words", cases.identity("other_ids")], 9)
    wide, deep = [words, crossed], [embedding(words), embedding(cases.identity())]

    def layer(module, parse):
        def build(_):
            parsed = parse()
            logits = module.linear_model(parsed, wide)
            return tf.concat([logits, module.input_layer(parsed, deep)], axis=1)

        return build

    spec = tf1.feature_column.make_parse_example_spec([*wide, *deep])
    of_stocks = layer(tf1.feature_column, lambda: tf.io.parse_example(rows(), spec))
    module = fe.feature_column
    of_both = layer(module, lambda: module.parse_example(rows(), [*wide, *deep]))
    cases.assert_same_training(cases.train(of_both), cases.train(of_stocks))


def test_a_dataset_makes_ids_in_the_order_of_the_examples():
    columns = [embedding(fc.categorical_column_with_hash_bucket("words", 1000))]
    batches = [[ROWS[i % 4], ROWS[i % 3]] for i in range(40)]
    elements = [
        list(
            tf.data.Dataset.from_tensor_slices(batches).map(
                lambda batch: fe.feature_column.parse_example(batch, columns),
                num_parallel_calls=parallel,
            )
        )
        for parallel in (None, 4)
    ]
    [key] = elements[0][0]
    assert key == "ids of 'words' by hash, 1000, -1"
    for one, other in zip(*elements, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)
        assert tf.nest.flatten(one)[0].dtype == tf.int64


def test_a_dataset_that_makes_ids_is_refused_by_a_service():
    columns = [embedding(fc.categorical_column_with_hash_bucket("words", 7))]
    dataset = tf.data.Dataset.from_tensors(ROWS)
    dataset = dataset.map(lambda batch: fe.feature_column.parse_example(batch, columns))
    with pytest.raises(ValueError, match=r"parse by fe.io.parse_example and give input_layer"):
        fe.io.with_stock_ops(dataset)


def test_what_is_saved_parses_the_features():
    columns = [embedding(fc.categorical_column_with_hash_bucket("words", 7))]
    parse = tf.function(lambda batch: fe.feature_column.parse_example(batch, columns))
    assert list(parse(tf.constant(ROWS))) == ["words"]


def test_ids_of_other_columns_are_not_those_of_a_column():
    parsed = embedding(fc.categorical_column_with_hash_bucket("words", 7))
    other = embedding(fc.categorical_column_with_hash_bucket("words", 8))
    with tf.Graph().as_default():
        features = fe.feature_column.parse_example(rows(), [parsed])
        with pytest.raises(ValueError, match="Feature words is not in features dictionary"):
            fe.feature_column.input_layer(features, [other])


def test_one_feature_has_several_rules_and_is_wanted_as_it_is():
    def column(buckets):
        hashed = fc.categorical_column_with_hash_bucket("words", buckets)
        return embedding(hashed, combiner="sum")

    crossed = fc.crossed_column(["words", cases.identity("other_ids")], 9)
    hashed = {"a": column(5), "b": column(1000), "c": embedding(crossed)}
    columns = [c._replace(dimension=i + 2) for i, c in enumerate(hashed.values())]

    def named(make):
        def layer(features):
            outputs = []
            for i, of_layer in enumerate([columns[::2], columns[1:]]):
                with tf1.variable_scope(f"layer{i}"):
                    outputs.append(make(of_layer)(features))
            return tf.concat(outputs, axis=1)

        return layer

    cases.assert_same_training(cases.train(named(of_ours)), cases.train(named(of_stock)))


def test_columns_without_a_vocabulary_look_up_the_ids_of_features():
    module = fe.feature_column
    columns = [
        embedding(module.categorical_column_with_embedding("words"), module),
        embedding(module.categorical_column_with_embedding("ids", tf.int64), module),
        embedding(
            fc.weighted_categorical_column(
                module.categorical_column_with_embedding("other_ids", tf.int64), "weights"
            ),
            module,
        ),
    ]

    def of_features(_):
        parsed = tf.io.parse_example(rows(), tf1.feature_column.make_parse_example_spec(columns))
        return module.input_layer(parsed, columns)

    results = []
    for layer in (of_features, of_ours(columns)):
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            output = layer(None)
            step = tf1.train.AdagradOptimizer(0.5).minimize(cases.weighted_sum(output))
            session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
            results.append([session.run([output, step])[0] for _ in range(3)])
    np.testing.assert_array_equal(results[0], results[1])
    assert not NOT_WANTED & {op.type for op in graph.get_operations()}


def rows_of(layer, batch):
    """What a layer makes of a batch, in a session."""
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        output = layer(None)
        [given] = [op for op in graph.get_operations() if "Placeholder" in op.type]
        session.run(tf1.global_variables_initializer())
        return session.run(output, {given.outputs[0]: np.array(batch, object)})


@pytest.mark.parametrize("batch", [[], [b""], [b"", ROWS[2]]], ids=len)
def test_examples_without_features(batch):
    columns = [
        embedding(fc.categorical_column_with_hash_bucket("words", 7)),
        embedding(fc.weighted_categorical_column(cases.identity(), "weights"), combiner="sqrtn"),
    ]
    np.testing.assert_array_equal(*(rows_of(make(columns), batch) for make in (of_ours, of_stock)))


@pytest.mark.parametrize(
    "row",
    [b"\x0a\x05", example(entry(b"words", integers(1))), example(entry(b"price", floats(1.0)))],
    ids=["malformed", "other type", "other number"],
)
def test_errors_of_examples_are_stocks(row):
    columns = [
        embedding(fc.categorical_column_with_hash_bucket("words", 7)),
        fc.numeric_column("price", shape=2),
    ]
    messages = []
    for make in (of_stock, of_ours):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            rows_of(make(columns), [ROWS[0], row])
        messages.append(raised.value.message.split("\n")[0].split("}} ")[-1])
    assert messages[0] == messages[1]


def test_stocks_op_parses_where_ours_is_off(monkeypatch):
    columns = [embedding(fc.categorical_column_with_hash_bucket("words", 7))]
    want = cases.train(of_stock(columns))
    monkeypatch.setenv("FE_DISABLE", "lookup")
    cases.assert_same_training(cases.train(of_ours(columns)), want)
    monkeypatch.setenv("FE_DISABLE", "parse")
    got = cases.train(of_ours(columns))
    cases.assert_same_training(got, want)
    assert (got.ops[OURS], got.ops[STOCK]) == (0, 1)


def test_an_export_has_stocks_ops(tmp_path):
    columns = [
        embedding(fc.categorical_column_with_hash_bucket("words", 7)),
        embedding(fc.categorical_column_with_hash_bucket("other_ids", 6, tf.int64)),
        embedding(fc.categorical_column_with_identity("ids", 9, default_value=2)),
    ]
    with tf.Graph().as_default(), tf1.Session() as session:
        serialized = tf1.placeholder(tf.string, [None])
        output = fe.feature_column.input_layer(serialized=serialized, feature_columns=columns)
        session.run(tf1.global_variables_initializer())
        want = session.run(output, {serialized: ROWS})
        fe.export_for_serving(
            session, tmp_path / "export", inputs={"rows": serialized}, outputs={"rows": output}
        )
    saved = tf.saved_model.load(str(tmp_path / "export"))
    got = saved.signatures["serving_default"](rows=tf.constant(ROWS))["rows"]
    np.testing.assert_allclose(got, want, rtol=0, atol=cases.ATOL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "but neither of them were given"),
        ({"features": {"ids": [1]}, "serialized": ROWS}, "but both of them were given"),
        ({"serialized": ROWS[0]}, r"must be a vector of examples, got shape \(\)"),
        ({"serialized": ROWS, "rows": {"ids": [0]}}, "all columns of serialized have one batch"),
        ({"serialized": ROWS, "feature_columns": None}, "needs feature_columns"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    given = {"feature_columns": [embedding(cases.identity())]} | arguments
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        fe.feature_column.input_layer(**given)
