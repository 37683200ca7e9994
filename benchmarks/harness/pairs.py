"""Measurements of which each holds ours and one other system, in a process of its own."""

import json
import pathlib
import tempfile
from collections.abc import Sequence

from benchmarks.harness import processes


def measure(module: str, others: Sequence[Sequence[str]]) -> list[dict]:
    """Returns the cells of a result that has all systems.

    Args:
        module: The program that runs, such as "harness.run", with this one's flags.
        others: Of each pair, flags instead of this process's.
    """
    found = []
    for flags in others:
        with tempfile.TemporaryDirectory() as folder:
            processes.run_with(module, [*flags, f"--output={folder}"], without=["--pairs"])
            (path,) = pathlib.Path(folder).iterdir()
            found.append(json.loads(path.read_text())["cells"])
    return merged(found)


def merged(of_pairs: Sequence[list[dict]]) -> list[dict]:
    """Returns the cells with the systems of all pairs.

    Ours is in each pair: its times are those of the first, each speedup is from its own pair.
    """
    cells: dict[str, dict] = {}
    for cell in (cell for of_pair in of_pairs for cell in of_pair):
        systems = cells.setdefault(cell["phase"], cell | {"systems": {}})["systems"]
        for name, figures in cell["systems"].items():
            kept = systems.setdefault(name, figures)
            if "speedup_over" in figures:
                kept["speedup_over"] = figures["speedup_over"] | kept["speedup_over"]
    return list(cells.values())
