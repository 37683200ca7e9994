"""NVIDIA's DynamicEmb API on EmbeddingVariables; `fe.dynamicemb` is its face."""
