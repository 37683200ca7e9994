"""What benchmarks share, and the two programs over all workloads: `run` and `sweep`."""
