"""Premade Estimators of TensorFlow 2.15."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.programs import tf1
from benchmarks.programs.setting import Outcome, Setting

v1 = tf.compat.v1


class _Losses(tf.compat.v1.train.SessionRunHook):
    """Keeps the loss of every step."""

    def __init__(self, after_step: Callable[[Any], None]) -> None:
        self.losses: list[Any] = []
        self._after_step = after_step

    def begin(self) -> None:
        self._loss = v1.get_collection(v1.GraphKeys.LOSSES)[-1]

    def before_run(self, _: Any) -> Any:
        return v1.train.SessionRunArgs(self._loss)

    def after_run(self, _: Any, values: Any) -> None:
        self.losses.append(np.mean(values.results))
        self._after_step(self.losses[-1])


def _input_fn(setting: Setting) -> Callable[[], tf.data.Dataset]:
    def parse(fed: dict[str, Any]) -> Any:
        features = tf1.as_features(fed, setting.size)
        return features, features.pop("label")

    return lambda: tf1.dataset(setting).map(parse)


def make(kind: str, setting: Setting) -> Any:
    """An Estimator of a kind: class of tf.compat.v1.estimator."""
    deep, wide = tf1.deep_columns(setting.size), tf1.wide_columns(setting.size)
    config = tf.estimator.RunConfig(
        tf_random_seed=1, save_summary_steps=1000, session_config=setting.config
    )
    common: dict[str, Any] = {"model_dir": setting.folder, "config": config}
    if setting.warm_start is not None:
        common["warm_start_from"] = setting.warm_start
    estimator, units = v1.estimator, [setting.size.units]
    if kind == "DNNLinearCombinedClassifier":
        return estimator.DNNLinearCombinedClassifier(
            linear_feature_columns=wide,
            dnn_feature_columns=deep,
            dnn_hidden_units=units,
            **common,
        )
    if kind == "DNNClassifier":
        return estimator.DNNClassifier(units, deep, **common)
    return estimator.LinearClassifier(wide, **common)


def first(kind: str, setting: Setting) -> str:
    """A folder with a checkpoint after one step, which others start from."""
    make(kind, setting).train(_input_fn(setting), steps=1)
    return setting.folder


def train_and_export(kind: str, setting: Setting) -> Outcome:
    """Trains from a checkpoint, evaluates, predicts and exports."""
    estimator = make(kind, setting)
    hook = _Losses(setting.after_step)
    input_fn = _input_fn(setting)
    estimator.train(input_fn, hooks=[hook], steps=setting.num_steps)
    evaluation = estimator.evaluate(input_fn, steps=3)
    answers = next(iter(estimator.predict(input_fn, yield_single_examples=False)))
    names = sorted(estimator.get_variable_names())
    export = estimator.export_saved_model(
        f"{setting.folder}/export", lambda: _receiver(setting), as_text=False
    )
    return {
        "losses": hook.losses,
        "evaluation": [evaluation[name] for name in sorted(evaluation)],
        "answers": answers["probabilities"],
        "variables": {name: estimator.get_variable_value(name) for name in names},
        "checkpoint": estimator.latest_checkpoint(),
        "export": export.decode(),
    }


def _receiver(setting: Setting) -> Any:
    fed, features = tf1.placeholders(setting)
    fed.pop("label")
    features.pop("label")
    return tf.estimator.export.ServingInputReceiver(features, fed)
