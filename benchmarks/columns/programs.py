r"""Times the ten programs of benchmarks/programs, unedited: as they are, and accelerated.

    python -m benchmarks.columns.programs
    python -m benchmarks.columns.programs --program=monitored,functional --batch_size=4096

Systems of a program run in one process and take turns, a step at a time. `stock_default` is the
program as users run it, `stock` without Grappler's arithmetic optimization, `accelerate` under
`fe.accelerate()`, and `accelerate_lazy` under `fe.accelerate(optimizers="lazy")`, where the former
leaves the optimizer. Their losses are equal before they are timed: those of the first steps, and of
`accelerate_lazy`, whose updates are others, that of the first. A program is skipped, with a word
why, where TensorFlow has not what it needs: Estimators end with 2.15, Keras 3 begins with 2.16.
"""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks.harness import processes, stepwise, timing
from benchmarks.programs import figures
from benchmarks.report import results
from benchmarks.report.program_reports import LAZY, MODE, NAMES, OURS, STOCK

_PROGRAM = flags.DEFINE_list("program", list(NAMES), "Names from benchmarks/programs/catalogue.py.")
_THREADS = flags.DEFINE_list("threads", ["1", "2"], "Intra-op and inter-op threads.")
_BATCH = flags.DEFINE_list("batch_size", ["512", "4096"], "Rows of a batch, a multiple of 8.")
_COLUMNS = flags.DEFINE_integer("columns", 26, "Embedding columns, about.", lower_bound=1)
_ROWS = flags.DEFINE_integer("rows", 100_000, "Rows of a table.", lower_bound=8)
_DIM = flags.DEFINE_integer("dim", 16, "Values of a row.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 5, "Timed steps of a system in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

UNITS = 64  # of the hidden layer
NUM_BATCHES = 4
CHECKED_STEPS = 5
_MAX_STEPS = 10**9  # a program is ended before


class _System(NamedTuple):
    """A program that runs, and what fe.accelerate says of it."""

    program: stepwise.Stepwise
    records: dict[Any, int]


def main(_: list[str]) -> None:
    """Measures each program at each size, each in a process of its own."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    axes = {"program": _PROGRAM, "batch_size": _BATCH, "threads": _THREADS}
    values = {name: flag.value for name, flag in axes.items()}
    unknown = sorted(set(_PROGRAM.value) - set(NAMES))
    if unknown:
        raise app.UsageError(f"no such program: {unknown}; there are {NAMES}")
    if any(int(rows) % 8 for rows in _BATCH.value):
        raise app.UsageError(f"--batch_size must be multiples of 8, got {_BATCH.value}")
    processes.measure_each("columns.programs", values, measure)


def measure(name: str, of_batch: str, of_threads: str) -> None:
    """Measures one program and writes its JSON file."""
    import tensorflow as tf

    from benchmarks.programs import catalogue

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    batch_size, threads = int(of_batch), int(of_threads)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    program = catalogue.PROGRAMS[name]
    missing = program.missing()
    if missing:
        print(f"{name}: skipped: {missing}")
        return
    with tempfile.TemporaryDirectory() as folder:
        systems = dict(_systems(name, batch_size, threads, folder))
        steps = {system: running.program.step for system, running in systems.items()}
        samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value, clock=timing.cpu_and_wall)
        for running in systems.values():
            running.program.end()
    measured = figures.of_samples(samples)
    _print_table(name, measured)
    axes: dict[str, Any] = {"workload": "programs", "mode": MODE, "program": name}
    axes |= {"title": program.title, "threads": threads, "batch_size": batch_size}
    axes |= {option: flags.FLAGS[option].value for option in ("columns", "rows", "dim")}
    axes |= {"rounds": _ROUNDS.value, "block": _BLOCK.value}
    cell = {"phase": "step", "systems": measured, **figures.said(systems[OURS].records)}
    record = results.record_of("benchmarks.columns.programs", axes, [cell])
    results.write(record, f"programs-{name}-t{threads}-b{batch_size}", _OUTPUT.value)


def _systems(
    name: str, batch_size: int, threads: int, folder: str
) -> Iterator[tuple[str, _System]]:
    """Starts the systems of a program, one after the other, and compares their losses."""
    from benchmarks.harness.sessions import session_config
    from benchmarks.programs import catalogue
    from benchmarks.programs.setting import Setting, Size

    size = Size(_COLUMNS.value, _ROWS.value, _DIM.value, batch_size, UNITS)
    program = catalogue.PROGRAMS[name]
    batches = program.batches(size, NUM_BATCHES)
    setting = Setting(size, batches, _MAX_STEPS, f"{folder}/start")
    if program.first is not None:
        setting = dataclasses.replace(setting, warm_start=program.first(setting))
    want: list[Any] = []
    for system in (*STOCK, OURS, LAZY):
        config = session_config(threads, arithmetic=system != "stock")
        its = dataclasses.replace(setting, folder=f"{folder}/{system}", config=config)
        running = _start(program.run, system, its)
        losses = [running.program.first]
        losses += [running.program.step() for _ in range(CHECKED_STEPS - 1)]
        want = want or losses
        figures.check(system, losses, want)
        yield system, running
        if system == OURS and not _leaves_an_optimizer(running.records):
            return


def _start(run: Callable[[Any], Any], system: str, setting: Any) -> _System:
    """Starts a program as a system: what it builds until the end of its first step is of that."""
    import tensorflow as tf

    import fused_embedding as fe

    options: dict[str, Any] = {OURS: {}, LAZY: {"optimizers": "lazy"}}
    how = fe.accelerate(**options[system]) if system in options else contextlib.nullcontext()

    def begin(after_step: Callable[[Any], None]) -> None:
        # Of functions; a thread keeps its own from the first function that it calls.
        arithmetic = {"arithmetic_optimization": system != "stock"}
        tf.config.optimizer.set_experimental_options(arithmetic)
        run(dataclasses.replace(setting, after_step=after_step))

    with how as acceleration:
        started = stepwise.Stepwise(begin)
        return _System(started, acceleration.records if acceleration else {})


def _leaves_an_optimizer(records: dict[Any, int]) -> bool:
    return any('"lazy"' in (record.left or "") for record in records)


def _print_table(name: str, measured: dict[str, Any]) -> None:
    print(f"{name:<16} {'ms CPU':>9} {'ms wall':>9} {'faster than stock_default, stock (CPU)':>40}")
    for system, entry in measured.items():
        speedups = [entry.get("speedup_over", {}).get(other) for other in STOCK]
        words = " ".join(str(each["median"]) for each in speedups if each)
        cpu, wall = entry["median_us"] / 1e3, entry["wall"]["median_us"] / 1e3
        print(f"{system:<16} {cpu:9.2f} {wall:9.2f} {words:>40}")


if __name__ == "__main__":
    app.run(main)
