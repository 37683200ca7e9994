"""Random columns for fe.nn.group_embedding_lookup_sparse, and both ways to look them up."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from checking import like, sparse

COMBINERS = ("sum", "mean", "sqrtn")


class Column(NamedTuple):
    """One column: the number of its table, its ids, and what is done with them."""

    table: int
    sp_ids: Any
    weights: Any
    combiner: str
    max_norm: float | None
    default_id: int | None


def random_case(seed, dtypes=(np.float64,)):
    """Tables and columns of every kind."""
    rng = np.random.default_rng(seed)
    tables = [
        tf.Variable(rng.standard_normal((int(rng.integers(1, 9)), dim)).astype(rng.choice(dtypes)))
        for dim in rng.choice([1, 3, 8, 17, 70], rng.integers(1, 4))
    ]
    return tables, [random_column(rng, tables) for _ in range(int(rng.integers(1, 6)))]


def random_column(rng, tables):
    table = int(rng.integers(len(tables)))
    num_rows = int(rng.integers(0, 7))
    nnz = int(rng.integers(0, 12)) if num_rows else 0
    rows = np.sort(rng.integers(0, max(num_rows, 1), nnz))
    if rng.random() < 0.3:
        nnz, rows = num_rows, np.arange(num_rows)
    ids = rng.integers(-1 if rng.integers(2) else 0, tables[table].shape[0], nnz)
    sp_ids = sparse(ids, rows, num_rows, rng.choice([np.int32, np.int64]))
    weights = None
    if rng.random() < 0.4:
        weights = tf.cast(rng.choice([-1.0, 0.0, 0.5, 2.0], nnz), tables[table].dtype)
    max_norm, default_id = [None, 0.5, 2.0][rng.integers(3)], [None, 0][rng.integers(2)]
    return Column(table, sp_ids, weights, str(rng.choice(COMBINERS)), max_norm, default_id)


def stock(tables, columns):
    return [
        tf.nn.safe_embedding_lookup_sparse(
            tables[c.table],
            c.sp_ids,
            None if c.weights is None else like(c.sp_ids, c.weights),
            combiner=c.combiner,
            max_norm=c.max_norm,
            default_id=c.default_id,
        )
        for c in columns
    ]


def grouped(tables, columns, **kwargs):
    return fe.nn.group_embedding_lookup_sparse(
        [tables[c.table] for c in columns],
        [c.sp_ids for c in columns],
        [c.combiner for c in columns],
        [None if c.weights is None else like(c.sp_ids, c.weights) for c in columns],
        max_norms=[c.max_norm for c in columns],
        default_ids=[c.default_id for c in columns],
        **kwargs,
    )
