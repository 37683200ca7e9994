"""Matrix variables in a graph that is copied, where other things than variables stand for them."""

import abc
import dataclasses
from typing import Any

import tensorflow as tf


class LookedUp(abc.ABC):
    """Stands for a matrix variable, or for its value, in a graph that is copied."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int | None, int]:
        """Of the matrix."""

    @abc.abstractmethod
    def value(self) -> "LookedUp":
        """What stands for the variable's value."""

    @abc.abstractmethod
    def gather(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of ids.

        Args:
            ids: `[...]` int32 or int64.

        Returns:
            `[..., dim]`.
        """

    @abc.abstractmethod
    def whole(self, op: tf.Operation) -> tf.Tensor:
        """What `op` gets, which reads or changes more than some rows."""


class ReadByRow(LookedUp):
    """Stands for a matrix of stored rows, of which nothing but rows can be read."""

    def value(self) -> "ReadByRow":
        """Itself: it can only be read by row."""
        return self

    def whole(self, op: tf.Operation) -> tf.Tensor:
        """Refuses: who reads more than rows is known before a variable is stored."""
        raise RuntimeError(f"op {op.name!r} of type {op.type} reads a variable of stored rows")


@dataclasses.dataclass
class Uses:
    """How a graph uses a variable.

    Attributes:
        num_lookups: Ops that read some of its rows.
        other_op: An op that uses it otherwise; None: there is none.
    """

    num_lookups: int = 0
    other_op: tf.Operation | None = None


class Candidate(LookedUp):
    """A variable whose uses are counted while a graph is copied.

    Attributes:
        uses: So far.

    Args:
        variable: `[n, dim]`.
        uses: Where to count them; None: a new count.
        is_value: Whether it stands for the value of the variable.
    """

    def __init__(
        self, variable: tf.Variable, uses: Uses | None = None, is_value: bool = False
    ) -> None:
        self.uses = uses or Uses()
        self._variable, self._is_value = variable, is_value

    @property
    def shape(self) -> tuple[int, int]:
        """Of the variable."""
        num_rows, dim = self._variable.shape.as_list()
        return num_rows, dim

    def value(self) -> "Candidate":
        """The value of the same variable."""
        return Candidate(self._variable, self.uses, is_value=True)

    def gather(self, ids: tf.Tensor) -> tf.Tensor:
        """Rows of the variable."""
        self.uses.num_lookups += 1
        return tf.gather(self._variable, ids)

    def whole(self, op: tf.Operation) -> tf.Tensor:
        """The value or the handle of the variable."""
        self.uses.other_op = op
        return self._variable.read_value() if self._is_value else self._variable.handle


def read_by_row(op: tf.Operation, inputs: list[Any]) -> list[Any] | None:
    """Copies an op of stock TensorFlow whose first input is a matrix that is looked up.

    Args:
        op: Of the graph that is copied.
        inputs: What stands for its inputs.

    Returns:
        What stands for its results; None: it has no such input, or needs the whole matrix.
    """
    matrix = inputs[0] if inputs else None
    if not isinstance(matrix, LookedUp):
        return None
    if op.type == "ReadVariableOp":
        return [matrix.value()]
    if op.type in ("Shape", "VariableShape"):
        return [tf.constant(matrix.shape, op.get_attr("out_type"))]
    is_lookup = op.type == "ResourceGather" or (
        op.type == "GatherV2" and tf.get_static_value(op.inputs[2]) == 0
    )
    if is_lookup and op.get_attr("batch_dims") == 0:
        return [matrix.gather(inputs[1])]
    return None
