"""A table between two formats: its content as numpy arrays, and what was assumed on the way."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.ops.dtypes import VALUE_DTYPES

# What a counter of a row may be.
_MAX_COUNTER = 2**32 - 1


class ConvertError(ValueError):
    """A source that cannot be converted, or what a destination cannot hold."""


class Slot(NamedTuple):
    """A slot of an optimizer.

    Attributes:
        values: `[n, width]` numbers of each row.
        initial: What each number of a new row is.
    """

    values: np.ndarray
    initial: float


@dataclasses.dataclass
class Table:
    """The content of an EmbeddingVariable.

    Attributes:
        name: Its name, without a partition's suffix.
        keys: `[n]` int64, ascending.
        values: `[n, dim]`.
        frequencies: `[n]` int64 occurrences.
        versions: `[n]` int64 step of the last one.
        slots: By name, as `Adagrad/accumulator`.
        filtered: `[3, m]` int64: keys that are not admitted, ascending, occurrences and versions.
        step: The table's own step counter.
        rest: Further tensors of a checkpoint of ours, by name.
        notes: What was assumed, and what was not carried.
    """

    name: str
    keys: np.ndarray
    values: np.ndarray
    frequencies: np.ndarray
    versions: np.ndarray
    slots: dict[str, Slot] = dataclasses.field(default_factory=dict)
    filtered: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros([3, 0], np.int64))
    step: int = 0
    rest: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self.values.shape[1]

    @property
    def slot_dtype(self) -> Any:
        """Type of what optimizers keep, in a table of ours."""
        return np.float64 if self.values.dtype == np.float64 else np.float32


def checked(source: str, name: str, read: Callable[[], Table]) -> Callable[[], Table]:
    """A reader of a table that raises ConvertError for whatever a damaged source can hold.

    A bundle may have any tensor under any name, of any type and shape. What a format's reader
    takes for granted is therefore an error of the source here, in one place, and not a traceback.

    Args:
        source: Path of the source.
        name: Of the table.
        read: Reads it.

    Returns:
        Reads and checks it.
    """

    def read_and_check() -> Table:
        try:
            table = read()
            _check_content(table)
        except ConvertError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConvertError(
                f"table {name!r} of {source!r} cannot be read ({type(error).__name__}: {error}): "
                "a tensor of it has another type or shape than its format says; save the "
                "checkpoint again"
            ) from error
        return table

    return read_and_check


def _check_content(table: Table) -> None:
    """Raises ConvertError unless all columns have the rows of the keys, and types that fit."""
    rows, rest = (len(table.keys),), table.rest
    integers, numbers, strings = "iu", "iufV", "SO"  # V: bfloat16
    columns = {
        "frequencies": (table.frequencies, rows, integers),
        "versions": (table.versions, rows, integers),
        "filtered keys": (table.filtered, (3, *table.filtered.shape[1:2]), integers),
        "seed": (rest.get("seed", 0), (), integers),
        "initializer": (rest.get("initializer", b""), (), strings),
        "initializer_parameters": (rest.get("initializer_parameters", [0.0, 0.0]), (2,), numbers),
        "bloom_layout": (rest.get("bloom_layout", b""), (), strings),
    }
    for name, slot in table.slots.items():
        columns[name] = (slot.values, (*rows, *slot.values.shape[1:2]), numbers)
    for name, (values, shape, kinds) in columns.items():
        got = np.asarray(values)
        if got.shape != shape or got.dtype.kind not in kinds:
            raise ConvertError(
                f"{name!r} of table {table.name!r} is {got.dtype}{list(got.shape)}, which does not "
                f"fit {len(table.keys)} keys; the checkpoint is damaged, save it again"
            )


class Found(NamedTuple):
    """Tables of a source, which are read one at a time.

    Attributes:
        tables: By name.
        tensors: Names of the tensors that they are made of.
    """

    tables: Mapping[str, Callable[[], Table]]
    tensors: set[str]


def check_values(name: str, values: np.ndarray, num_rows: int) -> None:
    """Raises ConvertError unless `values` are `[num_rows, dim]` of a type that tables have."""
    if tf.as_dtype(values.dtype) not in VALUE_DTYPES:
        wanted = ", ".join(dtype.name for dtype in VALUE_DTYPES)
        raise ConvertError(f"{name} is {values.dtype}, but values of a table are one of {wanted}")
    if values.ndim != 2 or len(values) != num_rows or values.shape[1] == 0:
        raise ConvertError(
            f"{name} has the shape {list(values.shape)}, but there are {num_rows} keys: it must be "
            f"[{num_rows}, dim]; the checkpoint is damaged, save it again"
        )


def check_keys(name: str, keys: np.ndarray) -> None:
    """Raises ConvertError unless `keys` are a vector of integers."""
    if keys.ndim != 1 or keys.dtype not in (np.int32, np.int64):
        raise ConvertError(
            f"{name} is {keys.dtype}{list(keys.shape)}, but keys are a vector of int32 or int64; "
            "is it a table of embeddings?"
        )


def order_of(name: str, keys: np.ndarray) -> np.ndarray:
    """Positions of keys in ascending order.

    Raises:
        ConvertError: If keys are not a vector of integers, or one is there twice.
    """
    check_keys(name, keys)
    order = np.argsort(keys, kind="stable")
    ascending = keys[order]
    twice = np.flatnonzero(ascending[1:] == ascending[:-1])
    if twice.size:
        raise ConvertError(
            f"{name} has the key {ascending[twice[0]]} twice; the checkpoint is damaged, save it "
            "again"
        )
    return order


def counters(given: np.ndarray, missing: int) -> np.ndarray:
    """`[n]` frequencies or versions as a table counts them; `missing` stands for negative ones."""
    return np.minimum(np.where(given < 0, missing, given).astype(np.int64), _MAX_COUNTER)


def align(table: Table, name: str, keys: np.ndarray, slot: Slot) -> Slot:
    """A slot that was saved with keys of its own, row by row as the table's.

    Args:
        table: Gets a note where keys differ.
        name: Of the slot.
        keys: `[k]`.
        slot: Its values are `[k, width]`.

    Returns:
        Values `[n, width]`; a key that the slot has not starts anew.
    """
    order = order_of(f"keys of {name!r}", keys)
    if slot.values.ndim != 2 or len(slot.values) != len(keys):
        raise ConvertError(
            f"values of {name!r} have the shape {list(slot.values.shape)}, but there are "
            f"{len(keys)} keys; the checkpoint is damaged, save it again"
        )
    keys = keys[order].astype(np.int64)
    if np.array_equal(keys, table.keys):
        return Slot(slot.values[order], slot.initial)
    is_known = np.isin(keys, table.keys)
    values = np.full([len(table.keys), slot.values.shape[1]], slot.initial, slot.values.dtype)
    values[np.searchsorted(table.keys, keys[is_known])] = slot.values[order[is_known]]
    num_missing = len(table.keys) - int(is_known.sum())
    if num_missing:
        table.notes.append(f"slot {name}: {num_missing} rows had none and start at {slot.initial}")
    if not is_known.all():
        table.notes.append(f"slot {name}: {int((~is_known).sum())} keys without a row were dropped")
    return Slot(values, slot.initial)
