"""What `fe.accelerate` replaced and what it left to stock, for its report and the log."""

import collections
import contextlib
import logging
import threading
from typing import NamedTuple

from fused_embedding.ops.path_notes import ACCELERATED, noted

_log = logging.getLogger("fused_embedding")


class Record(NamedTuple):
    """What was done with calls of one kind.

    Attributes:
        kind: What was called: "input_layer", "AdagradOptimizer".
        left: Why it was left to stock; None: it was replaced.
    """

    kind: str
    left: str | None


class Records:
    """Counts of calls, by what was done with them. Threads may share one."""

    def __init__(self) -> None:
        self._counts: collections.Counter[Record] = collections.Counter()
        self._lock = threading.Lock()

    def add(self, kind: str, left: str | None = None) -> None:
        """Counts a call, and logs the first of its kind at INFO."""
        record = Record(kind, left)
        with self._lock:
            self._counts[record] += 1
            is_first = self._counts[record] == 1
        if not is_first:
            return
        if left is None:
            _log.info("fe.accelerate: replaced: %s", kind)
        else:
            _log.info("fe.accelerate: left to stock: %s, because %s", kind, left)

    def counts(self) -> dict[Record, int]:
        """A copy of the counts, in the order of the first calls."""
        with self._lock:
            return dict(self._counts)

    def __str__(self) -> str:
        lines = []
        for (kind, left), count in self.counts().items():
            what = "replaced" if left is None else f"left to stock, because {left}"
            lines.append(f"{kind} ({count}): {what}")
        return "\n".join(lines or ["nothing was called"])


def marked_as_accelerated() -> contextlib.AbstractContextManager[None]:
    """Marks the ops of a graph that are made inside: a SavedModel must not have them.

    Returns:
        A context.
    """
    return noted("fe.accelerate", ACCELERATED)
