"""Exports of fused ops: requests that hold a lock together, and deltas that hold it alone.

It is the lock of the first table, for all of them: two models that are loaded have two tables.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.serving.applied_deltas import (
    AppliedDeltas,
    Delta,
    DeltaTable,
    DenseVariable,
)
from fused_embedding.variable.embedding_variable import EmbeddingVariable


class LockedTables(AppliedDeltas):
    """The EmbeddingVariables of an export, which requests read and deltas change in turns.

    Args:
        tables: Of the export.
        dense: Dense variables of the export.
        places: Where the model keeps the tables; None: not known.
        are_counted: Of each table, whether requests read how often keys have occurred. There are
            no deltas of such an export: what puts one in has no counts.
    """

    def __init__(
        self,
        tables: Sequence[EmbeddingVariable],
        dense: Sequence[DenseVariable],
        places: Sequence[str] | None,
        are_counted: Sequence[bool],
    ) -> None:
        described = [
            DeltaTable(
                table.name.removesuffix(":0"),
                table.embedding_dim,
                table.dtype,
                int(raw_ops.EmbeddingVariableSeed(resource=table.handle)),
                place,
                is_counted=is_counted,
            )
            for table, place, is_counted in zip(
                tables, places or [""] * len(tables), are_counted, strict=True
            )
        ]
        super().__init__(described, dense)
        self._handles = tuple(table.handle for table in tables)

    def answer(
        self,
        compute: Callable[[dict[str, tf.Tensor]], list[tf.Tensor]],
        given: Mapping[str, Any],
    ) -> list[tf.Tensor]:
        """Computes an answer while no delta is put in.

        Args:
            compute: Called with what stands for `given` while the lock is held.
            given: All that it computes from: tensors, handles and variables, which are read then.

        Returns:
            What it returns.
        """
        lock = raw_ops.EmbeddingVariableServingLock(resource=self._handles[0])
        # Each of them: a function is inlined, and its ops begin as soon as their inputs are there.
        with tf.control_dependencies([lock]):
            held = {name: tf.identity(value) for name, value in given.items()}
        results = compute(held)
        raw_ops.EmbeddingVariableServingUnlock(lock=lock, results=results)
        return results

    def _dense_values(self, generation: tf.Tensor) -> list[tf.Tensor]:
        return [variable.read_value() for variable in self._dense]

    def _put(self, generation: tf.Tensor, delta: Delta) -> tf.Tensor:
        parts = zip(*delta.changes, strict=True)
        keys, values, removed_keys, is_full, _ = (list(of_tables) for of_tables in parts)
        put = raw_ops.EmbeddingVariableServingChange(
            resources=list(self._handles),
            keys=keys,
            values=values,
            removed_keys=removed_keys,
            is_full=is_full,
            variables=[v.handle for v in (self.loaded, self.current, *self._dense)],
            new_values=[delta.id, generation + 1, *delta.dense],
        )
        with tf.control_dependencies([put]):
            return generation + 1
