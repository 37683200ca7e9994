"""The Kerases that are installed: Keras 3, tf_keras, or Keras 2 as tf.keras."""

import importlib
import inspect

KERASES = {}
for _name in ("keras", "tf_keras"):
    try:
        KERASES[_name] = importlib.import_module(_name)
    except ImportError:  # TensorFlow 2.15 has no tf_keras beside its Keras
        continue


def is_keras_3(keras):
    """Whether layers track keras.Variables."""
    return hasattr(keras, "Variable")


def major_and_minor(version):
    """Of "3.15.1", (3, 15)."""
    return tuple(map(int, version.split(".")[:2]))


def takes_ragged_inputs(keras):
    """Whether keras.Input can be ragged: not in the first versions of Keras 3."""
    return "ragged" in inspect.signature(keras.Input).parameters
