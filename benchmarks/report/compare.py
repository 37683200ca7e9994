r"""Compares two result files: which system became faster or slower from the first to the second.

    python -m benchmarks.report.compare OLD.json NEW.json

Figures are multiples of the limit loop where both files have it, since the machine's own drift is
in both parts of the quotient; microseconds otherwise. A verdict is given only when the quartile
ranges do not overlap and the medians differ by more than 5 %.
"""

import pathlib
import sys

from absl import app

from benchmarks.report import results

MIN_CHANGE = 0.05


def verdict(old: dict[str, float], new: dict[str, float]) -> str:
    """Returns "faster", "slower" or "-" for figures with median, p25 and p75."""
    change = new["median"] / old["median"] - 1.0
    if abs(change) <= MIN_CHANGE:
        return "-"
    if new["p75"] < old["p25"]:
        return "faster"
    return "slower" if new["p25"] > old["p75"] else "-"


def rows(old: dict, new: dict) -> list[tuple[str, str, str, float, float, str]]:
    """Returns cell, system, unit, both medians and the verdict for what both files hold."""
    found = []
    old_cells = {cell_name(cell): cell["systems"] for cell in old["cells"]}
    for cell in new["cells"]:
        before = old_cells.get(cell_name(cell), {})
        for system in cell["systems"].keys() & before.keys():
            pair = before[system], cell["systems"][system]
            unit = "x limit" if all("x_limit" in entry for entry in pair) else "us"
            figures = [_figures(entry, unit) for entry in pair]
            medians = [f["median"] for f in figures]
            found.append((cell_name(cell), system, unit, *medians, verdict(*figures)))
    return sorted(found)


def cell_name(cell: dict) -> str:
    """Returns the phase of a workload's cell, the shape of an op's."""
    return cell.get("phase") or str(cell["shape"])


def _figures(entry: dict, unit: str) -> dict[str, float]:
    if unit == "x limit":
        return entry["x_limit"]
    return {name: entry[f"{name}_us"] for name in ("median", "p25", "p75")}


def main(argv: list[str]) -> None:
    """Prints the comparison of the two files that are named on the command line."""
    if len(argv) != 3:
        sys.exit("usage: python -m benchmarks.report.compare OLD.json NEW.json")
    old, new = (results.load(pathlib.Path(path)) for path in argv[1:])
    axes = [
        {name: value for name, value in r["axes"].items() if name not in ("rounds", "block")}
        for r in (old, new)
    ]
    if axes[0] != axes[1]:
        sys.exit(f"the files measure different things: {axes[0]} and {axes[1]}")
    print(f"{old['commit']} -> {new['commit']}  {axes[0]}")
    for cell, system, unit, before, after, word in rows(old, new):
        print(f"{cell:12s} {system:16s} {before:10.2f} -> {after:10.2f} {unit:8s} {word}")


if __name__ == "__main__":
    app.run(main)
