"""What the GPU must reach, as the project's plan has it, and whether a result does."""

import functools
from collections.abc import Callable
from typing import NamedTuple


class Target(NamedTuple):
    """A figure and its bound.

    Attributes:
        read: Takes the figure from a result's cells; KeyError where it was not measured.
    """

    name: str
    bound: float
    is_least: bool
    read: Callable[[dict], float]


def _stream(cell: dict) -> float:
    """Of a plan with its run; of all that a peer enqueues."""
    return cell["step" if "step" in cell else "run"]["median_us"]


def _host(cell: dict) -> float:
    return cell["end_to_end"]["median_us"]


def _over_peer(cells: dict, phase: str, peer: str) -> float:
    """Ours over the peer's time, of the stream and of the host: the worse of the two."""
    cell = cells[f"criteo_d128_{phase}"]
    return max(time(cell) / time(cell["peers"][peer]) for time in (_stream, _host))


def _share_of_copy(cells: dict, name: str) -> float:
    return cells[f"criteo_{name}_forward"]["run_share_of_copy"]


def _speedup_of_16(cells: dict, workload: str, phase: str) -> float:
    return cells[f"cpu_{workload}"][phase]["speedup_of_16"]


def _bags_over_ours(cells: dict) -> float:
    """How many times as long embedding_bag for each table takes, for both passes."""
    forward, backward = cells["criteo_d128_forward"], cells["criteo_d128_backward"]
    other = backward["peers"]["torch_embedding_bag_with_forward"]
    return min(time(other) / (time(forward) + time(backward)) for time in (_stream, _host))


def _over_gather(cells: dict, call: str, time: Callable[[dict], float]) -> float:
    """Of a call on tables, the worst of all dims and loads."""
    calls = {name: cell for name, cell in cells.items() if name.endswith(f"_{call}")}
    if not calls:
        raise KeyError(call)
    gathers = {name: cells[f"{name.partition('_load')[0]}_gather"] for name in calls}
    return max(time(cell) / time(gathers[name]) for name, cell in calls.items())


def _run(cell: dict) -> float:
    return cell["run"]["median_us"]


TARGETS = (
    *(
        Target(
            f"forward {name}, the run's share of the copy bandwidth",
            bound,
            True,
            functools.partial(_share_of_copy, name=name),
        )
        for name, bound in (("d128", 0.8), ("d16", 0.5))
    ),
    Target(
        "backward and row-wise Adagrad, plan and run, share of the copy bandwidth",
        0.6,
        True,
        lambda cells: cells["criteo_d128_backward_row_wise_adagrad"]["step_share_of_copy"],
    ),
    Target(
        "unique of 1,048,576 keys, microseconds of the stream for plan and run",
        50,
        False,
        lambda cells: cells["unique"]["step"]["median_us"],
    ),
    Target(
        "rows found in a table over as many gathered, of all dims and loads the worst",
        1.3,
        False,
        functools.partial(_over_gather, call="find", time=_run),
    ),
    Target(
        "find_or_insert of keys that have rows, over as many gathered, plan and run, the worst",
        1.5,
        False,
        functools.partial(_over_gather, call="find_or_insert", time=_stream),
    ),
    Target(
        "26 columns looked up in tables by key over the same in arrays, plan and run",
        1.3,
        False,
        lambda cells: (
            _run(cells["criteo_d16_table_forward"]) / _stream(cells["criteo_d16_forward"])
        ),
    ),
    Target(
        "26 columns, launches of kernels",
        12,
        False,
        lambda cells: cells["criteo_d128_forward"]["launches"],
    ),
    Target(
        "26 columns, waits of the host",
        1,
        False,
        lambda cells: cells["criteo_d128_forward"]["waits"],
    ),
    *(
        Target(
            f"{phase} of 26 tables over the same by hand in PyTorch, stream and host, the worse",
            1.1,
            False,
            functools.partial(_over_peer, phase=phase, peer="torch_fused"),
        )
        for phase in ("forward", "backward")
    ),
    Target(
        "embedding_bag for each of 26 tables over ours, forward and backward, the smaller",
        5,
        True,
        _bags_over_ours,
    ),
    *(
        Target(
            f"{workload} {phase} on the CPU, 16 threads over one",
            10,
            True,
            functools.partial(_speedup_of_16, workload=workload, phase=phase),
        )
        for workload in ("W2", "W4")
        for phase in ("lookup", "gradient")
    ),
)


def judge(cells: dict) -> list[dict[str, object]]:
    """Each target with its figure and whether it is met; None where it was not measured."""
    judged: list[dict[str, object]] = []
    for target in TARGETS:
        try:
            figure = round(target.read(cells), 3)
        except KeyError:
            figure = None
        is_met = None
        if figure is not None:
            is_met = figure >= target.bound if target.is_least else figure <= target.bound
        judged.append(
            {
                "target": target.name,
                "bound": ("at least " if target.is_least else "at most ") + f"{target.bound:g}",
                "figure": figure,
                "is_met": is_met,
            }
        )
    return judged
