"""Lookups in tables of several parts: multi-hash, dynamic dimension, adaptive.

A lookup of such a table becomes lookups of its parts, which are columns of the same group. Its
result is a sum of terms; a term is the results of some parts side by side:

    multi-hash, concat     quotient | remainder
    multi-hash, add        quotient + remainder
    dynamic dimension      block 0 | block 1 | ...
    adaptive               shared row + own row

Where an id does not read a part, its id in that column is -1, which is pruned. This is exact if
embeddings are only added up. Otherwise ("mul", max_norm) the row of each id is put together first,
and the rows are the table of a second lookup.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.lookup.admission import Arrivals, admit
from fused_embedding.lookup.feature_ids import Feature, FeatureIds, KeyRule, make_ids
from fused_embedding.lookup.group import Column
from fused_embedding.lookup.packing import Packed, divided_weights, filled, kept_if
from fused_embedding.lookup.tables import (
    ComposedShard,
    EmbeddingVariableShard,
    Shard,
    as_shards,
)
from fused_embedding.ops.placement import on_cpu
from fused_embedding.variable.adaptive import AdaptiveEmbeddingVariable
from fused_embedding.variable.composed import ComposedTable
from fused_embedding.variable.dynamic_dimension import NEVER, DynamicEmbeddingVariable
from fused_embedding.variable.inference import is_inference
from fused_embedding.variable.multihash import MultiHashVariable

# Of a column: the terms of its sum, each of which is columns side by side.
Terms = list[list[Column]]
Run = Callable[[list[Column]], list[tf.Tensor]]


def has_composed(columns: Sequence[Column]) -> bool:
    """Whether one of the columns has a table of several parts.

    Args:
        columns: Lookups of ids.
    """
    return any(_is_composed(column) for column in columns)


def _is_composed(column: Column) -> bool:
    return isinstance(column.shards[0], ComposedShard)


def _table(column: Column) -> Any:
    return column.shards[0].source


def run_composed(columns: Sequence[Column], run: Run) -> list[tf.Tensor]:
    """Looks up columns, some of which have tables of several parts.

    Args:
        columns: Lookups of ids.
        run: Looks up columns without such tables, `run_group`.

    Returns:
        The combined embeddings of each column, in order.
    """
    looked_up = _look_up_terms(_terms(columns, run), run)
    return [_joined(*pair) for pair in zip(columns, looked_up, strict=True)]


def _joined(column: Column, terms: list[list[tf.Tensor]]) -> tf.Tensor:
    """The result of a column, of those of its parts."""
    results = [_beside(term) for term in terms]
    is_product = _is_product(column) and len(results) > 1
    return functools.reduce(tf.multiply, results) if is_product else _sum(results)


def _look_up_terms(terms: list[Terms], run: Run) -> list[list[list[tf.Tensor]]]:
    """The results of all parts, in place of the columns."""
    flat = [part for of_column in terms for term in of_column for part in term]
    results = iter(run(flat))
    return [[[next(results) for _ in term] for term in of_column] for of_column in terms]


def run_composed_side_by_side(
    columns: Sequence[Column], run: Run, run_side_by_side: Callable[[list[Column]], tf.Tensor]
) -> tf.Tensor:
    """`run_composed` into one tensor.

    Args:
        columns: Lookups of ids, all with the same number of rows.
        run: Looks up columns without such tables, `run_group`.
        run_side_by_side: The same into one tensor.

    Returns:
        `[num_rows, sum of dims]`.
    """
    terms = _terms(columns, run)
    is_sum = not any(_is_product(column) for column in columns)
    if not is_sum or len({len(of_column) for of_column in terms}) > 1:
        looked_up = zip(columns, _look_up_terms(terms, run), strict=True)
        return tf.concat([_joined(*pair) for pair in looked_up], axis=1)
    terms_of_all = zip(*terms, strict=True)
    return _sum([run_side_by_side(list(itertools.chain(*term))) for term in terms_of_all])


def _beside(results: list[tf.Tensor]) -> tf.Tensor:
    return results[0] if len(results) == 1 else tf.concat(results, axis=-1)


def _sum(terms: list[tf.Tensor]) -> tf.Tensor:
    return terms[0] if len(terms) == 1 else tf.add_n(terms)


def _terms(columns: Sequence[Column], run: Run) -> list[Terms]:
    """The terms of each column; a column without parts is its own only term."""
    columns = [filled(c, _fill_choice(c)) if _is_composed(c) else c for c in columns]
    columns = _with_rows_put_together(columns, run)
    terms: list[Terms] = [[[column]] for column in columns]
    for kind, terms_of in _KINDS.items():
        members = [i for i, c in enumerate(columns) if isinstance(_table(c), kind)]
        if not members:
            continue
        with on_cpu():
            of_kind = terms_of([columns[i] for i in members])
        for i, of_column in zip(members, of_kind, strict=True):
            terms[i] = of_column
    return terms


def _fill_choice(column: Column) -> int | None:
    """The blocknum of default ids."""
    table = _table(column)
    return table.blocknum() if isinstance(table, DynamicEmbeddingVariable) else None


def _part(column: Column, table: Any, values: tf.Tensor) -> Column:
    """A column of one part, with `values` as its ids."""
    ids = column.ids._replace(values=values, blocknums=None, is_own=None, shared_ids=None)
    return column._replace(shards=as_shards(table, "table"), ids=ids)


def _unfilled(column: Column) -> Column:
    """The column, whose empty rows read nothing: an ordinary table has a row for them, times 0."""
    return column._replace(options=dataclasses.replace(column.options, fill_empty_row=False))


# --- Rows that are put together before they are combined ---


def _needs_rows(column: Column) -> bool:
    """Whether embeddings of ids are more than summands."""
    if not _is_composed(column):
        return False
    table = _table(column)
    if isinstance(table, MultiHashVariable) and table.pools_first:
        return False
    return column.options.max_norm is not None or _is_product(column)


def _is_product(column: Column) -> bool:
    table = _table(column)
    return isinstance(table, MultiHashVariable) and table.operation == "mul"


def _with_rows_put_together(columns: Sequence[Column], run: Run) -> list[Column]:
    """The columns, with a tensor of rows as table where embeddings are more than summands."""
    members = [i for i, column in enumerate(columns) if _needs_rows(column)]
    if not members:
        return list(columns)
    rows = _rows_of_ids([columns[i] for i in members], run)
    result = list(columns)
    for i, of_ids in zip(members, rows, strict=True):
        column = columns[i]
        numbers = tf.range(tf.size(column.ids.values, out_type=tf.int64))
        values = tf.where(column.ids.values < 0, tf.cast(-1, tf.int64), numbers)
        if not column.options.prune:
            values = numbers
        result[i] = _unfilled(_part(column, _with_dense_gradient(of_ids), values))
    return result


@tf.custom_gradient
def _with_dense_gradient(rows: tf.Tensor) -> Any:
    """The rows: a table to one lookup, and the results of another, whose gradient is dense."""
    return tf.identity(rows), tf.convert_to_tensor


def _rows_of_ids(columns: list[Column], run: Run) -> list[tf.Tensor]:
    """`[nnz, dim]` embedding of each id, not clipped; zeros of ids that are pruned."""
    alone = [_alone(column) for column in columns]
    factors = [_multihash_terms([c])[0] if _is_product(c) else [[c]] for c in alone]
    rows = []
    for of_column in _look_up_terms(factors, run):
        first, *others = [_beside(factor) for factor in of_column]
        rows.append(functools.reduce(tf.multiply, others, first))
    return rows


def _alone(column: Column) -> Column:
    """The column with each id in a row of its own, without weights."""
    num_ids = tf.size(column.ids.values, out_type=tf.int64)
    ids = column.ids._replace(
        indices=tf.range(num_ids),
        dense_shape=tf.stack([num_ids, tf.ones_like(num_ids)]),
        weights=None,
        leading_shape=None,
        static_leading_shape=None,
    )
    options = dataclasses.replace(column.options, combiner="sum", max_norm=None)
    return column._replace(ids=ids, options=options)


# --- The terms of each kind of table ---


def _multihash_terms(columns: Sequence[Column]) -> list[Terms]:
    packed = Packed(columns)
    tables = [_table(column) for column in columns]
    quotients = packed.values // packed.of_each([table.divisor for table in tables])
    remainders = packed.values % packed.of_each([table.modulus for table in tables])
    # A negative id has a negative quotient.
    remainders = tf.where(packed.values < 0, packed.values, remainders)
    terms: list[Terms] = []
    pairs = zip(packed.split(quotients), packed.split(remainders), strict=True)
    for column, table, (quotient, remainder) in zip(columns, tables, pairs, strict=True):
        parts = [
            _part(column, table.quotients, quotient),
            _part(column, table.remainders, remainder),
        ]
        terms.append([parts] if table.operation == "concat" else [[part] for part in parts])
    return terms


def _dynamic_terms(columns: Sequence[Column]) -> list[Terms]:
    blocknums = _blocknums(columns)
    columns = divided_weights(columns)
    most = max(_table(column).blocknum() for column in columns)
    packed = Packed(columns)
    packed_blocknums = packed.join(blocknums)
    terms: list[Terms] = [[[]] for _ in columns]
    for block in range(most):
        kept = kept_if(packed, packed_blocknums > block)
        for of_column, column, ids in zip(terms, columns, kept, strict=True):
            table = _table(column)
            if block >= table.blocknum():
                continue
            part = _part(column._replace(ids=ids), table.blocks[block], ids.values)
            is_counted = block == 0 and table.bounds is not None
            of_column[0].append(_as_counted(part) if is_counted else part)
    return terms


def _as_counted(column: Column) -> Column:
    """The column over an EmbeddingVariable that has counted and inserted its keys already."""
    shards = [
        shard._replace(inserts=False) if isinstance(shard, EmbeddingVariableShard) else shard
        for shard in column.shards
    ]
    return column._replace(shards=shards)


def _blocknums(columns: Sequence[Column]) -> list[tf.Tensor]:
    """`[nnz]` int64 number of blocks of each id."""
    counted = [i for i, column in enumerate(columns) if column.ids.blocknums is None]
    for i in counted:
        if _table(columns[i]).bounds is None:
            raise ValueError(
                "blocknums must be valid for dynamic embedding variable: "
                f"{columns[i].name} was looked up without; pass the number of blocks of each id, "
                'or make the table with blocknums="frequency"'
            )
    result = [column.ids.blocknums for column in columns]
    of_counted = _blocks_by_frequency([columns[i] for i in counted]) if counted else []
    for i, blocknums in zip(counted, of_counted, strict=True):
        result[i] = blocknums
    return result


def _blocks_by_frequency(columns: Sequence[Column]) -> list[tf.Tensor]:
    """`[nnz]` int64 number of blocks of each id, in tables that decide."""
    tables = [_table(column) for column in columns]
    most = max(table.blocknum() for table in tables)
    never = [[NEVER] * (most - table.blocknum()) for table in tables]
    bounds = [
        tf.concat([table.bounds.read_value(), tf.constant(more, tf.int64)], axis=0)
        if more
        else table.bounds.read_value()
        for table, more in zip(tables, never, strict=True)
    ]
    arrivals = [
        Arrivals(table.mainev(), tf.cast(column.ids.values, tf.int64), bounds=of_table)
        for column, table, of_table in zip(columns, tables, bounds, strict=True)
    ]
    packed = Packed(columns)
    frequencies = packed.join([admitted.frequencies for admitted in admit(arrivals)])
    is_reached = frequencies[:, tf.newaxis] >= packed.of_each_column(bounds)
    return packed.split(tf.math.count_nonzero(is_reached, axis=1))


def _adaptive_terms(columns: Sequence[Column]) -> list[Terms]:
    shared = _shared_ids(columns)
    is_own = _own_rows(columns, shared)
    columns = divided_weights(columns)
    packed = Packed(columns)
    own = packed.join(is_own)
    by_key = kept_if(packed, own)
    by_hash = kept_if(
        Packed([_with_values(*pair) for pair in zip(columns, shared, strict=True)]),
        tf.logical_not(own) & (packed.values >= 0),
    )
    terms: list[Terms] = []
    for column, keys, buckets in zip(columns, by_key, by_hash, strict=True):
        table = _table(column)
        own_part = _part(column._replace(ids=keys), table.ev_weights, keys.values)
        shared_part = _part(column._replace(ids=buckets), table.hash_weights, buckets.values)
        terms.append([[_unfilled(shared_part)], [_as_counted(own_part)]])
    return terms


def _with_values(column: Column, values: tf.Tensor) -> Column:
    return column._replace(ids=column.ids._replace(values=values))


def _shared_ids(columns: Sequence[Column]) -> list[tf.Tensor]:
    """`[nnz]` int64 row of each id in the shared rows of its table."""
    result = [column.ids.shared_ids for column in columns]
    hashed = [i for i, of_column in enumerate(result) if of_column is None]
    features = [
        FeatureIds(
            (
                Feature(
                    columns[i].ids.values,
                    KeyRule("hash", _table(columns[i]).hash_bucket_size),
                    is_full=True,
                ),
            ),
            name=columns[i].ids.name,
        )
        for i in hashed
    ]
    for i, ids in zip(hashed, make_ids(features) if features else [], strict=True):
        result[i] = ids.values
    return result


def _own_rows(columns: Sequence[Column], shared: list[tf.Tensor]) -> list[tf.Tensor]:
    """`[nnz]` bool: whether each id has a row of its own. New rows start as the shared ones."""
    arrivals = []
    for column, shared_ids in zip(columns, shared, strict=True):
        table = _table(column)
        keys = tf.cast(column.ids.values, tf.int64)
        if column.ids.is_own is not None:
            keys = tf.where(column.ids.is_own, keys, tf.constant(-1, tf.int64))
        first_values = _shared_rows(table, shared_ids) if _inserts(table) else None
        arrivals.append(Arrivals(table.ev_weights, keys, first_values))
    return [admitted.is_admitted for admitted in admit(arrivals)]


def _inserts(table: AdaptiveEmbeddingVariable) -> bool:
    return table.trainable and not is_inference()


def _shared_rows(table: AdaptiveEmbeddingVariable, ids: tf.Tensor) -> tf.Tensor:
    """`[nnz, dim]` shared row of each id, without a gradient."""
    [shard] = as_shards(table.hash_weights, "hash_weights")
    assert isinstance(shard, Shard)
    return tf.stop_gradient(shard.stock_rows(ids))


_KINDS: dict[type[ComposedTable], Callable[[Sequence[Column]], list[Terms]]] = {
    MultiHashVariable: _multihash_terms,
    DynamicEmbeddingVariable: _dynamic_terms,
    AdaptiveEmbeddingVariable: _adaptive_terms,
}
