"""Deltas of an export while it answers: two generations of its tables, and requests that read one.

A request reads the number of the generation once, and all its lookups look in the indices of that
one. A delta is put into the other indices, and its rows where neither generation has any; then the
number changes. A request is computed again if two deltas began meanwhile: only the second one
touches what the request reads.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.serving.served_table import ServedTable, TableChanges

APPLY = "apply_delta"  # signature of an export
# Tensors of a delta, a TensorBundle; those of table i have "i/" before their names.
ID, CONTINUES = "id", "continues"


class ChangeTensor(NamedTuple):
    """A tensor of a delta, for each table."""

    name: str
    dtype: tf.DType | None  # None: of the table's values


CHANGES = (
    ChangeTensor("keys", tf.int64),
    ChangeTensor("values", None),
    ChangeTensor("removed_keys", tf.int64),
    ChangeTensor("is_full", tf.bool),
)


def new_id() -> str:
    """What tells an export or a delta from all others."""
    return uuid.uuid4().hex


class Generations(tf.Module):
    """Which generation of the tables of an export requests read.

    Attributes:
        loaded: ID of the export or of the last delta that was applied.
        current: Number of deltas applied: the generation that new requests read.
        begun: Number of deltas that were begun, current or current + 1.
        names: Of the tables, in the order in which deltas have them.
    """

    def __init__(self, tables: Sequence[ServedTable]) -> None:
        super().__init__()
        self._tables = list(tables)
        export_id = new_id()
        self._mutex_name = f"fused_embedding/{export_id}"
        self.loaded = tf.Variable(export_id, trainable=False, name="loaded")
        self.current = tf.Variable(0, trainable=False, dtype=tf.int64, name="current")
        self.begun = tf.Variable(0, trainable=False, dtype=tf.int64, name="begun")
        names = tf.constant([table.name for table in tables], tf.string)
        self.names = tf.Variable(names, trainable=False, name="names")

    def answer(
        self, compute: Callable[[tf.Tensor], list[tf.Tensor]], outputs: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Computes an answer from one generation.

        Args:
            compute: Called with the generation, int64 scalar.
            outputs: Of the shapes and types that it returns.

        Returns:
            What it returns.
        """

        def attempt(_: tf.Tensor, *__: tf.Tensor) -> list[tf.Tensor]:
            generation = self.current.read_value()
            results = compute(generation)
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

    def apply_function(self) -> Any:
        """The signature that applies a delta: `path` of its files -> `generation`."""

        @tf.function(input_signature=[tf.TensorSpec([], tf.string, name="path")], autograph=False)
        def apply_delta(path: tf.Tensor) -> dict[str, tf.Tensor]:
            mutex = tf.raw_ops.MutexV2(shared_name=self._mutex_name)
            lock = tf.raw_ops.MutexLock(mutex=mutex)  # one delta at a time
            with tf.control_dependencies([lock]):
                generation = self._apply(path)
            with tf.control_dependencies([generation]):
                tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
                return {"generation": tf.identity(generation)}

        return apply_delta.get_concrete_function()

    def _apply(self, path: tf.Tensor) -> tf.Tensor:
        generation = self.current.read_value()
        next_id, changes = self._read(path, generation)
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

    def _read(self, path: tf.Tensor, generation: tf.Tensor) -> tuple[tf.Tensor, list[TableChanges]]:
        """ID and content of a delta, after all that can be wrong with it was looked at."""
        is_whole = tf.debugging.assert_equal(
            self.begun.read_value(),
            generation,
            message="a delta was applied in part, as its process ran out of memory: load the "
            "export again, and apply all deltas",
        )
        next_id, continues = _restore(path, [ID, CONTINUES], [tf.string, tf.string])
        follows = tf.debugging.Assert(
            tf.equal(continues, self.loaded.read_value()),
            [
                "the delta ",
                path,
                " continues ",
                continues,
                ", but loaded is ",
                self.loaded.read_value(),
                ": apply those between them first, each once; where there are none, load a new "
                "export",
            ],
        )
        with tf.control_dependencies([is_whole, follows]):
            path = tf.identity(path)
        names = [f"{i}/{change.name}" for i in range(len(self._tables)) for change in CHANGES]
        dtypes = [change.dtype or table.rows.dtype for table in self._tables for change in CHANGES]
        tensors = _restore(path, names, dtypes)
        changes = [
            TableChanges(*tensors[i : i + len(CHANGES)])
            for i in range(0, len(tensors), len(CHANGES))
        ]
        return next_id, changes


def _sizes(tensor: tf.Tensor) -> list[int | None]:
    return tensor.shape.as_list() if tensor.shape.rank is not None else []


def _restore(path: tf.Tensor, names: list[str], dtypes: list[tf.DType]) -> list[tf.Tensor]:
    """Tensors of a bundle, of which TensorFlow compares the checksums."""
    return tf.raw_ops.RestoreV2(
        prefix=path, tensor_names=names, shape_and_slices=[""] * len(names), dtypes=dtypes
    )
