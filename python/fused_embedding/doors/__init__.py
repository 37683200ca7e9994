"""APIs of other embedding libraries: each is a door to EmbeddingVariables."""
