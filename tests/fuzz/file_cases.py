"""Valid calls of the ops that write and read files of tables, and ways to spoil paths and files.

A check believes no call before it: it replays the files that the call was given, and compares what
they say with what the table holds now, or held when they were written.
"""

import functools
import itertools
import pathlib
import struct
import tempfile
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import fused_embedding as fe
import oracle.lookup
from fuzz import table_cases

DIM = table_cases.DIM
ATTRS = table_cases.ATTRS
READ_ATTRS = {"dtype": tf.float32, "embedding_dim": DIM}
PATHS = ("path", "paths", "base_paths", "link_paths")
KEPT = 16  # files of that many calls: a folder stays small
MAGIC_BYTES, BLOCK_BYTES = 16, 24  # before the first block; before a block's payload


class Stage(NamedTuple):
    """What a table held when it was saved as one of a series.

    Attributes:
        before: Files that this one continues, the first of the series first.
        rows: Bytes of the values by key.
        frequencies: Sorted; those of the keys that have no row, too.
    """

    before: tuple[bytes, ...]
    rows: dict[int, bytes]
    frequencies: list[int]


STAGES: dict[bytes, Stage] = {}  # by file, of the last series
_numbers = itertools.count()


@functools.cache
def _temporary():
    return tempfile.TemporaryDirectory()


def folder(name):
    path = pathlib.Path(_temporary().name, name)
    path.mkdir(exist_ok=True)
    return path


def new_file(name):
    """A path, of a file that is there or not."""
    return str(folder(name) / f"{next(_numbers) % KEPT}").encode()


def strings(values):
    return np.array(values, object)


def rows_of(keys, values):
    """The bytes of each key's row: NaNs are compared as well."""
    return {key: row.tobytes() for key, row in zip(keys.tolist(), values, strict=True)}


def rows_in(handle):
    content = table_cases.export(handle)
    return rows_of(content["keys"], content["values"])


def change(rng, handle):
    """Rows and counts come and go, and are trained."""
    keys = table_cases.keys_of(rng, 1)
    # Frequencies of keys that a filter waits for are saved too.
    counts = np.ones(len(keys), np.int32)
    fe.raw_ops.EmbeddingVariableLookup(
        resource=handle, keys=keys, counts=counts, step=0, insert=True, dtype=tf.float32
    )
    rule = ("sgd", "adagrad")[rng.integers(2)]
    fe.raw_ops.EmbeddingVariableApply(
        resources=[handle],
        keys=[keys],
        handles=[np.zeros(0, np.int64)],
        grads=[rng.integers(-9, 9, [len(keys), DIM]).astype(np.float32)],
        hyperparameters=[table_cases.RULES[rule]],
        rule=rule,
        slot_prefixes=[rule],
    )
    fe.raw_ops.EmbeddingVariableErase(resource=handle, keys=keys[: rng.integers(2)])


def new_table(name, kind):
    attrs = {"shared_name": f"{name} {kind}", **ATTRS, **table_cases.TABLES[kind]}
    table_cases.delete(fe.raw_ops.EmbeddingVariableHandle(**attrs))
    return fe.raw_ops.EmbeddingVariableHandle(**attrs)


def save_series(rng):
    """A table, and the files of one to three saves of it; each continues the one before."""
    kind = ("plain", "counter", "bloom")[rng.integers(3)]
    handle = new_table("saved", kind)
    STAGES.clear()  # files of other series are written over
    files: list[bytes] = []
    for _ in range(rng.integers(1, 4)):
        change(rng, handle)
        path, links = new_file("read"), [new_file("read") for _ in files]
        fe.raw_ops.EmbeddingVariableSaveIncrement(
            resource=handle, path=path, base_paths=strings(files), link_paths=strings(links)
        )
        for old, link in zip(files, links, strict=True):
            before = tuple(links[: len(STAGES[old].before)])
            STAGES[link] = STAGES[old]._replace(before=before)
        content = table_cases.export(handle)
        counts = [*content["frequencies"].tolist(), *content["filtered_frequencies"].tolist()]
        STAGES[path] = Stage(tuple(links), rows_in(handle), sorted(counts))
        files = [*links, path]
    return handle, kind, files


def replay(files):
    """Bytes of the values by key, as the files of a series say."""
    rows: dict[int, bytes] = {}
    for i, file in enumerate(files):
        got = fe.raw_ops.EmbeddingVariableReadRows(path=tf.constant(file), **READ_ATTRS)
        keys, values, removed, is_incremental, _ = (column.numpy() for column in got)
        assert is_incremental == (i > 0)
        assert not set(keys.tolist()) & set(removed.tolist())
        rows = {key: row for key, row in rows.items() if key not in removed}
        rows |= rows_of(keys, values)
    return rows


def is_series(files):
    """Whether these are the files of a series, each as it was written."""
    stage = STAGES.get(files[-1])
    return stage is not None and stage.before == tuple(files[:-1])


# --- The ops ---


def make_save(rng):
    return {"resource": table_cases.table(rng), "path": strings(new_file("written"))}


def check_save(args, _):
    assert replay([args["path"].item()]) == rows_in(args["resource"])


def make_save_increment(rng):
    handle, _, files = save_series(rng)
    change(rng, handle)
    bases = files if rng.integers(4) else []
    links = [new_file("written") for _ in bases]
    return {
        "resource": handle,
        "path": strings(new_file("written")),
        "base_paths": strings(bases),
        "link_paths": strings(links),
    }


def check_save_increment(args, _):
    bases = args["base_paths"].tolist()
    if bases and not is_series(bases):
        return  # older files are linked unread: what is wrong with them, a restore finds
    files = [*args["link_paths"].tolist(), args["path"].item()]
    assert replay(files) == rows_in(args["resource"])


def make_read_rows(rng):
    files = save_series(rng)[2]
    return {"path": strings(files[rng.integers(len(files))]), **READ_ATTRS}


def check_read_rows(args, got):
    assert (args["dtype"], args["embedding_dim"]) == (tf.float32, DIM)
    assert got.keys.shape == got.values.shape[:1]
    stage = STAGES.get(args["path"].item())
    if stage is not None:
        assert replay([*stage.before, args["path"].item()]) == stage.rows


def make_summary(rng):
    files = save_series(rng)[2]
    return {"path": strings(files[rng.integers(len(files))])}


def check_summary(args, got):
    assert got.frequencies.shape == got.versions.shape
    assert got.filtered_frequencies.shape == got.filtered_versions.shape
    assert got.slot_names.shape == got.slot_widths.shape
    assert int(got.dim) > 0
    stage = STAGES.get(args["path"].item())
    if stage is not None:
        assert (got.dtype.numpy(), int(got.dim)) == (b"float32", DIM)
    if stage is not None and not stage.before:
        counts = [*got.frequencies.numpy().tolist(), *got.filtered_frequencies.numpy().tolist()]
        assert sorted(counts) == stage.frequencies


def make_restore(rng):
    _, kind, files = save_series(rng)
    paths = files[:1] if rng.integers(2) else [[file] for file in files]
    partition = {"partition_index": 0, "num_partitions": 1, "partition_strategy": "hash"}
    return {"resource": new_table("restored", kind), "paths": strings(paths), **partition}


def check_restore(args, _):
    rows = rows_in(args["resource"])
    files = args["paths"].reshape(-1).tolist()
    count = args["num_partitions"]
    if not files or not is_series(files) or count > 9:
        return  # of a file that was spoiled, or more partitions than the oracle has shards for
    stage = STAGES[files[-1]]
    keys = np.array(sorted(stage.rows), np.int64)
    parts, _ = oracle.lookup.partition(keys, [0] * count, args["partition_strategy"])
    want = {key: stage.rows[key] for key in parts[args["partition_index"]].tolist()}
    assert rows == want


CASES = {
    "EmbeddingVariableSave": (make_save, check_save),
    "EmbeddingVariableSaveIncrement": (make_save_increment, check_save_increment),
    "EmbeddingVariableReadRows": (make_read_rows, check_read_rows),
    "EmbeddingVariableFileSummary": (make_summary, check_summary),
    "EmbeddingVariableRestore": (make_restore, check_restore),
}


# --- Spoiled paths and files ---


def other_path(rng, path, is_written):
    """A path that is none, or the path of a spoiled copy of a file."""
    here = str(folder("written")).encode()
    names = [b"", here, here + b"/none/file", here + b"/" + b"x" * 300, here + b"/" + b"x" * 10**5]
    names += [here + b"/a\0b", path, new_file("written")]
    if is_written:
        return names[rng.integers(len(names))]
    if path in STAGES and rng.integers(4):
        spoiled = folder("spoiled") / str(rng.integers(KEPT))
        spoiled.write_bytes(spoil(rng, pathlib.Path(path.decode()).read_bytes()))
        return str(spoiled).encode()
    text = folder("spoiled") / "text"
    text.write_text("no table\n")
    names += [b"/dev/null", b"/dev/zero", str(text).encode(), new_file("read")]
    return names[rng.integers(len(names))]


def spoil(rng, content):
    """Bytes of a file that is cut, altered, or forged: with checksums that fit."""
    kind = rng.integers(8)
    if kind == 0:
        return content[: rng.integers(len(content))]
    if kind == 1:
        return content + content[: rng.integers(1, 64)]
    if kind == 2:
        at = rng.integers(len(content))
        return content[:at] + bytes([content[at] ^ (1 << rng.integers(8))]) + content[at + 1 :]
    blocks = blocks_of(content)
    at = rng.integers(len(blocks))
    number, payload = blocks[at]
    if kind == 3:
        blocks[at] = (EXTREMES[rng.integers(len(EXTREMES))] % 2**32, payload)
    elif kind == 4:
        blocks = [*blocks[:at], *([blocks[at]] * (2 * rng.integers(2))), *blocks[at + 1 :]]
    elif kind == 5:
        other = rng.integers(len(blocks))
        blocks[at], blocks[other] = blocks[other], blocks[at]
    else:
        blocks[at] = (number, other_payload(rng, payload))
    return content[:MAGIC_BYTES] + b"".join(
        sealed(i, number, payload) for i, (number, payload) in enumerate(blocks)
    )


EXTREMES = (0, 1, 2, 10, 11, -1, 2**24, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)


def other_payload(rng, payload):
    """A number in it becomes an extreme one, or an end is cut off."""
    if len(payload) < 8 or rng.integers(8) == 0:
        return payload[: rng.integers(len(payload) + 1)]
    number = struct.pack("<Q", EXTREMES[rng.integers(len(EXTREMES))] % 2**64)[
        : 4 << rng.integers(2)
    ]
    at = rng.integers(len(payload) - len(number) + 1)
    at -= at % 4 * (rng.integers(4) > 0)
    return payload[:at] + number + payload[at + len(number) :]


def blocks_of(content):
    """Type and payload of each block."""
    blocks, at = [], MAGIC_BYTES
    while at < len(content):
        number, _, size = struct.unpack_from("<IIQ", content, at)
        blocks.append((number, content[at + BLOCK_BYTES : at + BLOCK_BYTES + size]))
        at += BLOCK_BYTES + size
    return blocks


def sealed(index, number, payload):
    """The bytes of a block."""
    header = struct.pack("<IIQI", number, index, len(payload), crc32c(payload))
    return header + struct.pack("<I", crc32c(header)) + payload


@functools.cache
def _crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 * (value & 1)
        table.append(value)
    return table


def crc32c(content):
    """Of Castagnoli's polynomial."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
