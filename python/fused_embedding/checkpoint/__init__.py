"""Saving and restoring of EmbeddingVariables: docs/checkpoints.md."""

from fused_embedding.checkpoint import hook, object_based

__all__: list[str] = []

del hook, object_based  # imported for their registrations
