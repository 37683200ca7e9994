r"""Draws the newest results of benchmarks/input/parse_example.py: CPU time beside stock's.

python -m benchmarks.report.input_plot [--folder=benchmarks/results/MACHINE] [--threads=1] \
    [--output=docs/input.svg]
"""

import sys

import matplotlib.pyplot as plt
from absl import app, flags

from benchmarks.harness import machine
from benchmarks.report import input_reports, results, svg

_FOLDER = flags.DEFINE_string(
    "folder", None, "Folder of results; by default the last that measured it."
)
_THREADS = flags.DEFINE_integer("threads", 1, "Which results.")
_OUTPUT = flags.DEFINE_string("output", str(machine.ROOT / "docs/input.svg"), "Image file.")

# Name, label and colour, from the lowest bar to the highest.
BARS = {
    input_reports.OURS: ("fe.io.parse_example", "#2b6cb0"),
    input_reports.STOCK: ("tf.io.parse_example", "#b0b0b0"),
}
_HEIGHT = 0.38


def draw(record: dict) -> plt.Figure:
    """Returns the bars of both functions for each kind of examples."""
    cells = record["cells"][::-1]
    figure, panel = plt.subplots(figsize=(7, 1.2 + 0.42 * len(cells)))
    for i, (name, (label, colour)) in enumerate(BARS.items()):
        times = [cell["systems"][name]["median_us"] / 1e3 for cell in cells]
        places = [place + (i - 0.5) * _HEIGHT for place in range(len(cells))]
        panel.barh(places, times, _HEIGHT, label=label, color=colour)
        for place, ms in zip(places, times, strict=True):
            panel.text(ms, place, f" {ms:.2g}", va="center", fontsize=7)
    panel.set_yticks(range(len(cells)), [cell["phase"].replace("_", " ") for cell in cells])
    axes = record["axes"]
    panel.set_xlabel(f"CPU ms, {axes['batch_size']} examples, {axes['threads']} thread(s)")
    panel.legend(frameon=False, fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def main(_: list[str]) -> None:
    """Draws the newest result with this number of threads."""
    folders = [machine.ROOT / _FOLDER.value] if _FOLDER.value else results.folders()
    for folder in folders:
        for record in results.newest(folder):
            axes = record["axes"]
            if (axes.get("workload"), axes.get("threads")) == ("parse_example", _THREADS.value):
                svg.write(_OUTPUT.value, draw, record)
                return
    sys.exit(f"no result of parse_example with {_THREADS.value} threads in {folders}")


if __name__ == "__main__":
    app.run(main)
