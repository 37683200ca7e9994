"""Formats of rows in fewer bytes: encoded in numpy, decoded by stock ops."""

import abc
import dataclasses

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class RowFormat(abc.ABC):
    """How the numbers of a row are stored.

    Attributes:
        name: As `fe.export_for_serving` is given it.
        largest: Magnitude of the largest number that a row may have.
    """

    name: str
    largest: float

    @property
    @abc.abstractmethod
    def dtype(self) -> tf.DType:
        """Of a stored row."""

    @abc.abstractmethod
    def width(self, dim: int) -> int:
        """Length of a stored row."""

    @abc.abstractmethod
    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Stores rows.

        Args:
            rows: `[n, dim]` float64, no magnitude above `largest`.

        Returns:
            `[n, width(dim)]` of `dtype`.
        """

    @abc.abstractmethod
    def decode(self, stored: tf.Tensor, dim: int) -> tf.Tensor:
        """The numbers of stored rows.

        Args:
            stored: `[n, width(dim)]` of `dtype`.
            dim: Length of a row.

        Returns:
            `[n, dim]` float32.
        """

    def row_bytes(self, dim: int) -> int:
        """Of a stored row."""
        return self.width(dim) * self.dtype.size


@dataclasses.dataclass(frozen=True)
class _Short(RowFormat):
    """Each number is rounded to bfloat16, the upper half of a float32."""

    @property
    def dtype(self) -> tf.DType:
        return tf.bfloat16

    def width(self, dim: int) -> int:
        return dim

    def encode(self, rows: np.ndarray) -> np.ndarray:
        return rows.astype(np.float32).astype(tf.bfloat16.as_numpy_dtype)

    def decode(self, stored: tf.Tensor, dim: int) -> tf.Tensor:
        return tf.cast(stored, tf.float32)


@dataclasses.dataclass(frozen=True)
class _MinMax(RowFormat):
    """A number is bias + quant * scale; each row has its own scale and bias.

    A stored row is the bytes of its quants, then scale, then bias: one cache miss, where a separate
    array of scales is a second one. The bias is rounded down and the scale up, so the quants span
    the row and a number is off by half a scale at most.

    Four bits: byte i has the quant of number i in its low half, and that of number i + bytes in its
    high half, so decoding needs no interleaving. The last byte of an odd row is half empty.

    Attributes:
        bits: Of a quant, 8 or 4.
        number: Type of scale and bias.
    """

    bits: int
    number: tf.DType

    @property
    def dtype(self) -> tf.DType:
        return tf.uint8

    def width(self, dim: int) -> int:
        return -(-dim * self.bits // 8) + 2 * self.number.size

    def encode(self, rows: np.ndarray) -> np.ndarray:
        last = 2**self.bits - 1
        bias = _rounded(rows.min(axis=1, keepdims=True), self.number, -np.inf)
        scale = _rounded((rows.max(axis=1, keepdims=True) - bias) / last, self.number, np.inf)
        steps = np.zeros_like(rows)  # where the scale is 0, all numbers of the row are its bias
        np.divide(rows - bias, scale, out=steps, where=scale > 0)
        quants = np.clip(np.rint(steps), 0, last).astype(np.uint8)
        numbers = np.concatenate([scale, bias], axis=1).astype(self.number.as_numpy_dtype)
        return np.concatenate([self._packed(quants), numbers.view(np.uint8)], axis=1)

    def _packed(self, quants: np.ndarray) -> np.ndarray:
        if self.bits == 8:
            return quants
        half = -(-quants.shape[1] // 2)
        packed = quants[:, :half].copy()
        packed[:, : quants.shape[1] - half] |= quants[:, half:] << 4
        return packed

    def decode(self, stored: tf.Tensor, dim: int) -> tf.Tensor:
        size = self.number.size
        num_bytes = self.width(dim) - 2 * size
        # The width is told, as the shape of what a handle gathers is not always known.
        numbers = tf.reshape(stored[:, num_bytes : self.width(dim)], [-1, 2, size])
        numbers = tf.cast(tf.bitcast(numbers, self.number), tf.float32)
        quants = tf.cast(self._unpacked(stored[:, :num_bytes], dim), tf.float32)
        return quants * numbers[:, :1] + numbers[:, 1:]

    def _unpacked(self, packed: tf.Tensor, dim: int) -> tf.Tensor:
        if self.bits == 8:
            return packed
        low = tf.bitwise.bitwise_and(packed, tf.constant(15, tf.uint8))
        high = tf.bitwise.right_shift(packed, tf.constant(4, tf.uint8))
        return tf.concat([low, high], axis=1)[:, :dim]


def _rounded(numbers: np.ndarray, dtype: tf.DType, towards: float) -> np.ndarray:
    """Numbers of a type, in float64: rounded down towards -inf, or up towards inf."""
    of_type = dtype.as_numpy_dtype
    nearest = numbers.astype(of_type)
    is_wrong_side = nearest > numbers if towards < 0 else nearest < numbers
    np.nextafter(nearest, of_type(towards), out=nearest, where=is_wrong_side)
    return nearest.astype(np.float64) + 0.0  # -0.0 becomes 0.0


# THE list of formats. With larger numbers int8's 255 * scale overflows a float32, and int4's bias a
# float16.
FORMATS: dict[str, RowFormat] = {
    row_format.name: row_format
    for row_format in (
        _MinMax("int8", 2.0**126, 8, tf.float32),
        _MinMax("int4", 65504.0, 4, tf.float16),
        _Short("bfloat16", float(tf.bfloat16.max)),
    )
}
