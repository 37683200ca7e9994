"""fe.feature_column.DenseFeatures against Keras's own."""

import collections
import doctest
import importlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import processes
from cases import columns as cases
from checking import executed_ops

tf1 = tf.compat.v1
fc = tf.feature_column
GROUP_OPS = {"FusedEmbeddingResourceGroupLookup", "FusedEmbeddingGroupLookup"}
TOLERANCE = {"rtol": 1e-5, "atol": 20 * cases.ATOL}  # 20 steps add up roundings
DIMENSION = 5


def layers():
    """Keras's layer and ours; skips where there is no Keras 2."""
    return cases.keras().layers.DenseFeatures, fe.feature_column.DenseFeatures


def columns_of(tmp_path):
    """Columns of every kind, each with another table; of stock and ours, beside a number."""
    combiners = ("sum", "mean", "sqrtn")
    columns = [
        fc.embedding_column(
            column,
            3 + i % 2,
            combiner=combiners[i % 3],
            max_norm=(None, 0.7)[i % 2],
            initializer=cases.initializer(i),
        )
        for i, column in enumerate(cases.categorical_columns(tmp_path))
    ]
    columns[0] = fe.feature_column.embedding_column(
        cases.identity(), 3, do_fusion="v1", initializer=cases.initializer()
    )
    return [*columns, fc.numeric_column("price", shape=2)]


def assert_same(got, want):
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, **TOLERANCE), got, want)


@pytest.mark.parametrize("with_numbers", [True, False])
def test_trains_as_stock_in_a_graph(with_numbers, tmp_path):
    columns = columns_of(tmp_path)
    columns = columns if with_numbers else columns[:-1]
    want, got = (
        cases.train(lambda features, one=one: one(columns, name="x")(features), num_steps=20)
        for one in layers()
    )
    assert got.collections == want.collections
    for name in ("outputs", "gradients", "variables"):
        assert_same(getattr(got, name), getattr(want, name))
    assert got.ops["FusedEmbeddingResourceGroupLookup"] == 1
    assert got.ops["FusedEmbeddingResourceGroupLookupGrad"] == 1
    assert not cases.STOCK_OPS & got.ops.keys()


def test_shared_embeddings_train_as_stock():
    def build(one):
        def layer(features):
            keys = [cases.identity("ids"), cases.identity("other_ids")]
            shared = fc.shared_embeddings(keys, 3, initializer=cases.initializer())
            return one(shared, name="x")(features)

        return layer

    want, got = (cases.train(build(one), num_steps=20) for one in layers())
    assert got.collections == want.collections
    for name in ("outputs", "gradients", "variables"):
        assert_same(getattr(got, name), getattr(want, name))
    assert got.ops["FusedEmbeddingResourceGroupLookup"] == 1


def test_three_kernels_run_and_nothing_is_concatenated(tmp_path):
    _, ours = layers()
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        output = ours(columns_of(tmp_path)[:-1])(cases.features())
        tables = tf1.trainable_variables()
        gradients = tf.gradients(cases.weighted_sum(output), tables)
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        types = executed_ops(session, [output, *gradients])
    assert {name: n for name, n in types.items() if name in fe.raw_ops.__all__} == {
        "FusedEmbeddingColumnKeys": 1,
        "FusedEmbeddingResourceGroupLookup": 1,
        "FusedEmbeddingResourceGroupLookupGrad": 1,
    }
    (lookup,) = (op for op in graph.get_operations() if op.type in GROUP_OPS)
    assert len(lookup.outputs) == 1


def outputs_and_gradients(layer):
    """A function of features: the layer's output, and the gradients of its variables."""

    def run(features):
        with tf.GradientTape() as tape:
            output = layer(features)
            loss = cases.weighted_sum(output)
        gradients = tape.gradient(loss, layer.trainable_variables)
        return output, [tf.convert_to_tensor(gradient) for gradient in gradients]

    return run


def descend(trained, gradients):
    for variable, gradient in zip(trained, gradients, strict=True):
        variable.assign_sub(0.5 * gradient)


@pytest.mark.parametrize("in_function", [False, True])
def test_trains_as_stock_in_tensorflow_2(in_function, tmp_path):
    stock, layer = (one(columns_of(tmp_path), name="x") for one in layers())
    features = cases.features()
    for one in (stock, layer):
        one(features)  # makes the variables
    runs = [outputs_and_gradients(one) for one in (stock, layer)]
    runs = [tf.function(run) for run in runs] if in_function else runs
    for _ in range(3):
        want, got = (run(features) for run in runs)
        assert_same(got, want)
        descend(stock.trainable_variables, want[1])
        descend(layer.trainable_variables, got[1])
    assert [w.name for w in layer.weights] == [w.name for w in stock.weights]
    assert_same(layer.get_weights(), stock.get_weights())


def test_fills_the_dict_that_is_given(tmp_path):
    columns = columns_of(tmp_path)
    results = []
    for one in layers():
        outputs = {}
        whole = one(columns)(cases.features(), cols_to_output_tensors=outputs)
        assert set(outputs) == set(columns)
        results.append([whole, *(outputs[column] for column in columns)])
    assert_same(*results)


def model_of(layer, functional):
    keras = cases.keras()
    dense = keras.layers.Dense(1, kernel_initializer="ones", name="y")
    if not functional:
        return keras.Sequential([layer, dense], name="model")
    inputs = {
        "dense_words": keras.Input((2,), dtype="string", name="dense_words"),
        "price": keras.Input((2,), name="price"),
    }
    return keras.Model(inputs, dense(layer(inputs)))


def model_columns(**kwargs):
    words = fc.categorical_column_with_vocabulary_list("dense_words", cases.VOCABULARY)
    crossed = fc.crossed_column(["dense_words", cases.bucketized()], 9)
    embeddings = [
        fe.feature_column.embedding_column(column, DIMENSION, **kwargs)
        for column in (words, cases.bucketized(), crossed)
    ]
    return [*embeddings, fc.numeric_column("price", shape=2)]


def model_rows():
    return {key: cases.DENSE[key] for key in ("dense_words", "price")}


@pytest.mark.parametrize("grouped_by", ["layer", "scope"])
@pytest.mark.parametrize("functional", [True, False])
def test_a_model_fits_as_stock_and_takes_its_weights(functional, grouped_by, tmp_path):
    keras = cases.keras()
    rows, labels = model_rows(), np.arange(4.0)
    stock, ours = layers()
    layer = ours(model_columns(), name="x")
    if grouped_by == "scope":
        with fe.feature_column.group_embedding_column_scope():
            layer = stock(model_columns(), name="x")
    stock = model_of(stock(model_columns(), name="x"), functional)
    model = model_of(layer, functional)
    assert [list(one(rows).shape) for one in (stock, model)] == [[4, 1]] * 2
    stock.save_weights(str(tmp_path / "stock"))
    model.load_weights(str(tmp_path / "stock")).assert_consumed()
    assert_same(model.get_weights(), stock.get_weights())
    histories = []
    for one in (stock, model):
        one.compile(keras.optimizers.legacy.Adagrad(0.1), "mse")
        history = one.fit(rows, labels, batch_size=2, epochs=10, shuffle=False, verbose=0)
        histories.append(history.history["loss"])
    assert histories[0][-1] < histories[0][0]
    assert_same(*histories)
    assert_same(model.get_weights(), stock.get_weights())
    assert_same(model.predict(rows, verbose=0), stock.predict(rows, verbose=0))
    assert_same(model.evaluate(rows, labels, verbose=0), stock.evaluate(rows, labels, verbose=0))
    assert [w.name for w in model.weights] == [w.name for w in stock.weights]
    model.save_weights(str(tmp_path / "model"))
    again = model_of(layers()[0](model_columns(), name="x"), functional)
    again(rows)
    again.load_weights(str(tmp_path / "model")).expect_partial()
    assert_same(again.get_weights(), stock.get_weights())


@pytest.mark.parametrize("name", ["model", "model.h5", "model.keras"])
def test_a_saved_model_is_loaded(name, tmp_path):
    keras = cases.keras()
    model = model_of(fe.feature_column.DenseFeatures(model_columns()), functional=True)
    rows = model_rows()
    want = model(rows)
    path = str(tmp_path / name)
    model.save(path)
    again = keras.models.load_model(path)
    assert_same(again(rows), want)
    (layer,) = (one for one in again.layers if type(one).__name__ == "DenseFeatures")
    assert isinstance(layer, fe.feature_column.DenseFeatures)
    graph = (
        tf.function(layer)
        .get_concrete_function({key: tf.constant(value) for key, value in rows.items()})
        .graph
    )
    assert sum(op.type in GROUP_OPS for op in graph.get_operations()) == 1


def test_exports_a_saved_model(tmp_path):
    _, ours = layers()
    model = model_of(ours(model_columns()), functional=False)
    rows = {key: tf.constant(value) for key, value in model_rows().items()}
    want = model(rows)
    tf.saved_model.save(model, str(tmp_path / "saved"))
    assert_same(tf.saved_model.load(str(tmp_path / "saved"))(rows), want)


def test_the_configuration_is_stocks():
    stock, ours = layers()
    columns = model_columns()
    configs = [one(columns, name="x").get_config() for one in (stock, ours)]
    assert configs[0] == configs[1]
    again = ours.from_config(configs[1])
    assert again.get_config()["feature_columns"] == configs[0]["feature_columns"]
    assert [type(column) for column in again._feature_columns] == [
        type(column) for column in sorted(columns, key=lambda column: column.name)
    ]
    assert issubclass(ours, stock)
    assert ours is fe.feature_column.DenseFeatures


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_checkpoint_of_one_loads_into_the_other(ours_first, tmp_path):
    columns, features = columns_of(tmp_path), cases.features()
    classes = layers()[::-1] if ours_first else layers()
    random = [c._replace(initializer=None) for c in columns[:-1]]
    saved, restored = (one(random) for one in classes)
    want = saved(features)
    path = tf.train.Checkpoint(layer=saved).write(str(tmp_path / "model"))
    restored(features)
    tf.train.Checkpoint(layer=restored).read(path).assert_consumed()
    assert_same(restored(features), want)


@pytest.mark.parametrize("training", [True, False, None])
def test_embedding_variables_grow_unless_training_is_false(training):
    table = fe.feature_column.categorical_column_with_embedding("other_ids", tf.int64)
    columns = [
        fe.feature_column.embedding_column(table, 4),
        fc.embedding_column(cases.identity(), 3),
    ]
    stock, layer = (one(columns) for one in layers())
    features = cases.features()
    want, got = stock(features, training=False), layer(features, training=training)
    (variable,) = (w for w in layer.weights if isinstance(w, fe.EmbeddingVariable))
    num_keys = 0 if training is False else len(set(cases.VALUES["other_ids"]))
    assert int(variable.total_count()) == num_keys
    assert got.shape == want.shape == [4, 7]
    with fe.inference():
        assert_same(layer(features), got)


def test_columns_of_a_scope_are_in_the_layers_one_op():
    with fe.feature_column.group_embedding_column_scope():
        columns = model_columns()
    _, ours = layers()
    layer = ours(columns)
    rows = {key: tf.constant(value) for key, value in model_rows().items()}
    graph = tf.function(layer).get_concrete_function(rows).graph
    types = collections.Counter(op.type for op in graph.get_operations())
    assert sum(types[name] for name in GROUP_OPS) == 1


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("do_fusion", [None, "v1", "v2", "v3", "scope"])
def test_in_mixed_precision_results_are_cast_as_stocks(do_fusion, in_function):
    def make(**kwargs):
        return [
            fe.feature_column.embedding_column(
                cases.identity(key), 4, "sum", cases.initializer(), **kwargs
            )
            for key in ("ids", "other_ids")
        ]

    keras, (stock, ours) = cases.keras(), layers()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        want_layer = stock(make())
        if do_fusion == "scope":
            with fe.feature_column.group_embedding_column_scope():
                layer = stock(make())
        else:
            layer = stock(make(do_fusion=do_fusion)) if do_fusion else ours(make())
    finally:
        keras.mixed_precision.set_global_policy("float32")
    features = {key: cases.features()[key] for key in ("ids", "other_ids")}

    def run(one):
        with tf.GradientTape() as tape:
            output = one(features)
            loss = tf.reduce_sum(tf.square(tf.cast(output, tf.float32)))
        gradients = tape.gradient(loss, one.trainable_variables)
        return output, *(tf.convert_to_tensor(gradient) for gradient in gradients)

    results = []
    for one in (want_layer, layer):
        one(features)  # makes the variables
        results.append((tf.function(run) if in_function else run)(one))
        assert [tensor.dtype for tensor in results[-1]] == [tf.float16, tf.float32, tf.float32]
    for got, want in zip(*results, strict=True):  # stock adds up in 16 bits
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)


def test_other_columns_are_refused_as_stock_does():
    for one in layers():
        with pytest.raises(ValueError, match="must be a"):
            one([cases.identity()])
        with pytest.raises(ValueError, match="We expected a dictionary"):
            one([fc.numeric_column("price", shape=2)])(tf.ones([2, 2]))


def test_batches_of_different_size_are_an_error():
    stock, ours = layers()
    numbers = [fc.numeric_column(key) for key in "ab"]
    for one in (stock, ours):
        with pytest.raises(ValueError, match="of each feature must be same"):
            one(numbers)({"a": tf.ones([2, 1]), "b": tf.ones([3, 1])})
    columns = [fc.embedding_column(cases.identity(key), 4) for key in ("ids", "other_ids")]
    ids = [tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [n, 1]) for n in (1, 2)]
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="rows"):
        ours(columns)({"ids": ids[0], "other_ids": ids[1]})


def test_autograph_warns_of_nothing(caplog):
    _, ours = layers()
    layer = ours(model_columns())
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        tf.function(lambda rows: layer(rows))(
            {key: tf.constant(value) for key, value in model_rows().items()}
        )
    finally:
        logger.removeHandler(caplog.handler)
    messages = [record.getMessage() for record in caplog.records]
    assert not [message for message in messages if "AutoGraph" in message]


def test_without_keras_2_the_error_names_the_package():
    program = (
        "import sys; sys.modules['tf_keras'] = None\n"
        "import tensorflow as tf\n"
        "import fused_embedding as fe\n"
        "if hasattr(tf.keras.layers, 'DenseFeatures'): sys.exit(0)\n"
        "try: fe.feature_column.DenseFeatures\n"
        "except ImportError as error: assert 'install the package tf_keras' in str(error), error\n"
        "else: raise AssertionError\n"
        "fe.compat.install()\n"  # which gives all names that need no Keras
    )
    processes.output_of(processes.run_program(program))


def test_other_names_are_no_attributes():
    with pytest.raises(AttributeError, match="no attribute 'NoName'"):
        _ = fe.feature_column.NoName


def test_doctest():
    layers()
    module = importlib.import_module("fused_embedding.columns.dense_features")
    results = doctest.testmod(module, extraglobs={"fe": fe, "tf": tf})
    assert results.attempted
    assert not results.failed
