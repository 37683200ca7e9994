"""Files beside a checkpoint with the streamed content of tables.

A file is called `PREFIX.data-xxxxx-of-xxxxx`. TensorFlow removes files with such names together
with the checkpoint PREFIX; its own files have digits instead of letters. The rows of a table with a
tier on an SSD are in further files of that form, whose names are in the table's file.
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

_MARK = "e"  # first letter of a name; must not be a digit
_DIGITS = "abcdefghijklmnopqrstuvwxyz234567"
TAG_SIZE = 5  # letters of Drawn.tag

# Maximum number of saves in a series. A restore reads the files of all of them.
MAX_LINKS = 16
# Maximum number of files per tag, each in MAX_LINKS saves. Half of the names are reserved for
# RocksDB's files.
_MAX_FILES = len(_DIGITS) ** 4 // 2 // MAX_LINKS


class Drawn(NamedTuple):
    """Randomly drawn file names, which no other save uses.

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
    """The fixed suffix of the file of one partition of a table, for saves that draw no names.

    Args:
        name: Name of the variable in the checkpoint.
        index: Number of the partition.
        link: Number of earlier saves in the series of the file's save.
    """
    what = f"{name}:{index}:{link}" if link else f"{name}:{index}"
    digest = hashlib.sha256(what.encode()).digest()
    text = _MARK + base64.b32encode(digest).decode().lower()
    return f".data-{text[:5]}-of-{text[5:10]}"


def is_suffix(text: bytes) -> bool:
    """Whether `text`, in UTF-8, can be the suffix of a table's file."""
    return re.fullmatch(rf"\.data-{_MARK}[a-z2-7]{{4}}-of-[a-z2-7]{{5}}".encode(), text) is not None


def tag_of(suffix: str) -> str:
    """The tag of a drawn suffix."""
    return re.sub(r"\.data-.(.{4})-of-(.).{4}", r"\1\2", suffix)


def pattern_of(tag: str) -> str:
    """A glob pattern that matches the suffixes of a tag."""
    return f".data-{_MARK}{tag[:4]}-of-{tag[4:]}????"


def save(
    parts: Sequence[EmbeddingVariable],
    prefix: tf.Tensor,
    name: str,
    continued: Continued | None = None,
    as_one_file: bool = False,
    drawn: Drawn = Drawn(),  # noqa: B008  # immutable
) -> tf.Tensor:
    """Removes expired rows, then writes one file per partition.

    Args:
        parts: All partitions of a variable.
        prefix: String scalar, prefix of the checkpoint.
        name: Name of the variable in the checkpoint.
        continued: For an incremental save, the checkpoint that it continues. Ignored for a table
            that is saved whole, as one with a tier on an SSD, mostly as hard links, or in HBM.
        as_one_file: Whether the rows of a table with a tier on an SSD are in the one file of each
            partition.
        drawn: The names of the files.

    Returns:
        Strings `[p]`, the suffixes of the files; `[k, p]` for a series of k saves. The files exist
        once the tensor is computed.
    """
    is_series = continued is not None
    if parts[0].option.storage_option.is_saved_whole:
        continued = None
    suffixes = _suffixes(name, len(parts), 1 if continued is None else MAX_LINKS, drawn)
    older = None if continued is None else _older_paths(name, len(parts), continued, drawn)
    with tf.control_dependencies(expire_before_save(parts)):
        saved = []
        for index, part in enumerate(parts):
            files = _Files(prefix, suffixes[:, index], None if older is None else older[:, index])
            saved.append(_save_part(part, files, as_one_file))
    with tf.control_dependencies([operation for operation in saved if operation is not None]):
        if continued is None:
            return tf.identity(suffixes if is_series else suffixes[0])
        return tf.identity(suffixes[: continued.num_links + 1])


class _Files(NamedTuple):
    """The files of one partition."""

    prefix: tf.Tensor  # prefix of the checkpoint
    suffixes: tf.Tensor  # `[k]`, one per save of the series
    older_paths: tf.Tensor | None  # `[k - 1]` paths in the checkpoint that is continued


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
    tag = tf.strings.join(
        [drawn.tag, "-" * TAG_SIZE]
    )  # substr below needs a letter even if the tag is ""
    start, middle = tf.strings.substr(tag, 0, TAG_SIZE - 1), tf.strings.substr(tag, TAG_SIZE - 1, 1)
    names = tf.strings.join([f".data-{_MARK}", start, "-of-", middle, ends])
    return tf.where(tf.equal(drawn.tag, ""), fixed, names)


def _letters(number: int) -> str:
    """A number as four digits in base 32."""
    return "".join(_DIGITS[number >> shift & 31] for shift in (15, 10, 5, 0))


def _older_paths(name: str, num_parts: int, continued: Continued, drawn: Drawn) -> tf.Tensor:
    """`[num_links, num_parts]` paths of the files of the checkpoint that is continued."""
    older = _suffixes(name, num_parts, MAX_LINKS, drawn._replace(tag=continued.tag))
    return tf.strings.join([continued.prefix, older[: continued.num_links]])


def _save_part(part: EmbeddingVariable, files: _Files, as_one_file: bool) -> tf.Operation | None:
    # Not beside the table: no GPU has strings.
    paths = tf.strings.join([files.prefix, files.suffixes])
    if files.older_paths is None:
        path = paths[0]
        with colocate_with(part.handle):
            return raw_ops.EmbeddingVariableSave(
                resource=part.handle, path=path, as_one_file=as_one_file
            )
    num_links = tf.shape(files.older_paths)[0]
    path, link_paths = paths[num_links], paths[:num_links]
    with colocate_with(part.handle):
        return raw_ops.EmbeddingVariableSaveIncrement(
            resource=part.handle,
            path=path,
            base_paths=files.older_paths,
            link_paths=link_paths,
        )


def restore(
    parts: Sequence[EmbeddingVariable], prefix: tf.Tensor, suffixes: tf.Tensor
) -> list[tf.Operation]:
    """Replaces the content of all partitions by that of files; each loads the keys that it owns.

    Args:
        parts: All partitions of a variable, or one that was saved alone.
        prefix: String scalar, prefix of the checkpoint.
        suffixes: The result of `save`, strings `[p]` or `[k, p]`; p may differ from the number of
            partitions.

    Returns:
        The operations, in a graph; an empty list eagerly.
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
    """The prefix as a string; None if it is known only when the graph runs."""
    if isinstance(prefix, str):
        return prefix
    return prefix.numpy().decode() if hasattr(prefix, "numpy") else None
