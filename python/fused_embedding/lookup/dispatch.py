"""tf.nn.embedding_lookup of partitions of an EmbeddingVariable, by TensorFlow's dispatch on types.

tf.gather and tf.nn.embedding_lookup read an unpartitioned EmbeddingVariable by its `sparse_read`;
tf.gather also reads a partitioned one so. Without dispatch, tf.nn.embedding_lookup would convert a
partitioned EmbeddingVariable to a dense tensor, and would assign keys to a list of its partitions
as stock assigns ids.
"""

from typing import Any, List, Union  # noqa: UP035

import numpy as np
import tensorflow as tf

from fused_embedding.lookup.stock_signatures import as_one_table
from fused_embedding.ops.tf_private import register_dispatchable_type
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable

# TensorFlow itself calls embedding_lookup with the values of ragged ids. Two functions for one call
# would be an error.
_NotRagged = Union[tf.Tensor, tf.Variable, np.ndarray, np.generic, int, list, tuple]  # noqa: UP007

# TensorFlow supports only the generic types of `typing`.
_Params = Union[PartitionedEmbeddingVariable, List[EmbeddingVariable]]  # noqa: UP006, UP007

register_dispatchable_type(EmbeddingVariable)
register_dispatchable_type(PartitionedEmbeddingVariable)


# tf.nn.embedding_lookup calls tf.compat.v1.nn.embedding_lookup.
@tf.experimental.dispatch_for_api(
    tf.compat.v1.nn.embedding_lookup, {"params": _Params, "ids": _NotRagged}
)
def embedding_lookup_v1(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
) -> tf.Tensor:
    """`tf.compat.v1.nn.embedding_lookup` of a partitioned EmbeddingVariable.

    Args:
        params: The variable, or a list of all of its partitions.
        ids: Keys of any shape.
        partition_strategy: Ignored: the variable has a strategy of its own.
        name: Name of the ops.
        validate_indices: Ignored.
        max_norm: L2 norm that rows are clipped to; None: off.

    Returns:
        The shape of `ids` with `dim` appended.

    Raises:
        ValueError: If a list is not all partitions of one variable, in order.
    """
    del partition_strategy, validate_indices
    with tf.compat.v1.name_scope(name, "embedding_lookup"):
        rows = as_one_table(params).sparse_read(ids)
        return rows if max_norm is None else tf.clip_by_norm(rows, max_norm, axes=[-1])
