"""The table of two builds of the core, timed one against the other."""

from collections.abc import Sequence

from benchmarks.report import markdown

HEAD = ("row", "old, ms", "new, ms", "new / old", "copy / old", "spread", "load", "verdict")


def row(name: str, of: dict) -> str:
    """Returns the line of one row of the benchmark."""
    if "ratio" not in of:
        return markdown.row([name, *[""] * 6, of["verdict"]])
    times = [markdown.milliseconds(of[each]) for each in ("old", "new")]
    ratios = [f"{of[each]['median']:.3f}" for each in ("ratio", "copy_ratio")]
    figures = [f"{of['spread']:.1%}", str(of["load_average"])]
    bits = " (other bits)" if of.get("has_other_bits") else ""
    return markdown.row([name, *times, *ratios, *figures, of["verdict"] + bits])


def reports(records: Sequence[dict]) -> dict[str, str]:
    """Returns the table of each result."""
    tables = ["\n".join(_lines(record)) for record in records]
    return {"core_speed": "\n\n".join(tables)} if tables else {}


def _lines(record: dict) -> list[str]:
    commits = f"commit {record['new_commit']} (new) beside {record['old_commit']} (old)"
    lines = [f"### The core on one thread, {commits}", "", *markdown.head(HEAD)]
    return lines + [row(name, of) for name, of in record["rows"].items()]
