"""Keras: optimizers and layers for EmbeddingVariables and ordinary tables.

For Keras 3, tf_keras, and tf.keras, which is one of the two.
"""

from fused_embedding.keras import layers, optimizers
from fused_embedding.keras.compression import Adaptive, DynamicDimension, MultiHash
from fused_embedding.keras.fused import fused_optimizers
from fused_embedding.keras.group_model import group
from fused_embedding.keras.layers import embedding_layer, fused_layers
from fused_embedding.keras.registration import register_loaded
from fused_embedding.keras.statistics import statistics_callback
from fused_embedding.keras.table_training import wrap
from fused_embedding.keras.variables import variable

__all__ = [
    "Adaptive",
    "DynamicDimension",
    "MultiHash",
    "embedding_layer",
    "fused_layers",
    "fused_optimizers",
    "group",
    "layers",
    "optimizers",
    "statistics_callback",
    "variable",
    "wrap",
]


def __dir__() -> list[str]:
    return sorted(__all__)


register_loaded()
