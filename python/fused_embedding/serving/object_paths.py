"""Where a model keeps its variables and tables, and where a checkpoint of it has them."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from fused_embedding.checkpoint.object_based import FILES, OBJECT_GRAPH, VALUE
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable


def paths_of_variables(model: Any) -> dict[int, str]:
    """Where a model keeps its variables: attributes from the model on, joined by "/".

    Args:
        model: What a tf.train.Checkpoint may track.

    Returns:
        By the id of a variable's handle: the shortest path.
    """
    paths: dict[int, str] = {}
    for path, owner in _objects(model):
        handle = getattr(owner, "handle", None)
        if handle is not None:
            paths.setdefault(id(handle), path)
    return paths


def paths_of_tables(model: Any) -> dict[int, str]:
    """The shortest paths of EmbeddingVariables by the ids of their handles, joined by "/".

    All partitions of a variable have the path of the whole variable.
    """
    paths: dict[int, str] = {}
    for path, owner in _objects(model):
        for part in _partitions(owner):
            paths.setdefault(id(part.handle), path)
    return paths


def _partitions(owner: Any) -> list[EmbeddingVariable]:
    if isinstance(owner, PartitionedEmbeddingVariable):
        return list(owner)
    return [owner] if isinstance(owner, EmbeddingVariable) else []


def _objects(model: Any) -> Iterator[tuple[str, Any]]:
    """What a model keeps, with the shortest path to each, those of short paths first."""
    view = tf.train.TrackableView(model)
    seen, waiting = {id(model)}, deque([("", model)])
    while waiting:
        path, owner = waiting.popleft()
        yield path, owner
        for name, child in view.children(owner).items():
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append((f"{path}/{name}" if path else name, child))


class SavedObjects:
    """What a checkpoint has at which path.

    Attributes:
        reader: Of its tensors.
        shapes: Of its tensors by name.

    Args:
        checkpoint: Prefix of a checkpoint by a Saver or a tf.train.Checkpoint.
    """

    def __init__(self, checkpoint: str) -> None:
        self.reader = tf.train.load_checkpoint(checkpoint)
        self.shapes = self.reader.get_variable_to_shape_map()
        self._graph = TrackableObjectGraph()
        if OBJECT_GRAPH in self.shapes:
            self._graph.ParseFromString(self.reader.get_tensor(OBJECT_GRAPH))

    def variables_at(self, path: str) -> set[str]:
        """Names of the tensors of dense variables at a path from the model on."""
        keys = (
            attribute.checkpoint_key
            for node in self._nodes_at(path)
            for attribute in self._graph.nodes[node].attributes
        )
        return {key for key in keys if key.endswith(VALUE)}

    def tables_at(self, path: str) -> set[str]:
        """Names of the EmbeddingVariables at a path from the model on."""
        names = {
            self._graph.nodes[node].registered_saver.object_name for node in self._nodes_at(path)
        }
        return {name for name in names if name + FILES in self.shapes}

    def _nodes_at(self, path: str) -> Iterator[int]:
        # The model is what the checkpoint tracks, or an attribute of it.
        for start in self._starts() if path else ():
            node = self._descendant(start, path.split("/"))
            if node is not None:
                yield node

    def _starts(self) -> Iterator[int]:
        if self._graph.nodes:
            yield 0
            yield from {child.node_id for child in self._graph.nodes[0].children}

    def _descendant(self, node: int, names: list[str]) -> int | None:
        for name in names:
            children = {c.local_name: c.node_id for c in self._graph.nodes[node].children}
            if name not in children:
                return None
            node = children[name]
        return node
