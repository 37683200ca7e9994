"""`fe.report`: what embeddings a program has, what they cost, and what would make them faster."""

import collections
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.inspection.explain import Explanation, Lookup, explanation_of
from fused_embedding.inspection.model_lookups import STOCK_LAYER, is_model
from fused_embedding.inspection.program_tables import HEADER, TableFacts, tables_of
from fused_embedding.inspection.report_page import (
    page_of,
    section_of_advice,
    section_of_lookups,
    section_of_step,
    section_of_tables,
)
from fused_embedding.inspection.step_time import StepTime, step_time
from fused_embedding.inspection.update_share import update_share
from fused_embedding.variable.row_size import describe_bytes

_LOW_MEMORY_HIT_RATE = 0.9
_ADVICE_OF_STOCK = {
    "its do_fusion is not set": "set do_fusion=True on the columns, or call fe.accelerate()",
    "it is called as a function of stock TensorFlow": "call fe.accelerate() before the graph is "
    "built, or the function of fe.nn with the same name",
    STOCK_LAYER: "model = fe.keras.group(model), or layers of fe.keras.layers",
}
_ONE_OP = "fe.feature_column.input_layer, fe.nn.group_embedding_lookup_sparse or fe.keras.group"


class Advice(NamedTuple):
    """What would be faster.

    Attributes:
        what: What was found.
        change: What to do about it.
    """

    what: str
    change: str


class Report(NamedTuple):
    """What `fe.report` returns. As a string, lines of text.

    Attributes:
        title: What it is about.
        tables: The tables, the largest first.
        lookups: What `fe.explain` says, without printing it.
        step: Where the time of a traced step goes; None: no trace was given.
        advice: What would be faster, and what to change.
    """

    title: str
    tables: list[TableFacts]
    lookups: Explanation
    step: StepTime | None
    advice: list[Advice]

    def __str__(self) -> str:
        parts = [_text_of_tables(self.tables), self.lookups.table()]
        if self.step is not None:
            parts.append(_text_of_step(self.step))
        parts.append(_text_of_advice(self.advice))
        return "\n\n".join([self.title, *parts])

    def __repr__(self) -> str:
        return str(self)

    def save(self, path: str) -> None:
        """Writes an HTML page with plots, one file that needs no other and no network.

        Args:
            path: The file, `*.html`.

        Raises:
            ValueError: If it does not end in `.html`.
            OSError: If it cannot be written.
        """
        if not str(path).endswith(".html"):
            raise ValueError(f"path must end in .html, got {path!r}: a report is an HTML page")
        page = [
            section_of_tables(self.tables),
            section_of_lookups(self.lookups),
            section_of_step(self.step),
            section_of_advice(self.advice),
        ]
        with open(path, "w", encoding="utf-8") as file:
            file.write(page_of(self.title, page))


def report(value: Any, *, run_metadata: Any = None) -> Report:
    """Reports a program's embedding tables, their lookups and cost, and what would be faster.

    Nothing of the program is run. For a session, one read of the counters of each EmbeddingVariable
    is; a finalized graph is read only if it has the ops of `fe.summarize_statistics` or
    `fe.train.StatisticsHook`.

    Args:
        value: A tf.compat.v1.Session or MonitoredSession; a tf.Graph, GraphDef or concrete
            function; or a Keras model. Only a session and a model know how many rows
            EmbeddingVariables have, and only a model or a graph of a session has slots.
        run_metadata: A tf.compat.v1.RunMetadata of a training step that `session.run` traced: adds
            where the step's time goes.

    Returns:
        The Report: print it, or `.save("report.html")`.

    Raises:
        TypeError: If `value` or `run_metadata` is something else.
        ValueError: If `run_metadata` has no trace.

    >>> model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Embedding(10, 4)])
    >>> report = fe.report(model)
    >>> [(table.rows, table.dim, table.num_bytes) for table in report.tables]
    [(10, 4, 160)]
    """
    session = value if _is_session(value) else None
    program = value if session is None else session.graph
    lookups = explanation_of(program)
    tables = tables_of(program, session)
    step = None
    if run_metadata is not None:
        names = [lookup.name for lookup in lookups if lookup.path == "stock"]
        step = step_time(run_metadata, names, [table.name for table in tables])
        lookups.update_share = update_share(run_metadata)
    return Report(_title(value), tables, lookups, step, list(_advice(lookups, tables)))


def _is_session(value: Any) -> bool:
    return callable(getattr(value, "run", None)) and isinstance(
        getattr(value, "graph", None), tf.Graph
    )


def _title(value: Any) -> str:
    if is_model(value):
        return f"Embeddings of the model {value.name}"
    is_graph = isinstance(value, tf.Graph | tf.compat.v1.GraphDef)
    kind = "session" if _is_session(value) else "graph" if is_graph else "program"
    return f"Embeddings of a {kind}"


# --- Advice ---


def _advice(lookups: Explanation, tables: Sequence[TableFacts]) -> Iterator[Advice]:
    yield from _advice_on_stock([lookup for lookup in lookups if lookup.path == "stock"])
    alone = [one for one in lookups if one.path in ("v1", "v2", "v3") and one.num_columns == 1]
    if len(alone) > 1:
        yield Advice(f"{len(alone)} fused lookups are an op each", f"one op for all: {_ONE_OP}")
    for op, count in lookups.stock_updates.items():
        share = f"; {lookups.update_share}" if lookups.update_share is not None else ""
        what = f"{count} sparse updates by {op}, one each{share}"
        yield Advice(what, "fe.accelerate(), or an optimizer of fe.train: one op does all")
    for table in tables:
        yield from _advice_on_table(table)


def _advice_on_stock(lookups: Sequence[Lookup]) -> Iterator[Advice]:
    for why, count in collections.Counter(lookup.why for lookup in lookups).items():
        reason = why.partition("; fe.feature_column")[0]
        change = _ADVICE_OF_STOCK.get(why) or _ADVICE_OF_STOCK.get(reason)
        lookup = "lookup takes" if count == 1 else "lookups take"
        what = f"{count} {lookup} stock's path: {reason}"
        yield Advice(what, change or "change what the reason names")


def _advice_on_table(table: TableFacts) -> Iterator[Advice]:
    found = table.statistics or {}
    if found.get("refusals"):
        what = f"{table.name} is full: {found['refusals']:,} keys got no row"
        yield Advice(what, "raise max_capacity, or expire rows (GlobalStepEvict)")
    rate = table.memory_hit_rate
    if rate is not None and rate < _LOW_MEMORY_HIT_RATE:
        what = (
            f"{table.name}: {rate:.0%} of its keys are in memory, the others are read from the SSD"
        )
        yield Advice(what, "raise storage_size, or fe.data.prefetch_embeddings")


# --- Text ---


def _text_of_tables(tables: Sequence[TableFacts]) -> str:
    if not tables:
        return "no embedding table was found"
    rows = [HEADER, *(table.cells() for table in tables)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        numbers = map(str.rjust, row[1:], widths[1:])
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]).rstrip())
    known = sum((t.num_bytes or 0) + (t.slot_bytes or 0) for t in tables)
    return "\n".join([*lines, f"{len(tables)} tables, {describe_bytes(known)} that are known"])


def _text_of_step(step: StepTime) -> str:
    heading = f"embeddings are {step.embedding_share:.0%} of the traced step's kernels"
    width = max(map(len, step.microseconds))
    total = max(step.total_us, 1)
    return "\n".join(
        [
            heading,
            *(
                f"  {part:{width}}  {us / 1e3:9.3f} ms  {us / total:4.0%}"
                for part, us in step.microseconds.items()
            ),
        ]
    )


def _text_of_advice(advice: Sequence[Advice]) -> str:
    if not advice:
        return "nothing is known that would be faster"
    return "\n".join(["what would be faster:", *(f"  {a.what}\n    {a.change}" for a in advice)])
