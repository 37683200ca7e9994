"""Checkpoints of DeepRec, recommenders-addons and stock variables to ours and back.

`python -m fused_embedding convert SOURCE DESTINATION` does it: docs/migration/.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from fused_embedding.variable.content import CONTENT_NAMES, content_dtypes, import_whole
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable
from fused_embedding.variable.scope import AnyEmbeddingVariable

__all__ = ["restore"]


def __dir__() -> list[str]:
    return sorted(__all__)


def restore(path: str, variables: Mapping[str, AnyEmbeddingVariable]) -> Any:
    """Restores EmbeddingVariables, eagerly too, from a checkpoint that has tables as tensors.

    Args:
        path: Prefix of a checkpoint of the command `convert` or of tf.compat.v1.train.Saver.
        variables: EmbeddingVariables by their names in the checkpoint.

    Returns:
        The operation, in a graph.

    Raises:
        ValueError: If the checkpoint has no such table.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     table = fe.get_embedding_variable("users", 4)
    ...     _ = session.run(table.upsert([7], [[1.0, 2.0, 3.0, 4.0]]))
    ...     path = tf.compat.v1.train.Saver().save(session, "/tmp/users")
    >>> restored = fe.get_embedding_variable("users", 4)
    >>> fe.convert.restore("/tmp/users", {"users": restored})
    >>> int(restored.total_count())
    1
    """
    shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    operations = []
    for name, variable in variables.items():
        is_whole = isinstance(variable, PartitionedEmbeddingVariable)
        parts = list(variable) if is_whole else [variable]
        names = [f"{name}-{column}" for column in CONTENT_NAMES]
        missing = [tensor for tensor in names if tensor not in shapes]
        if missing:
            raise ValueError(
                f"checkpoint {path!r} has no tensor {missing[0]!r}: convert it first with python "
                "-m fused_embedding convert, or use what wrote it"
            )
        content = tf.raw_ops.RestoreV2(
            prefix=path,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            dtypes=list(content_dtypes(parts[0]).values()),
        )
        operations.append(import_whole(parts, dict(zip(CONTENT_NAMES, content, strict=True))))
    return None if tf.executing_eagerly() else tf.group(*operations)
