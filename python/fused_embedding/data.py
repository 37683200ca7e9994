"""Input pipelines that know which rows come next."""

from fused_embedding.variable.prefetch import prefetch_embeddings

__all__ = ["prefetch_embeddings"]


def __dir__() -> list[str]:
    return sorted(__all__)
