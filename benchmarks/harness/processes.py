"""Measurements in processes of their own: TensorFlow fixes its thread pools once."""

import itertools
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks.harness import machine


def measure_each(
    module: str, axes: Mapping[str, Sequence[str]], measure: Callable[..., None]
) -> None:
    """Measures each combination of values: the only one here, several in a process each.

    Args:
        module: The program that runs, such as "harness.run".
        axes: Values of each of its flags that a process has one value of.
        measure: Called with a value of each flag.
    """
    combinations = list(itertools.product(*axes.values()))
    if len(combinations) == 1:
        measure(*combinations[0])
        return
    for values in combinations:
        run_with(module, [f"--{name}={value}" for name, value in zip(axes, values, strict=True)])


def run_with(module: str, flags: Sequence[str], without: Sequence[str] = ()) -> None:
    """Runs a program with the flags of this process, but for some.

    Args:
        module: The program, such as "harness.run".
        flags: Flags instead of those of the same names.
        without: Names of further flags that are left out, with their dashes.
    """
    names = {flag.split("=")[0] for flag in flags} | set(without)
    kept = [given for given in sys.argv[1:] if given.split("=")[0] not in names]
    command = [sys.executable, "-m", f"benchmarks.{module}", *flags, *kept]
    subprocess.run(command, check=True, cwd=machine.ROOT)
