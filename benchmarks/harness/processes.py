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
    flags = tuple(f"--{name}=" for name in axes)
    others = [argument for argument in sys.argv[1:] if not argument.startswith(flags)]
    for values in combinations:
        which = [flag + value for flag, value in zip(flags, values, strict=True)]
        command = [sys.executable, "-m", f"benchmarks.{module}", *which, *others]
        subprocess.run(command, check=True, cwd=machine.ROOT)
