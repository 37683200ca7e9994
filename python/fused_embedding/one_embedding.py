"""OneFlow's OneEmbedding API on EmbeddingVariables: docs/migration/one_embedding.md.

Names and the order of arguments are those of `oneflow.one_embedding`; dtypes are TensorFlow's.
"""

from fused_embedding.doors.one_embedding.embedding import (
    MultiTableEmbedding,
    MultiTableMultiColumnEmbedding,
)
from fused_embedding.doors.one_embedding.ftrl import Ftrl
from fused_embedding.doors.one_embedding.options import (
    make_cached_host_mem_store_options,
    make_cached_ssd_store_options,
    make_column_options,
    make_device_mem_store_options,
    make_normal_initializer,
    make_table,
    make_table_options,
    make_uniform_initializer,
)
from fused_embedding.doors.one_embedding.persistent_table import (
    make_persistent_table_reader,
    make_persistent_table_writer,
)

__all__ = [
    "Ftrl",
    "MultiTableEmbedding",
    "MultiTableMultiColumnEmbedding",
    "make_cached_host_mem_store_options",
    "make_cached_ssd_store_options",
    "make_column_options",
    "make_device_mem_store_options",
    "make_normal_initializer",
    "make_persistent_table_reader",
    "make_persistent_table_writer",
    "make_table",
    "make_table_options",
    "make_uniform_initializer",
]


def __dir__() -> list[str]:
    return sorted(__all__)


# Old modules of this name had modules of their own: moved.py says where they are.
__path__: list[str] = []
