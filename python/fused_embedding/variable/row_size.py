"""Bytes that keys take in a table: docs/embedding_variable.md, Memory."""

from typing import NamedTuple

import tensorflow as tf

_HEADER_BYTES = 16  # key, frequency, version
# A bucket of 64 bytes has 12 entries, of which 30 to 80 % are in use; here the middle.
INDEX_BYTES = 64 / (12 * 0.55)
# Of a key that CounterFilter counts and has not admitted.
WAITING_BYTES = _HEADER_BYTES + INDEX_BYTES


class RowLayout(NamedTuple):
    """What a row of a table holds.

    Attributes:
        dim: Length of the embedding.
        dtype: Type of its values.
        slot_width: Numbers that the optimizers keep beside it.
    """

    dim: int
    dtype: tf.DType
    slot_width: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory and in a file."""
        slot_bytes = 8 if self.dtype == tf.float64 else 4
        value_end = _rounded_up(_HEADER_BYTES + self.dim * self.dtype.size)
        return _rounded_up(value_end + self.slot_width * slot_bytes)

    @property
    def key_bytes(self) -> float:
        """Bytes of a row and its place in the index, about."""
        return self.row_bytes + INDEX_BYTES


def _rounded_up(num_bytes: int) -> int:
    return (num_bytes + 7) // 8 * 8


def describe_bytes(num_bytes: float) -> str:
    """A number of bytes to read: "6.2 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.3g} TB"
