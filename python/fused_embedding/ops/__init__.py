"""The ops of `_ops.so`: loading, gradients, placement, and TensorFlow's private names."""
