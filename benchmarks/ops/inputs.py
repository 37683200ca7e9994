"""Inputs that several op benchmarks share."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

NUM_TABLE_ROWS = 1_000_000
INVALID_ID_SHARE = 0.05


class Pairs(NamedTuple):
    """Ids and their rows.

    Attributes:
        ids: `[nnz]` int64.
        row_ids: `[nnz]` int64, non-decreasing; every row of the batch may be missing.
    """

    ids: np.ndarray
    row_ids: np.ndarray

    def indices(self) -> tf.Tensor:
        """Returns `[nnz, 2]` int64 row and column of each id; the columns are all 0."""
        return tf.constant(np.stack([self.row_ids, np.zeros_like(self.row_ids)], axis=1))


def make_pairs(batch_size: int, ids_in_row: int, with_invalid: bool = False) -> Pairs:
    """Poisson row lengths, so about exp(-ids_in_row) of the rows are empty; Zipf ids."""
    rng = np.random.default_rng(0)
    row_ids = np.repeat(np.arange(batch_size), rng.poisson(ids_in_row, batch_size))
    ids = rng.zipf(1.2, row_ids.size) % NUM_TABLE_ROWS
    if with_invalid:
        ids[rng.random(ids.size) < INVALID_ID_SHARE] = -1
    return Pairs(ids.astype(np.int64), row_ids.astype(np.int64))


def make_rows(num_rows: int, dim: int, seed: int = 1) -> tf.Tensor:
    """Returns `[num_rows, dim]` float32."""
    return tf.random.stateless_uniform([num_rows, dim], [0, seed], -0.05, 0.05)
