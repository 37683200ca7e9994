"""Tests do not leave TensorFlow's seed to those that run after them."""

import tensorflow as tf
from tensorflow.python.eager.context import global_seed


def test_a_seed_is_set():
    tf.random.set_seed(1)
    assert global_seed() == 1


def test_and_is_gone_in_the_next_test():
    assert global_seed() is None
