"""Snapshots of OneEmbedding's tables: a folder with a file of numpy arrays for each table.

FOLDER/snapshots/NAME/snapshot.json     what tables there are
FOLDER/snapshots/NAME/table_0.npz       their content, checkpoint/content.py
"""

import dataclasses
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint.arrays import check_fits, read_arrays, replace_arrays
from fused_embedding.checkpoint.new_folder import new_folder

_MANIFEST = "snapshot.json"
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
    if not isinstance(name, str) or not name or name in (".", "..") or os.sep in name:
        raise ValueError(
            f"snapshot_name must be the name of a folder, without {os.sep!r}, got {name!r}"
        )
    return os.path.join(folder, "snapshots", name)


def _table(path: str, index: int) -> str:
    return os.path.join(path, f"table_{index}.npz")


def write(folder: str, name: str, manifest: Manifest, tables: Iterator[Arrays]) -> None:
    """Writes a snapshot, one table after the other.

    Args:
        folder: Of the store.
        name: Of the snapshot.
        manifest: What the tables have in common.
        tables: Arrays of each table, `keys` `[n]` and `values` `[n, dim]` among them.

    Raises:
        ValueError: For a name that is no name of a folder.
        FileExistsError: If there is a snapshot of that name.
    """
    with new_folder(_path(folder, name)) as path:
        for index, arrays in enumerate(tables):
            with open(_table(path, index), "wb") as file:
                storable: dict[str, Any] = {key: _storable(arrays[key]) for key in arrays}
                np.savez(file, **storable)
                file.flush()
                os.fsync(file.fileno())
        with open(os.path.join(path, _MANIFEST), "w") as text:
            json.dump({"format": _FORMAT, **dataclasses.asdict(manifest)}, text)


def _storable(array: np.ndarray) -> np.ndarray:
    """bfloat16 as float32, which holds it exactly: numpy has no name for it."""
    return array.astype(np.float32) if array.dtype == tf.bfloat16.as_numpy_dtype else array


def read_manifest(folder: str, name: str) -> Manifest:
    """What tables a snapshot has.

    Raises:
        FileNotFoundError: If there is none; the message lists those that are there.
        ValueError: If its file is damaged.
    """
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
        return Manifest(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path!r} is damaged or not of this version: {error}") from error


def read_table(folder: str, name: str, manifest: Manifest, index: int) -> dict[str, np.ndarray]:
    """The arrays of one table of a snapshot.

    Raises:
        ValueError: If the file is damaged or missing, or its arrays do not fit.
    """
    path = _table(_path(folder, name), index)
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


def save(folder: str, name: str, manifest: Manifest, tables: Sequence[Sequence[Any]]) -> None:
    """Writes the content of tables, each given as its partitions; see `write`."""
    write(folder, name, manifest, (read_arrays(parts) for parts in tables))


def load(folder: str, name: str, manifest: Manifest, tables: Sequence[Sequence[Any]]) -> None:
    """Replaces the content of tables, each given as its partitions, once all files were checked.

    Raises:
        FileNotFoundError: If there is no such snapshot.
        ValueError: If it is of other tables, or damaged.
    """
    found = read_manifest(folder, name)
    if found != manifest:
        raise ValueError(
            f"the snapshot {name!r} in {folder!r} is of {found}, but the tables are {manifest}; "
            "load it into tables like those that were saved"
        )
    contents = [read_table(folder, name, manifest, index) for index in range(len(tables))]
    for index, (parts, arrays) in enumerate(zip(tables, contents, strict=True)):
        check_fits(parts[0], len(arrays["keys"]), _table(_path(folder, name), index))
    for parts, arrays in zip(tables, contents, strict=True):
        dtype = parts[0].dtype.as_numpy_dtype
        for key in {"values", "initializer_matrix"} & set(arrays):
            arrays[key] = arrays[key].astype(dtype)
        replace_arrays(parts, arrays)
