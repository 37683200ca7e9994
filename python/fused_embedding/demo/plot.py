"""Draws the demo's result."""

from typing import Any

import numpy as np

from fused_embedding import extras
from fused_embedding.demo.report import MAX_LOSS_DIFFERENCE, Parts
from fused_embedding.demo.step_parts import PARTS
from fused_embedding.demo.systems import BEST, DEFAULT
from fused_embedding.demo.trainer import BLOCK_STEPS, Run, relative_differences, speedup

_COLOURS = ("#c9ced6", "#7d8896", "#e8a33d", "#d1495b")  # of the systems, in their order
_PART_COLOURS = ("#4c78a8", "#72b7b2", "#9aa5b1", "#f2b880", "#d1495b", "#e4e7eb")
_LEAST_DIFFERENCE = float(np.finfo(np.float32).eps)  # a log axis has no place for equal losses


def draw(path: str, runs: list[Run], parts: Parts, title: str) -> None:
    """Writes a PNG of the losses, the step rates and the parts of a step to `path`."""
    extras.load("matplotlib").use("Agg")
    plt = extras.load("matplotlib.pyplot")
    figure, axes = plt.subplot_mosaic(
        [["loss", "rate"], ["difference", "rate"], ["parts", "parts"]],
        figsize=(12, 8.5),
        width_ratios=[1, 1],
        height_ratios=[2, 1, 1.3],
        layout="constrained",
    )
    figure.suptitle(title, fontsize=11)
    _draw_losses(axes["loss"], runs)
    _draw_differences(axes["difference"], runs)
    axes["difference"].sharex(axes["loss"])
    _draw_rates(axes["rate"], runs)
    _draw_parts(axes["parts"], parts)
    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_losses(ax: Any, runs: list[Run]) -> None:
    for run, colour, width in zip(runs, _COLOURS, (8, 5, 2.5, 1), strict=True):
        steps = np.arange(1, len(run.losses) + 1)
        ax.plot(steps, run.losses, color=colour, linewidth=width, label=run.name)
    ax.set(ylabel="training loss", title="Losses on the same batches, from the same values")
    ax.tick_params(labelbottom=False)
    ax.legend(frameon=False)


def _draw_differences(ax: Any, runs: list[Run]) -> None:
    reference = next(run for run in runs if run.name == BEST)
    largest = MAX_LOSS_DIFFERENCE
    for run, colour in zip(runs, _COLOURS, strict=True):
        if run is reference:
            continue
        values = np.maximum(relative_differences(reference, run), _LEAST_DIFFERENCE)
        ax.semilogy(np.arange(1, len(values) + 1), values, ".", color=colour, markersize=3)
        largest = max(largest, values.max())
    ax.axhline(MAX_LOSS_DIFFERENCE, color="black", linewidth=0.8, linestyle="--")
    ax.annotate(
        "limit", (1, MAX_LOSS_DIFFERENCE), textcoords="offset points", xytext=(0, 3), fontsize=8
    )
    ax.set_ylim(5e-8, 10 * largest)
    ax.set(
        xlabel=f"step (equal losses are drawn at {_LEAST_DIFFERENCE:.1e})",
        ylabel=f"relative difference\nto {BEST}",
    )


def _draw_rates(ax: Any, runs: list[Run]) -> None:
    """Bars of the median step rate; a dot for each block shows the spread."""
    best = next(run for run in runs if run.name == BEST)
    for x, (run, colour) in enumerate(zip(runs, _COLOURS, strict=True)):
        ax.bar(x, run.steps_per_second, width=0.6, color=colour)
        spread = np.linspace(-0.2, 0.2, len(run.block_rates))
        ax.plot(x + spread, run.block_rates, ".", color="black", markersize=3, alpha=0.6)
        text = f"{run.steps_per_second:.0f} steps/s\n{speedup(best, run):.2f}x"
        ax.annotate(
            text,
            (x, max(run.block_rates)),
            textcoords="offset points",
            xytext=(0, 4),
            ha="center",
        )
    names = [run.name.replace(", ", ",\n").replace(" at its", "\nat its") for run in runs]
    names = [
        f"{name}\n({len(run.losses)} steps)" if run.name == DEFAULT else name
        for name, run in zip(names, runs, strict=True)
    ]
    ax.set_xticks(range(len(runs)), names)
    ax.margins(y=0.15)
    ax.set(
        ylabel=f"training steps per second (dot: {BLOCK_STEPS} steps)",
        title=f"Training steps per second, and the ratio to {BEST}",
    )


def _draw_parts(ax: Any, parts: Parts) -> None:
    """A bar for each system, stacked from the parts of a step."""
    names = list(parts)[::-1]
    left = np.zeros(len(names))
    for part, colour in zip(PARTS, _PART_COLOURS, strict=True):
        widths = np.array([parts[name][part] for name in names])
        ax.barh(names, widths, left=left, color=colour, label=part, height=0.6)
        left += widths
    for y, total in enumerate(left):
        ax.annotate(
            f"{total:.1f} ms",
            (total, y),
            textcoords="offset points",
            xytext=(4, 0),
            va="center",
        )
    ax.margins(x=0.08)
    ax.set(xlabel="milliseconds", title="Where a step's time goes")
    ax.legend(frameon=False, ncols=len(PARTS), loc="upper center", bbox_to_anchor=(0.5, -0.3))
