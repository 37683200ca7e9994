"""NVIDIA's DynamicEmb API on EmbeddingVariables: docs/migration/dynamicemb.md.

Names, fields and defaults are those of `dynamicemb` of recsys-examples; dtypes are TensorFlow's.
"""

from fused_embedding.doors.dynamicemb.files import DynamicEmbDump, DynamicEmbLoad, dump, load
from fused_embedding.doors.dynamicemb.options import (
    DynamicEmbCheckMode,
    DynamicEmbEvictStrategy,
    DynamicEmbInitializerArgs,
    DynamicEmbInitializerMode,
    DynamicEmbTableOptions,
)
from fused_embedding.doors.dynamicemb.table import make_table
from fused_embedding.dynamicemb import planner, shard

__all__ = [
    "DynamicEmbCheckMode",
    "DynamicEmbDump",
    "DynamicEmbEvictStrategy",
    "DynamicEmbInitializerArgs",
    "DynamicEmbInitializerMode",
    "DynamicEmbLoad",
    "DynamicEmbTableOptions",
    "dump",
    "load",
    "make_table",
    "planner",
    "shard",
]


def __dir__() -> list[str]:
    return sorted(__all__)
