"""The demo: one CTR model on Criteo rows, trained with stock and with fused embeddings."""
