"""fe.write_serving_delta: what an incremental save has changed, for servers of an export."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding._tf_private import eager_mode
from fused_embedding.checkpoint.changes import Changes, read_changes
from fused_embedding.checkpoint.object_based import VALUE
from fused_embedding.serving.applied_deltas import (
    CHANGES,
    CONTINUES,
    HAS_DENSE,
    ID,
    DeltaTable,
    TableChanges,
    dense_name,
    new_id,
)
from fused_embedding.serving.dense_values import DenseValues

_PART = "/part_"


def write_serving_delta(
    path: str | os.PathLike[str],
    export: str | os.PathLike[str],
    checkpoint: str,
    *,
    continues: str | os.PathLike[str] | None = None,
    names: Mapping[str, str] | None = None,
    dense: bool = True,
) -> None:
    """Writes what a save has changed, for servers that have loaded an export.

    A server applies it by calling the signature "apply_delta" of the export with its path. It has
    the rows that changed, and all dense variables of the export.

    Args:
        path: Prefix of the two files of the delta, `PATH.index` and `PATH.data-...`; none may be
            there.
        export: Folder that `fe.export_for_serving` wrote.
        checkpoint: Prefix of an incremental save, by `fe.train.Saver(incremental=True)` or
            `fe.train.IncrementalCheckpointManager`: the first after the export, or after the
            checkpoint of the delta that this one continues.
        continues: Path of the delta before; None: the export itself.
        names: By the name of an EmbeddingVariable in the export: its name in the checkpoint, where
            they differ, such as "model/users" of a tf.train.Checkpoint. Dense variables are found
            by name, or by where the model keeps them; else they can be given here as well.
        dense: Whether the delta has the dense variables; else they stay as they are.

    Raises:
        ValueError: If the export has no tables, the checkpoint is not of its tables and variables,
            or a delta is there already.
    """
    path, export = os.fspath(path), os.fspath(export)
    if os.path.exists(path + ".index"):
        raise ValueError(f"a delta is at {path!r} already: give a new path")
    before, tables, variables = _read_export(export)
    names = names or {}
    _check_names(names, tables, variables)
    if continues is not None:
        before = tf.train.load_checkpoint(os.fspath(continues)).get_tensor(ID)
    tensors: dict[str, Any] = {ID: new_id(), CONTINUES: before, HAS_DENSE: np.bool_(dense)}
    for i, changed in enumerate(_changes_of(tables, checkpoint, names)):
        for change, array in zip(CHANGES, changed, strict=True):
            tensors[f"{i}/{change.name}"] = array
    if dense and variables:
        values = DenseValues(checkpoint)
        for i, (name, shape, dtype) in enumerate(variables):
            tensors[dense_name(i)] = values.read(names.get(name, name), shape, dtype)
    with eager_mode():  # also where a TF1 program has a graph of its own
        tf.raw_ops.SaveV2(
            prefix=path,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=[tf.convert_to_tensor(array) for array in tensors.values()],
        )


class _Variable(NamedTuple):
    """A dense variable of an export."""

    name: str
    shape: list[int]
    dtype: tf.DType


def _read_export(export: str) -> tuple[bytes, list[DeltaTable], list[_Variable]]:
    """ID, tables and dense variables of an export."""
    reader = tf.train.load_checkpoint(os.path.join(export, "variables", "variables"))
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    if f"deltas/loaded{VALUE}" not in shapes:
        raise ValueError(
            f"{export!r} has no tables that deltas change: give the folder of "
            "fe.export_for_serving of a model that looks up in EmbeddingVariables"
        )
    names, dims, dtypes, dense_names, loaded = (
        reader.get_tensor(f"deltas/{name}{VALUE}")
        for name in ("names", "dims", "dtypes", "dense_names", "loaded")
    )
    tables = [
        DeltaTable(name.decode(), int(dim), tf.as_dtype(dtype.decode()))
        for name, dim, dtype in zip(names, dims, dtypes, strict=True)
    ]
    keys = [f"dense_variables/{i}{VALUE}" for i in range(len(dense_names))]
    variables = [
        _Variable(name.decode(), shapes[key], types[key])
        for name, key in zip(dense_names, keys, strict=True)
    ]
    return loaded, tables, variables


def _check_names(
    names: Mapping[str, str], tables: list[DeltaTable], variables: list[_Variable]
) -> None:
    known = {_variable_of(table.name) for table in tables} | {v.name for v in variables}
    if names.keys() - known:
        raise ValueError(
            f"names has {sorted(names.keys() - known)}, but the export has {sorted(known)}"
        )


def _changes_of(
    tables: list[DeltaTable], checkpoint: str, names: Mapping[str, str]
) -> list[TableChanges]:
    """Of each table."""
    parts: dict[str, list[int]] = {}  # of each variable: its tables
    for i, table in enumerate(tables):
        parts.setdefault(_variable_of(table.name), []).append(i)
    changes: dict[int, TableChanges] = {}
    for name, places in parts.items():
        places.sort(key=lambda i: _part_of(tables[i].name))
        table = tables[places[0]]
        read = list(read_changes(checkpoint, names.get(name, name), table.dim, table.dtype))
        if len(read) != len(places):
            raise ValueError(
                f"{name!r} has {len(read)} partitions in the checkpoint {checkpoint} and "
                f"{len(places)} in the export: export the model that is saved"
            )
        changes |= zip(places, map(_as_changes, read), strict=True)
    return [changes[i] for i in range(len(tables))]


def _variable_of(name: str) -> str:
    stem, part, number = name.rpartition(_PART)
    return stem if part and number.isdigit() else name


def _part_of(name: str) -> int:
    return 0 if _variable_of(name) == name else int(name.rpartition(_PART)[2])


def _as_changes(changes: Changes) -> TableChanges:
    # A key that was removed and came again is in both.
    removed = np.setdiff1d(changes.removed_keys, changes.keys)
    return TableChanges(changes.keys, changes.values, removed, np.bool_(changes.is_full))
