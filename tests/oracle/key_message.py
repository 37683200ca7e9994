"""The message of keys that a worker sends to a server, written word by word."""

MAGIC = int.from_bytes(b"FEkeys\0\0", "big")
HAS_COUNTS = 0x100
VERSION = 1


def words(step, keys_of_parts, counts_of_parts=None):
    """The words for these keys of each part, and how often each occurs, or no counts."""
    has_counts = counts_of_parts is not None
    message = [MAGIC + HAS_COUNTS * has_counts + VERSION, step, len(keys_of_parts)]
    message += [len(keys) for keys in keys_of_parts]
    message += [int(key) for keys in keys_of_parts for key in keys]
    if has_counts:
        counts = [count for of_part in counts_of_parts for count in of_part]
        counts += [0] * (len(counts) % 2)
        message += [low + (high << 32) for low, high in zip(counts[::2], counts[1::2], strict=True)]
    return message
