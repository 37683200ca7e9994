"""`rows=`: columns of a small batch, such as one user's, whose rows the rows of a larger one read.

A column is looked up at the size of its own batch, so the table is read once for each row of that
batch. Then row i of the result is row `index[i]` of what was looked up.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.ops.dtypes import UnsupportedDtypeError

_DTYPES = (tf.int32, tf.int64)


def as_row_indices(rows: Sequence[Any], names: Sequence[str]) -> list[tf.Tensor | None]:
    """Checks the indices of columns, and makes one tensor of an index that several columns have.

    Args:
        rows: The index of each column, `[num_items]` int32 or int64; None: the column has none.
        names: What errors call the index of each column.

    Returns:
        A tensor or None for each column.

    Raises:
        TypeError: If an index is not a dense tensor of int32 or int64.
        ValueError: If an index is not of rank 1.
    """
    tensors: dict[int, tf.Tensor] = {}
    for index, name in zip(rows, names, strict=True):
        if index is not None and id(index) not in tensors:
            tensors[id(index)] = _as_row_index(index, name)
    return [None if index is None else tensors[id(index)] for index in rows]


def _as_row_index(index: Any, name: str) -> tf.Tensor:
    if isinstance(index, tf.SparseTensor | tf.RaggedTensor):
        raise TypeError(
            f"{name} must be a dense tensor of shape [num_items], got a {type(index).__name__}; "
            "give each item the number of its row"
        )
    tensor = tf.convert_to_tensor(index)
    if tensor.dtype not in _DTYPES:
        raise UnsupportedDtypeError(
            f"{name} must be int32 or int64, got {tensor.dtype.name}; cast it"
        )
    if tensor.shape.rank not in (1, None):
        raise ValueError(
            f"{name} must have shape [num_items], got {tensor.shape}; tf.reshape(index, [-1]) "
            "makes a vector"
        )
    return tensor if tensor.shape.rank == 1 else tf.ensure_shape(tensor, [None])


def expanded(
    outputs: Sequence[tf.Tensor], rows: Sequence[tf.Tensor | None], names: Sequence[str]
) -> list[tf.Tensor]:
    """The rows of looked-up columns that their indices select.

    Args:
        outputs: `[num_rows, ...]` of each column, at the size of its own batch.
        rows: The index of each column, of `as_row_indices`.
        names: What errors call the index of each column.

    Returns:
        `[num_items, ...]` of each column with an index; the outputs of the others as they are. The
        gradient of an output is dense: each row is the sum over the items that read it.

    Raises:
        tf.errors.InvalidArgumentError: If an index is outside `[0, num_rows)`; the message has the
            names of the columns.
    """
    if all(index is None for index in rows):
        return list(outputs)
    with tf.name_scope("expanded_rows"):
        checked = _checked(outputs, rows, names)
        return [
            output if index is None else _gathered(output, checked[id(index)])
            for output, index in zip(outputs, rows, strict=True)
        ]


def _gathered(output: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    # The gradient of a tf.gather without batch dimensions is IndexedSlices, which the gradient op
    # of a lookup would have to turn into a tensor.
    return tf.squeeze(tf.gather(output[None], index[None], batch_dims=1), axis=0)


def _checked(
    outputs: Sequence[tf.Tensor], rows: Sequence[tf.Tensor | None], names: Sequence[str]
) -> dict[int, tf.Tensor]:
    """By the id of each distinct index: the index, checked once for all of its columns."""
    members: dict[int, list[int]] = {}
    for i, index in enumerate(rows):
        if index is not None:
            members.setdefault(id(index), []).append(i)
    checked = {}
    for number, columns in members.items():
        index = rows[columns[0]]
        check = _assert_inside(index, [outputs[i] for i in columns], [names[i] for i in columns])
        with tf.control_dependencies([check]):
            checked[number] = tf.identity(index)
    return checked


def _assert_inside(index: tf.Tensor, outputs: list[tf.Tensor], names: list[str]) -> Any:
    """An op that fails if `index` is outside the rows of an output. On a GPU tf.gather does not.

    One op checks all columns of an index: the least and the largest number of a row decide.
    """
    num_rows = tf.stack([tf.shape(output, out_type=index.dtype)[0] for output in outputs])
    least, largest = tf.reduce_min(index), tf.reduce_max(index)
    is_inside = (least >= 0) & (largest < num_rows)
    return tf.raw_ops.Assert(
        condition=tf.reduce_all(is_inside),
        data=[
            "an index must be in [0, num_rows), the rows of its column before they are expanded:",
            tf.boolean_mask(names, ~is_inside),
            "go from",
            least,
            "to",
            largest,
            "but num_rows is",
            tf.boolean_mask(num_rows, ~is_inside),
        ],
        summarize=10,
    )
