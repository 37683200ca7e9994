r"""Draws the newest results of one thread: time of a step by workload and phase, ours and stock.

python -m benchmarks.report.plot [--folder=benchmarks/results/MACHINE] \
    [--output=docs/performance.svg]
"""

import pathlib

import matplotlib.pyplot as plt
from absl import app, flags
from matplotlib import artist

from benchmarks.harness import machine
from benchmarks.report import results, svg

_FOLDER = flags.DEFINE_string(
    "folder", None, "Folder of results; by default the machine measured last."
)
_OUTPUT = flags.DEFINE_string("output", str(machine.ROOT / "docs/performance.svg"), "Image file.")
_THREADS = flags.DEFINE_integer("threads", 1, "Which results.")
_WORKLOAD = flags.DEFINE_list(
    "workload", ["W1", "W2", "W3", "W4"], "Which results, one panel each."
)

# Name, label and colour; the last is ours, which is another system where there is an optimizer.
BARS = {
    "stock_default": ("stock safe lookup, default", "#d9a5a5"),
    "stock": ("stock safe lookup, arithmetic optimisation off", "#b04a4a"),
    "plain": ("tf.nn.embedding_lookup (dense ids only)", "#9a9a9a"),
    "torch_embedding_bag": ("torch EmbeddingBag", "#d8b365"),
    "fbgemm_tbe": ("FBGEMM TBE", "#a6761d"),
    "v2": ("fused v2", "#8fb8de"),
    "group": ("fused, columns grouped (training: with fe.train's optimizer)", "#2b6cb0"),
}
PHASES = {
    "forward": "forward",
    "gradient": "+ gradient",
    "sgd": "+ SGD",
    "adagrad": "+ Adagrad",
}
STEPS = PHASES.keys() - {"gradient"}  # a result without one of these is not drawn
BAR_WIDTH = 0.12


def draw(records: list[dict]) -> plt.Figure:
    """Returns one row of panels, a panel for each workload."""
    figure, panels = plt.subplots(1, len(records), figsize=(4.2 * len(records), 4.0), squeeze=False)
    for panel, record in zip(panels[0], records, strict=True):
        cells = {cell["phase"]: cell["systems"] for cell in record["cells"]}
        phases = [phase for phase in PHASES if phase in cells]
        for position, phase in enumerate(phases):
            _draw_phase(panel, position, cells[phase])
        panel.set_yscale("log")
        panel.set_xticks(range(len(phases)), [PHASES[phase] for phase in phases])
        panel.set_title(record["axes"]["workload"])
        panel.grid(axis="y", which="both", linewidth=0.3)
        panel.set_axisbelow(True)
    panels[0][0].set_ylabel(f"ms per step, {records[0]['axes']['threads']} thread(s)")
    bars = [plt.Rectangle((0, 0), 1, 1, color=color) for _, color in BARS.values()]
    handles: list[artist.Artist] = [*bars, plt.Line2D([], [], color="black")]
    labels = [label for label, _ in BARS.values()] + ["limit: plain C loop, same ids"]
    figure.legend(handles, labels, loc="lower center", ncols=3, frameon=False, fontsize=8)
    figure.text(0.5, 0.955, results.caption(records), ha="center", fontsize=8)
    figure.tight_layout(rect=(0, 0.13, 1, 0.95))
    return figure


def _draw_phase(panel: plt.Axes, position: int, systems: dict) -> None:
    for offset, (name, (_, color)) in enumerate(BARS.items()):
        entry = systems.get(f"{name}_fused" if name == "group" else name, systems.get(name))
        if entry is None:
            continue
        x = position + (offset - len(BARS) / 2 + 0.5) * BAR_WIDTH
        median = entry["median_us"] / 1e3
        spread = [[median - entry["p25_us"] / 1e3], [entry["p75_us"] / 1e3 - median]]
        panel.bar(x, median, BAR_WIDTH, color=color)
        panel.errorbar(x, median, spread, color="black", linewidth=0.6)
    names = {"limit", "limit_each", "limit_grouped"} & systems.keys()
    limits = [systems[name]["median_us"] / 1e3 for name in names]
    if limits:
        panel.hlines(min(limits), position - 0.42, position + 0.42, color="black")


def main(_: list[str]) -> None:
    """Writes the image."""
    folder = pathlib.Path(_FOLDER.value) if _FOLDER.value else results.folders()[0]
    records = [
        record
        for record in results.newest(folder)
        if record["axes"].get("mode") == "session"
        and "tables" not in record["axes"]
        and record["axes"]["threads"] == _THREADS.value
        and record["axes"].get("workload") in _WORKLOAD.value
        and {cell["phase"] for cell in record["cells"]} >= STEPS
    ]
    svg.write(_OUTPUT.value, draw, records)


if __name__ == "__main__":
    app.run(main)
