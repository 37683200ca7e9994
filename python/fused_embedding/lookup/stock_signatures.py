"""Stand-ins for tf.nn's sparse lookups: stock's signatures and behaviour with the fused ops.

`fe.nn` and `fe.compat.v1.nn` export them, as `tf.nn` and `tf.compat.v1.nn` export stock's. If the
fused ops do not support an argument (a dtype), stock TensorFlow does the lookup, and
`handed_to_stock` counts it.
"""

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.lookup.ids import as_dense_ids, as_sparse_ids
from fused_embedding.lookup.options import make_options
from fused_embedding.lookup.run import BEST, run_lookup
from fused_embedding.lookup.tables import as_shards, has_embedding_variable, with_blocknums
from fused_embedding.ops.disabled import is_disabled, why_disabled
from fused_embedding.ops.dtypes import UnsupportedDtypeError
from fused_embedding.ops.path_notes import noted
from fused_embedding.ops.tracing import traced_as_written
from fused_embedding.variable.composed import ComposedTable
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable

handed_to_stock: collections.Counter[str] = collections.Counter()
"""Number of lookups in this process that stock TensorFlow did, by the reason."""


def _or_stock(fused: Callable[[], tf.Tensor], stock: Callable[[], tf.Tensor]) -> tf.Tensor:
    try:
        return fused()
    except UnsupportedDtypeError as reason:
        handed_to_stock[str(reason)] += 1
        with noted(str(reason)):
            return stock()


def _is_turned_off(params: Any) -> bool:
    """Whether stock's function is called with the user's arguments: FE_DISABLE says so."""
    return is_disabled("lookup") and not has_embedding_variable(params)


def _check_non_safe(sp_ids: Any, sp_weights: Any) -> None:
    if sp_weights is None or not isinstance(sp_ids, tf.SparseTensor | tf.RaggedTensor):
        return
    kind = tf.SparseTensor if isinstance(sp_ids, tf.SparseTensor) else tf.RaggedTensor
    if not isinstance(sp_weights, kind):
        raise TypeError(
            f"sp_weights must be either None or {kind.__name__}, as sp_ids is, got "
            f"{type(sp_weights)}"
        )


@traced_as_written
def embedding_lookup(
    params: Any,
    ids: Any,
    max_norm: float | None = None,
    name: str | None = None,
    *,
    blocknums: Any = None,
) -> tf.Tensor:
    """Looks up one row per id: `tf.nn.embedding_lookup` that also takes EmbeddingVariables.

    Args:
        params: A tensor, a variable, a list of those, a partitioned variable, an EmbeddingVariable,
            partitioned or not, or a table of several parts. A list of all partitions of an
            EmbeddingVariable means the whole variable.
        ids: int32 or int64 ids of any shape, or ragged.
        max_norm: L2 norm that rows are clipped to; None: off.
        name: Name of the ops.
        blocknums: Of a table of blocks, how many of them each id reads: integers with the shape of
            `ids`. None: the table decides, or has no blocks.

    Returns:
        The rows: the shape of `ids`, then the shape of a row.

    Raises:
        ValueError: If `params` has EmbeddingVariables, but not exactly the partitions of one; for
            blocknums of a table without blocks, and a table that needs them.

    Source: `tf.nn.embedding_lookup`.

    >>> users = fe.get_embedding_variable("users", 4)
    >>> fe.nn.embedding_lookup(users, [[7, 1 << 60]]).shape
    TensorShape([1, 2, 4])
    """
    if is_composed(params) or blocknums is not None:
        return rows_of_composed(params, ids, blocknums=blocknums, max_norm=max_norm, name=name)
    return tf.nn.embedding_lookup(as_one_table(params), ids, max_norm, name)


@traced_as_written
def embedding_lookup_v1(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
    *,
    blocknums: Any = None,
) -> tf.Tensor:
    """Looks up one row per id: `tf.compat.v1.nn.embedding_lookup`, also with EmbeddingVariables.

    Args:
        params: A tensor, a variable, a list of those, a partitioned variable, an EmbeddingVariable,
            partitioned or not, or a table of several parts. A list of all partitions of an
            EmbeddingVariable means the whole variable.
        ids: int32 or int64 ids of any shape, or ragged.
        partition_strategy: How ids are assigned to shards, "mod" or "div". Ignored for an
            EmbeddingVariable, which has a strategy of its own.
        name: Name of the ops.
        validate_indices: Ignored, as by stock TensorFlow.
        max_norm: L2 norm that rows are clipped to; None: off.
        blocknums: See `embedding_lookup`.

    Returns:
        The rows: the shape of `ids`, then the shape of a row.

    Raises:
        ValueError: See `embedding_lookup`.
    """
    if is_composed(params) or blocknums is not None:
        return rows_of_composed(params, ids, blocknums=blocknums, max_norm=max_norm, name=name)
    return tf.compat.v1.nn.embedding_lookup(
        as_one_table(params), ids, partition_strategy, name, validate_indices, max_norm
    )


def is_composed(params: Any) -> bool:
    """Whether a user's table is one of several parts.

    Args:
        params: See `as_shards`.
    """
    if isinstance(params, list | tuple):
        return len(params) == 1 and is_composed(params[0])
    return isinstance(params, ComposedTable)


def rows_of_composed(
    params: Any,
    ids: Any,
    *,
    blocknums: Any = None,
    max_norm: float | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """One row per id of a table of several parts.

    Args:
        params: The table.
        ids: int32 or int64 ids of any shape, or ragged.
        blocknums: Number of blocks that each id reads, with the shape of `ids`; None: the table
            decides, or has no blocks.
        max_norm: L2 norm that rows are clipped to; None: off.
        name: Name of the ops.

    Returns:
        The rows: the shape of `ids` with `dim` appended.

    Raises:
        ValueError: For blocknums of a table without blocks, and a table that needs them.
    """
    if isinstance(ids, tf.RaggedTensor):
        rows = rows_of_composed(
            params, ids.flat_values, blocknums=blocknums, max_norm=max_norm, name=name
        )
        return ids.with_flat_values(rows)
    options = make_options("sum", max_norm, None, prune=False, fill_empty_row=False)
    with tf.compat.v1.name_scope(name, "embedding_lookup"):
        shards = as_shards(params, "params")
        of_ids = with_blocknums(as_dense_ids(ids, "ids"), blocknums, shards)
        return run_lookup(BEST, shards, of_ids, options)


def as_one_table(params: Any) -> Any:
    """Joins a list of all partitions of an EmbeddingVariable, which stock would divide by ids."""
    if not isinstance(params, list | tuple):
        return params
    if not any(isinstance(part, EmbeddingVariable) for part in params):
        return params
    shards = as_shards(params, "params")
    parts = [shard.source for shard in shards]
    if len(parts) == 1:
        return parts[0]
    return PartitionedEmbeddingVariable(parts[0].partition.whole_name, parts)


@traced_as_written
def embedding_lookup_sparse_v1(
    params: Any,
    sp_ids: Any,
    sp_weights: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
    allow_fast_lookup: bool = False,
) -> tf.Tensor:
    """`tf.compat.v1.nn.embedding_lookup_sparse` with the fused ops.

    Like stock's, it prunes no ids, and its result ends at the last row that has an id.

    Args:
        params: The table, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a tensor, a
            tf.Variable, an EmbeddingVariable, or its shards as a list, PartitionedVariable or
            ShardedVariable. Variables are read in place, never copied.
        sp_ids: SparseTensor or RaggedTensor of int32 or int64 ids >= 0; rows non-decreasing.
        sp_weights: Weights with the type and indices of `sp_ids`; None: all 1.
        partition_strategy: "mod" or "div".
        name: Name of the op.
        combiner: "sum", "mean", "sqrtn"; None means "mean".
        max_norm: L2 norm that each embedding is clipped to; None: off.
        allow_fast_lookup: Accepted and ignored: the result is the same in stock too.

    Returns:
        `[last row with an id + 1, dim]` combined embeddings.

    Raises:
        TypeError: If `sp_ids` is not sparse, or `sp_weights` has another type than `sp_ids`.
        ValueError: For an unknown combiner or strategy.
        tf.errors.InvalidArgumentError: For decreasing rows and ids outside the table.
    """

    def stock(name: str | None = None) -> tf.Tensor:
        return tf.compat.v1.nn.embedding_lookup_sparse(
            params,
            sp_ids,
            sp_weights,
            partition_strategy=partition_strategy,
            name=name,
            combiner=combiner,
            max_norm=max_norm,
            allow_fast_lookup=allow_fast_lookup,
        )

    if _is_turned_off(params):
        with noted(why_disabled("lookup")):
            return stock(name)
    options = make_options(
        combiner,
        max_norm,
        None,
        partition_strategy=partition_strategy,
        prune=False,
        fill_empty_row=False,
        rows_end_at_last_id=True,
    )
    _check_non_safe(sp_ids, sp_weights)

    def fused() -> tf.Tensor:
        shards = as_shards(params, "params")
        ids = as_sparse_ids(sp_ids, sp_weights, "sp_ids", flatten_rows=False)
        return run_lookup(BEST, shards, ids, options)

    with tf.compat.v1.name_scope(name, "embedding_lookup_sparse"):
        return _or_stock(fused, stock)


@traced_as_written
def embedding_lookup_sparse(
    params: Any,
    sp_ids: Any,
    sp_weights: Any,
    combiner: str | None = None,
    max_norm: float | None = None,
    name: str | None = None,
    allow_fast_lookup: bool = False,
) -> tf.Tensor:
    """`tf.nn.embedding_lookup_sparse` with the fused ops; ids are assigned to shards by "div".

    Like stock's, it prunes no ids, and its result ends at the last row that has an id.

    Args:
        params: The table, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a tensor, a
            tf.Variable, an EmbeddingVariable, or its shards as a list, PartitionedVariable or
            ShardedVariable. Variables are read in place, never copied.
        sp_ids: SparseTensor or RaggedTensor of int32 or int64 ids >= 0; rows non-decreasing.
        sp_weights: Weights with the type and indices of `sp_ids`; None: all 1.
        combiner: "sum", "mean", "sqrtn"; None means "mean".
        max_norm: L2 norm that each embedding is clipped to; None: off.
        name: Name of the op.
        allow_fast_lookup: Accepted and ignored: the result is the same in stock too.

    Returns:
        `[last row with an id + 1, dim]` combined embeddings.

    Raises:
        TypeError: If `sp_ids` is not sparse, or `sp_weights` has another type than `sp_ids`.
        ValueError: For an unknown combiner.
        tf.errors.InvalidArgumentError: For decreasing rows and ids outside the table.
    """
    return embedding_lookup_sparse_v1(
        params, sp_ids, sp_weights, "div", name, combiner, max_norm, allow_fast_lookup
    )


@traced_as_written
def safe_embedding_lookup_sparse_v1(
    embedding_weights: Any,
    sparse_ids: Any,
    sparse_weights: Any = None,
    combiner: str | None = "mean",
    default_id: int | None = None,
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
    allow_fast_lookup: bool = False,
) -> tf.Tensor:
    """`tf.compat.v1.nn.safe_embedding_lookup_sparse` with the fused ops.

    It drops invalid ids and combines the embeddings of the others row by row.

    Args:
        embedding_weights: The table, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a
            tensor, a tf.Variable, an EmbeddingVariable, or its shards as a list,
            PartitionedVariable or ShardedVariable. Variables are read in place, never copied.
        sparse_ids: int32 or int64 ids: a SparseTensor of rank 2 or more, or a RaggedTensor of rank
            2. Ids < 0 are invalid.
        sparse_weights: Weight of each id, of the type of `sparse_ids` or a `[nnz]` tensor; None:
            all 1. Ids with a weight that is not > 0 are dropped unless `combiner` is "sum".
        combiner: "sum": sum(w e). "mean": sum(w e) / sum(w). "sqrtn": sum(w e) / sqrt(sum(w^2)).
        default_id: Id whose embedding an empty row gets; None: zeros. With a negative `default_id`
            an empty row is an error.
        name: Name of the op.
        partition_strategy: "div" or "mod".
        max_norm: L2 norm that each embedding is clipped to before it is combined; None: off.
        allow_fast_lookup: Accepted and ignored: the result is the same in stock too.

    Returns:
        `[..., dim]` combined embeddings.

    Raises:
        TypeError: If `sparse_ids` is not sparse.
        ValueError: For no table, an unknown combiner or strategy, or weights of another dtype than
            the table's.
        tf.errors.InvalidArgumentError: For ids outside the table, and an empty row with a negative
            `default_id`.
    """

    def stock(name: str | None = None) -> tf.Tensor:
        return tf.compat.v1.nn.safe_embedding_lookup_sparse(
            embedding_weights,
            sparse_ids,
            sparse_weights,
            combiner=combiner,
            default_id=default_id,
            name=name,
            partition_strategy=partition_strategy,
            max_norm=max_norm,
            allow_fast_lookup=allow_fast_lookup,
        )

    if _is_turned_off(embedding_weights):
        with noted(why_disabled("lookup")):
            return stock(name)
    options = make_options(combiner, max_norm, default_id, partition_strategy=partition_strategy)

    def fused() -> tf.Tensor:
        shards = as_shards(embedding_weights, "embedding_weights")
        ids = as_sparse_ids(sparse_ids, sparse_weights, "sparse_ids")
        if ids.weights is not None and ids.weights.dtype != shards[0].dtype:
            raise ValueError(
                f"sparse_weights must have the dtype of embedding_weights, {shards[0].dtype.name}, "
                f"got {ids.weights.dtype.name}; cast them, or use a fused_* lookup"
            )
        return run_lookup(BEST, shards, ids, options)

    with tf.compat.v1.name_scope(name, "embedding_lookup"):
        return _or_stock(fused, stock)


@traced_as_written
def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: Any,
    sparse_weights: Any = None,
    combiner: str | None = "mean",
    default_id: int | None = None,
    max_norm: float | None = None,
    name: str | None = None,
    allow_fast_lookup: bool = False,
) -> tf.Tensor:
    """`tf.nn.safe_embedding_lookup_sparse` with the fused ops; ids are assigned to shards by "div".

    It drops invalid ids and combines the embeddings of the others row by row.

    Args:
        embedding_weights: The table, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a
            tensor, a tf.Variable, an EmbeddingVariable, or its shards as a list,
            PartitionedVariable or ShardedVariable. Variables are read in place, never copied.
        sparse_ids: int32 or int64 ids: a SparseTensor of rank 2 or more, or a RaggedTensor of rank
            2. Ids < 0 are invalid.
        sparse_weights: Weight of each id, of the type of `sparse_ids` or a `[nnz]` tensor; None:
            all 1. Ids with a weight that is not > 0 are dropped unless `combiner` is "sum".
        combiner: "sum": sum(w e). "mean": sum(w e) / sum(w). "sqrtn": sum(w e) / sqrt(sum(w^2)).
        default_id: Id whose embedding an empty row gets; None: zeros. With a negative `default_id`
            an empty row is an error.
        max_norm: L2 norm that each embedding is clipped to before it is combined; None: off.
        name: Name of the op.
        allow_fast_lookup: Accepted and ignored: the result is the same in stock too.

    Returns:
        `[..., dim]` combined embeddings.

    Raises:
        TypeError: If `sparse_ids` is not sparse.
        ValueError: For no table, an unknown combiner, or weights of another dtype than the table's.
        tf.errors.InvalidArgumentError: For ids outside the table, and an empty row with a negative
            `default_id`.
    """
    return safe_embedding_lookup_sparse_v1(
        embedding_weights,
        sparse_ids,
        sparse_weights,
        combiner,
        default_id,
        name,
        "div",
        max_norm,
        allow_fast_lookup,
    )
