"""Graphs that FE_DISABLE must leave to stock TensorFlow, and comparisons node by node."""

import contextlib
import re

import tensorflow as tf

OURS = (
    "FusedEmbedding",
    "EmbeddingVariable",
    "PruneInvalid",
    "UniqueWithCountsV3",
    "PartitionWith",
)
NOTES = ("_fe_reason", "_fe_stock")  # read by fe.explain alone


def nodes_of(graph):
    """All nodes of a graph and of its functions, without the notes of fe.explain."""
    definition = graph if isinstance(graph, tf.compat.v1.GraphDef) else graph.as_graph_def()
    nodes = list(definition.node)
    for function in definition.library.function:
        nodes += function.node_def
    for node in nodes:
        for note in NOTES:
            node.attr.pop(note, None)
    return nodes


def _texts_of(graph):
    """The nodes as text, without what is random or counts the objects of a process.

    Those are the shared names of hash tables, and the names of tensors that a function captures.
    """
    captured: dict[str, str] = {}

    def number(match):
        return captured.setdefault(match[0], f"captured_{len(captured)}")

    texts = [re.sub("hash_table_[0-9a-f-]{36}", "hash_table", str(n)) for n in nodes_of(graph)]
    return [re.sub(r'(?<=["/])\d+(?=")', number, text) for text in texts]


def assert_same_graph(got, want):
    """Graphs have the same nodes in the same order: names, ops, inputs, devices, attributes."""
    got, want = _texts_of(got), _texts_of(want)
    for one, other in zip(got, want, strict=False):
        assert one == other
    assert len(got) == len(want)


def assert_no_op_of_ours(graph):
    """No op of this package is in a graph or its functions."""
    ours = [n.op for n in nodes_of(graph) if n.op.startswith(OURS)]
    assert not ours


@contextlib.contextmanager
def new_graph(**scope):
    """A graph whose variables are resource variables; yields it."""
    scope = {"use_resource": True, **scope}
    with tf.Graph().as_default() as graph, tf.compat.v1.variable_scope("", **scope):
        tf.compat.v1.set_random_seed(1)
        yield graph
