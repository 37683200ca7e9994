"""Files beside a checkpoint that hold tables as streams.

A file is `PREFIX.data-xxxxx-of-xxxxx`: TensorFlow removes what looks so together with the
checkpoint PREFIX, and its own files have digits there. The rows of a table with a tier on an SSD
are further files of that form, which the table's file names.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.tf_private import colocate_with
from fused_embedding.variable import readiness
from fused_embedding.variable.content import expire_before_save
from fused_embedding.variable.embedding_variable import EmbeddingVariable

_MARK = "e"  # what a name starts with: never a digit
_DIGITS = "abcdefghijklmnopqrstuvwxyz234567"
TAG_SIZE = 5  # letters of Drawn.tag

# Saves of a series: a restore reads all of their files.
MAX_LINKS = 16
# Files of a tag, each in MAX_LINKS saves. Half of the names are for RocksDB's files.
_MAX_FILES = len(_DIGITS) ** 4 // 2 // MAX_LINKS


class Drawn(NamedTuple):
    """Names of files that no other save gives.

    With the tag "abcde", file 0 of a save is `.data-eabcd-of-eaaaa`.
    """

    tag: Any = ""  # string scalar of TAG_SIZE letters; "": names are those of `suffix_of`
    first: int = 0  # number of the first file


class Continued(NamedTuple):
    """The checkpoint that an incremental save continues."""

    prefix: Any  # string scalar
    num_links: Any  # int scalar: saves in its series so far; 0: none, a series begins
    tag: Any  # string scalar: Drawn.tag of its files


def suffix_of(name: str, index: int, link: int = 0) -> str:
    """What follows the prefix of a checkpoint for one partition of a table, where none is drawn.

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
    """Whether it may follow the prefix of a checkpoint for a table's file, in UTF-8."""
    return re.fullmatch(rf"\.data-{_MARK}[a-z2-7]{{4}}-of-[a-z2-7]{{5}}".encode(), text) is not None


def tag_of(suffix: str) -> str:
    """The tag with which a suffix was drawn, if it was."""
    return re.sub(r"\.data-.(.{4})-of-(.).{4}", r"\1\2", suffix)


def pattern_of(tag: str) -> str:
    """A pattern, as of glob, of the suffixes of a tag."""
    return f".data-{_MARK}{tag[:4]}-of-{tag[4:]}????"


def save(
    parts: Sequence[EmbeddingVariable],
    prefix: tf.Tensor,
    name: str,
    continued: Continued | None = None,
    as_one_file: bool = False,
    drawn: Drawn = Drawn(),  # noqa: B008  # immutable
) -> tf.Tensor:
    """Writes a file for each partition, after what expires is gone.

    Args:
        parts: All partitions of a variable.
        prefix: String scalar, of the checkpoint.
        name: Of the variable in the checkpoint.
        continued: Of an incremental save: what it continues. One of a table with a tier on an SSD
            has all: most of it are hard links.
        as_one_file: Whether the rows of such a table are in the one file of each partition.
        drawn: How the files are named.

    Returns:
        `[p]` strings, what comes after the prefix; `[k, p]` of the k saves of a series. Once it is
        there, the files are.
    """
    is_series = continued is not None
    if parts[0].option.storage_option.is_on_ssd:
        continued = None
    suffixes = _suffixes(name, len(parts), 1 if continued is None else MAX_LINKS, drawn)
    older = None if continued is None else _older_paths(name, len(parts), continued, drawn)
    with tf.control_dependencies(expire_before_save(parts)):
        saved = []
        for index, part in enumerate(parts):
            files = _Files(prefix, suffixes[:, index], None if older is None else older[:, index])
            with colocate_with(part.handle):
                saved.append(_save_part(part, files, as_one_file))
    with tf.control_dependencies([operation for operation in saved if operation is not None]):
        if continued is None:
            return tf.identity(suffixes if is_series else suffixes[0])
        return tf.identity(suffixes[: continued.num_links + 1])


class _Files(NamedTuple):
    """The files of one partition."""

    prefix: tf.Tensor  # of the checkpoint
    suffixes: tf.Tensor  # `[k]`, of each save of its series
    older_paths: tf.Tensor | None  # `[k - 1]`, in the checkpoint that it continues


def _suffixes(name: str, num_parts: int, num_links: int, drawn: Drawn) -> tf.Tensor:
    """`[num_links, num_parts]` suffixes of a table's files."""
    links, parts = range(num_links), range(num_parts)
    fixed = tf.constant([[suffix_of(name, index, link) for index in parts] for link in links])
    if isinstance(drawn.tag, str) and not drawn.tag:
        return fixed
    if drawn.first + num_parts > _MAX_FILES:
        raise ValueError(
            f"a checkpoint holds at most {_MAX_FILES} partitions of tables, got more with {name!r}"
        )
    numbers = [[(drawn.first + index) * MAX_LINKS + link for index in parts] for link in links]
    ends = tf.constant([[_letters(number) for number in of_link] for of_link in numbers])
    tag = tf.strings.join([drawn.tag, "-" * TAG_SIZE])  # there is a letter where it is ""
    start, middle = tf.strings.substr(tag, 0, TAG_SIZE - 1), tf.strings.substr(tag, TAG_SIZE - 1, 1)
    names = tf.strings.join([f".data-{_MARK}", start, "-of-", middle, ends])
    return tf.where(tf.equal(drawn.tag, ""), fixed, names)


def _letters(number: int) -> str:
    """Four digits to the base 32."""
    return "".join(_DIGITS[number >> shift & 31] for shift in (15, 10, 5, 0))


def _older_paths(name: str, num_parts: int, continued: Continued, drawn: Drawn) -> tf.Tensor:
    """`[num_links, num_parts]` files of the checkpoint that is continued."""
    older = _suffixes(name, num_parts, MAX_LINKS, drawn._replace(tag=continued.tag))
    return tf.strings.join([continued.prefix, older[: continued.num_links]])


def _save_part(part: EmbeddingVariable, files: _Files, as_one_file: bool) -> tf.Operation | None:
    paths = tf.strings.join([files.prefix, files.suffixes])
    if files.older_paths is None:
        return raw_ops.EmbeddingVariableSave(
            resource=part.handle, path=paths[0], as_one_file=as_one_file
        )
    num_links = tf.shape(files.older_paths)[0]
    return raw_ops.EmbeddingVariableSaveIncrement(
        resource=part.handle,
        path=paths[num_links],
        base_paths=files.older_paths,
        link_paths=paths[:num_links],
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


def eager_value(prefix: Any) -> str | None:
    """The prefix as a string; None where it is known when the graph runs."""
    if isinstance(prefix, str):
        return prefix
    return prefix.numpy().decode() if hasattr(prefix, "numpy") else None
