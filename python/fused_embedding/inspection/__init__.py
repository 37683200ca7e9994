"""What is in checkpoints of EmbeddingVariables, and what options would cost: docs/inspection.md."""
