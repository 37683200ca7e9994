"""Alternating timing and its statistics."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.harness import resources

Step = Callable[[int], object]
Figures = dict[str, Any]  # of one system, as they stand in the JSON
WARM_UP_STEPS = 5
MAX_SPREAD = 0.05  # of a thing timed against itself; above it other programs were in the way


def alternate(
    steps: Mapping[str, Step],
    rounds: int,
    block: int,
    undo: Mapping[str, Step] | None = None,
    untimed: int = 1,
    clock: Callable[[], Any] | None = None,
) -> dict[str, np.ndarray]:
    """Times the steps block by block in rounds, so that drift of the machine hits all alike.

    Each block starts with a step that is not timed: it pays for the caches that the previous
    system left behind. The order is drawn anew for each round: who runs after the limit loop finds
    its tables evicted, who runs after a system with the same tables finds some rows loaded.

    Args:
        steps: What is timed, called with a number that grows.
        rounds: Rounds of alternation.
        block: Timed steps of a system in a round.
        undo: What is called after each step of a system with the step's number, untimed.
        untimed: Steps that a block starts with: more where a system works ahead in others' time.
        clock: Returns nanoseconds, or an array of those of several clocks; None: the wall clock.

    Returns:
        `[rounds, block]` float64 microseconds of each system; `[rounds, block, n]` of n clocks.
    """
    undo = undo or dict.fromkeys(steps, lambda i: None)
    for name, step in steps.items():
        for i in range(WARM_UP_STEPS):
            step(i)
            undo[name](i)
    resources.await_huge_pages()
    samples: dict[str, list[Any]] = {name: [] for name in steps}
    rng = np.random.default_rng(0)
    gc.disable()
    for r in range(rounds):
        for position, name in enumerate(rng.permutation(list(steps))):
            first = r + position * block
            for i in range(untimed):
                steps[name](first + i)
                undo[name](first + i)
            numbers = range(first + untimed, first + untimed + block)
            samples[name].append(_time_block(steps[name], undo[name], numbers, clock))
    gc.enable()
    return {name: np.array(of_system, np.float64) for name, of_system in samples.items()}


def _time_block(
    step: Step, undo: Step, numbers: range, clock: Callable[[], Any] | None
) -> list[Any]:
    now = clock or time.perf_counter_ns
    times = []
    for i in numbers:
        start = now()
        step(i)
        times.append((now() - start) / 1e3)
        undo(i)
    return times


def cpu_and_wall() -> np.ndarray:
    """Nanoseconds of the process's CPU time and of the wall clock, as `alternate` takes both."""
    return np.array([time.process_time_ns(), time.perf_counter_ns()])


def summary(samples: np.ndarray) -> Figures:
    """Returns count, median, quartiles and 95th percentile of `samples`, rounded."""
    p25, median, p75, p95 = np.percentile(samples, [25, 50, 75, 95])
    figures = {"median_us": median, "p25_us": p25, "p75_us": p75, "p95_us": p95}
    return {"samples": samples.size} | {
        name: round(float(value), 1) for name, value in figures.items()
    }


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> dict[str, float]:
    """Returns median and quartiles over the rounds of the ratio of the rounds' medians."""
    per_round = np.median(numerator, axis=1) / np.median(denominator, axis=1)
    p25, median, p75 = np.percentile(per_round, [25, 50, 75])
    return {
        name: round(float(v), 3)
        for name, v in zip(("median", "p25", "p75"), (median, p25, p75), strict=True)
    }


def spread(of_itself: dict[str, float]) -> float:
    """Returns how far the quartiles of a ratio are from 1, for a thing timed against itself.

    >>> spread({"median": 1.001, "p25": 0.99, "p75": 1.004})
    0.01
    """
    return round(max(abs(of_itself["p25"] - 1), abs(of_itself["p75"] - 1)), 3)
