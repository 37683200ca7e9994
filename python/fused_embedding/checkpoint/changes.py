"""Reads the changes in an incremental checkpoint, for copies of a table that are not trained."""

import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint.object_based import FILES
from fused_embedding.ops import raw_ops
from fused_embedding.ops.tf_private import eager_mode

_SUFFIXES = ("-files", FILES)  # those of fe.train.Saver and of tf.train.Checkpoint


class Changes(NamedTuple):
    """The changes of one partition of a table since the previous save.

    Attributes:
        keys: `[n]` int64 keys whose rows are new or have changed.
        values: `[n, dim]` their rows, in the dtype of the variable.
        removed_keys: `[m]` int64 keys without a row now; some may have had none before.
        is_full: Whether `keys` are all keys of the table; other keys then have no row.
    """

    keys: np.ndarray
    values: np.ndarray
    removed_keys: np.ndarray
    is_full: bool


def read_changes(
    checkpoint: str, name: str, embedding_dim: int, dtype: tf.DType = tf.float32
) -> Iterator[Changes]:
    """Reads what changed from the previous save of a series to this one; works in a tf.Graph too.

    Args:
        checkpoint: Prefix of a checkpoint of `fe.train.Saver(incremental=True)` or
            `fe.train.IncrementalCheckpointManager`.
        name: The EmbeddingVariable in the checkpoint: its name, or the path of its attribute, such
            as "model/table".
        embedding_dim: Length of a row of the variable.
        dtype: Type of the variable's values.

    Yields:
        The changes of each partition. To apply them, upsert `keys` and erase `removed_keys`; if
        `is_full`, clear the table first.

    Raises:
        ValueError: If the checkpoint has no such variable, or was not saved incrementally.
    """
    for changes, _ in read_changes_and_seeds(checkpoint, name, embedding_dim, dtype):
        yield changes


def read_changes_and_seeds(
    checkpoint: str, name: str, embedding_dim: int, dtype: tf.DType
) -> Iterator[tuple[Changes, int]]:
    """Reads the changes of each partition like `read_changes`, and the seed of its table."""
    files = _files_of(checkpoint, name)
    for suffix in files[-1]:
        with eager_mode():  # a TF1 program may have a default graph
            rows = raw_ops.EmbeddingVariableReadRows(
                path=checkpoint + suffix, dtype=dtype, embedding_dim=embedding_dim
            )
        keys, values, removed_keys, is_incremental, seed = (column.numpy() for column in rows)
        yield Changes(keys, values, removed_keys, not is_incremental), int(seed)


def _files_of(checkpoint: str, name: str) -> np.ndarray:
    """`[k, p]` suffixes of the files of a variable: of the saves of a series, by partition."""
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
    return np.char.decode(files.astype(np.bytes_))


def read_frequencies(checkpoint: str, name: str, keys: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Reads how often keys have occurred; restores a whole partition at a time to find out.

    Args:
        checkpoint: Prefix of an incremental checkpoint.
        name: The EmbeddingVariable in it.
        keys: `[n]` int64 for each partition.

    Returns:
        `[n]` int64 for each partition; 0 for a key without a row.
    """
    paths = np.char.add(checkpoint, _files_of(checkpoint, name))
    with eager_mode():
        return [_read_frequencies(*part) for part in zip(paths.T, keys, strict=True)]


def _read_frequencies(paths: np.ndarray, keys: np.ndarray) -> np.ndarray:
    summary = raw_ops.EmbeddingVariableFileSummary(path=paths[-1])
    handle = raw_ops.EmbeddingVariableHandle(
        shared_name=f"frequencies/{uuid.uuid4().hex}",
        initializer="constant",
        dtype=tf.as_dtype(summary.dtype.numpy().decode()),
        dim=int(summary.dim),
    )
    try:
        raw_ops.EmbeddingVariableRestore(resource=handle, paths=paths[:, np.newaxis])
        metadata = raw_ops.EmbeddingVariableMetadata(resource=handle, keys=keys)
    finally:
        tf.raw_ops.DestroyResourceOp(resource=handle)
    frequencies: np.ndarray = metadata.frequencies.numpy()
    return frequencies
