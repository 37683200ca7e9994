r"""Measures on a machine that is fit to: `make bench`.

    python -m benchmarks.harness.bench [--even_if_unfit] [PROGRAM] [OPTIONS...]
    python -m benchmarks.harness.bench --workload=W1 --threads=2
    python -m benchmarks.harness.bench tables.raw_table --rounds=4

PROGRAM is a module of benchmarks, by default harness.run, and OPTIONS are its own. It is started
only if no other measurement runs on this machine (measuring_lock), and if a computation timed
against itself has quartiles within 5 % of 1 (fitness); its result keeps that spread and the load
average. With --even_if_unfit it is started whatever the spread, and its result is marked "unfit":
the pages of results leave it out.
"""

import os
import sys
from collections.abc import Callable

from benchmarks.harness import fitness, machine, measuring_lock, timing

EVEN_IF_UNFIT = "--even_if_unfit"
DEFAULT_PROGRAM = "harness.run"


def command(arguments: list[str]) -> list[str]:
    """Returns the command that measures.

    >>> command(["tables.growth", "--steps=100"])[1:]
    ['-m', 'benchmarks.tables.growth', '--steps=100']
    >>> command(["--workload=W1"])[1:]
    ['-m', 'benchmarks.harness.run', '--workload=W1']
    """
    options = [argument for argument in arguments if argument != EVEN_IF_UNFIT]
    is_named = bool(options) and not options[0].startswith("-")
    program = options.pop(0) if is_named else DEFAULT_PROGRAM
    stem = machine.ROOT / "benchmarks" / program.replace(".", "/")
    if not (stem.with_suffix(".py").exists() or (stem / "__main__.py").exists()):
        sys.exit(f"no such program: {program}; name a module of benchmarks, such as tables.growth")
    return [sys.executable, "-m", f"benchmarks.{program}", *options]


def main(
    arguments: list[str],
    check: Callable[[], fitness.Fitness] = fitness.check,
    become: Callable[[str, list[str], dict[str, str]], object] = os.execve,
) -> None:
    """Becomes the program, with the lock, or exits and says why not."""
    program = command(arguments)
    try:
        measuring_lock.hold()
    except measuring_lock.HeldError as error:
        sys.exit(f"not measured: {error}")
    found = check()
    limit = f"{timing.MAX_SPREAD:.0%}"
    print(
        f"load average {found.load_average}, spread of a computation timed against itself "
        f"{found.spread:.1%} (limit {limit})",
        flush=True,
    )
    if found.is_unfit and EVEN_IF_UNFIT not in arguments:
        sys.exit(
            f"not measured: the spread is above {limit}, so other programs are in the way; end "
            f"them, or measure with {EVEN_IF_UNFIT}, which marks the result as unfit"
        )
    become(program[0], program, os.environ | fitness.to_environment(found))


if __name__ == "__main__":
    main(sys.argv[1:])
