"""The fused lookups v1 and v2, which are graphs of stages. v3, a single op, is in group.py."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.lookup.group import Column
from fused_embedding.lookup.ids import SparseIds
from fused_embedding.lookup.options import LookupOptions
from fused_embedding.lookup.tables import AnyShard, EmbeddingVariableShard, Occurrences
from fused_embedding.ops import raw_ops


def lookup_v2(shards: list[AnyShard], ids: SparseIds, options: LookupOptions) -> tf.Tensor:
    """Prunes and fills, then reads each distinct id once: the gradient has one row per distinct id.

    Args:
        shards: The table.
        ids: The batch.
        options: The options of the lookup.

    Returns:
        `[num_rows, dim]` combined embeddings, rows of the table being flattened.
    """
    ids = ids.as_int64()
    name = Column(shards, ids, options).name
    has_weights = ids.weights is not None
    weights = ids.weights if has_weights else tf.zeros([0], tf.float32)
    values, indices, is_row_empty = ids.values, ids.indices, tf.zeros([0], tf.bool)
    if options.prune or options.fill_empty_row:
        values, indices, weights, is_row_empty = raw_ops.PruneInvalidAndFillEmptyRows(
            sp_values=values,
            sp_indices=indices,
            sp_dense_shape=ids.dense_shape,
            sp_weights_values=weights,
            fill_empty_row=options.fill_empty_row,
            prune=options.prune,
            default_id=options.default_id_attr,
            use_sparse_weights=has_weights,
            prune_sparse_weights=has_weights and options.prune_weights,
            column_name=name,
        )
    if options.default_id is not None and options.default_id < 0:
        values = _with_no_empty_row(values, is_row_empty, options.default_id, name)
    unique_ids, unique_idxs, counts = raw_ops.UniqueWithCountsV3(input=values)
    occurrences = _occurrences(options, is_row_empty)._replace(counts=counts)
    rows, permutation = _gather_unique(shards, unique_ids, occurrences, options, name)
    return raw_ops.FusedEmbeddingSparsePostLookUpV2(
        emb_shards=rows,
        partition_permutation=permutation,
        sp_dense_shape=ids.dense_shape,
        indices_before_unique=indices,
        is_row_empty=is_row_empty,
        unique_idxs=unique_idxs,
        sp_weights_values=weights,
        fill_empty_row=options.fill_empty_row,
        default_id=options.default_id_attr,
        combiner=options.combiner,
        max_norm=options.max_norm_attr,
        use_sparse_weights=has_weights,
        rows_end_at_last_id=options.rows_end_at_last_id,
    ).emb_vectors


def _with_no_empty_row(
    values: tf.Tensor, is_row_empty: tf.Tensor, default_id: int, name: str
) -> tf.Tensor:
    """Returns `values`; checks that no row is empty, because default_id is not in the table."""
    check = tf.debugging.assert_equal(
        tf.reduce_any(is_row_empty),
        False,
        message=f"{name}: a row has no valid id, and default_id = {default_id} is no row of the "
        "table; pass a default_id >= 0, or None for zero rows",
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(values)


def _occurrences(options: LookupOptions, is_row_empty: tf.Tensor) -> Occurrences:
    """How often a lookup fills default_id into empty rows; `is_row_empty` is `[num_rows]`."""
    if not options.fill_empty_row or options.default_id is None:
        return Occurrences()
    num_filled = tf.math.count_nonzero(is_row_empty, dtype=tf.int32)
    return Occurrences(default_id=options.default_id, num_filled=num_filled)


def _gather_unique(
    shards: list[AnyShard],
    unique_ids: tf.Tensor,
    occurrences: Occurrences,
    options: LookupOptions,
    name: str,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """The rows of each shard, and the permutation from ids to these rows."""
    arguments: dict[str, Any] = {"ids_are_unique": True, "column_name": name}
    if len(shards) == 1:
        rows = shards[0].gather(unique_ids, occurrences=occurrences, **arguments)
        return [rows], tf.zeros([0, 2], tf.int32)
    partition = raw_ops.PartitionWithPermutation(
        input=unique_ids,
        partition_shapes=[shard.partition_shape() for shard in shards],
        partition_strategy=options.partition_strategy,
        column_name=name,
    )
    counts_of_shards: Sequence[tf.Tensor | None] = [None] * len(shards)
    if isinstance(shards[0], EmbeddingVariableShard):
        shard_of_id = partition.partition_permutation[:, 0]
        counts_of_shards = tf.dynamic_partition(occurrences.counts, shard_of_id, len(shards))
    rows = [
        shard.gather(ids, occurrences=occurrences._replace(counts=counts), **arguments)
        for shard, ids, counts in zip(
            shards, partition.partitioned_values, counts_of_shards, strict=True
        )
    ]
    return rows, partition.partition_permutation


def lookup_v1(shards: list[AnyShard], ids: SparseIds, options: LookupOptions) -> tf.Tensor:
    """Reads a row for each id, duplicates included. Slower than v2; DeepRec's first version.

    Args:
        shards: The table.
        ids: The batch.
        options: The options of the lookup.

    Returns:
        `[num_rows, dim]` combined embeddings, rows of the table being flattened.
    """
    ids = ids.as_int64()
    name = Column(shards, ids, options).name
    values, indices = ids.values, ids.indices
    if ids.weights is not None:
        # The op reorders pairs without their weights. It ignores the columns of indices, so these
        # hold each pair's position, starting at 1; the pairs of filled rows get column 0.
        positions = tf.range(1, tf.size(values, out_type=tf.int64) + 1)
        indices = tf.stack([indices[:, 0], positions], axis=1)
        if options.prune and options.prune_weights:
            values = tf.where(ids.weights > 0, values, -tf.ones_like(values))
    pairs = raw_ops.FusedEmbeddingSparsePreLookUp(
        partition_shapes=[shard.partition_shape() for shard in shards],
        sp_values=values,
        sp_indices=indices,
        sp_dense_shape=ids.dense_shape,
        fill_empty_row=options.fill_empty_row,
        prune_invalid_id=options.prune,
        default_id=options.default_id_attr,
        partition_strategy=options.partition_strategy,
        column_name=name,
    )
    partitioned_weights = []
    if ids.weights is not None:
        weight_of_position = tf.concat([tf.ones([1], ids.weights.dtype), ids.weights], axis=0)
        partitioned_weights = [
            tf.gather(weight_of_position, shard_indices[:, 1])
            for shard_indices in pairs.partitioned_indices
        ]
    num_rows = tf.size(pairs.row_empty_and_invalid_flags) - tf.size(values)
    occurrences = _occurrences(options, pairs.row_empty_and_invalid_flags[:num_rows])
    return raw_ops.FusedEmbeddingSparsePostLookUp(
        emb_shards=[
            shard.gather(shard_ids, ids_are_unique=False, occurrences=occurrences, column_name=name)
            for shard, shard_ids in zip(shards, pairs.partitioned_values, strict=True)
        ],
        partitioned_indices=pairs.partitioned_indices,
        sp_dense_shape=ids.dense_shape,
        row_empty_and_invalid_flags=pairs.row_empty_and_invalid_flags,
        partitioned_values=pairs.partitioned_values,
        partitioned_weights=partitioned_weights,
        combiner=options.combiner,
        max_norm=options.max_norm_attr,
        default_id=options.default_id_attr,
    ).emb_vectors
