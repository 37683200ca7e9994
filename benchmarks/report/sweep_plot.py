r"""Draws the newest result of benchmarks/harness/sweep.py: ids a second by size.

python -m benchmarks.report.sweep_plot [--folder=benchmarks/results/MACHINE] \
    [--output=docs/sweep.svg]
"""

import matplotlib.pyplot as plt
from absl import app, flags

from benchmarks.harness import machine
from benchmarks.report import results, svg

_FOLDER = flags.DEFINE_string(
    "folder", None, "Folder of results; by default the last that measured it."
)
_OUTPUT = flags.DEFINE_string("output", str(machine.ROOT / "docs/sweep.svg"), "Image file.")

LABELS = {"batch_size": "batch size", "dim": "dim", "num_columns": "columns"}
LINES = {
    ("forward", "group"): ("fused, forward", "#2b6cb0", "-"),
    ("forward", "stock"): ("stock, forward", "#b04a4a", "-"),
    ("adagrad", "group_fused"): ("fused, training step with Adagrad", "#2b6cb0", "--"),
    ("adagrad", "stock"): ("stock, training step with Adagrad", "#b04a4a", "--"),
}


def draw(record: dict) -> plt.Figure:
    """Returns a panel for each size that was changed."""
    figure, panels = plt.subplots(1, len(LABELS), figsize=(4.2 * len(LABELS), 3.8), sharey=True)
    for panel, (axis, label) in zip(panels, LABELS.items(), strict=True):
        for (phase, name), (legend, color, style) in LINES.items():
            cells = [c for c in record["cells"] if (c["axis"], c["phase"]) == (axis, phase)]
            x = [cell["value"] for cell in cells]
            y = [cell["systems"][name]["million_ids_per_second"] for cell in cells]
            panel.plot(x, y, style, color=color, marker="o", markersize=3, label=legend)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xlabel(label)
        panel.grid(which="both", linewidth=0.3)
    panels[0].set_ylabel("million ids a second")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=4, fontsize=8)
    caption = f"26 columns, batch 4096, dim 16 where not changed; {results.caption([record])}"
    figure.text(0.5, 0.95, caption, ha="center", fontsize=8)
    figure.tight_layout(rect=(0, 0.08, 1, 0.95))
    return figure


def main(_: list[str]) -> None:
    """Writes the image."""
    svg.write(_OUTPUT.value, draw, results.last_of("sweep", _FOLDER.value))


if __name__ == "__main__":
    app.run(main)
