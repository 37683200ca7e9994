"""Exports of stock ops: two generations of their tables, and requests that read one.

A request reads the number of the generation once, and all its lookups look in the indices of that
one. A delta is put into the other indices, and its rows where neither generation has any; then the
number changes. A request is computed again if two deltas began meanwhile: only the second one
touches what the request reads.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding._tf_private import cond_of_calls
from fused_embedding.serving.applied_deltas import AppliedDeltas, DeltaTable, TableChanges
from fused_embedding.serving.served_table import ServedTable, is_odd


class Generations(AppliedDeltas):
    """Which generation of the tables of an export requests read: `current`.

    Attributes:
        begun: Number of deltas that were begun, current or current + 1.
    """

    def __init__(self, tables: Sequence[ServedTable]) -> None:
        super().__init__([DeltaTable(table.name, table.dim, table.rows.dtype) for table in tables])
        self._tables = list(tables)
        self.begun = tf.Variable(0, trainable=False, dtype=tf.int64, name="begun")

    def answer(
        self, compute: Callable[[bool], list[tf.Tensor]], outputs: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Computes an answer from one generation.

        Args:
            compute: Called twice: for odd generations with True, for even ones with False.
            outputs: Of the shapes and types that it returns.

        Returns:
            What it returns.
        """

        def attempt(_: tf.Tensor, *__: tf.Tensor) -> list[tf.Tensor]:
            generation = self.current.read_value()
            results = cond_of_calls(
                is_odd(generation), lambda: compute(True), lambda: compute(False)
            )
            with tf.control_dependencies(results):
                begun = self.begun.read_value()
            return [begun > generation + 1, *results]

        nothing = [tf.zeros([size or 0 for size in _sizes(t)], t.dtype) for t in outputs]
        _, *results = tf.while_loop(
            lambda is_torn, *_: is_torn,
            attempt,
            [tf.constant(True), *nothing],
            shape_invariants=[tf.TensorShape([]), *(tensor.shape for tensor in outputs)],
        )
        return results

    def _check(self, generation: tf.Tensor) -> list[Any]:
        is_whole = tf.debugging.assert_equal(
            self.begun.read_value(),
            generation,
            message="a delta was applied in part, as its process ran out of memory: load the "
            "export again, and apply all deltas",
        )
        return [is_whole]

    def _put(
        self, generation: tf.Tensor, next_id: tf.Tensor, changes: list[TableChanges]
    ) -> tf.Tensor:
        with tf.control_dependencies(tf.nest.flatten([next_id, changes])):
            begin = self.begun.assign(generation + 1, read_value=False)
        with tf.control_dependencies([begin]):
            done = [
                table.change(generation, changed)
                for table, changed in zip(self._tables, changes, strict=True)
            ]
        with tf.control_dependencies(done):
            loaded = self.loaded.assign(next_id, read_value=False)
        with tf.control_dependencies([loaded]):
            switch = self.current.assign(generation + 1, read_value=False)
        with tf.control_dependencies([switch]):
            return generation + 1


def _sizes(tensor: tf.Tensor) -> list[int | None]:
    return tensor.shape.as_list() if tensor.shape.rank is not None else []
