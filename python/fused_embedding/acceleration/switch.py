"""Whether `fe.accelerate` is on, and the choice between stock's function and ours for one call."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from fused_embedding.acceleration.contexts import reason_for_stock
from fused_embedding.acceleration.records import Records, marked_as_accelerated

Optimizers = Literal["equal", "lazy"]
T = TypeVar("T")


class Switch:
    """What the functions ask that take the place of stock's.

    Attributes:
        records: What was replaced and left; None: it is off.
        optimizers: Which optimizers are replaced: see `fe.accelerate`.
    """

    def __init__(self) -> None:
        self.records: Records | None = None
        self.optimizers: Optimizers = "equal"

    def leave(self, kind: str, why: str, result: T) -> T:
        """Notes that a call was left to stock, and returns the result."""
        if self.records is not None:
            self.records.add(kind, why)
        return result

    def run(self, kind: str, ours: Callable[[], Any], stock: Callable[[], Any]) -> Any:
        """Calls our function where it is on and has a part, else stock's.

        Args:
            kind: What was called, in the record.
            ours: Our function.
            stock: Stock's function.

        Returns:
            The result.
        """
        if self.records is None:
            return stock()
        left = reason_for_stock()
        if left is not None:
            return self.leave(kind, left, stock())
        with marked_as_accelerated():
            result = ours()
        self.records.add(kind)
        return result
