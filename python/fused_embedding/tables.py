"""Embedding tables: what a user may pass as one, as a list of shards that can be gathered from."""

from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding import raw_ops
from fused_embedding._tf_private import colocate_with, variable_accessed
from fused_embedding.sparse_ids import VALUE_DTYPES, UnsupportedDtypeError


def _is_resource_variable(value: Any) -> bool:
    # tf.is_tensor is true for variables as well.
    return getattr(getattr(value, "handle", None), "dtype", None) == tf.resource


class Shard(NamedTuple):
    """One shard of a table: all of it where there is one.

    Attributes:
        source: `[rows, ...]` a resource variable, read in place, or a tensor.
        owner: What the gather is colocated with: the variable or tensor that the user passed.
    """

    source: Any
    owner: Any

    @property
    def is_variable(self) -> bool:
        """Whether `source` is read through its resource handle."""
        return _is_resource_variable(self.source)

    @property
    def dtype(self) -> tf.DType:
        """Type of the values."""
        return self.source.dtype.base_dtype

    @property
    def row_shape(self) -> tf.TensorShape:
        """Static shape of one row: `[dim]` for a matrix."""
        return self.source.shape[1:]

    def partition_shape(self) -> tf.Tensor:
        """`[k]` int64 shape of the shard, whose first element is its number of rows."""
        if self.source.shape.is_fully_defined():
            return tf.constant(self.source.shape.as_list(), tf.int64)
        with colocate_with(self.owner):
            return tf.shape(self.source, out_type=tf.int64)

    def gather(self, ids: tf.Tensor, *, ids_are_unique: bool) -> tf.Tensor:
        """Reads rows where the shard lives, so that only ids and rows travel.

        Args:
            ids: `[n]` int64 rows of this shard.
            ids_are_unique: Promise that no id occurs twice: the gradient then needs no merging.

        Returns:
            `[n, dim]` rows, flattened to one dimension each.
        """
        with colocate_with(self.owner):
            if not self.is_variable:
                return raw_ops.FusedEmbeddingGather(
                    params=self.source, ids=ids, ids_are_unique=ids_are_unique
                )
            variable_accessed(self.source)
            return raw_ops.FusedEmbeddingResourceGather(
                resource=self.source.handle,
                ids=ids,
                dtype=self.dtype,
                ids_are_unique=ids_are_unique,
                params_shape=self.source.shape,
            )


def _parts(params: Any) -> list[Any]:
    """A list, a partitioned or a sharded variable as a list of its parts."""
    if isinstance(params, list | tuple):
        # As tf.nn does: a list may hold one partitioned or sharded variable.
        return _parts(params[0]) if len(params) == 1 else list(params)
    if hasattr(params, "_get_partitions") or hasattr(params, "partitions"):  # PartitionedVariable
        return list(params)
    if hasattr(params, "variables"):  # tf.distribute's ShardedVariable
        return list(params.variables)
    return [params]


def _shard(part: Any) -> Shard:
    if hasattr(part, "value") and not callable(part.value):
        part = part.value  # a Keras 3 variable holds a tf.Variable
    if _is_resource_variable(part):
        return Shard(part, part)
    # A reference variable becomes the tensor in its buffer: no copy.
    tensor = tf.convert_to_tensor(part)
    return Shard(tensor, part if hasattr(part, "op") else tensor)


def _check_same_table(shard: Shard, first: Shard, name: str, first_name: str) -> None:
    same_rows = shard.row_shape.is_compatible_with(first.row_shape)
    if shard.dtype == first.dtype and same_rows:
        return
    error = ValueError if shard.dtype == first.dtype else TypeError
    raise error(
        f"shards must be of one table, but {name} has dtype {shard.dtype.name} and rows of shape "
        f"{shard.row_shape}, and {first_name} has {first.dtype.name} and {first.row_shape}"
    )


def as_shards(params: Any, argument: str) -> list[Shard]:
    """Normalises what a user passes as an embedding table.

    Args:
        params: A tensor, tf.Variable (resource or reference), list of those, PartitionedVariable or
            ShardedVariable; each part `[rows, ...]`.
        argument: Name of the argument, for messages.

    Returns:
        The shards, in order.

    Raises:
        ValueError: If there is none, or if shards differ in the shape of a row.
        TypeError: If shards differ in dtype, or it is not float32, float64, float16 or bfloat16.
    """
    if params is None or (isinstance(params, list | tuple) and not params):
        raise ValueError(f"Missing {argument}: got {params}; pass a tensor, a variable or a list")
    shards = [_shard(part) for part in _parts(params)]
    first = shards[0]
    for i, shard in enumerate(shards):
        _check_same_table(shard, first, f"{argument}[{i}]", f"{argument}[0]")
    if first.dtype not in VALUE_DTYPES:
        raise UnsupportedDtypeError(
            f"{argument} has dtype {first.dtype.name}; fused lookups need one of "
            f"{', '.join(dtype.name for dtype in VALUE_DTYPES)}: cast it, or use tf.nn"
        )
    return shards
