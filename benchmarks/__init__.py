"""Benchmarks: ours, stock TensorFlow and a plain C loop, alternating in one process."""
