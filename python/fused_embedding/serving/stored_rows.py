"""Matrices whose rows an export stores in a format of fewer bytes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.serving.looked_up import ReadByRow
from fused_embedding.serving.row_formats import FORMATS, RowFormat

_CHUNK_ROWS = 65536  # that are float64 at one time


@dataclasses.dataclass(frozen=True)
class Coding:
    """How the rows of one table or variable are stored.

    Attributes:
        format: A name of `FORMATS`.
        dim: Length of a row.
        dtype: Type of its numbers, a float.
    """

    format: str
    dim: int
    dtype: tf.DType

    @property
    def row_format(self) -> RowFormat:
        """The format itself."""
        return FORMATS[self.format]

    @property
    def is_smaller(self) -> bool:
        """Whether a row has fewer bytes than its numbers."""
        return self.row_format.row_bytes(self.dim) < self.dim * self.dtype.size

    def encode(self, rows: Any, name: str, row_name: Callable[[int], str]) -> np.ndarray:
        """Stores rows.

        Args:
            rows: `[n, dim]` of `dtype`.
            name: Of the table or variable, for messages.
            row_name: What to call row i in messages.

        Returns:
            `[n, width]` of the format's dtype.

        Raises:
            ValueError: If a row has NaN, infinity or numbers that the format does not have.
        """
        rows, row_format = np.asarray(rows), self.row_format
        width, dtype = row_format.width(self.dim), row_format.dtype.as_numpy_dtype
        stored = np.empty([len(rows), width], dtype)
        for first in range(0, len(rows), _CHUNK_ROWS):
            chunk = rows[first : first + _CHUNK_ROWS].astype(np.float64)
            is_stored = (np.abs(chunk) <= row_format.largest).all(axis=1)  # NaN is not
            if not is_stored.all():
                i = int(np.argmin(is_stored))
                raise ValueError(self._refusal(chunk[i], f"{row_name(first + i)} of {name!r}"))
            stored[first : first + len(chunk)] = row_format.encode(chunk)
        return stored

    def _refusal(self, row: np.ndarray, where: str) -> str:
        number = row[~(np.abs(row) <= self.row_format.largest)][0]
        return (
            f"{where} has the number {number:g}, but the format {self.format} stores numbers "
            f"from {-self.row_format.largest:g} to {self.row_format.largest:g}: correct the row, "
            "or leave the table out of quantize. Nothing was written"
        )

    def decode(self, stored: tf.Tensor) -> tf.Tensor:
        """`[n, dim]` of `dtype`: the numbers of `[n, width]` stored rows."""
        return tf.cast(self.row_format.decode(stored, self.dim), self.dtype)


def row_of_key(keys: Any) -> Callable[[int], str]:
    """What messages call the rows of a table with `[n]` keys, for `Coding.encode`."""
    return lambda i: f"the row of key {int(keys[i])}"


def row_of_variable(i: int) -> str:
    """What messages call row i of a dense variable."""
    return f"row {i}"


def row_of_default(i: int) -> str:
    """What messages call the row that keys without one read."""
    return f"row {i} of the initial values"


@dataclasses.dataclass(frozen=True)
class StoredRows(ReadByRow):
    """A variable of stored rows.

    Attributes:
        handle: Of the variable, `[n, width]`.
        coding: Of the rows.
        num_rows: n; None: not known.
    """

    handle: tf.Tensor
    coding: Coding
    num_rows: int | None = None

    @property
    def shape(self) -> tuple[int | None, int]:
        """Of the matrix that is stored."""
        return self.num_rows, self.coding.dim

    def gather(self, ids: tf.Tensor) -> tf.Tensor:
        """Decodes rows.

        Args:
            ids: `[...]` int32 or int64.

        Returns:
            `[..., dim]`.
        """
        # Of all stock ops that gather, the one that has 8-bit types on a GPU too.
        is_flat = ids.shape.rank == 1
        stored = tf.raw_ops.ResourceGather(
            resource=self.handle,
            indices=ids if is_flat else tf.reshape(ids, [-1]),
            dtype=self.coding.row_format.dtype,
        )
        rows = self.coding.decode(stored)
        if is_flat:
            return rows
        return tf.reshape(rows, tf.concat([tf.shape(ids), [self.coding.dim]], axis=0))
