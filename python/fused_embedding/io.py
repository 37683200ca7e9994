"""Serialized examples become tensors: `tf.io.parse_example` and its like, faster."""

from fused_embedding.input.dataset_service import with_stock_ops
from fused_embedding.input.parsing import parse_example, parse_single_example

__all__ = ["parse_example", "parse_single_example", "with_stock_ops"]


def __dir__() -> list[str]:
    return sorted(__all__)
