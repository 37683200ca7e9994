"""Tables of a checkpoint as text, and as a PNG or an HTML page."""

import base64
import html
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from fused_embedding import extras
from fused_embedding.inspection.checkpoint_tables import DamagedTable, Table
from fused_embedding.terminal import printable
from fused_embedding.variable.row_size import describe_bytes

_BAR = 40
_COLOUR = "#d1495b"
_MAX_DRAWN = 25  # tables in one PNG: a page of it for each 10 would be higher than a PNG may be
Read = Table | DamagedTable


def histogram(values: np.ndarray) -> list[tuple[int, int, int]]:
    """Counts of integers >= 0 in [0], [1], [2, 3], [4, 7] and so on: (least, largest, count)."""
    # The exponent of v = m 2^e with m in [0.5, 1): 0 for 0, 1 for 1, 2 for 2 and 3.
    bins = np.frexp(values.astype(np.float64))[1]
    counts = np.bincount(bins) if len(values) else np.zeros(0, np.int64)
    limits = [(0, 0), *((1 << e, (2 << e) - 1) for e in range(max(len(counts) - 1, 0)))]
    return [(*limit, int(count)) for limit, count in zip(limits, counts, strict=False)]


def _label(least: int, largest: int) -> str:
    return f"{least:,}" if least == largest else f"{least:,}-{largest:,}"


def _heading(what: str) -> str:
    return f"  {what:23} {'keys':>13}"


def _bars(values: np.ndarray) -> list[str]:
    bins = histogram(values)
    most = max((count for _, _, count in bins), default=1)
    lines = []
    for least, largest, count in bins:
        bar = "#" * -(-count * _BAR // most)
        lines.append(f"    {_label(least, largest):>21} {count:>13,} {bar}".rstrip())
    return lines


def as_text(table: Read) -> str:
    """What is known of a table, some lines."""
    if isinstance(table, DamagedTable):
        errors = (f"  DAMAGED     {error}" for error in table.errors)
        return "\n".join(map(printable, [table.name, *errors]))
    layout = table.layout
    slots = ", ".join(f"{name} [{width}]" for name, width in table.slots.items())
    waiting = f", {table.num_waiting:,} keys wait" if table.num_waiting else ""
    bloom = f", {describe_bytes(table.bloom_bytes)} of counters" if table.bloom_bytes else ""
    places = f"files: {table.num_files}" if table.num_files else "tensors of the checkpoint"
    lines = [
        table.name,
        f"  rows        {table.num_rows:,}",
        f"  values      dim {layout.dim}, {layout.dtype.name}",
        f"  slots       {slots or 'none'}",
        f"  filter      {table.admission}{waiting}{bloom}",
        f"  bytes       {layout.row_bytes} a row; about {describe_bytes(table.memory_bytes)} in "
        f"memory; {describe_bytes(table.saved_bytes)} saved",
        f"  updates     {table.updates:,}",
        f"  checksums   good, {places}",
    ]
    if table.num_rows:
        lines += [_heading("frequency"), *_bars(table.use.frequencies)]
        lines += [_heading(f"age at step {table.now:,}"), *_bars(table.ages)]
    return "\n".join(map(printable, lines))


def write_report(path: str, title: str, tables: Sequence[Read]) -> None:
    """Writes a PNG, or an HTML page if `path` ends in `.html`.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    if path.endswith(".html"):
        with open(path, "w") as file:
            file.write(_as_html(title, tables))
        return
    whole = [table for table in tables if isinstance(table, Table)]
    drawn = sorted(whole, key=lambda table: -table.num_rows)[:_MAX_DRAWN]
    left_out = len(whole) - len(drawn)
    more = f" (the largest {len(drawn)}, without {left_out})" if left_out else ""
    with open(path, "wb") as file:
        file.write(_draw(f"{title}{more}", drawn))


def _as_html(title: str, tables: Sequence[Read]) -> str:
    parts = [
        "<!DOCTYPE html>",
        f"<html><head><meta charset='utf-8'><title>{html.escape(title)}</title></head><body>",
        f"<h1>{html.escape(title)}</h1>",
    ]
    for table in tables:
        parts.append(f"<h2>{html.escape(table.name)}</h2><pre>{html.escape(as_text(table))}</pre>")
        if isinstance(table, Table) and table.num_rows:
            image = base64.b64encode(_draw("", [table])).decode()
            parts.append(f"<img alt='histograms' src='data:image/png;base64,{image}'>")
    return "\n".join([*parts, "</body></html>", ""])


def _draw(title: str, tables: Sequence[Table]) -> bytes:
    """A PNG with the two histograms of each table in a line."""
    extras.load("matplotlib").use("Agg")
    plt = extras.load("matplotlib.pyplot")
    lines = max(len(tables), 1)
    figure, axes = plt.subplots(
        lines, 2, figsize=(11, 0.6 + 2.2 * lines), layout="constrained", squeeze=False
    )
    figure.suptitle(title, fontsize=11)
    for (frequency, age), table in zip(axes, tables, strict=False):
        about = f"{table.name}: {table.num_rows:,} rows, {describe_bytes(table.memory_bytes)}"
        _draw_bars(frequency, table.use.frequencies, about, "frequency")
        _draw_bars(age, table.ages, "", f"steps since the last use, at step {table.now:,}")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=100)
    plt.close(figure)
    return image.getvalue()


def _draw_bars(ax: Any, values: np.ndarray, title: str, what: str) -> None:
    bins = histogram(values)
    ax.bar(range(len(bins)), [count for _, _, count in bins], color=_COLOUR)
    ax.set_xticks(range(len(bins)), [f"{least:,}" for least, _, _ in bins], rotation=45, fontsize=7)
    ax.set_title(title, fontsize=9, loc="left")
    ax.set_xlabel(f"{what}, from", fontsize=8)
    ax.set_ylabel("keys", fontsize=8)
