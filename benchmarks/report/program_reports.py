"""The table of ten unedited programs under `fe.accelerate()`: benchmarks/columns/programs.py."""

import pathlib
from collections.abc import Iterable

from benchmarks.report import markdown, results

MODE = "ten_programs"
STOCK, OURS, LAZY = ("stock_default", "stock"), "accelerate", "accelerate_lazy"
# In the order of a table; benchmarks/programs/catalogue.py has what they are.
NAMES = (
    *("wide_and_deep", "partitioned", "monitored", "layer_object", "estimator"),
    *("sequential", "functional", "functional_bags", "subclassed_bags", "custom_loop"),
)
_HEAD = (
    *("program", "TensorFlow", "batch", "threads", "CPU ms, stock", "`fe.accelerate()`"),
    *("over stock", "over stock at its best", "over stock, wall"),
    *('`optimizers="lazy"` over stock', "left to stock"),
)
# Where a model is called before it trains: records have that reason, and no step has the call.
_NOT_IN_STEPS = "without a gradient tape"
NOT_MEASURED = "Not measured yet: `make bench ARGS=columns.programs`."


def summary(threads: int = 1) -> str:
    """Returns the picture and the table of the machine that measured programs last."""
    records = records_of_last_machine(threads)
    if not records:
        return NOT_MEASURED
    picture = "![Speedup of ten programs under fe.accelerate](programs.svg)"
    return "\n\n".join([picture, table(records), f"{results.caption(records)}."])


def records_of_last_machine(threads: int, folder: str | None = None) -> list[dict]:
    """Returns the results of programs in a folder, or of the machine that measured last."""
    for of_machine in [pathlib.Path(folder)] if folder else results.folders():
        records = [r for r in results.newest(of_machine) if not r["dirty"] and not r["unfit"]]
        found = [r for r in records if _is_of_programs(r) and r["axes"]["threads"] == threads]
        if found:
            return in_order(found)
    return []


def _is_of_programs(record: dict) -> bool:
    return record.get("axes", {}).get("mode") == MODE


def in_order(records: Iterable[dict]) -> list[dict]:
    """Returns results program by program, in the order of NAMES."""

    def key(record: dict) -> tuple:
        axes = record["axes"]
        return NAMES.index(axes["program"]), axes["threads"], axes["batch_size"]

    return sorted(records, key=key)


def table(records: list[dict]) -> str:
    """Returns a line a result."""
    return "\n".join([*markdown.head(_HEAD), *map(_row, in_order(records))])


def section(records: list[dict]) -> str:
    """Returns the table with its title, for the page of a machine."""
    return f"### Ten programs under `fe.accelerate()`\n\n{table(records)}"


def _row(record: dict) -> str:
    axes, [cell] = record["axes"], record["cells"]
    ours, stock = (cell["systems"][name] for name in (OURS, STOCK[0]))
    row = [axes["title"], record["machine"]["tensorflow"]]
    row += [str(axes["batch_size"]), str(axes["threads"])]
    row += [markdown.milliseconds(stock), markdown.milliseconds(ours)]
    row += [markdown.speedup(ours["speedup_over"][name]) for name in STOCK]
    row.append(markdown.speedup(ours["wall"]["speedup_over"][STOCK[0]]))
    lazy = cell["systems"].get(LAZY)
    row.append(markdown.speedup(lazy["speedup_over"][STOCK[0]]) if lazy else "")
    return markdown.row([*row, left(cell)])


def left(cell: dict) -> str:
    """Returns what the steps of a program leave to stock, with the reasons, in words.

    Of an optimizer that is left it has the share of a step that our update would save.
    """
    kinds: dict[str, list[str]] = {}
    for kind, reason in cell["left"].items():
        if _NOT_IN_STEPS not in reason:
            kinds.setdefault(reason, []).append(kind)
    words = [_words(reason, of_reason, cell) for reason, of_reason in kinds.items()]
    return ". ".join(words) or "nothing"


def _words(reason: str, kinds: list[str], cell: dict) -> str:
    what, (why, *advice) = ", ".join(kinds), reason.split(";")
    lazy = cell["systems"].get(LAZY)
    if advice and lazy:
        saved = 1 - 1 / lazy["speedup_over"][OURS]["median"]
        what += f" (`lazy` saves {saved:.0%} of the step's CPU time)"
    return f"{what}: {why}"
