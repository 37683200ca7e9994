"""DynamicEmb's sharder."""

from fused_embedding.doors.dynamicemb.sharder import DynamicEmbeddingCollectionSharder

__all__ = ["DynamicEmbeddingCollectionSharder"]


def __dir__() -> list[str]:
    return sorted(__all__)
