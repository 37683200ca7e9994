"""The raw ops of a grouped lookup, called for columns, and what the oracle says they must give."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import fused_embedding as fe
import oracle.lookup


class Column(NamedTuple):
    """One column of a group; `max_norm` and `default_id` are off when None."""

    table: int
    ids: Any
    row_ids: Any
    num_rows: int
    weights: Any = None
    combiner: str = "mean"
    max_norm: float | None = None
    default_id: int | None = None
    id_dtype: Any = np.int64

    def oracle_args(self, tables):
        """What the oracle's safe lookups take."""
        weights = None if self.weights is None else np.array(self.weights, np.float64)
        table = np.asarray(tables[self.table]).astype(np.float64)
        return table, self.ids, self.row_ids, self.num_rows, weights

    def oracle_options(self):
        """Their options."""
        default_id = -1 if self.default_id is None else self.default_id
        options = {"combiner": self.combiner, "max_norm": self.max_norm}
        return options | {"default_id": default_id}

    def op_options(self):
        """Attributes of the ops."""
        max_norm = -1.0 if self.max_norm is None else self.max_norm
        return self.oracle_options() | {"max_norm": max_norm}


def arguments(columns, weight_dtype=tf.float64):
    """Inputs and attributes that all ops of a group take, but for the tables."""
    weighted = [c for c, column in enumerate(columns) if column.weights is not None]
    return {
        "sp_values": [np.array(c.ids, c.id_dtype) for c in columns],
        "sp_indices": [oracle.lookup.as_indices(list(c.row_ids)) for c in columns],
        "sp_dense_shapes": [np.array([c.num_rows, 9], np.int64) for c in columns],
        "sp_weights": [tf.cast(columns[c].weights, weight_dtype) for c in weighted],
        "table_of_column": [c.table for c in columns],
        "weighted_columns": weighted,
        **attributes(columns),
    }


def attributes(columns):
    """The attributes with a value for each column."""
    options = [column.op_options() for column in columns]
    names = ("combiner", "max_norm", "default_id")
    return {f"{name}s": [option[name] for option in options] for name in names}


def call(name, tables, **args):
    """The op of tensors, or of variables where `tables` are."""
    if not isinstance(tables[0], tf.Variable):
        return getattr(fe.raw_ops, f"FusedEmbedding{name}")(tables=list(tables), **args)
    op = getattr(fe.raw_ops, f"FusedEmbeddingResource{name}")
    handles = [table.handle for table in tables]
    if name == "GroupLookup":
        args["dtype"] = tables[0].dtype
    return op(resources=handles, **args)


def lookup(tables, columns, concat=False, **args):
    """Forward; a list of results."""
    num_outputs = 1 if concat else len(columns)
    args = arguments(columns) | args
    return call("GroupLookup", tables, num_outputs=num_outputs, **args)


def want_combined(tables, columns):
    """What each column's result must be."""
    return [
        oracle.lookup.safe_lookup(*c.oracle_args(tables), **c.oracle_options()) for c in columns
    ]


def want_gradients(tables, columns, grads):
    """Ids of each table in order of first occurrence with their rows, and weights' gradients."""
    rows = [{} for _ in tables]
    weights_grads = []
    for column, grad in zip(columns, grads, strict=True):
        args, options = column.oracle_args(tables), column.oracle_options()
        want = oracle.lookup.safe_lookup_grad(np.asarray(grad, np.float64), *args, **options)
        for i, row in zip(want.ids, want.rows, strict=True):
            rows[column.table][int(i)] = rows[column.table].get(int(i), 0.0) + row
        if column.weights is not None:
            weights_grads.append(want.weights)
    return rows, weights_grads


def random_columns(rng, tables, num_columns):
    """Columns of every kind: one-hot, sorted and unsorted, weighted, clipped, filled."""
    return [_random_column(rng, tables) for _ in range(num_columns)]


def _random_column(rng, tables):
    table = int(rng.integers(len(tables)))
    num_ids = len(tables[table])
    num_rows = int(rng.integers(0, 8))
    kind = rng.choice(["one_hot", "sorted", "any"])
    nnz = num_rows if kind == "one_hot" else int(rng.integers(0, 14)) if num_rows else 0
    row_ids = np.arange(nnz) if kind == "one_hot" else rng.integers(0, max(num_rows, 1), nnz)
    return Column(
        table,
        rng.integers(-1 if rng.integers(2) else 0, num_ids, nnz).tolist(),
        (np.sort(row_ids) if kind == "sorted" else row_ids).tolist(),
        num_rows,
        rng.choice([-1.0, 0.0, 0.5, 2.0], nnz).tolist() if rng.random() < 0.4 else None,
        str(rng.choice(oracle.lookup.COMBINERS)),
        [None, None, 0.5, 2.0][rng.integers(4)],
        [None, None, 0][rng.integers(3)],
        [np.int32, np.int64][rng.integers(2)],
    )


def random_tables(rng):
    """One to three tables of several widths, float64."""
    dims = rng.choice([1, 3, 8, 16, 17, 32, 64, 70, 128], rng.integers(1, 4))
    return [rng.standard_normal((int(rng.integers(1, 9)), dim)) for dim in dims]


def table_lookup(resources, columns, concat=False, dtype=tf.float64, insert=True, step=-1, **args):
    """Forward on tables without a vocabulary; all of the op's outputs."""
    return fe.raw_ops.EmbeddingVariableGroupLookup(
        resources=resources,
        step=tf.constant(step, tf.int64),
        insert=insert,
        dtype=dtype,
        num_outputs=1 if concat else len(columns),
        **arguments(columns) | args,
    )


def is_kept(column):
    """Whether pruning leaves each id."""
    weights = [1.0] * len(column.ids) if column.weights is None else column.weights
    return [
        i >= 0 and (w > 0 or column.combiner == "sum")
        for i, w in zip(column.ids, weights, strict=True)
    ]


def has_empty_rows(column):
    """Whether pruning leaves a row without ids."""
    used = {r for r, kept in zip(column.row_ids, is_kept(column), strict=True) if kept}
    return len(used) < column.num_rows


def _fills(column):
    return column.default_id is not None and has_empty_rows(column)


class TableKeys(NamedTuple):
    """What a grouped lookup asks one table for.

    Attributes:
        keys: In the order of their first occurrence.
        counts: Key -> occurrences.
    """

    keys: list[int]
    counts: dict[int, int]


def want_keys(columns, num_tables, ids_are_rows=False):
    """Of each table. Default ids that fill rows are keys, and no occurrences.

    Where ids are rows of the tables, empty rows without a default id add row 0.
    """
    tables = [TableKeys([], {}) for _ in range(num_tables)]
    for column in columns:
        keys, counts = tables[column.table]
        for i, kept in zip(column.ids, is_kept(column), strict=True):
            if kept:
                keys.append(int(i))
                counts[int(i)] = counts.get(int(i), 0) + 1
        if _fills(column) or (ids_are_rows and has_empty_rows(column)):
            filled_id = column.default_id or 0
            keys.append(filled_id)
            counts.setdefault(filled_id, 0)
    return [TableKeys(list(dict.fromkeys(t.keys)), t.counts) for t in tables]


def found_by_table_lookup(rows, columns, weight_dtype=tf.float64):
    """What the gradient of `table_lookup` takes of it, and its other arguments."""
    args = arguments(columns, weight_dtype)
    wanted = want_keys(columns, len(rows))
    position = [{key: i for i, key in enumerate(of_table.keys)} for of_table in wanted]
    positions, defaults = [], []
    for column in columns:
        of_table = position[column.table]
        pairs = zip(column.ids, is_kept(column), strict=True)
        positions.append(np.array([of_table[i] if kept else -1 for i, kept in pairs], np.int32))
        defaults.append(of_table[column.default_id] if _fills(column) else -1)
    tables = [np.asarray(r)[w.keys] for r, w in zip(rows, wanted, strict=True)]
    default_positions = np.array(defaults, np.int32)
    return args | {
        "tables": tables,
        "sp_values": positions,
        "default_positions": default_positions,
    }
