"""The HTML page of `fe.report`: one file with inline SVG, that asks for nothing from elsewhere."""

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fused_embedding.inspection.program_tables import HEADER, TableFacts
from fused_embedding.inspection.step_time import PARTS, StepTime
from fused_embedding.variable.row_size import describe_bytes

if TYPE_CHECKING:
    from fused_embedding.inspection.explain import Explanation
    from fused_embedding.inspection.program_report import Advice

_COLOURS = ("#2f6f9f", "#e07a3f", "#4f9d69", "#a05195", "#b8bcc4")
_MAX_BARS = 30
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; min-width: max-content; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; border-bottom: 1px solid #8884; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
svg { width: 100%; min-width: 42rem; max-width: 56rem; display: block; margin: .8rem 0; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
dt { font-weight: 600; margin-top: .7rem; } dd { margin-left: 1.2rem; }
.key { margin-right: 1.2rem; white-space: nowrap; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
"""


class Bar(NamedTuple):
    """A line of a plot.

    Attributes:
        label: Its name.
        values: What is side by side in it, each in the colour of its number.
        text: What stands after it.
    """

    label: str
    values: Sequence[float]
    text: str


def page_of(title: str, sections: Iterable[str]) -> str:
    """The whole page.

    Args:
        title: Its heading.
        sections: What the functions below return.

    Returns:
        HTML.
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        *sections,
        "</body></html>",
    ]
    return "\n".join([*parts, ""])


def section_of_tables(tables: Sequence[TableFacts]) -> str:
    """Tables, with plots of their bytes and hit rates."""
    if not tables:
        return _section("Tables", "<p>No embedding table was found.</p>")
    listed = _table(HEADER, [table.cells() for table in tables], range(1, len(HEADER)))
    return _section("Tables", listed, _plot_of_sizes(tables), _plot_of_hits(tables))


def _plot_of_sizes(tables: Sequence[TableFacts]) -> str:
    known = [table for table in tables if table.num_bytes is not None][:_MAX_BARS]
    if not known:
        return ""
    lines = [
        Bar(table.name, sizes, describe_bytes(sum(sizes)))
        for table in known
        for sizes in [(float(table.num_bytes or 0), float(table.slot_bytes or 0))]
    ]
    return _legend(["values; of an EmbeddingVariable all", "slots"]) + bars(
        "Bytes of tables", lines
    )


def _plot_of_hits(tables: Sequence[TableFacts]) -> str:
    rates = [(table.name, table.hit_rate) for table in tables if table.hit_rate is not None]
    if not rates:
        return ""
    lines = [Bar(name, (rate,), f"{rate:.1%}") for name, rate in rates[:_MAX_BARS]]
    heading = "<p>Share of the keys of lookups that had a row:</p>"
    return heading + bars("Hit rates", lines, limit=1.0)


def section_of_lookups(lookups: "Explanation") -> str:
    """What `fe.explain` says."""
    rows = [[one.name, one.path, str(one.num_columns), one.why] for one in lookups]
    if not rows:
        return _section("Lookups", "<p>No sparse embedding lookup was found.</p>")
    return _section("Lookups", _table(["lookup", "path", "columns", "why"], rows, [2]))


def section_of_step(step: StepTime | None) -> str:
    """The parts of a traced step."""
    if step is None:
        missing = "<p>No trace was given: <code>fe.report(..., run_metadata=)</code> takes one.</p>"
        return _section("Time of a step", missing)
    share = f"<p>Embeddings are {step.embedding_share:.0%} of the kernels of the traced step.</p>"
    total = f"{step.total_us / 1e3:.3g} ms"
    values = [float(step.microseconds[part]) for part in PARTS]
    total_us = max(step.total_us, 1)
    rows = [
        [part, f"{step.microseconds[part] / 1e3:.3f}", f"{step.microseconds[part] / total_us:.0%}"]
        for part in PARTS
    ]
    plot = bars("Time of a step", [Bar("step", values, total)])
    table = _table(["part", "ms", "share"], rows, [1, 2])
    return _section("Time of a step", share, _legend(PARTS), plot, table)


def section_of_advice(advice: Sequence["Advice"]) -> str:
    """What would be faster."""
    if not advice:
        return _section("What would be faster", "<p>Nothing is known that would be faster.</p>")
    items = (f"<dt>{html.escape(a.what)}</dt><dd>{html.escape(a.change)}</dd>" for a in advice)
    return _section("What would be faster", f"<dl>{''.join(items)}</dl>")


def bars(title: str, lines: Sequence[Bar], limit: float | None = None) -> str:
    """Horizontal bars as inline SVG.

    Args:
        title: What a screen reader says.
        lines: The bars.
        limit: The value of a full bar; None: the largest sum.

    Returns:
        An `<svg>` element, in one that scrolls on a small screen.
    """
    height, left, width = 22, 250, 520
    full = limit or max((sum(line.values) for line in lines), default=0) or 1.0
    parts = []
    for number, line in enumerate(lines):
        y, x = number * height, float(left)
        label = line.label if len(line.label) <= 36 else f"...{line.label[-33:]}"
        parts.append(
            f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{html.escape(label)}'
            f"<title>{html.escape(line.label)}</title></text>"
        )
        for value, colour in zip(line.values, _COLOURS, strict=False):
            length = width * value / full
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 3}" width="{length:.1f}" height="{height - 6}" '
                f'fill="{colour}"/>'
            )
            x += length
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 15}">{html.escape(line.text)}</text>')
    size = f"0 0 {left + width + 90} {len(lines) * height}"
    label = f'role="img" aria-label="{html.escape(title)}"'
    return f'<div class="wide"><svg viewBox="{size}" {label}>{"".join(parts)}</svg></div>'


def _legend(names: Sequence[str]) -> str:
    keys = (
        f'<span class="key"><i style="background:{colour}"></i>{html.escape(name)}</span>'
        for name, colour in zip(names, _COLOURS, strict=False)
    )
    return f"<p>{''.join(keys)}</p>"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int]) -> str:
    right = set(numbers)

    def line(tag: str, cells: Sequence[str]) -> str:
        marks = (' class="n"' if column in right else "" for column in range(len(cells)))
        made = (
            f"<{tag}{mark}>{html.escape(cell)}</{tag}>"
            for mark, cell in zip(marks, cells, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return f'<div class="wide"><table>{line("th", header)}{body}</table></div>'


def _section(heading: str, *parts: str) -> str:
    return "\n".join([f"<h2>{html.escape(heading)}</h2>", *parts])
