"""Arrow's arrays as the arrays that tensors are made of."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding import extras

_SUPPORTED = (
    "integers, floats, booleans, strings, binaries, dictionaries of these, lists of these "
    "(ragged), and lists of a fixed size (dense)"
)
_FLOATS = {"halffloat": tf.float16, "float": tf.float32, "double": tf.float64}  # by Arrow's names


@functools.cache
def pyarrow(module: str = "") -> Any:
    """pyarrow, or a module of it, which this package needs for Parquet files alone."""
    return extras.load(f"pyarrow.{module}" if module else "pyarrow", "parquet")


class Layout(NamedTuple):
    """What a column becomes: a dense tensor, or a ragged one."""

    name: str
    dtype: tf.DType
    ragged_rank: int  # levels of lists
    row_shape: tuple[int, ...]  # of a list of a fixed size; of one value ()

    def specs(self) -> list[tf.TensorSpec]:
        """Of the arrays: `[n + 1]` int64 row splits of each level, outermost first; values."""
        splits = [tf.TensorSpec([None], tf.int64)] * self.ragged_rank
        return [*splits, tf.TensorSpec([None, *self.row_shape], self.dtype)]

    def tensor_of(self, tensors: Sequence[tf.Tensor]) -> tf.Tensor | tf.RaggedTensor:
        """The column of a batch, of tensors by `specs`."""
        *splits, values = tensors
        if not splits:
            return values
        return tf.RaggedTensor.from_nested_row_splits(values, splits, validate=False)


def layout_of(name: str, arrow_type: Any) -> Layout:
    """The layout of a column.

    Raises:
        TypeError: If no tensor is made of that type.
    """
    types = pyarrow("types")
    ragged_rank, inner = 0, arrow_type
    row_shape: tuple[int, ...] = ()
    if types.is_fixed_size_list(inner):
        row_shape, inner = (inner.list_size,), inner.value_type
    while types.is_list(inner) or types.is_large_list(inner):
        ragged_rank, inner = ragged_rank + 1, inner.value_type
    dtype = None if ragged_rank and row_shape else _dtype_of(inner)
    if dtype is None:
        raise TypeError(
            f"column {name!r} has Arrow's type {arrow_type}; tensors are made of {_SUPPORTED}: "
            "cast it when the file is written, or leave it out of `columns`"
        )
    return Layout(name, dtype, ragged_rank, row_shape)


def _dtype_of(arrow_type: Any) -> tf.DType | None:
    types = pyarrow("types")
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if _is_text(arrow_type):
        return tf.string
    if types.is_boolean(arrow_type):
        return tf.bool
    if types.is_integer(arrow_type):
        return tf.as_dtype(str(arrow_type))
    return _FLOATS.get(str(arrow_type))


def _is_text(arrow_type: Any) -> bool:
    types = pyarrow("types")
    kinds = (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)
    return any(is_kind(arrow_type) for is_kind in kinds)


def num_nulls(array: Any) -> int:
    """The values of an array that are null. A list that is null has none, as an empty one."""
    types = pyarrow("types")
    while types.is_list(array.type) or types.is_large_list(array.type):
        array = array.flatten()
    nulls = array.null_count
    if types.is_fixed_size_list(array.type):
        return nulls + array.flatten().null_count
    if types.is_dictionary(array.type) and not nulls:
        return array.dictionary_decode().null_count if array.dictionary.null_count else 0
    return nulls


def arrays_of(layout: Layout, array: Any) -> list[np.ndarray]:
    """The arrays of `layout.specs`. They are views of Arrow's memory where TensorFlow's is alike.

    Args:
        layout: Of the column.
        array: A batch of it, as read from a file: only lists are null, and those hold nothing.
    """
    arrays = []
    for _ in range(layout.ragged_rank):
        offsets = array.offsets.to_numpy()
        first, last = offsets[0], offsets[-1]
        arrays.append(np.subtract(offsets, first, dtype=np.int64))
        array = array.values.slice(first, last - first)  # of all batches, those of this one
    if layout.row_shape:
        array = array.flatten()
    values = _values(layout, array)
    return [*arrays, values.reshape(-1, *layout.row_shape) if layout.row_shape else values]


def _values(layout: Layout, array: Any) -> np.ndarray:
    arrow = pyarrow()
    if isinstance(array, arrow.DictionaryArray):
        array = array.dictionary_decode()
    if layout.dtype == tf.string:
        is_large = array.type in (arrow.large_string(), arrow.large_binary())
        # Python's bytes: characters would be decoded and encoded again.
        array = array.view(arrow.large_binary() if is_large else arrow.binary())
    return array.to_numpy(zero_copy_only=layout.dtype not in (tf.string, tf.bool))
