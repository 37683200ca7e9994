"""What an incremental checkpoint has changed, for those who follow a table without training it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint.object_based import FILES
from fused_embedding.ops import raw_ops
from fused_embedding.ops.tf_private import eager_mode

_SUFFIXES = ("-files", FILES)  # of fe.train.Saver and of tf.train.Checkpoint


class Changes(NamedTuple):
    """What one file of a checkpoint says of a table."""

    keys: np.ndarray  # [n] int64
    values: np.ndarray  # [n, dim], of dtype
    removed_keys: np.ndarray  # [m] int64, without a row now; some may have had none before
    is_full: bool  # whether `keys` are all of the table: other keys have no row


def read_changes(
    checkpoint: str, name: str, embedding_dim: int, dtype: tf.DType = tf.float32
) -> Iterator[Changes]:
    """Reads what a save of a series has changed since the save before, also inside a tf.Graph.

    Args:
        checkpoint: Prefix of a checkpoint of `fe.train.Saver(incremental=True)` or
            `fe.train.IncrementalCheckpointManager`.
        name: Of the EmbeddingVariable in it: its name, or the path of its attribute, as in
            "model/table".
        embedding_dim: Of the variable.
        dtype: Of the variable.

    Yields:
        The changes of each partition. Upsert `keys`, erase `removed_keys`; where `is_full`, clear
        the table first.

    Raises:
        ValueError: The checkpoint has no such variable, or was not saved incrementally.
    """
    for changes, _ in read_changes_and_seeds(checkpoint, name, embedding_dim, dtype):
        yield changes


def read_changes_and_seeds(
    checkpoint: str, name: str, embedding_dim: int, dtype: tf.DType
) -> Iterator[tuple[Changes, int]]:
    """As `read_changes`, with the seed of the table that each partition is of."""
    reader = tf.train.load_checkpoint(checkpoint)
    known = reader.get_variable_to_shape_map()
    entry = next((name + suffix for suffix in _SUFFIXES if name + suffix in known), None)
    if entry is None:
        tables = sorted(
            key.removesuffix(suffix)
            for suffix in _SUFFIXES
            for key in known
            if key.endswith(suffix)
        )
        raise ValueError(f"checkpoint {checkpoint} has no files of {name!r}, but of {tables}")
    files = reader.get_tensor(entry)
    if files.ndim != 2:
        raise ValueError(
            f"{name!r} was not saved incrementally in checkpoint {checkpoint}; save with "
            "fe.train.Saver(incremental=True) or fe.train.IncrementalCheckpointManager"
        )
    for suffix in files[-1]:
        with eager_mode():  # also where a TF1 program has a graph of its own
            rows = raw_ops.EmbeddingVariableReadRows(
                path=checkpoint + suffix.decode(), dtype=dtype, embedding_dim=embedding_dim
            )
        keys, values, removed_keys, is_incremental, seed = (column.numpy() for column in rows)
        yield Changes(keys, values, removed_keys, not is_incremental), int(seed)
