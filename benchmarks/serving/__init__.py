"""Small batches with several callers, and servers of exported models."""
