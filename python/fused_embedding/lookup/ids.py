"""Ids by row: what a user may pass as ids and weights, as the tensors that the ops take."""

from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.names import ids_name
from fused_embedding.ops.dtypes import VALUE_DTYPES, UnsupportedDtypeError


class SparseIds(NamedTuple):
    """Ids of a batch, one (id, row) pair each.

    Attributes:
        values: `[nnz]` int32 or int64 ids.
        indices: `[nnz, 2]` int64 row and column; the column is not looked at. For the op of a group
            also `[nnz]`, the rows.
        dense_shape: `[2]` int64 number of rows, width.
        weights: `[nnz]` weight of each id, or None.
        leading_shape: `[k - 1]` int64 dense shape without the last dimension, for ids of rank k
            other than 2, else None. Rows are then its dimensions, flattened.
        static_leading_shape: What is known of `leading_shape` when the graph is built.
        name: What errors call them.
        blocknums: `[nnz]` int64, of a table of blocks: how many of them each id reads; None: the
            table decides.
        is_own: `[nnz]` bool, of an adaptive table: whether an id may have a row of its own; None:
            all may.
        shared_ids: `[nnz]` int64, of an adaptive table: the shared row of each id; None: that of
            its hash.
    """

    values: tf.Tensor
    indices: tf.Tensor
    dense_shape: tf.Tensor
    weights: tf.Tensor | None = None
    leading_shape: tf.Tensor | None = None
    static_leading_shape: tf.TensorShape | None = None
    name: str = "ids"
    blocknums: tf.Tensor | None = None
    is_own: tf.Tensor | None = None
    shared_ids: tf.Tensor | None = None

    @property
    def rows(self) -> tf.Tensor:
        """`[nnz]` int64 row of each id."""
        return self.indices if self.indices.shape.rank == 1 else self.indices[:, 0]

    def as_int64(self) -> "SparseIds":
        """The same with int64 ids."""
        return self._replace(values=tf.cast(self.values, tf.int64))


def _check_ids(ids: Any, argument: str) -> None:
    if not isinstance(ids, tf.SparseTensor | tf.RaggedTensor):
        raise TypeError(
            f"{argument} must be SparseTensor or RaggedTensor, got {type(ids)}; "
            "tf.sparse.from_dense makes one"
        )
    if ids.dtype not in (tf.int32, tf.int64):
        raise UnsupportedDtypeError(
            f"{argument} must hold int32 or int64 ids, got {ids.dtype.name}; cast them"
        )


def weight_values(weights: Any, num_ids: tf.TensorShape) -> tf.Tensor | None:
    """The weights of ids as a vector.

    Args:
        weights: See `as_sparse_ids`.
        num_ids: `[nnz]`, as far as it is known.

    Returns:
        `[nnz]`, or None.

    Raises:
        UnsupportedDtypeError: If they are not of a type of values.
        ValueError: If there are not as many as ids.
    """
    if weights is None:
        return None
    if isinstance(weights, tf.SparseTensor):
        values = weights.values
    elif isinstance(weights, tf.RaggedTensor):
        values = weights.flat_values
    else:
        values = tf.convert_to_tensor(weights)
    if values.dtype not in VALUE_DTYPES:
        raise UnsupportedDtypeError(
            f"weights must be one of {', '.join(dtype.name for dtype in VALUE_DTYPES)}, got "
            f"{values.dtype.name}; cast them"
        )
    if not values.shape.is_compatible_with(num_ids):
        raise ValueError(
            f"there must be one weight for each id, got {values.shape} weights and {num_ids} ids"
        )
    return values


def with_own_rows(ids: SparseIds, is_own: tf.Tensor) -> SparseIds:
    """The ids of an adaptive table, some of which may have rows of their own.

    Args:
        ids: The batch.
        is_own: `[nnz]` bool: which of them.

    Returns:
        The ids.

    Raises:
        ValueError: If there are not as many flags as ids.
        tf.errors.InvalidArgumentError: The same, where the numbers are not known before.
    """
    num_ids, num_flags = ids.values.shape[0], is_own.shape[0]
    if num_ids == num_flags is not None:
        return ids._replace(is_own=is_own)
    rule = "; the mask of an adaptive table has one entry for each id"
    if None not in (num_ids, num_flags):
        raise ValueError(f"{ids.name}: its mask has {num_flags} entries for {num_ids} ids{rule}")
    num_ids, num_flags = tf.size(ids.values), tf.size(is_own)
    data = [f"{ids.name}: its mask has", num_flags, "entries for", num_ids, f"ids{rule}"]
    check = tf.raw_ops.Assert(condition=tf.equal(num_ids, num_flags), data=data)
    with tf.control_dependencies([check]):
        return ids._replace(values=tf.identity(ids.values), is_own=tf.identity(is_own))


def as_blocknums(blocknums: Any, num_ids: tf.TensorShape) -> tf.Tensor:
    """How many blocks each id reads, as a vector.

    Args:
        blocknums: `[nnz]` integers, those of dense ids in their shape, or a SparseTensor or
            RaggedTensor like that of the ids.
        num_ids: `[nnz]`, as far as it is known.

    Returns:
        `[nnz]` int64.

    Raises:
        TypeError: If they are no integers.
        ValueError: If there are not as many as ids.
    """
    if isinstance(blocknums, tf.SparseTensor):
        values = blocknums.values
    elif isinstance(blocknums, tf.RaggedTensor):
        values = blocknums.flat_values
    else:
        values = tf.convert_to_tensor(blocknums)
    values = values if values.shape.rank == 1 else tf.reshape(values, [-1])
    if not values.dtype.is_integer:
        raise TypeError(f"blocknums must be integers, got {values.dtype.name}; cast them")
    if not values.shape.is_compatible_with(num_ids):
        raise ValueError(
            f"there must be one blocknum for each id, got {values.shape} blocknums and {num_ids} "
            "ids"
        )
    return tf.cast(values, tf.int64)


def _check_ragged(ids: tf.RaggedTensor) -> None:
    if ids.ragged_rank != 1 or ids.flat_values.shape.rank != 1:
        raise ValueError(f"ragged ids must have rank 2, got shape {ids.shape}; merge dimensions")


def _from_ragged(ids: tf.RaggedTensor) -> SparseIds:
    _check_ragged(ids)
    rows = tf.cast(ids.value_rowids(), tf.int64)
    num_rows = tf.cast(ids.nrows(), tf.int64)
    return SparseIds(
        values=ids.values,
        indices=tf.stack([rows, rows], axis=1),
        dense_shape=tf.stack([num_rows, tf.ones_like(num_rows)]),
    )


def _from_sparse(ids: tf.SparseTensor, *, flatten_rows: bool) -> SparseIds:
    if ids.dense_shape.shape.num_elements() == 2 or not flatten_rows:
        return SparseIds(ids.values, ids.indices, ids.dense_shape)
    leading_shape = ids.dense_shape[:-1]
    matrix_shape = tf.stack([tf.reduce_prod(leading_shape), ids.dense_shape[-1]])
    matrix = tf.sparse.reshape(ids, matrix_shape)
    return SparseIds(
        values=ids.values,
        indices=matrix.indices,
        dense_shape=matrix_shape,
        leading_shape=leading_shape,
        static_leading_shape=ids.shape[:-1] if ids.shape.rank is not None else None,
    )


def with_index_matrix(ids: SparseIds) -> SparseIds:
    """The same ids with `indices` of rank 2, which the ops of v1 and v2 take.

    Args:
        ids: Their `indices` may be `[nnz]` rows.

    Returns:
        The ids.
    """
    if ids.indices.shape.rank != 1:
        return ids
    return ids._replace(indices=tf.stack([ids.indices, ids.indices], axis=1))


def as_sparse_ids(ids: Any, weights: Any, argument: str, *, flatten_rows: bool = True) -> SparseIds:
    """Normalises the ids and weights of a lookup.

    Args:
        ids: SparseTensor of any rank >= 2 or RaggedTensor of rank 2, int32 or int64.
        weights: SparseTensor or RaggedTensor with the indices of `ids`, or a `[nnz]` tensor of
            their values, float32, float64, float16 or bfloat16; or None.
        argument: Name of the ids' argument, for messages.
        flatten_rows: Whether all dimensions but the last are rows, or only the first one.

    Returns:
        The ids and weights.

    Raises:
        TypeError: If `ids` is neither sparse nor ragged, or a dtype is not supported.
        ValueError: If ragged ids are not of rank 2, or the numbers of ids and weights differ.
    """
    _check_ids(ids, argument)
    if isinstance(ids, tf.RaggedTensor):
        pairs = _from_ragged(ids)
    else:
        pairs = _from_sparse(ids, flatten_rows=flatten_rows)
    of_ids = weight_values(weights, pairs.values.shape)
    return pairs._replace(weights=of_ids, name=ids_name(argument))


def as_sequence_ids(ids: Any, weights: Any, argument: str) -> SparseIds:
    """Normalises the ids of a sequence lookup, in which each position of the matrix is a row.

    An id in row 1 and column 2 of `[3, 4]` is alone in row 1 * 4 + 2 of `[12, 1]`.

    Args:
        ids: SparseTensor or RaggedTensor of rank 2, int32 or int64.
        weights: SparseTensor or RaggedTensor with the indices of `ids`, or a `[nnz]` tensor of
            their values, float32, float64, float16 or bfloat16; or None.
        argument: Name of the ids' argument, for messages.

    Returns:
        The ids and weights, whose `leading_shape` is that of the matrix.

    Raises:
        TypeError: If `ids` is neither sparse nor ragged, or a dtype is not supported.
        ValueError: If ids are not of rank 2, or the numbers of ids and weights differ.
    """
    _check_ids(ids, argument)
    if ids.shape.rank not in (2, None):
        raise ValueError(
            f"{argument} must have rank 2 where is_sequence = True, got shape {ids.shape}; merge "
            "dimensions, or pass is_sequence = False, which keeps all but the last one apart"
        )
    if isinstance(ids, tf.RaggedTensor):
        _check_ragged(ids)
        ids = ids.to_sparse()
    width = ids.dense_shape[1]
    num_rows = tf.reduce_prod(ids.dense_shape)
    column = ids.indices[:, 1]
    row = ids.indices[:, 0] * width + column
    # An id outside the matrix must not become an id of another row: the ops refuse this row.
    row = tf.where(tf.equal(tf.math.floormod(row, width), column), row, num_rows)
    return SparseIds(
        values=ids.values,
        indices=tf.stack([row, row], axis=1),
        dense_shape=tf.stack([num_rows, tf.ones_like(num_rows)]),
        weights=weight_values(weights, ids.values.shape),
        leading_shape=ids.dense_shape,
        static_leading_shape=ids.shape,
        name=ids_name(argument),
    )


def as_dense_ids(ids: Any, argument: str) -> SparseIds:
    """The ids of a dense tensor, each in a row of its own.

    Args:
        ids: int32 or int64 ids of any shape.
        argument: Name of the ids' argument, for messages.

    Returns:
        The ids, whose `leading_shape` is that of the tensor.

    Raises:
        UnsupportedDtypeError: For other dtypes.
    """
    ids = tf.convert_to_tensor(ids)
    if ids.dtype not in (tf.int32, tf.int64):
        raise UnsupportedDtypeError(
            f"{argument} must hold int32 or int64 ids, got {ids.dtype.name}; cast them"
        )
    values = tf.reshape(ids, [-1])
    num_ids = tf.size(values, out_type=tf.int64)
    rows = tf.range(num_ids)
    is_vector = ids.shape.rank == 1
    return SparseIds(
        values=values,
        indices=tf.stack([rows, rows], axis=1),
        dense_shape=tf.stack([num_ids, tf.ones_like(num_ids)]),
        leading_shape=None if is_vector else tf.shape(ids, out_type=tf.int64),
        static_leading_shape=None if is_vector else ids.shape,
        name=ids_name(argument),
    )
