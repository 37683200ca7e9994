"""Exports of stock ops: two generations of their tables, and requests that read one.

A request reads the number of the generation once, and all its lookups look in the indices of that
one. A delta is put into the other indices, and its rows where neither generation has any; then the
number changes. A request is computed again if two deltas began meanwhile: only the second one
touches what the request reads.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.ops.tf_private import create_handle_data, set_handle_data
from fused_embedding.serving.applied_deltas import (
    AppliedDeltas,
    Delta,
    DeltaTable,
    DenseVariable,
)
from fused_embedding.serving.served_table import ServedTable, is_odd
from fused_embedding.serving.stored_rows import StoredRows


class Generations(AppliedDeltas):
    """Which generation of the tables of an export requests read: `current`.

    Attributes:
        begun: Number of deltas that were begun, current or current + 1.
        odd_dense: What odd generations read instead of the dense variables; empty until there is
            one.
    """

    def __init__(
        self,
        tables: Sequence[ServedTable],
        dense: Sequence[DenseVariable],
        places: Sequence[str] | None = None,
    ) -> None:
        described = [
            DeltaTable(
                table.name,
                table.dim,
                table.dtype,
                table.seed,
                place,
                table.coding,
                is_counted=table.counts is not None,
            )
            for table, place in zip(tables, places or [""] * len(tables), strict=True)
        ]
        super().__init__(described, dense)
        self._tables = list(tables)
        self.begun = tf.Variable(0, trainable=False, dtype=tf.int64, name="begun")
        self.odd_dense = [
            tf.Variable(tf.zeros([0], v.dtype), shape=tf.TensorShape(None), trainable=False)
            for v in self._dense
        ]

    def at(self, is_odd: bool, given: Mapping[str, Any]) -> dict[str, Any]:
        """What odd generations, or even ones, read.

        Args:
            is_odd: Which of both.
            given: Tables, variables whose values are read, handles of variables, and variables of
                stored rows, by name.
        """
        odd = {id(v.handle): (v, o) for v, o in zip(self._dense, self.odd_dense, strict=True)}

        def at(value: Any) -> Any:
            if isinstance(value, ServedTable):
                return value.at(is_odd)
            if isinstance(value, StoredRows):
                return dataclasses.replace(value, handle=at(value.handle))
            is_variable = isinstance(value, tf.Variable)
            even_and_odd = odd.get(id(value.handle if is_variable else value))
            if even_and_odd is None or not is_odd:
                return value.read_value() if is_variable else value
            even, read = even_and_odd
            if is_variable:
                return tf.ensure_shape(read.read_value(), even.shape)
            handle = tf.identity(read.handle)
            # The odd one has no values at first, and so no shape of its own.
            set_handle_data(handle, create_handle_data(even.shape, even.dtype))
            return handle

        return {name: at(value) for name, value in given.items()}

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
            results = _cond_of_calls(
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

    def _dense_values(self, generation: tf.Tensor) -> list[tf.Tensor]:
        return tf.cond(
            is_odd(generation),
            lambda: [
                tf.ensure_shape(odd.read_value(), even.shape)
                for odd, even in zip(self.odd_dense, self._dense, strict=True)
            ],
            lambda: [even.read_value() for even in self._dense],
        )

    def _put(self, generation: tf.Tensor, delta: Delta) -> tf.Tensor:
        with tf.control_dependencies([t for t in tf.nest.flatten(list(delta)) if t is not None]):
            begin = self.begun.assign(generation + 1, read_value=False)
        with tf.control_dependencies([begin]):
            done = [
                table.change(generation, changed)
                for table, changed in zip(self._tables, delta.changes, strict=True)
            ]
            done.append(self._put_dense(generation, delta.dense))
        with tf.control_dependencies(done):
            loaded = self.loaded.assign(delta.id, read_value=False)
        with tf.control_dependencies([loaded]):
            switch = self.current.assign(generation + 1, read_value=False)
        with tf.control_dependencies([switch]):
            return generation + 1

    def _put_dense(self, generation: tf.Tensor, values: list[tf.Tensor]) -> tf.Tensor:
        """Into those that requests do not read."""

        def assign(variables: list[tf.Variable]) -> tf.Tensor:
            assigned = [
                variable.assign(value, read_value=False)
                for variable, value in zip(variables, values, strict=True)
            ]
            with tf.control_dependencies(assigned):
                return tf.constant(True)

        return tf.cond(
            is_odd(generation), lambda: assign(self._dense), lambda: assign(self.odd_dense)
        )


def _cond_of_calls(
    pred: tf.Tensor,
    true_fn: Callable[[], list[tf.Tensor]],
    false_fn: Callable[[], list[tf.Tensor]],
) -> list[tf.Tensor]:
    """tf.cond in a function, whose branches are called.

    TensorFlow puts both branches into the graph instead: the executor then goes through all ops of
    the one that is not taken, which takes longer than a call where they are many. An `If` that is
    not taken apart would not do: TensorFlow wants all resources that it gets on one device.
    """
    attributes = {"_noinline": True}
    called = [
        tf.function(branch, autograph=False, experimental_attributes=attributes)
        for branch in (true_fn, false_fn)
    ]
    return tf.cond(pred, *called)


def _sizes(tensor: tf.Tensor) -> list[int | None]:
    return tensor.shape.as_list() if tensor.shape.rank is not None else []
