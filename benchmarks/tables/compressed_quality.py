r"""Model quality of tables of fewer bytes: kinds of tables at equal bytes, and quantised serving.

    python -m benchmarks.tables.compressed_quality
    python -m benchmarks.tables.compressed_quality --quick

First, each kind of table of docs/compressed_tables.md at shares of the bytes of a float32 table
with a row for each id, beside that table and beside ids modulo the number of rows. A kind that
needs more bytes than a budget has "reachable": false, and the bytes that it had.

Second, tables trained in float32 and served in fewer bytes, as `fe.export_for_serving(quantize=)`
does. Their rows are encoded and decoded by its own formats, and the scores of one export of each
format are compared with those of the decoded rows.

All kinds of a seed have the same first-value seed and the same order of batches. Learning rates
were chosen for the full table. Writes one JSON file.
"""

import os
import pathlib
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.report import results
from benchmarks.tables import quality_tables as tables
from benchmarks.tables import quality_tasks

_TASKS = ("frappe", "amazon_book", "synthetic")
_TASK = flags.DEFINE_list("task", list(_TASKS), "Of frappe, amazon_book and synthetic.")
_BUDGET = flags.DEFINE_list("budget", ["0.1", "0.01"], "Shares of the full table's bytes.")
_KIND = flags.DEFINE_list("kind", list(tables.KINDS), "Kinds of tables beside the full one.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "Trainings of each kind.", lower_bound=2)
_QUANTISED_SEEDS = flags.DEFINE_integer(
    "quantised_seeds", 10, "Trainings of the tables that are quantised.", lower_bound=2
)
_QUANTISED = flags.DEFINE_list("quantised", ["frappe", "amazon_book"], "Tasks of these.")
_FRAPPE_DIM = flags.DEFINE_integer("frappe_dim", 16, "Length of a row.")
_FRAPPE_EPOCHS = flags.DEFINE_integer("frappe_epochs", 3, "Passes over the train rows.")
_FRAPPE_ROWS = flags.DEFINE_integer("frappe_rows", None, "The first so many; by default all.")
_BOOKS_DIM = flags.DEFINE_integer("books_dim", 32, "Length of a row of amazon_book.")
_BOOKS_EPOCHS = flags.DEFINE_integer("books_epochs", 4, "Passes over the train pairs.")
_BOOKS_USERS = flags.DEFINE_integer("books_users", 4000, "Users whose recall is measured.")
_SYNTHETIC_DIM = flags.DEFINE_integer("synthetic_dim", 32, "Length of a row.")
_SYNTHETIC_EPOCHS = flags.DEFINE_integer("synthetic_epochs", 1, "Passes over the train rows.")
_SYNTHETIC_IDS = flags.DEFINE_integer("synthetic_ids", 1_000_000, "Ids that may occur.")
_SYNTHETIC_ROWS = flags.DEFINE_integer("synthetic_rows", 500_000, "Train and held-out rows.")
_QUICK = flags.DEFINE_bool("quick", False, "Tiny synthetic data, two seeds: is the program whole?")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

FORMATS = ("bfloat16", "int8", "int4")
MARGIN = 0.0005  # by which a metric may differ, beside two standard errors
_CHECKED_ROWS = 4096  # whose scores an export is asked for
Metrics = dict[str, float]


def main(_: list[str]) -> None:
    """Trains everything, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # here, so that --help starts fast

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    if _QUICK.value:
        _make_quick()
    missing = [name for name in ("frappe", "amazon_book") if not _folder(name).exists()]
    wanted = [name for name in _TASK.value if name not in missing]
    if not wanted:
        raise SystemExit(f"no {_folder(_TASK.value[0])}: nothing was measured")
    cells, of_tasks = [], []
    for name in wanted:
        task = _task(name)
        of_tasks.append(task.describe())
        cells += _cells(task, name in _QUANTISED.value)
    axes = {"mode": "compressed_quality", "seeds": _SEEDS.value, "threads": 1}
    axes |= {"quantised_seeds": _QUANTISED_SEEDS.value, "tasks": of_tasks}
    axes |= {"index_bytes": tables.INDEX_BYTES, "margin": MARGIN}
    record = results.record_of("benchmarks.tables.compressed_quality", axes, cells)
    results.write(record, "compressed_quality", _OUTPUT.value)


def _make_quick() -> None:
    """Sets the flags of a run of seconds."""
    tiny = {"task": ["synthetic"], "quantised": ["synthetic"], "budget": ["0.1"]}
    sizes = {"seeds": 2, "quantised_seeds": 2, "synthetic_dim": 16}
    sizes |= {"synthetic_ids": 2000, "synthetic_rows": 2500}
    for name, value in (tiny | sizes).items():
        setattr(flags.FLAGS, name, value)


def _folder(name: str) -> pathlib.Path:
    return quality_tasks.DATA / {"amazon_book": "amazon_book_kgat"}.get(name, name)


def _task(name: str) -> quality_tasks.Task:
    if name == "frappe":
        sizes = _FRAPPE_DIM.value, _FRAPPE_EPOCHS.value, _FRAPPE_ROWS.value
        return quality_tasks.frappe(*sizes)
    if name == "amazon_book":
        sizes = _BOOKS_DIM.value, _BOOKS_EPOCHS.value, _BOOKS_USERS.value
        return quality_tasks.amazon_book(*sizes)
    return quality_tasks.synthetic(
        *(_SYNTHETIC_DIM.value, _SYNTHETIC_EPOCHS.value),
        *(_SYNTHETIC_IDS.value, _SYNTHETIC_ROWS.value),
    )


def _cells(task: quality_tasks.Task, is_quantised: bool) -> list[dict[str, Any]]:
    """All trainings of a task: a cell a budget, and one of quantised tables."""
    full: list[Metrics] = []
    rounded: list[dict[str, Metrics]] = []
    differences: dict[str, float] = {}
    for seed in range(_QUANTISED_SEEDS.value if is_quantised else _SEEDS.value):
        program = _trained(tables.Plan("full", {}), task, seed)
        full.append(program.evaluate())
        if is_quantised:
            differences = differences or _export_differences(program)
            rounded.append(_quantised(program))
        program.close()
        print(f"{task.name} full {seed} {full[-1]}", flush=True)
    cells = [_budget_cell(task, float(share), full) for share in _BUDGET.value]
    return cells + ([_quantised_cell(task, full, rounded, differences)] if is_quantised else [])


def _trained(plan: tables.Plan, task: quality_tasks.Task, seed: int) -> Any:
    from benchmarks.tables import quality_training

    program = quality_training.Program(plan, task, seed)
    program.train()
    return program


def _budget_cell(task: quality_tasks.Task, share: float, full: Sequence[Metrics]) -> dict[str, Any]:
    """Each kind of table of a share of the full table's bytes."""
    all_bytes = tables.full_bytes(task)
    budget = int(share * all_bytes)
    full = full[: _SEEDS.value]
    systems = {"full": {"bytes": all_bytes, "share": 1.0, **summaries(full)}}
    for kind in _KIND.value:
        plan = tables.plan(kind, task, budget)
        metrics, contents = [], []
        for seed in range(_SEEDS.value):
            program = _trained(plan, task, seed)
            metrics.append(program.evaluate())
            contents.append(program.content())
            program.close()
        largest = max(contents, key=lambda each: each.num_bytes(task.dim)["bytes"])
        figures: dict[str, Any] = {"options": plan.options, "content": vars(largest)}
        figures |= largest.num_bytes(task.dim)
        figures["share"] = round(figures["bytes"] / all_bytes, 5)
        figures["reachable"] = figures["bytes"] <= budget
        systems[kind] = figures | summaries(metrics) | {"minus_full": summaries(metrics, full)}
        print(f"{task.name} {share} {kind} {systems[kind]}", flush=True)
    return {
        "phase": f"{task.name} {share:g}",
        "task": task.name,
        "metric": task.metric,
        "budget": share,
        "budget_bytes": budget,
        "systems": systems,
    }


def _quantised(program: Any) -> dict[str, Metrics]:
    """Metrics of the model with its rows in each format; its own rows are there again after it."""
    rows = program.all_rows()
    found = {}
    for name in FORMATS:
        program.load(_decoded(rows, name))
        found[name] = program.evaluate()
    program.load(rows)
    return found


def _decoded(rows: np.ndarray, name: str) -> np.ndarray:
    """Rows as an export with `quantize=name` stores and reads them."""
    from fused_embedding.serving import row_formats

    row_format = row_formats.FORMATS[name]
    stored = row_format.encode(rows.astype(np.float64))
    return row_format.decode(stored, rows.shape[1]).numpy()


def _export_differences(program: Any) -> dict[str, float]:
    """Largest difference of each export's scores from those of the decoded rows."""
    ids, rows = program.task.held_ids[:_CHECKED_ROWS], program.all_rows()
    found = {}
    for name in FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            served = program.exported_scores(pathlib.Path(folder) / "export", name, ids)
        program.load(_decoded(rows, name))
        found[name] = float(np.abs(served - program.scores(ids)).max())
        program.load(rows)
    return found


def _quantised_cell(
    task: quality_tasks.Task,
    full: Sequence[Metrics],
    rounded: Sequence[dict[str, Metrics]],
    differences: dict[str, float],
) -> dict[str, Any]:
    from fused_embedding.serving import row_formats

    systems: dict[str, Any] = {
        "float32": {"row_bytes": tables.row_bytes(task.dim), **summaries(full)}
    }
    for name in FORMATS:
        metrics = [of_seed[name] for of_seed in rounded]
        less = summaries(metrics, full)
        systems[name] = {
            "row_bytes": row_formats.FORMATS[name].row_bytes(task.dim),
            **summaries(metrics),
            "minus_full": less,
            "holds": holds(less[task.metric]),
            "export_difference": differences[name],
        }
        print(f"{task.name} {name} {systems[name]}", flush=True)
    cell = {"phase": f"{task.name} quantised", "task": task.name, "metric": task.metric}
    return cell | {"systems": systems}


def holds(difference: dict[str, Any]) -> bool:
    """Whether a mean difference is within MARGIN and two standard errors."""
    return bool(abs(difference["mean"]) <= MARGIN + 2 * difference["standard_error"])


def summaries(
    metrics: Iterable[Metrics], reference: Sequence[Metrics] | None = None
) -> dict[str, dict[str, Any]]:
    """Mean and standard error over seeds, of metrics or of their differences from a reference's.

    Args:
        metrics: Of each seed.
        reference: The same seeds' of another system.
    """
    of_seeds = list(metrics)
    found = {}
    for name in of_seeds[0]:
        values = np.array([each[name] for each in of_seeds])
        if reference is not None:
            values = values - [each[name] for each in reference]
        error = values.std(ddof=1) / np.sqrt(len(values))
        found[name] = {
            "mean": round(float(values.mean()), 6),
            "standard_error": round(float(error), 6),
            "values": [round(float(value), 6) for value in values],
        }
    return found


if __name__ == "__main__":
    app.run(main)
