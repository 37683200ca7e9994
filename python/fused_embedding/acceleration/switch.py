"""Whether `fe.accelerate` is on, and the choice between stock's function and ours for one call."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

from fused_embedding.acceleration.contexts import reason_for_stock
from fused_embedding.acceleration.records import Records, marked_as_accelerated

Optimizers = Literal["equal", "lazy"]


class Switch:
    """What the functions ask that take the place of stock's.

    Attributes:
        records: What was replaced and left; None: it is off.
        optimizers: Which optimizers are replaced: see `fe.accelerate`.
        when_idle: Called when the last of the calls of `busy` has ended.
    """

    def __init__(self) -> None:
        self.records: Records | None = None
        self.optimizers: Optimizers = "equal"
        self.when_idle: Callable[[], None] = lambda: None
        self._num_busy = 0
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a call of a replaced function needs other replaced functions to finish."""
        return self._num_busy > 0

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """The context of a call that stock's functions cannot finish if fe.accelerate ends.

        Yields:
            Nothing.
        """
        with self._lock:
            self._num_busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_busy -= 1
            if self.records is None and not self.is_busy:
                self.when_idle()

    def note(self, kind: str, left: str | None = None) -> None:
        """Counts a call: left to stock for a reason, or replaced."""
        records = self.records  # another thread may end it
        if records is not None:
            records.add(kind, left)

    def run(
        self,
        kind: str,
        ours: Callable[[], Any],
        stock: Callable[[], Any],
        reason: Callable[[], str | None] = reason_for_stock,
    ) -> Any:
        """Calls our function where it is on and has a part, else stock's.

        Args:
            kind: What was called, in the record.
            ours: Our function.
            stock: Stock's function.
            reason: Says why it must be stock's all the same.

        Returns:
            The result.
        """
        records = self.records  # another thread may end fe.accelerate meanwhile
        if records is None:
            return stock()
        left = reason()
        if left is not None:
            self.note(kind, left)
            return stock()
        with marked_as_accelerated():
            result = ours()
        records.add(kind)
        return result
