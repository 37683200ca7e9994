"""Of which EmbeddingVariables a graph reads how often keys have occurred."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.ops.tf_private import function_def_to_graph
from fused_embedding.serving.signatures import Signature, op_types
from fused_embedding.variable.storage_options import TABLE_HANDLES

_ADMIT = "EmbeddingVariableAdmit"
# Ops that call functions, and how many of their inputs come before those of the functions.
_CALLS = {
    "PartitionedCall": 0,
    "StatefulPartitionedCall": 0,
    "If": 1,
    "StatelessIf": 1,
    "Case": 1,
    "StatelessCase": 1,
    "While": 0,
    "StatelessWhile": 0,
}


def counted_handles(signature: Signature) -> set[str]:
    """The tables of which a signature reads how often keys have occurred.

    Args:
        signature: Of functions or of a TF1 graph.

    Returns:
        Names of the tensors in its graph that are their handles.
    """
    graph = signature.graph
    if _ADMIT not in op_types(graph):
        return set()
    captured = [inside.name for _, inside in signature.captures]
    made = [op.outputs[0].name for op in graph.get_operations() if op.type in TABLE_HANDLES]
    return _Walk(graph).counted(graph, {name: name for name in captured + made})


def captured_counted(signatures: Iterable[Signature]) -> set[int]:
    """The tables of which signatures of functions read how often keys have occurred.

    Args:
        signatures: Of functions.

    Returns:
        Ids of the handles that they capture.
    """
    found: set[int] = set()
    for signature in signatures:
        counted = counted_handles(signature)
        found.update(id(handle) for handle, inside in signature.captures if inside.name in counted)
    return found


class _Walk:
    """Follows handles through a graph and the functions that it calls."""

    def __init__(self, graph: tf.Graph) -> None:
        self._graph = graph
        self._functions = {f.signature.name: f for f in graph.as_graph_def().library.function}

    def counted(self, graph: tf.Graph, origins: Mapping[str, str]) -> set[str]:
        """Those whose counts are read.

        Args:
            graph: The graph, or the body of a function.
            origins: By the name of a tensor of the graph: the handle that it is.
        """
        known, found = dict(origins), set()
        for op in graph.get_operations():
            inputs = [known.get(tensor.name) for tensor in op.inputs]
            if op.type == "Identity" and inputs[0] is not None:
                known[op.outputs[0].name] = inputs[0]
            elif op.type == _ADMIT:
                found |= _read_counts(op, inputs)
            elif op.type in _CALLS and any(inputs):
                found |= self._counted_by_functions(op, inputs[_CALLS[op.type] :])
        return found

    def _counted_by_functions(self, op: tf.Operation, handles: Sequence[str | None]) -> set[str]:
        found: set[str] = set()
        for name in _function_names(op):
            with self._graph.as_default():
                body: Any = function_def_to_graph(self._functions[name])
            pairs = zip(body.inputs, handles, strict=True)
            found |= self.counted(body, {t.name: handle for t, handle in pairs if handle})
        return found


def _function_names(op: tf.Operation) -> list[str]:
    attrs = op.node_def.attr.values()
    single = [attr.func.name for attr in attrs if attr.func.name]
    return single + [function.name for attr in attrs for function in attr.list.func]


def _read_counts(op: tf.Operation, inputs: Sequence[str | None]) -> set[str]:
    """Handles of the tables whose frequencies, an output of the op, are read."""
    tables = op.get_attr("table_of_column")
    frequencies = op.outputs[len(tables) :]
    pairs = zip(tables, frequencies, strict=True)
    read = {inputs[table] for table, tensor in pairs if _is_read(tensor)}
    return {handle for handle in read if handle is not None}


def _is_read(tensor: tf.Tensor) -> bool:
    """Whether an op or a caller reads a tensor of a graph."""
    results = getattr(tensor.graph, "outputs", ())
    return bool(tensor.consumers()) or any(tensor is result for result in results)
