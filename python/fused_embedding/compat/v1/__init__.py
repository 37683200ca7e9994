"""Mirrors of tf.compat.v1."""

from fused_embedding.compat.v1 import nn

__all__ = ["nn"]


def __dir__() -> list[str]:
    return sorted(__all__)
