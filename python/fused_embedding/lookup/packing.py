"""Pairs of several columns in one vector, so that one op works on those of all columns."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.lookup.group import Column
from fused_embedding.lookup.ids import SparseIds

# The id of a pair that is dropped.
_NO_ID = -1


class Packed:
    """The pairs of columns, one column after the other.

    Attributes:
        values: `[sum of nnz]` int64 ids.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = list(columns)
        self.values = self.join([tf.cast(c.ids.values, tf.int64) for c in columns])
        self._sizes: tf.Tensor | None = None
        self._columns_of_pairs: tf.Tensor | None = None

    @property
    def sizes(self) -> tf.Tensor:
        """`[num_columns]` int32 number of pairs of each column."""
        if self._sizes is None:
            values = [tf.cast(column.ids.values, tf.int64) for column in self._columns]
            self._sizes = tf.concat(tf.raw_ops.ShapeN(input=values), axis=0)
        return self._sizes

    @property
    def columns(self) -> list[Column]:
        """The columns."""
        return self._columns

    def join(self, of_columns: Sequence[tf.Tensor]) -> tf.Tensor:
        """What columns have for their pairs, `[nnz]` each, as one vector."""
        return of_columns[0] if len(of_columns) == 1 else tf.concat(of_columns, axis=0)

    def split(self, packed: tf.Tensor) -> list[tf.Tensor]:
        """Undoes `join`."""
        if len(self._columns) == 1:
            return [packed]
        return list(tf.split(packed, self.sizes, num=len(self._columns)))

    def of_each(self, numbers: Sequence[int]) -> tf.Tensor:
        """A number of each column for each of its pairs: int64, a scalar if all are the same."""
        if len(set(numbers)) == 1:
            return tf.constant(numbers[0], tf.int64)
        return tf.gather(tf.constant(numbers, tf.int64), self.column_of_pair)

    @property
    def column_of_pair(self) -> tf.Tensor:
        """`[sum of nnz]` number of the column of each pair."""
        if self._columns_of_pairs is None:
            ends = tf.cumsum(self.sizes)
            pairs = tf.range(ends[-1])
            self._columns_of_pairs = tf.searchsorted(ends, pairs, side="right")
        return self._columns_of_pairs

    def of_each_column(self, vectors: Sequence[tf.Tensor]) -> tf.Tensor:
        """`[k]` numbers of each column for each of its pairs, `[sum of nnz, k]`."""
        if len(vectors) == 1:
            return vectors[0][tf.newaxis]
        return tf.gather(tf.stack(vectors), self.column_of_pair)

    def rows(self) -> tuple[tf.Tensor, tf.Tensor]:
        """`[sum of nnz]` row of each pair, counted over all columns, and the number of rows."""
        if len(self._columns) == 1:
            [column] = self._columns
            return column.ids.rows, column.ids.dense_shape[0]
        num_rows = tf.stack([column.ids.dense_shape for column in self._columns])[:, 0]
        rows = self._rows_of_columns()
        rows += tf.gather(tf.cumsum(num_rows, exclusive=True), self.column_of_pair)
        return rows, tf.reduce_sum(num_rows)

    def _rows_of_columns(self) -> tf.Tensor:
        """`[sum of nnz]` row of each pair in its column."""
        indices = [column.ids.indices for column in self._columns]
        if all(of_column.shape.rank == 2 for of_column in indices):
            return tf.concat(indices, axis=0)[:, 0]
        return self.join([column.ids.rows for column in self._columns])

    def weights(self) -> tf.Tensor:
        """`[sum of nnz]` float32, or float64 for tables of that type; 1 where there are none."""
        is_double = any(column.shards[0].dtype == tf.float64 for column in self._columns)
        dtype = tf.float64 if is_double else tf.float32
        weights = [column.ids.weights for column in self._columns]
        if all(of_column is None for of_column in weights):
            return tf.ones_like(self.values, dtype)
        return self.join(
            [
                tf.ones_like(column.ids.values, dtype) if w is None else tf.cast(w, dtype)
                for column, w in zip(self._columns, weights, strict=True)
            ]
        )


def kept_if(packed: Packed, is_kept: tf.Tensor) -> list[SparseIds]:
    """The ids of columns without those pairs that a part of a table is not read for.

    Args:
        packed: The columns; `values` are the ids.
        is_kept: `[sum of nnz]` bool.

    Returns:
        The ids of each column: other pairs have an id that is pruned, or are left out where the
        lookup does not prune.
    """
    values = packed.split(tf.where(is_kept, packed.values, tf.constant(_NO_ID, tf.int64)))
    flags = packed.split(is_kept) if any(not c.options.prune for c in packed.columns) else None
    result = []
    for i, column in enumerate(packed.columns):
        ids = column.ids._replace(values=values[i])
        if flags is not None and not column.options.prune:
            ids = _without(column.ids, flags[i])
        result.append(ids)
    return result


def _without(ids: SparseIds, is_kept: tf.Tensor) -> SparseIds:
    """The pairs that are kept."""
    positions = tf.where(is_kept)[:, 0]
    weights = None if ids.weights is None else tf.gather(ids.weights, positions)
    return ids._replace(
        values=tf.gather(tf.cast(ids.values, tf.int64), positions),
        indices=tf.gather(ids.rows, positions),
        weights=weights,
    )


def divided_weights(columns: Sequence[Column]) -> list[Column]:
    """Columns that add up, with weights that are divided by what the combiner divides by.

    Each part of a table then has its share of the result, whichever pairs it is not read for.

    Args:
        columns: Lookups of ids.

    Returns:
        The columns; those with other combiners have the combiner "sum" and new weights.
    """
    result = list(columns)
    for combiner in ("mean", "sqrtn"):
        members = [i for i, c in enumerate(columns) if c.options.combiner == combiner]
        if not members:
            continue
        divided = _divided([columns[i] for i in members], combiner)
        for i, column in zip(members, divided, strict=True):
            result[i] = column
    return result


def _divided(columns: Sequence[Column], combiner: str) -> list[Column]:
    packed = Packed(columns)
    weights = packed.weights()
    values = packed.values
    is_dropped = [column.options.prune for column in columns]
    if any(is_dropped):
        prunes = _of_pairs(packed, is_dropped)
        values = tf.where(prunes & ~(weights > 0), tf.constant(_NO_ID, tf.int64), values)
        is_summed = ~prunes | (values >= 0)
    else:
        is_summed = tf.ones_like(values, tf.bool)
    rows, num_rows = packed.rows()
    terms = weights if combiner == "mean" else weights * weights
    terms = tf.where(is_summed, terms, tf.zeros_like(terms))
    sums = tf.math.unsorted_segment_sum(terms, rows, num_rows)
    divisors = sums if combiner == "mean" else tf.sqrt(sums)
    divided = tf.math.divide_no_nan(weights, tf.gather(divisors, rows))
    if all(column.ids.weights is None for column in columns):
        divided = tf.stop_gradient(divided)
    result = []
    for column, ids, own in zip(columns, packed.split(values), packed.split(divided), strict=True):
        options = dataclasses.replace(column.options, combiner="sum")
        result.append(
            column._replace(ids=column.ids._replace(values=ids, weights=own), options=options)
        )
    return result


def _of_pairs(packed: Packed, flags: list[bool]) -> tf.Tensor:
    """A flag of each column for each of its pairs; a scalar if all are the same."""
    if len(set(flags)) == 1:
        return tf.constant(flags[0])
    return tf.gather(tf.constant(flags), packed.column_of_pair)


def filled(column: Column, blocknum: int | None) -> Column:
    """A column whose empty rows have pairs of the default id, and whose result has all rows.

    Args:
        column: A lookup of ids.
        blocknum: The number of blocks that a default id reads, of a table of blocks.

    Returns:
        The column, without a default id.

    Raises:
        ValueError: For a default_id < 0, which is no key of a table of several parts.
    """
    column = _with_static_end(column)
    options = column.options
    default_id = options.default_id
    if default_id is None or not options.fill_empty_row:
        return column._replace(options=_without_default(options))
    if default_id < 0:
        raise ValueError(
            f"{column.name}: default_id = {default_id} was given, but a table of several parts "
            "needs one >= 0; pass None for zero rows"
        )
    ids = column.ids
    empty = _empty_rows(column)
    added = tf.fill(tf.shape(empty), tf.constant(default_id, tf.int64))
    ids = ids._replace(
        values=tf.concat([tf.cast(ids.values, tf.int64), added], axis=0),
        indices=tf.concat([ids.rows, empty], axis=0),
        weights=_extended(ids.weights, empty, 1),
        blocknums=_extended(ids.blocknums, empty, blocknum),
        is_own=_extended(ids.is_own, empty, True),
        shared_ids=None if ids.shared_ids is None else _no_shared_id(column),
    )
    return column._replace(ids=ids, options=_without_default(options))


def _no_shared_id(column: Column) -> Any:
    raise ValueError(
        f"{column.name}: default_id was given together with the shared rows of ids; pass None"
    )


def _without_default(options: Any) -> Any:
    return dataclasses.replace(options, default_id=None)


def _extended(numbers: tf.Tensor | None, rows: tf.Tensor, value: Any) -> tf.Tensor | None:
    """`numbers` followed by `value` for each of `rows`."""
    if numbers is None:
        return None
    added = tf.fill(tf.shape(rows), tf.cast(value, numbers.dtype))
    return tf.concat([numbers, added], axis=0)


def _empty_rows(column: Column) -> tf.Tensor:
    """`[n]` int64 rows of which no pair is kept."""
    ids, options = column.ids, column.options
    is_kept = tf.ones_like(ids.values, tf.bool)
    if options.prune:
        is_kept = ids.values >= 0
        if ids.weights is not None and options.prune_weights:
            is_kept &= ids.weights > 0
    counts = tf.math.unsorted_segment_sum(tf.cast(is_kept, tf.int32), ids.rows, ids.dense_shape[0])
    return tf.where(tf.equal(counts, 0))[:, 0]


def _with_static_end(column: Column) -> Column:
    """The column, whose rows end where stock's embedding_lookup_sparse has the end."""
    if not column.options.rows_end_at_last_id:
        return column
    rows = column.ids.rows
    num_rows = tf.reduce_max(tf.concat([rows, tf.constant([-1], rows.dtype)], axis=0)) + 1
    dense_shape = tf.stack([num_rows, tf.ones_like(num_rows)])
    options = dataclasses.replace(column.options, rows_end_at_last_id=False)
    return column._replace(ids=column.ids._replace(dense_shape=dense_shape), options=options)
