"""The demo's rows in a file of tf.Examples, and the pipeline of a program of TensorFlow alone."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.demo import criteo
from fused_embedding.demo.model import NAMES, Inputs

_LABEL = "label"
_INTEGERS = tuple(f"I{i + 1}" for i in range(criteo.NUM_INTEGERS))


def write(path: str, batches: Iterable[criteo.Rows]) -> None:
    """Writes a TFRecord file with a tf.Example for each row, whose categoricals are strings."""
    with tf.io.TFRecordWriter(path) as writer:
        for rows in batches:
            for row in zip(*rows, strict=True):
                writer.write(_example(*row).SerializeToString())


def _example(label: float, integers: Any, categoricals: Any) -> tf.train.Example:
    feature = tf.train.Feature
    numbers = zip((_LABEL, *_INTEGERS), (label, *integers), strict=True)
    features = {k: feature(float_list=tf.train.FloatList(value=[v])) for k, v in numbers}
    for name, text in zip(NAMES[: len(categoricals)], categoricals, strict=True):
        features[name] = feature(bytes_list=tf.train.BytesList(value=[text]))
    return tf.train.Example(features=tf.train.Features(feature=features))


def read(path: str, batch_size: int, num_columns: int = len(NAMES)) -> Inputs:
    """Makes the pipeline over a file of `write` that yields a batch for each step, again and again.

    A row of the file has at least `num_columns` categoricals; further ones are not read.
    It parses as many batches at a time as TensorFlow finds good.
    """
    dataset = tf.data.TFRecordDataset(path).repeat().batch(batch_size)
    parse = functools.partial(_parse, names=NAMES[:num_columns])
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(1)
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    # Where tables without values are initialized, this is.
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return Inputs(*iterator.get_next())


def _parse(
    serialized: tf.Tensor, names: Sequence[str]
) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
    spec: dict[str, Any] = {
        name: tf.io.FixedLenFeature([], tf.float32) for name in (_LABEL, *_INTEGERS)
    }
    parsed = tf.io.parse_example(
        serialized, spec | {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    )
    integers = tf.stack([parsed[name] for name in _INTEGERS], axis=1)
    return parsed[_LABEL], integers, {name: parsed[name] for name in names}
