"""Is the machine fit to measure? A computation on all cores, timed against itself.

Two timings of the same thing differ by what other programs do meanwhile. `check` times a gather of
rows from a table that no cache holds, as lookups do, on each core at once, alternating with itself.
"""

import concurrent.futures
import json
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.harness import timing

TABLE_ROWS, DIM = 1 << 20, 16  # 64 MB
IDS_OF_A_CORE = 1 << 17  # about 5 ms
ROUNDS, BLOCK_STEPS = 21, 5  # about two seconds
# From `make bench` to the programs that it starts, and to the processes that these start.
VARIABLE = "FUSED_EMBEDDING_FITNESS"


class Fitness(NamedTuple):
    """What was found before a measurement."""

    spread: float  # how far the quartiles of the ratio to itself are from 1
    load_average: float  # of the last minute

    @property
    def is_unfit(self) -> bool:
        """Whether two timings of the same thing differ by too much."""
        return self.spread > timing.MAX_SPREAD


def check(step: timing.Step | None = None) -> Fitness:
    """Times `step` against itself; by default a gather on all cores."""
    load_average = round(os.getloadavg()[0], 2)
    if step is not None:
        return Fitness(_spread(step), load_average)
    num_cores = len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(num_cores) as pool:
        return Fitness(_spread(_gather_on_each_core(pool, num_cores)), load_average)


def _spread(step: timing.Step) -> float:
    samples = timing.alternate({"one": step, "again": step}, ROUNDS, BLOCK_STEPS)
    return timing.spread(timing.ratio(samples["again"], samples["one"]))


def _gather_on_each_core(
    pool: concurrent.futures.ThreadPoolExecutor, num_cores: int
) -> timing.Step:
    rng = np.random.default_rng(0)
    table = np.ones((TABLE_ROWS, DIM), np.float32)
    ids = rng.integers(TABLE_ROWS, size=(num_cores, IDS_OF_A_CORE))
    rows = np.empty((num_cores, IDS_OF_A_CORE, DIM), np.float32)

    def gather(core: int) -> None:  # numpy releases the GIL meanwhile
        np.take(table, ids[core], axis=0, out=rows[core], mode="clip")

    return lambda i: list(pool.map(gather, range(num_cores)))


def to_environment(fitness: Fitness) -> dict[str, str]:
    """Returns what a program needs in its environment to record `fitness`."""
    return {VARIABLE: json.dumps(fitness._asdict())}


def of_record(environment: Mapping[str, str] = os.environ) -> dict[str, object]:
    """Returns the fields of a record: None and False if nobody checked the machine."""
    text = environment.get(VARIABLE)
    if text is None:
        return {"fitness": None, "unfit": False}
    fitness = Fitness(**json.loads(text))
    return {"fitness": fitness._asdict(), "unfit": fitness.is_unfit}
