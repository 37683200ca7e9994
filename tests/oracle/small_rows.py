"""Rows stored in fewer bytes, number by number, in exact fractions. Obvious and slow.

A stored row is bytes, little-endian. "int8" and "int4": quants, then scale, then bias; a number is
bias + quant * scale. "int4" has two quants a byte: those of the first half of the row in the low
four bits. "bfloat16": two bytes a number.
"""

from fractions import Fraction

import numpy as np

LAST_QUANT = {"int8": 255, "int4": 15}
OF_SCALE = {"int8": np.float32, "int4": np.float16}


def stored_row(row, row_format):
    """The bytes of a row of finite numbers."""
    if row_format == "bfloat16":
        return b"".join(bfloat16_bytes(np.float32(number)) for number in row)
    numbers = [exact(number) for number in row]
    of_type, last = OF_SCALE[row_format], LAST_QUANT[row_format]
    bias = neighbour(min(numbers), of_type, above=False)
    scale = neighbour((max(numbers) - exact(bias)) / last, of_type, above=True)
    quants = [quant(number, exact(scale), exact(bias), last) for number in numbers]
    if row_format == "int4":
        half = (len(quants) + 1) // 2
        high = quants[half:] + [0] * (len(quants) % 2)
        quants = [a + 16 * b for a, b in zip(quants[:half], high, strict=True)]
    return bytes(quants) + scale.tobytes() + bias.tobytes()


def numbers_of(stored, dim, row_format):
    """The float32 numbers of a stored row."""
    if row_format == "bfloat16":
        halves = np.frombuffer(stored, np.uint16)
        return (halves.astype(np.uint32) << 16).view(np.float32)
    of_type = OF_SCALE[row_format]
    size = np.dtype(of_type).itemsize
    scale, bias = np.frombuffer(stored[-2 * size :], of_type).astype(np.float32)
    quants = list(stored[: -2 * size])
    if row_format == "int4":
        quants = [q % 16 for q in quants] + [q // 16 for q in quants]
    return np.array([np.float32(q) * scale + bias for q in quants[:dim]], np.float32)


def rounded_rows(rows, row_format):
    """`[n, dim]`: what lookups of stored rows read, in the type of the rows."""
    rows = np.asarray(rows)
    read = [numbers_of(stored_row(row, row_format), len(row), row_format) for row in rows]
    return np.stack(read).astype(rows.dtype) if read else rows


def scale_of(stored, row_format):
    """The distance of the quants of a stored row."""
    of_type = OF_SCALE[row_format]
    return float(np.frombuffer(stored[-2 * np.dtype(of_type).itemsize :], of_type)[0])


def exact(number):
    return Fraction(float(number))


def neighbour(number, of_type, above):
    """The number of a type that is closest to a fraction, and not below it, or not above it."""
    middle = of_type(float(number))
    around = [np.nextafter(middle, of_type(-np.inf)), middle, np.nextafter(middle, of_type(np.inf))]
    if above:
        return min(n for n in around if exact(n) >= number)
    return max(n for n in around if exact(n) <= number)


def quant(number, scale, bias, last):
    """The closest quant; of two the even one."""
    if not scale:
        return 0
    return min(max(round((number - bias) / scale), 0), last)


def bfloat16_bytes(number):
    """The upper half of a float32, rounded to the closest; of two to the even one."""
    bits = int(number.view(np.uint32))
    low, high = bits % 65536, bits // 65536
    rounds_up = low > 32768 or (low == 32768 and high % 2 == 1)
    return int(high + rounds_up).to_bytes(2, "little")
