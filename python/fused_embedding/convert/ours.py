"""Checkpoints of ours: tensors `NAME-keys`, ... of the stock Saver, and files beside the others."""

import functools
import os
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.convert.bundle import Bundle
from fused_embedding.convert.table import ConvertError, Found, Slot, Table, check_values, order_of
from fused_embedding.ops import raw_ops
from fused_embedding.variable.content import CONTENT_NAMES

_MARK = "-slot_names"  # of CONTENT_NAMES, what no other format has
# What the names of files beside a checkpoint are saved as: fe.train.Saver, tf.train.Checkpoint.
_FILES = ("-files", "/.ATTRIBUTES/fused_embedding_files")
_FILTERED = ("filtered_keys", "filtered_frequencies", "filtered_versions")
# Content that is not in a field of a Table of its own.
_REST = (
    "initializer",
    "initializer_parameters",
    "seed",
    "initializer_matrix",
    "bloom",
    "bloom_layout",
)


def find(bundle: Bundle) -> Found:
    """The tables of a checkpoint.

    Raises:
        ConvertError: If tensors or files are missing.
    """
    tables, used = {}, set()
    for tensor in bundle.shapes:
        name = tensor.removesuffix(_MARK)
        if name != tensor:
            used |= {f"{name}-{column}" for column in CONTENT_NAMES}
            tables[name] = functools.partial(_read_tensors, bundle, name)
        for ending in _FILES:
            name = tensor.removesuffix(ending)
            if name != tensor and bundle.dtypes[tensor] == tf.string:
                used |= {tensor, f"{name}/.ATTRIBUTES/fused_embedding_part"}
                tables[name] = functools.partial(_read_files, bundle, name, tensor)
    return Found(tables, used)


def _read_tensors(bundle: Bundle, name: str) -> Table:
    return _table_of(name, {column: bundle.read(f"{name}-{column}") for column in CONTENT_NAMES})


def _table_of(name: str, content: dict[str, Any]) -> Table:
    order_of(f"{name}-keys", content["keys"])
    check_values(f"{name}-values", content["values"], len(content["keys"]))
    table = Table(
        name,
        content["keys"],
        content["values"],
        content["frequencies"],
        content["versions"],
        filtered=np.stack([content[column] for column in _FILTERED]),
        step=int(content["step"]),
        rest={column: content[column] for column in _REST if column in content},
    )
    ends = np.cumsum(content["slot_widths"])
    if content["slots"].shape != (len(table.keys), ends[-1] if ends.size else 0):
        raise ConvertError(
            f"{name}-slots has the shape {list(content['slots'].shape)}, which fits neither the "
            "keys nor the widths of the slots; the checkpoint is damaged, save it again"
        )
    starts = ends - content["slot_widths"]
    for slot, start, end, initial in zip(
        content["slot_names"], starts, ends, content["slot_initials"], strict=True
    ):
        table.slots[slot.decode()] = Slot(content["slots"][:, start:end], float(initial))
    return table


def _read_files(bundle: Bundle, name: str, tensor: str) -> Table:
    """Restores the files into a table of their own, and takes its content."""
    suffixes = bundle.read(tensor)  # [partitions], or [saves, partitions]
    paths = [bundle.prefix + suffix.decode() for suffix in suffixes.ravel()]
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        raise ConvertError(
            f"table {name!r} is in the file {missing[0]!r}, which is not there: copy all files "
            f"{bundle.prefix}.*"
        )
    try:
        summary = raw_ops.EmbeddingVariableFileSummary(path=paths[0])
        content = _content_of_files(name, np.reshape(paths, suffixes.shape), summary)
    except tf.errors.OpError as error:
        raise ConvertError(f"table {name!r}: {error.message}") from error
    table = _table_of(name, content)
    if summary.admission == b"bloom":
        table.notes.append("not carried: counters of the Bloom filter")
    return table


def _content_of_files(name: str, paths: np.ndarray, summary: Any) -> dict[str, Any]:
    dtype = tf.as_dtype(summary.dtype.numpy().decode())
    is_counted = summary.admission == b"counter"
    handle = raw_ops.EmbeddingVariableHandle(
        shared_name=f"convert/{name}",
        initializer="constant",
        dtype=dtype,
        dim=int(summary.dim),
        admission="counter" if is_counted else "all",
        min_frequency=int(summary.min_frequency) if is_counted else 0,
    )
    try:
        raw_ops.EmbeddingVariableRestore(resource=handle, paths=paths)
        exported = raw_ops.EmbeddingVariableExport(
            resource=handle,
            dtype=dtype,
            slot_dtype=tf.float64 if dtype == tf.float64 else tf.float32,
        )
    finally:
        tf.raw_ops.DestroyResourceOp(resource=handle)
    content = {column: tensor.numpy() for column, tensor in exported._asdict().items()}
    return content | {"bloom": np.zeros([1, 0], np.uint8), "bloom_layout": b""}


def tensors_of(table: Table) -> dict[str, Any]:
    """A table as tf.compat.v1.train.Saver saves an EmbeddingVariable.

    Without an initializer of its own it has the empty one: that of the variable it is restored to.
    """
    slots = table.slots
    columns = [slot.values for slot in slots.values()]
    no_slots = np.zeros([len(table.keys), 0], table.slot_dtype)
    no_initializer = {
        "initializer": b"",
        "initializer_parameters": np.zeros([2]),
        "seed": np.int64(0),
        "initializer_matrix": table.values[:0],
        "bloom": np.zeros([1, 0], np.uint8),
        "bloom_layout": b"",
    }
    content = {
        "keys": table.keys,
        "values": table.values,
        "slots": np.concatenate(columns, axis=1) if columns else no_slots,
        "frequencies": table.frequencies,
        "versions": table.versions,
        **dict(zip(_FILTERED, table.filtered, strict=True)),
        "slot_names": tf.constant(list(slots), tf.string, [len(slots)]),
        "slot_widths": np.array([column.shape[1] for column in columns], np.int64),
        "slot_initials": np.array([slot.initial for slot in slots.values()], np.float64),
        "step": np.int64(table.step),
        **(table.rest or no_initializer),
    }
    return {f"{table.name}-{column}": content[column] for column in CONTENT_NAMES}
