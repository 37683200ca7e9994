"""The content of an EmbeddingVariable as tensors: what a name-based checkpoint holds.

One set of tensors for a whole variable, in ascending order of keys, however many partitions it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.tf_private import colocate_with

if TYPE_CHECKING:
    from fused_embedding.variable.embedding_variable import EmbeddingVariable

# Tensors of one element for each row, and for each key that a filter counts.
_ROW_COLUMNS = ("keys", "values", "slots", "frequencies", "versions")
_FILTER_COLUMNS = ("filtered_keys", "filtered_frequencies", "filtered_versions")
_SLOT_COLUMNS = ("slot_names", "slot_widths", "slot_initials")
_INITIALIZER_COLUMNS = ("initializer", "initializer_parameters", "seed", "initializer_matrix")
_STRING_COLUMNS = ("slot_names", "initializer", "bloom_layout")
_DOUBLE_COLUMNS = ("slot_initials", "initializer_parameters")
# `bloom` is `[partitions, counters]`; `bloom_layout` says what else its counters depend on.
CONTENT_NAMES = (
    *_ROW_COLUMNS,
    *_FILTER_COLUMNS,
    *_SLOT_COLUMNS,
    *_INITIALIZER_COLUMNS,
    "step",
    "bloom",
    "bloom_layout",
)


def content_dtypes(variable: EmbeddingVariable) -> dict[str, tf.DType]:
    """Type of each tensor of a variable's content."""
    dtypes = {name: tf.int64 for name in CONTENT_NAMES}
    dtypes |= {name: tf.string for name in _STRING_COLUMNS}
    dtypes |= {name: tf.float64 for name in _DOUBLE_COLUMNS}
    dtypes |= {name: variable.dtype for name in ("values", "initializer_matrix")}
    return dtypes | {"slots": variable.slot_dtype, "bloom": tf.uint8}


def expire_before_save(parts: Sequence[EmbeddingVariable]) -> list[tf.Tensor]:
    """Removes what GlobalStepEvict and L2WeightEvict say; nothing without them."""
    option = parts[0].option
    if option.steps_to_live <= 0 and option.l2_weight_threshold <= 0:
        return []
    return [part.expire() for part in parts]


def export_whole(parts: Sequence[EmbeddingVariable]) -> dict[str, tf.Tensor]:
    """Content of a variable in any number of partitions, after what expires is gone.

    Args:
        parts: All partitions.

    Returns:
        A tensor for each of CONTENT_NAMES.
    """
    with tf.control_dependencies(expire_before_save(parts)):
        exported = [part.export_content()._asdict() for part in parts]
    # All partitions have the same initializer.
    whole = {name: exported[0][name] for name in _INITIALIZER_COLUMNS}
    whole["step"] = tf.reduce_max([part["step"] for part in exported])
    whole["bloom"] = tf.stack([part["bloom"] for part in exported])
    whole["bloom_layout"] = tf.constant(bloom_layout(parts[0]))
    if len(parts) == 1:
        names = (*_ROW_COLUMNS, *_FILTER_COLUMNS, *_SLOT_COLUMNS)
        return whole | {name: exported[0][name] for name in names}
    slots = _all_slots(exported)
    for part in exported:
        part["slots"] = _with_all_slots(part, slots)
    return whole | slots | _merge(exported, _ROW_COLUMNS) | _merge(exported, _FILTER_COLUMNS)


def import_whole(parts: Sequence[EmbeddingVariable], content: Mapping[str, tf.Tensor]) -> Any:
    """Replaces the content of all partitions by that of `export_whole`; each keeps its keys.

    Args:
        parts: All partitions.
        content: A tensor for each of CONTENT_NAMES.

    Returns:
        The operation; None eagerly.
    """
    return _group([_import_part(part, content) for part in parts])


def _group(operations: Sequence[tf.Operation | None]) -> tf.Operation | None:
    made = [operation for operation in operations if operation is not None]
    return tf.group(*made) if made else None


def _import_part(part: EmbeddingVariable, content: Mapping[str, tf.Tensor]) -> tf.Operation | None:
    columns = {name: content[name] for name in CONTENT_NAMES if name != "bloom_layout"}
    index = part.partition.index
    bloom = tf.reshape(content["bloom"][index : index + 1], [-1])
    fits = tf.equal(content["bloom_layout"], bloom_layout(part))
    columns["bloom"] = bloom[: tf.where(fits, tf.size(bloom), 0)]
    columns |= _first_values(part, content)
    with colocate_with(part.handle):
        return raw_ops.EmbeddingVariableImport(
            resource=part.handle,
            partition_index=index,
            num_partitions=part.partition.count,
            partition_strategy=part.partition.strategy,
            **columns,
        )


def _first_values(
    part: EmbeddingVariable, content: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """How rows start: as saved, or, where that is "" (of another program's table), as before."""
    attributes = part.table_attributes
    bounds = [attributes["initializer_a"], attributes["initializer_b"]]
    own = {
        "initializer": tf.constant(attributes["initializer"]),
        "initializer_parameters": tf.constant(
            np.array(bounds, np.float32), tf.float64
        ),  # as in the op
        "seed": tf.constant(attributes["seed"], tf.int64),
    }
    is_own = tf.equal(content["initializer"], "")
    columns = {name: tf.where(is_own, value, content[name]) for name, value in own.items()}
    saved, matrix = content["initializer_matrix"], attributes["initializer_matrix"].reshape(-1)
    own_values = tf.cast(matrix, part.dtype)[: tf.where(is_own, len(matrix), 0)]
    # Of another dim, what was saved is left for the op to refuse.
    dim = tf.where(is_own, attributes["dim"], tf.shape(saved)[1])
    values = tf.concat([tf.reshape(saved, [-1]), own_values], axis=0)
    columns["initializer_matrix"] = tf.reshape(values, [-1, dim])
    return columns


def bloom_layout(part: EmbeddingVariable) -> str:
    """What must be the same for counters of a Bloom filter to mean the same: "" without one."""
    attributes = part.table_attributes
    if attributes["admission"] != "bloom":
        return ""
    names = ("seed", "bloom_counters", "bloom_hashes", "min_frequency", "max_capacity")
    values = [f"{name} {attributes[name]}" for name in names]
    return ", ".join([*values, f"{part.partition.count} partitions by {part.partition.strategy}"])


def _all_slots(exported: list[dict[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
    """The slots that any partition has: its optimizers made them in any order, or not yet."""
    joined = {name: tf.concat([part[name] for part in exported], axis=0) for name in _SLOT_COLUMNS}
    names, index = tf.unique(joined.pop("slot_names"))

    def of_each(column: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_max(column, index, tf.size(names))

    return {"slot_names": names} | {name: of_each(column) for name, column in joined.items()}


def _with_all_slots(part: dict[str, tf.Tensor], slots: dict[str, tf.Tensor]) -> tf.Tensor:
    """`[n, w]` numbers of a partition in the order of `slots`; first ones for what it has not."""
    widths = slots["slot_widths"]
    is_same = tf.equal(slots["slot_names"][:, None], part["slot_names"][None, :])
    has_slot = tf.reduce_any(is_same, axis=1)
    starts = tf.concat([tf.cumsum(part["slot_widths"], exclusive=True), [0]], axis=0)
    which = tf.argmax(tf.concat([is_same, ~has_slot[:, None]], axis=1), axis=1)
    # Positions in the partition's numbers, followed by a row of first ones.
    total, width = tf.reduce_sum(widths), tf.shape(part["slots"], out_type=tf.int64)[1]
    offset = tf.range(total) - tf.repeat(tf.cumsum(widths, exclusive=True), widths)
    own = tf.repeat(tf.gather(starts, which), widths) + offset
    position = tf.where(tf.repeat(has_slot, widths), own, width + tf.range(total))
    first = tf.cast(tf.repeat(slots["slot_initials"], widths), part["slots"].dtype)
    rows = tf.concat([part["slots"], tf.tile(first[None], [tf.size(part["keys"]), 1])], axis=1)
    return tf.gather(rows, position, axis=1)


def _merge(exported: list[dict[str, tf.Tensor]], names: Sequence[str]) -> dict[str, tf.Tensor]:
    """Columns of all partitions, in ascending order of the first."""
    columns = {name: tf.concat([part[name] for part in exported], axis=0) for name in names}
    order = tf.argsort(columns[names[0]])
    return {name: tf.gather(column, order) for name, column in columns.items()}
