"""What TensorFlow 1's tf.contrib did for sparse embeddings."""

from fused_embedding.contrib import layers

__all__ = ["layers"]


def __dir__() -> list[str]:
    return sorted(__all__)
