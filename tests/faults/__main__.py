"""Seeds faults into a checkout, one at a time, and counts those that its tests find.

    git worktree add ../seeded COMMIT && make -C ../seeded build core-tests
    ../seeded/.venv/bin/pip install pytest-cov
    PYTHONPATH=python:tests .venv/bin/python -m faults --checkout=../seeded --output=FILE.json

The checkout is restored after each fault. A fault in Python meets the tests of its room; if it
survives, those that run its line, by pytest-cov. One in C++ meets the C++ tests, then the Python
tests of the rooms that call C++ most. What survives these meets the whole suite. --first=TESTS are
run before all that. Takes an hour of two cores, and more with survivors; results are kept, each
with its commit, so that a run can be continued.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Container, Iterator
from typing import Any

from absl import app, flags

from faults import seeds

FLAGS = flags.FLAGS
flags.DEFINE_string("checkout", None, "A worktree, built, with its .venv.", required=True)
flags.DEFINE_string("output", None, "File for the results, as JSON; results in it are kept.")
flags.DEFINE_list("first", [], "Files or folders of tests that a fault meets first.")
flags.DEFINE_list("only", [], "Numbers of faults, P0 to P19 and C0 to C19; none: all.")

_PACKAGE = "python/fused_embedding"
# Folders of tests that call C++ more than others, the fastest first.
_FIRST_FOR_CPP = ("tests/core_api", "tests/ops", "tests/table", "tests/checkpoint")
# Rooms of the package whose tests are in a folder of another name.
_TESTS_OF = {
    "keras": "tests/kerases",
    "contrib": "tests/columns",
    "compat": "tests/integration",
    "demo": "tests/integration",
}
_VERDICTS = {"killed": True, "survived": False, "absent": None}
_TIMEOUT = 3600  # seconds; a test that hangs finds a fault


class Checkout:
    """A built worktree."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root.resolve()
        self._coverage = self.root / "build/faults.coverage"

    def run(self, *command: str) -> int:
        """The exit status of a command; its output goes to build/faults.log."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.root}/python:{self.root}/tests",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "COVERAGE_FILE": str(self._coverage),
        }
        with open(self.root / "build/faults.log", "ab") as log:
            try:
                return subprocess.run(
                    command,
                    cwd=self.root,
                    env=environment,
                    stdout=log,
                    stderr=log,
                    timeout=_TIMEOUT,
                ).returncode
            except subprocess.TimeoutExpired:
                return 1

    def pytest(self, *arguments: str) -> int:
        """pytest's exit status, on both cores, up to the first failure."""
        return self.run(".venv/bin/python", "-m", "pytest", "-q", "-x", "-n", "2", *arguments)

    def find(self, kind: str, fault: seeds.Fault) -> tuple[pathlib.Path, int] | None:
        """File and number of the line of a fault; None where there is not just one."""
        found = seeds.lines_of(self.root, kind, fault)
        return found[0] if len(found) == 1 else None

    def tests_of_line(self, path: pathlib.Path, line: int) -> list[str]:
        """The tests that run a line of Python; all of its file's where it runs at import."""
        import coverage

        if not self._coverage.exists():
            self.run(
                *(".venv/bin/python", "-m", "pytest", "-q", "-n", "2", f"--cov={_PACKAGE}"),
                *("--cov-context=test", "--cov-report="),
            )
        data = coverage.CoverageData(str(self._coverage))
        data.read()
        by_line = data.contexts_by_lineno(str(path))
        contexts = {c for c in by_line.get(line, []) if c}
        contexts = contexts or {c for of_line in by_line.values() for c in of_line if c}
        return sorted({context.split("|")[0].split("[")[0] for context in contexts})


@contextlib.contextmanager
def _planted(path: pathlib.Path, fault: seeds.Fault) -> Iterator[None]:
    text = path.read_text()
    path.write_text(text.replace(fault.old, fault.new))
    try:
        yield
    finally:
        path.write_text(text)


def _killed_by_python(
    checkout: Checkout, fault: seeds.Fault, path: pathlib.Path, line: int
) -> str | None:
    for tests in (*FLAGS.first, _TESTS_OF.get(fault.room, f"tests/{fault.room}")):
        if (checkout.root / tests).exists():  # an earlier commit may have other folders
            with _planted(path, fault):
                if checkout.pytest(tests):
                    return tests
    of_line = checkout.tests_of_line(path, line)  # measured while the line is as it should be
    with _planted(path, fault):
        if of_line and checkout.pytest(*of_line):
            return f"the tests that run its line ({len(of_line)})"
        return "the whole suite" if checkout.pytest() else None


def _killed_by_cpp(checkout: Checkout, path: pathlib.Path) -> str | None:
    folder = "build/core_tests"
    # Always: what tests/core_api loads may have the fault before.
    is_compiled = checkout.run(".venv/bin/cmake", "--build", folder) == 0
    if "core/" in str(path) or "c_api/" in str(path):
        # A third of the stage's time, and most faults are found by it.
        if is_compiled and checkout.run(f"{folder}/core_tests", "--gtest_brief=1"):
            return "core_tests"
        if checkout.run("tools/core_tests.sh", ".venv/bin", "2"):
            return "the compiler or cuda_emulation_tests"
    if checkout.run("tools/build.sh", ".venv/bin", "2"):
        return "the compiler"
    for folder in (*FLAGS.first, *_FIRST_FOR_CPP):
        if checkout.pytest(folder):
            return folder
    return "the whole suite" if checkout.pytest() else None


def _result_of(checkout: Checkout, kind: str, fault: seeds.Fault) -> dict[str, Any]:
    found = checkout.find(kind, fault)
    if found is None:
        return {"killed": None, "by": "its line is not in this commit"}
    path, line = found
    start = time.monotonic()
    if kind == "P":
        by = _killed_by_python(checkout, fault, path, line)
    else:
        with _planted(path, fault):
            by = _killed_by_cpp(checkout, path)
    where = f"{path.relative_to(checkout.root)}:{line}"
    seconds = round(time.monotonic() - start)
    return {"killed": by is not None, "by": by, "where": where, "seconds": seconds}


def _results_before(output: pathlib.Path | None) -> dict[str, dict]:
    """The file's content: a result for each name of a fault."""
    return json.loads(output.read_text()) if output and output.exists() else {}


def _wanted(done: Container[str]) -> Iterator[tuple[str, str, seeds.Fault]]:
    """Name, kind and fault: those of --only, or those that have no result yet."""
    for kind, (listed, *_) in seeds.KINDS.items():
        for i, fault in enumerate(listed):
            name = f"{kind}{i}"
            if name in FLAGS.only if FLAGS.only else name not in done:
                yield name, kind, fault


def main(argv: list[str]) -> None:
    """Runs the faults that have no result yet, and prints a line for each."""
    if len(argv) > 1:
        raise app.UsageError(f"no arguments beside flags, got {argv[1:]}")
    checkout = Checkout(pathlib.Path(FLAGS.checkout))
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=checkout.root, text=True)
    output = pathlib.Path(FLAGS.output) if FLAGS.output else None
    done = _results_before(output)
    for name, kind, fault in _wanted(done):
        result = {**fault._asdict(), "commit": commit.strip(), **_result_of(checkout, kind, fault)}
        done[name] = result
        print(name, fault.room, "killed by" if result["killed"] else "SURVIVED:", result["by"])
        if output:
            output.write_text(json.dumps(done, indent=1) + "\n")
    verdicts = [result["killed"] for result in done.values()]
    counts = {word: verdicts.count(v) for word, v in _VERDICTS.items()}
    print(", ".join(f"{count} {word}" for word, count in counts.items()))


if __name__ == "__main__":
    app.run(main)
