"""Figures of systems of a program: losses that must be equal, times, what was replaced."""

from typing import Any

import numpy as np

from benchmarks.harness import timing
from benchmarks.report.program_reports import LAZY, OURS, STOCK


def check(system: str, losses: list[Any], want: list[Any]) -> None:
    """Raises AssertionError if losses are not stock's."""
    num = 1 if system == LAZY else len(want)
    if not np.allclose(losses[:num], want[:num], rtol=1e-5, atol=0):
        raise AssertionError(f"{system} has other losses than stock: {losses}, want {want}")


def of_samples(samples: dict[str, np.ndarray]) -> dict[str, Any]:
    """By system: CPU time, the same of the wall clock, and speedups of ours in both."""
    measured: dict[str, Any] = {}
    for system, times in samples.items():
        cpu, wall = times[..., 0], times[..., 1]
        measured[system] = timing.summary(cpu) | {"wall": timing.summary(wall)}
        if system in STOCK:
            continue
        for clock, entry in enumerate((measured[system], measured[system]["wall"])):
            entry["speedup_over"] = {
                other: timing.ratio(samples[other][..., clock], times[..., clock])
                for other in (*STOCK, OURS)
                if other != system
            }
    return measured


def said(records: dict[Any, int]) -> dict[str, Any]:
    """What fe.accelerate replaced in a program, and what it left, with the reasons."""
    left = {record.kind: record.left for record in records if record.left is not None}
    return {"replaced": [record.kind for record in records if record.left is None], "left": left}
