"""Snapshots of OneEmbedding's tables: a folder with a file of numpy arrays for each table.

FOLDER/snapshots/NAME/snapshot.json                  what tables there are
FOLDER/snapshots/NAME/table_0.npz                    their content, checkpoint/content.py
FOLDER/snapshots/NAME/table_0.data-e3ibl-of-l4qbu    that of a table with a tier on an SSD, which
                                                     memory may not hold: checkpoint/side_files.py
"""

import dataclasses
import functools
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint import side_files
from fused_embedding.checkpoint.arrays import (
    check_fits,
    evaluated,
    read_arrays,
    replace_arrays,
)
from fused_embedding.checkpoint.new_folder import new_folder
from fused_embedding.ops.tf_private import eager_mode
from fused_embedding.variable.scope import get_embedding_variable

_MANIFEST = "snapshot.json"
_ARRAYS = ".npz"
_FORMAT = 1
Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What the tables of a snapshot have in common.

    Attributes:
        num_tables: Their number.
        dim: Length of a row.
        value_type: Name of the dtype of the values.
        key_type: Name of the dtype of the keys.
    """

    num_tables: int
    dim: int
    value_type: str
    key_type: str


def _path(folder: str, name: str) -> str:
    """The folder of a snapshot."""
    # OneFlow's documents write "./my_snapshot".
    plain = os.path.normpath(name) if isinstance(name, str) else "."
    if plain in (".", "..") or os.sep in plain:
        raise ValueError(
            f"snapshot_name must be the name of a folder, without {os.sep!r} but a leading './', "
            f"got {name!r}; snapshots are in the folder 'snapshots' of the persistent path"
        )
    return os.path.join(folder, "snapshots", plain)


def _table(path: str, index: int) -> str:
    """The prefix of the names of a table's files."""
    return os.path.join(path, f"table_{index}")


# Writes the files of a table, each named by the prefix that it is given and a suffix; returns the
# suffixes.
WriteTable = Callable[[str], Sequence[str]]


def write(folder: str, name: str, manifest: Manifest, tables: Iterable[WriteTable]) -> None:
    """Writes a snapshot, one table after the other.

    Args:
        folder: Of the store.
        name: Of the snapshot.
        manifest: What the tables have in common.
        tables: What writes each of them.

    Raises:
        ValueError: For a name that is no name of a folder.
        FileExistsError: If there is a snapshot of that name.
    """
    with new_folder(_path(folder, name)) as path:
        suffixes = [list(save_as(_table(path, index))) for index, save_as in enumerate(tables)]
        fields = {"format": _FORMAT, **dataclasses.asdict(manifest)}
        if any(of_table != [_ARRAYS] for of_table in suffixes):
            fields["suffixes"] = suffixes
        with open(os.path.join(path, _MANIFEST), "w") as text:
            json.dump(fields, text)


def write_arrays(arrays: Arrays, prefix: str) -> list[str]:
    """Writes a table of `keys` `[n]` and `values` `[n, dim]`, and what else there is of it."""
    with open(prefix + _ARRAYS, "wb") as file:
        storable: dict[str, Any] = {key: _storable(arrays[key]) for key in arrays}
        np.savez(file, **storable)
        file.flush()
        os.fsync(file.fileno())
    return [_ARRAYS]


def _storable(array: np.ndarray) -> np.ndarray:
    """bfloat16 as float32, which holds it exactly: numpy has no name for it."""
    return array.astype(np.float32) if array.dtype == tf.bfloat16.as_numpy_dtype else array


def read_manifest(folder: str, name: str) -> Manifest:
    """What tables a snapshot has.

    Raises:
        FileNotFoundError: If there is none; the message lists those that are there.
        ValueError: If its file is damaged.
    """
    return _read_manifest(folder, name)[0]


def _read_manifest(folder: str, name: str) -> tuple[Manifest, list[list[str]]]:
    """And how the names of the files of each table end."""
    path = os.path.join(_path(folder, name), _MANIFEST)
    if not os.path.exists(path):
        parent = os.path.join(folder, "snapshots")
        names = sorted(os.listdir(parent)) if os.path.isdir(parent) else []
        there = ", ".join(one for one in names if not one.startswith(".")) or "none"
        raise FileNotFoundError(f"there is no snapshot {name!r} in {parent!r}; there are: {there}")
    try:
        with open(path) as text:
            fields = json.load(text)
        if fields.pop("format") != _FORMAT:
            raise ValueError("of another format")
        suffixes = fields.pop("suffixes", [[_ARRAYS]] * int(fields["num_tables"]))
        return Manifest(**fields), [list(suffixes[i]) for i in range(int(fields["num_tables"]))]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"{path!r} is damaged or not of this version: {error}") from error


def read_table(folder: str, name: str, manifest: Manifest, index: int) -> dict[str, np.ndarray]:
    """The arrays of one table of a snapshot.

    Raises:
        ValueError: If the file is damaged or missing, or its arrays do not fit.
        tf.errors.DataLossError: So is a file of a table that had a tier on an SSD.
    """
    prefix = _table(_path(folder, name), index)
    suffixes = _read_manifest(folder, name)[1][index]
    if suffixes != [_ARRAYS]:
        return _read_files(prefix, suffixes, manifest)
    path = prefix + _ARRAYS
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path!r} is damaged or missing: {error}") from error
    shapes = {key: arrays[key].shape for key in ("keys", "values") if key in arrays}
    num_rows = len(arrays["keys"]) if "keys" in arrays else 0
    if shapes != {"keys": (num_rows,), "values": (num_rows, manifest.dim)}:
        raise ValueError(
            f"{path!r} has arrays of shapes {shapes}, but keys [n] and values "
            f"[n, {manifest.dim}] are required"
        )
    return arrays


def _read_files(prefix: str, suffixes: list[str], manifest: Manifest) -> dict[str, np.ndarray]:
    """By way of a table in memory."""
    with eager_mode():  # also where a TF1 program has a graph of its own
        dtype = tf.as_dtype(manifest.value_type)
        table = get_embedding_variable("snapshot", manifest.dim, value_dtype=dtype)
        side_files.restore([table], tf.constant(prefix), tf.constant(suffixes))
        return read_arrays([table])


def save(folder: str, name: str, manifest: Manifest, tables: Sequence[Sequence[Any]]) -> None:
    """Writes the content of tables, each given as its partitions; see `write`."""

    def write_table(parts: Sequence[Any], prefix: str) -> Sequence[str]:
        if not parts[0].option.storage_option.is_on_ssd:
            return write_arrays(read_arrays(parts), prefix)
        saved = evaluated(lambda: side_files.save(parts, tf.constant(prefix), "table"))
        return [suffix.decode() for suffix in saved]

    write(folder, name, manifest, [functools.partial(write_table, parts) for parts in tables])


def load(
    folder: str,
    name: str,
    manifest: Manifest,
    tables: Sequence[Sequence[Any]],
    capacity: int | None,
) -> None:
    """Replaces the content of tables, each given as its partitions.

    Raises:
        FileNotFoundError: If there is no such snapshot.
        ValueError: If it is of other tables or has more than `capacity` rows, or a file of arrays
            is damaged. No table has changed.
        tf.errors.DataLossError: If a file of a table that had a tier on an SSD is damaged. That
            table has not changed.
    """
    found, suffixes = _read_manifest(folder, name)
    if found != manifest:
        raise ValueError(
            f"the snapshot {name!r} in {folder!r} is of {found}, but the tables are {manifest}; "
            "load it into tables like those that were saved"
        )
    prefixes = [_table(_path(folder, name), index) for index in range(len(tables))]
    contents = {
        index: read_table(folder, name, manifest, index)
        for index, of_table in enumerate(suffixes)
        if of_table == [_ARRAYS]
    }
    for index, arrays in contents.items():
        check_fits(tables[index][0], len(arrays["keys"]), prefixes[index] + _ARRAYS)
    _check_capacity(contents.values(), capacity, prefixes[0])
    for index, parts in enumerate(tables):
        if index in contents:
            _replace(parts, contents.pop(index))
        else:
            _restore(parts, prefixes[index], suffixes[index])


def _check_capacity(contents: Iterable[Arrays], capacity: int | None, first: str) -> None:
    """Raises ValueError for more rows than all tables may have together."""
    num_rows = sum(len(arrays["keys"]) for arrays in contents)
    if capacity is not None and num_rows > capacity:
        raise ValueError(
            f"the tables of the snapshot {os.path.dirname(first)!r} have {num_rows} rows together, "
            f"but the capacity is {capacity}; raise that of the store_options"
        )


def _replace(parts: Sequence[Any], arrays: dict[str, np.ndarray]) -> None:
    dtype = parts[0].dtype.as_numpy_dtype
    for key in {"values", "initializer_matrix"} & set(arrays):
        arrays[key] = arrays[key].astype(dtype)
    replace_arrays(parts, arrays)


def _restore(parts: Sequence[Any], prefix: str, suffixes: list[str]) -> None:
    evaluated(lambda: side_files.restore(parts, tf.constant(prefix), tf.constant(suffixes)))
