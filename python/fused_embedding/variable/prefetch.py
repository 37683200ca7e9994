"""Prefetches the rows of the next batches; `fe.data` exports it."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable

Table = EmbeddingVariable | PartitionedEmbeddingVariable


def prefetch_embeddings(
    ids_of: Callable[..., list[tuple[Table, Any]]], buffer_size: int = 3
) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Reads the rows of the next batches from the SSD while earlier steps run.

    Make it the last step of an input pipeline, instead of `prefetch`. It changes no row and no
    element. Tables without a tier on an SSD are skipped.

    Args:
        ids_of: Function that takes an element like the function of `map`, and returns pairs of a
            table and its ids: a tensor, tf.SparseTensor or tf.RaggedTensor of integers of any
            shape.
        buffer_size: Number of elements whose rows are read at the same time, so that the disk is
            not idle between two of them. As many elements are made in advance. All their rows
            should fit into DRAM at once.

    Returns:
        A transformation for `tf.data.Dataset.apply`.

    Raises:
        TypeError: From `apply`, if ids are not integers.

    >>> table = fe.get_embedding_variable("items", embedding_dim=4)
    >>> batches = tf.data.Dataset.from_tensor_slices({"item": [[3, 4], [4, 5]]})
    >>> batches = batches.apply(fe.data.prefetch_embeddings(lambda x: [(table, x["item"])]))
    >>> [batch["item"].numpy().tolist() for batch in batches]
    [[3, 4], [4, 5]]
    """

    def fetch(*element: Any) -> Any:
        pairs = ids_of(*element)
        with tf.control_dependencies(_fetch_rows(pairs)):
            same = tf.nest.map_structure(tf.identity, element, expand_composites=True)
        return same[0] if len(same) == 1 else same

    def apply(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(fetch, num_parallel_calls=buffer_size, deterministic=True).prefetch(1)

    return apply


def _fetch_rows(pairs: list[tuple[Table, Any]]) -> list[tf.Operation]:
    """Makes one op per table, which fetches each distinct key of the table once."""
    ids_of_table: dict[int, tuple[Table, list[tf.Tensor]]] = {}
    for table, ids in pairs:
        ids_of_table.setdefault(id(table), (table, []))[1].append(_flat_keys(ids))
    fetches = []
    for table, keys in ids_of_table.values():
        distinct, _ = tf.unique(tf.concat(keys, axis=0))
        fetches.append(table.prefetch(distinct))
    return [fetch for fetch in fetches if fetch is not None]


def _flat_keys(ids: Any) -> tf.Tensor:
    if isinstance(ids, tf.SparseTensor):
        ids = ids.values
    elif isinstance(ids, tf.RaggedTensor):
        ids = ids.flat_values
    ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer:
        raise TypeError(f"ids must be integers, got {ids.dtype.name}; hash strings to ids first")
    return tf.reshape(tf.cast(ids, tf.int64), [-1])
