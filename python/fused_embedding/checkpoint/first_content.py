"""Loads the initial content of a table from a checkpoint, as CheckpointOption requests."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.checkpoint import side_files
from fused_embedding.variable.content import CONTENT_NAMES, content_dtypes, import_whole
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.options import CheckpointOption

# Graph collection of the loading operations, which global_variables_initializer runs.
FIRST_CONTENTS = "fused_embedding_first_contents"
_RUNS_THEM = "_fused_embedding_runs_first_contents"


def load(parts: Sequence[EmbeddingVariable]) -> None:
    """Loads the content that a new variable's option requests; in a graph, adds an op that does.

    Args:
        parts: All partitions of the variable.

    Raises:
        NotImplementedError: In a graph whose initializer loads no tables.
        ValueError: If the checkpoint does not have the table.
    """
    option = parts[0].option.ckpt
    if option is None or option.ckpt_to_load_from is None:
        return
    initializer = tf.compat.v1.global_variables_initializer
    if not tf.executing_eagerly() and not hasattr(initializer, _RUNS_THEM):
        raise NotImplementedError(
            f"ckpt_to_load_from = {option.ckpt_to_load_from!r} was given for "
            f"{parts[0].partition.whole_name!r}, but in a TF1 graph only DeepRec's "
            "tf.global_variables_initializer() loads tables: call fe.compat.install() first, or "
            "restore with tf.compat.v1.train.Saver"
        )
    operation = _load_operation(parts, option)
    if not tf.executing_eagerly():
        tf.compat.v1.add_to_collection(FIRST_CONTENTS, operation)


def instead_of_restoring(parts: Sequence[EmbeddingVariable]) -> tf.Operation | None:
    """The load that replaces a restore, with `always_load_from_specific_ckpt`; else None."""
    option = parts[0].option.ckpt
    if option is None or not option.always_load_from_specific_ckpt:
        return None
    return _load_operation(parts, option)


def loading_initializer(stock: Callable[[], Any]) -> Callable[[], Any]:
    """Makes a tf.compat.v1.global_variables_initializer that loads tables too.

    Args:
        stock: TensorFlow's function.

    Returns:
        The new function.
    """

    def global_variables_initializer() -> Any:
        loads = tf.compat.v1.get_collection(FIRST_CONTENTS)
        return tf.group(stock(), *loads) if loads else stock()

    setattr(global_variables_initializer, _RUNS_THEM, True)
    return global_variables_initializer


def _load_operation(parts: Sequence[EmbeddingVariable], option: CheckpointOption) -> tf.Operation:
    path = os.fspath(option.ckpt_to_load_from or "")
    prefix = _prefix(path)
    reader = tf.train.load_checkpoint(prefix)
    name = option.tensor_name_in_ckpt or parts[0].partition.whole_name
    if reader.has_tensor(f"{name}-files"):
        files = tf.constant(reader.get_tensor(f"{name}-files"))
        return tf.group(side_files.restore(parts, tf.constant(prefix), files))
    if not reader.has_tensor(f"{name}-slot_names"):
        tables = ", ".join(_tables_of(reader)) or "none"
        raise ValueError(
            f"ckpt_to_load_from = {path!r} has no table {name!r}, but {tables}; pass the name of "
            "one as tensor_name_in_ckpt, and convert checkpoints of DeepRec first: "
            "docs/migration/deeprec.md"
        )
    dtypes = content_dtypes(parts[0])
    restored = tf.raw_ops.RestoreV2(
        prefix=prefix,
        tensor_names=[f"{name}-{column}" for column in CONTENT_NAMES],
        shape_and_slices=[""] * len(CONTENT_NAMES),
        dtypes=[dtypes[column] for column in CONTENT_NAMES],
    )
    return tf.group(import_whole(parts, dict(zip(CONTENT_NAMES, restored, strict=True))))


def _prefix(path: str) -> str:
    """Prefix of the checkpoint that `path` names."""
    prefix = tf.train.latest_checkpoint(path) if tf.io.gfile.isdir(path) else path
    if prefix and tf.io.gfile.exists(f"{prefix}.index"):
        return prefix
    raise ValueError(f"ckpt_to_load_from = {path!r} is no checkpoint, nor a folder with one")


def _tables_of(reader: Any) -> list[str]:
    tensors = reader.get_variable_to_shape_map()
    suffixes = "-slot_names", "-files"
    return sorted(name.rpartition("-")[0] for name in tensors if name.endswith(suffixes))
