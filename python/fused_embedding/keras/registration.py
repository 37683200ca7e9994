"""Registers the classes of fe.keras with the Kerases that are loaded, which find them in files."""

import sys
from typing import Any

from fused_embedding.keras.fused import fused_classes
from fused_embedding.keras.layers import layer_classes
from fused_embedding.keras.table_training import KERASES, trainers_of


def _is_complete(keras: Any) -> bool:
    """Whether a module is a Keras of today, and not one that is just being imported."""
    layer = getattr(getattr(keras, "layers", None), "Layer", None)
    saving = getattr(keras, "saving", None)
    has_registry = hasattr(saving, "register_keras_serializable")
    return isinstance(layer, type) and has_registry and hasattr(keras, "optimizers")


def register_loaded() -> None:
    """Registers layers and optimizers with each Keras that this process has imported.

    TensorFlow imports the Keras that it has as tf.keras.
    """
    for name in KERASES:
        keras = sys.modules.get(name)
        if _is_complete(keras):
            layer_classes(keras)
            trainers_of(keras)
            fused_classes(keras)
