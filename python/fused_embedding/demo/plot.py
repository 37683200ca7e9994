"""Draws the demo's result."""

from typing import Any

import numpy as np

from fused_embedding import extras
from fused_embedding.demo.trainer import BLOCK_STEPS, Run, speedup

_STOCK_COLOUR, _FUSED_COLOUR = "#9aa5b1", "#d1495b"


def draw(path: str, stock: Run, fused: Run, title: str, loss_limit: float) -> None:
    """Writes a PNG of both loss curves, their difference and the step rates to `path`."""
    extras.load("matplotlib").use("Agg")
    plt = extras.load("matplotlib.pyplot")
    figure, axes = plt.subplot_mosaic(
        [["loss", "rate"], ["difference", "rate"]],
        figsize=(11, 5.5),
        width_ratios=[2, 1],
        height_ratios=[2, 1],
        layout="constrained",
    )
    figure.suptitle(title, fontsize=11)
    steps = np.arange(1, len(stock.losses) + 1)

    loss = axes["loss"]
    loss.plot(steps, stock.losses, color=_STOCK_COLOUR, linewidth=4, label=stock.name)
    loss.plot(steps, fused.losses, color=_FUSED_COLOUR, linewidth=1.2, label=fused.name)
    loss.set(ylabel="training loss", title="Loss of both models on the same batches")
    loss.tick_params(labelbottom=False)
    loss.legend(frameon=False)

    difference = axes["difference"]
    least = float(np.finfo(np.float32).eps)  # a log axis has no place for equal losses
    values = np.maximum(relative_difference(stock.losses, fused.losses), least)
    difference.semilogy(steps, values, ".", color=_FUSED_COLOUR, markersize=3)
    difference.axhline(loss_limit, color="black", linewidth=0.8, linestyle="--")
    difference.annotate(
        "limit", (1, loss_limit), textcoords="offset points", xytext=(0, 3), fontsize=8
    )
    difference.set_ylim(5e-8, 10 * max(loss_limit, values.max()))
    difference.set(
        xlabel=f"step (equal losses are drawn at {least:.1e})", ylabel="relative\ndifference"
    )
    difference.sharex(loss)

    _draw_rates(axes["rate"], (stock, fused))
    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_rates(ax: Any, runs: tuple[Run, Run]) -> None:
    """Bars of the median step rate; a dot for each block shows the spread."""
    for x, (run, colour) in enumerate(zip(runs, (_STOCK_COLOUR, _FUSED_COLOUR), strict=True)):
        ax.bar(x, run.steps_per_second, width=0.6, color=colour)
        spread = np.linspace(-0.2, 0.2, len(run.block_rates))
        ax.plot(x + spread, run.block_rates, ".", color="black", markersize=3, alpha=0.6)
    ax.set_xticks(range(len(runs)), [f"{r.name}\n{r.steps_per_second:.0f} steps/s" for r in runs])
    ax.set(
        ylabel=f"training steps per second (dot: {BLOCK_STEPS} steps)",
        title=f"{speedup(*runs):.2f}x the steps of stock",
    )


def relative_difference(stock: list[float], fused: list[float]) -> np.ndarray:
    """|fused - stock| / |stock| of each step."""
    want = np.asarray(stock)
    return np.abs(np.asarray(fused) - want) / np.abs(want)
