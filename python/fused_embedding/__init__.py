"""Fused sparse embedding lookup for stock TensorFlow.

`fe.nn` looks up, `fe.feature_column` has columns with `do_fusion`, `fe.get_embedding_variable`
makes tables without a vocabulary (`fe.one_embedding` and `fe.dynamicemb` by the APIs of OneFlow and
NVIDIA), `fe.train` and `fe.keras` train them, `fe.raw_ops` are the ops,
`fe.compat.v1.nn` stands in for tf.compat.v1.nn; `fe.damo` is Damo-Embedding's API.
"""

from fused_embedding import (
    compat,
    contrib,
    convert,
    damo,
    data,
    dynamicemb,
    feature_column,
    gradients,
    keras,
    nn,
    one_embedding,
    raw_ops,
    table_dispatch,
    train,
)
from fused_embedding.embedding_options import (
    CacheStrategy,
    CBFFilter,
    CheckpointOption,
    CounterFilter,
    EmbeddingVariableOption,
    GlobalStepEvict,
    InitializerOption,
    L2WeightEvict,
    StorageOption,
    StorageType,
)
from fused_embedding.embedding_partitions import PartitionedEmbeddingVariable
from fused_embedding.embedding_scope import EMBEDDING_VARIABLES, get_embedding_variable
from fused_embedding.embedding_variable import EmbeddingVariable
from fused_embedding.explanation import explain
from fused_embedding.fusion_check import FusionCheck
from fused_embedding.inference import inference
from fused_embedding.initializers import DebugInitializer
from fused_embedding.serving import export_for_serving, write_serving_delta
from fused_embedding.statistics_summary import summarize_statistics

__version__ = "0.1.0"

__all__ = [
    "EMBEDDING_VARIABLES",
    "CBFFilter",
    "CacheStrategy",
    "CheckpointOption",
    "CounterFilter",
    "DebugInitializer",
    "EmbeddingVariable",
    "EmbeddingVariableOption",
    "FusionCheck",
    "GlobalStepEvict",
    "InitializerOption",
    "L2WeightEvict",
    "PartitionedEmbeddingVariable",
    "StorageOption",
    "StorageType",
    "compat",
    "contrib",
    "convert",
    "damo",
    "data",
    "dynamicemb",
    "explain",
    "export_for_serving",
    "feature_column",
    "get_embedding_variable",
    "inference",
    "keras",
    "nn",
    "one_embedding",
    "raw_ops",
    "summarize_statistics",
    "train",
    "write_serving_delta",
]


def __dir__() -> list[str]:
    return sorted(__all__)


del gradients, table_dispatch  # imported for their registrations
