"""Runs one stage of a build or test: one line of output, a log, and counts that add up.

    tools/stage.py NAME COMMAND...   runs COMMAND; its output goes to build/logs/NAME.log
    tools/stage.py --start           forgets the counts of earlier runs
    tools/stage.py --summary [FILE]  prints the sum of all stages; fails if any of them did.
                                     FILE gets their seconds, as JSON.

A stage counts the tests that pytest or googletest reports in it, else itself as one. A command that
exits with 77 skips its stage; the last line that it printed is the reason.

A stage's seconds are those of the clock, and those that its processes spent on CPUs. Compare the
second: they hardly depend on what else the machine does.
"""

import ctypes
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
from typing import TypedDict

LOGS = pathlib.Path(__file__).resolve().parent.parent / "build/logs"
COUNTS = LOGS / "counts.jsonl"
SKIPPED = 77  # automake's exit code for "not run here"
MAX_COMMAND = 60  # characters of it, shown when a stage fails
MAX_SECONDS_OF_ORPHANS = 2.0
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
TAIL_LINES = 60  # of the log, shown when a stage fails

PYTEST_SUMMARY = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s.*$", re.MULTILINE)
GTEST_PASSED = re.compile(r"^\[  PASSED  \] (\d+) tests?\.", re.MULTILINE)
GTEST_SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) tests?\b", re.MULTILINE)
GTEST_FAILED = re.compile(r"^ *(\d+) FAILED TESTS?$", re.MULTILINE)
WORDS = ("passed", "failed", "skipped")
SKIP_REASON = re.compile(r"^SKIPPED \[\d+\] .*$", re.MULTILINE)


class Record(TypedDict):
    """What COUNTS keeps of a stage, a line each."""

    stage: str
    seconds: float
    cpu_seconds: float
    counts: dict[str, int]


def count_tests(log: str, returncode: int) -> dict[str, int]:
    """Counts passed, failed and skipped tests in `log`; the stage is one where it names none."""
    counts = dict.fromkeys(WORDS, 0)
    for summary in PYTEST_SUMMARY.findall(log):
        for number, word in re.findall(r"(\d+) ([a-z]+)", summary):
            key = {"errors": "failed", "error": "failed", "xfailed": "skipped"}.get(word, word)
            if key in counts:
                counts[key] += int(number)
    counts["passed"] += sum(map(int, GTEST_PASSED.findall(log)))
    counts["failed"] += sum(map(int, GTEST_FAILED.findall(log)))
    counts["skipped"] += sum(map(int, GTEST_SKIPPED.findall(log)))
    if returncode == SKIPPED:
        counts["skipped"] += 1
    elif returncode and not counts["failed"]:
        counts["failed"] = 1  # it crashed, or was no test
    elif not any(counts.values()):
        counts["passed"] = 1
    return counts


def describe(counts: dict[str, int]) -> str:
    """`3 passed, 0 failed, 1 skipped`."""
    return ", ".join(f"{number} {word}" for word, number in counts.items())


def describe_seconds(seconds: float, cpu_seconds: float) -> str:
    """`   120 s    201 s CPU`."""
    return f"{seconds:6.0f} s {cpu_seconds:6.0f} s CPU"


def adopt_orphans() -> None:
    """Makes this process the parent of processes whose parents end, such as servers of tests."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> None:
    """Waits for adopted processes, so that their CPU seconds count; not for one that goes on."""
    deadline = time.monotonic() + MAX_SECONDS_OF_ORPHANS
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


def cpu_seconds_of_children() -> float:
    """What all processes that have ended under this one have spent on CPUs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(name: str, command: list[str]) -> int:
    """Runs `command`, writes its log and prints the line of the stage."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{name}.log"
    adopt_orphans()
    start, cpu_start = time.monotonic(), cpu_seconds_of_children()
    # With it each process would compile again all modules that it imports from this repository.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with path.open("w") as file:
        returncode = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        ).returncode
    reap_orphans()
    seconds, cpu_seconds = time.monotonic() - start, cpu_seconds_of_children() - cpu_start
    log = path.read_text(errors="replace")
    counts = count_tests(log, returncode)
    record: Record = {
        "stage": name,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "counts": counts,
    }
    with COUNTS.open("a") as file:
        file.write(json.dumps(record) + "\n")

    last_line = (log.strip().splitlines() or ["no output"])[-1]
    if returncode == SKIPPED:
        verdict = f"skipped: {last_line}"
    elif returncode:
        verdict = f"FAILED with exit code {returncode}: {' '.join(command)[:MAX_COMMAND]}"
    else:
        verdict = describe(counts)
    print(f"{name:<20} {describe_seconds(seconds, cpu_seconds)}  {verdict}", flush=True)
    for reason in dict.fromkeys(SKIP_REASON.findall(log)):
        print(f"    {reason}")
    if returncode not in (0, SKIPPED):
        print("\n".join(log.splitlines()[-TAIL_LINES:]))
        print(f"--- the last {TAIL_LINES} lines of {path}", flush=True)
    return 0 if returncode == SKIPPED else returncode


def read_records() -> list[Record]:
    """The stages since `--start`."""
    return [json.loads(line) for line in COUNTS.read_text().splitlines()] if COUNTS.exists() else []


def write_seconds(path: pathlib.Path, records: list[Record]) -> None:
    """Writes how long each stage took, where, and at which commit."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True)
    stages = {
        record["stage"]: {key: round(record[key], 1) for key in ("seconds", "cpu_seconds")}
        for record in records
    }
    content = {"commit": done.stdout.strip(), "num_cpus": os.cpu_count(), "stages": stages}
    path.write_text(json.dumps(content, indent=2) + "\n")


def summarize(path: pathlib.Path | None = None) -> int:
    """Prints the sum over all stages."""
    records = read_records()
    if path:
        write_seconds(path, records)
    total = {word: sum(record["counts"][word] for record in records) for word in WORDS}
    seconds = (sum(record[key] for record in records) for key in ("seconds", "cpu_seconds"))
    print(f"{'all stages':<20} {describe_seconds(*seconds)}")
    print(describe(total))
    return int(total["failed"] > 0 or total["passed"] == 0)


def main() -> int:
    """Runs a stage, or starts or sums up a run of several."""
    arguments = sys.argv[1:]
    if arguments == ["--start"]:
        COUNTS.unlink(missing_ok=True)
        return 0
    if arguments[:1] == ["--summary"] and len(arguments) <= 2:
        return summarize(*map(pathlib.Path, arguments[1:]))
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    return run(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
