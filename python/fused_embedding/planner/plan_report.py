"""A plan as text, and as a plot."""

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from fused_embedding import extras
from fused_embedding.variable.row_size import describe_bytes

if TYPE_CHECKING:
    from fused_embedding.planner.plan import PlannedTable, ShardingPlan

_MAX_TABLES = 40
_MAX_RANKS = 16


def text(plan: "ShardingPlan") -> str:
    """The report of a plan."""
    tables = sorted(plan.tables.values(), key=lambda one: -one.seconds * max(len(one.ranks), 1))
    lines = [
        f"plan {plan.digest[:12]}: {len(tables)} tables on {plan.world_size} ranks",
        "",
        f"{'table':24}{'type':15}{'shards':>7}{'rows/rank':>15}{'DRAM/rank':>11}{'SSD/rank':>11}"
        f"{'keys/step':>11}{'ms/rank':>9}  ranks",
        *[_row(table) for table in tables[:_MAX_TABLES]],
    ]
    if len(tables) > _MAX_TABLES:
        lines.append(f"... and {len(tables) - _MAX_TABLES} tables that cost less")
    return "\n".join([*lines, "", *_ranks(plan), "", *_evenness(plan)])


def _row(table: "PlannedTable") -> str:
    return (
        f"{table.name[:23]:24}{table.sharding_type:15}{len(table.ranks):>7}"
        f"{table.rows_per_rank:>15,}{describe_bytes(table.dram_bytes):>11}"
        f"{describe_bytes(table.ssd_bytes):>11}{table.keys:>11,.0f}{1e3 * table.seconds:>9.3g}"
        f"  {_short(table.ranks)}"
    )


def _short(ranks: tuple[int, ...]) -> str:
    """Ranks as text, runs as 2-5."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [f"{first}-{last}" if last > first else f"{first}" for first, last in runs[:8]]
    return ",".join(shown) + (",..." if len(runs) > 8 else "") or "each worker"


def _ranks(plan: "ShardingPlan") -> list[str]:
    lines = [f"{'rank':>5}{'ms/step':>10}{'DRAM':>11}{'SSD':>11}"]
    for rank, load in enumerate(plan.loads[:_MAX_RANKS]):
        lines.append(
            f"{rank:>5}{1e3 * load.seconds:>10.3g}{describe_bytes(load.dram_bytes):>11}"
            f"{describe_bytes(load.ssd_bytes):>11}"
        )
    if plan.world_size > _MAX_RANKS:
        lines.append(f"... and {plan.world_size - _MAX_RANKS} ranks")
    budget = plan.budget
    lines.append(
        f"a rank may use {describe_bytes(budget.dram_bytes)} of DRAM and "
        f"{describe_bytes(budget.ssd_bytes)} of SSD"
    )
    return lines


def _evenness(plan: "ShardingPlan") -> list[str]:
    seconds = np.array([load.seconds for load in plan.loads])
    memory = np.array([load.dram_bytes + load.ssd_bytes for load in plan.loads], np.float64)
    return [
        f"seconds of a rank: max {seconds.max():.3g}, mean {seconds.mean():.3g}, max/mean "
        f"{ratio(seconds):.3f}",
        f"bytes of a rank: max {describe_bytes(memory.max())}, mean "
        f"{describe_bytes(memory.mean())}, max/mean {ratio(memory):.3f}",
    ]


def ratio(values: np.ndarray) -> float:
    """The largest by the mean; 1 if all are 0."""
    return float(values.max() / values.mean()) if values.any() else 1.0


def plot(plan: "ShardingPlan", path: str | os.PathLike[str]) -> None:
    """Bars of each rank's seconds and bytes."""
    try:
        extras.load("matplotlib").use("Agg")
        plt = extras.load("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError(
            "a plot of a plan needs matplotlib, which does not import; pip install matplotlib"
        ) from error
    figure, axes = plt.subplots(2, 1, figsize=(9, 5), layout="constrained", sharex=True)
    ranks = range(plan.world_size)
    _bars(axes[0], ranks, [[1e3 * load.seconds for load in plan.loads]], ["time"])
    axes[0].set_ylabel("ms a step of all workers")
    bytes_of = [
        [load.dram_bytes / 1e9 for load in plan.loads],
        [load.ssd_bytes / 1e9 for load in plan.loads],
    ]
    _bars(axes[1], ranks, bytes_of, ["DRAM", "SSD"])
    axes[1].set(xlabel="rank", ylabel="GB")
    axes[0].set_title(f"plan {plan.digest[:12]}", fontsize=9, loc="left")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _bars(ax: Any, ranks: range, stacks: list[list[float]], labels: list[str]) -> None:
    bottom = np.zeros(len(ranks))
    colours = ["#2e86ab", "#d1495b"]
    for values, label, colour in zip(stacks, labels, colours, strict=False):
        ax.bar(ranks, values, bottom=bottom, label=label, color=colour, width=1.0)
        bottom += values
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
