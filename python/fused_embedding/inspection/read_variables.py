"""Which variables of a GraphDef are embedding tables: those that a lookup or gather reads."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from fused_embedding.variable.storage_options import TABLE_HANDLES

VARIABLES = ("VarHandleOp", "Variable", "VariableV2")
_SOURCES = (*VARIABLES, *TABLE_HANDLES, "Placeholder")
# Ops that read rows of their first input, and those that may read several tables.
_GATHERS = (
    *("Gather", "GatherV2", "ResourceGather", "ResourceGatherNd"),
    *("FusedEmbeddingGather", "FusedEmbeddingResourceGather", "EmbeddingVariableLookup"),
)
_GROUPS = (
    *("FusedEmbeddingGroupLookup", "FusedEmbeddingResourceGroupLookup"),
    *("FusedEmbeddingRemoteRows", "FusedEmbeddingResourceRemoteRows"),
    *("EmbeddingVariableGroupLookup", "EmbeddingVariableRemoteRows"),
)
# Ops whose first input is, or has, the table that their output has.
_PASSES_ON = ("Cast", "Enter", "Identity", "ReadVariableOp", "RefSwitch", "Switch")
_CONDITIONALS = ("If", "StatelessIf", "Case", "StatelessCase")  # their first input is a condition
Nodes = dict[str, Any]


def read_variables(definition: tf.compat.v1.GraphDef) -> set[str]:
    """Names of the nodes that stand for tables.

    Args:
        definition: A graph, with its functions.

    Returns:
        Names of ops that make variables; in a function's graph, of placeholders of handles.
    """
    functions = {f.signature.name: f for f in definition.library.function}
    nodes = {node.name: node for node in definition.node}
    names = _read_in(nodes, functions, {})
    return {name for name in names if name in nodes and _is_source(nodes[name])}


def _is_source(node: Any) -> bool:
    is_handle = node.attr["dtype"].type == tf.resource.as_datatype_enum
    return node.op in _SOURCES and (node.op != "Placeholder" or is_handle)


def _read_in(nodes: Nodes, functions: dict[str, Any], known: dict[str, set[str]]) -> set[str]:
    """Names of nodes, and of a function's arguments, that are read as tables."""
    return {
        _origin(name, nodes)
        for node in nodes.values()
        for name in _table_inputs(node, functions, known)
    }


def _table_inputs(
    node: Any, functions: dict[str, Any], known: dict[str, set[str]]
) -> Iterator[str]:
    if node.op in (*_GATHERS, *_GROUPS):
        yield from node.input[:1] if node.op in _GATHERS else node.input
        return
    offset = 1 if node.op in _CONDITIONALS else 0
    for called in _called(node):
        if called in functions:
            arguments = [one.name for one in functions[called].signature.input_arg]
            read = _read_by(called, functions, known)
            inputs = node.input[offset:]
            yield from (name for name, arg in zip(inputs, arguments, strict=False) if arg in read)


def _called(node: Any) -> Iterator[str]:
    for attr in node.attr.values():
        if attr.HasField("func"):
            yield attr.func.name
        yield from (function.name for function in attr.list.func)


def _read_by(name: str, functions: dict[str, Any], known: dict[str, set[str]]) -> set[str]:
    """The arguments that a function reads as tables."""
    if name not in known:
        known[name] = set()  # a function that calls itself reads no more than it reads
        nodes = {node.name: node for node in functions[name].node_def}
        known[name] = _read_in(nodes, functions, known)
    return known[name]


def _origin(name: str, nodes: Nodes) -> str:
    """The node or argument that the table of an input is made by."""
    seen: set[str] = set()
    name = name.partition(":")[0]
    while name in nodes and name not in seen and nodes[name].op in _PASSES_ON:
        seen.add(name)
        name = nodes[name].input[0].partition(":")[0]
    return name
