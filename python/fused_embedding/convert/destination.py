"""Writes a converted source, beside its place first: it is there whole, or not at all."""

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fused_embedding.convert import deeprec, dense, ours, recommenders_addons
from fused_embedding.convert.bundle import BundleWriter, folder_beside
from fused_embedding.convert.source import Source
from fused_embedding.convert.table import ConvertError, Table

FORMATS = ("ours", "deeprec", "dense", "recommenders_addons")
Progress = Callable[[str], None]


def write(
    source: Source, path: str, to: str, num_rows: Mapping[str, int], progress: Progress
) -> list[str]:
    """Converts a source.

    Args:
        source: What is converted.
        path: Prefix of the checkpoint to write; a folder for recommenders_addons.
        to: One of FORMATS.
        num_rows: Rows of the variables that tables become, for dense; "" stands for all.
        progress: Called with a name when it is done.

    Returns:
        A line for each thing that was carried, assumed or not carried.

    Raises:
        ConvertError: If the destination exists, or cannot hold the tables.
    """
    is_folder = to == "recommenders_addons"
    made = path if is_folder else f"{path}.index"
    if os.path.exists(made):
        raise ConvertError(f"the destination {made!r} exists: give another name, or remove it")
    with folder_beside(path) as folder:
        if is_folder:
            return _write_folder(source, folder, path, progress)
        writer = BundleWriter(folder)
        lines: list[str] = []
        for name, read in source.tables.items():
            lines += _write_table(read(), writer, to, num_rows)
            progress(name)
        for name, read_other in source.others.items():
            writer.add({name: read_other()})
            progress(name)
        if source.others:
            lines.append(f"{len(source.others)} other tensors, as they were")
        writer.finish(path)
    _name_latest(path)
    return lines + source.notes


def _write_table(
    table: Table, writer: BundleWriter, to: str, num_rows: Mapping[str, int]
) -> Sequence[str]:
    writer.add(_tensors_of(table, to, num_rows))
    return _lines(table)


def _tensors_of(table: Table, to: str, num_rows: Mapping[str, int]) -> dict[str, Any]:
    if to == "deeprec":
        return deeprec.tensors_of(table)
    if to == "ours":
        return ours.tensors_of(table)
    rows = num_rows.get(table.name, num_rows.get("", 0))
    if not rows:
        raise ConvertError(
            f"the number of rows of {table.name!r} is not given, which a dense variable has: pass "
            f"--num_rows=ROWS, or --num_rows={table.name}=ROWS"
        )
    return dense.tensors_of(table, rows)


def _lines(table: Table) -> Sequence[str]:
    slots = f", slots {', '.join(table.slots)}" if table.slots else ""
    filtered = f", {table.filtered.shape[1]} keys not admitted" if table.filtered.size else ""
    head = f"table {table.name}: {len(table.keys)} rows of {table.dim} {table.values.dtype}"
    return [f"{head}{slots}{filtered}", *(f"  {note}" for note in table.notes)]


def _write_folder(source: Source, folder: str, path: str, progress: Progress) -> list[str]:
    lines: list[str] = []
    whole = os.path.join(folder, "whole")
    os.mkdir(whole)
    for name, read in source.tables.items():
        lines += _write_files(read(), whole)
        progress(name)
    if source.others:
        lines.append(f"not carried: {len(source.others)} other tensors; files hold tables only")
    os.replace(whole, path)
    return lines + source.notes


def _write_files(table: Table, folder: str) -> Sequence[str]:
    recommenders_addons.write(table, folder)
    return _lines(table)


def _name_latest(path: str) -> None:
    """Makes it the folder's latest checkpoint, where the folder has none."""
    folder, name = os.path.split(os.path.abspath(path))
    with (
        contextlib.suppress(FileExistsError),
        open(os.path.join(folder, "checkpoint"), "x") as file,
    ):
        # A CheckpointState, as text.
        quoted = json.dumps(name)
        file.write(f"model_checkpoint_path: {quoted}\nall_model_checkpoint_paths: {quoted}\n")
