r"""Draws the newest results of benchmarks/columns/programs.py: the speedup of each program.

python -m benchmarks.report.programs_plot [--folder=benchmarks/results/MACHINE] [--threads=1] \
    [--output=docs/programs.svg]
"""

import sys

import matplotlib.pyplot as plt
from absl import app, flags

from benchmarks.harness import machine
from benchmarks.report import program_reports, results, svg

_FOLDER = flags.DEFINE_string(
    "folder", None, "Folder of results; by default the last that measured them."
)
_THREADS = flags.DEFINE_integer("threads", 1, "Which results.")
_OUTPUT = flags.DEFINE_string("output", str(machine.ROOT / "docs/programs.svg"), "Image file.")

# Name, label and colour, from the lowest bar of a program to the highest.
BARS = {
    program_reports.LAZY: ('fe.accelerate(optimizers="lazy")', "#8fb8de"),
    program_reports.OURS: ("fe.accelerate()", "#2b6cb0"),
}
_HEIGHT = 0.36


def draw(records: list[dict]) -> plt.Figure:
    """Returns a panel for each batch size: CPU time of stock at its defaults over ours."""
    sizes = sorted({record["axes"]["batch_size"] for record in records})
    titles = list(dict.fromkeys(record["axes"]["title"] for record in records))[::-1]
    shape = (4.2 + 3.4 * len(sizes), 1.4 + 0.42 * len(titles))
    figure, panels = plt.subplots(1, len(sizes), figsize=shape, sharey=True, squeeze=False)
    for panel, size in zip(panels[0], sizes, strict=True):
        for record in records:
            if record["axes"]["batch_size"] == size:
                _draw_program(panel, titles.index(record["axes"]["title"]), record)
        panel.axvline(1, color="black", linewidth=0.8)
        panel.set_yticks(range(len(titles)), [t.replace("`", "") for t in titles], fontsize=8)
        panel.set_xlabel(f"CPU time of stock over it, batch {size}")
        panel.grid(axis="x", linewidth=0.3)
        panel.set_axisbelow(True)
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for _, color in BARS.values()]
    labels = [label for label, _ in BARS.values()]
    figure.legend(handles, labels, loc="lower center", ncols=2, frameon=False, fontsize=8)
    figure.text(0.5, 0.96, results.caption(records), ha="center", fontsize=8)
    figure.tight_layout(rect=(0, 0.06, 1, 0.95))
    return figure


def _draw_program(panel: plt.Axes, position: int, record: dict) -> None:
    [cell] = record["cells"]
    for offset, (name, (_, color)) in enumerate(BARS.items()):
        if name not in cell["systems"]:
            continue
        speedup = cell["systems"][name]["speedup_over"][program_reports.STOCK[0]]
        median = speedup["median"]
        spread = [[median - speedup["p25"]], [speedup["p75"] - median]]
        y = position + (offset - 0.5) * _HEIGHT
        panel.barh(y, median, _HEIGHT, xerr=spread, color=color, error_kw={"linewidth": 0.6})


def main(_: list[str]) -> None:
    """Writes the image."""
    records = program_reports.records_of_last_machine(_THREADS.value, _FOLDER.value)
    if not records:
        sys.exit("no results of programs: make bench ARGS=columns.programs")
    svg.write(_OUTPUT.value, draw, records)


if __name__ == "__main__":
    app.run(main)
