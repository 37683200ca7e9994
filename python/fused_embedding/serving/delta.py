"""fe.write_serving_delta: what an incremental save has changed, for servers of an export."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint.changes import Changes
from fused_embedding.checkpoint.object_based import VALUE
from fused_embedding.ops.tf_private import eager_mode
from fused_embedding.serving.applied_deltas import (
    CONTINUES,
    HAS_DENSE,
    ID,
    DeltaTable,
    TableChanges,
    dense_name,
    id_of_delta,
    new_id,
    part_of,
    stored_as,
    stored_as_by_id,
    variable_of,
)
from fused_embedding.serving.delta_sources import Sources
from fused_embedding.serving.dense_values import DenseValues
from fused_embedding.serving.object_paths import SavedObjects
from fused_embedding.serving.stored_rows import Coding, row_of_key, row_of_variable


def write_serving_delta(
    path: str | os.PathLike[str],
    export: str | os.PathLike[str],
    checkpoint: str,
    *,
    continues: str | os.PathLike[str] | None = None,
    names: Mapping[str, str] | None = None,
    dense: bool = True,
) -> None:
    """Writes the changes of an incremental save as a delta, for servers that loaded an export.

    A server applies the delta by calling the signature "apply_delta" of the export with its path.
    The delta has the rows that changed, and all dense variables of the export.

    Args:
        path: Prefix of the two files of the delta, `PATH.index` and `PATH.data-...`, which must not
            exist.
        export: Folder that `fe.export_for_serving` wrote.
        checkpoint: Prefix of an incremental save by `fe.train.Saver(incremental=True)` or
            `fe.train.IncrementalCheckpointManager`: the first save after the export, or after the
            checkpoint of the delta that this one continues.
        continues: Path of the previous delta; None: the delta continues the export itself.
        names: Maps the name of an EmbeddingVariable or a dense variable in the export to its name
            in the checkpoint, such as "model/users" in a tf.train.Checkpoint. Needed only for those
            that are found neither by their place in the model nor by their name.
        dense: Whether the delta has the dense variables; if not, those of the server do not change.

    Raises:
        ValueError: If the export has no tables, the checkpoint does not have its tables and
            variables, `names` maps a table to another table, `continues` stores rows in other
            formats than the export, a changed row has numbers that its format does not have, or a
            delta exists at `path`.
        NotImplementedError: If requests to an export of fused ops read how often keys have
            occurred, as those of a table with `blocknums="frequency"` do.
    """
    path = os.fspath(path)
    if os.path.exists(path + ".index"):
        raise ValueError(f"a delta is at {path!r} already: give a new path")
    given = _read_export(os.fspath(export))
    _check_has_deltas(os.fspath(export), given)
    names = names or {}
    _check_names(names, given)
    before = given.id if continues is None else _id_of(os.fspath(continues), given)
    objects = SavedObjects(checkpoint)
    seeds, changes = _changes_of(given, Sources(checkpoint, objects, names))
    delta_id = id_of_delta(seeds, given.codings) if given.has_seeds else new_id()
    tensors: dict[str, Any] = {ID: delta_id, CONTINUES: before, HAS_DENSE: np.bool_(dense)}
    for i, (table, changed) in enumerate(zip(given.tables, changes, strict=True)):
        arrays = zip(table.changes, changed[: len(table.changes)], strict=True)
        tensors |= {f"{i}/{change.name}": array for change, array in arrays}
    if dense:
        tensors |= _dense_tensors(given, DenseValues(checkpoint, objects), names)
    with eager_mode():  # also where a TF1 program has a graph of its own
        tf.raw_ops.SaveV2(
            prefix=path,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=[tf.convert_to_tensor(array) for array in tensors.values()],
        )


def _id_of(delta: str, export: "_Export") -> Any:
    delta_id = tf.train.load_checkpoint(delta).get_tensor(ID)
    if stored_as_by_id(delta_id.decode()) != stored_as(export.codings):
        raise ValueError(
            f"the delta {delta!r} has rows in other formats than the export: give the export that "
            "it was written for, with the same quantize"
        )
    return delta_id


class _Variable(NamedTuple):
    """A dense variable of an export.

    Attributes:
        name: Of it, or where the model keeps it.
        shape: In the model.
        dtype: In the model.
        coding: How the export stores its rows; None: as numbers.
    """

    name: str
    shape: list[int]
    dtype: tf.DType
    coding: Coding | None = None


class _Export(NamedTuple):
    """What deltas have to know of an export.

    Attributes:
        id: Its ID.
        tables: In the order in which deltas have them.
        variables: Dense variables, as the tables.
        has_fused_ops: Whether it has the ops of this package.
    """

    id: bytes
    tables: list[DeltaTable]
    variables: list[_Variable]
    has_fused_ops: bool

    @property
    def has_seeds(self) -> bool:
        """Whether its tables have seeds and places: of an older version they have none."""
        return all(table.seed is not None for table in self.tables)

    @property
    def codings(self) -> list[Coding | None]:
        """Of its tables and dense variables."""
        return [table.coding for table in self.tables] + [v.coding for v in self.variables]


def _read_export(export: str) -> _Export:
    reader = tf.train.load_checkpoint(os.path.join(export, "variables", "variables"))
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    if f"deltas/loaded{VALUE}" not in shapes:
        raise ValueError(
            f"{export!r} has no tables that deltas change: give the folder of "
            "fe.export_for_serving of a model that looks up in EmbeddingVariables"
        )

    def read(name: str) -> Any:
        return reader.get_tensor(f"deltas/{name}{VALUE}")

    tables = [
        DeltaTable(name.decode(), int(dim), tf.as_dtype(dtype.decode()))
        for name, dim, dtype in zip(read("names"), read("dims"), read("dtypes"), strict=True)
    ]
    if f"deltas/seeds{VALUE}" in shapes:
        tables = [
            table._replace(seed=int(seed), place=place.decode())
            for table, seed, place in zip(tables, read("seeds"), read("places"), strict=True)
        ]
    variables = []
    for i, name in enumerate(read("dense_names")):
        key = f"dense_variables/{i}{VALUE}"
        variables.append(_Variable(name.decode(), shapes[key], types[key]))
    if f"deltas/formats{VALUE}" in shapes:
        tables, variables = _with_codings(tables, variables, read)
    if f"deltas/counted{VALUE}" in shapes:
        pairs = zip(tables, read("counted"), strict=True)
        tables = [table._replace(is_counted=bool(is_counted)) for table, is_counted in pairs]
    has_fused_ops = f"deltas/begun{VALUE}" not in shapes
    return _Export(read("loaded"), tables, variables, has_fused_ops)


def _with_codings(
    tables: list[DeltaTable], variables: list[_Variable], read: Callable[[str], Any]
) -> tuple[list[DeltaTable], list[_Variable]]:
    """Tables and variables with the formats in which an export stores their rows."""
    coded_tables = [
        table._replace(coding=Coding(name.decode(), table.dim, table.dtype)) if name else table
        for table, name in zip(tables, read("formats"), strict=True)
    ]
    columns = (read(name) for name in ("dense_formats", "dense_dims", "dense_dtypes"))
    coded_variables = []
    for variable, name, dim, dtype_name in zip(variables, *columns, strict=True):
        if name:
            dtype = tf.as_dtype(dtype_name.decode())
            variable = variable._replace(
                shape=[variable.shape[0], int(dim)],
                dtype=dtype,
                coding=Coding(name.decode(), int(dim), dtype),
            )
        coded_variables.append(variable)
    return coded_tables, coded_variables


def _check_names(names: Mapping[str, str], export: _Export) -> None:
    known = {variable_of(t.name) for t in export.tables} | {v.name for v in export.variables}
    if names.keys() - known:
        raise ValueError(
            f"names has {sorted(names.keys() - known)}, but the export has {sorted(known)}"
        )


def _check_has_deltas(export: str, given: _Export) -> None:
    counted = sorted({variable_of(table.name) for table in given.tables if table.is_counted})
    if counted and given.has_fused_ops:
        raise NotImplementedError(
            f"{export!r} has fused ops, and its requests read how often the keys of "
            f"{', '.join(map(repr, counted))} have occurred, which a delta for fused ops does not "
            'have: export with ops="stock", or export again in place of a delta'
        )


def _changes_of(export: _Export, sources: Sources) -> tuple[list[int], list[TableChanges]]:
    """Of each table: its seed in the checkpoint, and its changes."""
    tables = export.tables
    parts: dict[str, list[int]] = {}  # of each variable: its tables
    for i, table in enumerate(tables):
        parts.setdefault(variable_of(table.name), []).append(i)
    for places in parts.values():
        places.sort(key=lambda i: part_of(tables[i].name))
    wholes = {name: tables[places[0]]._replace(name=name) for name, places in parts.items()}
    changes: dict[int, tuple[int, TableChanges]] = {}
    for name, places in parts.items():
        read = _changes_of_parts(sources, name, wholes)
        if len(read) != len(places):
            raise ValueError(
                f"{name!r} has {len(read)} partitions in the checkpoint and {len(places)} in the "
                "export: export the model that is saved"
            )
        changes |= zip(places, read, strict=True)
    in_order = [changes[i] for i in range(len(tables))]
    return [seed for seed, _ in in_order], [changed for _, changed in in_order]


def _changes_of_parts(
    sources: Sources, name: str, tables: Mapping[str, DeltaTable]
) -> list[tuple[int, TableChanges]]:
    """Of each partition of a variable: its seed in the checkpoint, and its changes."""
    read = list(sources.read(name, tables))
    changed = [_as_changes(changes, name, tables[name].coding) for changes, _ in read]
    if tables[name].is_counted:
        counts = sources.frequencies(name, tables, [changes.keys for changes in changed])
        pairs = zip(changed, counts, strict=True)
        changed = [changes._replace(frequencies=of_keys) for changes, of_keys in pairs]
    return [(seed, changes) for (_, seed), changes in zip(read, changed, strict=True)]


def _dense_tensors(
    export: _Export, values: DenseValues, names: Mapping[str, str]
) -> dict[str, np.ndarray]:
    if export.has_seeds:
        values.check_not_swapped(names, [variable.name for variable in export.variables])
    tensors = {}
    for i, (name, shape, dtype, coding) in enumerate(export.variables):
        value = values.read(names.get(name, name), shape, dtype)
        coded = value if coding is None else coding.encode(value, name, row_of_variable)
        tensors[dense_name(i)] = coded
    return tensors


def _as_changes(changes: Changes, name: str, coding: Coding | None) -> TableChanges:
    # A key that was removed and came again is in both.
    removed = np.setdiff1d(changes.removed_keys, changes.keys)
    values = changes.values
    if coding is not None:
        values = coding.encode(values, name, row_of_key(changes.keys))
    return TableChanges(changes.keys, values, removed, np.bool_(changes.is_full))
