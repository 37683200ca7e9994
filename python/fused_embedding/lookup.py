"""The fused lookup as a graph of ops: v1 to v3. `fe.nn` puts tf.nn's signatures in front of it."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf

from fused_embedding import raw_ops
from fused_embedding.group_lookup import Column, fuses, group_key, lookup_group, obstacle
from fused_embedding.lookup_options import LookupOptions
from fused_embedding.path_notes import noted
from fused_embedding.placement import beside_hash_tables
from fused_embedding.sparse_ids import SparseIds
from fused_embedding.tables import AnyShard, EmbeddingVariableShard, Occurrences


def lookup_v2(shards: list[AnyShard], ids: SparseIds, options: LookupOptions) -> tf.Tensor:
    """Prunes and fills, then reads each distinct id once: the gradient has one row per distinct id.

    Args:
        shards: The table.
        ids: The batch.
        options: What else to do.

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
    """`values`, after a check that no row needed a default id that is no row of the table."""
    check = tf.debugging.assert_equal(
        tf.reduce_any(is_row_empty),
        False,
        message=f"{name}: a row has no valid id, and default_id = {default_id} is no row of the "
        "table; pass a default_id >= 0, or None for zero rows",
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(values)


def _occurrences(options: LookupOptions, is_row_empty: tf.Tensor) -> Occurrences:
    """What a lookup filled into the rows that `is_row_empty` `[num_rows]` tells."""
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
    """Rows of each shard, and the permutation that tells where each id's row is."""
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
        options: What else to do.

    Returns:
        `[num_rows, dim]` combined embeddings, rows of the table being flattened.
    """
    ids = ids.as_int64()
    name = Column(shards, ids, options).name
    values, indices = ids.values, ids.indices
    if ids.weights is not None:
        # The op moves pairs about without their weights. Columns mean nothing to it, so they carry
        # each pair's position, from 1 on; filled rows come out with column 0.
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


def lookup_v3(shards: list[AnyShard], ids: SparseIds, options: LookupOptions) -> tf.Tensor:
    """One op from ids to combined rows, which reads the table in place; v2 where that cannot be.

    Args:
        shards: The table.
        ids: The batch.
        options: What else to do.

    Returns:
        `[num_rows, dim]` combined embeddings, rows of the table being flattened.
    """
    column = Column(shards, ids, options)
    reason = obstacle(column)
    if reason is not None:
        with noted(reason):
            return lookup_v2(shards, ids, options)
    return lookup_group([column])[0]


LOOKUPS = {"v1": lookup_v1, "v2": lookup_v2, "v3": lookup_v3}
# What runs where nobody chose: it takes the best path that the inputs allow.
BEST: Literal["v3"] = "v3"


def restore_rank(combined: tf.Tensor, shards: list[AnyShard], ids: SparseIds) -> tf.Tensor:
    """Undoes the flattening of ids of rank other than 2, and of rows of rank other than 1.

    In mixed precision, Keras's, it also casts.

    Args:
        combined: `[num_rows, dim]` result of a lookup.
        shards: The table that was read.
        ids: The batch that was looked up.

    Returns:
        `[..., dim]` with the leading dimensions of the ids and the trailing ones of the table.
    """
    combined = tf.cast(combined, shards[0].read_dtype)
    row_shape = shards[0].row_shape
    if ids.leading_shape is None and row_shape.rank == 1:
        return combined
    if ids.leading_shape is None:
        leading, static_leading = tf.shape(combined, out_type=tf.int64)[:1], combined.shape[:1]
    else:
        leading, static_leading = ids.leading_shape, ids.static_leading_shape
    if row_shape.is_fully_defined():
        trailing = tf.constant(row_shape.as_list(), tf.int64)
    else:
        trailing = tf.shape(shards[0].source, out_type=tf.int64)[1:]
    result = tf.reshape(combined, tf.concat([leading, trailing], axis=0))
    if static_leading is not None:
        result.set_shape(static_leading.concatenate(row_shape))
    return result


def _of_embedding_variable(options: LookupOptions, shard: EmbeddingVariableShard) -> LookupOptions:
    """An EmbeddingVariable has its own strategy, and no key stands for an empty row by itself."""
    fills = options.fill_empty_row and options.default_id is not None
    strategy = shard.source.partition.strategy
    return dataclasses.replace(options, partition_strategy=strategy, fill_empty_row=fills)


def run_lookup(
    version: str, shards: list[AnyShard], ids: SparseIds, options: LookupOptions
) -> tf.Tensor:
    """Runs a fused lookup of the given version and restores the ranks of its inputs."""
    if not isinstance(shards[0], EmbeddingVariableShard):
        return restore_rank(LOOKUPS[version](shards, ids, options), shards, ids)
    options = _of_embedding_variable(options, shards[0])
    with beside_hash_tables():
        combined = LOOKUPS[version](shards, ids, options)
    return restore_rank(combined, shards, ids)


def run_group(columns: Sequence[Column], max_columns: int | None = None) -> list[tf.Tensor]:
    """Looks columns up together, and one by one by v2 where they cannot be.

    Args:
        columns: The lookups.
        max_columns: Most columns of one op; None: no limit.

    Returns:
        What `run_lookup` gives for each, in order.
    """
    results: list[Any] = [None] * len(columns)
    for members in _groups(columns, max_columns):
        if fuses(columns[members[0]]):
            combined = lookup_group([columns[i] for i in members])
            for i, of_column in zip(members, combined, strict=True):
                results[i] = restore_rank(of_column, columns[i].shards, columns[i].ids)
        else:
            results[members[0]] = run_lookup(BEST, *columns[members[0]])
    return results


def run_group_side_by_side(columns: Sequence[Column]) -> tf.Tensor:
    """`run_group` for ids of rank 2 and tables of rank 2, into one tensor.

    Args:
        columns: The lookups, all of one number of rows.

    Returns:
        `[num_rows, sum of dims]`.
    """
    groups = _groups(columns, None)
    if len(groups) == 1 and fuses(columns[0]):
        combined = lookup_group(columns, side_by_side=True)[0]
        return tf.cast(combined, columns[0].shards[0].read_dtype)
    return tf.concat(run_group(columns), axis=1)


def _groups(columns: Sequence[Column], max_columns: int | None) -> list[list[int]]:
    """The columns of each op; those that no op can do together are by themselves."""
    together: dict[Any, list[int]] = {}
    for i, column in enumerate(columns):
        is_fused = fuses(column)
        together.setdefault(group_key(column) if is_fused else i, []).append(i)
    groups = []
    for members in together.values():
        size = max_columns or len(members)
        groups += [members[first : first + size] for first in range(0, len(members), size)]
    return groups
