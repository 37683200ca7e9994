"""tf.train.Checkpoint, CheckpointManager and SavedModel: tables in files beside the checkpoint.

TensorFlow calls `_save` and `_restore` for all EmbeddingVariables that it tracks. The checkpoint
itself has the names of their files.
"""

import contextlib
import contextvars
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from fused_embedding.checkpoint import side_files, unfinished
from fused_embedding.checkpoint.series import Series
from fused_embedding.checkpoint.side_files import Continued, Drawn
from fused_embedding.ops.tf_private import register_checkpoint_saver
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable

_PACKAGE, _NAME = "fused_embedding", "EmbeddingVariable"
# Operations of restores in a graph, which TensorFlow does not run by itself: see `hook`.
RESTORE_OPERATIONS = "fused_embedding_restore_operations"
# Suffixes of a table's name: its files, and which partition of the table they are.
FILES, PART = "/.ATTRIBUTES/fused_embedding_files", "/.ATTRIBUTES/fused_embedding_part"
# TensorFlow's: suffix of a dense variable's path for its value; name of the graph of objects.
VALUE, OBJECT_GRAPH = "/.ATTRIBUTES/VARIABLE_VALUE", "_CHECKPOINTABLE_OBJECT_GRAPH"
_SAVED_MODEL = "/variables/variables"  # end of the prefix of a SavedModel's checkpoint
_SERIES: contextvars.ContextVar[Series | None] = contextvars.ContextVar("series", default=None)


@contextlib.contextmanager
def saved_in(series: Series) -> Iterator[None]:
    """A context in which checkpoints that are saved eagerly belong to a series."""
    token = _SERIES.set(series)
    try:
        yield
    finally:
        _SERIES.reset(token)


def _is_table(trackable: Any) -> bool:
    return isinstance(trackable, EmbeddingVariable | PartitionedEmbeddingVariable)


def _parts(trackable: Any) -> list[EmbeddingVariable]:
    return [trackable] if isinstance(trackable, EmbeddingVariable) else list(trackable)


def _part_of_whole(trackable: Any) -> str:
    """Which partition of a variable is tracked; "" for the whole variable."""
    if not isinstance(trackable, EmbeddingVariable) or trackable.partition.count == 1:
        return ""
    part = trackable.partition
    return f"{part.index} of {part.count} by {part.strategy}"


def _save(trackables: Mapping[str, Any], file_prefix: tf.Tensor) -> tf.Tensor:
    """Writes the files of all tables, and a shard of the checkpoint that names them."""
    prefix = tf.strings.regex_replace(file_prefix, re.escape(f"-{_PACKAGE}.{_NAME}") + "$", "")
    tag, num_files, tensors = unfinished.current_tag(), 0, {}
    for name, trackable in trackables.items():
        parts = _parts(trackable)
        tensors[name + FILES] = _save_files(parts, prefix, name, Drawn(tag, num_files))
        tensors[name + PART] = tf.constant(_part_of_whole(trackable))
        num_files += len(parts)
    # TensorFlow makes this folder for unfinished checkpoints.
    shard = tf.strings.join([prefix, f"_temp/fused_embedding{tag}"])
    saved = tf.raw_ops.SaveV2(
        prefix=shard,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    with tf.control_dependencies([] if saved is None else [saved]):
        return tf.identity(shard)


def _save_files(
    parts: list[EmbeddingVariable], prefix: tf.Tensor, name: str, drawn: Drawn
) -> tf.Tensor:
    known = side_files.eager_value(prefix)
    series = _SERIES.get()
    if series is None:
        # RocksDB may not be installed where a SavedModel is read.
        is_saved_model = known is not None and known.endswith(_SAVED_MODEL)
        return side_files.save(parts, prefix, name, as_one_file=is_saved_model, drawn=drawn)

    def save(continued: Continued) -> tf.Tensor:
        series.begin(known or "", drawn.tag, continued)
        return side_files.save(parts, prefix, name, continued, drawn=drawn)

    return series.save(name, save)


def _restore(trackables: Mapping[str, Any], merged_prefix: tf.Tensor) -> None:
    """Restores tables from the files that the checkpoint names."""
    keys = [name + suffix for name in trackables for suffix in (FILES, PART)]
    tensors = tf.raw_ops.RestoreV2(
        prefix=merged_prefix,
        tensor_names=keys,
        shape_and_slices=[""] * len(keys),
        dtypes=[tf.string] * len(keys),
    )
    for trackable, files, part in zip(
        trackables.values(), tensors[::2], tensors[1::2], strict=True
    ):
        is_same = tf.debugging.assert_equal(
            part[None],  # eagerly, it cannot compare scalar strings
            [_part_of_whole(trackable)],
            message=f"{trackable!r} is restored from another part of a table: track what "
            "fe.get_embedding_variable returned, not a partition of it",
        )
        with tf.control_dependencies([] if is_same is None else [is_same]):
            for operation in side_files.restore(_parts(trackable), merged_prefix, files):
                tf.compat.v1.add_to_collection(RESTORE_OPERATIONS, operation)


register_checkpoint_saver(_PACKAGE, _NAME, _is_table, _save, _restore)
