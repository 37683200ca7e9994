import shutil

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases

tf1 = tf.compat.v1
fc = tf.feature_column
DIMENSION = 5


def embeddings(columns, module=fe.feature_column, **kwargs):
    return [
        module.embedding_column(column, DIMENSION, initializer=cases.initializer(), **kwargs)
        for column in columns
    ]


def layer_run(layer, features):
    """Output, table gradients and the types of the executed ops of a layer."""

    def run(features):
        output = layer(features)
        loss = cases.weighted_sum(output[0] if isinstance(output, tuple) else output)
        gradients = tf.gradients(loss, layer.trainable_variables)
        return output, [tf.convert_to_tensor(gradient) for gradient in gradients]

    layer(features)  # makes the variables
    traced = tf.function(run).get_concrete_function(features)
    return traced(features), {op.type for op in traced.graph.get_operations()}


@pytest.mark.parametrize("do_fusion", ["v1", "v2", "v3"])
def test_dense_features_computes_as_stock(do_fusion, tmp_path):
    columns = cases.categorical_columns(tmp_path)
    layers = [
        cases.keras().layers.DenseFeatures(embeddings(columns, fc)),
        cases.keras().layers.DenseFeatures(embeddings(columns, do_fusion=do_fusion)),
    ]
    (want, _), (got, ops) = (layer_run(layer, cases.features()) for layer in layers)
    cases.assert_close(got, want)
    cases.assert_close(layers[1](cases.features()), want[0])  # eager
    assert cases.FUSED_OP[do_fusion] in ops
    assert not cases.STOCK_OPS & ops
    names = [[variable.name for variable in layer.weights] for layer in layers]
    assert [name.split("/", 1)[1] for name in names[1]] == [n.split("/", 1)[1] for n in names[0]]


@pytest.mark.parametrize(("do_fusion", "partitions"), [("v1", 3), ("v2", None), ("v2", 3)])
def test_dense_features_in_a_graph_trains_as_stock(do_fusion, partitions):
    def build(module, **kwargs):
        def layer(features):
            keys = [cases.identity("ids"), cases.identity("other_ids")]
            shared = module.shared_embeddings(
                keys, DIMENSION, initializer=cases.initializer(), **kwargs
            )
            columns = embeddings([cases.bucketized()], module, **kwargs)
            partitioner = tf1.fixed_size_partitioner(partitions) if partitions else None
            dense_features = cases.keras().layers.DenseFeatures(
                [*shared, *columns], name="layer", partitioner=partitioner
            )
            return dense_features(features)

        return layer

    want = cases.train(build(fc), partitions=partitions)
    got = cases.train(build(fe.feature_column, do_fusion=do_fusion), partitions=partitions)
    cases.assert_same_training(got, want)
    cases.assert_fused(got, do_fusion, num_columns=3)


@pytest.mark.parametrize("do_fusion", ["v1", "v2", "v3", True])
def test_dense_features_config_keeps_do_fusion(do_fusion):
    layers = cases.keras().layers
    column = fe.feature_column.embedding_column(cases.identity(), 4, do_fusion=do_fusion)
    again = layers.DenseFeatures.from_config(layers.DenseFeatures([column]).get_config())
    assert [c.do_fusion for c in again._feature_columns] == [do_fusion]
    again.build(None)
    assert again(cases.features()).shape == [4, 4]


@pytest.mark.parametrize("fused_first", [True, False])
def test_dense_features_checkpoint_of_one_loads_into_the_other(fused_first, tmp_path):
    columns = [cases.identity(), cases.bucketized()]
    made = [
        [fe.feature_column.embedding_column(column, 4, do_fusion="v2") for column in columns],
        [fc.embedding_column(column, 4) for column in columns],
    ]
    saved, restored = (
        cases.keras().layers.DenseFeatures(c) for c in (made if fused_first else made[::-1])
    )
    want = saved(cases.features())
    path = tf.train.Checkpoint(layer=saved).write(str(tmp_path / "model"))
    restored(cases.features())
    tf.train.Checkpoint(layer=restored).read(path).assert_consumed()
    cases.assert_close(restored(cases.features()), want)


def test_model_can_be_trained_and_exported(tmp_path):
    keras = cases.keras()

    def train(columns):
        model = keras.Sequential([keras.layers.DenseFeatures(columns), keras.layers.Dense(1)])
        model.layers[1].build([None, 2 * DIMENSION])
        model.layers[1].set_weights([np.linspace(-1, 1, 2 * DIMENSION)[:, None], np.zeros(1)])
        model.compile(keras.optimizers.legacy.Adagrad(0.1), "mse")
        rows = {key: cases.DENSE[key] for key in ("dense_words", "price")}
        model.fit(rows, np.arange(4.0), batch_size=4, epochs=3, verbose=0)
        return model, rows

    columns = [cases.CATEGORICAL["dense_strings"](tmp_path), cases.bucketized()]
    stock, _ = train(embeddings(columns, fc))
    fused, rows = train(embeddings(columns, do_fusion="v2"))
    cases.assert_close(fused.get_weights(), stock.get_weights())
    want = fused(rows)
    tf.saved_model.save(fused, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    cases.assert_close(loaded({key: tf.constant(rows[key]) for key in rows}), want)


SEQUENCE = {
    "identity": lambda tmp_path: fc.sequence_categorical_column_with_identity("ids", 12),
    "hashed": lambda tmp_path: fc.sequence_categorical_column_with_hash_bucket("words", 7),
    "vocabulary_list": lambda tmp_path: fc.sequence_categorical_column_with_vocabulary_list(
        "words", cases.VOCABULARY
    ),
    "vocabulary_file": lambda tmp_path: fc.sequence_categorical_column_with_vocabulary_file(
        "words", cases.write_vocabulary(tmp_path), 5
    ),
}


@pytest.mark.parametrize(
    ("do_fusion", "safe"), [("v1", True), ("v2", True), ("v2", False), ("v3", False)]
)
@pytest.mark.parametrize("column", SEQUENCE.values(), ids=SEQUENCE.keys())
def test_sequence_features_computes_as_stock(column, do_fusion, safe, tmp_path):
    sequence_features = cases.keras().experimental.SequenceFeatures
    columns, kwargs = [column(tmp_path)], {"use_safe_embedding_lookup": safe}
    stock = sequence_features(embeddings(columns, fc, **kwargs))
    fused = sequence_features(embeddings(columns, **kwargs, do_fusion=do_fusion))
    (want, _), (got, ops) = (layer_run(layer, cases.features()) for layer in (stock, fused))
    cases.assert_close(got, want)
    assert cases.FUSED_OP[do_fusion] in ops
    assert not cases.STOCK_OPS & ops


class CountFusedOps(tf1.train.SessionRunHook):
    """Counts the fused ops of the graph that an Estimator builds."""

    num_ops = None

    def begin(self):
        ops = tf1.get_default_graph().get_operations()
        self.num_ops = sum(op.type in cases.FUSED_OP.values() for op in ops)


def estimator_columns(module, **kwargs):
    words = fc.categorical_column_with_vocabulary_list("dense_words", cases.VOCABULARY)
    crossed = fc.crossed_column(["dense_words", cases.bucketized()], 9)
    columns = embeddings([words, crossed], module, **kwargs)
    return [*columns, fc.numeric_column("price", shape=2)]


@pytest.mark.skipif(
    not hasattr(tf, "estimator"), reason=f"TensorFlow {tf.__version__} has no tf.estimator"
)
@pytest.mark.parametrize(
    ("name", "do_fusion"),
    [("DNNClassifier", "v2"), ("DNNLinearCombinedClassifier", "v1"), ("DNNClassifier", "check")],
)
def test_estimator_trains_as_stock(name, do_fusion, tmp_path):
    def input_fn():
        rows = {key: tf.constant(value) for key, value in cases.DENSE.items()}
        return tf.data.Dataset.from_tensors((rows, tf.constant([[0], [1], [1], [0]]))).repeat()

    def make(folder, columns):
        prefix = "" if name == "DNNClassifier" else "dnn_"
        kwargs = {f"{prefix}feature_columns": columns, f"{prefix}hidden_units": [4]}
        return getattr(tf.estimator, name)(model_dir=str(tmp_path / folder), **kwargs)

    stock_columns = estimator_columns(fc)
    first = make("first", stock_columns)
    first.train(input_fn, steps=1)  # the other two continue from its checkpoint
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    columns = estimator_columns(fe.feature_column, do_fusion=do_fusion)
    stock, fused = make("first", stock_columns), make("second", columns)
    hook = CountFusedOps()
    stock.train(input_fn, steps=3)
    fused.train(input_fn, steps=3, hooks=[hook])
    assert hook.num_ops == (0 if do_fusion == "check" else 2)  # those are in branches
    assert fused.get_variable_names() == stock.get_variable_names()
    for variable in stock.get_variable_names():
        cases.assert_close(fused.get_variable_value(variable), stock.get_variable_value(variable))
    cases.assert_close(*(e.evaluate(input_fn, steps=1)["loss"] for e in (fused, stock)))
