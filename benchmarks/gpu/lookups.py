"""The lookups that a machine of `benchmarks.gpu.core` can be asked for."""

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.gpu.core import Array, FeArray, Lookup, Machine, c_struct, fields, view

COMBINERS = ("sum", "mean", "sqrtn")
STRATEGIES = ("div", "mod", "mod_ev", "hash")
DTYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16))
# By their numbers in core_api.h. numpy has no bfloat16: its bits are uint16.
_STORED_DTYPES = (*DTYPES, np.dtype(np.uint16))


# The structs of core_api.h, which describes them.
FeCopied = c_struct("FeCopied", array="from_")
FeGather = c_struct("FeGather", array="table", int64="num_rows row_bytes", array_="ids")
FePruneAndFill = c_struct(
    "FePruneAndFill",
    array="ids indices weights is_row_empty",
    int64="default_id",
    double="default_weight",
    int32="prune prune_weights fill",
)
FeUnique = c_struct("FeUnique", array="ids unique_idx")
FePartition = c_struct("FePartition", array="ids shard_rows permutation", int32="strategy")


class FePairs(ctypes.Structure):
    """Pairs of rows and columns, and `used`: the arrays that it points to."""

    _fields_ = fields(
        array="rows unique_idx row_ids weights is_zero_row num_ids combined_grad",
        int64="num_unique num_rows dim",
        double="max_norm",
        int32="dtype combiner",
    )


class FeColumn(ctypes.Structure):
    """A column of a group."""

    _fields_ = fields(
        array="ids row_ids weights table combined_grad",
        int64="table_rows dim num_rows table_number default_id",
        double="max_norm",
        int32="ids_are_int32 combiner prune fill",
    )


class FeGroup(ctypes.Structure):
    """All columns."""

    _fields_ = (
        ("columns", ctypes.POINTER(FeColumn)),
        *fields(int64="num_columns num_tables", int32="dtype"),
    )


FeGroupApply = c_struct(
    "FeGroupApply",
    ("group", FeGroup),
    ("rule", ctypes.c_char_p),
    ("hyperparameters", FeArray),
    ("slots", ctypes.POINTER(FeArray)),
    int64="num_slots",
    int32="is_fused",
)
FeSparseApply = c_struct(
    "FeSparseApply",
    *((name, FeArray) for name in ("table", "slots", "indices", "grads", "hyperparameters")),
    ("rule", ctypes.c_char_p),
    int64="num_rows dim",
    int32="dtype",
)


class Step(NamedTuple):
    """What an optimizer does to the tables of a group.

    Attributes:
        rule: As the core knows it.
        hyperparameters: In the rule's order.
        slots: Of each table, in the rule's order: like the table, or a number a row.
        is_fused: Whether a GPU writes no gradient to memory.
    """

    rule: str
    hyperparameters: Sequence[float]
    slots: Sequence[Sequence[Array]]
    is_fused: bool = True


@dataclasses.dataclass
class Column:
    """One column of a group.

    Attributes:
        ids: `[nnz]` int64 or int32.
        row_ids: `[nnz]` int64, in `[0, num_rows)`.
        table: `[table_rows, dim]`.
        num_rows: Rows of the result.
        table_number: For the gradient: which columns share a table.
        combined_grad: For the gradient: `[num_rows, dim]`.
    """

    ids: Array
    row_ids: Array
    table: Array
    num_rows: int
    weights: Array | None = None
    combiner: str = "mean"
    max_norm: float = -1.0
    default_id: int = -1
    prune: bool = True
    fill: bool = True
    table_number: int = 0
    combined_grad: Array | None = None

    def struct(self) -> FeColumn:
        """The column as core_api.h has it."""
        return FeColumn(
            *(view(a) for a in (self.ids, self.row_ids, self.weights, self.table)),
            view(self.combined_grad),
            *(*self.table.shape, self.num_rows, self.table_number, self.default_id),
            *(self.max_norm, int(self.ids.dtype == np.int32), COMBINERS.index(self.combiner)),
            *(int(self.prune), int(self.fill)),
        )


def copied(source: Array) -> Lookup:
    """The bytes of `source`."""
    num_bytes = source.num_bytes
    struct = FeCopied(FeArray(source.address, num_bytes))
    return Lookup("copied", struct, (source,), ((np.dtype(np.uint8), (num_bytes,)),))


def gather(table: Array, ids: Array) -> Lookup:
    """Rows of `table` `[num_rows, dim]`: `[n, dim]` as bytes."""
    row_bytes = table.shape[1] * table.dtype.itemsize
    whole = FeArray(table.address, table.num_bytes)
    struct = FeGather(whole, table.shape[0], row_bytes, view(ids))
    return Lookup("gather", struct, (table, ids), ((np.dtype(np.uint8), (ids.size * row_bytes,)),))


def prune_and_fill(
    machine: Machine,
    pairs: tuple[Array, Array, Array | None],
    num_rows: int,
    default: tuple[int, float] = (-1, 1.0),
    rule: tuple[bool, bool, bool] = (True, False, True),
) -> tuple[Lookup, Array]:
    """ids, indices and weights; and is_row_empty `[num_rows]` bool, which the plan writes.

    Args:
        machine: Where `pairs` are.
        pairs: ids `[nnz]`, indices `[nnz, 2]`, weights `[nnz]` float32 or None.
        num_rows: Rows of the batch.
        default: Id and weight of a filled row.
        rule: prune, prune_weights, fill.
    """
    is_row_empty = machine.empty((num_rows,), np.bool_)
    arrays = (*pairs, is_row_empty)
    struct = FePruneAndFill(*map(view, arrays), *default, *map(int, rule))
    int64 = np.dtype(np.int64)
    weights = (np.dtype(np.float32), (-1,))
    return Lookup("prune_and_fill", struct, arrays, ((int64, (-1,)), (int64, (-1, 2)), weights)), (
        is_row_empty
    )


def unique(machine: Machine, ids: Array) -> Lookup:
    """unique_ids and counts; `used[1]` is unique_idx."""
    unique_idx = machine.empty(ids.shape, np.int32)
    outputs = ((np.dtype(np.int64), (-1,)), (np.dtype(np.int32), (-1,)))
    return Lookup("unique", FeUnique(view(ids), view(unique_idx)), (ids, unique_idx), outputs)


def partition(machine: Machine, ids: Array, shard_rows: np.ndarray, strategy: str) -> Lookup:
    """Local ids of each shard; `used[1]` is the permutation `[n, 2]` int32.

    `shard_rows` `[P]` int64 is host memory.
    """
    shard_rows = np.ascontiguousarray(shard_rows, np.int64)
    permutation = machine.empty((ids.size, 2), np.int32)
    on_host = FeArray(shard_rows.ctypes.data, shard_rows.size)
    struct = FePartition(view(ids), on_host, view(permutation), STRATEGIES.index(strategy))
    outputs = ((np.dtype(np.int64), (-1,)),) * shard_rows.size
    return Lookup("partition", struct, (ids, permutation, shard_rows), outputs)


def pairs(
    rows: Array,
    unique_idx: Array,
    row_ids: Array,
    num_rows: int,
    combiner: str = "mean",
    max_norm: float = -1.0,
    **optional: Array | None,
) -> FePairs:
    """The input of `post_lookup` and its gradient.

    Args:
        rows: `[num_unique, dim]`.
        unique_idx: `[num_pairs]` int32.
        row_ids: `[num_pairs]` int64.
        num_rows: Rows of the result.
        combiner: sum, mean or sqrtn.
        max_norm: Of a row; none if negative.
        **optional: weights, is_zero_row, num_ids, combined_grad.
    """
    struct = FePairs(rows=view(rows), unique_idx=view(unique_idx), row_ids=view(row_ids))
    struct.num_unique, struct.dim = rows.shape
    struct.num_rows, struct.combiner = num_rows, COMBINERS.index(combiner)
    struct.dtype = _STORED_DTYPES.index(rows.dtype)
    struct.max_norm = max_norm
    for name, array in optional.items():
        setattr(struct, name, view(array))
    struct.used = (rows, unique_idx, row_ids, *optional.values())
    return struct


def post_lookup(struct: FePairs) -> Lookup:
    """Combined `[num_rows, dim]` and num_ids `[num_rows]` int32."""
    dtype, shape = _STORED_DTYPES[struct.dtype], (struct.num_rows, struct.dim)
    outputs = ((dtype, shape), (np.dtype(np.int32), shape[:1]))
    return Lookup("post_lookup", struct, struct.used, outputs)


def post_lookup_grad(struct: FePairs) -> Lookup:
    """rows_grad `[num_unique, dim]`."""
    shape = (struct.num_unique, struct.dim)
    return Lookup("post_lookup_grad", struct, struct.used, ((_STORED_DTYPES[struct.dtype], shape),))


def group_lookup(columns: Sequence[Column]) -> Lookup:
    """Combined `[num_rows, dim]` of each column."""
    dtype = columns[0].table.dtype
    outputs = tuple((dtype, (column.num_rows, column.table.shape[1])) for column in columns)
    return Lookup("group_lookup", _group(columns), (columns,), outputs)


def table_group_lookup(columns: Sequence[Column]) -> Lookup:
    """The same in tables without a vocabulary, whose keys are the numbers of the tables' rows."""
    return group_lookup(columns)._replace(name="table_group_lookup")


def group_lookup_grad(columns: Sequence[Column]) -> Lookup:
    """unique_ids and rows_grad of each table, by their numbers."""
    dims = {column.table_number: column.table.shape[1] for column in columns}
    outputs: list[tuple[np.dtype, tuple[int, ...]]] = []
    for number in sorted(dims):
        outputs += [(np.dtype(np.int64), (-1,)), (columns[0].table.dtype, (-1, dims[number]))]
    return Lookup("group_lookup_grad", _group(columns), (columns,), tuple(outputs))


def group_lookup_apply(columns: Sequence[Column], step: Step) -> Lookup:
    """No output: the tables and slots are updated in place."""
    numbers = np.array(step.hyperparameters, np.float64)
    slots = [view(slot) for of_table in step.slots for slot in of_table]
    struct = FeGroupApply(
        *(_group(columns), step.rule.encode(), FeArray(numbers.ctypes.data, numbers.size)),
        *((FeArray * len(slots))(*slots), len(slots), int(step.is_fused)),
    )
    return Lookup("group_lookup_apply", struct, (columns, step, numbers), ())


def sparse_apply(
    table: Array, slots: Array, gradient: tuple[Array, Array], step: tuple[str, Sequence[float]]
) -> Lookup:
    """No output: the table and its slots are updated in place.

    Args:
        table: `[num_rows, dim]`.
        slots: `[num_slots, num_rows, dim]`, in the rule's order.
        gradient: Its rows `[n]` int64, and values `[n, dim]`.
        step: The rule and its hyperparameters in the rule's order.
    """
    rule, hyperparameters = step
    numbers = np.array(hyperparameters, np.float64)
    struct = FeSparseApply(
        *map(view, (table, slots, *gradient)),
        *(FeArray(numbers.ctypes.data, numbers.size), rule.encode(), *table.shape),
        _STORED_DTYPES.index(table.dtype),
    )
    return Lookup("sparse_apply", struct, (table, slots, gradient, numbers), ())


def _group(columns: Sequence[Column]) -> FeGroup:
    structs = (FeColumn * len(columns))(*(column.struct() for column in columns))
    num_tables = 1 + max(column.table_number for column in columns)
    dtype = _STORED_DTYPES.index(columns[0].table.dtype)
    return FeGroup(structs, len(columns), num_tables, dtype)
