"""Runs a lookup by v1, v2, v3 or the op of a group. The functions of `fe.nn` call it."""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import tensorflow as tf

from fused_embedding.lookup.composed import (
    has_composed,
    run_composed,
    run_composed_side_by_side,
)
from fused_embedding.lookup.group import (
    Column,
    fuses,
    group_key,
    lookup_group,
    obstacle,
    with_ids,
)
from fused_embedding.lookup.ids import SparseIds, with_index_matrix
from fused_embedding.lookup.options import LookupOptions
from fused_embedding.lookup.pipelines import lookup_v1, lookup_v2
from fused_embedding.lookup.remote import can_send, lookup_remote, remote_key
from fused_embedding.lookup.stock_lookup import is_stock, lookup_stock
from fused_embedding.lookup.tables import AnyShard, ComposedShard, EmbeddingVariableShard
from fused_embedding.ops.path_notes import noted
from fused_embedding.ops.placement import on_cpu


def lookup_v3(shards: list[AnyShard], ids: SparseIds, options: LookupOptions) -> tf.Tensor:
    """Looks up ids by one op, which reads the table in place; by messages or v2 if it cannot.

    Args:
        shards: The table.
        ids: The batch.
        options: The options of the lookup.

    Returns:
        `[num_rows, dim]` combined embeddings, rows of the table being flattened.
    """
    column = Column(shards, ids, options)
    reason = obstacle(column)
    if reason is None:
        return lookup_group([column])[0]
    with noted(reason):
        if can_send(column):
            return lookup_remote([column])[0]
        return lookup_v2(shards, ids, options)


LOOKUPS = {"v1": lookup_v1, "v2": lookup_v2, "v3": lookup_v3}
# The default version: it takes the best path that the inputs allow.
BEST: Literal["v3"] = "v3"


def restore_rank(combined: tf.Tensor, shards: list[AnyShard], ids: SparseIds) -> tf.Tensor:
    """Undoes the flattening of ids of rank other than 2, and of rows of rank other than 1.

    In Keras's mixed precision it also casts the result.

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
    """Sets the variable's partition strategy; fills empty rows only with a given default_id."""
    fills = options.fill_empty_row and options.default_id is not None
    strategy = shard.source.partition.strategy
    return dataclasses.replace(options, partition_strategy=strategy, fill_empty_row=fills)


def run_lookup(
    version: str, shards: list[AnyShard], ids: SparseIds, options: LookupOptions
) -> tf.Tensor:
    """Runs a fused lookup of the given version and restores the ranks of its inputs.

    While FE_DISABLE has "lookup", stock's ops look up in ordinary tables, whatever the version is.
    """
    if isinstance(shards[0], ComposedShard):
        return run_group([Column(shards, ids, options)])[0]
    if is_stock(shards):
        return restore_rank(lookup_stock(shards, ids, options), shards, ids)
    if not isinstance(shards[0], EmbeddingVariableShard):
        return restore_rank(LOOKUPS[version](shards, ids, options), shards, ids)
    options = _of_embedding_variable(options, shards[0])
    with on_cpu():
        combined = LOOKUPS[version](shards, ids, options)
    return restore_rank(combined, shards, ids)


def run_group(
    columns: Sequence[Column], max_columns: int | None = None, *, merges: bool = True
) -> list[tf.Tensor]:
    """Looks up columns together: by one op, by messages to servers, or alone by v2.

    Args:
        columns: The lookups.
        max_columns: Maximum number of columns of an op; None: no limit.
        merges: Whether columns that share a table have one gradient of it, whose ids are distinct.
            Else each column has its own, and TensorFlow joins them, as it does those of stock.

    Returns:
        The result of `run_lookup` for each column, in order.
    """
    columns = with_ids(columns)
    if has_composed(columns):
        return run_composed(
            columns, functools.partial(run_group, max_columns=max_columns, merges=merges)
        )
    results: list[Any] = [None] * len(columns)
    for members in _groups(columns, max_columns):
        look_up = _lookup_of_group(columns[members[0]])
        if look_up is None:
            shards, ids, options = columns[members[0]]
            results[members[0]] = run_lookup(BEST, shards, with_index_matrix(ids), options)
            continue
        combined = look_up([columns[i] for i in members], merges=merges)
        for i, of_column in zip(members, combined, strict=True):
            results[i] = restore_rank(of_column, columns[i].shards, columns[i].ids)
    return results


def _lookup_of_group(column: Column) -> Callable[..., list[tf.Tensor]] | None:
    """What looks up a column together with others; None: nothing does."""
    if fuses(column):
        return lookup_group
    return _lookup_by_messages if can_send(column) else None


def _lookup_by_messages(columns: Sequence[Column], **arguments: Any) -> list[tf.Tensor]:
    with noted(obstacle(columns[0]) or ""):
        return lookup_remote(columns, **arguments)


def run_group_side_by_side(columns: Sequence[Column], *, merges: bool = True) -> tf.Tensor:
    """`run_group` for ids of rank 2 and tables of rank 2, into one tensor.

    Args:
        columns: The lookups, all with the same number of rows.
        merges: See `run_group`.

    Returns:
        `[num_rows, sum of dims]`.
    """
    columns = with_ids(columns)
    if has_composed(columns):
        return run_composed_side_by_side(
            columns,
            functools.partial(run_group, merges=merges),
            functools.partial(run_group_side_by_side, merges=merges),
        )
    look_up = _lookup_of_group(columns[0])
    if look_up is not None and len(_groups(columns, None)) == 1:
        combined = look_up(columns, side_by_side=True, merges=merges)[0]
        return tf.cast(combined, columns[0].shards[0].read_dtype)
    return tf.concat(run_group(columns, merges=merges), axis=1)


def _key_of_group(number: int, column: Column) -> Hashable:
    if fuses(column):
        return group_key(column)
    return remote_key(column) if can_send(column) else number


def _groups(columns: Sequence[Column], max_columns: int | None) -> list[list[int]]:
    """The numbers of the columns of each op; a column that cannot share an op is alone."""
    together: dict[Any, list[int]] = {}
    for i, column in enumerate(columns):
        together.setdefault(_key_of_group(i, column), []).append(i)
    groups = []
    for members in together.values():
        size = max_columns or len(members)
        groups += [members[first : first + size] for first in range(0, len(members), size)]
    return groups
