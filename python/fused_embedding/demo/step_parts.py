"""Where a step's time goes, by parts of the model, from traces of TensorFlow's executor."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.demo import criteo
from fused_embedding.demo.trainer import Run

# The part of an op is the first whose pattern is found in "NAME = TYPE".
_PATTERNS = (
    ("optimizer updates", r"^Adagrad/"),
    ("gradients of lookups", r"^gradients/(input_layer|linear_model)"),
    # Of a pipeline the wait for the next batch shows.
    (
        "features to ids",
        r"IteratorGetNext|^unstack|/to_sparse_input/|/ExpandDims|HashBucket|EmbeddingColumnKeys",
    ),
    ("lookups", r"^(input_layer|linear_model)"),
    ("dense layers and the rest", r""),
)
_BETWEEN_OPS = "between ops"
# In the order of a step.
PARTS = (
    "features to ids",
    "lookups",
    "dense layers and the rest",
    "gradients of lookups",
    "optimizer updates",
    _BETWEEN_OPS,
)


def part_of(label: str) -> str:
    """The part of the op with that label, "NAME = TYPE(INPUTS)"."""
    label = label.partition("(")[0]
    return next(part for part, pattern in _PATTERNS if re.search(pattern, label))


def measure(runs: Sequence[Run], batches: Sequence[criteo.Rows]) -> dict[str, dict[str, float]]:
    """Traces a training step on each of `batches`.

    A traced step is slower than others, so a trace gives the parts' shares of the time from the
    step's first op to its last one. The medians of the shares are scaled to the step time without
    a trace.

    Args:
        runs: They train a step on each batch.
        batches: Some batches.

    Returns:
        The milliseconds of each part of a step, by the run's name.
    """
    shares: dict[str, list[list[float]]] = {run.name: [] for run in runs}
    for batch in batches:
        for run in runs:
            times = split(_trace(run, batch))
            shares[run.name].append([times[part] / times.total() for part in PARTS])
    measured = {}
    for run in runs:
        medians = np.median(shares[run.name], axis=0)
        milliseconds = medians / medians.sum() * 1000.0 / run.steps_per_second
        measured[run.name] = dict(zip(PARTS, map(float, milliseconds), strict=True))
    return measured


def split(ops: Sequence[tuple[str, int, int]]) -> "Counter[str]":
    """Splits the time from the first op to the last one into parts.

    Ops that run at the same time share it evenly. Time in which no op runs is between ops.

    Args:
        ops: Part, start and end of each op.

    Returns:
        The time of each part.
    """
    events = sorted(
        event for part, start, end in ops for event in ((start, part, 1), (end, part, -1))
    )
    running: Counter[str] = Counter()
    times: Counter[str] = Counter()
    before = events[0][0]
    for now, part, change in events:
        num_running = running.total()
        for name, count in running.items() if num_running else [(_BETWEEN_OPS, 1)]:
            times[name] += (now - before) * count / max(num_running, 1)  # type: ignore[assignment]
        running[part] += change
        before = now
    return times


def _trace(run: Run, batch: criteo.Rows) -> list[tuple[str, int, int]]:
    """Trains a step on `batch`; the part, start and end of each of its ops, in nanoseconds."""
    v1 = tf.compat.v1
    metadata = v1.RunMetadata()
    run.session.run(
        (run.model.train_op, run.model.loss),
        run.model.training_feed(batch),
        options=v1.RunOptions(trace_level=v1.RunOptions.SOFTWARE_TRACE),
        run_metadata=metadata,
    )
    return list(_ops(metadata))


def _ops(metadata: Any) -> Iterator[tuple[str, int, int]]:
    for device in metadata.step_stats.dev_stats:
        for op in device.node_stats:
            start = op.all_start_nanos + op.op_start_rel_nanos
            yield part_of(op.timeline_label), start, op.all_start_nanos + op.op_end_rel_nanos
