"""Premade Estimators after TensorFlow 2.15's documents. They know nothing of fused_embedding."""

import numpy as np
import programs_v1
import tensorflow as tf

v1 = tf.compat.v1
NUM_STEPS = 50


class _Losses(v1.train.SessionRunHook):
    """Keeps the loss of every step."""

    def __init__(self):
        self.losses = []

    def begin(self):
        self._loss = v1.get_collection(v1.GraphKeys.LOSSES)[-1]

    def before_run(self, _):
        return v1.train.SessionRunArgs(self._loss)

    def after_run(self, _, values):
        self.losses.append(np.mean(values.results))


def _input_fn():
    def parse(fed):
        features = programs_v1.as_features(fed)
        return features, features.pop("label")

    return programs_v1._dataset().map(parse)


def make(kind, folder, warm_start=None):
    """An Estimator of a kind: class of tf.compat.v1.estimator."""
    deep, wide = programs_v1.deep_columns(), programs_v1.wide_columns()
    config = tf.estimator.RunConfig(tf_random_seed=1, save_summary_steps=1000)
    common = {"model_dir": folder, "config": config}
    if warm_start is not None:
        common["warm_start_from"] = warm_start
    estimator = v1.estimator
    if kind == "DNNLinearCombinedClassifier":
        return estimator.DNNLinearCombinedClassifier(
            linear_feature_columns=wide,
            dnn_feature_columns=deep,
            dnn_hidden_units=[6],
            **common,
        )
    if kind == "DNNClassifier":
        return estimator.DNNClassifier([6], deep, **common)
    return estimator.LinearClassifier(wide, **common)


def first(kind, folder):
    """A checkpoint after one step, which others start from."""
    make(kind, folder).train(_input_fn, steps=1)
    return folder


def train_and_export(kind, folder, warm_start):
    """Trains from a checkpoint, evaluates, predicts and exports."""
    estimator = make(kind, folder, warm_start)
    hook = _Losses()
    estimator.train(_input_fn, hooks=[hook], steps=NUM_STEPS)
    evaluation = estimator.evaluate(_input_fn, steps=3)
    answers = next(iter(estimator.predict(_input_fn, yield_single_examples=False)))
    names = sorted(estimator.get_variable_names())
    export = estimator.export_saved_model(f"{folder}/export", _receiver, as_text=False)
    return {
        "losses": hook.losses,
        "evaluation": [evaluation[name] for name in sorted(evaluation)],
        "answers": answers["probabilities"],
        "variables": {name: estimator.get_variable_value(name) for name in names},
        "checkpoint": estimator.latest_checkpoint(),
        "export": export.decode(),
    }


def _receiver():
    fed, features = programs_v1.placeholders()
    fed.pop("label")
    features.pop("label")
    return tf.estimator.export.ServingInputReceiver(features, fed)
