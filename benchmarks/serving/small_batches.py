r"""Times lookups as a server makes them: small batches, one caller and several at once.

    python -m benchmarks.serving.small_batches
    python -m benchmarks.serving.small_batches --batch=1,16,64 --callers=1,4 --workload=W1

A call is one run of a session, from the arrays that are fed to the end of the lookup. Each batch
size has a process of its own; the systems take turns on the same tables, and their results are
compared before.
"""

import concurrent.futures
import dataclasses
import os
import subprocess
import sys
import time

import numpy as np
from absl import app, flags

from benchmarks.harness import machine, timing, workloads
from benchmarks.report import results

SYSTEMS = ("group", "v2", "plain", "stock")
WARM_UP_CALLS = 50

_WORKLOAD = flags.DEFINE_string("workload", "W1", "A name from benchmarks/harness/workloads.py.")
_BATCH = flags.DEFINE_list("batch", ["1", "16", "64"], "Rows of a call.")
_CALLERS = flags.DEFINE_list("callers", ["1", "4"], "Threads that call at once.")
_THREADS = flags.DEFINE_integer("threads", 1, "Intra-op and inter-op threads for one caller.")
_SYSTEM = flags.DEFINE_list("system", list(SYSTEMS), "Names from benchmarks/harness/systems.py.")
_ROUNDS = flags.DEFINE_integer("rounds", 12, "Rounds of alternation.", lower_bound=1)
_CALLS = flags.DEFINE_integer("calls", 500, "Calls of a caller in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")


def main(_: list[str]) -> None:
    """Measures each batch size."""
    if len(_BATCH.value) == 1:
        measure(int(_BATCH.value[0]))
        return
    others = [argument for argument in sys.argv[1:] if not argument.startswith("--batch=")]
    for batch in _BATCH.value:
        command = [sys.executable, "-m", "benchmarks.serving.small_batches"]
        command += [f"--batch={batch}", *others]
        subprocess.run(command, check=True, cwd=machine.ROOT)


def measure(batch_size: int) -> None:
    """Measures one batch size with each number of callers and writes a JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from benchmarks.harness import check, steps

    workload = workloads.WORKLOADS[_WORKLOAD.value]
    workload = dataclasses.replace(workload, batch_size=batch_size)
    runner = steps.SessionRunner(workload, ["forward"], _SYSTEM.value, _THREADS.value)
    check.assert_systems_agree(runner, _SYSTEM.value, "forward")
    calls = {name: runner.step(name, "forward") for name in _SYSTEM.value}
    cells = []
    for callers in map(int, _CALLERS.value):
        latencies, rates = _alternate(calls, callers)
        measured = {name: _figures(latencies[name], rates[name]) for name in calls}
        cells.append({"phase": "serving", "callers": callers, "systems": measured})
        for name, figures in measured.items():
            print(f"batch {batch_size}, {callers} callers, {name:6s} {figures}", flush=True)
    runner.close()
    axes = {"workload": _WORKLOAD.value, "batch_size": batch_size, "mode": "serving"}
    axes |= {"threads": _THREADS.value, "rounds": _ROUNDS.value, "calls": _CALLS.value}
    record = results.record_of("benchmarks.serving.small_batches", axes, cells)
    results.write(record, f"serving-{_WORKLOAD.value}-b{batch_size}", _OUTPUT.value)


def _alternate(
    calls: dict[str, timing.Step], callers: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Microseconds of each call, and calls a second in each round, by system."""
    latencies: dict[str, list] = {name: [] for name in calls}
    rates: dict[str, list] = {name: [] for name in calls}
    rng = np.random.default_rng(0)
    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        for _ in range(_ROUNDS.value):
            for name in rng.permutation(list(calls)):
                start = time.perf_counter()
                each = list(pool.map(_call_often, [calls[name]] * callers, range(callers)))
                seconds = time.perf_counter() - start
                latencies[name] += each
                rates[name].append(callers * (_CALLS.value + WARM_UP_CALLS) / seconds)
    return (
        {name: np.concatenate(of_system) for name, of_system in latencies.items()},
        {name: np.array(of_system) for name, of_system in rates.items()},
    )


def _call_often(call: timing.Step, first: int) -> np.ndarray:
    times = np.empty(_CALLS.value + WARM_UP_CALLS)
    for i in range(len(times)):
        start = time.perf_counter_ns()
        call(first + i)
        times[i] = (time.perf_counter_ns() - start) / 1e3
    return times[WARM_UP_CALLS:]


def _figures(latencies: np.ndarray, rates: np.ndarray) -> dict[str, float | int]:
    p50, p99 = np.percentile(latencies, [50, 99])
    return {
        "samples": latencies.size,
        "p50_us": round(float(p50), 1),
        "p99_us": round(float(p99), 1),
        "calls_per_second": round(float(np.median(rates))),
    }


if __name__ == "__main__":
    app.run(main)
