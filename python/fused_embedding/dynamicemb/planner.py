"""DynamicEmb's planner, with what its examples import of TorchRec: docs/planner.md."""

from fused_embedding.doors.dynamicemb.planner import (
    DynamicEmbeddingEnumerator,
    DynamicEmbeddingShardingPlanner,
    DynamicEmbParameterConstraints,
    HKVConfig,
)
from fused_embedding.planner.types import (
    EmbeddingBagConfig,
    EmbeddingConfig,
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
    PoolingType,
    ShardingType,
    StorageReservation,
    Topology,
)

__all__ = [
    "DynamicEmbParameterConstraints",
    "DynamicEmbeddingEnumerator",
    "DynamicEmbeddingShardingPlanner",
    "EmbeddingBagConfig",
    "EmbeddingConfig",
    "FixedPercentageStorageReservation",
    "HKVConfig",
    "HeuristicalStorageReservation",
    "PoolingType",
    "ShardingType",
    "StorageReservation",
    "Topology",
]


def __dir__() -> list[str]:
    return sorted(__all__)
