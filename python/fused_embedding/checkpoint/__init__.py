"""Saving and restoring of EmbeddingVariables: docs/checkpoints.md."""

from fused_embedding.checkpoint import object_based

__all__: list[str] = []

del object_based  # imported for its registration
