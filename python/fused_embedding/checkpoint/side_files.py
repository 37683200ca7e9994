"""Files beside a checkpoint that hold tables as streams.

A file is `PREFIX.data-xxxxx-of-xxxxx`: TensorFlow removes what looks so together with the
checkpoint PREFIX, and its own files have digits there.
"""

import base64
import contextlib
import glob
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding import raw_ops
from fused_embedding._tf_private import colocate_with
from fused_embedding.checkpoint.content import expire_before_save
from fused_embedding.embedding_variable import EmbeddingVariable

_MARK = "e"  # what a name starts with: never a digit
_NAMES = f"{_MARK}????-of-?????"


def suffix_of(name: str, index: int) -> str:
    """What comes after the prefix of a checkpoint for one partition of a table."""
    digest = hashlib.sha256(f"{name}:{index}".encode()).digest()
    text = _MARK + base64.b32encode(digest).decode().lower()
    return f".data-{text[:5]}-of-{text[5:10]}"


def save(parts: Sequence[EmbeddingVariable], prefix: tf.Tensor, name: str) -> tf.Tensor:
    """Writes a file for each partition, after what expires is gone.

    Args:
        parts: All partitions of a variable.
        prefix: String scalar, of the checkpoint.
        name: Of the variable in the checkpoint.

    Returns:
        `[p]` strings, what comes after the prefix. Once it is there, the files are.
    """
    suffixes = [suffix_of(name, i) for i in range(len(parts))]
    with tf.control_dependencies(expire_before_save(parts)):
        saved = []
        for part, suffix in zip(parts, suffixes, strict=True):
            with colocate_with(part.handle):
                path = tf.strings.join([prefix, suffix])
                saved.append(raw_ops.EmbeddingVariableSave(resource=part.handle, path=path))
    with tf.control_dependencies([operation for operation in saved if operation is not None]):
        return tf.constant(suffixes)


def restore(
    parts: Sequence[EmbeddingVariable], prefix: tf.Tensor, suffixes: tf.Tensor
) -> list[tf.Operation]:
    """Replaces the content of all partitions by that of files; each keeps its keys.

    Args:
        parts: All partitions of a variable, or one that was saved alone.
        prefix: String scalar, of the checkpoint.
        suffixes: `[p]` strings that `save` returned; p may differ from the number of partitions.

    Returns:
        The operations; none eagerly.
    """
    paths = tf.strings.join([prefix, suffixes])
    operations = []
    for index, part in enumerate(parts):
        with colocate_with(part.handle):
            operation = raw_ops.EmbeddingVariableRestore(
                resource=part.handle,
                paths=paths,
                partition_index=index,
                num_partitions=len(parts),
                partition_strategy=part.partition.strategy,
            )
            operations += [] if operation is None else [operation]
    return operations


@contextlib.contextmanager
def without_orphans(prefix: str) -> Iterator[None]:
    """Removes files of checkpoints that were not finished: before, and after an error inside.

    Args:
        prefix: Of the checkpoint that is written inside, as `DIR/NAME-NUMBER`.
    """
    series = re.sub(r"(?<=-)\d+$", "", prefix)
    _remove_orphans(series, but=prefix)
    try:
        yield
    except BaseException:
        _remove_orphans(series, but="")
        raise


def _remove_orphans(series: str, but: str) -> None:
    """Removes side files of the checkpoints of a series that are not there."""
    number = r"\d+" if series.endswith("-") else ""
    for path in glob.glob(f"{glob.escape(series)}*.data-{_NAMES}*"):
        prefix = path[: path.rindex(".data-")]
        is_of_series = re.fullmatch(number, prefix[len(series) :])
        if is_of_series and prefix != but and not os.path.exists(prefix + ".index"):
            with contextlib.suppress(OSError):
                os.remove(path)


def eager_value(prefix: Any) -> str | None:
    """The prefix as a string; None where it is known when the graph runs."""
    return prefix.numpy().decode() if hasattr(prefix, "numpy") else None
