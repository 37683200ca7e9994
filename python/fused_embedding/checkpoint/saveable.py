"""The SaveableObject of an EmbeddingVariable for tf.compat.v1.train.Saver."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.checkpoint import first_content
from fused_embedding.ops.placement import on_cpu
from fused_embedding.ops.tf_private import SaveableObject, SaveSpec
from fused_embedding.variable import readiness
from fused_embedding.variable.content import (
    CONTENT_NAMES,
    content_dtypes,
    export_whole,
    import_whole,
)
from fused_embedding.variable.embedding_variable import EmbeddingVariable


class EmbeddingVariableSaveable(SaveableObject):
    """Saves an EmbeddingVariable as tensors `NAME-keys`, `NAME-values`, ... (docs/checkpoints.md).

    One object saves all partitions. Its ops are made when a Saver is built, because the global step
    may not exist before.
    """

    def __init__(self, parts: Sequence[EmbeddingVariable], prefix: str | None = None) -> None:
        """Makes the object.

        Args:
            parts: All partitions of one variable.
            prefix: Prefix of its tensors' names; None: the name of the variable.
        """
        self.parts = list(parts)
        self.prefix = prefix or parts[0].partition.whole_name
        specs = [
            SaveSpec(
                functools.partial(self._tensor, name),
                slice_spec="",
                name=f"{self.prefix}-{name}",
                dtype=dtype,
                device=parts[0].handle.device,
            )
            for name, dtype in content_dtypes(parts[0]).items()
        ]
        # An exported MetaGraph has the names of a collection's items, which must be in the graph.
        super().__init__(parts[0].handle, specs, parts[0].handle.op.name)

    @functools.cached_property
    def _content(self) -> dict[str, tf.Tensor]:
        scope = f"{self.parts[0].partition.whole_name}/export/"
        with tf.name_scope(""), tf.name_scope(scope):
            return export_whole(self.parts)

    def _tensor(self, name: str) -> tf.Tensor:
        return self._content[name]

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> Any:
        """The operation that replaces the content of all partitions."""
        for part in self.parts:
            readiness.wait_for_restore(part.handle)
        operation = first_content.instead_of_restoring(self.parts)
        if operation is not None:
            return operation
        with on_cpu():  # but for what is beside the tables
            return import_whole(self.parts, dict(zip(CONTENT_NAMES, restored_tensors, strict=True)))
