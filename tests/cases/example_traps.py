"""Traps of equality with tf.io.parse_example, each an example.

1: entries of one name. 2: fields of Example, Features and entries. 3: lists. 4: lengths, varints,
what is cut. 5: which error it is.
"""

import struct

import tensorflow as tf

from cases.examples import (
    SPARSE,
    delimited,
    entry,
    example,
    floats,
    integers,
    sequence,
    texts,
    varint,
)

VarLen, Fixed, Ragged = tf.io.VarLenFeature, tf.io.FixedLenFeature, tf.io.RaggedFeature

S, F, I = entry(b"s", texts(b"a")), entry(b"f", floats(1.0)), entry(b"i", integers(1))  # noqa: E741
FLOAT = struct.pack("<f", 1.0)
BIG = varint(2**31)
TRAPS = {
    "1 last of two counts": example(S, entry(b"s", texts(b"b", b"c"))),
    "1 last of two is empty": example(S, entry(b"s", b"")),
    "1 first of two is empty": example(entry(b"s", b""), S),
    "1 first of two has another kind": example(entry(b"s", floats(1.0)), S),
    "1 first of two is malformed": example(entry(b"s", b"\x0a\x05\x0a"), S),
    "1 first of two has no kind": example(entry(b"s", delimited(4, b"")), S),
    "1 both are malformed": example(entry(b"s", b"\x0a\x05\x0a"), entry(b"s", b"\x0a\x06\x0a")),
    "1 three": example(S, F, entry(b"s", floats(1.0)), entry(b"s", texts())),
    "2 two Features": example(S) + example(F),
    "2 two Features with one name": example(S) + example(entry(b"s", texts(b"b"))),
    "2 unknown bytes": example(S) + delimited(5, b"zz"),
    "2 unknown bytes behind the end": example(S) + b"\x2a\x7fzz",
    "2 unknown bytes of negative length": example(S) + b"\x2a" + BIG,
    "2 unknown varint": b"\x28\x01" + example(S),
    "2 unknown varint without end": example(S) + b"\x28\xff",
    "2 unknown fixed32": b"\x2d1234" + example(S),
    "2 unknown fixed32 cut": example(S) + b"\x2d123",
    "2 unknown fixed64": b"\x2912345678" + example(S),
    "2 unknown fixed64 cut": example(S) + b"\x291234567",
    "2 unknown long tag": b"\x8a\x01\x00" + example(S),
    "2 tag of Features in two bytes": b"\x8a\x00" + example(S)[1:],
    "2 group": b"\x2b\x2c" + example(S),
    "2 end of a group": b"\x2c" + example(S),
    "2 unknown type of a field": b"\x2e" + example(S),
    "2 unknown field in Features": delimited(1, delimited(7, b"q") + S),
    "2 unknown field in an entry": example(
        delimited(1, delimited(1, b"s") + delimited(2, texts(b"a")) + delimited(9, b"q"))
    ),
    "2 value first": example(delimited(1, delimited(2, texts(b"a")) + delimited(1, b"s"))),
    "2 no value": example(delimited(1, delimited(1, b"s"))),
    "2 no name": example(delimited(1, delimited(2, texts(b"a")))),
    "2 empty entry": example(delimited(1, b"")),
    "2 two names": example(delimited(1, delimited(1, b"z") + delimited(1, b"s"))),
    "2 two names and a value": example(
        delimited(1, delimited(1, b"z") + delimited(1, b"s") + delimited(2, texts(b"a")))
    ),
    "2 two values": example(delimited(1, delimited(2, texts(b"a")) + delimited(2, b""))),
    "2 tag of a name in two bytes": example(
        delimited(1, b"\x8a\x00\x01s" + delimited(2, texts(b"a")))
    ),
    "3 two kinds": example(entry(b"s", floats(1.0) + texts(b"a"))),
    "3 two lists": example(entry(b"s", texts(b"a") + texts(b"b"))),
    "3 unknown kind": example(entry(b"s", delimited(4, b"a"))),
    "3 garbage behind a list": example(entry(b"s", texts(b"a") + b"\xff\xff")),
    "3 two packed chunks": example(entry(b"f", delimited(2, delimited(1, FLOAT) * 2))),
    "3 packed, then tagged": example(
        entry(b"f", delimited(2, delimited(1, FLOAT) + b"\x0d" + FLOAT))
    ),
    "3 tagged, then packed": example(
        entry(b"f", delimited(2, b"\x0d" + FLOAT + delimited(1, FLOAT)))
    ),
    "3 integers packed, then tagged": example(
        entry(b"i", delimited(3, delimited(1, b"\x05") + b"\x08\x06"))
    ),
    "3 integers tagged, then packed": example(
        entry(b"i", delimited(3, b"\x08\x06" + delimited(1, b"\x05")))
    ),
    "3 packed floats of 5 bytes": example(entry(b"f", delimited(2, delimited(1, FLOAT + b"\0")))),
    "3 packed floats of 3 bytes": example(entry(b"f", delimited(2, delimited(1, FLOAT[:3])))),
    "3 packed floats, length 1 behind the end": example(
        entry(b"f", delimited(2, b"\x0a\x05" + FLOAT))
    ),
    "3 packed floats, length 4 behind the end": example(
        entry(b"f", delimited(2, b"\x0a\x08" + FLOAT))
    ),
    "3 tagged float cut": example(entry(b"f", delimited(2, b"\x0d" + FLOAT + b"\x0d" + FLOAT[:3]))),
    "3 empty feature": example(entry(b"s", b""), entry(b"f", b""), entry(b"i", b"")),
    "3 empty lists": example(
        entry(b"s", texts()), entry(b"f", delimited(2, b"")), entry(b"i", delimited(3, b""))
    ),
    "3 empty packed lists": example(entry(b"f", floats()), entry(b"i", integers())),
    "3 kind alone": example(entry(b"s", b"\x0a")),
    "3 unknown field in a list": example(
        entry(b"s", delimited(1, delimited(1, b"a") + delimited(2, b"b")))
    ),
    "3 unknown field in a list of floats": example(entry(b"f", delimited(2, b"\x08\x01"))),
    "3 unknown field in a list of integers": example(entry(b"i", delimited(3, b"\x0d" + FLOAT))),
    "4 unused and malformed": example(entry(b"zz", b"\x0a\x50"), S),
    "4 unused and no kind": example(entry(b"zz", b"\xff\xff"), S),
    "4 names that are no UTF-8": example(
        entry(b"\xff", texts(b"a")), entry(b"s", texts(b"\xff\0b"))
    ),
    "4 length of 2^32 + 1": example(
        delimited(1, b"\x0a" + varint(2**32 + 1) + b"s" + delimited(2, texts(b"a")))
    ),
    "4 length in 10 bytes": b"\x0a" + bytes([len(S) | 128]) + b"\x80" * 8 + b"\0" + S,
    "4 length in 11 bytes": b"\x0a" + bytes([len(S) | 128]) + b"\x80" * 9 + b"\0" + S,
    "4 integer of 10 bytes": example(entry(b"i", delimited(3, b"\x08" + b"\xff" * 9 + b"\x7f"))),
    "4 integer of 11 bytes": example(entry(b"i", delimited(3, b"\x08" + b"\xff" * 10 + b"\x01"))),
    "4 packed integer of 10 bytes": example(
        entry(b"i", delimited(3, delimited(1, b"\x80" * 9 + b"\x7f")))
    ),
    "4 packed integer of 11 bytes": example(
        entry(b"i", delimited(3, delimited(1, b"\x80" * 10 + b"\0")))
    ),
    "4 packed integer without end": example(entry(b"i", delimited(3, delimited(1, b"\x05\x80")))),
    "4 packed integers, length behind the end": example(
        entry(b"i", delimited(3, b"\x0a\x09\x01\x02"))
    ),
    "4 payload of a NaN": example(
        entry(b"f", delimited(2, delimited(1, struct.pack("<I", 0x7FA00001))))
    ),
    "4 empty": b"",
    "4 list longer than its feature": example(entry(b"s", b"\x0a\x7f" + delimited(1, b"a"))),
    "4 Features longer than the example": b"\x0a\x7f" + S + F,
    "4 entry longer than Features": delimited(1, S + b"\x0a\x7f" + F[2:]),
    "4 entry longer than Features, then another": delimited(1, b"\x0a\x7f" + S[2:]) + example(F),
    "4 cut in a text": example(entry(b"s", texts(b"abc")))[:-1],
    "4 a zero byte behind": example(S) + b"\0",
    "4 two zero bytes behind": example(S) + b"\0\0",
    "4 name of no bytes": example(entry(b"", texts(b"a")), S),
    "5 two features with errors": example(entry(b"s", floats(1.0)), entry(b"f", texts(b"a"))),
    "5 three features with errors": example(
        entry(b"i", delimited(4, b"")), entry(b"s", b"\x0a\x05\x0a"), entry(b"f", texts(b"a"))
    ),
}
DENSE = {
    "s": Fixed([1], tf.string, b"d"),
    "f": Fixed([1], tf.float32, -1.0),
    "i": Fixed([1], tf.int64, 7),
}
TRAP_SPECS = {
    "sparse": SPARSE,
    "dense": DENSE,
    "required": {name: Fixed([1], feature.dtype) for name, feature in DENSE.items()},
    "padded": {"s": sequence(tf.string), "f": sequence(tf.float32), "i": sequence(tf.int64)},
    "pairs": {
        "s": sequence(tf.string, [2]),
        "f": sequence(tf.float32, [2]),
        "i": sequence(tf.int64, [2]),
    },
    "ragged": {"s": Ragged(tf.string), "f": Ragged(tf.float32), "i": Ragged(tf.int64)},
    "no name": {"": VarLen(tf.string), "i": VarLen(tf.int64)},
}
