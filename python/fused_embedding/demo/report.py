"""What the demo prints about its systems, and whether their numbers are the same."""

from absl import logging

from fused_embedding.demo.step_parts import PARTS
from fused_embedding.demo.systems import ACCELERATED, BEST, DEFAULT, DEFAULT_STEPS
from fused_embedding.demo.trainer import BLOCK_STEPS, Run, relative_differences, speedup

Parts = dict[str, dict[str, float]]  # milliseconds of each part of a step, by system

MAX_LOSS_DIFFERENCE = 1e-5  # relative, at every step
MAX_AUC_DIFFERENCE = 1e-3
# The systems whose steps are shown by parts: before and after.
TRACED = (BEST, ACCELERATED)

_NOTES = f"""\
steps/s    Median over blocks of {BLOCK_STEPS} steps, and the slowest and the fastest block. The
           systems take turns after each block. The first block of each is left out.
x best     Median over the rounds of the ratio to the block of {BEST!r} in that round.
x default  The same for {DEFAULT!r}, which trains on {DEFAULT_STEPS} steps at most, because it
           is slow: Grappler's arithmetic optimization makes a lookup read a whole table and an
           update copy it. The other systems have that optimization off.
"""


def show(runs: list[Run], parts: Parts) -> None:
    """Prints the table of systems and the parts of a step."""
    by_name = {run.name: run for run in runs}
    best, default = by_name[BEST], by_name[DEFAULT]
    print(
        f"\n{'':24}{'steps':>6}{'steps/s':>10}{'slowest':>9}{'fastest':>9}{'x best':>8}"
        f"{'x default':>11}{'last loss':>11}{'AUC':>10}"
    )
    for run in runs:
        print(
            f"{run.name:24}{len(run.losses):6}{run.steps_per_second:10.1f}"
            f"{min(run.block_rates):9.1f}{max(run.block_rates):9.1f}{speedup(best, run):8.2f}"
            f"{speedup(default, run):11.2f}{run.losses[-1]:11.6f}{run.auc:10.6f}"
        )
    print(f"\n{_NOTES}")
    _show_parts(parts)


def _show_parts(parts: Parts) -> None:
    print(f"{'milliseconds of a step':28}" + "".join(f"{name:>20}" for name in parts))
    for part in PARTS:
        print(f"{part:28}" + "".join(f"{of_run[part]:20.2f}" for of_run in parts.values()))
    print(f"{'a step':28}" + "".join(f"{sum(of_run.values()):20.2f}" for of_run in parts.values()))
    print()


def check(runs: list[Run]) -> int:
    """Prints how far each system is from stock at its best; returns 0 if all agree, else 1."""
    reference = next(run for run in runs if run.name == BEST)
    others = [run for run in runs if run is not reference]
    differing = [run.name for run in others if not _agrees(reference, run)]
    if not differing:
        return 0
    names = ", ".join(differing)
    logging.error("%s: numbers differ from %s by more than the limits above", names, BEST)
    return 1


def _agrees(reference: Run, run: Run) -> bool:
    """Prints how far `run` is from `reference` after the same steps; whether that is near."""
    steps = len(run.losses)
    loss_difference = relative_differences(reference, run).max()
    checks = (
        ("largest relative loss difference", loss_difference, MAX_LOSS_DIFFERENCE),
        ("AUC difference", abs(run.auc - reference.aucs[steps]), MAX_AUC_DIFFERENCE),
    )
    for what, value, limit in checks:
        state = "ok    " if value <= limit else "FAILED"
        print(f"{state}  {run.name}, {steps} steps: {what} {value:.1e}, limit {limit:.0e}")
    return all(value <= limit for _, value, limit in checks)
