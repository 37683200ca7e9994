"""Programs of Keras 3: layers that call tf.nn, as guides to migration have it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.harness.workloads import zipf_ids
from benchmarks.programs.fitting import dense, fit, mlp, random
from benchmarks.programs.setting import Batch, Outcome, Setting, Size, each

WIDTH = 3  # ids of a row of a feature, at most
NUM_BAGS = 2  # that look up a feature


def batches(size: Size, num: int, seed: int = 6) -> list[Batch]:
    """Lists of ids whose padding is -1. Ids repeat in a batch, and some come rarely."""

    def make(rng: np.random.Generator) -> Batch:
        batch: Batch = {"label": rng.integers(0, 2, (size.batch, 1)).astype(np.float32)}
        for i in size.copies(NUM_BAGS):
            items = zipf_ids(rng, size.rows, size.batch * WIDTH).reshape(size.batch, WIDTH)
            items[rng.random(items.shape) < 0.4] = -1
            batch[f"item{i}"] = items
        return batch

    return list(each(num, seed, make))


def bag_of(keras: Any, size: Size) -> Callable[..., Any]:
    """A layer that pools rows of a table of its own."""

    class Bag(keras.layers.Layer):
        def __init__(self, seed: int, combiner: str = "mean") -> None:
            super().__init__()
            self.seed, self.combiner = seed, combiner

        def build(self, _: Any) -> None:
            self.table = self.add_weight(
                name="table", shape=[size.rows, size.dim], initializer=random(keras, self.seed)
            )

        def call(self, flat: Any) -> Any:
            present = tf.where(flat >= 0)
            ids = tf.SparseTensor(present, tf.gather_nd(flat, present), tf.shape(flat, tf.int64))
            return tf.nn.safe_embedding_lookup_sparse(self.table.value, ids, combiner=self.combiner)

        def compute_output_shape(self, shape: Any) -> Any:
            return (shape[0], size.dim)

    return Bag


def _fit(keras: Any, model: Any, optimizer: Any, setting: Setting) -> Outcome:
    found = fit(keras, model, optimizer, setting)
    model.save_weights(f"{setting.folder}/model.weights.h5")
    features = [key for key in setting.batches[0] if key != "label"]
    specs = {key: tf.TensorSpec([None, WIDTH], tf.int64, name=key) for key in features}
    model.export(f"{setting.folder}/saved", verbose=False, input_signature=[specs])
    return found | {"export": f"{setting.folder}/saved"}


def functional_bags(keras: Any, setting: Setting, optimizer: Any) -> Outcome:
    """A functional model."""
    size, bag = setting.size, bag_of(keras, setting.size)
    inputs, rows = {}, []
    for i in size.copies(NUM_BAGS):
        flat = inputs[f"item{i}"] = keras.Input([WIDTH], dtype="int64", name=f"item{i}")
        rows += [bag(i)(flat), bag(100 + i, "sqrtn")(flat)]
    x = keras.layers.Concatenate()(rows)
    return _fit(keras, keras.Model(inputs, mlp(keras, x, size.units)), optimizer, setting)


def subclassed_bags(keras: Any, setting: Setting, optimizer: Any) -> Outcome:
    """A subclassed model."""
    size, bag = setting.size, bag_of(keras, setting.size)

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.means = [bag(i) for i in size.copies(NUM_BAGS)]
            self.sums = [bag(100 + i, "sum") for i in size.copies(NUM_BAGS)]
            self.top = keras.Sequential([dense(keras, size.units, "relu"), dense(keras, 1)])

        def call(self, features: Any) -> Any:
            rows = [b(features[f"item{i}"]) for i, b in enumerate(self.means)]
            rows += [b(features[f"item{i}"]) for i, b in enumerate(self.sums)]
            return self.top(tf.concat(rows, 1))

    return _fit(keras, Model(), optimizer, setting)
