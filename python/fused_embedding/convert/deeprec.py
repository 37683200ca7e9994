"""DeepRec's checkpoints: a table is tensors `NAME-keys`, `NAME-values`, ..., a slot is a table too.

Keys lie in 1000 buckets, `key % 1000`; `-partition_offset` says where each begins. The facts are in
docs/migration/deeprec.md.
"""

import functools
import re
from typing import Any, NamedTuple

import numpy as np

from fused_embedding.convert import slots
from fused_embedding.convert.bundle import Bundle
from fused_embedding.convert.table import (
    ConvertError,
    Found,
    Slot,
    Table,
    align,
    check_keys,
    check_values,
    counters,
    order_of,
)

_BUCKETS = 1000
# What tells a table of DeepRec from other pairs of keys and values; older ones have no offsets.
_MARKS = ("-partition_offset", "-versions", "-freqs")
_SUFFIXES = (
    *_MARKS,
    "-keys",
    "-values",
    "-partition_filter_offset",
    *(f"-{column}_filtered" for column in ("keys", "freqs", "versions")),
)
_INCREMENTAL = "-sparse_incr_"
_PART = re.compile(r"(.+)/part_(\d+)(/.+)?")


class Defaults(NamedTuple):
    """What stands for what a checkpoint does not say.

    Attributes:
        accumulator: Initial value of the optimizers' accumulators.
        step: Version of rows, where none were recorded.
    """

    accumulator: float
    step: int


class _Columns(NamedTuple):
    """Rows of one name, in any order; the last three `[0]` where they were not recorded."""

    keys: np.ndarray
    values: np.ndarray
    frequencies: np.ndarray
    versions: np.ndarray
    filtered: np.ndarray


class _Files(NamedTuple):
    """A checkpoint, and the incremental one that was saved after it."""

    full: Bundle
    incremental: Bundle | None


def find(full: Bundle, incremental: Bundle | None, known: set[str], defaults: Defaults) -> Found:
    """The tables of a checkpoint.

    Args:
        full: The checkpoint.
        incremental: What changed since; None: nothing.
        known: Tensors that are something else.
        defaults: What stands for what is not recorded.

    Raises:
        ConvertError: If partitions or tensors are missing.
    """
    files = _Files(full, incremental)
    parts = _all_parts(files, known)
    owners = {name: slots.owner_of(name, set(parts) - {name}) for name in parts}
    of_tables: dict[str, dict[str, list[str]]] = {}
    for name, bases in parts.items():
        of_tables.setdefault(owners[name] or name, {})[name] = bases
    tables = {
        name: functools.partial(_read, files, name, of_table, defaults)
        for name, of_table in sorted(of_tables.items())
    }
    used = {base + suffix for bases in parts.values() for base in bases for suffix in _SUFFIXES}
    return Found(tables, used)


def _all_parts(files: _Files, known: set[str]) -> dict[str, list[str]]:
    """Names of tables and slots; for each, what its partitions' tensors begin with."""
    parts = _parts_by_name(files.full, set(files.full.shapes) - known)
    incremental = files.incremental
    if incremental is None:
        return parts
    later = _parts_by_name(incremental, set(incremental.shapes), _INCREMENTAL)
    for name, bases in later.items():
        versions = [f"{base}{_INCREMENTAL}versions" for base in bases]
        if name in parts or set(versions) <= set(incremental.shapes):  # else an ordinary variable
            parts[name] = list(dict.fromkeys([*parts.get(name, []), *bases]))
    return parts


def incremental_tensors(bundle: Bundle) -> set[str]:
    """Names of the tensors of an incremental checkpoint that are parts of others."""
    return {
        name
        for name in bundle.shapes
        if _INCREMENTAL in name or name.endswith("-incr_partition_offset")
    }


def update_rows(name: str, dense: np.ndarray, incremental: Bundle) -> np.ndarray:
    """An ordinary variable with the rows that an incremental checkpoint has of it."""
    prefix = name + _INCREMENTAL
    if f"{prefix}keys" not in incremental.shapes:
        return dense
    rows = incremental.read(f"{prefix}keys")
    order_of(f"{prefix}keys", rows)
    values = incremental.read(f"{prefix}values")
    if rows.size and (rows.min() < 0 or rows.max() >= len(dense)):
        raise ConvertError(f"{prefix}keys has rows that are not in {name!r} {list(dense.shape)}")
    dense = dense.copy()
    dense[rows] = values
    return dense


def _parts_by_name(bundle: Bundle, tensors: set[str], infix: str = "-") -> dict[str, list[str]]:
    found: dict[str, dict[int, str]] = {}
    for base in _bases(tensors, infix):
        name, index = _name_and_part(base)
        found.setdefault(name, {})[index] = base
    for name, parts in found.items():
        missing = sorted(set(range(max(parts) + 1)) - set(parts))
        if missing:
            raise ConvertError(
                f"table {name!r} has partitions up to {max(parts)}, but {missing} are missing in "
                f"{bundle.prefix!r}: the checkpoint is incomplete; save it again"
            )
    return {name: list(parts.values()) for name, parts in found.items()}


def _bases(tensors: set[str], infix: str) -> list[str]:
    ending = f"{infix}keys"
    bases = [tensor.removesuffix(ending) for tensor in sorted(tensors) if tensor.endswith(ending)]
    if infix == _INCREMENTAL:
        return bases
    return [base for base in bases if any(base + mark in tensors for mark in _MARKS)]


def _name_and_part(base: str) -> tuple[str, int]:
    match = _PART.fullmatch(base)
    return (match[1] + (match[3] or ""), int(match[2])) if match else (base, 0)


def _read(files: _Files, name: str, of_table: dict[str, list[str]], defaults: Defaults) -> Table:
    columns = _read_columns(files, of_table[name])
    order = order_of(f"{name}-keys", columns.keys)
    check_values(f"{name}-values", columns.values, len(order))
    table = Table(
        name,
        columns.keys[order].astype(np.int64),
        columns.values[order],
        _counted(columns.frequencies, order, 1),
        _counted(columns.versions, order, defaults.step),
        step=defaults.step,
    )
    _add_filtered(table, columns.filtered, defaults)
    if not columns.frequencies.size and order.size:
        table.notes.append("assumed: each key occurred once, frequencies were not recorded")
    if (not columns.versions.size or (columns.versions < 0).any()) and order.size:
        table.notes.append(f"assumed: step {defaults.step} where no version was recorded")
    del columns
    found = {}
    for other in sorted(set(of_table) - {name}):
        suffix = other.removeprefix(f"{name}/")
        of_slot = _read_columns(files, of_table[other])
        found[suffix] = align(table, other, of_slot.keys, Slot(of_slot.values, 0.0)).values
    for unknown in slots.add_slots(table, found, defaults.accumulator):
        table.notes.append(f"not carried: {name}/{unknown}, a slot of no known optimizer")
    return table


def _counted(recorded: np.ndarray, order: np.ndarray, missing: int) -> np.ndarray:
    if not recorded.size:
        return np.full(len(order), missing, np.int64)
    return counters(recorded[order], missing)


def _add_filtered(table: Table, filtered: np.ndarray, defaults: Defaults) -> None:
    order = order_of(f"{table.name}-keys_filtered", filtered[0])
    filtered = filtered[:, order[~np.isin(filtered[0, order], table.keys)]]
    rows = [filtered[0], counters(filtered[1], 0), counters(filtered[2], defaults.step)]
    table.filtered = np.stack(rows)


def _read_columns(files: _Files, bases: list[str]) -> _Columns:
    """All partitions of one name, with what an incremental checkpoint has of them."""
    of_full = [base for base in bases if f"{base}-keys" in files.full.shapes]
    full = [_columns_of_part(files.full, base, len(of_full)) for base in of_full]
    if files.incremental is None:
        return _joined(full)
    later = [
        _incremental_of_part(files.incremental, base)
        for base in bases
        if f"{base}{_INCREMENTAL}keys" in files.incremental.shapes
    ]
    return (
        _last_of_each_key(_joined(full), _joined(later))
        if full and later
        else _joined(full + later)
    )


def _columns_of_part(bundle: Bundle, base: str, num_parts: int) -> _Columns:
    keys = bundle.read(f"{base}-keys")
    check_keys(f"{base}-keys", keys)
    match = _PART.fullmatch(base)
    if match and (keys % _BUCKETS % num_parts != int(match[2])).any():
        raise ConvertError(
            f"{base}-keys has keys that are not of partition {match[2]} of {num_parts}: partitions "
            f"are missing in {bundle.prefix!r}; save the checkpoint again"
        )
    columns = _Columns(
        keys,
        bundle.read(f"{base}-values"),
        _optional(bundle, f"{base}-freqs", len(keys)),
        _optional(bundle, f"{base}-versions", len(keys)),
        _filtered_of_part(bundle, base),
    )
    _check_offsets(bundle, f"{base}-partition_offset", len(keys))
    _check_offsets(bundle, f"{base}-partition_filter_offset", columns.filtered.shape[1])
    return columns


def _filtered_of_part(bundle: Bundle, base: str) -> np.ndarray:
    if f"{base}-keys_filtered" not in bundle.shapes:
        return np.zeros([3, 0], np.int64)
    keys = bundle.read(f"{base}-keys_filtered").astype(np.int64)
    frequencies = _optional(bundle, f"{base}-freqs_filtered", len(keys))
    versions = _optional(bundle, f"{base}-versions_filtered", len(keys))
    unknown = np.full(len(keys), -1, np.int64)
    recorded = [column if column.size else unknown for column in (frequencies, versions)]
    return np.stack([keys, *recorded])


def _incremental_of_part(bundle: Bundle, base: str) -> _Columns:
    prefix = base + _INCREMENTAL
    keys = bundle.read(f"{prefix}keys")
    return _Columns(
        keys,
        bundle.read(f"{prefix}values"),
        _optional(bundle, f"{prefix}freqs", len(keys)),
        _optional(bundle, f"{prefix}versions", len(keys)),
        np.zeros([3, 0], np.int64),
    )


def _optional(bundle: Bundle, name: str, size: int) -> np.ndarray:
    """A column that is `[0]`, or not there, unless DeepRec was told to record it."""
    column = bundle.read(name) if name in bundle.shapes else np.zeros([0], np.int64)
    if column.shape not in ((0,), (size,)) or column.dtype.kind != "i":
        raise ConvertError(
            f"{name} is {column.dtype}{list(column.shape)}, but there are {size} keys: it must be "
            f"integers [{size}], or [0] where it was not recorded; save the checkpoint again"
        )
    return column


def _check_offsets(bundle: Bundle, name: str, num_keys: int) -> None:
    if name not in bundle.shapes:
        return
    offsets = bundle.read(name)
    if offsets.shape != (_BUCKETS + 1,) or offsets[-1] != num_keys or (np.diff(offsets) < 0).any():
        raise ConvertError(
            f"{name} {list(offsets.shape)} does not fit {num_keys} keys: it must be "
            f"[{_BUCKETS + 1}], ascending from 0 to {num_keys}; save the checkpoint again"
        )


def _joined(parts: list[_Columns]) -> _Columns:
    if len(parts) == 1:
        return parts[0]
    keys, values, frequencies, versions, filtered = zip(*parts, strict=True)
    if len({(part.shape[1:], part.dtype) for part in values}) > 1:
        kinds = ", ".join(f"{part.dtype}{list(part.shape)}" for part in values)
        raise ConvertError(f"partitions of one table are of different dims or types: {kinds}")
    return _Columns(
        np.concatenate(keys),
        np.concatenate(values),
        _whole_or_nothing(frequencies, keys),
        _whole_or_nothing(versions, keys),
        np.concatenate(filtered, axis=1),
    )


def _whole_or_nothing(column: tuple[np.ndarray, ...], keys: tuple[np.ndarray, ...]) -> np.ndarray:
    """A column of all partitions; -1, as DeepRec has it, for those that did not record it."""
    if not any(part.size for part in column):
        return np.zeros([0], np.int64)
    pairs = zip(column, keys, strict=True)
    return np.concatenate([part if part.size else np.full(len(own), -1) for part, own in pairs])


def _last_of_each_key(full: _Columns, later: _Columns) -> _Columns:
    both = _joined([full, later])
    # In the reversed order, the first of equal keys is the last one that was saved.
    _, first = np.unique(both.keys[::-1], return_index=True)
    keep = len(both.keys) - 1 - first
    return both._replace(
        keys=both.keys[keep],
        values=both.values[keep],
        frequencies=both.frequencies[keep] if both.frequencies.size else both.frequencies,
        versions=both.versions[keep] if both.versions.size else both.versions,
    )


def tensors_of(table: Table) -> dict[str, Any]:
    """A table and its slots as DeepRec saves them, in one partition.

    Raises:
        ConvertError: If a key is negative: it has no bucket.
    """
    keys, filtered = table.keys, table.filtered
    negative = [found[0] for found in (keys[keys < 0], filtered[0, filtered[0] < 0]) if found.size]
    if negative:
        raise ConvertError(
            f"table {table.name!r} has negative keys, as {negative[0]}, which DeepRec does not "
            f"save (its buckets are key % {_BUCKETS}): take them out with erase()"
        )
    order, offsets = _buckets(keys)
    filtered_order, filtered_offsets = _buckets(filtered[0])
    filtered = filtered[:, filtered_order]
    shared = {
        "-keys": keys[order],
        "-versions": table.versions[order],
        "-freqs": table.frequencies[order],
        "-keys_filtered": filtered[0],
        "-versions_filtered": filtered[2],
        "-freqs_filtered": filtered[1],
        "-partition_offset": offsets,
        "-partition_filter_offset": filtered_offsets,
    }
    tensors = {table.name + suffix: column for suffix, column in shared.items()}
    tensors[f"{table.name}-values"] = table.values[order]
    for suffix, slot in slots.slot_tensors(table).items():
        name = f"{table.name}/{suffix}"
        dtype = slot.values.dtype if slot.values.dtype == np.int64 else table.values.dtype
        tensors |= {name + ending: column for ending, column in shared.items()}
        tensors[f"{name}-values"] = slot.values[order].astype(dtype)
    if table.rest.get("bloom_layout"):
        table.notes.append("not carried: counters of the Bloom filter")
    if table.rest:
        table.notes.append("not carried: how first values are drawn; DeepRec's program says it")
    return tensors


def _buckets(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of `[n]` keys bucket by bucket; where each bucket begins, `[1001]` int32."""
    buckets = keys % _BUCKETS
    offsets = np.concatenate([[0], np.cumsum(np.bincount(buckets, minlength=_BUCKETS))])
    return np.argsort(buckets, kind="stable"), offsets.astype(np.int32)
