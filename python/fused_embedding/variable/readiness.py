"""Tables on servers of a cluster are part of what TensorFlow calls an initialized model.

A server that was restarted makes a table anew, without its rows, for the session that asks first.
A table that some Saver restores is then uninitialized, as an ordinary variable is, until its
initializer, a restore or an import has run on it: ops that read or train it fail, and workers wait.

TensorFlow initializes, and waits for, what is in GLOBAL_VARIABLES. Other readers of that collection
read dense tensors, so a `ServerTable` represents the table there.
"""

from typing import Any

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.tf_private import Trackable, colocate_with, set_bool_attr

_NEEDS_INITIALIZER = "needs_initializer"


class ServerTable(Trackable):
    """What TensorFlow asks of a variable that it initializes and waits for.

    It is no tf.Variable and has no content of its own: Savers and MetaGraphs leave it out.
    """

    def __init__(self, handle: tf.Tensor, initializer: tf.Operation, shape: tf.TensorShape) -> None:
        self.name = handle.name
        self.op = handle.op
        self.graph = handle.graph
        self.device = handle.device
        self.dtype = handle.dtype
        self.shape = shape
        self.initializer = initializer
        self._handle = handle

    def get_shape(self) -> tf.TensorShape:
        """`[?, dim]`."""
        return self.shape

    def is_initialized(self, name: str | None = None) -> tf.Tensor:
        """Whether the table may be used, a boolean scalar."""
        return is_initialized(self._handle, name)

    def to_proto(self, export_scope: str | None = None) -> None:
        """None: TensorFlow would import it as a dense variable."""
        del export_scope


def is_on_server(device: str) -> bool:
    """Whether a device, of a table in a graph, is a task of a cluster."""
    return tf.DeviceSpec.from_string(device or "").job not in (None, "localhost")


def make_initializer(handle: tf.Tensor, shape: tf.TensorShape, name: str) -> tf.Operation:
    """The initializer of a table in a graph; without effect where the table is on no server.

    Args:
        handle: Of the table. One on a server joins GLOBAL_VARIABLES.
        shape: Of the table.
        name: Of the initializer.
    """
    if not is_on_server(handle.device):
        return tf.no_op(name=name)
    with colocate_with(handle):
        initializer = raw_ops.EmbeddingVariableInitialize(resource=handle, name=name)
    table = ServerTable(handle, initializer, shape)
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, table)
    return initializer


def is_initialized(handle: Any, name: str | None = None) -> tf.Tensor:
    """Whether a table may be used, a boolean scalar."""
    if hasattr(handle, "numpy") or not is_on_server(handle.device):
        return tf.constant(True, name=name)
    with colocate_with(handle):
        return raw_ops.EmbeddingVariableIsInitialized(resource=handle, name=name)


def wait_for_restore(handle: Any) -> None:
    """Makes a table on a server uninitialized until it is restored or initialized.

    Called for each restore that a graph gets. A table that no Saver restores can be used when it is
    made: a session that restores the other variables would wait for it in vain.
    """
    is_symbolic = not hasattr(handle, "numpy")
    if is_symbolic and is_on_server(handle.device) and not handle.op.get_attr(_NEEDS_INITIALIZER):
        set_bool_attr(handle.op, _NEEDS_INITIALIZER, True)
