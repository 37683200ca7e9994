"""`get_embedding_variable`: EmbeddingVariables by name, like tf.compat.v1.get_variable."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.ops.dtypes import VALUE_DTYPES
from fused_embedding.ops.placement import placed_as_variable
from fused_embedding.ops.tf_private import global_seed
from fused_embedding.variable import created, strategies
from fused_embedding.variable.embedding_variable import EmbeddingVariable, Partition
from fused_embedding.variable.options import (
    EmbeddingVariableOption,
    as_integer,
    table_attributes,
)
from fused_embedding.variable.partitions import (
    AnyEmbeddingVariable,
    PartitionedEmbeddingVariable,
    parts_of,
)

EMBEDDING_VARIABLES = "embedding_variables"
"""Name of the collection with all EmbeddingVariables of a graph, as in DeepRec."""

PARTITION_STRATEGIES = ("hash", "mod_ev")
# The number of rows passed to partitioners: a table has none, and must not look small.
_ROWS_FOR_PARTITIONERS = 2**62
# The attribute of a graph with its EmbeddingVariables by name.
_STORE_ATTRIBUTE = "_fused_embedding_variables"


def get_embedding_variable(
    name: str,
    embedding_dim: int,
    key_dtype: Any = tf.int64,
    value_dtype: Any = tf.float32,
    initializer: Any = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    partitioner: Any = None,
    ev_option: EmbeddingVariableOption | None = None,
    partition_strategy: str = "hash",
) -> AnyEmbeddingVariable:
    """Makes an EmbeddingVariable, or returns the existing one of that name.

    In a graph, names, `reuse`, the default initializer and the default partitioner are those of the
    variable scope, as for tf.compat.v1.get_variable. Eagerly, each call makes a new variable.

    Args:
        name: Name in the variable scope.
        embedding_dim: Length of a row, > 0.
        key_dtype: tf.int64 or tf.int32.
        value_dtype: tf.float32, tf.float64, tf.float16 or tf.bfloat16.
        initializer: First value of a row; None: the scope's, or a truncated normal of standard
            deviation `1 / sqrt(embedding_dim)`. See docs/embedding_variable.md.
        trainable: Whether lookups insert keys, gradient tapes watch the variable and it is in
            TRAINABLE_VARIABLES.
        collections: Further graph collections to add the variable to. GLOBAL_VARIABLES is ignored,
            because TensorFlow reads the variables of that collection as dense tensors.
        partitioner: Called with the shape `[2^62, embedding_dim]`, for example
            tf.compat.v1.fixed_size_partitioner(2).
        ev_option: Filters, expiry, bounds, storage and more; None: the defaults.
        partition_strategy: How keys are assigned to partitions: "hash", or "mod_ev", DeepRec's.

    Returns:
        An EmbeddingVariable; with a partitioner a PartitionedEmbeddingVariable.

    Raises:
        ValueError: For a dim < 1, an unknown strategy, a name whose existence contradicts the
            scope's `reuse`, or an existing variable with other options.
        TypeError: For other dtypes, and a dim that is not an integer.

    >>> table = fe.get_embedding_variable("users", embedding_dim=4)
    >>> tf.nn.embedding_lookup(table, [7, 1 << 60]).shape
    TensorShape([2, 4])
    """
    key_dtype, value_dtype = tf.as_dtype(key_dtype), tf.as_dtype(value_dtype)
    embedding_dim = as_integer("embedding_dim", embedding_dim)
    _check(key_dtype, value_dtype, partition_strategy)
    option = ev_option or EmbeddingVariableOption()
    if not isinstance(option, EmbeddingVariableOption):
        raise TypeError(f"ev_option must be an fe.EmbeddingVariableOption, got {ev_option!r}")
    strategy = strategies.strategy_of_servers()
    with tf.init_scope():
        scope = tf.compat.v1.get_variable_scope()
        full_name = f"{scope.name}/{name}" if scope.name else name
        initializer = scope.initializer if initializer is None else initializer
        partitioner = partitioner or scope.partitioner
        if partitioner is None and strategy is not None:
            partitioner = strategies.partitioner_of(strategy)
        num_partitions = _num_partitions(partitioner, embedding_dim, value_dtype)
        attributes = table_attributes(
            option, initializer, full_name, _graph_seed(), embedding_dim, value_dtype
        )

        def make_part(index: int) -> EmbeddingVariable:
            part_name = full_name if num_partitions is None else f"{full_name}/part_{index}"
            with placed_as_variable(part_name), strategies.placed_by(strategy):
                return EmbeddingVariable(
                    part_name,
                    attributes,
                    option=option,
                    key_dtype=key_dtype,
                    trainable=trainable,
                    partition=Partition(full_name, index, num_partitions or 1, partition_strategy),
                )

        if tf.executing_eagerly():
            made = _make(full_name, num_partitions, make_part)
            created.announce_variable(parts_of(made))
            return made
        existing = _existing(full_name, scope.reuse)
        if existing is not None:
            _check_same(existing, attributes, key_dtype, num_partitions)
            return existing
        made = _make(full_name, num_partitions, make_part)
        _store()[full_name] = made
        _add_to_collections(made, trainable, collections)
        created.announce_variable(parts_of(made))
        return made


def _check(key_dtype: tf.DType, value_dtype: tf.DType, partition_strategy: str) -> None:
    if key_dtype not in (tf.int32, tf.int64):
        raise TypeError(
            f"key_dtype must be int64 or int32, got {key_dtype.name}; hash strings with "
            "tf.strings.to_hash_bucket_fast, or use fe.feature_column"
        )
    if value_dtype not in VALUE_DTYPES:
        names = ", ".join(dtype.name for dtype in VALUE_DTYPES)
        raise TypeError(f"value_dtype must be one of {names}, got {value_dtype.name}")
    if partition_strategy not in PARTITION_STRATEGIES:
        raise ValueError(
            f"partition_strategy of an EmbeddingVariable must be one of "
            f"{', '.join(PARTITION_STRATEGIES)}, got {partition_strategy!r}: it has no fixed rows"
        )


def _graph_seed() -> int | None:
    if tf.executing_eagerly():
        return global_seed()
    return tf.compat.v1.get_default_graph().seed


def _num_partitions(partitioner: Any, dim: int, dtype: tf.DType) -> int | None:
    if partitioner is None:
        return None
    shape = tf.TensorShape([_ROWS_FOR_PARTITIONERS, dim])
    rows, *others = partitioner(shape=shape, dtype=dtype)
    if rows < 1 or any(parts != 1 for parts in others):
        raise ValueError(
            f"partitioner returned {[rows, *others]} partitions along each axis, but only keys can "
            "be partitioned: return [n, 1]"
        )
    return int(rows)


def _make(full_name: str, num_partitions: int | None, make_part: Any) -> AnyEmbeddingVariable:
    if num_partitions is None:
        return make_part(0)
    parts = [make_part(i) for i in range(num_partitions)]
    return PartitionedEmbeddingVariable(full_name, parts)


def _store() -> dict[str, AnyEmbeddingVariable]:
    graph = tf.compat.v1.get_default_graph()
    if not hasattr(graph, _STORE_ATTRIBUTE):
        setattr(graph, _STORE_ATTRIBUTE, {})
    return getattr(graph, _STORE_ATTRIBUTE)


def _existing(full_name: str, reuse: Any) -> AnyEmbeddingVariable | None:
    """The variable `full_name` of this graph or None, checked against the scope's reuse."""
    existing = _store().get(full_name)
    if existing is None and reuse is True:
        raise ValueError(
            f"EmbeddingVariable {full_name!r} does not exist, but its variable scope has "
            "reuse=True; make it first, or use reuse=tf.compat.v1.AUTO_REUSE"
        )
    if existing is not None and not reuse:
        raise ValueError(
            f"EmbeddingVariable {full_name!r} already exists; use another name, or "
            "reuse=tf.compat.v1.AUTO_REUSE in its variable scope to share it"
        )
    return existing


def _check_same(
    existing: AnyEmbeddingVariable,
    attributes: dict[str, Any],
    key_dtype: tf.DType,
    num_partitions: int | None,
) -> None:
    """Checks that a variable is requested again with the same options."""
    is_partitioned = isinstance(existing, PartitionedEmbeddingVariable)
    parts = parts_of(existing)
    pairs: dict[str, tuple[Any, Any]] = {
        "key_dtype": (parts[0].key_dtype, key_dtype),
        "partitions": (len(parts) if is_partitioned else None, num_partitions),
    }
    for name, value in attributes.items():
        if name != "initializer_matrix":  # the same initializer gives the same matrix
            pairs[name] = (parts[0].table_attributes[name], value)
    different = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if different:
        differences = ", ".join(f"{k} {was!r} -> {now!r}" for k, (was, now) in different.items())
        raise ValueError(
            f"EmbeddingVariable {existing.name!r} exists with other options: {differences}; ask "
            "for it with the same ones"
        )


def _add_to_collections(
    made: AnyEmbeddingVariable, trainable: bool, collections: Sequence[str] | None
) -> None:
    keys = {EMBEDDING_VARIABLES, *(collections or ())} - {tf.compat.v1.GraphKeys.GLOBAL_VARIABLES}
    if trainable:
        keys.add(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    for key in sorted(keys):
        for part in parts_of(made):
            tf.compat.v1.add_to_collection(key, part)
