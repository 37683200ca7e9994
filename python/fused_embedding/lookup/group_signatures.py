"""Lookups of several columns at once, with the signatures of DeepRec's group functions."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.lookup.group import Column
from fused_embedding.lookup.ids import as_dense_ids, as_sequence_ids, as_sparse_ids
from fused_embedding.lookup.options import LookupOptions, make_options
from fused_embedding.lookup.row_index import as_row_indices, expanded
from fused_embedding.lookup.run import run_group, run_group_side_by_side
from fused_embedding.lookup.tables import as_shards, with_blocknums
from fused_embedding.ops.tracing import traced_as_written


def _for_each(values: Any, argument: str, num_columns: int) -> list[Any]:
    """Checks that `values` has one entry per column; None becomes a None for each column."""
    if values is None:
        return [None] * num_columns
    if not isinstance(values, list | tuple):
        raise TypeError(f"{argument} must be a list with an entry for each column, got {values!r}")
    if len(values) != num_columns:
        raise ValueError(
            f"{argument} must have an entry for each of the {num_columns} params, got {len(values)}"
        )
    return list(values)


def _as_params(params: Any) -> list[Any]:
    if not isinstance(params, list | tuple) or not params:
        raise ValueError(f"params must be a list of tables, one for each column, got {params!r}")
    return list(params)


def _check_num_per_group(params_num_per_group: int | None) -> None:
    if params_num_per_group is not None and params_num_per_group < 1:
        raise ValueError(
            f"params_num_per_group must be >= 1, or None for no limit, got {params_num_per_group}"
        )


@traced_as_written
def group_embedding_lookup_sparse(
    params: Sequence[Any],
    sp_ids: Sequence[Any],
    combiners: Sequence[str],
    sp_weights: Sequence[Any] | None = None,
    partition_strategy: str = "mod",
    is_sequence: bool = False,
    params_num_per_group: int | None = None,
    name: str | None = None,
    *,
    max_norms: Sequence[float | None] | None = None,
    default_ids: Sequence[int | None] | None = None,
    concat: bool = False,
    rows: Sequence[Any] | None = None,
    blocknums: Sequence[Any] | None = None,
) -> Any:
    """Looks up several columns of sparse ids in one op, and computes their gradients in one op.

    The result of each column is that of `fused_safe_embedding_lookup_sparse`. The columns of an op
    have tables of the same dtype, kind (variables or tensors) and device; otherwise there are
    several ops. Columns that share a table share its gradient. EmbeddingVariables have an op of
    their own. Columns whose tables are divided into shards, or are in another task, are looked up
    together by one message each way for each server.

    Args:
        params: Table of each column, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a
            tensor, a tf.Variable, an EmbeddingVariable, a table of several parts, or its shards as
            a list, PartitionedVariable or ShardedVariable.
        sp_ids: Ids of each column, int32 or int64: a SparseTensor of rank 2 or more, or a
            RaggedTensor of rank 2. Ids < 0 are invalid.
        combiners: "sum", "mean" or "sqrtn" for each column.
        sp_weights: Weights of each column, with the type of its ids or a `[nnz]` tensor, or None:
            all 1.
        partition_strategy: How ids are assigned to shards, for all columns: "div", "mod", "mod_ev"
            or "hash".
        is_sequence: Whether to return one embedding per id instead of one per row. Ids must have
            rank 2; `combiners` and weights then apply to single ids. Positions without an id are
            empty rows.
        params_num_per_group: Maximum number of columns of an op; None: no limit. Ops may run in
            parallel.
        name: Name of the ops.
        max_norms: L2 norm that embeddings of each column are clipped to, or None: off.
        default_ids: Id of each column whose embedding its empty rows get, or None: zeros.
        concat: Whether to return one tensor, which saves the copy by tf.concat. Ids and tables must
            have rank 2.
        rows: For each column None, or an index `[num_items]` int32 or int64: row i of the result is
            row `rows[c][i]` of column c, as of tf.gather. The table is read once for each row of
            `sp_ids[c]`, such as that of the one user who sees all items. Pass the same tensor for
            the columns of one batch.
        blocknums: Of each column whose table has blocks, how many of them each id reads: `[nnz]`
            integers, or a SparseTensor or RaggedTensor like the ids. None: the table decides, or
            has no blocks. See `fe.get_dynamic_dimension_embedding_variable`.

    Returns:
        A list of the combined embeddings of each column, `[..., dim]`, in order. With `concat`, a
        tensor `[num_rows, sum of dims]`. With `is_sequence`, the embeddings of each column are
        `[num_rows, width, dim]`, at the row and column of their ids; for ragged ids, width is the
        length of the longest row.

    Raises:
        ValueError: For lists that are not as long as `params`, an unknown combiner or strategy, a
            max_norm that is not > 0, no table, shards that differ, or an index of `rows` that is
            not of rank 1.
        TypeError: For ids that are not sparse, and for dtypes that are not supported.
        tf.errors.InvalidArgumentError: For an id outside the table, a row outside the dense shape,
            a number of weights that differs from the number of ids, or an index of `rows` outside
            the rows of its column; the message names the column.

    Source: DeepRec's function of this name; `rows` is ours.

    >>> table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> ids = tf.sparse.from_dense([[1, 2], [0, 0], [2, 0]])
    >>> sums, means = fe.nn.group_embedding_lookup_sparse([table] * 2, [ids] * 2, ["sum", "mean"])
    >>> sums.numpy().tolist(), means.numpy().tolist()
    ([[8.0, 10.0], [0.0, 0.0], [5.0, 6.0]], [[4.0, 5.0], [0.0, 0.0], [5.0, 6.0]])
    >>> ids = tf.ragged.constant([[2, 0], [1]])
    >>> [steps] = fe.nn.group_embedding_lookup_sparse([table], [ids], ["sum"], is_sequence=True)
    >>> steps.numpy().tolist()
    [[[5.0, 6.0], [1.0, 2.0]], [[3.0, 4.0], [0.0, 0.0]]]

    One user, three items:

    >>> user, items = tf.ragged.constant([[0, 1]]), tf.ragged.constant([[2], [0], [1]])
    >>> user_rows, item_rows = fe.nn.group_embedding_lookup_sparse(
    ...     [table] * 2, [user, items], ["sum"] * 2, rows=[tf.constant([0, 0, 0]), None])
    >>> user_rows.numpy().tolist()
    [[4.0, 6.0], [4.0, 6.0], [4.0, 6.0]]
    """
    # lizard forgives(length): mostly docstring
    params = _as_params(params)
    _check_num_per_group(params_num_per_group)
    others = {"sp_ids": sp_ids, "combiners": combiners, "sp_weights": sp_weights}
    others |= {"max_norms": max_norms, "default_ids": default_ids, "blocknums": blocknums}
    index_names = [f"rows[{i}]" for i in range(len(params))]
    indices = as_row_indices(_for_each(rows, "rows", len(params)), index_names)
    lists = {argument: _for_each(o, argument, len(params)) for argument, o in others.items()}
    normalise = as_sequence_ids if is_sequence else as_sparse_ids
    with tf.compat.v1.name_scope(name, "group_embedding_lookup_sparse"):
        columns = []
        for i, (table, ids, combiner, weights, max_norm, default_id, numbers) in enumerate(
            zip(params, *lists.values(), strict=True)
        ):
            options = make_options(
                combiner, max_norm, default_id, partition_strategy=partition_strategy
            )
            shards = as_shards(table, f"params[{i}]")
            of_column = normalise(ids, weights, f"sp_ids[{i}]")
            columns.append(Column(shards, with_blocknums(of_column, numbers, shards), options))
        if concat:
            _check_ranks(columns)
        if concat and not any(index is not None for index in indices):
            return run_group_side_by_side(columns)
        combined = expanded(run_group(columns, params_num_per_group), indices, index_names)
        return tf.concat(combined, axis=1) if concat else combined


def _check_ranks(columns: list[Column]) -> None:
    for i, column in enumerate(columns):
        row_shape = column.shards[0].row_shape
        if column.ids.leading_shape is not None or row_shape.rank not in (None, 1):
            raise ValueError(
                f"concat = True needs ids and tables of rank 2 and is_sequence = False, but column "
                f"{i} has rows of shape {row_shape} or other ids; use concat = False and tf.concat"
            )


@traced_as_written
def group_embedding_lookup(
    params: Sequence[Any],
    ids: Sequence[Any],
    partition_strategy: str = "mod",
    name: str | None = None,
    *,
    blocknums: Sequence[Any] | None = None,
) -> list[tf.Tensor]:
    """Looks up several columns of dense ids in one op, and computes their gradients in one op.

    Args:
        params: Table of each column, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a
            tensor, a tf.Variable, an EmbeddingVariable, a table of several parts, or its shards as
            a list, PartitionedVariable or ShardedVariable.
        ids: int32 or int64 ids of each column, a tensor of any shape.
        partition_strategy: How ids are assigned to shards, for all columns: "div", "mod", "mod_ev"
            or "hash".
        name: Name of the ops.
        blocknums: Of each column whose table has blocks, how many of them each id reads: integers
            with the shape of its ids. None: the table decides, or has no blocks.

    Returns:
        A list of the embeddings of each column, `[..., dim]`: the shape of its ids, then the shape
        of a row.

    Raises:
        ValueError: If the lengths of `ids` and `params` differ, for an unknown strategy, for
            blocknums of a table without blocks, and a table that needs them.
        TypeError: For dtypes that are not supported.
        tf.errors.InvalidArgumentError: For ids outside the table, negative ids included.

    Source: DeepRec's function of this name; each column is `tf.nn.embedding_lookup`.

    >>> table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> [rows] = fe.nn.group_embedding_lookup([table], [tf.constant([2, 0])])
    >>> rows.numpy().tolist()
    [[5.0, 6.0], [1.0, 2.0]]
    """
    params = _as_params(params)
    options: LookupOptions = make_options(
        "sum", None, None, partition_strategy=partition_strategy, prune=False, fill_empty_row=False
    )
    others = {"ids": ids, "blocknums": blocknums}
    lists = [_for_each(of_all, argument, len(params)) for argument, of_all in others.items()]
    with tf.compat.v1.name_scope(name, "group_embedding_lookup"):
        columns = []
        for i, (table, of_column, numbers) in enumerate(zip(params, *lists, strict=True)):
            shards = as_shards(table, f"params[{i}]")
            dense = with_blocknums(as_dense_ids(of_column, f"ids[{i}]"), numbers, shards)
            columns.append(Column(shards, dense, options))
        return run_group(columns)
