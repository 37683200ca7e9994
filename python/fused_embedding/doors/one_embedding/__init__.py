"""OneFlow's OneEmbedding API on EmbeddingVariables; `fe.one_embedding` is its face."""
