"""The ten programs by name, each with its optimizer."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from benchmarks.programs import estimators, keras_2, keras_3, loops, tf1
from benchmarks.programs.setting import Batch, Outcome, Setting


class Program(NamedTuple):
    """A program.

    Attributes:
        title: What it is, in a table.
        batches: Makes batches of a size: `batches(size, num)`.
        run: Trains; what it returns is what a user sees.
        missing: What this TensorFlow lacks for it; None: nothing.
        first: Makes a checkpoint that all runs start from and returns its folder, where initial
            values would be others under fe.accelerate.
    """

    title: str
    batches: Callable[..., list[Batch]]
    run: Callable[[Setting], Outcome]
    missing: Callable[[], str | None] = lambda: None
    first: Callable[[Setting], str] | None = None


def find_keras_2() -> Any:
    """tf.keras of TensorFlow 2.15, the package tf_keras later; None: it is not installed."""
    if hasattr(tf.keras.layers, "DenseFeatures"):
        return tf.keras
    return _installed("tf_keras")


def find_keras_3() -> Any:
    """The package keras; None: it is not installed, or is Keras 2."""
    keras = _installed("keras")
    return keras if hasattr(keras, "Variable") else None


def _installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _without_estimators() -> str | None:
    has_them = hasattr(tf, "estimator")
    return None if has_them else f"TensorFlow {tf.__version__} has no Estimators: 2.15 has"


def _without_keras_2() -> str | None:
    return None if find_keras_2() else "DenseFeatures needs the package tf_keras"


def _without_keras_3() -> str | None:
    keras = find_keras_3()
    if keras is None:
        return f"TensorFlow {tf.__version__} is here without Keras 3"
    if "input_signature" not in inspect.signature(keras.Model.export).parameters:
        return f"Model.export of Keras {keras.__version__} takes no input_signature"
    return None


def _of_keras_2(title: str, run: Callable[..., Outcome], optimizer: Callable[..., Any]) -> Program:
    def program(setting: Setting) -> Outcome:
        keras = find_keras_2()
        return run(keras, setting, optimizer(keras))

    return Program(f"Keras 2: {title}", keras_2.batches, program, _without_keras_2)


def _of_keras_3(title: str, run: Callable[..., Outcome]) -> Program:
    def program(setting: Setting) -> Outcome:
        keras = find_keras_3()
        return run(keras, setting, keras.optimizers.Adagrad(0.1))

    return Program(f"Keras 3: {title}", keras_3.batches, program, _without_keras_3)


def _of_tf1(title: str, run: Callable[[Setting], Outcome]) -> Program:
    return Program(f"TF1: {title}", tf1.batches, run)


_ESTIMATOR = "DNNLinearCombinedClassifier"
PROGRAMS = {
    "wide_and_deep": _of_tf1(
        "`input_layer` and `linear_model`, Adagrad and Ftrl, batches fed", tf1.wide_and_deep
    ),
    "partitioned": _of_tf1(
        "both with tables in two partitions, shared columns, Momentum", tf1.partitioned
    ),
    "monitored": _of_tf1("MonitoredTrainingSession over tf.data, RMSProp", tf1.monitored),
    "layer_object": _of_tf1(
        "`InputLayer` for training and evaluation, clipped gradients, SGD", tf1.layer_object
    ),
    "estimator": Program(
        f"Estimator: {_ESTIMATOR}, Adagrad and Ftrl",
        tf1.batches,
        lambda setting: estimators.train_and_export(_ESTIMATOR, setting),
        _without_estimators,
        lambda setting: estimators.first(_ESTIMATOR, setting),
    ),
    "sequential": _of_keras_2(
        "DenseFeatures, sequential, Adagrad",
        keras_2.sequential,
        lambda keras: keras.optimizers.Adagrad(0.1),
    ),
    "functional": _of_keras_2(
        "DenseFeatures, functional, Adam",
        keras_2.functional,
        lambda keras: keras.optimizers.Adam(0.01),
    ),
    "functional_bags": _of_keras_3(
        "layers with tf.nn's lookup, functional, Adagrad", keras_3.functional_bags
    ),
    "subclassed_bags": _of_keras_3(
        "layers with tf.nn's lookup, subclassed, Adagrad", keras_3.subclassed_bags
    ),
    "custom_loop": Program(
        "TF2: tf.function and GradientTape, v1 Adagrad",
        loops.batches,
        lambda setting: loops.custom_loop(
            setting, lambda: tf.compat.v1.train.AdagradOptimizer(0.1)
        ),
    ),
}
