"""What the ops of a lookup say about the path that it took, for `fe.explain` to read."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

REASON = "_fe_reason"
ACCELERATED = "_fe_accelerated"  # of ops that are ours because of fe.accelerate
STOCK = "_fe_stock"  # of the last op of a lookup that FE_DISABLE has stock's ops do
CHECK = "_fe_check"  # of the conditionals of a checked lookup, and of its calls of Python


@contextlib.contextmanager
def noted(text: str, attribute: str = REASON) -> Iterator[None]:
    """Writes `text` into the ops of a graph that are made inside; eager ops keep nothing."""
    if tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    # The only way to attributes of ops that TensorFlow's own functions make. They are kept in
    # GraphDefs and functions, and nothing else reads them.
    with graph._attr_scope({attribute: tf.compat.v1.AttrValue(s=text.encode())}):
        yield
