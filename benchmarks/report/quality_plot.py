r"""Draws the newest result of benchmarks/tables/compressed_quality.py: quality by bytes.

python -m benchmarks.report.quality_plot [--folder=benchmarks/results/MACHINE] \
    [--output=docs/compressed_quality.svg]
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
from absl import app, flags

from benchmarks.harness import machine
from benchmarks.report import quality_reports, results, svg

_FOLDER = flags.DEFINE_string(
    "folder", None, "Folder of results; by default the last that measured it."
)
_OUTPUT = flags.DEFINE_string(
    "output", str(machine.ROOT / "docs/compressed_quality.svg"), "Image file."
)

STYLES = {
    "hash": ("#9a9a9a", "s"),
    "multi_hash": ("#2b6cb0", "o"),
    "adaptive": ("#c05621", "^"),
    "dynamic_dimension": ("#2f855a", "D"),
}
_METRICS = {"auc": "AUC"}


def draw(record: dict) -> plt.Figure:
    """Returns a panel for each task: its metric by the share of the full table's bytes."""
    cells = [cell for cell in record["cells"] if "budget" in cell]
    tasks = list(dict.fromkeys(cell["task"] for cell in cells))
    figure, panels = plt.subplots(1, len(tasks), figsize=(3.6 * len(tasks), 3.9), squeeze=False)
    for panel, task in zip(panels[0], tasks, strict=True):
        _draw_task(panel, [cell for cell in cells if cell["task"] == task])
        panel.set_title(task, fontsize=9)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, frameon=False, fontsize=8)
    figure.text(0.5, 0.95, results.caption([record]), ha="center", fontsize=8)
    figure.tight_layout(rect=(0, 0.07, 1, 0.95))
    return figure


def _draw_task(panel: plt.Axes, cells: list[dict]) -> None:
    metric = cells[0]["metric"]
    full = cells[0]["systems"]["full"][metric]["mean"]
    panel.axhline(full, color="black", linewidth=0.8, label="full table")
    for kind, (color, marker) in STYLES.items():
        of_kind = [cell["systems"][kind] for cell in cells if kind in cell["systems"]]
        shares = [figures["share"] for figures in of_kind]
        means = [figures[metric]["mean"] for figures in of_kind]
        errors = [figures[metric]["standard_error"] for figures in of_kind]
        label = quality_reports.KINDS[kind]
        style: dict[str, Any] = {
            "color": color,
            "marker": marker,
            "markersize": 5,
            "linewidth": 0.8,
        }
        panel.errorbar(shares, means, errors, label=label, **style)
        for share, mean, figures in zip(shares, means, of_kind, strict=True):
            if not figures["reachable"]:
                hollow: dict[str, Any] = {"markerfacecolor": "white", "markersize": 5, "zorder": 5}
                panel.plot([share], [mean], color=color, marker=marker, **hollow)
    for cell in cells:
        panel.axvline(cell["budget"], color="black", linewidth=0.4, linestyle=":")
    panel.set_xscale("log")
    panel.set_xlabel("bytes, of the full table (hollow: over the budget)", fontsize=8)
    panel.set_ylabel(_METRICS.get(metric, metric), fontsize=8)
    panel.grid(linewidth=0.3)


def main(_: list[str]) -> None:
    """Writes the image."""
    record = quality_reports.last(_FOLDER.value)
    if record is None:
        sys.exit("no result: python -m benchmarks.tables.compressed_quality")
    svg.write(_OUTPUT.value, draw, record)


if __name__ == "__main__":
    app.run(main)
