"""DeepRec's multi-hash, dynamic-dimension and adaptive embeddings, with its arguments and numbers.

Rows of multi-hash tables are numbered as DeepRec numbers them: id `i` has the rows `i // q_rows`
and `i % r_rows`. Unless `r_rows >= q_rows`, some ids share both.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.columns.composed_api import multihash_column
from fused_embedding.lookup.ids import as_sparse_ids, with_own_rows
from fused_embedding.lookup.options import make_options
from fused_embedding.lookup.run import BEST, run_lookup
from fused_embedding.lookup.stock_signatures import as_one_table, rows_of_composed
from fused_embedding.lookup.tables import as_shards, with_blocknums
from fused_embedding.variable import dynamic_dimension, multihash
from fused_embedding.variable.adaptive import AdaptiveEmbeddingVariable
from fused_embedding.variable.options import EmbeddingVariableOption, GlobalStepEvict

_UNWEIGHTED = "AdaptiveEmbedding lookup not support not ignore weights"


def refuse_given(kind: str, name: str, **unsupported: Any) -> None:
    """Refuses arguments of DeepRec's that must be None here.

    Args:
        kind: What is made.
        name: Its name.
        **unsupported: The arguments.

    Raises:
        NotImplementedError: If one is given.
    """
    given = [argument for argument, value in unsupported.items() if value is not None]
    if given:
        raise NotImplementedError(
            f"{', '.join(given)} was given for {kind} {name!r}, which this release does not have; "
            "leave it out, and regularize what you look up"
        )


def get_multihash_variable(
    name: str,
    dims: Sequence[Sequence[int]],
    complementary_strategy: str = "Q-R",
    operation: str = "add",
    dtype: Any = tf.float32,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: Any = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> multihash.MultiHashVariable:
    """DeepRec's function: `fe.get_multihash_variable` with quotients by `q_rows`.

    Args:
        name: Name in the variable scope.
        dims: `[[q_rows, q_dim], [r_rows, r_dim]]`.
        complementary_strategy: "Q-R".
        operation: "add", "mul" (or "mult", as DeepRec's documents have it) or "concat".
        dtype: Type of the values; Python's float means tf.float32.
        initializer: Of both parts.
        regularizer: Must be None.
        trainable: Whether the parts are trained; None means True.
        collections: Further graph collections to add the parts to.
        caching_device: Ignored.
        partitioner: Applied to each part.
        validate_shape: Ignored.
        use_resource: Ignored: the parts are resource variables.
        custom_getter: Must be None.
        constraint: Must be None.
        synchronization: Ignored.
        aggregation: Ignored.

    Returns:
        A table for tf.nn's lookups.

    Raises:
        ValueError: See `fe.get_multihash_variable`.
        NotImplementedError: If an argument that must be None is not.
    """
    refuse_given(
        "multi-hash variable",
        name,
        regularizer=regularizer,
        custom_getter=custom_getter,
        constraint=constraint,
    )
    table = multihash.get_multihash_variable(
        name,
        dims,
        complementary_strategy,
        "mul" if operation == "mult" else operation,
        dtype,
        initializer,
        trainable is not False,
        collections,
        partitioner,
    )
    table.divisor = dims[0][0]
    return table


def get_dynamic_dimension_embedding_variable(
    name: str,
    embedding_block_dimension: int,
    embedding_block_num: int,
    key_dtype: Any = tf.int64,
    value_dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    custom_getter: Any = None,
    constraint: Any = None,
    steps_to_live: int | None = None,
    init_data_source: str | None = None,
    ht_partition_num: int = 1000,
    steps_to_live_l2reg: Any = None,
    l2reg_theta: Any = None,
    storage_type: Any = None,
) -> dynamic_dimension.DynamicEmbeddingVariable:
    """DeepRec's function: `fe.get_dynamic_dimension_embedding_variable`.

    Args:
        name: Name in the variable scope.
        embedding_block_dimension: Length of a block.
        embedding_block_num: Number of blocks.
        key_dtype: tf.int64 or tf.int32.
        value_dtype: None: tf.float32.
        initializer: First value of a block.
        regularizer: Must be None.
        trainable: Whether lookups insert keys and the blocks are trained.
        collections: Further graph collections to add the blocks to.
        caching_device: Ignored.
        partitioner: Of each block.
        validate_shape: Ignored.
        custom_getter: Must be None.
        constraint: Must be None.
        steps_to_live: Steps after which an unused key of a block expires.
        init_data_source: Must be None.
        ht_partition_num: Ignored.
        steps_to_live_l2reg: Must be None.
        l2reg_theta: Must be None.
        storage_type: Must be None: blocks are in DRAM.

    Returns:
        A table for tf.nn's lookups, which need `blocknums`.

    Raises:
        ValueError: See `fe.get_dynamic_dimension_embedding_variable`.
        NotImplementedError: If an argument that must be None is not.
    """
    refuse_given(
        "dynamic-dimension variable",
        name,
        regularizer=regularizer,
        custom_getter=custom_getter,
        constraint=constraint,
        init_data_source=init_data_source,
        steps_to_live_l2reg=steps_to_live_l2reg,
        l2reg_theta=l2reg_theta,
        storage_type=storage_type,
    )
    evict = GlobalStepEvict(steps_to_live=steps_to_live) if steps_to_live else None
    return dynamic_dimension.get_dynamic_dimension_embedding_variable(
        name,
        embedding_block_dimension,
        embedding_block_num,
        key_dtype=key_dtype,
        value_dtype=value_dtype or tf.float32,
        initializer=initializer,
        trainable=trainable,
        collections=collections,
        partitioner=partitioner,
        ev_option=EmbeddingVariableOption(ht_partition_num=ht_partition_num, evict_option=evict),
    )


def categorical_column_with_multihash(
    key: str,
    dims: Sequence[int],
    complementary_strategy: str = "Q-R",
    operation: str = "concat",
    dtype: Any = tf.int64,
    partition_num: int | None = None,
) -> Any:
    """DeepRec's function: the column of `fe.feature_column` with quotients by `q_rows`.

    Parts are combined over the ids of a row before the operation, as in DeepRec: with "mul" and
    several ids in a row that is not the sum of the ids' products.

    Args:
        key: Key of the feature.
        dims: `(q_rows, r_rows)`.
        complementary_strategy: "Q-R".
        operation: "add", "mul" or "mult", "concat".
        dtype: An integer type.
        partition_num: Number of partitions of each part.

    Returns:
        A column for `embedding_column`.

    Raises:
        ValueError: See `fe.feature_column.categorical_column_with_multihash`.
    """
    operation = "mul" if operation == "mult" else operation
    return multihash_column(
        key, dims, complementary_strategy, operation, dtype, partition_num, by_deeprec=True
    )


def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
    ev_init_value: Any = None,
    blocknums: Any = None,
    counts: Any = None,
) -> tf.Tensor:
    """DeepRec's lookup of one row per id in a table of several parts.

    Args:
        params: The table.
        ids: Ids of any shape.
        partition_strategy: Ignored.
        name: Name of the op.
        validate_indices: Ignored.
        max_norm: L2 norm that rows are clipped to.
        ev_init_value: Ignored, as in DeepRec.
        blocknums: Integers with the shape of `ids`, for a dynamic-dimension variable.
        counts: Ignored, as in DeepRec.

    Returns:
        The rows: the shape of `ids` with `dim` appended.

    Raises:
        ValueError: For a dynamic-dimension variable without blocknums.
    """
    return rows_of_composed(params, ids, blocknums=blocknums, max_norm=max_norm, name=name)


def embedding_lookup_sparse(
    params: Any,
    sp_ids: Any,
    sp_weights: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
    blocknums: Any = None,
) -> tf.Tensor:
    """DeepRec's lookup in a table of several parts.

    Args:
        params: The table.
        sp_ids: SparseTensor of ids.
        sp_weights: SparseTensor of weights, or None.
        partition_strategy: Ignored.
        name: Name of the op.
        combiner: "sum", "mean", "sqrtn"; None means "mean".
        max_norm: L2 norm that each embedding is clipped to.
        blocknums: `[nnz]` integers, for a dynamic-dimension variable.

    Returns:
        `[last row with an id + 1, dim]` combined embeddings.

    Raises:
        ValueError: For a dynamic-dimension variable without blocknums.
    """
    options = make_options(
        combiner, max_norm, None, prune=False, fill_empty_row=False, rows_end_at_last_id=True
    )
    with tf.compat.v1.name_scope(name, "embedding_lookup_sparse"):
        shards = as_shards(params, "params")
        ids = as_sparse_ids(sp_ids, sp_weights, "sp_ids", flatten_rows=False)
        return run_lookup(BEST, shards, with_blocknums(ids, blocknums, shards), options)


def adaptive_embedding_lookup_sparse(
    hash_params: Any,
    ev_params: Any,
    sp_ids: Any,
    hash_ev_ids: Any,
    sp_weights: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
    bucket_size: int | None = None,
    adaptive_mask_tensor: Any = None,
    blocknums: Any = None,
) -> tf.Tensor:
    """DeepRec's lookup in a hash table and an EmbeddingVariable, as a mask says.

    Unlike DeepRec's, it combines the ids of a row: rows may have none or several.

    Args:
        hash_params: Variable `[hash_bucket_size, dim]`.
        ev_params: EmbeddingVariable of `dim`, partitioned or not.
        sp_ids: SparseTensor of int64: where the mask is 0 a row of `hash_params`, where it is 1 a
            key of `ev_params`.
        hash_ev_ids: `[number of ones in the mask]` rows of `hash_params`, whose values new keys
            start with.
        sp_weights: Must be None.
        partition_strategy: Ignored.
        name: Name of the op.
        combiner: "sum", "mean" or "sqrtn"; None means "mean".
        max_norm: L2 norm that each embedding is clipped to.
        bucket_size: Ignored, as in DeepRec.
        adaptive_mask_tensor: `[nnz]` int32: 0 or 1.
        blocknums: Ignored, as in DeepRec.

    Returns:
        `[num_rows, dim]` combined embeddings.

    Raises:
        ValueError: If there are weights, or no mask.
    """
    if sp_weights is not None or adaptive_mask_tensor is None:
        raise ValueError(_UNWEIGHTED)
    options = make_options(combiner, max_norm, None, prune=True, fill_empty_row=False)
    with tf.compat.v1.name_scope(name, "embedding_lookup_sparse"):
        ids = as_sparse_ids(sp_ids, None, "sp_ids").as_int64()
        is_own = tf.not_equal(tf.reshape(adaptive_mask_tensor, [-1]), 0)
        shared = tf.tensor_scatter_nd_update(
            ids.values, tf.where(is_own), tf.cast(hash_ev_ids, tf.int64)
        )
        [hash_weights] = hash_params if isinstance(hash_params, list | tuple) else [hash_params]
        ev_weights = as_one_table(ev_params)
        table = AdaptiveEmbeddingVariable("", hash_weights, ev_weights, hash_weights.shape[0])
        ids = with_own_rows(ids, is_own)._replace(shared_ids=shared)
        return run_lookup(BEST, as_shards(table, "params"), ids, options)


def safe_adaptive_embedding_lookup_sparse(
    hash_embedding_weights: Any,
    ev_embedding_weights: Any,
    sparse_ids: Any,
    hash_ev_ids: Any,
    sparse_weights: Any = None,
    combiner: str | None = None,
    default_id: int | None = None,
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
    bucket_size: int | None = None,
    adaptive_mask_tensor: Any = None,
    blocknums: Any = None,
) -> tf.Tensor:
    """`adaptive_embedding_lookup_sparse` under DeepRec's name for ids that may be invalid.

    Args:
        hash_embedding_weights: Variable `[hash_bucket_size, dim]`.
        ev_embedding_weights: EmbeddingVariable of `dim`.
        sparse_ids: SparseTensor of int64; ids < 0 are dropped.
        hash_ev_ids: See `adaptive_embedding_lookup_sparse`.
        sparse_weights: Must be None.
        combiner: "sum", "mean" or "sqrtn"; None means "mean".
        default_id: Must be None.
        name: Name of the op.
        partition_strategy: Ignored.
        max_norm: L2 norm that each embedding is clipped to.
        bucket_size: Ignored, as in DeepRec.
        adaptive_mask_tensor: `[nnz]` int32: 0 or 1.
        blocknums: Ignored, as in DeepRec.

    Returns:
        `[..., dim]` combined embeddings.

    Raises:
        ValueError: If there are weights, or no mask.
        NotImplementedError: For a default_id.
    """
    refuse_given("adaptive lookup", str(name), default_id=default_id)
    return adaptive_embedding_lookup_sparse(
        hash_embedding_weights,
        ev_embedding_weights,
        sparse_ids,
        hash_ev_ids,
        sparse_weights,
        partition_strategy,
        name,
        combiner,
        max_norm,
        bucket_size,
        adaptive_mask_tensor,
        blocknums,
    )


LOOKUPS = {
    "adaptive_embedding_lookup_sparse": adaptive_embedding_lookup_sparse,
    "safe_adaptive_embedding_lookup_sparse": safe_adaptive_embedding_lookup_sparse,
}
VARIABLES = {
    "get_multihash_variable": get_multihash_variable,
    "get_dynamic_dimension_embedding_variable": get_dynamic_dimension_embedding_variable,
}
