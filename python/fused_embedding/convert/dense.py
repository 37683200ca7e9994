"""Stock variables: row number = key. Slots are variables of their own, named as stock has them."""

import difflib
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint.object_based import VALUE
from fused_embedding.convert import slots
from fused_embedding.convert.bundle import Bundle
from fused_embedding.convert.table import ConvertError, Found, Table, check_values
from fused_embedding.ops import raw_ops


def find(
    bundle: Bundle, names: Sequence[str], used_by_tables: set[str], accumulator: float, step: int
) -> Found:
    """The variables `names`, which are to become tables, with their slots.

    Args:
        bundle: The checkpoint.
        names: Of variables.
        used_by_tables: Tensors that are parts of tables, which no name can mean.
        accumulator: Initial value of the optimizers' accumulators.
        step: Version of all rows.

    Raises:
        ConvertError: If one is not there.
    """
    tables, used = {}, set()
    for name in names:
        tensor = name if name in bundle.shapes else name + VALUE
        if tensor not in bundle.shapes:
            others = candidates(bundle, used_by_tables)
            close = difflib.get_close_matches(name, others, n=1)
            meant = f" (is {close[0]!r} meant?)" if close else ""
            raise ConvertError(
                f"--tables names {name!r}, which is not in {bundle.prefix!r}{meant}; variables "
                f"with rows there are: {', '.join(others) or 'none'}"
            )
        of_table = {
            other.removeprefix(f"{name}/"): other
            for other, shape in bundle.shapes.items()
            if slots.owner_of(other, {name}) and shape == bundle.shapes[tensor]
        }
        used |= {tensor, *of_table.values()}
        tables[name] = functools.partial(
            _read, bundle, (name, tensor), of_table, (accumulator, step)
        )
    return Found(tables, used)


def candidates(bundle: Bundle, used_by_tables: set[str]) -> list[str]:
    """Names of variables that could become tables: no parts of tables, no slots of variables."""
    with_rows = {
        name.removesuffix(VALUE)
        for name, shape in bundle.shapes.items()
        if len(shape) == 2 and bundle.dtypes[name].is_floating and name not in used_by_tables
    }
    return sorted(name for name in with_rows if not slots.owner_of(name, with_rows - {name}))


def _read(
    bundle: Bundle,
    name_and_tensor: tuple[str, str],
    slot_names: dict[str, str],
    defaults: tuple[float, int],
) -> Table:
    (name, tensor), (accumulator, step) = name_and_tensor, defaults
    values = bundle.read(tensor)
    num_rows = len(values) if values.ndim else 0
    check_values(f"the variable {name!r}", values, num_rows)
    ones = np.ones(num_rows, np.int64)
    table = Table(name, np.arange(num_rows), values, ones, ones * step, step=step)
    found = {suffix: bundle.read(other) for suffix, other in slot_names.items()}
    for unknown in slots.add_slots(table, found, accumulator):
        table.notes.append(f"not carried: {slot_names[unknown]}, a slot of no known optimizer")
    table.notes.append(f"assumed: each row occurred once, last in step {step}")
    return table


def tensors_of(table: Table, num_rows: int) -> dict[str, Any]:
    """A table as stock variables of `num_rows` rows.

    Raises:
        ConvertError: If a key is no row number.
    """
    outside = table.keys[(table.keys < 0) | (table.keys >= num_rows)]
    if outside.size:
        raise ConvertError(
            f"table {table.name!r} has {outside.size} keys that are no row of {num_rows}, the "
            f"first {outside[0]}: give --num_rows above the largest key, {table.keys[-1]}, or "
            "take those rows out with erase()"
        )
    missing = np.setdiff1d(np.arange(num_rows), table.keys, assume_unique=True)
    values = np.empty([num_rows, table.dim], table.values.dtype)
    values[table.keys] = table.values
    values[missing] = _first_values(table, missing)
    tensors = {table.name: values}
    for suffix, slot in slots.slot_tensors(table).items():
        dtype = slot.values.dtype if slot.values.dtype == np.int64 else table.values.dtype
        dense = np.full([num_rows, table.dim], slot.initial, dtype)
        dense[table.keys] = slot.values
        tensors[f"{table.name}/{suffix}"] = dense
    if missing.size:
        table.notes.append(
            f"{missing.size} of {num_rows} rows have no key, the first {missing[0]}: they are "
            + ("first values" if table.rest.get("initializer") else "zeros")
        )
    if table.filtered.shape[1]:
        table.notes.append(f"not carried: counts of {table.filtered.shape[1]} keys not admitted")
    table.notes.append("not carried: frequencies and versions")
    return tensors


def _first_values(table: Table, keys: np.ndarray) -> Any:
    """What an evaluation would read for keys without a row; zeros where that is not known."""
    kind = table.rest.get("initializer", b"").decode()
    if not kind or not keys.size:
        return 0
    parameters = table.rest["initializer_parameters"]
    try:
        handle = raw_ops.EmbeddingVariableHandle(
            shared_name=f"convert/{table.name}",
            dtype=tf.as_dtype(table.values.dtype),
            dim=table.dim,
            seed=int(table.rest["seed"]),
            initializer=kind,
            initializer_a=float(parameters[0]),
            initializer_b=float(parameters[1]),
            initializer_matrix=table.rest["initializer_matrix"].tobytes(),
        )
        found = raw_ops.EmbeddingVariableLookup(
            resource=handle,
            keys=keys,
            counts=tf.zeros([0], tf.int32),
            step=tf.constant(-1, tf.int64),
            insert=False,
            dtype=tf.as_dtype(table.values.dtype),
        )
    except tf.errors.OpError as error:
        raise ConvertError(
            f"the initializer of table {table.name!r} is not usable: {error.message}; the "
            "checkpoint is damaged, save it again"
        ) from error
    tf.raw_ops.DestroyResourceOp(resource=handle)
    return found.embeddings.numpy()
