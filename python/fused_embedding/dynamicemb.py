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
]


def __dir__() -> list[str]:
    return sorted(__all__)


# Old modules of this name had modules of their own: moved.py says where they are.
__path__: list[str] = []
