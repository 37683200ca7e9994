import copy
import functools
import pickle

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases

tf1 = tf.compat.v1
fc = tf.feature_column
DIMENSION = 5
NUM_IDS = 12
IDS = set(cases.VALUES["ids"].tolist())
# A key's first value is row `key % NUM_IDS` of the matrix: that of a dense table of NUM_IDS rows.
OPTION = fe.EmbeddingVariableOption(init_option=fe.InitializerOption(default_value_dim=NUM_IDS))


def table_column(key="ids", **kwargs):
    kwargs.setdefault("ev_option", OPTION)
    return fe.feature_column.categorical_column_with_embedding(key, tf.int64, **kwargs)


def train(build, num_steps=3):
    """Outputs of each step, gradients of the first and the table's rows after the last."""
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        output = build(cases.features())
        (table,) = set(tf1.trainable_variables()) or [None]
        optimizer = tf1.train.AdagradOptimizer(0.5)
        step = optimizer.minimize(cases.weighted_sum(output))
        session.run(tf1.global_variables_initializer())
        outputs = [session.run([output, step])[0] for _ in range(num_steps)]
        if isinstance(table, fe.EmbeddingVariable):
            keys, values, _, _ = session.run(table.export())
            rows = dict(zip(keys.tolist(), values, strict=True))
        else:
            rows = dict(enumerate(session.run(table)))
        ops = {op.type for op in graph.get_operations()}
    return outputs, rows, ops


def assert_same(got, want, ids=IDS):
    """The same outputs, and rows of the ids that occurred."""
    cases.assert_close(got[0], want[0])
    assert set(got[1]) == ids
    cases.assert_close(got[1], {key: want[1][key] for key in ids})


def input_layer(columns, features):
    return tf1.feature_column.input_layer(features, columns)


def embed(module, column, **kwargs):
    return module.embedding_column(column, DIMENSION, initializer=cases.initializer(), **kwargs)


@pytest.mark.parametrize("do_fusion", [None, False, "v1", "v2", True])
def test_input_layer_trains_as_over_a_dense_table(do_fusion):
    columns = [embed(fe.feature_column, table_column(), do_fusion=do_fusion)]
    got = train(functools.partial(input_layer, columns))
    want = train(functools.partial(input_layer, [embed(fc, cases.identity())]))
    assert_same(got, want)
    group = "EmbeddingVariableGroupLookup"
    assert (cases.FUSED_OP[do_fusion] if do_fusion in ("v1", "v2") else group) in got[2]
    assert not cases.STOCK_OPS & got[2]


@pytest.mark.parametrize(
    "options",
    [
        {"combiner": "sum"},
        {"combiner": "sqrtn", "max_norm": 0.5},
        {"combiner": "mean", "use_safe_embedding_lookup": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_arguments_of_the_column_reach_the_lookup(options, is_weighted):
    def build(module, column, features):
        if is_weighted:
            column = fc.weighted_categorical_column(column, "weights")
        output = input_layer([embed(module, column, **options)], features)
        return output if options.get("use_safe_embedding_lookup", True) else output[:3]

    got = train(functools.partial(build, fe.feature_column, table_column()))
    want = train(functools.partial(build, fc, cases.identity()))
    # Without weights that are > 0, an id is not looked up, but for sums.
    ids = {3, 0, 7} if is_weighted and options.get("use_safe_embedding_lookup", True) else IDS
    if options["combiner"] == "sum":
        ids = IDS
    assert_same(got, want, ids)


def test_two_columns_have_two_tables():
    with tf.Graph().as_default():
        columns = [embed(fe.feature_column, table_column(key)) for key in ("ids", "other_ids")]
        output = input_layer(columns, cases.features())
        names = [table.name for table in tf1.trainable_variables()]
        assert tf1.global_variables() == []
        assert tf1.get_collection(fe.EMBEDDING_VARIABLES) == tf1.trainable_variables()
    assert output.shape.as_list() == [4, 2 * DIMENSION]
    assert [name.split(":")[0] for name in names] == [
        "input_layer/ids_embedding/embedding_weights",
        "input_layer/other_ids_embedding/embedding_weights",
    ]


@pytest.mark.parametrize("num_parts", [1, 3])
def test_partitions_change_nothing_but_where_rows_are(num_parts):
    def run(partition_num):
        with tf.Graph().as_default(), tf1.Session() as session:
            column = embed(fe.feature_column, table_column(partition_num=partition_num))
            output = input_layer([column], cases.features())
            loss = cases.weighted_sum(output)
            step = tf1.train.GradientDescentOptimizer(0.5).minimize(loss)
            tables = tf1.trainable_variables()
            outputs = [session.run([output, step])[0] for _ in range(3)]
            exported = session.run([table.export() for table in tables])
            rows = {}
            for keys, values, _, frequencies in exported:
                rows.update(zip(keys.tolist(), zip(values, frequencies, strict=True), strict=True))
            return outputs, rows, len(tables)

    got, want = run(num_parts), run(None)
    cases.assert_close(got[0], want[0])
    cases.assert_close(got[1], want[1])
    assert set(got[1]) == IDS
    assert [got[2], want[2]] == [num_parts, 1]
    assert got[1][7][1] == 6  # twice in each of three steps


def test_strings_become_ids_by_a_stable_hash():
    words = ["oak", "", "elm"]
    with tf.Graph().as_default(), tf1.Session() as session:
        column = fe.feature_column.categorical_column_with_embedding("words")
        sparse = tf.sparse.from_dense([["oak"], ["elm"]])
        output = input_layer([fe.feature_column.embedding_column(column, 2)], {"words": sparse})
        dense = input_layer(
            [fe.feature_column.embedding_column(column._replace(key="dense"), 2)],
            {"dense": tf.constant([words, ["", "", ""]])},
        )
        session.run([output, dense])
        keys = [session.run(table.export().keys) for table in tf1.trainable_variables()]
    want = sorted([FINGERPRINTS["oak"], FINGERPRINTS["elm"]])
    assert [k.tolist() for k in keys] == [want, want]  # "" is no value


# FarmHash's Fingerprint64 modulo 2^63 - 1.
FINGERPRINTS = {"oak": 4760989987945059574, "elm": 3110145033431358176}


def test_dense_ids_drop_minus_one_and_negative_ids_are_pruned():
    with tf.Graph().as_default(), tf1.Session() as session:
        column = fe.feature_column.embedding_column(table_column("key"), 2)
        features = {"key": tf.constant([[5, -1, 2**62], [-1, -7, -1]], tf.int64)}
        value = session.run(input_layer([column], features))
        keys = session.run(tf1.trainable_variables()[0].export().keys)
    assert keys.tolist() == [5, 2**62]
    assert not value[1].any()
    assert value[0].any()


def shared(module, keys, **kwargs):
    function = getattr(module, "shared_embedding_columns", None)
    function = function or tf1.feature_column.shared_embedding_columns
    return function(keys, DIMENSION, initializer=cases.initializer(), **kwargs)


@pytest.mark.parametrize("do_fusion", [None, "v1"])
def test_shared_columns_have_one_table(do_fusion):
    def build(module, make, features, **kwargs):
        weighted = fc.weighted_categorical_column(make("other_ids"), "weights")
        return input_layer(shared(module, [make("ids"), weighted], **kwargs), features)

    got = train(functools.partial(build, fe.feature_column, table_column, do_fusion=do_fusion))
    want = train(functools.partial(build, fc, cases.identity))
    # Of other_ids, 3 and 0 have a weight that is not > 0 wherever they occur.
    assert_same(got, want, IDS | {5, 3, 1})


def test_shared_columns_must_agree():
    with tf.Graph().as_default():
        other = table_column("other_ids", partition_num=2)
        with pytest.raises(ValueError, match="same dtype, partition_num and ev_option"):
            shared(fe.feature_column, [table_column(), other])
        with pytest.raises(ValueError, match="must all be made by categorical_column_with_embed"):
            shared(fe.feature_column, [table_column(), cases.identity("other_ids")])
        with pytest.raises(ValueError, match="must all be made by categorical_column_with_embed"):
            shared(fe.feature_column, [cases.identity(), table_column("other_ids")])
        message = "collection 'mine' must hold the table"
        columns = shared(
            fe.feature_column,
            [table_column(), table_column("other_ids")],
            shared_embedding_collection_name="mine",
        )
        input_layer(columns, cases.features())
        with pytest.raises(ValueError, match=message):  # a table of another dim
            input_layer([c._replace(dimension=3) for c in columns], cases.features())
        tf1.add_to_collection("mine", "another")
        with pytest.raises(ValueError, match=message):
            input_layer(columns, cases.features())


def test_a_column_that_does_not_train_inserts_nothing():
    with tf.Graph().as_default(), tf1.Session() as session:
        columns = [embed(fe.feature_column, table_column(), trainable=False)]
        output = input_layer(columns, cases.features())
        assert tf1.trainable_variables() == []
        (table,) = tf1.get_collection(fe.EMBEDDING_VARIABLES)
        session.run(output)
        assert session.run(table.total_count()) == 0
    want = train(functools.partial(input_layer, [embed(fc, cases.identity())]))
    with tf.Graph().as_default(), tf1.Session() as session:
        cases.assert_close(session.run(input_layer(columns, cases.features())), want[0][0])


def dense_features(columns, **kwargs):
    return cases.keras().layers.DenseFeatures(columns, **kwargs)


def table_of(layer):
    (table,) = layer.trainable_weights
    assert isinstance(table, fe.EmbeddingVariable)
    return table


def test_dense_features_inserts_in_training_only():
    layer = dense_features([embed(fe.feature_column, table_column())])
    stock = dense_features([embed(fc, cases.identity())])
    want = stock(cases.features())
    for training in (False, True):
        cases.assert_close(layer(cases.features(), training=training), want)
        size = int(table_of(layer).total_count())
        assert size == (len(IDS) if training else 0)
    with fe.inference():
        layer({**cases.features(), "ids": tf.sparse.from_dense([[100]])})
    assert int(table_of(layer).total_count()) == len(IDS)
    # A loop that leaves `training` out trains.
    layer({**cases.features(), "ids": tf.sparse.from_dense([[100]])})
    table = table_of(layer)
    assert int(table.total_count()) == len(IDS) + 1
    layer.trainable = False
    layer({**cases.features(), "ids": tf.sparse.from_dense([[200]])}, training=True)
    assert int(table.total_count()) == len(IDS) + 1


def test_tables_of_a_layer_have_the_names_of_stocks_variables_and_differ():
    columns = [
        fe.feature_column.embedding_column(table_column(key, ev_option=None), DIMENSION)
        for key in ("ids", "other_ids")
    ]
    layer = dense_features(columns, name="layer")
    inputs = {**cases.features(), "other_ids": cases.features()["ids"]}
    output = layer(inputs).numpy()
    assert [table.name for table in layer.trainable_weights] == [
        "layer/ids_embedding/embedding_weights:0",
        "layer/other_ids_embedding/embedding_weights:0",
    ]
    # The same keys in two tables have different first values.
    assert not np.isclose(output[0, :DIMENSION], output[0, DIMENSION:]).any()

    column = fe.feature_column.sequence_categorical_column_with_embedding("ids", tf.int64)
    columns = [fe.feature_column.embedding_column(column, 2)]
    layer = cases.keras().experimental.SequenceFeatures(columns, name="layer")
    layer(cases.features())
    assert table_of(layer).name == "layer/ids_embedding/embedding_weights:0"


@pytest.mark.parametrize("partition_num", [None, 2])
def test_a_model_trains_as_over_a_dense_table_and_inserts_in_fit_only(partition_num):
    keras = cases.keras()
    option = fe.EmbeddingVariableOption(init_option=fe.InitializerOption(default_value_dim=8))

    def run(column, wrap):
        layer = dense_features([column])
        model = keras.Sequential([layer, keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(wrap(keras.optimizers.Adagrad(0.5)), "mse")
        results, sizes = [], []
        for ids, run in (([1, 2], model.predict), ([1, 3, 4], model.fit), ([3, 6], model.predict)):
            targets = np.arange(len(ids)) if run == model.fit else None
            data = tf.data.Dataset.from_tensors((({"key": np.array(ids)[:, None]}), targets))
            data = data if run == model.fit else data.map(lambda features, _: features)
            results.append(run(data.repeat(3) if run == model.fit else data, verbose=0))
            tables = [t for t in layer.trainable_weights if isinstance(t, fe.EmbeddingVariable)]
            sizes.append(sum(int(table.total_count()) for table in tables))
        return results, sizes

    table = table_column("key", ev_option=option, partition_num=partition_num)
    got, sizes = run(embed(fe.feature_column, table), fe.keras.wrap)
    identity = fc.categorical_column_with_identity("key", 8)
    want, _ = run(embed(fc, identity), lambda optimizer: optimizer)
    assert sizes == [0, 3, 3]
    cases.assert_close([got[0], got[2]], [want[0], want[2]])
    assert not np.allclose(got[2][0], got[0][0])


def test_dense_features_config_keeps_the_column():
    option = fe.EmbeddingVariableOption(
        filter_option=fe.CounterFilter(3),
        init_option=fe.InitializerOption(tf1.random_normal_initializer(1.0, 0.5)),
    )
    column = table_column(ev_option=option, partition_num=2)
    layer = dense_features([fe.feature_column.embedding_column(column, 4, do_fusion="v1")])
    again = cases.keras().layers.DenseFeatures.from_config(layer.get_config())
    (restored,) = again._feature_columns
    assert restored.do_fusion == "v1"
    assert restored.categorical_column[:3] == column[:3]
    got = restored.categorical_column.ev_option
    assert got.filter_option == option.filter_option
    assert got.init_option.initializer.get_config() == option.init_option.initializer.get_config()
    assert again(cases.features()).shape == [4, 4]
    assert len(again.trainable_weights) == 2


def test_dense_features_are_tracked_for_checkpoints():
    for partition_num, want in ((None, 1), (2, 2)):
        layer = dense_features(
            [embed(fe.feature_column, table_column(partition_num=partition_num))]
        )
        layer(cases.features())
        view = tf.train.TrackableView(layer)
        tables = [v for v in view.descendants() if isinstance(v, fe.EmbeddingVariable)]
        assert len(tables) == want
        assert {id(table) for table in tables} == {id(table) for table in layer.trainable_weights}


def test_shared_embeddings_have_one_table_in_a_layer():
    def build(module, make, features):
        columns = [make("ids"), make("other_ids")]
        columns = module.shared_embeddings(columns, DIMENSION, initializer=cases.initializer())
        return dense_features(columns)(features, training=True)

    got = train(functools.partial(build, fe.feature_column, table_column))
    want = train(functools.partial(build, fc, cases.identity))
    assert_same(got, want, IDS | set(cases.VALUES["other_ids"].tolist()))


def test_sequence_features_compute_as_over_a_dense_table():
    sequence_features = cases.keras().experimental.SequenceFeatures
    column = fe.feature_column.sequence_categorical_column_with_embedding(
        "ids", tf.int64, ev_option=OPTION
    )
    layer = sequence_features([embed(fe.feature_column, column)])
    stock = sequence_features(
        [embed(fc, fc.sequence_categorical_column_with_identity("ids", NUM_IDS))]
    )
    want = stock(cases.features())
    for training in (False, True):
        got = layer(cases.features(), training=training)
        cases.assert_close([t.numpy() for t in got], [t.numpy() for t in want])
        assert int(table_of(layer).total_count()) == (len(IDS) if training else 0)


def test_stock_columns_over_a_table_are_refused_by_name():
    column = table_column()
    message = r"'ids' was asked for.*shared_embeddings of fe.feature_column"
    with tf.Graph().as_default():
        for build in (
            lambda: input_layer([fc.embedding_column(column, 2)], cases.features()),
            lambda: input_layer([fc.indicator_column(column)], cases.features()),
            lambda: tf1.feature_column.linear_model(cases.features(), [column]),
            lambda: fe.feature_column.linear_model(cases.features(), [column], do_fusion="v2"),
            lambda: tf1.feature_column.shared_embedding_columns([column, column], 2),
        ):
            with pytest.raises(NotImplementedError, match=message):
                build()


def test_wrong_arguments_are_errors():
    make = fe.feature_column.categorical_column_with_embedding
    with pytest.raises(ValueError, match=r"dtype of 'key' must be tf.string or an integer type"):
        make("key", tf.float32)
    with pytest.raises(ValueError, match="partition_num must be >= 1"):
        make("key", partition_num=0)
    with pytest.raises(TypeError, match=r"ev_option must be an fe.EmbeddingVariableOption"):
        make("key", ev_option=fe.CounterFilter(2))
    with pytest.raises(NotImplementedError, match="ckpt_to_load_from = 'path'"):
        fe.feature_column.embedding_column(
            make("key"), 2, ckpt_to_load_from="path", tensor_name_in_ckpt="name"
        )
    with pytest.raises(ValueError, match=r"do_fusion must be .* 'v4' was given"):
        fe.feature_column.embedding_column(make("key"), 2, do_fusion="v4")
    with tf.Graph().as_default():
        column = fe.feature_column.embedding_column(make("ids"), 2)
        with pytest.raises(ValueError, match=r"'ids' has dtype string, but the feature is int64"):
            input_layer([column], cases.features())
        with pytest.raises(NotImplementedError, match="ckpt_to_load_from = 'path'"):
            fe.feature_column.shared_embeddings(
                [make("a"), make("b")], 2, ckpt_to_load_from="path", tensor_name_in_ckpt="name"
            )


def test_columns_can_be_copied_compared_and_pickled():
    column = fe.feature_column.embedding_column(table_column(), 3)
    again = fe.feature_column.embedding_column(table_column(), 3)
    assert column == again
    assert hash(column) == hash(again)
    assert copy.copy(column) == pickle.loads(pickle.dumps(column)) == column
    assert column != fe.feature_column.embedding_column(table_column("other_ids"), 3)
    assert column.parse_example_spec == {"ids": tf.io.VarLenFeature(tf.int64)}


needs_estimator = pytest.mark.skipif(
    not hasattr(tf, "estimator"), reason=f"TensorFlow {tf.__version__} has no tf.estimator"
)


class TableSize(tf1.train.SessionRunHook):
    """Rows of all tables of the graph when its session ends."""

    def begin(self):
        tables = tf1.get_collection(fe.EMBEDDING_VARIABLES)
        self._sizes = [table.total_count() for table in tables]

    def end(self, session):
        self.sizes = session.run(self._sizes)


def data_of(ids):
    def input_fn():
        features = {"ids": tf.constant(ids, tf.int64)[:, tf.newaxis]}
        labels = tf.ones([len(ids), 1])
        return tf.data.Dataset.from_tensors((features, labels))

    return input_fn


def model_fn(features, labels, mode):
    """A model that makes its columns itself, and does not tell them the mode."""
    column = fe.feature_column.embedding_column(table_column(), 2)
    output = input_layer([column], features) @ tf1.get_variable("w", [2, 1])
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions=output)
    loss = tf.reduce_mean((output - labels) ** 2)
    step = tf1.train.AdagradOptimizer(0.1).minimize(loss, tf1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def classifier(folder):
    column = fe.feature_column.embedding_column(table_column(), 2)
    return tf1.estimator.DNNRegressor(
        [4],
        [column],
        folder,
        optimizer=tf1.train.AdagradOptimizer(0.1),
        activation_fn=tf.tanh,  # relu may give 0 for all ids
    )


@needs_estimator
@pytest.mark.parametrize("kind", ["model_fn", "canned"])
def test_an_estimator_inserts_in_training_only(kind, tmp_path):
    folder = str(tmp_path)
    estimator = tf.estimator.Estimator(model_fn, folder) if kind == "model_fn" else None
    estimator = estimator or classifier(folder)
    sizes = []
    hook = TableSize()
    estimator.train(data_of([1, 2, 3]), hooks=[hook], steps=1)
    sizes.append(hook.sizes)
    estimator.evaluate(data_of([4, 5]), hooks=[hook], steps=1)
    sizes.append(hook.sizes)
    assert len(list(estimator.predict(data_of([6, 7]), hooks=[hook]))) == 2
    sizes.append(hook.sizes)
    estimator.train(data_of([1, 9]), hooks=[hook], steps=1)
    sizes.append(hook.sizes)
    assert sizes == [[3], [3], [3], [4]]


@needs_estimator
def test_an_exported_estimator_predicts_the_same_and_inserts_nothing(tmp_path):
    def receiver():
        ids = tf1.placeholder(tf.int64, [None, 1])
        return tf.estimator.export.ServingInputReceiver({"ids": ids}, {"ids": ids})

    estimator = classifier(str(tmp_path))
    estimator.train(data_of([1, 2, 3]), steps=2)
    ids = [1, 2, 3, 7]
    want = [row["predictions"][0] for row in estimator.predict(data_of(ids))]
    assert want[0] != want[1]
    loaded = tf.saved_model.load(estimator.export_saved_model(str(tmp_path / "saved"), receiver))
    ops = {op.type: op for op in loaded.signatures["predict"].graph.get_operations()}
    assert not ops["EmbeddingVariableGroupLookup"].get_attr("insert")
    got = loaded.signatures["predict"](ids=tf.constant(ids, tf.int64)[:, tf.newaxis])
    cases.assert_close(got["predictions"].numpy()[:, 0], np.array(want))
