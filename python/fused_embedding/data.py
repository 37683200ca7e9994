"""Input pipelines that prefetch the rows of the next batches."""

from fused_embedding.variable.prefetch import prefetch_embeddings

__all__ = ["prefetch_embeddings"]


def __dir__() -> list[str]:
    return sorted(__all__)
