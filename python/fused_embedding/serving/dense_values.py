"""Dense variables of an export, found again in checkpoints of the model."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from fused_embedding.checkpoint.object_based import OBJECT_GRAPH, VALUE


def paths_of_variables(model: Any) -> dict[int, str]:
    """Where a model keeps its variables: attributes from the model on, joined by "/".

    Args:
        model: What a tf.train.Checkpoint may track.

    Returns:
        By the id of a variable's handle: the shortest path.
    """
    view = tf.train.TrackableView(model)
    paths: dict[int, str] = {}
    seen, waiting = {id(model)}, deque([("", model)])
    while waiting:
        path, owner = waiting.popleft()
        handle = getattr(owner, "handle", None)
        if handle is not None:
            paths.setdefault(id(handle), path)
        for name, child in view.children(owner).items():
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append((f"{path}/{name}" if path else name, child))
    return paths


class DenseValues:
    """Dense variables in a checkpoint.

    Args:
        checkpoint: Prefix of a checkpoint by a Saver or a tf.train.Checkpoint.
    """

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._reader = tf.train.load_checkpoint(checkpoint)
        self._shapes = self._reader.get_variable_to_shape_map()
        self._graph = TrackableObjectGraph()
        if OBJECT_GRAPH in self._shapes:
            self._graph.ParseFromString(self._reader.get_tensor(OBJECT_GRAPH))

    def read(self, name: str, shape: list[int], dtype: tf.DType) -> Any:
        """The value of a variable, as an array.

        Args:
            name: As the checkpoint has it, or a path from the model on.
            shape: Of the variable.
            dtype: Of the variable.

        Raises:
            ValueError: If the checkpoint does not have it, or has something else by its name.
        """
        keys = self._keys(name)
        if len(keys) != 1:
            raise ValueError(
                f"the checkpoint {self._checkpoint} has {len(keys)} variables {name!r}, and the "
                "export has one: give its name in the checkpoint in names, or pass dense=False, "
                "which leaves dense variables as they are"
            )
        (key,) = keys
        value = self._reader.get_tensor(key)
        if list(value.shape) != shape or tf.as_dtype(value.dtype) != dtype:
            raise ValueError(
                f"the variable {name!r} has {value.dtype.name} of shape {list(value.shape)} in the "
                f"checkpoint {self._checkpoint} and {dtype.name} of shape {shape} in the export: "
                "export the model that is saved"
            )
        return value

    def _keys(self, name: str) -> set[str]:
        for key in (name, name + VALUE):
            if key in self._shapes:
                return {key}
        # The model is what the checkpoint tracks, or an attribute of it.
        return {key for start in self._starts() for key in self._value_keys(start, name)}

    def _starts(self) -> Iterator[int]:
        if self._graph.nodes:
            yield 0
            yield from {child.node_id for child in self._graph.nodes[0].children}

    def _value_keys(self, node: int, path: str) -> Iterator[str]:
        """The key of what is at a path from a node on, if there is something."""
        for name in path.split("/"):
            children = {c.local_name: c.node_id for c in self._graph.nodes[node].children}
            if name not in children:
                return
            node = children[name]
        for attribute in self._graph.nodes[node].attributes:
            if attribute.checkpoint_key.endswith(VALUE):
                yield attribute.checkpoint_key
