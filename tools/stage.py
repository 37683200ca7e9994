"""Runs one stage of a build or test: one line of output, a log, and counts that add up.

    tools/stage.py NAME COMMAND...   runs COMMAND; its output goes to build/logs/NAME.log
    tools/stage.py --start           forgets the counts of earlier runs
    tools/stage.py --summary         prints the sum of all stages; fails if any of them did

A stage counts the tests that pytest or googletest reports in it, else itself as one. A command that
exits with 77 skips its stage; the last line that it printed is the reason.
"""

import json
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterable

LOGS = pathlib.Path(__file__).resolve().parent.parent / "build/logs"
COUNTS = LOGS / "counts.jsonl"
SKIPPED = 77  # automake's exit code for "not run here"
MAX_COMMAND = 60  # characters of it, shown when a stage fails
TAIL_LINES = 60  # of the log, shown when a stage fails

PYTEST_SUMMARY = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s.*$", re.MULTILINE)
GTEST_PASSED = re.compile(r"^\[  PASSED  \] (\d+) tests?\.", re.MULTILINE)
GTEST_SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) tests?\b", re.MULTILINE)
GTEST_FAILED = re.compile(r"^ *(\d+) FAILED TESTS?$", re.MULTILINE)
SKIP_REASON = re.compile(r"^SKIPPED \[\d+\] .*$", re.MULTILINE)


def count_tests(log: str, returncode: int) -> dict[str, int]:
    """Counts passed, failed and skipped tests in `log`; the stage is one where it names none."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
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


def run(name: str, command: list[str]) -> int:
    """Runs `command`, writes its log and prints the line of the stage."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{name}.log"
    start = time.monotonic()
    with path.open("w") as file:
        returncode = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        ).returncode
    seconds = time.monotonic() - start
    log = path.read_text(errors="replace")
    counts = count_tests(log, returncode)
    with COUNTS.open("a") as file:
        file.write(json.dumps(counts) + "\n")

    last_line = (log.strip().splitlines() or ["no output"])[-1]
    if returncode == SKIPPED:
        verdict = f"skipped: {last_line}"
    elif returncode:
        verdict = f"FAILED with exit code {returncode}: {' '.join(command)[:MAX_COMMAND]}"
    else:
        verdict = describe(counts)
    print(f"{name:<20} {seconds:6.0f} s  {verdict}", flush=True)
    for reason in dict.fromkeys(SKIP_REASON.findall(log)):
        print(f"    {reason}")
    if returncode not in (0, SKIPPED):
        print("\n".join(log.splitlines()[-TAIL_LINES:]))
        print(f"--- the last {TAIL_LINES} lines of {path}", flush=True)
    return 0 if returncode == SKIPPED else returncode


def read_counts() -> Iterable[dict[str, int]]:
    """The counts of every stage since `--start`."""
    if COUNTS.exists():
        for line in COUNTS.read_text().splitlines():
            yield json.loads(line)


def summarize() -> int:
    """Prints the sum over all stages."""
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for counts in read_counts():
        for word, number in counts.items():
            total[word] += number
    print(describe(total))
    return int(total["failed"] > 0 or total["passed"] == 0)


def main() -> int:
    """Runs a stage, or starts or sums up a run of several."""
    arguments = sys.argv[1:]
    if arguments == ["--start"]:
        COUNTS.unlink(missing_ok=True)
        return 0
    if arguments == ["--summary"]:
        return summarize()
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    return run(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
