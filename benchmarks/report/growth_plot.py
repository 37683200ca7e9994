r"""Draws the newest result of benchmarks/tables/growth.py: time of a step, rows, memory by step.

python -m benchmarks.report.growth_plot [--folder=benchmarks/results/MACHINE] \
    [--output=docs/growth.svg]
"""

import matplotlib.pyplot as plt
from absl import app, flags

from benchmarks.harness import machine
from benchmarks.report import results, svg

_FOLDER = flags.DEFINE_string(
    "folder", None, "Folder of results; by default the last that measured it."
)
_OUTPUT = flags.DEFINE_string("output", str(machine.ROOT / "docs/growth.svg"), "Image file.")

_OURS, _LIMIT = "#2b6cb0", "#9a9a9a"


def draw(record: dict) -> plt.Figure:
    """Returns a panel of times over a panel of sizes."""
    series = record["series"]
    steps = [point["step"] for point in series]
    figure, (times, sizes) = plt.subplots(2, 1, figsize=(8.4, 6.0), sharex=True)
    times.plot(steps, _column(series, "median_us", 1e3), color=_OURS, label="step")
    if "limit_us" in series[0]:
        label = "plain C loop over fixed tables (forward only): the machine's own drift"
        times.plot(steps, _column(series, "limit_us", 1e3), color=_LIMIT, label=label)
    times.set_ylabel("ms, median of 100 steps")
    times.legend(frameon=False, fontsize=8)
    sizes.plot(steps, _column(series, "memory_bytes", 1e9), color=_OURS, label="tables, GB")
    sizes.plot(steps, _column(series, "resident_bytes", 1e9), color=_LIMIT, label="process, GB")
    sizes.plot(steps, _column(series, "rows", 1e7), color="black", label="rows, 10 million")
    sizes.set_xlabel("training step")
    sizes.legend(frameon=False, fontsize=8)
    for panel in (times, sizes):
        panel.set_ylim(bottom=0)
        panel.grid(linewidth=0.3)
    axes = record["axes"]
    figure.suptitle(
        f"W5, {axes['threads']} thread(s): 2 % unseen keys a step, unused rows expire after "
        f"{axes['steps_to_live']} steps",
        fontsize=10,
    )
    figure.text(0.5, 0.93, results.caption([record]), ha="center", fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    return figure


def _column(series: list[dict], name: str, unit: float) -> list[float]:
    return [point[name] / unit for point in series]


def main(_: list[str]) -> None:
    """Writes the image."""
    svg.write(_OUTPUT.value, draw, results.last_of("W5", _FOLDER.value))


if __name__ == "__main__":
    app.run(main)
