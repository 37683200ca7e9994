"""What a step must compute, in float64 by numpy: the oracle of what shares no tables with stock.

It holds no tables: it is given the rows that a batch touches, of each column those of
`ColumnIds.touched()`, in that order.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.harness import check, workloads

Rows = list[np.ndarray]  # of each column
# Sums in other orders, in the type of the tables: relative to the largest value.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}


class Oracle:
    """A batch of a workload."""

    def __init__(self, workload: workloads.Workload, batch: workloads.Batch):
        self._columns = workload.columns
        self._ids = [ids.valid() for ids in batch.columns]
        self._factors = [
            ids.factors(column.combiner)[:, None]
            for ids, column in zip(self._ids, self._columns, strict=True)
        ]
        self._places = [np.searchsorted(ids.touched(), ids.ids) for ids in self._ids]
        self._batch_size = workload.batch_size

    def split(self, combined: np.ndarray) -> Rows:
        """Returns the columns' parts of `[batch_size, total_dim]`."""
        ends = np.cumsum([column.dim for column in self._columns])[:-1]
        return np.split(combined, ends, axis=1)

    def combined(self, rows: Rows) -> Rows:
        """Returns the combined rows of each column, `[batch_size, dim]`."""
        found = []
        for ids, factors, places, of in zip(
            self._ids, self._factors, self._places, rows, strict=True
        ):
            total = np.zeros((self._batch_size, of.shape[1]))
            np.add.at(total, ids.row_ids(), factors * of[places].astype(float))
            found.append(total)
        return found

    def gradients(self, grad: np.ndarray) -> Rows:
        """Returns the gradient of each row for `[batch_size, total_dim]` of the combined ones."""
        found = []
        for ids, factors, places, of in zip(
            self._ids, self._factors, self._places, self.split(grad), strict=True
        ):
            total = np.zeros((len(ids.touched()), of.shape[1]))
            np.add.at(total, places, factors * of[ids.row_ids()].astype(float))
            found.append(total)
        return found


def change(gradients: Rows, phase: str, steps: int, rate: float, epsilon: float) -> Rows:
    """Returns what steps of an optimizer add to rows; Adagrad's accumulators begin with 0."""
    found = []
    for gradient in gradients:
        total, squares = np.zeros_like(gradient), np.zeros_like(gradient)
        for _ in range(steps):
            squares += gradient**2
            total -= rate * gradient / (np.sqrt(squares) + epsilon if phase == "adagrad" else 1.0)
        found.append(total)
    return found


def assert_close(got: Sequence[np.ndarray], want: Rows, dtype: str, what: str) -> None:
    """Raises AssertionError, with the column, where arrays differ by more than the tolerance."""
    for column, (of, expected) in enumerate(zip(got, want, strict=True)):
        check.assert_close(of, expected, TOLERANCES[dtype], f"{what} of column {column}")
