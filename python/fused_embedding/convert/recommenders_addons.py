"""recommenders-addons: a table is `NAME_mht_1of2_rank0_size1-keys` and `...-values`, shards of it.

They are files of a folder (save_to_file_system, FileSystemSaver), bare int64 keys and float32
values, or tensors of a checkpoint, where names end before `_rank`. A slot is a table of its own,
`NAME/OPTIMIZER/SLOT`; each `/` is a `_`.
"""

import functools
import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from fused_embedding.convert.bundle import Bundle
from fused_embedding.convert.table import (
    ConvertError,
    Found,
    Slot,
    Table,
    align,
    check_values,
    order_of,
)

# In checkpoints of a v1 Saver, the last part of the variable's name comes before all that.
_SHARD = re.compile(r"(?:.*/)?([^/]+)_mht_(\d+)of(\d+)(?:_rank(\d+)_size(\d+))?")
# In those of tf.train.Checkpoint, what is left of "-keys" begins with the path of the object.
_OBJECT = re.compile(r"(.+)/tables_of_[^/]+/(\d+)/\.ATTRIBUTES/table")
# Slots of tf.compat.v1 and Keras 2 optimizers, and what a new row has; None: an option says it.
_SLOTS: Mapping[str, float | None] = {
    "accumulator": None,
    "accum": None,
    "linear": 0.0,
    "m": 0.0,
    "mg": 0.0,
    "momentum": 0.0,
    "rms": 1.0,
    "v": 0.0,
}
_SLOT = re.compile(rf"_([A-Za-z0-9]+)_({'|'.join(_SLOTS)})")
_KEY, _VALUE = np.dtype("<i8"), np.dtype("<f4")


class _Shard(NamedTuple):
    """Reads the `[n]` keys and `[n, dim]` values of a shard."""

    keys: Callable[[], np.ndarray]
    values: Callable[[int], np.ndarray]


class _Defaults(NamedTuple):
    """What files do not say."""

    accumulator: float
    step: int


def is_folder(path: str) -> bool:
    """Whether a folder has files of tables."""
    return os.path.isdir(path) and any(name.endswith("-keys") for name in os.listdir(path))


def find_files(folder: str, accumulator: float) -> Found:
    """The tables of a folder, each of whose rows get step 0 as their version.

    Args:
        folder: The folder.
        accumulator: Initial value of the optimizers' accumulators.

    Raises:
        ConvertError: If files are missing.
    """
    names = set(os.listdir(folder))
    shards: dict[str, list[_Shard]] = {}
    for base, name in _bases(names, folder).items():
        path = os.path.join(folder, base)
        shard = _Shard(
            functools.partial(np.fromfile, f"{path}-keys", _KEY),
            functools.partial(_values_of_file, path),
        )
        shards.setdefault(name, []).append(shard)
    return Found(_tables(shards, _Defaults(accumulator, 0)), set())


def find(bundle: Bundle, known: set[str], accumulator: float, step: int) -> Found:
    """The tables of a checkpoint.

    Args:
        bundle: The checkpoint.
        known: Tensors that are something else.
        accumulator: Initial value of the optimizers' accumulators.
        step: Version of all rows.

    Raises:
        ConvertError: If tensors are missing.
    """
    keys = {
        name
        for name in set(bundle.shapes) - known
        if name.endswith("-keys") and bundle.dtypes[name].is_integer
    }
    values = {name.removesuffix("keys") + "values" for name in keys} & set(bundle.shapes)
    shards: dict[str, list[_Shard]] = {}
    bases = _bases(keys | values, bundle.prefix)
    for base, name in bases.items():
        shard = _Shard(
            functools.partial(bundle.read, f"{base}-keys"),
            functools.partial(_values_of_tensor, bundle, f"{base}-values"),
        )
        shards.setdefault(name, []).append(shard)
    used = {f"{base}-{column}" for base in bases for column in ("keys", "values")}
    return Found(_tables(shards, _Defaults(accumulator, step)), used)


def _bases(names: set[str], where: str) -> dict[str, str]:
    """What comes before `-keys` in each of the names, and the table that it is of."""
    endings = ("-keys", "-values")
    bases = {name.removesuffix(end) for name in names for end in endings if name.endswith(end)}
    found: dict[str, str] = {}
    shards: dict[str, tuple[set[int], set[int]]] = {}
    for base in sorted(bases):
        missing = [base + end for end in endings if base + end not in names]
        if missing:
            raise ConvertError(f"{missing[0]!r} is missing in {where!r}: save the tables again")
        found[base], index, count = _shard_of(base)
        indices, counts = shards.setdefault(found[base], (set(), set()))
        indices.add(index)
        counts.add(max(count, index + 1))
    for name, (indices, counts) in shards.items():
        left = sorted(set(range(max(counts))) - indices)
        if left:
            raise ConvertError(
                f"shards {left} of table {name!r}, from 0 on, are missing in {where!r}: save it "
                "again"
            )
    return found


def _shard_of(base: str) -> tuple[str, int, int]:
    """The table, which of its shards, and how many there are; 0 where that is not said."""
    match = _SHARD.fullmatch(base)
    if match:
        of_process = int(match[3])
        rank, size = int(match[4] or 0), int(match[5] or 1)
        return match[1], rank * of_process + int(match[2]) - 1, size * of_process
    match = _OBJECT.fullmatch(base)
    return (match[1], int(match[2]), 0) if match else (base, 0, 0)


def _tables(shards: dict[str, list[_Shard]], defaults: _Defaults) -> dict[str, Callable[[], Table]]:
    owned: dict[str, dict[str, str]] = {name: {} for name in shards}
    for name in shards:
        for owner in shards:
            match = _SLOT.fullmatch(name.removeprefix(owner)) if name != owner else None
            if match:
                owned[owner][name] = f"{match[1]}/{match[2]}"
    slots = {name for of_owner in owned.values() for name in of_owner}
    return {
        name: functools.partial(_read, name, shards, owned[name], defaults)
        for name in sorted(set(shards) - slots)
    }


def _read(
    name: str, shards: dict[str, list[_Shard]], slots: dict[str, str], defaults: _Defaults
) -> Table:
    keys, values = _rows(name, shards[name])
    order = order_of(f"{name}-keys", keys)
    check_values(f"{name}-values", values, len(order))
    ones = np.ones(len(order), np.int64)
    table = Table(
        name,
        keys[order].astype(np.int64),
        values[order],
        ones,
        ones * defaults.step,
        step=defaults.step,
    )
    del keys, values
    for other, slot_name in slots.items():
        initial = _SLOTS[slot_name.rpartition("/")[2]]
        initial = defaults.accumulator if initial is None else initial
        slot_keys, slot_values = _rows(other, shards[other])
        slot = Slot(slot_values.astype(table.slot_dtype), initial)
        table.slots[slot_name] = align(table, slot_name, slot_keys, slot)
    table.notes.append(f"assumed: each key occurred once, last in step {defaults.step}")
    return table


def _rows(name: str, shards: list[_Shard]) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values of all shards. An empty shard of files does not say its dim."""
    keys = [shard.keys() for shard in shards]
    values = [shard.values(len(own)) for shard, own in zip(shards, keys, strict=True)]
    filled = [part for part, own in zip(values, keys, strict=True) if own.size]
    dims = sorted({part.shape[1:] for part in filled})
    if len(dims) > 1:
        raise ConvertError(f"shards of table {name!r} have different dims: {dims}")
    if not filled:
        raise ConvertError(f"table {name!r} has no keys, and so no dim: remove its files")
    return np.concatenate(keys), np.concatenate(filled)


def _values_of_file(path: str, num_keys: int) -> np.ndarray:
    num_bytes = os.path.getsize(f"{path}-values")
    row_bytes = num_bytes // num_keys if num_keys else _VALUE.itemsize
    is_whole = os.path.getsize(f"{path}-keys") == num_keys * _KEY.itemsize
    if not is_whole or row_bytes * num_keys != num_bytes or row_bytes % _VALUE.itemsize:
        raise ConvertError(
            f"{path!r}-values has {num_bytes} bytes, which are not {num_keys} rows of float32: the "
            "files are damaged, or of other types than int64 and float32, and must be saved again"
        )
    return np.fromfile(f"{path}-values", _VALUE).reshape(num_keys, row_bytes // _VALUE.itemsize)


def _values_of_tensor(bundle: Bundle, name: str, num_keys: int) -> np.ndarray:
    return bundle.read(name)


def write(table: Table, folder: str) -> None:
    """Writes a table and its slots as files of a folder, which load_from_file_system reads.

    Raises:
        ConvertError: If the values are not float32.
    """
    if table.values.dtype != np.float32:
        raise ConvertError(
            f"table {table.name!r} is {table.values.dtype}, but files of recommenders-addons are "
            "written as float32 only"
        )
    _write_rows(folder, table.name, table.keys, table.values)
    for name, slot in table.slots.items():
        if slot.values.shape[1] == table.dim:
            _write_rows(folder, f"{table.name}/{name}", table.keys, slot.values)
        else:
            table.notes.append(f"not carried: slot {name}, which has one number a row")
    if table.filtered.shape[1]:
        table.notes.append(f"not carried: counts of {table.filtered.shape[1]} keys not admitted")
    table.notes.append("not carried: frequencies and versions")


def _write_rows(folder: str, name: str, keys: np.ndarray, values: np.ndarray) -> None:
    base = os.path.join(folder, name.replace("/", "_") + "_mht_1of1_rank0_size1")
    if os.path.exists(f"{base}-keys"):
        raise ConvertError(
            f"two tables would be the file {base!r}: recommenders-addons' files do not tell / "
            "from _; save one under another name"
        )
    np.ascontiguousarray(keys, _KEY).tofile(f"{base}-keys")
    np.ascontiguousarray(values, _VALUE).tofile(f"{base}-values")
