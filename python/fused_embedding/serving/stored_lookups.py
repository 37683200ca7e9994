"""Grouped lookups of stored rows by one op of this package: exports with ops="fused" and quantize.

All else of such an export is as in one of stock ops: its tables, deltas and other lookups.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.stock_parts import Pairs, is_valid
from fused_embedding.ops import raw_ops
from fused_embedding.serving import stock_ops
from fused_embedding.serving.served_table import ServedTable
from fused_embedding.serving.stock_forms import STOCK_OPS
from fused_embedding.serving.stock_ops import Call
from fused_embedding.serving.stored_rows import Coding, StoredRows


class _Column(NamedTuple):
    """A column whose rows the op reads.

    Attributes:
        table: Of the group.
        number: Of the column in the group.
        ids: `[nnz]` rows of the variable, int64; < 0: pruned.
        rows: `[nnz]` row of the result of each.
        weights: `[nnz]` or None.
        default_id: As the attr of the op.
    """

    table: int
    number: int
    ids: tf.Tensor
    rows: tf.Tensor
    weights: tf.Tensor | None
    default_id: int


class _Table(NamedTuple):
    """Where stored rows are."""

    handle: tf.Tensor
    coding: Coding
    keyed: ServedTable | None  # finds them by key; None: ids are row numbers


def _stored(table: Any) -> _Table | None:
    """The stored float32 rows of what a column reads; None: it has no such rows."""
    if isinstance(table, StoredRows):
        found = _Table(table.handle, table.coding, None)
    elif isinstance(table, ServedTable) and table.coding is not None:
        found = _Table(table.rows.handle, table.coding, table)
    else:
        return None
    return found if found.coding.dtype == tf.float32 else None


def _group_of_variables(call: Call) -> dict[str, Any]:
    return _group(call, stock_ops.readers_of_variables(call))


def _group_of_tables(call: Call) -> dict[str, Any]:
    return _group(call, stock_ops.readers_of_tables(call))


def _group(call: Call, readers: Sequence[stock_ops.Reader]) -> dict[str, Any]:
    tables = [_stored(table) for table in call.inputs["resources"]]
    of_column = call.attr("table_of_column")
    columns = [i for i, table in enumerate(of_column) if tables[table] is not None]
    if not columns:
        return stock_ops.group(call, readers)
    weights = stock_ops.weights_of_columns(call)
    prepared = [_column(call, i, tables[of_column[i]], weights.get(i)) for i in columns]

    def fused() -> list[tf.Tensor]:
        return _look_up(call, prepared, tables)

    def by_stock_ops() -> list[tf.Tensor]:
        return [stock_ops.column(call, i, readers[of_column[i]], weights.get(i)) for i in columns]

    all_known = _all_known(prepared, tables)
    results = fused() if all_known is None else tf.cond(all_known, fused, by_stock_ops)
    combined = dict(zip(columns, results, strict=True))
    for i, table in enumerate(of_column):
        if i not in combined:
            combined[i] = stock_ops.column(call, i, readers[table], weights.get(i))
    return stock_ops.as_outputs(call, [combined[i] for i in range(len(of_column))])


def _column(call: Call, i: int, table: Any, weights: tf.Tensor | None) -> _Column:
    pairs = stock_ops.pairs_of_column(call, i, weights)
    number, default_id = call.attr("table_of_column")[i], call.attr("default_ids")[i]
    if table.keyed is None:
        return _Column(number, i, pairs.ids, pairs.row_ids, pairs.weights, default_id)
    fills = call.attr("fill_empty_row") and default_id >= 0
    if fills:  # with a key, whose row is not known when this is built
        pairs = _filled(call, i, pairs, default_id)
    rows = table.keyed.positions(pairs.ids)
    if call.attr("prune") and not fills:
        rows = tf.where(pairs.ids < 0, tf.constant(-1, tf.int64), rows)
    return _Column(number, i, rows, pairs.row_ids, pairs.weights, -1)


def _filled(call: Call, i: int, pairs: Pairs, default_id: int) -> Pairs:
    if call.attr("prune"):
        pairs = pairs.where(is_valid(pairs, call.attr("combiners")[i] != "sum"))
    num_rows = stock_ops.number_of_rows(call.inputs["sp_dense_shapes"][i])
    return pairs.filled(pairs.is_row_empty(num_rows), default_id)


def _all_known(columns: Sequence[_Column], tables: Sequence[Any]) -> tf.Tensor | None:
    """Whether no key reads a first value that is computed; None: there are no such."""
    flags = []
    for column in columns:
        keyed = tables[column.table].keyed
        if keyed is not None and keyed.computes_first_values:
            is_known = (column.ids < 0) | (column.ids >= keyed.num_defaults)
            flags.append(tf.reduce_all(is_known))
    return tf.reduce_all(tf.stack(flags)) if flags else None


def _look_up(call: Call, columns: Sequence[_Column], tables: Sequence[Any]) -> list[tf.Tensor]:
    """Runs the op; the results of its columns."""
    numbers = list(dict.fromkeys(column.table for column in columns))
    read = [tables[number] for number in numbers]
    combined = raw_ops.FusedEmbeddingStoredRowsGroupLookup(
        resources=[table.handle for table in read],
        formats=[table.coding.format for table in read],
        dims=[table.coding.dim for table in read],
        table_of_column=[numbers.index(column.table) for column in columns],
        default_ids=[column.default_id for column in columns],
        dtype=tf.float32,
        num_outputs=len(columns),
        prune=call.attr("prune"),
        fill_empty_row=call.attr("fill_empty_row"),
        **_pairs(call, columns),
        **_of_columns(call, columns),
    )
    return list(combined)


def _pairs(call: Call, columns: Sequence[_Column]) -> dict[str, Any]:
    weights = {i: c.weights for i, c in enumerate(columns) if c.weights is not None}
    dense_shapes = call.inputs["sp_dense_shapes"]
    return {
        "sp_values": [column.ids for column in columns],
        "sp_indices": [column.rows for column in columns],
        "sp_dense_shapes": [dense_shapes[column.number] for column in columns],
        "sp_weights": list(weights.values()),
        "weighted_columns": list(weights),
    }


def _of_columns(call: Call, columns: Sequence[_Column]) -> dict[str, Any]:
    """The attrs that have an entry for each column of the group, or none."""
    lists = {name: call.attr(name) for name in ("combiners", "max_norms", "column_names")}
    return {
        name: [of_group[column.number] for column in columns] if of_group else []
        for name, of_group in lists.items()
    }


# What each op becomes where stored rows are looked up by ops of this package.
STORED_LOOKUPS = STOCK_OPS | {
    "EmbeddingVariableGroupLookup": _group_of_tables,
    "FusedEmbeddingResourceGroupLookup": _group_of_variables,
}
