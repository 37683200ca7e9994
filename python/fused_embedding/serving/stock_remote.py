"""Lookups by messages as stock ops: what three ops of this package do, of tables in one graph.

What stands for a message, for rows of a server and for positions are objects of this module: they
pass from one op's form to the next one's, and no tensor has all of them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.stock_parts import Combining, Pairs, Partition, partitioned
from fused_embedding.serving import stock_ops
from fused_embedding.serving.stock_ops import Call


class _Message(NamedTuple):
    """To a server: `[n]` ids of each of its parts of tables."""

    ids: list[tf.Tensor]


class _ServerRows(NamedTuple):
    """Of a server: `[n, dim]` rows of each of its parts of tables."""

    rows: list[tf.Tensor]


class _Positions(NamedTuple):
    """Of a column: its pairs, whose `ids` number distinct ids, and where parts have those."""

    pairs: Pairs
    partition: Partition


class _Parts(NamedTuple):
    """Attrs that say which parts tables have, and which server has each."""

    num_parts: list[int]
    servers: list[int]

    def of_table(self, table: int) -> range:
        """The numbers of its parts."""
        first = sum(self.num_parts[:table])
        return range(first, first + self.num_parts[table])

    def by_server(self, of_parts: Sequence[Any], num_servers: int) -> list[list[Any]]:
        """What parts have, for each server."""
        by_server: list[list[Any]] = [[] for _ in range(num_servers)]
        for server, of_part in zip(self.servers, of_parts, strict=True):
            by_server[server].append(of_part)
        return by_server

    def by_part(self, of_servers: Sequence[Sequence[Any]]) -> list[Any]:
        """What servers have, for each part."""
        rest = [iter(of_server) for of_server in of_servers]
        return [next(rest[server]) for server in self.servers]


def _parts_of(call: Call) -> _Parts:
    return _Parts(call.attr("num_parts"), call.attr("part_servers"))


def remote_keys(call: Call) -> dict[str, Any]:
    """FusedEmbeddingRemoteKeys: the distinct ids of each table, by the part that has them."""
    parts, tables = _parts_of(call), call.attr("table_of_column")
    ids: list[tf.Tensor] = []
    positions: dict[int, _Positions] = {}
    for table in range(call.attr("num_tables")):
        columns = [i for i, of_column in enumerate(tables) if of_column == table]
        found = _distinct_ids(call, table, columns)
        ids += next(iter(found.values())).partition.ids
        positions |= found
    by_server = parts.by_server(ids, call.attr("num_servers"))
    return {
        "messages": [_Message(of_server) for of_server in by_server],
        "positions": [positions[i] for i in range(len(tables))],
        # The rows of parts are tensors of their own, and the pairs have what fills rows.
        "part_sizes": None,
        "default_positions": None,
    }


def _distinct_ids(call: Call, table: int, columns: list[int]) -> dict[int, _Positions]:
    """Of the columns of one table: one partition of what all of them look up."""
    weights = stock_ops.weights_of_columns(call)
    pairs = {i: stock_ops.read_pairs(call, i, weights.get(i))[0] for i in columns}
    unique = tf.unique(tf.concat([of_column.ids for of_column in pairs.values()], axis=0))
    rows = [call.attr("part_rows")[part] for part in _parts_of(call).of_table(table)]
    shapes = [tf.constant([number], tf.int64) for number in rows]
    partition = partitioned(unique.y, shapes, call.attr("partition_strategies")[table])
    sizes = [tf.size(of_column.ids) for of_column in pairs.values()]
    numbers = zip(columns, tf.split(unique.idx, sizes), strict=True)
    return {i: _Positions(pairs[i]._replace(ids=ids), partition) for i, ids in numbers}


def rows_of_tensors(call: Call) -> dict[str, Any]:
    """FusedEmbeddingRemoteRows."""
    return _rows(call, stock_ops.readers_of_tensors(call))


def rows_of_variables(call: Call) -> dict[str, Any]:
    """FusedEmbeddingResourceRemoteRows."""
    return _rows(call, stock_ops.readers_of_variables(call))


def rows_of_tables(call: Call) -> dict[str, Any]:
    """EmbeddingVariableRemoteRows."""
    return _rows(call, stock_ops.readers_of_tables(call))


def _rows(call: Call, readers: Sequence[stock_ops.Reader]) -> dict[str, Any]:
    message: _Message = call.inputs["message"]
    rows = [read(ids) for read, ids in zip(readers, message.ids, strict=True)]
    return {"rows": _ServerRows(rows)}


def remote_lookup(call: Call) -> dict[str, Any]:
    """FusedEmbeddingRemoteLookup: combined rows of the columns."""
    parts = _parts_of(call)
    of_parts = parts.by_part([of_server.rows for of_server in call.inputs["rows"]])
    combined = []
    for i, table in enumerate(call.attr("table_of_column")):
        (pairs, partition) = call.inputs["sp_values"][i]
        rows = [of_parts[part] for part in parts.of_table(table)]
        dim = call.attr("dims")[table]
        distinct = tf.reshape(tf.dynamic_stitch(partition.positions, rows), [-1, dim])
        combining = Combining(call.attr("combiners")[i], call.attr("max_norms")[i])
        num_rows = stock_ops.number_of_rows(call.inputs["sp_dense_shapes"][i])
        combined.append(combining(distinct, pairs.ids, pairs.row_ids, pairs.weights, num_rows))
    return stock_ops.as_outputs(call, combined)


REMOTE_OPS: stock_ops.Lookups = {
    "EmbeddingVariableRemoteRows": rows_of_tables,
    "FusedEmbeddingRemoteKeys": remote_keys,
    "FusedEmbeddingRemoteLookup": remote_lookup,
    "FusedEmbeddingRemoteRows": rows_of_tensors,
    "FusedEmbeddingResourceRemoteRows": rows_of_variables,
}
