"""Programs that nobody edited, with and without fe.accelerate."""

import json
import os
import pathlib
import subprocess
import sys

import acceleration_cases as cases
import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks.programs import catalogue, estimators, keras_2, loops, tf1  # noqa: E402
from benchmarks.programs.setting import Setting, Size  # noqa: E402

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


def as_list(values):
    """An array as JSON has it."""
    values = np.asarray(values)
    return (values.astype("U") if values.dtype == object else values).tolist()


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
            lists = {key: as_list(value) for key, value in inputs.items()}
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


NUM_STEPS = 50


def setting_of(batches, folder, **options):
    """A small setting in a new folder."""
    folder.mkdir()
    return Setting(Size(), batches(Size(), NUM_STEPS), NUM_STEPS, str(folder), **options)


def run_twice(program, batches, tmp_path, **options):
    """A program's results by stock, those with fe.accelerate, and its records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.saved_model, "save", lambda *_, **__: None)  # nobody asks stock's export
        want = program(setting_of(batches, tmp_path / "stock", **options))
    assert len(want["losses"]) == NUM_STEPS
    with fe.accelerate() as acceleration:
        got = program(setting_of(batches, tmp_path / "accelerated", **options))
    return want, got, acceleration.records


def features_of(batches, **options):
    """The features of a batch."""
    [batch] = batches(Size(), 1, **options)
    return {key: value for key, value in batch.items() if key != "label"}


V1_PROGRAMS = {
    "wide_and_deep": {"input_layer", "linear_model", "AdagradOptimizer", "FtrlOptimizer"},
    "partitioned": {"input_layer", "linear_model", "MomentumOptimizer"},
    "monitored": {"input_layer", "RMSPropOptimizer"},
    "layer_object": {"input_layer", "safe_embedding_lookup_sparse", "GradientDescentOptimizer"},
}


@pytest.mark.parametrize("name", V1_PROGRAMS)
def test_a_program_of_tf1(name, tmp_path):
    want, got, records = run_twice(catalogue.PROGRAMS[name].run, tf1.batches, tmp_path)
    compare(got, want, name)
    assert cases.replaced(records) == V1_PROGRAMS[name]
    assert not cases.left(records)


def test_an_export_of_a_graph_of_tf1(tmp_path, server):
    """The graph has our ops when it is saved: it is refused, and fe.export_for_serving does it."""
    batch = features_of(tf1.batches)
    want = tf1.served(setting_of(tf1.batches, tmp_path / "stock"))
    got = server(want["export"], batch)["answers"]
    np.testing.assert_allclose(got, want["answers"], rtol=1e-5)
    with fe.accelerate(), pytest.raises(ValueError, match=r"fe\.export_for_serving"):
        tf1.served(setting_of(tf1.batches, tmp_path / "refused"))

    def export(session, folder, inputs, outputs, _):
        fe.export_for_serving(session, folder, inputs=inputs, outputs=outputs)

    with fe.accelerate() as acceleration, pytest.MonkeyPatch.context() as patch:
        patch.setattr(v1.saved_model, "simple_save", export)
        ours = tf1.served(setting_of(tf1.batches, tmp_path / "exported"))
    assert cases.replaced(acceleration.records) == {"input_layer"}
    np.testing.assert_allclose(ours["answers"], want["answers"], rtol=1e-5)
    got = server(ours["export"], batch)["answers"]
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
    program = getattr(keras_2, name.split(",")[0])

    def run(setting):
        keras.backend.clear_session()
        return program(keras, setting, KERAS_2[name](keras))

    want, got, records = run_twice(run, keras_2.batches, tmp_path)
    compare(got, want, name)
    assert "embedding columns of a layer" in cases.replaced(records)
    [answers] = server(got["export"], features_of(keras_2.batches)).values()
    np.testing.assert_allclose(answers, want["answers"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["functional_bags", "subclassed_bags"])
def test_a_layer_of_keras_3_that_calls_tf_nn(name, tmp_path, server):
    program = catalogue.PROGRAMS[name]
    if program.missing():
        pytest.skip(program.missing())

    def run(setting):
        catalogue.find_keras_3().backend.clear_session()
        return program.run(setting)

    want, got, records = run_twice(run, program.batches, tmp_path)
    compare(got, want, name)
    assert {"safe_embedding_lookup_sparse", "Adagrad of Keras"} <= cases.replaced(records)
    [answers] = server(got["export"], features_of(program.batches)).values()
    np.testing.assert_allclose(answers, want["answers"], rtol=1e-5, atol=1e-6)


LOOPS = {
    "AdagradOptimizer": lambda: v1.train.AdagradOptimizer(0.1),
    "GradientDescentOptimizer": lambda: v1.train.GradientDescentOptimizer(0.1),
    "Keras's Adagrad": lambda: tf.keras.optimizers.Adagrad(0.1),
    "Keras's SGD": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.5),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_custom_loop(name, tmp_path, server):
    def run(setting):
        return loops.custom_loop(setting, LOOPS[name])

    want, got, records = run_twice(run, loops.batches, tmp_path)
    compare(got, want, name)
    assert "safe_embedding_lookup_sparse" in cases.replaced(records)
    if hasattr(v1.train, name):
        assert name in cases.replaced(records)
    [batch] = loops.batches(Size(), 1)
    answers = server(got["export"], batch)["answers"]
    np.testing.assert_allclose(answers, want["answers"], rtol=1e-5, atol=1e-6)


ESTIMATORS = {
    "DNNLinearCombinedClassifier": {"AdagradOptimizer", "FtrlOptimizer"},
    "DNNClassifier": {"AdagradOptimizer"},
    "LinearClassifier": {"FtrlOptimizer"},
}


# Not marked as slow: CI has Estimators with the oldest TensorFlow alone, without what is slow.
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_premade_estimator_from_a_warm_start(kind, tmp_path, server):
    missing = catalogue.PROGRAMS["estimator"].missing()
    if missing:
        pytest.skip(missing)
    start = estimators.first(kind, setting_of(tf1.batches, tmp_path / "start"))

    def run(setting):
        return estimators.train_and_export(kind, setting)

    want, got, records = run_twice(run, tf1.batches, tmp_path, warm_start=start)
    compare(got, want, kind)
    assert ESTIMATORS[kind] <= cases.replaced(records)
    assert cases.replaced(records) - ESTIMATORS[kind], "no lookup was replaced"
    batch = features_of(tf1.batches)
    answers = server(got["export"], batch, "predict")
    answers = answers["probabilities"]
    want = server(want["export"], batch, "predict")["probabilities"]
    np.testing.assert_allclose(answers, want, rtol=1e-4, atol=1e-6)
