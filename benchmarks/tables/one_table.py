r"""Measures what columns cost: W3's 200 beside the same ids as one column of one table.

    python -m benchmarks.tables.one_table

The one column has the ids of all, moved to where their tables' rows are in one table of all. Both
read and write the same number of bytes.
"""

import os

from absl import app, flags

from benchmarks.harness import timing, workloads
from benchmarks.report import results

_WORKLOAD = flags.DEFINE_string(
    "workload", "W3", "A one-hot workload of benchmarks/harness/workloads.py."
)
_THREADS = flags.DEFINE_integer("threads", 1, "Intra-op and inter-op threads.")
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 5, "Timed steps of a system in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

SYSTEMS = {"forward": "group", "adagrad": "group_fused"}


def main(_: list[str]) -> None:
    """Measures both and writes a JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from benchmarks.harness import steps

    columns = workloads.WORKLOADS[_WORKLOAD.value]
    names = list(SYSTEMS.values())
    runners = {
        "columns": steps.SessionRunner(columns, list(SYSTEMS), names, _THREADS.value),
        "one_table": steps.SessionRunner(
            workloads.merged(columns), list(SYSTEMS), names, _THREADS.value
        ),
    }
    cells = []
    for phase, name in SYSTEMS.items():
        callables = {which: runner.step(name, phase) for which, runner in runners.items()}
        samples = timing.alternate(callables, _ROUNDS.value, _BLOCK.value)
        measured = {which: timing.summary(of_which) for which, of_which in samples.items()}
        share = timing.ratio(samples["columns"], samples["one_table"])
        measured["columns"]["of_one_table"] = share
        cells.append({"phase": phase, "systems": measured})
        print(f"{phase}: {columns.num_columns} columns take {share['median']} of one column's time")
    axes = {"workload": columns.name, "mode": "one_table", "threads": _THREADS.value}
    axes |= {"rounds": _ROUNDS.value, "block": _BLOCK.value}
    record = results.record_of("benchmarks.tables.one_table", axes, cells)
    results.write(record, f"one_table-{columns.name}-t{_THREADS.value}", _OUTPUT.value)


if __name__ == "__main__":
    app.run(main)
