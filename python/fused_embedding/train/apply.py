"""One optimizer step on EmbeddingVariables: gradients to their tables, rows updated in place."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.placement import on_cpu
from fused_embedding.ops.tf_private import colocate_with
from fused_embedding.train.collected import apply_in_turns


def pack_hyperparameters(values: Sequence[Any]) -> tf.Tensor:
    """Numbers, scalar tensors and variables as the `[h]` float64 tensor that a rule reads."""
    return tf.stack([tf.cast(value, tf.float64) for value in values])


def sum_duplicates(grad: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds the rows of a gradient that are for one key.

    Args:
        grad: `[n]` integer indices, `[n, dim]` values.

    Returns:
        `[m]` int64 distinct keys in order of first occurrence, `[m, dim]` sums of their rows.
    """
    with on_cpu():
        keys, key_idxs, counts = raw_ops.UniqueWithCountsV3(input=tf.cast(grad.indices, tf.int64))
        dtype = grad.values.dtype
        # 16-bit rows are summed in float32.
        rows = tf.cast(grad.values, tf.float32) if dtype.size == 2 else grad.values
        sums = tf.math.unsorted_segment_sum(rows, key_idxs, tf.size(counts))
        return keys, tf.cast(sums, dtype)


class _Lookup(NamedTuple):
    """Of what op the keys are: the handle of its table, and where the keys' rows are."""

    resource: tf.Tensor
    row_handles: tf.Tensor


def _lookups_of(keys: tf.Tensor) -> list[_Lookup]:
    """The lookups, in any table, of just these keys; none eagerly."""
    if tf.executing_eagerly() or not hasattr(keys, "graph"):
        return []
    lookups = [
        _Lookup(op.inputs[0], op.outputs[1])
        for op in keys.consumers()
        if op.type == "EmbeddingVariableLookup" and op.inputs[1] is keys
    ]
    first = _first_keys(keys.op)
    if first is not None:  # the op finds out what the keys are
        num_tables = keys.op.get_attr("num_tables")
        table = keys.value_index - first
        if 0 <= table < num_tables:
            row_handles = keys.op.outputs[first + num_tables + table]
            lookups.append(_Lookup(keys.op.inputs[table], row_handles))
    return lookups


def _first_keys(op: tf.Operation) -> int | None:
    """Which output of a lookup in several tables has the keys of the first; None: it is no such op.

    The keys of the others follow, and then the handles of their rows.
    """
    if op.type == "EmbeddingVariableGroupLookup":
        return int(op.get_attr("num_outputs"))
    return 2 if op.type == "EmbeddingVariableRemoteRows" else None


def _producing_lookup(resource: tf.Tensor, keys: tf.Tensor) -> _Lookup | None:
    """The one lookup in `resource` of just these keys, where the graph has it."""
    lookups = _lookups_of(keys)
    if lookups and hasattr(keys.graph, "capture"):  # a function has an outer handle as its argument
        resource = keys.graph.capture(resource)
    lookups = [lookup for lookup in lookups if lookup.resource is resource]
    # Of several, the step may need one alone, and must not run and count the others.
    return lookups[0] if len(lookups) == 1 else None


def with_distinct_keys(variable: Any, grad: tf.IndexedSlices) -> tf.IndexedSlices:
    """A gradient of an EmbeddingVariable with one row for each key: itself, if it has that."""
    if _producing_lookup(variable.handle, grad.indices) is not None:
        return grad
    keys, rows = sum_duplicates(grad)
    return tf.IndexedSlices(rows, keys, grad.dense_shape)


class TableUpdate(NamedTuple):
    """What a gradient does to one EmbeddingVariable.

    Attributes:
        variable: The EmbeddingVariable.
        grad: `[n]` keys and `[n, dim]` rows.
        rule: Name of a rule of the table: "adagrad".
        slot_prefix: Name of the optimizer, under which the table keeps its slots.
        hyperparameters: `[h]` float64, in the order of the rule.
    """

    variable: Any
    grad: tf.IndexedSlices
    rule: str
    slot_prefix: str
    hyperparameters: tf.Tensor


class _DistinctRows(NamedTuple):
    """A gradient as the op takes it."""

    keys: tf.Tensor
    row_handles: tf.Tensor
    grad: tf.Tensor


def _distinct_rows(update: TableUpdate) -> _DistinctRows:
    variable, grad = update.variable, update.grad
    lookup = _producing_lookup(variable.handle, grad.indices)
    with colocate_with(variable.handle):
        if lookup is None:
            keys, rows = sum_duplicates(grad)
            return _DistinctRows(keys, tf.zeros([0], tf.int64), tf.cast(rows, variable.dtype))
        rows = tf.cast(grad.values, variable.dtype)
        return _DistinctRows(grad.indices, lookup.row_handles, rows)


def _apply_group(updates: Sequence[TableUpdate]) -> tf.Operation | None:
    rows = [_distinct_rows(update) for update in updates]
    with colocate_with(updates[0].variable.handle):
        return raw_ops.EmbeddingVariableApply(
            resources=[update.variable.handle for update in updates],
            keys=[of_table.keys for of_table in rows],
            handles=[of_table.row_handles for of_table in rows],
            grads=[of_table.grad for of_table in rows],
            hyperparameters=[update.hyperparameters for update in updates],
            rule=updates[0].rule,
            slot_prefixes=[update.slot_prefix for update in updates],
        )


def apply_embedding_gradients(updates: Sequence[TableUpdate]) -> list[tf.Operation]:
    """Updates the rows of EmbeddingVariables that gradients name, and their slots.

    There is one op for all variables on a device that have a rule in common. A variable that has
    several gradients is updated by one after the other.

    Where a gradient's indices are the keys of one lookup, untouched, its row handles save the
    update from finding the rows again, and its keys are known to be distinct. Any other gradient
    (of two lookups, averaged over towers, accumulated) has its duplicates summed first.

    Args:
        updates: What to update.

    Returns:
        The updates; none eagerly, where they have happened.
    """
    for update in updates:
        if update.variable.check_rule is not None:
            update.variable.check_rule(update.rule)
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return _apply(updates)
    return _apply_for_all_replicas(updates)


def _apply(updates: Sequence[TableUpdate]) -> list[tf.Operation]:
    return apply_in_turns(updates, _kind_of, _apply_group)


def _kind_of(update: TableUpdate) -> Hashable:
    return update.rule, update.variable.option.storage_option.is_in_hbm


def _apply_for_all_replicas(updates: Sequence[TableUpdate]) -> list[tf.Operation]:
    """Updates each table once, by the gradients of all replicas: it has one copy."""

    def apply(strategy: tf.distribute.Strategy, grads: tuple[Any, ...]) -> list[tf.Operation]:
        of_replicas = [strategy.experimental_local_results(grad) for grad in grads]
        return _apply(
            [
                update._replace(grad=_concatenated(update.variable, slices))
                for update, slices in zip(updates, of_replicas, strict=True)
            ]
        )

    context = tf.distribute.get_replica_context()
    if context is None:
        raise RuntimeError(
            f"the EmbeddingVariable {updates[0].variable.name!r} was updated outside of the "
            "strategy's replicas; call apply_gradients in the function that strategy.run is given"
        )
    return context.merge_call(apply, args=(tuple(update.grad for update in updates),))


def _concatenated(variable: Any, slices: Sequence[tf.IndexedSlices]) -> tf.IndexedSlices:
    with colocate_with(variable.handle):
        return tf.IndexedSlices(
            tf.concat([one.values for one in slices], axis=0),
            tf.concat([one.indices for one in slices], axis=0),
            slices[0].dense_shape,
        )
