"""EmbeddingVariables: tables without a vocabulary, their options and their content."""
