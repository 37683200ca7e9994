"""Lookups in ordinary tables by stock TensorFlow's ops, for FE_DISABLE=lookup.

tf.nn has no function with all options of the fused lookups: rows in any order, every partition
strategy, 16-bit tables that are summed in float32. These lookups have the fused lookups' results
and gradients.
"""

from typing import Any

import tensorflow as tf

from fused_embedding.lookup.ids import SparseIds
from fused_embedding.lookup.options import LookupOptions
from fused_embedding.lookup.stock_parts import Combining, Pairs, is_valid, partitioned
from fused_embedding.lookup.tables import AnyShard, EmbeddingVariableShard
from fused_embedding.ops.disabled import is_disabled, why_disabled
from fused_embedding.ops.path_notes import STOCK, noted


def is_stock(shards: list[AnyShard]) -> bool:
    """Whether stock TensorFlow must look up in a table: FE_DISABLE says so, and stock can.

    Args:
        shards: The table.

    Returns:
        False for EmbeddingVariables, in which stock has no lookup.
    """
    return is_disabled("lookup") and not isinstance(shards[0], EmbeddingVariableShard)


def lookup_stock(shards: list[Any], ids: SparseIds, options: LookupOptions) -> tf.Tensor:
    """Looks up ids by stock's ops, and reads each distinct id once.

    Args:
        shards: An ordinary table.
        ids: The batch.
        options: The options of the lookup, without `rows_end_at_last_id` and a negative
            `default_id`: the functions of tf.nn that need those are called themselves.

    Returns:
        `[num_rows, dim]` combined embeddings, rows of the table being flattened.
    """
    num_rows = ids.dense_shape[0]
    row_ids = ids.indices if ids.indices.shape.rank == 1 else ids.indices[:, 0]
    pairs = Pairs(tf.cast(ids.values, tf.int64), row_ids, ids.weights)
    if options.prune:
        pairs = pairs.where(is_valid(pairs, looks_at_weights=options.prune_weights))
    if options.fill_empty_row and options.default_id is not None:
        pairs = pairs.filled(pairs.is_row_empty(num_rows), options.default_id)
    unique = tf.unique(pairs.ids)
    rows = _read(shards, unique.y, options.partition_strategy)
    combining = Combining(options.combiner, options.max_norm_attr)
    combined = combining(rows, unique.idx, pairs.row_ids, pairs.weights, num_rows)
    with noted(why_disabled("lookup"), STOCK):
        return tf.identity(combined)


def _read(shards: list[Any], ids: tf.Tensor, strategy: str) -> tf.Tensor:
    """`[n, dim]` rows of distinct ids."""
    if len(shards) == 1:
        return shards[0].stock_rows(ids)
    partition = partitioned(ids, [shard.partition_shape() for shard in shards], strategy)
    rows = [
        shard.stock_rows(of_shard) for shard, of_shard in zip(shards, partition.ids, strict=True)
    ]
    return tf.dynamic_stitch(partition.positions, rows)
