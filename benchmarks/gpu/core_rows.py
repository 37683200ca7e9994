"""What `benchmarks.gpu.core_speed` times: lookups of core on the CPU, and their arrays."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu import inputs, lookups
from benchmarks.gpu.core import Array, Lookup, Machine


@dataclasses.dataclass(frozen=True)
class Size:
    """How much a step looks up.

    Attributes:
        num_columns: Of a group; each has a table of its own.
        table_rows: Of each.
        batch_size: Rows of a batch where each row has one id.
        bags: Rows of a batch of several ids a row.
        ids_per_bag: Their mean; the lengths are from 0 to twice that.
        num_keys: Of unique, of a step on one table, and of pairs.
    """

    num_columns: int
    table_rows: int
    batch_size: int
    bags: int
    ids_per_bag: int
    num_keys: int


SIZES = {
    "full": Size(26, 4_000, 2048, 256, 8, 50_000),
    # Says whether the command works, nothing about speed.
    "tiny": Size(3, 40, 16, 5, 3, 60),
}


class Row(NamedTuple):
    """One thing that is timed.

    Attributes:
        make: Gets a machine and a size; returns the lookup, and the arrays that it changes.
        is_planned_once: Whether the run alone is timed: the plan makes tables.
    """

    make: Callable[[Machine, Size], tuple[Lookup, tuple[Array, ...]]]
    is_planned_once: bool = False


class Group(NamedTuple):
    """Columns that differ in their tables and ids alone.

    Attributes:
        is_bags: Several ids a row, some rows without; else one id a row.
        options: Of `lookups.Column`.
    """

    dim: int
    is_bags: bool = False
    dtype: type = np.float32
    is_weighted: bool = False
    is_sorted: bool = True
    options: tuple[tuple[str, Any], ...] = ()

    def columns(self, machine: Machine, size: Size) -> list[lookups.Column]:
        """On a machine."""
        rng = np.random.default_rng(0)
        tables = _values(machine, (size.num_columns * size.table_rows, self.dim), self.dtype)
        columns = []
        for t in range(size.num_columns):
            row_ids, num_rows = self._row_ids(rng, size)
            ids = inputs.half_unique(rng, len(row_ids), size.table_rows)
            of_table = (size.table_rows, self.dim)
            weights = rng.uniform(0.5, 2, len(ids)).astype(np.float32)
            column = lookups.Column(
                *(machine.upload(ids), machine.upload(row_ids)),
                tables.part(t * size.table_rows * self.dim, of_table),
                num_rows,
                weights=machine.upload(weights) if self.is_weighted else None,
                table_number=t,
                combined_grad=_values(machine, (num_rows, self.dim), self.dtype),
            )
            columns.append(dataclasses.replace(column, **dict(self.options)))
        return columns

    def _row_ids(self, rng: np.random.Generator, size: Size) -> tuple[np.ndarray, int]:
        if not self.is_bags:
            return np.arange(size.batch_size), size.batch_size
        lengths = rng.integers(0, 2 * size.ids_per_bag + 1, size.bags)
        row_ids = np.repeat(np.arange(size.bags), lengths)
        return row_ids if self.is_sorted else rng.permutation(row_ids), size.bags


def _values(machine: Machine, shape: tuple[int, int], dtype: type) -> Array:
    """Numbers between -1 and 1; as bits of bfloat16 where `dtype` is uint16."""
    if dtype is np.float32:
        return inputs.table(machine, *shape)
    values = inputs.table(machine, *shape).numpy()
    if dtype is np.float16:
        return machine.upload(values.astype(np.float16))
    return machine.upload((values.view(np.uint32) >> 16).astype(np.uint16))


def _of_group(lookup: Callable, group: Group, machine: Machine, size: Size) -> tuple:
    return lookup(group.columns(machine, size)), ()


def _pairs(combiner: str, dim: int, machine: Machine, size: Size) -> lookups.FePairs:
    rng = np.random.default_rng(0)
    num_rows = size.num_keys // size.ids_per_bag
    return lookups.pairs(
        _values(machine, (size.num_keys // 2, dim), np.float32),
        machine.upload(rng.integers(0, size.num_keys // 2, size.num_keys).astype(np.int32)),
        machine.upload(np.sort(rng.integers(0, num_rows, size.num_keys))),
        num_rows,
        combiner,
        weights=machine.upload(rng.uniform(0.5, 2, size.num_keys).astype(np.float32)),
        combined_grad=_values(machine, (num_rows, dim), np.float32),
    )


def _of_pairs(lookup: Callable, combiner: str, dim: int, machine: Machine, size: Size) -> tuple:
    return lookup(_pairs(combiner, dim, machine, size)), ()


def _unique(machine: Machine, size: Size) -> tuple:
    rng = np.random.default_rng(0)
    keys = inputs.half_unique(rng, size.num_keys, 1 << 40)
    return lookups.unique(machine, machine.upload(keys)), ()


def _sparse_apply(
    dim: int, dtype: type, has_repeats: bool, machine: Machine, size: Size
) -> tuple[Lookup, tuple[Array, ...]]:
    rng = np.random.default_rng(0)
    num_rows = size.table_rows
    table = _values(machine, (num_rows, dim), dtype)
    one = 0x3F80 if dtype is np.uint16 else 1  # in bfloat16
    slots = machine.upload(np.full((num_rows, dim), one, dtype))
    rows = rng.permutation(num_rows)
    if has_repeats:
        rows = inputs.half_unique(rng, num_rows, num_rows)
    gradient = (machine.upload(rows), _values(machine, (num_rows, dim), dtype))
    step = ("adagrad", (0.01, 1e-7, 0))
    return lookups.sparse_apply(table, slots, gradient, step), (table, slots)


def _rows_of_groups() -> dict[str, Row]:
    bfloat16 = np.uint16
    groups = {
        **{f"one id, dim {dim}": Group(dim) for dim in (4, 16, 64, 128)},
        "one id, dim 16, bfloat16": Group(16, dtype=bfloat16),
        "one id, weighted mean, dim 16": Group(16, is_weighted=True),
        **{
            f"bags, {combiner}, dim {dim}": Group(dim, True, options=(("combiner", combiner),))
            for combiner, dim in (("sum", 16), ("mean", 4), ("mean", 16), ("mean", 128))
        },
        "bags, mean, dim 32, bfloat16": Group(32, True, bfloat16),
        "bags, weighted mean, dim 16": Group(16, True, is_weighted=True),
        "bags, weighted mean, dim 128": Group(128, True, is_weighted=True),
        "bags, weighted sqrtn, dim 16, bfloat16": Group(
            16, True, bfloat16, is_weighted=True, options=(("combiner", "sqrtn"),)
        ),
        "bags, mean, dim 16, rows in any order": Group(16, True, is_sorted=False),
        "bags, mean, dim 16, max_norm": Group(16, True, options=(("max_norm", 1.0),)),
        "bags, mean, dim 16, default id": Group(16, True, options=(("default_id", 3),)),
    }
    kinds = {"forward": lookups.group_lookup, "row gradients": lookups.group_lookup_grad}
    return {
        f"{kind}: {name}": Row(functools.partial(_of_group, lookup, group))
        for kind, lookup in kinds.items()
        for name, group in groups.items()
    }


def _rows() -> dict[str, Row]:
    of_table = functools.partial(_of_group, lookups.table_group_lookup)
    rows = _rows_of_groups()
    for kind, lookup in (
        ("post_lookup", lookups.post_lookup),
        ("post_lookup_grad", lookups.post_lookup_grad),
    ):
        for combiner, dim in (("mean", 16), ("sqrtn", 64)):
            row = Row(functools.partial(_of_pairs, lookup, combiner, dim))
            rows[f"{kind}: weighted {combiner}, dim {dim}"] = row
    rows["unique"] = Row(_unique)
    for dim, dtype, has_repeats, suffix in (
        (16, np.float32, True, ""),
        (64, np.uint16, True, ", bfloat16"),
        (16, np.float32, False, ", distinct rows"),
        (16, np.float16, False, ", distinct rows, float16"),
        (64, np.float16, False, ", distinct rows, float16"),
    ):
        row = Row(functools.partial(_sparse_apply, dim, dtype, has_repeats))
        rows[f"sparse apply: adagrad, dim {dim}{suffix}"] = row
    rows["table lookup: one id, dim 16"] = Row(functools.partial(of_table, Group(16)), True)
    bags = Group(16, True, is_weighted=True)
    rows["table lookup: bags, weighted mean, dim 16"] = Row(functools.partial(of_table, bags), True)
    return rows


ROWS = _rows()
