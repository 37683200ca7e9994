r"""Measures how throughput depends on batch size, dim and number of columns: W1, one size changed.

    python -m benchmarks.harness.sweep && python -m benchmarks.report.sweep_plot

Each point has a process of its own, in which the systems take turns on the same tables.
"""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
from absl import app, flags

from benchmarks.harness import machine, timing, workloads
from benchmarks.report import results

SIZES = {
    "batch_size": (64, 256, 1024, 4096, 16384),
    "dim": (4, 8, 16, 32, 64, 128),
    "num_columns": (1, 4, 26, 100, 300),
}
# What is timed in each phase: ours at its best, and stock.
SYSTEMS = {"forward": ("group", "stock"), "adagrad": ("group_fused", "stock")}
TABLE_ROWS = 100_000  # so that 300 tables and their slots fit

_AXIS = flags.DEFINE_list("axis", list(SIZES), "Which sizes are changed.")
_POINT = flags.DEFINE_string(
    "point", None, "Internal: AXIS=VALUE, measured alone; the last line of output is its JSON."
)
_THREADS = flags.DEFINE_integer("threads", 1, "Intra-op and inter-op threads.")
_ROUNDS = flags.DEFINE_integer("rounds", 8, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 4, "Timed steps of a system in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")


def main(_: list[str]) -> None:
    """Measures all points, or one of them."""
    if _POINT.value:
        axis, size = _POINT.value.split("=")
        print(json.dumps(measure(axis, int(size))))
        return
    cells = []
    for axis in _AXIS.value:
        for value in SIZES[axis]:
            cells += measure_in_process(axis, value)
            print(json.dumps(cells[-2:]), flush=True)
    axes = {"workload": "sweep", "threads": _THREADS.value, "mode": "sweep"}
    axes |= {"rounds": _ROUNDS.value, "block": _BLOCK.value}
    record = results.record_of("benchmarks.harness.sweep", axes, cells)
    results.write(record, f"sweep-t{_THREADS.value}", _OUTPUT.value)


def measure_in_process(axis: str, value: int) -> list[dict]:
    """Returns the cells of one point, measured by a process with the flags of this one."""
    command = [sys.executable, "-m", "benchmarks.harness.sweep", *sys.argv[1:]]
    command.append(f"--point={axis}={value}")
    done = subprocess.run(command, check=True, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def workload_at(axis: str, value: int) -> workloads.Workload:
    """Returns W1 with one size changed and small tables."""
    sizes = {"batch_size": 4096, "dim": 16, "num_columns": 26} | {axis: value}
    columns = (workloads.Column(TABLE_ROWS, sizes["dim"]),) * sizes["num_columns"]
    return dataclasses.replace(
        workloads.WORKLOADS["W1"], name="sweep", columns=columns, batch_size=sizes["batch_size"]
    )


def measure(axis: str, value: int) -> list[dict]:
    """Returns the cells of one point, a cell for each phase."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from benchmarks.harness import check, steps

    workload = workload_at(axis, value)
    names = list(dict.fromkeys(name for of_phase in SYSTEMS.values() for name in of_phase))
    runner = steps.SessionRunner(workload, list(SYSTEMS), names, _THREADS.value)
    num_ids = workload.num_columns * workload.batch_size
    cells = []
    for phase, of_phase in SYSTEMS.items():
        check.assert_systems_agree(runner, of_phase, phase)
        callables = {name: runner.step(name, phase) for name in of_phase}
        samples = timing.alternate(callables, _ROUNDS.value, _BLOCK.value)
        measured = {
            name: timing.summary(samples[name])
            | {"million_ids_per_second": round(num_ids / float(_median(samples[name])), 3)}
            for name in of_phase
        }
        ours, stock = of_phase
        measured[ours]["speedup_over"] = {stock: timing.ratio(samples[stock], samples[ours])}
        cells.append({"phase": phase, "axis": axis, "value": value, "systems": measured})
    runner.close()
    return cells


def _median(samples: np.ndarray) -> float:
    return timing.summary(samples)["median_us"]


if __name__ == "__main__":
    app.run(main)
