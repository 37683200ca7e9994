"""Fuzzes every op with malformed inputs: `PYTHONPATH=python:tests python -m fuzz --calls=1000000`.

Each call gives an error of TensorFlow's or a right answer. A worker process makes the calls, so
that a crash is reported with the input that caused it, and the rest still run.
"""

import faulthandler
import mmap
import multiprocessing
import os
import struct
import sys
import time
from collections.abc import Callable

from absl import app, flags, logging

FLAGS = flags.FLAGS
flags.DEFINE_integer("calls", 100_000, "Number of calls.", lower_bound=1)
flags.DEFINE_integer("seed", 0, "Seed; a call is a function of the seed and its index.")
flags.DEFINE_integer("first", 0, "Index of the first call: the one to repeat after a failure.")
flags.DEFINE_integer("max_failures", 5, "Number of failures after which to stop.")
flags.DEFINE_string("device", "/CPU:0", "Where ops run that have a kernel there.")
flags.DEFINE_boolean("in_hbm", False, "Whether calls are on tables in HBM: in_hbm.py.")

CALLS_PER_WORKER = 50_000  # TensorFlow keeps a kernel for each set of attributes: 0.5 GB by then
HEADER = struct.Struct("qqqq")  # index of the running call, right answers, errors, failures


def work(first: int, end: int, progress: mmap.mmap) -> None:
    """Makes calls first to end - 1, and says in `progress` which call it is at."""
    from fuzz import calls

    if FLAGS.in_hbm:
        from fuzz import in_hbm

        in_hbm.begin()
    faulthandler.disable()  # absl's dump says nothing that the input does not
    _, num_right, num_errors, num_failures = HEADER.unpack_from(progress)
    for index in range(first, end):
        HEADER.pack_into(progress, 0, index, num_right, num_errors, num_failures)
        outcome = calls.run(FLAGS.seed, index, FLAGS.device)
        num_right += outcome == calls.RIGHT
        num_errors += outcome == calls.ERROR
        if outcome not in (calls.RIGHT, calls.ERROR):
            num_failures += 1
            print(
                f"call {index} of seed {FLAGS.seed}: {outcome}\n{calls.describe(FLAGS.seed, index)}"
            )
            if num_failures >= FLAGS.max_failures:
                break
    # The index says that this worker ended by itself.
    HEADER.pack_into(progress, 0, end, num_right, num_errors, num_failures)


def run_in_fork(function: Callable, *arguments: object) -> int | None:
    """Calls a function in a process of its own; returns the exit code.

    A fork finds what this process has imported. No op ever runs in this process: TensorFlow's
    threads would be missing in the next fork.
    """
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def report_crash(index: int, returncode: int | None) -> None:
    """Prints the call during which a worker died; one in HBM is described when it is repeated."""
    if FLAGS.in_hbm:
        print(f"CRASH with exit code {returncode} in call {index} of seed {FLAGS.seed} in HBM")
        return
    from fuzz import calls

    print(
        f"CRASH with exit code {returncode} in call {index} of seed {FLAGS.seed}; repeat it with "
        f"--seed={FLAGS.seed} --first={index} --calls={index + 1}\n"
        f"{calls.describe(FLAGS.seed, index)}"
    )


def supervise() -> int:
    """Runs workers until all calls are made; returns the number of failures."""
    start, first, num_crashes = time.monotonic(), FLAGS.first, 0
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    progress = mmap.mmap(-1, HEADER.size)  # which the workers share
    while first < FLAGS.calls and num_crashes < FLAGS.max_failures:
        end = min(first + CALLS_PER_WORKER, FLAGS.calls)
        HEADER.pack_into(progress, 0, first, *HEADER.unpack_from(progress)[1:])
        returncode = run_in_fork(work, first, end, progress)
        first, *_, num_failures = HEADER.unpack_from(progress)
        if num_failures >= FLAGS.max_failures:
            break
        if first < end:
            run_in_fork(report_crash, first, returncode)
            num_crashes, first = num_crashes + 1, first + 1
    _, num_right, num_errors, num_failures = HEADER.unpack_from(progress)
    seconds = time.monotonic() - start
    print(
        f"{num_right + num_errors} calls with seed {FLAGS.seed} in {seconds:.0f} s: {num_right} "
        f"right answers, {num_errors} errors, {num_failures} wrong answers, {num_crashes} crashes"
    )
    return num_failures + num_crashes


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.ERROR)
    sys.exit(min(supervise(), 1))


if __name__ == "__main__":
    app.run(main)
