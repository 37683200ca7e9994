"""`fe.accelerate`: the fastest path for a program of stock TensorFlow, without an edit."""
