"""Input pipelines: batches from Parquet files, rows of the next batches ahead of time."""

from fused_embedding.input.parquet import Shuffle, parquet
from fused_embedding.variable.prefetch import prefetch_embeddings

__all__ = ["Shuffle", "parquet", "prefetch_embeddings"]


def __dir__() -> list[str]:
    return sorted(__all__)
