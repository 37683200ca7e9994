"""SavedModels of tf.saved_model.save and of the v1 builder, which fresh processes load."""

import os
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from saved_tables import (
    DIM,
    NUM_STEPS,
    OPTIONS,
    PARTITIONS,
    assert_same,
    content_of,
    eager,
    keys_of_step,
    make,
    rows_of,
    train_step,
)
from tensorflow.core.protobuf import saved_model_pb2

import fused_embedding as fe
import processes

v1 = tf.compat.v1
KEYS = np.r_[keys_of_step(2), 10**12 + np.arange(20)]  # the last ones have no row


class Model(tf.Module):
    """Looks keys up as training does: the SavedModel must not insert them."""

    def __init__(self, partitions, option="plain"):
        super().__init__()
        initializer = v1.random_normal_initializer(seed=3)
        self.table = make(partitions, option, initializer=initializer)
        self.scale = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def serve(self, keys):
        return {"rows": self.scale * rows_of(self.table, keys)}


def trained(partitions, option="plain"):
    model = Model(partitions, option)
    for step in range(NUM_STEPS):
        train_step(model.table, keys_of_step(step), step)
    return model


def expected(model) -> np.ndarray:
    """What the model serves, without a change of its table."""
    with fe.inference():
        return (model.scale * rows_of(model.table, KEYS)).numpy()


LOADERS = {
    "v2": """
import sys, numpy as np, tensorflow as tf, fused_embedding as fe
folder, keys, out = sys.argv[1:]
model = tf.saved_model.load(folder)
serve = model.signatures["serving_default"]
keys = tf.constant(np.load(keys))
rows = [serve(keys=keys)["rows"].numpy() for _ in range(3)]
""",
    "v1": """
import sys, numpy as np, tensorflow as tf, fused_embedding as fe
folder, keys, out = sys.argv[1:]
v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    loaded = v1.saved_model.load(session, [tf.saved_model.SERVING], folder)
    signature = loaded.signature_def["serving_default"]
    feed = {signature.inputs["keys"].name: np.load(keys)}
    rows = [session.run(signature.outputs["rows"].name, feed) for _ in range(3)]
""",
}


def served(tmp_path: pathlib.Path, folder: pathlib.Path, loader: str, keys: Any = KEYS) -> Any:
    """What a fresh process serves, which imports nothing but the package."""
    np.save(tmp_path / "keys.npy", keys)
    code = LOADERS[loader] + "\nnp.save(out, np.stack(rows))\n"
    arguments = (folder, tmp_path / "keys.npy", tmp_path / "rows.npy")
    processes.output_of(processes.run_program(code, *arguments))
    first, *others = np.load(tmp_path / "rows.npy")
    for other in others:  # a counted key would be admitted after some lookups
        np.testing.assert_array_equal(other, first)
    return first


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("partitions", "option"), [(None, "counter"), (3, "plain")], ids=str)
def test_a_fresh_process_serves_the_same(tmp_path, partitions, option, loader):
    model = trained(partitions, option)
    want = expected(model)
    tf.saved_model.save(model, tmp_path / "model", signatures={"serving_default": model.serve})
    np.testing.assert_array_equal(served(tmp_path, tmp_path / "model", loader), want)
    assert np.any(want[-1] != want[-2]) == (option == "plain")  # first values are per key


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("partitions", PARTITIONS)
def test_a_loaded_table_is_whole_and_frozen(tmp_path, partitions, option):
    model = trained(partitions, option)
    want = content_of(model.table, eager)
    tf.saved_model.save(model, tmp_path / "model")
    loaded = tf.saved_model.load(tmp_path / "model")
    assert type(loaded.table) is type(model.table)
    assert loaded.table.embedding_dim == DIM
    np.testing.assert_array_equal(loaded.serve(KEYS)["rows"], expected(model))
    rows_of(loaded.table, KEYS)
    loaded.serve(KEYS)
    assert_same(content_of(loaded.table, eager), want)
    assert_same(content_of(model.table, eager), want)


@pytest.mark.parametrize("partitions", [None, 2])
def test_a_loaded_model_is_saved_again(tmp_path, partitions):
    model = trained(partitions)
    want = content_of(model.table, eager)
    tf.saved_model.save(model, tmp_path / "first")
    tf.saved_model.save(tf.saved_model.load(tmp_path / "first"), tmp_path / "second")
    loaded = tf.saved_model.load(tmp_path / "second")
    assert_same(content_of(loaded.table, eager), want)
    np.testing.assert_array_equal(loaded.serve(KEYS)["rows"], expected(model))


def test_a_checkpoint_goes_into_a_loaded_model_and_out_of_it(tmp_path):
    model = trained(2)
    want = content_of(model.table, eager)
    tf.saved_model.save(model, tmp_path / "model")
    loaded = tf.saved_model.load(tmp_path / "model")
    path = tf.train.Checkpoint(model=loaded).save(tmp_path / "checkpoint")
    other = Model(3)
    tf.train.Checkpoint(model=other).restore(path).expect_partial()
    assert_same(content_of(other.table, eager), want)
    train_step(other.table, keys_of_step(50), 50)  # not frozen
    path = tf.train.Checkpoint(model=other).save(tmp_path / "checkpoint")
    tf.train.Checkpoint(model=loaded).restore(path).expect_partial()
    assert_same(content_of(loaded.table, eager), content_of(other.table, eager))


def test_two_tables_of_one_name_are_two(tmp_path):
    models = tf.Module()
    models.a, models.b = trained(None), Model(None)
    tf.saved_model.save(models, tmp_path / "model")
    loaded = tf.saved_model.load(tmp_path / "model")
    for got, model in ((loaded.a, models.a), (loaded.b, models.b)):
        assert_same(content_of(got.table, eager), content_of(model.table, eager))
    handles = [
        node.attr["shared_name"].s
        for node in _meta_graph(tmp_path / "model").graph_def.node
        if node.op == "EmbeddingVariableHandle"
    ]
    assert len(set(handles)) == len(handles) == 2


def _meta_graph(folder):
    saved_model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    return saved_model.meta_graphs[0]


def test_a_damaged_file_is_an_error_that_names_it(tmp_path):
    tf.saved_model.save(trained(None), tmp_path / "model")
    (file,) = (tmp_path / "model" / "variables").glob("*.data-e*")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(tf.errors.DataLossError, match=file.name):
        tf.saved_model.load(tmp_path / "model")


@pytest.mark.parametrize("module", ["tensorflow.keras", "tf_keras"])
@pytest.mark.parametrize("partitions", [None, 2])
def test_keras_models_export_it(tmp_path, module, partitions):
    keras = tf.keras if module == "tensorflow.keras" else pytest.importorskip("tf_keras")

    class Layer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = make(partitions)

        def call(self, keys):
            return rows_of(self.table, tf.cast(tf.reshape(keys, [-1]), tf.int64))

        def compute_output_shape(self, shape):
            return (shape[0], DIM)

    layer = Layer()
    keys = keras.Input((1,), dtype="int64")
    model = keras.Model(keys, keras.layers.Dense(1)(layer(keys)))
    for step in range(NUM_STEPS):
        train_step(layer.table, keys_of_step(step), step)
    with fe.inference():
        want = model(tf.constant(KEYS)[:, None])
    model.export(str(tmp_path / "model"))
    loaded = tf.saved_model.load(tmp_path / "model")
    for _ in range(2):
        got = loaded.serve(tf.constant(KEYS)[:, None])
        np.testing.assert_allclose(got, want, rtol=1e-6)


def build_v1(folder: pathlib.Path, partitions: int | None, tags: list[str]) -> np.ndarray:
    """Saves a training graph by the v1 builder; returns what it serves."""
    with tf.Graph().as_default(), v1.Session() as session:
        table = make(partitions, "counter")
        scale = v1.get_variable("scale", initializer=2.0)
        keys = v1.placeholder(tf.int64, [None], "keys")
        rows = scale * rows_of(table, keys)
        with fe.inference():
            expected_rows = scale * rows_of(table, keys)
        train = train_step(table, keys, 1)
        session.run(v1.global_variables_initializer())
        for step in range(NUM_STEPS):
            session.run(train, {keys: keys_of_step(step)})
        signature = v1.saved_model.build_signature_def(
            {"keys": v1.saved_model.build_tensor_info(keys)},
            {"rows": v1.saved_model.build_tensor_info(rows)},
            v1.saved_model.signature_constants.PREDICT_METHOD_NAME,
        )
        builder = v1.saved_model.Builder(str(folder))
        signatures = {"serving_default": signature}
        builder.add_meta_graph_and_variables(session, tags, signatures)
        builder.save()
        return session.run(expected_rows, {keys: KEYS})


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("partitions", [None, 2])
def test_the_v1_builder_saves_it(tmp_path, partitions, loader):
    want = build_v1(tmp_path / "model", partitions, [tf.saved_model.SERVING])
    np.testing.assert_array_equal(served(tmp_path, tmp_path / "model", loader), want)


def test_a_training_graph_of_the_v1_builder_is_not_frozen(tmp_path):
    build_v1(tmp_path / "model", None, [tf.saved_model.TRAINING])
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, [tf.saved_model.TRAINING], str(tmp_path / "model"))
        signature = loaded.signature_def["serving_default"]
        feed = {signature.inputs["keys"].name: KEYS}
        rows = [session.run(signature.outputs["rows"].name, feed) for _ in range(4)]
        assert np.any(rows[-1] != rows[0])


@pytest.mark.skipif(not hasattr(v1, "estimator"), reason="this TensorFlow has no Estimator")
def test_estimator_exports_it(tmp_path):
    def model_fn(features, labels, mode):
        del labels
        rows = rows_of(make(2), tf.reshape(features["keys"], [-1]))
        step = v1.train.get_or_create_global_step()
        train = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows**2), step)
        return v1.estimator.EstimatorSpec(
            mode,
            loss=tf.reduce_sum(rows),
            train_op=train,
            predictions={"rows": rows},
            export_outputs={"serving_default": v1.estimator.export.PredictOutput({"rows": rows})},
        )

    estimator = v1.estimator.Estimator(model_fn, str(tmp_path / "training"))
    features = {"keys": np.arange(12)}
    estimator.train(lambda: tf.data.Dataset.from_tensors(features).repeat(5))

    def receiver():
        keys = v1.placeholder(tf.int64, [None])
        return v1.estimator.export.ServingInputReceiver({"keys": keys}, {"keys": keys})

    folder = estimator.export_saved_model(str(tmp_path / "export"), receiver)
    values = tf.train.load_variable(str(tmp_path / "training"), "users-values")
    for loader in LOADERS:
        got = served(tmp_path, pathlib.Path(os.fsdecode(folder)), loader, np.arange(12))
        np.testing.assert_array_equal(got, values)
    assert values.shape == (12, DIM)
