"""The message of keys that a worker sends to a server, written byte by byte."""

import struct

MAGIC = int.from_bytes(b"FEkeys\0\0", "big")
VERSION = 2


def format_word(key_bytes=4, count_bytes=0):
    """The first word of a message."""
    return MAGIC + 0x1000 * count_bytes + 0x100 * key_bytes + VERSION


def packed(numbers, num_bytes):
    """The words of numbers of so many bytes, side by side."""
    content = b"".join(int(n % 2**64).to_bytes(num_bytes, "little") for n in numbers)
    content += bytes(-len(content) % 8)
    return list(struct.unpack(f"<{len(content) // 8}q", content))


def unpacked(message, first, number, num_bytes):
    """So many numbers that begin with word `first`, without signs, and the word behind them."""
    end = first + -(-number * num_bytes // 8)
    content = b"".join(struct.pack("<q", word) for word in message[first:end])
    starts = range(0, number * num_bytes, num_bytes)
    return [int.from_bytes(content[i : i + num_bytes], "little") for i in starts], end


def words(step, keys_of_parts, counts_of_parts=None):
    """The words for these keys of each part, and how often each occurs, or no counts."""
    keys = [int(key) for of_part in keys_of_parts for key in of_part]
    key_bytes = 4 if min(keys, default=0) >= 0 and max(keys, default=0) < 2**32 else 8
    message = [format_word(key_bytes), step, len(keys_of_parts)]
    message += [*map(len, keys_of_parts), *packed(keys, key_bytes)]
    if counts_of_parts is None:
        return message
    counts = [count for of_part in counts_of_parts for count in of_part]
    count_bytes = next(n for n in (1, 2, 4) if max(counts, default=0) < 2 ** (8 * n))
    message[0] = format_word(key_bytes, count_bytes)
    return message + packed(counts, count_bytes)


def read(message):
    """The keys of each part and all counts of a message without a fault."""
    assert message[0] & ~0xFFFF == MAGIC
    assert message[0] & 0xFF == VERSION
    key_bytes, count_bytes = message[0] >> 8 & 0xF, message[0] >> 12 & 0xF
    assert key_bytes in (4, 8)
    assert count_bytes in (0, 1, 2, 4)
    sizes = message[3 : 3 + message[2]]
    keys, end = unpacked(message, 3 + len(sizes), sum(sizes), key_bytes)
    counts = []
    if count_bytes:
        counts, end = unpacked(message, end, sum(sizes), count_bytes)
    assert end == len(message)
    assert all(count < 2**31 for count in counts)
    keys = [key - 2**64 * (key >= 2**63) for key in keys]
    starts = [sum(sizes[:p]) for p in range(len(sizes))]
    return [keys[i : i + size] for i, size in zip(starts, sizes, strict=True)], counts
