"""Benchmarks of the CUDA core on a GPU, without TensorFlow: `python -m benchmarks.gpu`."""
