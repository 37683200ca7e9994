"""Mirrors of tf.compat, and DeepRec's names."""

from fused_embedding.compat import deeprec, v1
from fused_embedding.compat.deeprec import install

__all__ = ["deeprec", "install", "v1"]


def __dir__() -> list[str]:
    return sorted(__all__)
