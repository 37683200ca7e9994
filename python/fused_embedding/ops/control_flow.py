"""Gradients of lookups inside a branch of tf.cond, in TF1 control flow.

There a branch reads the handle of a table through a Switch. The stock gradient of that Switch is
the branch's gradient if the branch ran, or else zeros of the variable's shape. A table has no such
shape. So the gradient here is a slice without rows if the other branch ran.

The gradient of a lookup in the body of a loop is refused: TensorFlow sums it over the iterations in
a dense tensor, or in slices that begin with a row of zeros for key 0.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.ops.tf_private import WhileBodyGradGraph

_GRADIENT = "FusedEmbeddingTableSwitch"
_TABLE_NAME = "_fused_embedding_table_name"  # of a handle, for errors


def name_table(handle: tf.Tensor, name: str) -> None:
    """Notes in the handle of a new table what errors call the table."""
    setattr(handle, _TABLE_NAME, name)


def tables_looked_up(op: tf.Operation) -> list[tf.Tensor]:
    """Handles of the tables that an op looks keys up in; none for another kind of op."""
    num_tables = {
        "EmbeddingVariableLookup": lambda: 1,
        "EmbeddingVariableGroupLookup": lambda: op.get_attr("num_tables"),
        "EmbeddingVariableRemoteRows": lambda: op.get_attr("num_tables"),
    }
    return list(op.inputs[: num_tables.get(op.type, lambda: 0)()])


@tf.RegisterGradient(_GRADIENT)
def _switch_grad(op: tf.Operation, *grads: Any) -> list[Any]:
    branch = next(i for i, grad in enumerate(grads) if isinstance(grad, tf.IndexedSlices))
    grad = grads[branch]

    def or_no_rows(rows: tf.Tensor) -> tf.Tensor:
        none = tf.zeros([0, *rows.shape[1:]], rows.dtype)
        other = tf.raw_ops.Switch(data=none, pred=op.inputs[1])[1 - branch]
        return tf.raw_ops.Merge(inputs=[rows, other]).output

    slices = tf.IndexedSlices(or_no_rows(grad.values), or_no_rows(grad.indices), grad.dense_shape)
    return [slices, None]


@contextlib.contextmanager
def branch_gradients() -> Iterator[None]:
    """Makes the table lookups built inside differentiable in branches of TF1's tf.cond."""
    if tf.executing_eagerly():
        yield
    else:
        with tf.compat.v1.get_default_graph().gradient_override_map({"Switch": _GRADIENT}):
            yield


def refuse_loops(op: tf.Operation, tables: Sequence[tf.Tensor]) -> None:
    """Raises if the gradient of a lookup is being built for a loop whose body has the lookup.

    A gradient within the body, of a training step in a loop, is fine.

    Args:
        op: The lookup.
        tables: Its handles of tables.

    Raises:
        NotImplementedError: Names the tables.
    """
    if tf.executing_eagerly():
        return
    made = op.outputs[0].op  # a gradient tape has a stand-in for the op
    if not (_is_in_loop_of_v1(made) or _is_in_loop_of_v2(made)):
        return
    names = ", ".join(repr(_name_of(table)) for table in tables)
    raise NotImplementedError(
        f"the gradient of EmbeddingVariable {names} was asked for, but its lookup is in the body "
        "of a tf.while_loop (tf.map_fn, tf.scan, dynamic_rnn and loops of AutoGraph make one), "
        "over which TensorFlow sums gradients in a dense tensor that a table does not have: look "
        "keys up outside of tf.while_loop, all of them before it"
    )


def _is_in_loop_of_v1(op: tf.Operation) -> bool:
    """Whether `op` is in a loop that the gradient, which has a loop of its own, is not in."""
    context = op._get_control_flow_context()
    while context is not None and not context.IsWhileContext():
        context = context.outer_context
    here = tf.compat.v1.get_default_graph()._get_control_flow_context()
    while here is not None and here is not context:
        here = here.outer_context
    return context is not None and here is None


def _is_in_loop_of_v2(op: tf.Operation) -> bool:
    """Whether a loop's gradient is being built, and `op` is not one that it has itself."""
    own = list(_outwards(op.graph))
    return any(
        isinstance(graph, WhileBodyGradGraph) and not any(graph is one for one in own)
        for graph in _outwards(tf.compat.v1.get_default_graph())
    )


def _outwards(graph: Any) -> Iterator[Any]:
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def _name_of(handle: tf.Tensor) -> str:
    """The table of a handle, however many functions and branches that was passed to."""
    while hasattr(handle, "graph") and not hasattr(handle, _TABLE_NAME):
        captures = getattr(handle.graph, "captures", ())
        outer = [outside for outside, inside in captures if inside is handle]
        if not outer and handle.op.type in ("Enter", "Switch", "Identity"):
            outer = [handle.op.inputs[0]]
        if not outer:
            return handle.op.name
        handle = outer[0]
    return getattr(handle, _TABLE_NAME, "of a function")
