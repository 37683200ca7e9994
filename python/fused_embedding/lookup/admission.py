"""Counts and inserts keys ahead of their lookup, where what is looked up depends on the outcome."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.placement import on_cpu
from fused_embedding.ops.tf_private import colocate_with
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.reads import global_step_value
from fused_embedding.variable.scope import AnyEmbeddingVariable


class Arrivals(NamedTuple):
    """The keys of a column ahead of their lookup.

    Attributes:
        table: The EmbeddingVariable, maybe partitioned.
        keys: `[nnz]` int64; keys < 0 are no keys.
        first_values: `[nnz, dim]` values that new rows start with; None: those of the initializer.
        bounds: `[k]` int64, whose first is the number of occurrences from which a key is admitted;
            None: that of the table's filter.
    """

    table: AnyEmbeddingVariable
    keys: tf.Tensor
    first_values: tf.Tensor | None = None
    bounds: tf.Tensor | None = None


class Admitted(NamedTuple):
    """What became of the keys of a column.

    Attributes:
        is_admitted: `[nnz]` bool: whether the key has a row.
        frequencies: `[nnz]` int64 occurrences in training; in evaluation 0 without a row.
    """

    is_admitted: tf.Tensor
    frequencies: tf.Tensor


class _PartArrivals(NamedTuple):
    """The keys of a column in one partition of its table."""

    column: int
    part: EmbeddingVariable
    arrivals: Arrivals


def admit(columns: Sequence[Arrivals]) -> list[Admitted]:
    """Counts keys and inserts those that are admitted, except in `fe.inference()`.

    Args:
        columns: Either all or none of those of a dtype have first values.

    Returns:
        What became of the keys of each column, in order.
    """
    groups: dict[Any, list[_PartArrivals]] = {}
    for i, column in enumerate(columns):
        for part, keys in _partitioned(column):
            key = (part.dtype, part.device, part.inserts, column.first_values is None)
            of_part = _PartArrivals(i, part, column._replace(keys=keys))
            groups.setdefault(key, []).append(of_part)
    outcomes: list[list[Admitted]] = [[] for _ in columns]
    for members in groups.values():
        for member, admitted in zip(members, _admit_group(members), strict=True):
            outcomes[member.column].append(admitted)
    return [_of_whole_table(parts) for parts in outcomes]


def _partitioned(column: Arrivals) -> list[tuple[EmbeddingVariable, tf.Tensor]]:
    """Each partition of a column's table, with the keys of the others replaced by -1."""
    if isinstance(column.table, EmbeddingVariable):
        return [(column.table, column.keys)]
    with on_cpu():
        part_of_key, _ = column.table.divide(column.keys)
        nowhere = tf.constant(-1, tf.int64)
        return [
            (part, tf.where(tf.equal(part_of_key, i), column.keys, nowhere))
            for i, part in enumerate(column.table)
        ]


def _admit_group(members: Sequence[_PartArrivals]) -> list[Admitted]:
    """Runs the op for columns of tables on one device."""
    arrivals = [member.arrivals for member in members]
    by_table = {id(member.part): member for member in members}
    numbers = dict(zip(by_table, range(len(by_table)), strict=True))
    tables = [member.part for member in by_table.values()]
    for table in tables:
        _check_place(table)
        table.tell_of_lookup(table.inserts)
    with colocate_with(tables[0].handle):
        result = raw_ops.EmbeddingVariableAdmit(
            resources=[table.handle for table in tables],
            keys=[column.keys for column in arrivals],
            first_values=_given([column.first_values for column in arrivals]),
            min_frequencies=_first_bounds([m.arrivals.bounds for m in by_table.values()]),
            step=global_step_value(),
            table_of_column=[numbers[id(member.part)] for member in members],
            insert=tables[0].inserts,
        )
    return list(map(Admitted, result.is_admitted, result.frequencies))


def _check_place(table: EmbeddingVariable) -> None:
    if table.option.storage_option.is_in_hbm:
        raise NotImplementedError(
            f"the EmbeddingVariable {table.name!r} has storage_type = HBM, but its keys are to be "
            "admitted ahead of a lookup, which tables on a GPU cannot do; pass StorageType.DRAM"
        )


def _given(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _first_bounds(bounds: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """`[num_tables]` int64 bound of each table, or `[0]` where all have their filters' own."""
    if all(of_table is None for of_table in bounds):
        return tf.zeros([0], tf.int64)
    if len({None if b is None else tuple(b.shape) for b in bounds}) == 1:
        return tf.stack(bounds)[:, 0]
    filters_own = tf.constant(-1, tf.int64)
    return tf.stack([filters_own if b is None else b[0] for b in bounds])


def _of_whole_table(parts: Sequence[Admitted]) -> Admitted:
    """Joins what partitions say: of each key, one of them says something."""
    if len(parts) == 1:
        return parts[0]
    return Admitted(
        tf.reduce_any(tf.stack([part.is_admitted for part in parts]), axis=0),
        tf.add_n([part.frequencies for part in parts]),
    )
