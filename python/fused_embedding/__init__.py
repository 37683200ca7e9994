"""Fused sparse embedding lookup for stock TensorFlow.

`fe.nn` looks up, `fe.feature_column` has columns with `do_fusion`, `fe.get_embedding_variable`
makes tables without a vocabulary (`fe.one_embedding` and `fe.dynamicemb` by the APIs of OneFlow and
NVIDIA), `fe.train` and `fe.keras` train them, `fe.raw_ops` are the ops,
`fe.compat.v1.nn` stands in for tf.compat.v1.nn; `fe.damo` is Damo-Embedding's API; `fe.planner`
decides on which servers tables are.
"""

import sys

if getattr(sys, "argv", [])[:2] == ["-m", "doctor"]:  # it has to run where the imports below fail
    import fused_embedding_cli

    if fused_embedding_cli.is_for_doctor():
        fused_embedding_cli.main()

from fused_embedding import distribution

if _refusal := distribution.refusal():  # before modules of two versions are imported together
    raise ImportError(_refusal)

from fused_embedding import (
    compat,
    contrib,
    convert,
    damo,
    data,
    dynamicemb,
    feature_column,
    io,
    keras,
    moved,
    nn,
    one_embedding,
    planner,
    raw_ops,
    train,
)
from fused_embedding.acceleration.api import accelerate
from fused_embedding.inspection.explain import explain
from fused_embedding.inspection.program_report import report
from fused_embedding.lookup import dispatch
from fused_embedding.lookup.fusion_check import FusionCheck
from fused_embedding.ops import gradients
from fused_embedding.serving import RowErrors, export_for_serving, write_serving_delta
from fused_embedding.variable.adaptive import (
    AdaptiveEmbeddingVariable,
    get_adaptive_embedding_variable,
)
from fused_embedding.variable.dynamic_dimension import (
    DynamicEmbeddingVariable,
    get_dynamic_dimension_embedding_variable,
)
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.inference import inference
from fused_embedding.variable.initializers import DebugInitializer
from fused_embedding.variable.multihash import MultiHashVariable, get_multihash_variable
from fused_embedding.variable.options import (
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
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable
from fused_embedding.variable.scope import EMBEDDING_VARIABLES, get_embedding_variable
from fused_embedding.variable.statistics import summarize_statistics

__version__ = "0.2.0"

__all__ = [
    "EMBEDDING_VARIABLES",
    "AdaptiveEmbeddingVariable",
    "CBFFilter",
    "CacheStrategy",
    "CheckpointOption",
    "CounterFilter",
    "DebugInitializer",
    "DynamicEmbeddingVariable",
    "EmbeddingVariable",
    "EmbeddingVariableOption",
    "FusionCheck",
    "GlobalStepEvict",
    "InitializerOption",
    "L2WeightEvict",
    "MultiHashVariable",
    "PartitionedEmbeddingVariable",
    "RowErrors",
    "StorageOption",
    "StorageType",
    "accelerate",
    "compat",
    "contrib",
    "convert",
    "damo",
    "data",
    "dynamicemb",
    "explain",
    "export_for_serving",
    "feature_column",
    "get_adaptive_embedding_variable",
    "get_dynamic_dimension_embedding_variable",
    "get_embedding_variable",
    "get_multihash_variable",
    "inference",
    "io",
    "keras",
    "nn",
    "one_embedding",
    "planner",
    "raw_ops",
    "report",
    "summarize_statistics",
    "train",
    "write_serving_delta",
]


def __dir__() -> list[str]:
    return sorted(__all__)


moved.install()

del dispatch, distribution, gradients, moved, sys  # imported for what they do once
