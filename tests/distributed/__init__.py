"""Training on a cluster of parameter servers and workers."""
