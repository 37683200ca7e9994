"""What reads of tables share: the keys, the step they count at, and the refusal of dense reads."""

from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.placement import on_cpu

# Where a graph keeps its read of the global step: a dictionary of ours would keep graphs alive.
_STEP_ATTRIBUTE = "_fused_embedding_global_step"


def as_keys(ids: Any) -> tf.Tensor:
    """Integers as int64.

    Raises:
        TypeError: If they are not int32 or int64.
    """
    keys = tf.convert_to_tensor(ids)
    if keys.dtype not in (tf.int32, tf.int64):
        raise TypeError(
            f"keys must be int32 or int64, got {keys.dtype.name}; hash strings with "
            "tf.strings.to_hash_bucket_fast"
        )
    return tf.cast(keys, tf.int64)


def read_keys(
    indices: Any,
    dim: int,
    look_up: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    name: str | None,
) -> tf.Tensor:
    """The rows of keys of any shape, of which each is looked up once.

    Args:
        indices: Integers.
        dim: Length of a row.
        look_up: Maps `[n]` int64 distinct keys, and `[n]` int32 how often each occurs, to
            `[n, dim]` rows.
        name: Name of the result.

    Returns:
        Their shape with `dim` appended.
    """
    indices = tf.convert_to_tensor(indices)
    keys = tf.reshape(tf.cast(indices, tf.int64), [-1])
    with on_cpu():
        unique = raw_ops.UniqueWithCountsV3(input=keys)
    rows = tf.gather(look_up(unique.unique_keys, unique.unique_counts), unique.unique_idxs)
    result = tf.reshape(rows, tf.concat([tf.shape(indices), [dim]], axis=0), name=name)
    result.set_shape(indices.shape.concatenate([dim]))
    return result


def global_step_value() -> tf.Tensor:
    """The global step as an int64 scalar, or -1 where there is none: one read for each graph."""
    if tf.executing_eagerly():
        return tf.constant(-1, tf.int64)
    graph = tf.compat.v1.get_default_graph()
    value = getattr(graph, _STEP_ATTRIBUTE, None)
    if value is not None:
        return value
    step = tf.compat.v1.train.get_global_step(graph)
    with tf.control_dependencies(None), tf.name_scope(""):  # outside any loop or branch
        if step is None:  # one may still be made
            return tf.constant(-1, tf.int64)
        value = tf.cast(tf.identity(step), tf.int64)
    setattr(graph, _STEP_ATTRIBUTE, value)
    return value


def refuse_dense(name: str) -> NoReturn:
    """Says what to do instead of reading or assigning a table as one dense tensor."""
    raise NotImplementedError(
        f"EmbeddingVariable {name!r} was read or assigned as one dense tensor, but it has no fixed "
        "rows: look keys up with fe.nn.safe_embedding_lookup_sparse, "
        "fe.nn.embedding_lookup_sparse or tf.nn.embedding_lookup, read it with export(), set rows "
        "with upsert(); tf.recompute_grad and tf.custom_gradient read each variable that their "
        "function uses: look keys up outside of it"
    )
