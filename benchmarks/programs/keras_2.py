"""Programs of Keras 2: tf.keras of TensorFlow 2.15, the package tf_keras later."""

from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.harness.workloads import zipf_ids
from benchmarks.programs.fitting import dense, fit, mlp, random
from benchmarks.programs.setting import Batch, Outcome, Setting, Size, each, zipf_words

fc = tf.feature_column
KINDS = ("word", "item", "crossed", "age")


def batches(size: Size, num: int, seed: int = 1) -> list[Batch]:
    """Raw features and labels. Ids repeat in a batch, and some come rarely."""

    def make(rng: np.random.Generator) -> Batch:
        batch: Batch = {"label": rng.integers(0, 2, (size.batch, 1)).astype(np.float32)}
        for i in size.copies(len(KINDS)):
            batch[f"word{i}"] = zipf_words(rng, size, size.batch)[:, None]
            batch[f"item{i}"] = zipf_ids(rng, size.rows, size.batch)[:, None]
            batch[f"age{i}"] = rng.uniform(0, 80, (size.batch, 1)).astype(np.float32)
        return batch

    return list(each(num, seed, make))


def columns(keras: Any, size: Size) -> list[Any]:
    """Feature columns of raw strings, integers and numbers."""
    made = []
    for i in size.copies(len(KINDS)):
        word = fc.categorical_column_with_vocabulary_list(
            f"word{i}", size.vocabulary(), num_oov_buckets=2
        )
        number = fc.numeric_column(f"age{i}", normalizer_fn=_scaled)
        age = fc.bucketized_column(fc.numeric_column(f"age{i}"), [20.0, 40.0, 60.0])
        item = fc.categorical_column_with_identity(f"item{i}", size.rows)
        crossed = fc.crossed_column([f"word{i}", age], size.rows)
        made += [
            fc.embedding_column(column, size.dim, initializer=random(keras, 10 * i + k))
            for k, column in enumerate((word, item, crossed, age))
        ]
        made += [fc.indicator_column(age), number]
    return made


def _scaled(x: Any) -> Any:
    return x / 80


def _inputs(keras: Any, setting: Setting) -> dict[str, Any]:
    features = {key: value for key, value in setting.batches[0].items() if key != "label"}
    return {
        key: keras.Input([1], name=key, dtype=tf.as_dtype(value.dtype).name)
        for key, value in features.items()
    }


def _fit(keras: Any, model: Any, optimizer: Any, setting: Setting) -> Outcome:
    found = fit(keras, model, optimizer, setting)
    model.save_weights(f"{setting.folder}/weights")
    tf.saved_model.save(model, f"{setting.folder}/saved")
    files = {"checkpoint": f"{setting.folder}/weights", "export": f"{setting.folder}/saved"}
    return found | files


def sequential(keras: Any, setting: Setting, optimizer: Any) -> Outcome:
    """DenseFeatures in a Sequential model."""
    layers = [
        keras.layers.DenseFeatures(columns(keras, setting.size)),
        dense(keras, setting.size.units, "relu"),
        dense(keras, 1),
    ]
    return _fit(keras, keras.Sequential(layers), optimizer, setting)


def functional(keras: Any, setting: Setting, optimizer: Any) -> Outcome:
    """DenseFeatures in a functional model."""
    inputs = _inputs(keras, setting)
    x = keras.layers.DenseFeatures(columns(keras, setting.size))(inputs)
    model = keras.Model(inputs, mlp(keras, x, setting.size.units))
    return _fit(keras, model, optimizer, setting)
