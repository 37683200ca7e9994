"""Lookups with the signatures of DeepRec's functions."""

import numbers
from typing import Any, Literal

import tensorflow as tf

from fused_embedding.lookup.checked import checked_lookup
from fused_embedding.lookup.fusion_check import FusionCheck, as_check
from fused_embedding.lookup.ids import as_sparse_ids
from fused_embedding.lookup.options import LookupOptions, make_options
from fused_embedding.lookup.run import BEST, LOOKUPS, run_lookup
from fused_embedding.lookup.tables import as_shards, with_blocknums
from fused_embedding.ops.tracing import traced_as_written

Combiner = Literal["sum", "mean", "sqrtn"]
PartitionStrategy = Literal["div", "mod", "mod_ev", "hash"]


def _none_if_negative(default_id: Any) -> Any:
    """Converts DeepRec's default_id, in which a negative number means None."""
    return None if isinstance(default_id, numbers.Integral) and default_id < 0 else default_id


def _unsafe_options(
    combiner: Any,
    max_norm: float | None,
    default_id: Any,
    partition_strategy: Any,
    prune: bool,
    fill_empty_row: bool,
) -> LookupOptions:
    """Options of a lookup whose caller chooses whether to prune and fill."""
    return make_options(
        combiner,
        max_norm,
        _none_if_negative(default_id),
        partition_strategy=partition_strategy,
        prune=bool(prune),
        fill_empty_row=bool(fill_empty_row),
    )


@traced_as_written
def fused_safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: tf.SparseTensor | tf.RaggedTensor,
    sparse_weights: Any = None,
    combiner: Combiner = "mean",
    default_id: int | None = None,
    name: str | None = None,
    partition_strategy: PartitionStrategy = "div",
    max_norm: float | None = None,
    prune: bool = True,
    blocknums: Any = None,
    fusion_version: Literal["v1", "v2", "v3", "check"] | FusionCheck = BEST,
) -> tf.Tensor:
    """Combines the embeddings of sparse ids row by row; handles empty rows and invalid ids.

    Works in TF1 sessions, in `tf.function` and eagerly. Rows of `sparse_ids` may be in any order.

    Args:
        embedding_weights: The table, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a
            tensor, a tf.Variable, an EmbeddingVariable, or its shards as a list,
            PartitionedVariable or ShardedVariable. Variables are read in place, never copied.
        sparse_ids: int32 or int64 ids: a SparseTensor of rank 2 or more, or a RaggedTensor of rank
            2. Ids < 0 are invalid.
        sparse_weights: Weight of each id, of the type of `sparse_ids` or a `[nnz]` tensor; None:
            all 1. Ids with a weight that is not > 0 are dropped unless `combiner` is "sum".
        combiner: "sum": sum(w e). "mean": sum(w e) / sum(w). "sqrtn": sum(w e) / sqrt(sum(w^2)).
        default_id: Id whose embedding an empty row gets; None or negative: zeros.
        name: Name of the op.
        partition_strategy: How ids are assigned to shards: "div", "mod", "mod_ev" or "hash".
            Ignored for an EmbeddingVariable, which has a strategy of its own.
        max_norm: L2 norm that each embedding is clipped to before it is combined; None: off.
        prune: Whether invalid ids are dropped; if not, an id < 0 is an error.
        blocknums: Number of blocks that each id reads of a table that
            `fe.get_dynamic_dimension_embedding_variable` has made: `[nnz]` integers, or a
            SparseTensor or RaggedTensor like the ids. None: the table decides, or has no blocks.
        fusion_version: "v3" does everything in one op if the table is unpartitioned and on the
            device of the ids, and is the same as "v2" otherwise. "v2" reads each distinct id once.
            "v1" is slower: it reads a row for each id, repeated or not. "check" or an
            `fe.FusionCheck`: "v3", compared with stock's lookup on one step in N.

    Returns:
        `[..., dim]` combined embeddings of the table's dtype: the dense shape of `sparse_ids`
        without its last dimension, then the shape of a row.

    Raises:
        ValueError: For an unknown combiner, strategy or version, a max_norm that is not > 0, no
            table, or shards that differ.
        TypeError: For ids that are not sparse, and for dtypes that are not supported.
        tf.errors.InvalidArgumentError: For an id outside the table, a row outside the dense shape,
            or a number of weights that differs from the number of ids.

    Source: the definition of `tf.nn.safe_embedding_lookup_sparse`.

    >>> table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> ids = tf.sparse.from_dense([[1, 2], [0, 0], [2, 0]])
    >>> fe.nn.fused_safe_embedding_lookup_sparse(table, ids, combiner="sum").numpy().tolist()
    [[8.0, 10.0], [0.0, 0.0], [5.0, 6.0]]
    """
    # lizard forgives(length): mostly docstring
    check = as_check(fusion_version)
    if check is None and fusion_version not in LOOKUPS:
        raise ValueError(
            f"fusion_version must be one of {', '.join(LOOKUPS)}, check, got {fusion_version}"
        )
    options = make_options(
        combiner,
        max_norm,
        _none_if_negative(default_id),
        partition_strategy=partition_strategy,
        prune=bool(prune),
    )
    if check is not None:
        return checked_lookup(check, embedding_weights, sparse_ids, sparse_weights, options, name)
    with tf.compat.v1.name_scope(name, "fused_safe_embedding_lookup_sparse"):
        shards = as_shards(embedding_weights, "embedding_weights")
        ids = as_sparse_ids(sparse_ids, sparse_weights, "sparse_ids")
        ids = with_blocknums(ids, blocknums, shards)
        return run_lookup(fusion_version, shards, ids, options)  # type: ignore[arg-type]


@traced_as_written
def fused_embedding_lookup_sparse(
    params: Any,
    sp_ids: tf.SparseTensor | tf.RaggedTensor,
    sparse_weights: Any = None,
    partition_strategy: PartitionStrategy | None = None,
    name: str | None = None,
    combiner: Combiner | None = None,
    max_norm: float | None = None,
    default_id: int | None = None,
    prune_invalid_ids: bool = False,
    fill_empty_row: bool = True,
    blocknums: Any = None,
) -> tf.Tensor:
    """The v1 fused lookup, with DeepRec's signature. The v2 lookup is faster.

    Args:
        params: The table, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a tensor, a
            tf.Variable, an EmbeddingVariable, or its shards as a list, PartitionedVariable or
            ShardedVariable. Variables are read in place, never copied.
        sp_ids: int32 or int64 ids: a SparseTensor of rank 2 or more, or a RaggedTensor of rank 2.
        sparse_weights: Weight of each id, of the type of `sp_ids` or a `[nnz]` tensor; None: all 1.
        partition_strategy: How ids are assigned to shards: "div", "mod", "mod_ev" or "hash"; None
            means "div".
        name: Name of the op.
        combiner: "sum": sum(w e). "mean": sum(w e) / sum(w). "sqrtn": sum(w e) / sqrt(sum(w^2)).
            None means "mean".
        max_norm: L2 norm that each embedding is clipped to before it is combined; None: off.
        default_id: Id whose embedding an empty row gets; None or negative: zeros.
        prune_invalid_ids: Whether ids < 0 are dropped, and ids with a weight that is not > 0 unless
            `combiner` is "sum". If not, an id < 0 is an error.
        fill_empty_row: Whether empty rows get the embedding of `default_id`; if not, they are zero.
        blocknums: Number of blocks that each id reads of a table that
            `fe.get_dynamic_dimension_embedding_variable` has made: `[nnz]` integers, or a
            SparseTensor or RaggedTensor like the ids. None: the table decides, or has no blocks.

    Returns:
        `[..., dim]` combined embeddings of the table's dtype: the dense shape of `sp_ids` without
        its last dimension, then the shape of a row.

    Raises:
        ValueError: For an unknown combiner or strategy, a max_norm that is not > 0, no table, or
            shards that differ.
        TypeError: For ids that are not sparse, and for dtypes that are not supported.
        tf.errors.InvalidArgumentError: For an id outside the table, a row outside the dense shape,
            or a number of weights that differs from the number of ids.
    """
    options = _unsafe_options(
        combiner, max_norm, default_id, partition_strategy, prune_invalid_ids, fill_empty_row
    )
    with tf.compat.v1.name_scope(name, "fused_embedding_lookup_sparse"):
        shards = as_shards(params, "params")
        ids = with_blocknums(as_sparse_ids(sp_ids, sparse_weights, "sp_ids"), blocknums, shards)
        return run_lookup("v1", shards, ids, options)


@traced_as_written
def fused_embedding_lookup_sparse_v2(
    params: Any,
    sp_ids: tf.SparseTensor | tf.RaggedTensor,
    sparse_weights: Any = None,
    partition_strategy: PartitionStrategy | None = None,
    name: str | None = None,
    combiner: Combiner | None = None,
    max_norm: float | None = None,
    default_id: int | None = None,
    prune: bool = False,
    fill_empty_row: bool = True,
    blocknums: Any = None,
) -> tf.Tensor:
    """The v2 fused lookup, with DeepRec's signature: each distinct id is read once.

    Args:
        params: The table, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a tensor, a
            tf.Variable, an EmbeddingVariable, or its shards as a list, PartitionedVariable or
            ShardedVariable. Variables are read in place, never copied.
        sp_ids: int32 or int64 ids: a SparseTensor of rank 2 or more, or a RaggedTensor of rank 2.
        sparse_weights: Weight of each id, of the type of `sp_ids` or a `[nnz]` tensor; None: all 1.
        partition_strategy: How ids are assigned to shards: "div", "mod", "mod_ev" or "hash"; None
            means "div".
        name: Name of the op.
        combiner: "sum": sum(w e). "mean": sum(w e) / sum(w). "sqrtn": sum(w e) / sqrt(sum(w^2)).
            None means "mean".
        max_norm: L2 norm that each embedding is clipped to before it is combined; None: off.
        default_id: Id whose embedding an empty row gets; None or negative: zeros.
        prune: Whether ids < 0 are dropped, and ids with a weight that is not > 0 unless `combiner`
            is "sum". If not, an id < 0 is an error.
        fill_empty_row: Whether empty rows get the embedding of `default_id`; if not, they are zero.
        blocknums: Number of blocks that each id reads of a table that
            `fe.get_dynamic_dimension_embedding_variable` has made: `[nnz]` integers, or a
            SparseTensor or RaggedTensor like the ids. None: the table decides, or has no blocks.

    Returns:
        `[..., dim]` combined embeddings of the table's dtype: the dense shape of `sp_ids` without
        its last dimension, then the shape of a row.

    Raises:
        ValueError: For an unknown combiner or strategy, a max_norm that is not > 0, no table, or
            shards that differ.
        TypeError: For ids that are not sparse, and for dtypes that are not supported.
        tf.errors.InvalidArgumentError: For an id outside the table, a row outside the dense shape,
            or a number of weights that differs from the number of ids.
    """
    options = _unsafe_options(
        combiner, max_norm, default_id, partition_strategy, prune, fill_empty_row
    )
    with tf.compat.v1.name_scope(name, "fused_embedding_lookup_sparse_v2"):
        shards = as_shards(params, "params")
        ids = with_blocknums(as_sparse_ids(sp_ids, sparse_weights, "sp_ids"), blocknums, shards)
        return run_lookup("v2", shards, ids, options)


@traced_as_written
def fused_embedding_lookup_sparse_v3(
    params: Any,
    sp_ids: tf.SparseTensor | tf.RaggedTensor,
    sparse_weights: Any = None,
    partition_strategy: PartitionStrategy | None = None,
    name: str | None = None,
    combiner: Combiner | None = None,
    max_norm: float | None = None,
    default_id: int | None = None,
    prune: bool = False,
    fill_empty_row: bool = True,
) -> tf.Tensor:
    """The v3 fused lookup: one op from ids to combined rows, which reads the table in place.

    If the table is divided into shards or is in another task, the v2 lookup is used.

    Args:
        params: The table, `[num_ids, dim]`, float32, float64, float16 or bfloat16: a tensor, a
            tf.Variable, an EmbeddingVariable, or its shards as a list, PartitionedVariable or
            ShardedVariable. Variables are read in place, never copied.
        sp_ids: int32 or int64 ids: a SparseTensor of rank 2 or more, or a RaggedTensor of rank 2.
        sparse_weights: Weight of each id, of the type of `sp_ids` or a `[nnz]` tensor; None: all 1.
        partition_strategy: How ids are assigned to shards: "div", "mod", "mod_ev" or "hash"; None
            means "div".
        name: Name of the op.
        combiner: "sum": sum(w e). "mean": sum(w e) / sum(w). "sqrtn": sum(w e) / sqrt(sum(w^2)).
            None means "mean".
        max_norm: L2 norm that each embedding is clipped to before it is combined; None: off.
        default_id: Id whose embedding an empty row gets; None or negative: zeros.
        prune: Whether ids < 0 are dropped, and ids with a weight that is not > 0 unless `combiner`
            is "sum". If not, an id < 0 is an error.
        fill_empty_row: Whether empty rows get the embedding of `default_id`; if not, they are zero.

    Returns:
        `[..., dim]` combined embeddings of the table's dtype: the dense shape of `sp_ids` without
        its last dimension, then the shape of a row.

    Raises:
        ValueError: For an unknown combiner or strategy, a max_norm that is not > 0, no table, or
            shards that differ.
        TypeError: For ids that are not sparse, and for dtypes that are not supported.
        tf.errors.InvalidArgumentError: For an id outside the table, a row outside the dense shape,
            or a number of weights that differs from the number of ids.
    """
    options = _unsafe_options(
        combiner, max_norm, default_id, partition_strategy, prune, fill_empty_row
    )
    with tf.compat.v1.name_scope(name, "fused_embedding_lookup_sparse_v3"):
        shards = as_shards(params, "params")
        return run_lookup("v3", shards, as_sparse_ids(sp_ids, sparse_weights, "sp_ids"), options)
