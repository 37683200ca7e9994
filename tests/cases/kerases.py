"""The Kerases that are installed: Keras 3, tf_keras, or Keras 2 as tf.keras."""

import importlib

KERASES = {}
for _name in ("keras", "tf_keras"):
    try:
        KERASES[_name] = importlib.import_module(_name)
    except ImportError:  # TensorFlow 2.15 has no tf_keras beside its Keras
        continue


def is_keras_3(keras):
    """Whether layers track keras.Variables."""
    return hasattr(keras, "Variable")
