"""`python -m fused_embedding inspect CHECKPOINT`: what is in its tables."""

from collections.abc import Sequence

from absl import flags, logging

from fused_embedding.inspection import report
from fused_embedding.inspection.checkpoint_tables import (
    CheckpointError,
    DamagedTable,
    find_tables,
)
from fused_embedding.terminal import printable, progress

_REPORT = flags.DEFINE_string(
    "report", None, "Also write histograms of all tables to this file, *.png or *.html."
)


def main(argv: Sequence[str]) -> int:
    """Prints what is in a checkpoint; see `inspect`."""
    if len(argv) != 2:
        logging.error(
            "one checkpoint is required, got %s; usage: fused-embedding inspect CHECKPOINT "
            "[--report=FILE.png]",
            list(argv[1:]),
        )
        return 2
    return inspect(argv[1], _REPORT.value)


def inspect(path: str, report_path: str | None = None) -> int:
    """Prints what is in the tables of a checkpoint, and checks every byte of them.

    Args:
        path: See checkpoint_tables.read_tables.
        report_path: File to write, `*.png` or `*.html`.

    Returns:
        The exit status: 0; 1 if a table is damaged; 2 for unusable input.
    """
    if report_path and not report_path.endswith((".png", ".html")):
        logging.error("--report must end in .png or .html, got %s", report_path)
        return 2
    num_damaged = 0
    drawn: list[report.Read] = []  # without a report, one table at a time is in memory
    try:
        tables = find_tables(path)
        with progress(len(tables), "table", "inspected") as bar:
            for read in tables:
                table = read()
                bar.print(report.as_text(table))
                bar.advance(table.name)
                num_damaged += isinstance(table, DamagedTable)
                drawn += [table] if report_path else []
        if report_path:
            report.write_report(report_path, path, drawn)
    except CheckpointError as error:
        logging.error("%s", printable(str(error)))
        return 1
    except (OSError, ImportError) as error:
        logging.error("the report %s cannot be written: %s", report_path, error)
        return 2
    nothing = "; it has ordinary variables only, which are not inspected" if not tables else ""
    print(f"{path}: tables {len(tables)}, damaged {num_damaged}{nothing}")
    return 1 if num_damaged else 0
