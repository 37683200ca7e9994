"""The tables of benchmarks/tables/compressed_quality.py: quality at equal bytes, and quantised."""

import pathlib
from typing import Any

from benchmarks.report import markdown, results

MODE = "compressed_quality"
NOT_MEASURED = "Not measured yet: `python -m benchmarks.tables.compressed_quality`."
KINDS = {
    "full": "full table",
    "hash": "id modulo rows",
    "multi_hash": "multi-hash",
    "adaptive": "adaptive",
    "dynamic_dimension": "dynamic dimension",
}
_SIZES = ("num_ids", "ids_seen", "dim", "train_rows", "held_rows", "epochs")
_DECIMALS = 5
_DECIMALS_OF_ROUNDING = 6


def last(folder: str | None = None) -> dict | None:
    """Returns the newest result in a folder, or of the machine that measured last."""
    for of_machine in [pathlib.Path(folder)] if folder else results.folders():
        for record in results.newest(of_machine):
            if record["axes"].get("mode") == MODE and not (record["dirty"] or record["unfit"]):
                return record
    return None


def blocks() -> dict[str, str]:
    """Returns the blocks of docs/compressed_tables.md."""
    record = last()
    if record is None:
        return {"quality": NOT_MEASURED, "quantised": NOT_MEASURED}
    caption = f"{results.caption([record])}."
    return {
        "quality": f"{_tasks(record)}\n\n{at_equal_bytes(record)}\n\n{caption}",
        "quantised": f"{quantised(record)}\n\n{caption}",
    }


def _tasks(record: dict) -> str:
    head = ["task", "ids", "of these in train rows", "dim", "train rows", "held-out rows"]
    lines = markdown.head([*head, "passes", "held out"])
    for task in record["axes"]["tasks"]:
        sizes = [f"{task[name]:,}" for name in _SIZES]
        lines.append(markdown.row([task["name"], *sizes, task["held_out"]]))
    return "\n".join(lines)


def at_equal_bytes(record: dict) -> str:
    """Returns a line for each kind of table of a budget; the full table once for each task."""
    head = ["task", "budget", "kind", "bytes", "of the full table", "metric", "minus full"]
    lines = markdown.head([*head, "logloss"])
    tasks = set()
    for cell in (cell for cell in record["cells"] if "budget" in cell):
        for kind, figures in cell["systems"].items():
            if kind == "full" and cell["task"] in tasks:
                continue
            lines.append(markdown.row(_row(cell, kind, figures)))
        tasks.add(cell["task"])
    return "\n".join(lines)


def _row(cell: dict, kind: str, figures: dict[str, Any]) -> list[str]:
    metric = cell["metric"]
    budget = "" if kind == "full" else f"1/{1 / cell['budget']:.0f}"
    share = f"{figures['share']:.3f}"
    if not figures.get("reachable", True):
        budget, share = f"{budget}, not reachable", f"**{share}**"
    row = [cell["task"], budget, KINDS[kind], f"{figures['bytes']:,}", share]
    row.append(f"{metric} {with_error(figures[metric])}")
    row.append(_signed(figures["minus_full"][metric]) if "minus_full" in figures else "")
    return [*row, with_error(figures["logloss"]) if "logloss" in figures else ""]


def quantised(record: dict) -> str:
    """Returns a line for each format of a task."""
    head = ["task", "rows", "bytes of a row", "metric", "minus float32", "logloss minus float32"]
    lines = markdown.head([*head, "within the margin", "an export's scores differ by"])
    for cell in (cell for cell in record["cells"] if "budget" not in cell):
        for name, figures in cell["systems"].items():
            row = [cell["task"], name, str(figures["row_bytes"])]
            row.append(f"{cell['metric']} {with_error(figures[cell['metric']])}")
            lines.append(markdown.row(row + _compared(cell["metric"], figures)))
    return "\n".join(lines)


def _compared(metric: str, figures: dict[str, Any]) -> list[str]:
    if "minus_full" not in figures:
        return [""] * 4
    less = figures["minus_full"]
    loss = _signed(less["logloss"], _DECIMALS_OF_ROUNDING) if "logloss" in less else ""
    verdict = "yes" if figures["holds"] else "**no**"
    return [
        _signed(less[metric], _DECIMALS_OF_ROUNDING),
        loss,
        verdict,
        f"{figures['export_difference']:.1g}",
    ]


def with_error(of: dict[str, Any]) -> str:
    """Returns a mean and its standard error: "0.93560 (0.00040)"."""
    return f"{of['mean']:.{_DECIMALS}f} ({of['standard_error']:.{_DECIMALS}f})"


def _signed(of: dict[str, Any], decimals: int = _DECIMALS) -> str:
    return f"{of['mean']:+.{decimals}f} ({of['standard_error']:.{decimals}f})"
