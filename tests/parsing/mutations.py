"""Examples as writers make them, and ways to spoil their bytes."""

from cases.examples import (
    delimited,
    entry,
    example,
    floats,
    integers,
    tagged_floats,
    tagged_integers,
    texts,
    varint,
)

# Bytes that mean something: tags, lengths, continued varints.
BYTES = b"\x00\x01\x02\x04\x05\x08\x0a\x0d\x12\x1a\x22\x2a\x2b\x2d\x7f\x80\xff"
NAMES = (b"s", b"f", b"i", b"unused", b"a name of more than 16 bytes")


def make(rng):
    """The entries of an example."""
    return [_entry(rng) for _ in range(rng.choice([0, 1, 2, 3, 3, 4, 6]))]


def _entry(rng):
    name = NAMES[rng.integers(len(NAMES))]
    kinds = {b"s": _texts, b"f": _floats, b"i": _integers}
    make_list = kinds.get(name) if rng.random() < 0.9 else None
    make_list = make_list or (_texts, _floats, _integers)[rng.integers(3)]
    return entry(name, make_list(rng) if rng.random() < 0.95 else b"")


def _size(rng):
    return int(rng.choice([0, 1, 1, 1, 1, 2, 2, 3, 5]))


def _texts(rng):
    high = 256 if rng.random() < 0.1 else 128
    return texts(
        *(bytes(rng.integers(0, high, rng.integers(0, 30), "u1")) for _ in range(_size(rng)))
    )


def _floats(rng):
    make_list = floats if rng.random() < 0.8 else tagged_floats
    return make_list(*rng.normal(size=_size(rng)))


def _integers(rng):
    make_list = integers if rng.random() < 0.8 else tagged_integers
    low = -(2**40) if rng.random() < 0.05 else 0
    return make_list(
        *(int(value) for value in rng.integers(low, 2**20, _size(rng)) >> rng.integers(20))
    )


def mutated(rng, entries):
    """The bytes of an example after up to three changes."""
    for _ in range(rng.integers(0, 2)):
        entries = ENTRY_MUTATIONS[rng.integers(len(ENTRY_MUTATIONS))](rng, entries)
    text = example(*entries)
    for _ in range(rng.choice([0, 0, 1, 1, 1, 2])):
        text = BYTE_MUTATIONS[rng.integers(len(BYTE_MUTATIONS))](rng, text)
    return text


# Of entries.


def _at(rng, sequence):
    return int(rng.integers(len(sequence) + 1))


def duplicate_entry(rng, entries):
    """An entry is there twice, at another place too."""
    if not entries:
        return entries
    at = _at(rng, entries)
    return [*entries[:at], entries[rng.integers(len(entries))], *entries[at:]]


def shuffle(rng, entries):
    return [entries[i] for i in rng.permutation(len(entries))]


def value_first(rng, entries):
    """One more entry, with its fields in a random order and number."""
    fields = [
        delimited(1, NAMES[rng.integers(3)]),
        delimited(2, _texts(rng)),
        delimited(2, _integers(rng)),
    ]
    chosen = rng.permutation(3)[: rng.integers(1, 4)]
    return [*entries, delimited(1, b"".join(fields[i] for i in chosen))]


def other_lists(rng, entries):
    """A feature with two lists, or one of no kind."""
    lists = [_texts(rng), _floats(rng), _integers(rng), delimited(4, b"a"), b"\xff"]
    chosen = rng.integers(0, len(lists), 2)
    return [*entries, entry(NAMES[rng.integers(3)], b"".join(lists[i] for i in chosen))]


def chunks(rng, entries):
    """A packed list in two chunks, or in part not packed."""
    parts = [delimited(1, b"\0\0\x80\x3f"), b"\x0d\0\0\x80\x3f", b"\x08\x05", b""]
    content = b"".join(parts[i] for i in rng.integers(0, len(parts), 2))
    kind = int(rng.integers(2, 4))
    return [*entries, entry(NAMES[kind - 1], delimited(kind, content))]


ENTRY_MUTATIONS = (duplicate_entry, shuffle, value_first, other_lists, chunks)


# Of bytes.


def flip_bit(rng, text):
    """One bit becomes another."""
    if not text:
        return text
    at = rng.integers(len(text))
    return text[:at] + bytes([text[at] ^ (1 << int(rng.integers(8)))]) + text[at + 1 :]


def set_byte(rng, text):
    """One byte becomes one that means something."""
    if not text:
        return text
    at = rng.integers(len(text))
    return text[:at] + BYTES[(i := rng.integers(len(BYTES))) : i + 1] + text[at + 1 :]


def step_byte(rng, text):
    """One byte, maybe a length, grows or shrinks by one."""
    if not text:
        return text
    at = rng.integers(len(text))
    return text[:at] + bytes([(text[at] + int(rng.choice([-1, 1]))) % 256]) + text[at + 1 :]


def insert_bytes(rng, text):
    at = _at(rng, text)
    return (
        text[:at]
        + bytes(BYTES[i] for i in rng.integers(0, len(BYTES), rng.integers(1, 4)))
        + text[at:]
    )


def remove_bytes(rng, text):
    at = _at(rng, text)
    return text[:at] + text[at + int(rng.integers(1, 4)) :]


def truncate(rng, text):
    return text[: _at(rng, text)]


def repeat_part(rng, text):
    """A part is there twice: two Features, where it is all."""
    first, end = sorted((_at(rng, text), _at(rng, text)))
    return text[:end] + text[first:end] + text[end:]


def append_field(rng, text):
    """A field that Example does not have, of any type."""
    tag = varint(int(rng.integers(0, 64)) << int(rng.choice([0, 0, 3])))
    return text + tag + bytes(rng.integers(0, 20, rng.integers(0, 10), "u1"))


def long_length(rng, text):
    """A byte, maybe a length, as a varint of more bytes."""
    if not text:
        return text
    at = rng.integers(len(text))
    zeros = b"\x80" * int(rng.integers(0, 9)) + b"\0"
    return text[:at] + bytes([text[at] | 128]) + zeros + text[at + 1 :]


BYTE_MUTATIONS = (
    flip_bit,
    set_byte,
    set_byte,
    step_byte,
    step_byte,
    insert_bytes,
    remove_bytes,
    truncate,
    repeat_part,
    append_field,
    long_length,
)
