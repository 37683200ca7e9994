"""Lookups of several columns in one op, and in one op for all their gradients."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.feature_ids import FeatureIds, make_ids
from fused_embedding.lookup.ids import SparseIds
from fused_embedding.lookup.names import column_name, table_name
from fused_embedding.lookup.options import LookupOptions
from fused_embedding.lookup.stock_lookup import is_stock
from fused_embedding.lookup.tables import AnyShard, EmbeddingVariableShard, Shard
from fused_embedding.ops import raw_ops
from fused_embedding.ops.control_flow import branch_gradients
from fused_embedding.ops.disabled import why_disabled
from fused_embedding.ops.placement import is_in_another_task, lacks_kernels
from fused_embedding.ops.tf_private import colocate_with, variable_accessed
from fused_embedding.variable.reads import global_step_value


class Column(NamedTuple):
    """One lookup of a group.

    Attributes:
        shards: The table.
        ids: The batch. Its `indices` may be `[nnz]`, the row of each id. `FeatureIds` before the
            columns are looked up: `with_ids` makes ids of them.
        options: The options of the lookup.
    """

    shards: list[AnyShard]
    ids: Any
    options: LookupOptions

    @property
    def name(self) -> str:
        """The name of the lookup in errors."""
        table = table_name(self.shards[0].owner)
        if len(self.shards) > 1:
            table = table.removesuffix("/part_0")  # of a partitioned variable
        return column_name(self.ids.name, table)


def with_ids(columns: Sequence[Column]) -> list[Column]:
    """The columns with ids in place of features, which one op makes of all of them.

    Args:
        columns: Lookups of ids or features.

    Returns:
        Lookups of ids, in order.
    """
    features = [column.ids for column in columns if isinstance(column.ids, FeatureIds)]
    shared = [feature.shared for feature in features if feature.shared is not None]
    made = make_ids([*features, *shared]) if features else []
    ids, shared_ids = iter(made[: len(features)]), iter(made[len(features) :])
    return [
        column._replace(ids=_with_shared(column.ids, ids, shared_ids))
        if isinstance(column.ids, FeatureIds)
        else column
        for column in columns
    ]


def _with_shared(
    features: FeatureIds, ids: Iterator[SparseIds], shared_ids: Iterator[SparseIds]
) -> SparseIds:
    """The next ids, with the next shared rows if the features make some."""
    made = next(ids)
    return made if features.shared is None else made._replace(shared_ids=next(shared_ids).values)


def obstacle(column: Column) -> str | None:
    """The reason why one op cannot do this lookup, which then needs the ops of v2.

    Args:
        column: The lookup.

    Returns:
        The reason, in words for users; None if one op can do it.
    """
    shards, _, options = column
    if is_stock(shards):
        return why_disabled("lookup")
    if len(shards) != 1:
        return f"its table is divided into {len(shards)} shards"
    if options.rows_end_at_last_id:
        return "its result ends with the last id, as stock's embedding_lookup_sparse has it"
    if options.default_id is not None and options.default_id < 0:
        return f"its default_id = {options.default_id} is no row of the table"
    device = shards[0].owner.device
    if is_in_another_task(device):
        return f"its table is in another task, {device}"
    if lacks_kernels(device):
        return f"its table is on {device}, and this build has no kernels for GPUs"
    return None


def fuses(column: Column) -> bool:
    """Whether one op can do this lookup; see `obstacle`."""
    return obstacle(column) is None


def group_key(column: Column) -> Hashable:
    """The properties that the columns of one op must share."""
    shard, options = column.shards[0], column.options
    return table_kind(shard), shard.owner.device, options.prune, options.fill_empty_row


def table_kind(shard: AnyShard) -> Hashable:
    """What all tables that one op reads have in common: their type and dtype, and how it reads."""
    if not isinstance(shard, EmbeddingVariableShard):
        return type(shard), shard.dtype, shard.is_variable
    # A table on a GPU has a key inserted in all tables of a lookup, or in none.
    is_in_hbm = shard.source.option.storage_option.is_in_hbm
    return type(shard), shard.dtype, is_in_hbm, is_in_hbm and shard.inserts


def lookup_group(
    columns: Sequence[Column], *, side_by_side: bool = False, merges: bool = True
) -> list[tf.Tensor]:
    """Looks up columns that agree in `group_key`.

    Args:
        columns: Lookups for which `fuses` is true.
        side_by_side: Whether to write the results into one tensor.
        merges: Whether columns that share an ordinary table have one gradient of it.

    Returns:
        The combined embeddings of each column, `[num_rows, dim]`, with rows of tables flattened; or
        with `side_by_side` one tensor `[num_rows, sum of dims]`.
    """
    shards: list[Any] = [column.shards[0] for column in columns]
    is_keyed = isinstance(shards[0], EmbeddingVariableShard)
    if merges or is_keyed:
        tables, table_of_column = _distinct(shards)
    else:
        tables, table_of_column = shards, list(range(len(shards)))
    arguments = group_arguments(columns, 1 if side_by_side else len(columns))
    arguments |= {"table_of_column": table_of_column}
    if is_keyed:
        return _call_keyed(tables, arguments)
    with colocate_with(tables[0].owner):
        return _call(tables, arguments)


def _distinct(shards: list[Any]) -> tuple[list[Any], list[int]]:
    """The distinct tables, and for each column the number of its table."""
    number_of_source: dict[int, int] = {}
    tables: list[Any] = []
    for shard in shards:
        if number_of_source.setdefault(id(shard.source), len(tables)) == len(tables):
            tables.append(shard)
    return tables, [number_of_source[id(shard.source)] for shard in shards]


def group_arguments(columns: Sequence[Column], num_outputs: int) -> dict[str, Any]:
    """What every op of a group is told of its columns, beside their tables."""
    arguments = _inputs([column.ids for column in columns])
    arguments |= _attributes([column.options for column in columns])
    arguments |= {
        "num_outputs": num_outputs,
        "column_names": [column.name for column in columns],
    }
    return arguments


def _inputs(ids: list[SparseIds]) -> dict[str, Any]:
    weights = {i: column.weights for i, column in enumerate(ids) if column.weights is not None}
    return {
        "sp_values": [column.values for column in ids],
        "sp_indices": [column.indices for column in ids],
        "sp_dense_shapes": [column.dense_shape for column in ids],
        "sp_weights": list(weights.values()),
        "weighted_columns": list(weights),
    }


def _attributes(options: list[LookupOptions]) -> dict[str, Any]:
    return {
        "combiners": [option.combiner for option in options],
        "max_norms": [option.max_norm_attr for option in options],
        "default_ids": [option.default_id_attr for option in options],
        "prune": options[0].prune,
        "fill_empty_row": options[0].fill_empty_row,
    }


def _call(tables: list[Shard], arguments: dict[str, Any]) -> list[tf.Tensor]:
    if not tables[0].is_variable:
        sources = [table.source for table in tables]
        return raw_ops.FusedEmbeddingGroupLookup(tables=sources, **arguments)
    return raw_ops.FusedEmbeddingResourceGroupLookup(**variable_arguments(tables), **arguments)


def variable_arguments(tables: list[Shard]) -> dict[str, Any]:
    """What an op that reads rows of variables is told of them. It notes that they are read."""
    sources = [table.source for table in tables]
    for variable in sources:
        variable_accessed(variable)
    return {
        "resources": [variable.handle for variable in sources],
        "dtype": tables[0].dtype,
        "table_shapes": [variable.shape for variable in sources],
    }


def keyed_arguments(tables: list[EmbeddingVariableShard]) -> dict[str, Any]:
    """What an op that looks keys up in tables is told of them. It tells them of the lookup."""
    inserts = [table.inserts for table in tables]
    for table in tables:
        table.source.tell_of_lookup(table.inserts)
    return {
        "resources": [table.source.handle for table in tables],
        "insert": all(inserts),
        "are_inserted": inserts if len(set(inserts)) > 1 else [],
        "dtype": tables[0].dtype,
    }


def _call_keyed(tables: list[EmbeddingVariableShard], arguments: dict[str, Any]) -> list[tf.Tensor]:
    with colocate_with(tables[0].source.handle), branch_gradients():
        return raw_ops.EmbeddingVariableGroupLookup(
            step=global_step_value(), **keyed_arguments(tables), **arguments
        ).combined
