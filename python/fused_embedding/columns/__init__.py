"""Feature columns with fused lookups, and columns of EmbeddingVariables."""
