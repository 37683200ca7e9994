"""Programs that nobody edited, with and without fe.accelerate."""

import json
import os
import subprocess
import sys

import acceleration_cases as cases
import numpy as np
import programs_estimator
import programs_keras
import programs_v1
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns, kerases

v1 = tf.compat.v1

# Answers of exports, in a process that has stock TensorFlow alone.
SERVER = """
import json, sys, traceback
import tensorflow as tf

def answer(folder, inputs, signature):
    model = tf.saved_model.load(folder)
    function = model.signatures[signature]
    specs = function.structured_input_signature[1]
    if inputs.keys() == {"null"}:
        inputs = dict.fromkeys(specs, inputs["null"])
    tensors = {k: tf.constant(inputs[k], s.dtype) for k, s in specs.items()}
    return {k: v.numpy().tolist() for k, v in function(**tensors).items() if v.dtype != tf.string}

for line in sys.stdin:
    try:
        answers = answer(*json.loads(line))
    except Exception:
        answers = {"error": traceback.format_exc()}
    assert "fused_embedding" not in sys.modules
    print(json.dumps(answers), flush=True)
"""


@pytest.fixture(scope="module")
def server():
    """Outputs of an export by stock TensorFlow, of its folder and inputs; None: the only input."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    ) as process:

        def ask(folder, inputs, signature="serving_default"):
            lists = {key: np.asarray(value).tolist() for key, value in inputs.items()}
            print(json.dumps([str(folder), lists, signature]), file=process.stdin, flush=True)
            answers = json.loads(process.stdout.readline())
            assert "error" not in answers, answers["error"]
            return answers

        yield ask
        process.stdin.close()


def checkpoint_of(prefix):
    reader = tf.train.load_checkpoint(prefix)
    dtypes = reader.get_variable_to_dtype_map()
    return {n: (s, dtypes[n]) for n, s in reader.get_variable_to_shape_map().items()}


def compare(got, want, name):
    """What two runs of a program returned is the same."""
    assert got.keys() == want.keys()
    for key in want:
        if key == "checkpoint":
            assert checkpoint_of(got[key]) == checkpoint_of(want[key])
        elif key == "variables":
            assert list(got[key]) == list(want[key])
            for variable in want[key]:
                np.testing.assert_allclose(
                    got[key][variable],
                    want[key][variable],
                    rtol=1e-4,
                    atol=1e-5,
                    err_msg=f"{name}: {variable}",
                )
        elif key != "export":
            np.testing.assert_allclose(
                got[key], want[key], rtol=1e-5, atol=1e-7, err_msg=f"{name}: {key}"
            )


def run_twice(program, tmp_path):
    """A program's results by stock, those with fe.accelerate, and its records."""
    folders = [tmp_path / "stock", tmp_path / "accelerated"]
    for folder in folders:
        folder.mkdir()
    want = program(str(folders[0]))
    with fe.accelerate() as acceleration:
        got = program(str(folders[1]))
    return want, got, acceleration.records


V1_PROGRAMS = {
    "wide_and_deep": {"input_layer", "linear_model", "AdagradOptimizer", "FtrlOptimizer"},
    "partitioned": {"input_layer", "linear_model", "MomentumOptimizer"},
    "monitored": {"input_layer", "RMSPropOptimizer"},
    "layer_object": {"input_layer", "safe_embedding_lookup_sparse", "GradientDescentOptimizer"},
}


@pytest.mark.parametrize("name", V1_PROGRAMS)
def test_a_program_of_tf1(name, tmp_path):
    want, got, records = run_twice(getattr(programs_v1, name), tmp_path)
    assert len(want["losses"]) == 50
    compare(got, want, name)
    assert cases.replaced(records) == V1_PROGRAMS[name]
    assert not cases.left(records)


def served_batch():
    [batch] = programs_v1.batches(1, seed=3)
    del batch["label"]
    return batch


def test_an_export_of_a_graph_of_tf1(tmp_path, server):
    """The graph has our ops when it is saved: it is refused, and fe.export_for_serving does it."""
    want = programs_v1.served(str(tmp_path / "stock"))
    got = server(want["export"], served_batch())["answers"]
    np.testing.assert_allclose(got, want["answers"], rtol=1e-5)
    with fe.accelerate(), pytest.raises(ValueError, match=r"fe\.export_for_serving"):
        programs_v1.served(str(tmp_path / "refused"))

    def export(session, folder, inputs, outputs, _):
        fe.export_for_serving(session, folder, inputs=inputs, outputs=outputs)

    with fe.accelerate() as acceleration, pytest.MonkeyPatch.context() as patch:
        patch.setattr(v1.saved_model, "simple_save", export)
        ours = programs_v1.served(str(tmp_path / "exported"))
    assert cases.replaced(acceleration.records) == {"input_layer"}
    np.testing.assert_allclose(ours["answers"], want["answers"], rtol=1e-5)
    got = server(ours["export"], served_batch())["answers"]
    np.testing.assert_allclose(got, want["answers"], rtol=1e-5)


# Programs with DenseFeatures, and the optimizer of each.
KERAS_2 = {
    "sequential": lambda keras: keras.optimizers.Adagrad(0.1),
    "functional": lambda keras: keras.optimizers.Adam(0.01),
    "functional, SGD": lambda keras: keras.optimizers.SGD(0.1, momentum=0.9),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KERAS_2)
def test_dense_features_of_keras_2(name, tmp_path, server):
    keras = columns.keras()
    program = getattr(programs_keras, name.split(",")[0])

    def run(folder):
        keras.backend.clear_session()
        return program(keras, folder, KERAS_2[name])

    want, got, records = run_twice(run, tmp_path)
    compare(got, want, name)
    assert "embedding columns of a layer" in cases.replaced(records)
    features, _ = programs_keras.data()
    batch = {key: value[: programs_keras.BATCH, None] for key, value in features.items()}
    [answers] = server(got["export"], batch).values()
    np.testing.assert_allclose(answers, want["answers"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["functional_bags", "subclassed_bags"])
def test_a_layer_of_keras_3_that_calls_tf_nn(name, tmp_path, server):
    keras = kerases.KERASES.get("keras")
    if keras is None or not kerases.is_keras_3(keras):
        pytest.skip("needs Keras 3")

    def run(folder):
        keras.backend.clear_session()
        return getattr(programs_keras, name)(keras, folder)

    want, got, records = run_twice(run, tmp_path)
    compare(got, want, name)
    assert "safe_embedding_lookup_sparse" in cases.replaced(records)
    items, _ = programs_keras._bag_data()
    answers = server(got["export"], {None: items[: programs_keras.BATCH]})
    [answers] = answers.values()
    np.testing.assert_allclose(answers, want["answers"], rtol=1e-5, atol=1e-6)


LOOPS = {
    "AdagradOptimizer": lambda: v1.train.AdagradOptimizer(0.1),
    "GradientDescentOptimizer": lambda: v1.train.GradientDescentOptimizer(0.1),
    "Keras's Adagrad": lambda: tf.keras.optimizers.Adagrad(0.1),
    "Keras's SGD": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.5),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_custom_loop(name, tmp_path, server):
    def run(folder):
        return programs_keras.custom_loop(LOOPS[name], folder)

    want, got, records = run_twice(run, tmp_path)
    compare(got, want, name)
    assert "safe_embedding_lookup_sparse" in cases.replaced(records)
    if hasattr(v1.train, name):
        assert name in cases.replaced(records)
    inputs = {"indices": programs_keras.INDICES, "values": range(8)}
    answers = server(got["export"], inputs)["answers"]
    np.testing.assert_allclose(answers, want["answers"], rtol=1e-5, atol=1e-6)


ESTIMATORS = {
    "DNNLinearCombinedClassifier": {"AdagradOptimizer", "FtrlOptimizer"},
    "DNNClassifier": {"AdagradOptimizer"},
    "LinearClassifier": {"FtrlOptimizer"},
}


# Not marked as slow: CI has Estimators with the oldest TensorFlow alone, without what is slow.
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_premade_estimator_from_a_warm_start(kind, tmp_path, server):
    if not hasattr(tf, "estimator"):
        pytest.skip(f"TensorFlow {tf.__version__} has no Estimator")
    start = programs_estimator.first(kind, str(tmp_path / "start"))

    def run(folder):
        return programs_estimator.train_and_export(kind, folder, start)

    want, got, records = run_twice(run, tmp_path)
    compare(got, want, kind)
    assert ESTIMATORS[kind] <= cases.replaced(records)
    assert cases.replaced(records) - ESTIMATORS[kind], "no lookup was replaced"
    answers = server(got["export"], served_batch(), "predict")
    answers = answers["probabilities"]
    want = server(want["export"], served_batch(), "predict")["probabilities"]
    np.testing.assert_allclose(answers, want, rtol=1e-4, atol=1e-6)
