"""The registered ops, with keyword arguments named as the op's inputs and attrs.

docs/op_reference.md describes each. Inputs that an op does not read may be left out: the weights of
an unweighted lookup. They return what `tf.raw_ops` would, in graphs and eagerly.
"""

from typing import Any

from fused_embedding.ops import raw_ops as _ops

__all__ = list(_ops.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_ops, name)


def __dir__() -> list[str]:
    return sorted(__all__)
