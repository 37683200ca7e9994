"""Writes figures as SVG files; the same results give the same file."""

from collections.abc import Callable

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def write(path: str, draw: Callable[..., plt.Figure], *results: object) -> None:
    """Writes what `draw` makes of results to a file and prints its name."""
    plt.rcParams["svg.fonttype"] = "none"  # text stays text: smaller, and searchable
    plt.rcParams["svg.hashsalt"] = "benchmarks"
    draw(*results).savefig(path, metadata={"Date": None}, dpi=150)
    print(path)
