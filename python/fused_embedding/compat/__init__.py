"""Mirrors of tf.compat."""

from fused_embedding.compat import v1

__all__ = ["v1"]
