"""Makes columns over tables of several parts, most of them as functions of `fe.feature_column`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.columns.api import categorical_column_with_embedding
from fused_embedding.columns.composed_column import (
    AdaptiveCategoricalColumn,
    DynamicDimensionCategoricalColumn,
    MultiHashCategoricalColumn,
)
from fused_embedding.variable.dynamic_dimension import FREQUENCY, check_policy
from fused_embedding.variable.multihash import OPERATIONS, STRATEGIES
from fused_embedding.variable.options import EmbeddingVariableOption, as_integer


def categorical_column_with_multihash(
    key: str,
    dims: Sequence[int],
    complementary_strategy: str = "Q-R",
    operation: str = "concat",
    dtype: Any = tf.int64,
    partition_num: int | None = None,
) -> Any:
    """A categorical column of up to `q_rows * r_rows` ids, whose table has `q_rows + r_rows` rows.

    Id `i` has row `i // r_rows` of the first part of the table and row `i % r_rows` of the second:
    no two ids share both. See `fe.get_multihash_variable`.

    Args:
        key: Key of the feature, which is a SparseTensor or Tensor of integers. In a dense feature
            -1 means no value.
        dims: `(q_rows, r_rows)`, both > 0.
        complementary_strategy: "Q-R".
        operation: How the two rows become an embedding: "concat", or "add" or "mul" of rows of one
            length.
        dtype: An integer type.
        partition_num: Number of partitions of each part; None: unpartitioned.

    Returns:
        A column for `embedding_column` of this module, bare or in
        `tf.feature_column.weighted_categorical_column`. Its `dimension` is `(d_q, d_r)` with
        "concat", else a number. The variables are `embedding_weights_q` and `embedding_weights_r`.

    Raises:
        ValueError: For another strategy or operation, `dims` that are not two numbers > 0, a
            `partition_num` < 1, and a dtype that is not an integer type.

    Source: DeepRec's function of this name, which divides by `q_rows` instead.

    >>> user = fe.feature_column.categorical_column_with_multihash("user", (1000, 1000))
    >>> fe.feature_column.embedding_column(user, (8, 8)).name
    'user_embedding'
    """
    return multihash_column(
        key, dims, complementary_strategy, operation, dtype, partition_num, by_deeprec=False
    )


def multihash_column(
    key: str,
    dims: Sequence[int],
    strategy: str,
    operation: str,
    dtype: Any,
    partition_num: int | None,
    *,
    by_deeprec: bool,
) -> Any:
    """The column of `categorical_column_with_multihash`, with its rows numbered as said.

    Args:
        key: See there.
        dims: See there.
        strategy: See there.
        operation: See there.
        dtype: See there.
        partition_num: See there.
        by_deeprec: Whether quotients are by `q_rows`, and parts are combined before the operation.

    Returns:
        A categorical column.
    """
    dtype = tf.as_dtype(dtype)
    if not dtype.is_integer:
        raise ValueError(
            f"Input type must be a integer. dtype of {key!r} is {dtype.name}; hash strings first"
        )
    if strategy not in STRATEGIES:
        raise ValueError(
            f"complementary_strategy of {key!r} must be one of {', '.join(STRATEGIES)}, got "
            f"{strategy!r}"
        )
    if operation not in OPERATIONS:
        raise ValueError(
            f"operation of {key!r} must be one of {', '.join(OPERATIONS)}, got {operation!r}"
        )
    if np.shape(dims) != (2,) or min(dims) < 1:
        raise ValueError(f"dims of {key!r} must be (q_rows, r_rows), both > 0, got {dims!r}")
    if partition_num is not None and partition_num < 1:
        raise ValueError(f"partition_num must be >= 1, or None for one part, got {partition_num}")
    q_rows, r_rows = map(int, dims)
    return MultiHashCategoricalColumn(
        key, (q_rows, r_rows), operation, dtype, partition_num, by_deeprec
    )


def categorical_column_with_adaptive_embedding(
    key: str,
    hash_bucket_size: int,
    dtype: Any = tf.string,
    partition_num: int | None = None,
    ev_option: EmbeddingVariableOption | None = None,
) -> Any:
    """A categorical column in which frequent ids have rows of their own, and others share rows.

    `adaptive_mask_tensors` of `fe.feature_column.input_layer` says which values are frequent;
    without a mask, the filter of `ev_option` admits them. A new row starts as the shared row that
    the id had. See `fe.get_adaptive_embedding_variable`.

    Args:
        key: Key of the feature, which is a SparseTensor or Tensor of `dtype`. In a dense feature ""
            and -1 mean no value. Strings must have rank 1 or 2.
        hash_bucket_size: Number of shared rows, > 0.
        dtype: tf.string or an integer type.
        partition_num: Number of partitions of the rows that ids have of their own.
        ev_option: Options of those rows' table.

    Returns:
        A column for `embedding_column` of this module. The variables are `ev_weights`, an
        EmbeddingVariable, and `hash_weights`.

    Raises:
        ValueError: For a size < 1, and what `categorical_column_with_embedding` refuses.
        TypeError: If `ev_option` is not an `fe.EmbeddingVariableOption`.

    Source: DeepRec's function of this name.

    >>> option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=3))
    >>> user = fe.feature_column.categorical_column_with_adaptive_embedding(
    ...     "user", 100, ev_option=option)
    >>> fe.feature_column.embedding_column(user, 16).name
    'user_embedding'
    """
    size = as_integer(f"hash_bucket_size of {key!r}", hash_bucket_size)
    of_table = categorical_column_with_embedding(key, dtype, partition_num, ev_option)
    return AdaptiveCategoricalColumn(*of_table, size)  # type: ignore[call-arg]


def dynamic_dimension_column(
    key: str,
    block_dim: int,
    num_blocks: int,
    dtype: Any,
    partition_num: int | None,
    ev_option: EmbeddingVariableOption | None,
    compression_ratio: float | None,
) -> Any:
    """A categorical column in which frequent ids have longer rows than rare ones.

    Args:
        key: Key of the feature.
        block_dim: Length of a block, > 0.
        num_blocks: Number of blocks, > 0.
        dtype: tf.string or an integer type.
        partition_num: Number of partitions of each block.
        ev_option: Options of each block.
        compression_ratio: See `fe.get_dynamic_dimension_embedding_variable`.

    Returns:
        A column for `embedding_column`, whose `dimension` is `block_dim * num_blocks`.

    Raises:
        ValueError: For numbers < 1, a ratio outside (0, 0.5] and a filter in `ev_option`; and what
            `categorical_column_with_embedding` refuses.
    """
    block_dim = as_integer(f"embedding_block_dimension of {key!r}", block_dim)
    num_blocks = as_integer(f"embedding_block_num of {key!r}", num_blocks)
    of_table = categorical_column_with_embedding(key, dtype, partition_num, ev_option)
    check_policy(key, FREQUENCY, compression_ratio, of_table.ev_option)
    return DynamicDimensionCategoricalColumn(  # type: ignore[call-arg]
        *of_table, block_dim, num_blocks, compression_ratio
    )
