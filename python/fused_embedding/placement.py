"""Where tables live: on the devices that device functions choose for ordinary variables."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def placed_as_variable() -> Iterator[None]:
    """Places what is built inside as the device functions of the graph place a variable.

    tf.compat.v1.train.replica_device_setter sends variables to parameter servers in turn, and knows
    them by the types of their ops; it would leave a table's op to the worker. Here it is asked for
    a variable, in a graph that is thrown away.
    """
    if tf.executing_eagerly():
        yield
        return
    with tf.device(_device_of_variable()):
        yield


def _device_of_variable() -> str:
    functions = tf.compat.v1.get_default_graph()._device_functions_outer_to_inner
    with tf.Graph().as_default(), contextlib.ExitStack() as stack:
        for function in functions:
            stack.enter_context(tf.compat.v1.device(function))
        # Of no size: strategies that balance loads know how large tables of fixed size are.
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="", name="table")
        return handle.device
