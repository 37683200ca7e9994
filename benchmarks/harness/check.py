"""Do the systems agree? Asked before anything is timed."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

# Sums in different orders, in the type of the tables: relative to each value, and to the largest.
RELATIVE_TOLERANCES = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}


class Runner(Protocol):
    """What benchmarks/harness/steps.py has for a session and for functions."""

    program: Any

    def values(self, name: str, phase: str) -> list:
        """Returns what the phase computes on batch 0."""

    def read_rows(self, name: str) -> list[np.ndarray]:
        """Returns the rows of a system's tables and slots that batch 0 touches."""

    def write_rows(self, name: str, rows: list[np.ndarray]) -> None:
        """Puts the rows back that `read_rows` returned."""


def assert_systems_agree(runner: Runner, names: Sequence[str], phase: str) -> None:
    """Compares what one step of each system computes on batch 0.

    Of a forward step that is the combined rows; of a gradient step also each table's gradient,
    summed by id; of a training step the rows and slots that it touched, which are put back for the
    next system.

    Raises:
        AssertionError: Two systems differ; names both and the place.
    """
    want, reference = None, names[0]
    tolerance = RELATIVE_TOLERANCES[runner.program.workload.dtype]
    # Tables of different kinds went through different batches while they were timed.
    start = runner.read_rows(reference) if phase in ("sgd", "adagrad") else []
    for name in names:
        got = _results(runner, name, phase, start)
        want = got if want is None else want
        for part in [part for part in got if part in want]:
            what = f"{phase}: {part} of {name} and {reference} differ"
            assert_close(got[part], want[part], tolerance, what)


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float, what: str) -> None:
    """Raises AssertionError where values differ by more, relative to each and to the largest."""
    expected = want.astype(np.float64)  # numpy has no bfloat16
    scale = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(
        got.astype(np.float64), expected, rtol=tolerance, atol=tolerance * scale, err_msg=what
    )


def _results(
    runner: Runner, name: str, phase: str, start: list[np.ndarray]
) -> dict[str, np.ndarray]:
    if phase in ("forward", "gradient"):
        combined, *gradients = runner.values(name, phase)
        results, batch = {"combined rows": combined}, runner.program.workload.batches()[0]
        for column, gradient in enumerate(gradients[0] if gradients else []):
            ids = batch.columns[column].touched()
            results[f"gradient of table {column}"] = _sum_by_id(gradient, ids)
        return results
    # The combined rows are left out: a plain gather may run before or after its own update.
    before = runner.read_rows(name)
    runner.write_rows(name, start[: len(before)])
    for _ in range(2):  # the second step shows what the first one left in the slots
        runner.values(name, phase)
    after = runner.read_rows(name)
    runner.write_rows(name, before)
    return {f"variable {i} after two steps": rows for i, rows in enumerate(after)}


def _sum_by_id(gradient: Any, ids: np.ndarray) -> np.ndarray:
    """Returns the gradient's rows for `ids`, which are sorted; other ids must have no gradient.

    Stock adds a zero row for id 0 when there is an empty row, so ids outside are allowed zeros.
    """
    position = np.minimum(np.searchsorted(ids, gradient.indices), len(ids) - 1)
    is_known = ids[position] == gradient.indices
    if np.any(gradient.values[~is_known]):
        raise AssertionError("a gradient row belongs to an id that was not looked up")
    total = np.zeros((len(ids), gradient.values.shape[1]), np.float64)
    np.add.at(total, position[is_known], gradient.values[is_known])
    return total
