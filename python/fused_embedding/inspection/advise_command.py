"""`python -m fused_embedding advise IDS|CHECKPOINT`: what options of a table cost and keep."""

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags, logging

from fused_embedding import extras
from fused_embedding.inspection.advice import (
    Advisor,
    FrequencyAdvisor,
    LogAdvisor,
    Outcome,
    Settings,
    advise,
)
from fused_embedding.inspection.checkpoint_tables import (
    CheckpointError,
    DamagedTable,
    find_tables,
)
from fused_embedding.inspection.id_log import LogError, read_ids, sample_ids
from fused_embedding.terminal import Progress, printable, progress
from fused_embedding.variable.row_size import RowLayout, describe_bytes

_DIM = flags.DEFINE_integer("dim", 16, "Of a log: length of an embedding.", lower_bound=1)
_SLOTS = flags.DEFINE_integer(
    "slots",
    1,
    "Of a log: slots of the optimizer that are as long as an embedding: 1 Adagrad, 2 Adam.",
    lower_bound=0,
)
_VALUE_DTYPE = flags.DEFINE_enum(
    "value_dtype",
    "float32",
    ["float32", "float64", "float16", "bfloat16"],
    "Of a log: type of the values.",
)
_IDS_PER_STEP = flags.DEFINE_integer(
    "ids_per_step", 512, "Of a log: ids of one training step.", lower_bound=1
)
_MAX_SAMPLE = flags.DEFINE_integer(
    "max_sample", 1 << 17, "Of a log: occurrences to sample at most.", lower_bound=1000
)
_THRESHOLDS = flags.DEFINE_list("thresholds", [], "Admission thresholds to try.")
_STEPS_TO_LIVE = flags.DEFINE_list("steps_to_live", [], "Times to live to try, in steps.")
_BUDGETS_MB = flags.DEFINE_list("budgets_mb", [], "Memory budgets to try, in 10^6 bytes.")
_PLOT = flags.DEFINE_string("plot", None, "Also draw the outcomes into this PNG file.")

_COLOURS = {"CounterFilter": "#d1495b", "GlobalStepEvict": "#2e86ab", "lru": "#3a3a3a"}


def main(argv: Sequence[str]) -> int:
    """Prints advice; the exit status is 0, 1 for a damaged checkpoint, 2 for unusable input."""
    if len(argv) != 2:
        logging.error(
            "one log of ids or one checkpoint is required, got %s; usage: fused-embedding advise "
            "IDS|CHECKPOINT",
            list(argv[1:]),
        )
        return 2
    damage: list[str] = []
    try:
        settings = Settings(
            _positive(_THRESHOLDS, int), _positive(_STEPS_TO_LIVE, int), _budgets(_BUDGETS_MB)
        )
        if os.path.isfile(argv[1]) and not os.path.exists(f"{argv[1]}.index"):
            outcomes = {argv[1]: _advise_on_log(argv[1], settings)}
        else:
            outcomes, damage = _advise_on_checkpoint(argv[1], settings)
        if _PLOT.value:
            draw(_PLOT.value, outcomes)
        for error in damage:
            logging.error("%s", printable(error))
    except CheckpointError as error:
        logging.error("%s", printable(str(error)))
        return 1
    except (LogError, ValueError, OSError, ImportError) as error:
        logging.error("%s", error)
        return 2
    return 1 if damage else 0


def _positive(flag: Any, kind: Any) -> list[Any]:
    try:
        values = [kind(word) for word in flag.value]
    except ValueError:
        values = [0]
    if any(not 0 < value < math.inf for value in values):
        raise ValueError(
            f"--{flag.name} must be numbers > 0, separated by commas, got {','.join(flag.value)}"
        )
    return values


def _budgets(flag: Any) -> list[float]:
    return [1e6 * megabytes for megabytes in _positive(flag, float)]


def _advise_on_log(path: str, settings: Settings) -> list[Outcome]:
    layout = RowLayout(_DIM.value, tf.as_dtype(_VALUE_DTYPE.value), _DIM.value * _SLOTS.value)
    with progress(None, "id", "read") as bar:
        sample = sample_ids(_shown(read_ids(path), bar), _MAX_SAMPLE.value)
    advisor = LogAdvisor(sample, layout, _IDS_PER_STEP.value)
    print(
        f"{path}: {sample.num_ids:,} ids, about {advisor.num_distinct:,.0f} distinct, "
        f"{advisor.num_steps:,} steps; {len(sample.ids):,} sampled, {sample.rate:.3g} of all"
    )
    return _print(advisor, settings, Progress())


def _shown(batches: Iterator[np.ndarray], bar: Progress) -> Iterator[np.ndarray]:
    for ids in batches:
        yield ids
        bar.advance(amount=len(ids))


def _advise_on_checkpoint(
    path: str, settings: Settings
) -> tuple[dict[str, list[Outcome]], list[str]]:
    """Outcomes of the tables that can be read, and what is wrong with the others."""
    outcomes, damage = {}, []
    tables = find_tables(path)
    with progress(len(tables), "table", "advised on") as bar:
        for read in tables:
            table = read()
            bar.advance(table.name)
            if isinstance(table, DamagedTable):
                damage += [f"table {table.name}: {error}" for error in table.errors]
                continue
            advisor = FrequencyAdvisor(table)
            bar.print(
                f"{printable(table.name)}: {advisor.num_ids:,} occurrences of "
                f"{advisor.num_distinct:,.0f} keys, {advisor.num_steps:,} steps, from the "
                f"frequencies in {path}"
            )
            outcomes[table.name] = _print(advisor, settings, bar)
    return outcomes, damage


def _print(advisor: Advisor, settings: Settings, bar: Progress) -> list[Outcome]:
    layout = advisor.layout
    outcomes = advise(advisor, settings)
    bar.print(
        f"  dim {layout.dim}, {layout.dtype.name}, {layout.slot_width} numbers of slots: "
        f"{layout.key_bytes:.0f} bytes a row with its place in the index\n"
        f"  {'option':28}{'rows':>14}{'memory':>10}{'ids':>8}{'trained':>9}{'found':>8}"
        f"{'missed':>8}"
    )
    for out in outcomes:
        is_known = not math.isnan(out.found)
        found, missed = (f"{out.found:.1%}", f"{1 - out.found:.1%}") if is_known else ("-", "-")
        bar.print(
            f"  {_describe(out):28}{out.rows:>14,}{describe_bytes(out.num_bytes):>10}"
            f"{out.ids:>8.1%}{out.trained:>9.1%}{found:>8}{missed:>8}"
        )
    return outcomes


def _describe(outcome: Outcome) -> str:
    return {
        "CounterFilter": f"CounterFilter({outcome.setting})",
        "GlobalStepEvict": f"GlobalStepEvict({outcome.setting})",
        "lru": f"max_capacity={outcome.setting}, lru",
    }[outcome.option]


def draw(path: str, outcomes_of: dict[str, list[Outcome]]) -> None:
    """Writes a PNG: for each source, missed and trained occurrences by memory.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    extras.load("matplotlib").use("Agg")
    plt = extras.load("matplotlib.pyplot")
    lines = max(len(outcomes_of), 1)
    figure, axes = plt.subplots(
        lines, 2, figsize=(11, 0.6 + 3.4 * lines), layout="constrained", squeeze=False
    )
    for (missed, trained), (name, outcomes) in zip(axes, outcomes_of.items(), strict=False):
        _draw_option(missed, [(out, 1 - out.found) for out in outcomes])
        _draw_option(trained, [(out, out.trained) for out in outcomes])
        missed.set_title(name, fontsize=9, loc="left")
        missed.set_ylabel("occurrences that find no trained row")
        trained.set_ylabel("occurrences that train a row")
    figure.savefig(path, dpi=100, format="png")
    plt.close(figure)


def _draw_option(ax: Any, points: Sequence[tuple[Outcome, float]]) -> None:
    for option, colour in _COLOURS.items():
        chosen = [(out, share) for out, share in points if out.option == option]
        chosen = [(out, share) for out, share in chosen if not math.isnan(share)]
        memory = [out.num_bytes / 1e6 for out, _ in chosen]
        ax.plot(memory, [share for _, share in chosen], "o-", color=colour, label=option)
        for megabytes, (out, share) in zip(memory, chosen, strict=True):
            ax.annotate(f"{out.setting}", (megabytes, share), fontsize=6, color=colour)
    ax.set(xlabel="memory, MB", ylim=(0, 1.05))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
