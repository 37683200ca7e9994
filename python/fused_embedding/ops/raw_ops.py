"""The registered ops, with keyword arguments and defaults; `fe.raw_ops` is its face."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.ops.library import ops

_NAMES = (
    "EmbeddingVariableAdmit",
    "EmbeddingVariableApply",
    "EmbeddingVariableErase",
    "EmbeddingVariablePrefetch",
    "EmbeddingVariableExpire",
    "EmbeddingVariableExport",
    "EmbeddingVariableFileSummary",
    "EmbeddingVariableGpuHandle",
    "EmbeddingVariableGroupLookup",
    "EmbeddingVariableGroupLookupGrad",
    "EmbeddingVariableHandle",
    "EmbeddingVariableImport",
    "EmbeddingVariableInitialize",
    "EmbeddingVariableIsInitialized",
    "EmbeddingVariableLookup",
    "EmbeddingVariableMetadata",
    "EmbeddingVariableReadRows",
    "EmbeddingVariableRemoteRows",
    "EmbeddingVariableRestore",
    "EmbeddingVariableSave",
    "EmbeddingVariableSaveIncrement",
    "EmbeddingVariableSeed",
    "EmbeddingVariableServingChange",
    "EmbeddingVariableServingLock",
    "EmbeddingVariableServingUnlock",
    "EmbeddingVariableStatistics",
    "EmbeddingVariableUpsert",
    "FusedEmbeddingColumnKeys",
    "FusedEmbeddingGather",
    "FusedEmbeddingGroupLookup",
    "FusedEmbeddingGroupLookupGrad",
    "FusedEmbeddingGroupLookupWeightsGrad",
    "FusedEmbeddingParseExample",
    "FusedEmbeddingRemoteKeys",
    "FusedEmbeddingRemoteLookup",
    "FusedEmbeddingRemoteLookupGrad",
    "FusedEmbeddingRemoteRows",
    "FusedEmbeddingResourceGather",
    "FusedEmbeddingResourceGroupLookup",
    "FusedEmbeddingResourceGroupLookupGrad",
    "FusedEmbeddingResourceGroupLookupWeightsGrad",
    "FusedEmbeddingResourceRemoteRows",
    "FusedEmbeddingResourceSparseApply",
    "FusedEmbeddingSparseApply",
    "FusedEmbeddingSparsePostLookUp",
    "FusedEmbeddingSparsePostLookUpGrad",
    "FusedEmbeddingSparsePostLookUpV2",
    "FusedEmbeddingSparsePostLookUpV2Grad",
    "FusedEmbeddingSparsePostLookUpV2WeightsGrad",
    "FusedEmbeddingSparsePostLookUpWeightsGrad",
    "FusedEmbeddingSparsePreLookUp",
    "FusedEmbeddingStoredRowsGroupLookup",
    "FusedEmbeddingUnpackRows",
    "PartitionWithPermutation",
    "PruneInvalidAndFillEmptyRows",
    "PruneInvalidAndFillEmptyRowsGrad",
    "UniqueWithCountsV3",
)


def _no_weights() -> tf.Tensor:
    return tf.zeros([0], tf.float32)


# What stands for an input that was left out.
_DEFAULT_INPUTS: dict[str, dict[str, Callable[[], Any]]] = {
    "FusedEmbeddingSparsePostLookUp": {"partitioned_weights": list},
    "FusedEmbeddingSparsePostLookUpGrad": {"partitioned_weights": list},
    "FusedEmbeddingSparsePostLookUpV2": {"sp_weights_values": _no_weights},
    "FusedEmbeddingSparsePostLookUpV2Grad": {"sp_weights_values": _no_weights},
    "PruneInvalidAndFillEmptyRows": {"sp_weights_values": _no_weights},
}


def _with_defaults(op: Callable[..., Any], defaults: dict[str, Callable[[], Any]]) -> Any:
    # AutoGraph finds no source of an op, and would warn about it in each tf.function.
    @tf.autograph.experimental.do_not_convert
    @functools.wraps(op)
    def call(**kwargs: Any) -> Any:
        for name, make_default in defaults.items():
            if name not in kwargs:
                kwargs[name] = make_default()
        return op(**kwargs)

    return call


globals().update(
    {name: _with_defaults(getattr(ops, name), _DEFAULT_INPUTS.get(name, {})) for name in _NAMES}
)

__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"fused_embedding.raw_ops has no op {name!r}; it has {', '.join(_NAMES)}")


def __dir__() -> list[str]:
    return sorted(__all__)
