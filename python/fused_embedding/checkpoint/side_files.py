"""Files beside a checkpoint that hold tables as streams.

A file is `PREFIX.data-xxxxx-of-xxxxx`: TensorFlow removes what looks so together with the
checkpoint PREFIX, and its own files have digits there. The rows of a table with a tier on an SSD
are further files of that form, which the table's file names.
"""

import base64
import contextlib
import glob
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding import raw_ops, readiness
from fused_embedding._tf_private import colocate_with
from fused_embedding.checkpoint.content import expire_before_save
from fused_embedding.embedding_variable import EmbeddingVariable

_MARK = "e"  # what a name starts with: never a digit
_NAMES = f"{_MARK}????-of-?????"


# Saves of a series: a restore reads all of their files.
MAX_LINKS = 16


class Continued(NamedTuple):
    """The checkpoint that an incremental save continues."""

    prefix: Any  # string scalar
    num_links: Any  # int scalar: saves in its series so far; 0: none, a series begins


def suffix_of(name: str, index: int, link: int = 0) -> str:
    """What comes after the prefix of a checkpoint for one partition of a table.

    Args:
        name: Of the variable in the checkpoint.
        index: Of the partition.
        link: Number of saves in its series that are before the one with the file.
    """
    what = f"{name}:{index}:{link}" if link else f"{name}:{index}"
    digest = hashlib.sha256(what.encode()).digest()
    text = _MARK + base64.b32encode(digest).decode().lower()
    return f".data-{text[:5]}-of-{text[5:10]}"


def is_suffix(text: bytes) -> bool:
    """Whether it is what `suffix_of` may return, in UTF-8."""
    return re.fullmatch(rf"\.data-{_MARK}[a-z2-7]{{4}}-of-[a-z2-7]{{5}}".encode(), text) is not None


def save(
    parts: Sequence[EmbeddingVariable],
    prefix: tf.Tensor,
    name: str,
    continued: Continued | None = None,
    as_one_file: bool = False,
) -> tf.Tensor:
    """Writes a file for each partition, after what expires is gone.

    Args:
        parts: All partitions of a variable.
        prefix: String scalar, of the checkpoint.
        name: Of the variable in the checkpoint.
        continued: Of an incremental save: what it continues. One of a table with a tier on an SSD
            has all: most of it are hard links.
        as_one_file: Whether the rows of such a table are in the one file of each partition.

    Returns:
        `[p]` strings, what comes after the prefix; `[k, p]` of the k saves of a series. Once it is
        there, the files are.
    """
    is_series = continued is not None
    if parts[0].option.storage_option.is_on_ssd:
        continued = None
    num_names = 1 if continued is None else MAX_LINKS
    suffixes = [[suffix_of(name, i, link) for i in range(len(parts))] for link in range(num_names)]
    with tf.control_dependencies(expire_before_save(parts)):
        saved = []
        for part, of_part in zip(parts, zip(*suffixes, strict=True), strict=True):
            with colocate_with(part.handle):
                saved.append(_save_part(part, prefix, of_part, continued, as_one_file))
    with tf.control_dependencies([operation for operation in saved if operation is not None]):
        if continued is None:
            return tf.constant(suffixes if is_series else suffixes[0])
        return tf.constant(suffixes)[: continued.num_links + 1]


def _save_part(
    part: EmbeddingVariable,
    prefix: tf.Tensor,
    suffixes: Sequence[str],
    continued: Continued | None,
    as_one_file: bool,
) -> tf.Operation | None:
    if continued is None:
        return raw_ops.EmbeddingVariableSave(
            resource=part.handle,
            path=tf.strings.join([prefix, suffixes[0]]),
            as_one_file=as_one_file,
        )
    names = tf.constant(suffixes)
    older = names[: continued.num_links]
    return raw_ops.EmbeddingVariableSaveIncrement(
        resource=part.handle,
        path=tf.strings.join([prefix, names[continued.num_links]]),
        base_paths=tf.strings.join([continued.prefix, older]),
        link_paths=tf.strings.join([prefix, older]),
    )


def restore(
    parts: Sequence[EmbeddingVariable], prefix: tf.Tensor, suffixes: tf.Tensor
) -> list[tf.Operation]:
    """Replaces the content of all partitions by that of files; each keeps its keys.

    Args:
        parts: All partitions of a variable, or one that was saved alone.
        prefix: String scalar, of the checkpoint.
        suffixes: `[p]` or `[k, p]` strings that `save` returned; p may differ from the number of
            partitions.

    Returns:
        The operations; none eagerly.
    """
    paths = tf.strings.join([prefix, suffixes])
    operations = []
    for index, part in enumerate(parts):
        readiness.wait_for_restore(part.handle)
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
                if os.path.isdir(path):  # a save was cut off while it took a folder apart
                    shutil.rmtree(path)
                else:
                    os.remove(path)


def eager_value(prefix: Any) -> str | None:
    """The prefix as a string; None where it is known when the graph runs."""
    return prefix.numpy().decode() if hasattr(prefix, "numpy") else None
