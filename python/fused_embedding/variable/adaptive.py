"""`get_adaptive_embedding_variable`: frequent ids have rows of their own, the others share rows.

Source: DeepRec's adaptive embedding; who decides which ids are frequent: Zhang et al., "CAFE",
arXiv 2312.03256.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.variable.composed import ComposedTable, full_name, without_partitioner
from fused_embedding.variable.options import EmbeddingVariableOption, as_integer
from fused_embedding.variable.scope import AnyEmbeddingVariable, get_embedding_variable


class AdaptiveEmbeddingVariable(ComposedTable):
    """A table in which an id has either a row of its own, or shares one with ids of its hash.

    Attributes:
        hash_weights: `[hash_bucket_size, dim]` variable of shared rows.
        ev_weights: EmbeddingVariable of the rows that ids have of their own.
        hash_bucket_size: Number of shared rows.
    """

    def __init__(
        self, name: str, hash_weights: Any, ev_weights: AnyEmbeddingVariable, num_buckets: int
    ) -> None:
        super().__init__(name, ev_weights.embedding_dim, ev_weights.dtype, ev_weights.trainable)
        self.hash_weights = hash_weights
        self.ev_weights = ev_weights
        self.hash_bucket_size = num_buckets


def get_adaptive_embedding_variable(
    name: str,
    embedding_dim: int,
    hash_bucket_size: int,
    value_dtype: Any = tf.float32,
    initializer: Any = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    partitioner: Any = None,
    ev_option: EmbeddingVariableOption | None = None,
) -> AdaptiveEmbeddingVariable:
    """Makes a table in which ids share hashed rows until they are admitted to rows of their own.

    The filter of `ev_option` admits ids: with `fe.CounterFilter(filter_freq=100)` an id reads and
    trains the shared row of its hash for 99 occurrences; at the 100th it gets a row of its own,
    which starts as the shared row is then. Without a filter every id has its own row at once.

    The parts are `NAME/hash_weights`, a variable that is not partitioned, and the EmbeddingVariable
    `NAME/ev_weights`. The shared row of id `i` is `tf.strings.to_hash_bucket_fast(
    tf.strings.as_string(i), hash_bucket_size)`.

    Args:
        name: Name in the variable scope.
        embedding_dim: Length of a row, > 0.
        hash_bucket_size: Number of shared rows, > 0.
        value_dtype: tf.float32, tf.float64, tf.float16 or tf.bfloat16.
        initializer: Of the shared rows; None: the scope's, or a truncated normal of standard
            deviation `1 / sqrt(embedding_dim)`.
        trainable: Whether lookups insert keys and the parts are trained.
        collections: Further graph collections to add the parts to.
        partitioner: Of the EmbeddingVariable.
        ev_option: Options of the EmbeddingVariable.

    Returns:
        A table for the lookups of `fe.nn`.

    Raises:
        ValueError: For sizes < 1, and what `fe.get_embedding_variable` refuses.
        TypeError: See `fe.get_embedding_variable`.

    >>> option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=3))
    >>> table = fe.get_adaptive_embedding_variable("users", 4, 100, ev_option=option)
    >>> fe.nn.fused_safe_embedding_lookup_sparse(table, tf.sparse.from_dense([[7]])).shape
    TensorShape([1, 4])
    """
    num_buckets = as_integer(f"hash_bucket_size of {name!r}", hash_bucket_size)
    ev_weights = get_embedding_variable(
        f"{name}/ev_weights",
        embedding_dim,
        value_dtype=value_dtype,
        initializer=initializer,
        trainable=trainable,
        collections=collections,
        partitioner=partitioner,
        ev_option=ev_option,
    )
    hash_weights = make_hash_weights(
        f"{name}/hash_weights",
        [num_buckets, embedding_dim],
        tf.as_dtype(value_dtype),
        initializer=initializer,
        trainable=trainable,
        collections=collections,
    )
    return AdaptiveEmbeddingVariable(full_name(name), hash_weights, ev_weights, num_buckets)


def make_hash_weights(
    name: str, shape: list[int], dtype: tf.DType, *, initializer: Any, **options: Any
) -> Any:
    """The variable of shared rows, which is not partitioned.

    Args:
        name: In the current variable scope.
        shape: `[hash_bucket_size, dim]`.
        dtype: Type of the values.
        initializer: See `get_adaptive_embedding_variable`.
        **options: Further arguments of tf.compat.v1.get_variable.

    Returns:
        A resource variable.
    """
    scoped = tf.compat.v1.get_variable_scope().initializer
    default = tf.compat.v1.truncated_normal_initializer(stddev=1 / math.sqrt(shape[1]))
    with without_partitioner():
        return tf.compat.v1.get_variable(
            name,
            shape,
            dtype=dtype,
            initializer=initializer or scoped or default,
            use_resource=True,
            **options,
        )
