"""Lookups in tables of other tasks, or in several parts: one message each way for each server.

    worker   FusedEmbeddingRemoteKeys    columns -> a message of distinct keys for each server
    server   ...RemoteRows               message -> rows of all its tables, end to end
    worker   FusedEmbeddingRemoteLookup  rows -> combined rows of all columns

Backward, one message of gradients goes to each server, whose tables' gradients are made there.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.group import (
    Column,
    group_arguments,
    keyed_arguments,
    table_kind,
    variable_arguments,
)
from fused_embedding.lookup.names import table_name
from fused_embedding.lookup.stock_lookup import is_stock
from fused_embedding.lookup.tables import AnyShard, EmbeddingVariableShard
from fused_embedding.ops import raw_ops
from fused_embedding.ops.control_flow import branch_gradients
from fused_embedding.ops.placement import is_on_gpu, on_cpu
from fused_embedding.ops.tf_private import colocate_with
from fused_embedding.variable.reads import global_step_value


def can_send(column: Column) -> bool:
    """Whether messages can do a lookup.

    The numbers of rows and their widths are in the messages' layout, so they must be known; and
    what one op could not do for other reasons than where its table is, v2 does.
    """
    shards, _, options = column
    if is_stock(shards) or options.rows_end_at_last_id:
        return False
    if options.default_id is not None and options.default_id < 0:
        return False
    kinds = {table_kind(shard) for shard in shards}
    return len(kinds) == 1 and all(_has_known_rows(shard) for shard in shards)


def _has_known_rows(shard: AnyShard) -> bool:
    if is_on_gpu(shard.owner.device):
        return False
    if isinstance(shard, EmbeddingVariableShard):
        return not shard.source.option.storage_option.is_in_hbm
    return bool(shard.source.shape.is_fully_defined() and shard.row_shape.num_elements())


def remote_key(column: Column) -> Hashable:
    """The properties that the columns of one message must share."""
    options = column.options
    return "remote", table_kind(column.shards[0]), options.prune, options.fill_empty_row


class _Part(NamedTuple):
    """A part of a table."""

    shard: Any
    server: int

    @property
    def num_rows(self) -> int:
        """Rows of an ordinary table; 0 for one without a vocabulary."""
        is_table = isinstance(self.shard, EmbeddingVariableShard)
        return 0 if is_table else self.shard.source.shape[0]

    @property
    def dim(self) -> int:
        """Values of a row."""
        return int(self.shard.row_shape.num_elements())


class _Layout(NamedTuple):
    """Which tables a group of columns reads, in which parts, and where those are."""

    tables: list[list[_Part]]
    table_of_column: list[int]
    strategies: list[str]  # of each table
    num_servers: int

    def on_server(self, server: int) -> list[Any]:
        """The shards that a server has, in the order of its message."""
        return [part.shard for parts in self.tables for part in parts if part.server == server]

    def attributes(self) -> dict[str, Any]:
        """What the ops of the worker are told of it."""
        return {
            "table_of_column": self.table_of_column,
            "num_tables": len(self.tables),
            "num_parts": [len(parts) for parts in self.tables],
            "part_servers": [part.server for parts in self.tables for part in parts],
        }


def _layout_of(columns: Sequence[Column], merges: bool) -> _Layout:
    number_of_table: dict[Hashable, int] = {}
    number_of_server: dict[str, int] = {}
    layout = _Layout([], [], [], 0)
    for c, column in enumerate(columns):
        is_keyed = isinstance(column.shards[0], EmbeddingVariableShard)
        table: Hashable = tuple(id(shard.source) for shard in column.shards)
        if not (merges or is_keyed):
            table = c
        t = number_of_table.setdefault(table, len(layout.tables))
        layout.table_of_column.append(t)
        if t < len(layout.tables):
            continue
        parts = []
        for shard in column.shards:
            device = shard.owner.device or ""
            parts.append(_Part(shard, number_of_server.setdefault(device, len(number_of_server))))
        layout.tables.append(parts)
        layout.strategies.append(_strategy_of(column))
    return layout._replace(num_servers=len(number_of_server))


def _strategy_of(column: Column) -> str:
    shard: Any = column.shards[0]
    if isinstance(shard, EmbeddingVariableShard):
        return shard.source.partition.strategy
    return column.options.partition_strategy


def lookup_remote(
    columns: Sequence[Column], *, side_by_side: bool = False, merges: bool = True
) -> list[tf.Tensor]:
    """Looks up columns that agree in `remote_key`.

    Args:
        columns: Lookups for which `can_send` is true.
        side_by_side: Whether to write the results into one tensor.
        merges: Whether columns that share an ordinary table have one gradient of it.

    Returns:
        The combined embeddings of each column, `[num_rows, dim]`, with rows of tables flattened; or
        with `side_by_side` one tensor `[num_rows, sum of dims]`.
    """
    layout = _layout_of(columns, merges)
    is_keyed = isinstance(columns[0].shards[0], EmbeddingVariableShard)
    attributes = layout.attributes()
    arguments = group_arguments(columns, 1 if side_by_side else len(columns))
    dtype = columns[0].shards[0].dtype
    with on_cpu():
        asked = raw_ops.FusedEmbeddingRemoteKeys(
            step=global_step_value() if is_keyed else tf.constant(-1, tf.int64),
            dtype=dtype,
            part_rows=[part.num_rows for parts in layout.tables for part in parts],
            partition_strategies=layout.strategies,
            ids_are_keys=is_keyed,
            num_servers=layout.num_servers,
            **attributes,
            **arguments,
        )
    rows = [
        _rows_of_server(layout.on_server(server), message)
        for server, message in enumerate(asked.messages)
    ]
    arguments |= {"sp_values": asked.positions}
    with on_cpu():
        return raw_ops.FusedEmbeddingRemoteLookup(
            rows=rows,
            part_sizes=asked.part_sizes,
            default_positions=asked.default_positions,
            dims=[parts[0].dim for parts in layout.tables],
            **attributes,
            **arguments,
        )


def _rows_of_server(shards: list[Any], message: tf.Tensor) -> tf.Tensor:
    """`[num_values]` the rows that a message asks for, read where the tables are."""
    arguments = {
        "message": message,
        "dims": [int(shard.row_shape.num_elements()) for shard in shards],
        "table_names": [table_name(shard.owner) for shard in shards],
    }
    if isinstance(shards[0], EmbeddingVariableShard):
        with colocate_with(shards[0].source.handle), branch_gradients():
            return raw_ops.EmbeddingVariableRemoteRows(**keyed_arguments(shards), **arguments).rows
    with colocate_with(shards[0].owner):
        if shards[0].is_variable:
            arguments |= variable_arguments(shards)
            return raw_ops.FusedEmbeddingResourceRemoteRows(**arguments).rows
        sources = [shard.source for shard in shards]
        return raw_ops.FusedEmbeddingRemoteRows(tables=sources, **arguments).rows
