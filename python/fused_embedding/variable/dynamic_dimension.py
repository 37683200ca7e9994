"""`get_dynamic_dimension_embedding_variable`: frequent ids have longer rows than rare ones."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.variable.composed import ComposedTable, full_name, without_partitioner
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.options import (
    CounterFilter,
    EmbeddingVariableOption,
    as_integer,
)
from fused_embedding.variable.scope import AnyEmbeddingVariable, get_embedding_variable

FREQUENCY = "frequency"
# A bound that no number of occurrences reaches: a block that no key has.
NEVER = np.iinfo(np.int64).max


class DynamicEmbeddingVariable(ComposedTable):
    """A table whose rows consist of 0 to B blocks; the blocks that an id does not read are zero.

    Attributes:
        blocks: B EmbeddingVariables, one for each block, in order.
        bounds: `[B]` int64 variable: with `blocknums="frequency"` an id reads as many blocks as
            bounds are <= its number of occurrences; else None.
        compression_ratio: Mean share of the blocks that ids shall have after `update_bounds`, or
            None.
    """

    def __init__(
        self,
        name: str,
        blocks: list[AnyEmbeddingVariable],
        bounds: Any = None,
        compression_ratio: float | None = None,
    ) -> None:
        first = blocks[0]
        super().__init__(name, first.embedding_dim * len(blocks), first.dtype, first.trainable)
        self.blocks = blocks
        self.bounds = bounds
        self.compression_ratio = compression_ratio

    @property
    def block_dim(self) -> int:
        """Length of a block."""
        return self.blocks[0].embedding_dim

    def blocknum(self) -> int:
        """Number of blocks, by DeepRec's name."""
        return len(self.blocks)

    def mainev(self) -> AnyEmbeddingVariable:
        """The first block, by DeepRec's name."""
        return self.blocks[0]

    @property
    def _ev_list(self) -> list[AnyEmbeddingVariable]:
        return self.blocks

    def update_bounds(self) -> Any:
        """Sets the bounds so that ids have `compression_ratio` of the blocks on average.

        The occurrences of all ids seen so far decide, those without a row included. Call it every
        some thousand steps. A table without ids keeps its bounds. An id that is to read more
        blocks gets them at its next training lookup; blocks that it no longer reads stay stored.

        Returns:
            The operation, in a graph.

        Raises:
            ValueError: If the table was not made with `blocknums="frequency"`.
        """
        if self.bounds is None:
            raise ValueError(
                f"update_bounds of {self.name!r} was called, but its blocknums are the caller's; "
                f"make it with blocknums={FREQUENCY!r} and a compression_ratio"
            )
        counts = tf.concat([_occurrences(part) for part in _parts(self.mainev())], axis=0)
        shares = block_shares(self.blocknum(), self.compression_ratio)
        num_ids = tf.size(counts)
        ordered = tf.sort(counts, direction="DESCENDING")
        ranks = tf.cast(tf.constant(shares, tf.float64) * tf.cast(num_ids, tf.float64), tf.int32)
        found = tf.gather(
            tf.concat([ordered, tf.zeros([1], tf.int64)], axis=0), tf.maximum(ranks - 1, 0)
        )
        bounds = tf.where(ranks > 0, tf.maximum(found, 1), NEVER)
        bounds = tf.where(num_ids > 0, bounds, self.bounds.read_value())
        assigned = self.bounds.assign(bounds)
        return None if tf.executing_eagerly() else getattr(assigned, "op", assigned)


def _parts(variable: AnyEmbeddingVariable) -> list[EmbeddingVariable]:
    return [variable] if isinstance(variable, EmbeddingVariable) else list(variable)


def _occurrences(part: EmbeddingVariable) -> tf.Tensor:
    """`[n]` occurrences of all keys, of those that are not admitted too."""
    content = part.export_content()
    return tf.concat([content.frequencies, content.filtered_frequencies], axis=0)


def block_shares(num_blocks: int, compression_ratio: float | None) -> list[float]:
    """Share of the ids that have block k, for each k: falling by a constant factor.

    Args:
        num_blocks: Number of blocks, B.
        compression_ratio: Sum of the shares, divided by B; None: 0.5.

    Returns:
        `[B]` shares `(p^(B+1-k) - 1) / (p^(B+1) - 1)`, k = 1 .. B.

    Source: DeepRec's DIEN example, which finds p in [1.001, 1000] by bisection.
    """
    ratio = 0.5 if compression_ratio is None else compression_ratio

    def mean_share(p: float) -> float:
        return sum(_shares(num_blocks, p)) / num_blocks

    low, high = 1.001, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        # The greater p is, the fewer ids have a block.
        low, high = (middle, high) if mean_share(middle) > ratio else (low, middle)
    return _shares(num_blocks, low)


def _shares(num_blocks: int, p: float) -> list[float]:
    whole = p ** (num_blocks + 1) - 1
    return [(p ** (num_blocks + 1 - k) - 1) / whole for k in range(1, num_blocks + 1)]


def get_dynamic_dimension_embedding_variable(
    name: str,
    embedding_block_dimension: int,
    embedding_block_num: int,
    key_dtype: Any = tf.int64,
    value_dtype: Any = tf.float32,
    initializer: Any = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    partitioner: Any = None,
    ev_option: EmbeddingVariableOption | None = None,
    *,
    blocknums: str | None = None,
    compression_ratio: float | None = None,
) -> DynamicEmbeddingVariable:
    """Makes a table whose rows consist of up to B blocks: as many as each id is given.

    Block i is an EmbeddingVariable `NAME/block{i}`, in which an id gets a row when it is first
    looked up with more than i blocks. So rare ids take less memory. Lookups get `blocknums`, the
    number of blocks of each id, or the table decides by the occurrences that it counts.

    Args:
        name: Name in the variable scope.
        embedding_block_dimension: Length of a block, > 0.
        embedding_block_num: Number of blocks, B > 0.
        key_dtype: tf.int64 or tf.int32.
        value_dtype: tf.float32, tf.float64, tf.float16 or tf.bfloat16.
        initializer: First value of a block; None: the scope's, or a truncated normal of standard
            deviation `1 / sqrt(B * block dimension)`.
        trainable: Whether lookups insert keys and the blocks are trained.
        collections: Further graph collections to add the blocks to.
        partitioner: Of each block, as of `fe.get_embedding_variable`.
        ev_option: Options of each block.
        blocknums: None: each lookup says how many blocks an id reads. "frequency": as many as there
            are `bounds` of the table <= its occurrences; see `update_bounds`. The first block then
            counts ids by a filter of its own.
        compression_ratio: With "frequency": share of the blocks that ids have on average after
            `update_bounds`, in (0, 0.5]; None: 0.5.

    Returns:
        A table for the lookups of `fe.nn`.

    Raises:
        ValueError: For dimensions < 1, another `blocknums`, a ratio outside (0, 0.5] or without
            "frequency", and a filter in `ev_option` with "frequency".
        TypeError: See `fe.get_embedding_variable`.

    >>> table = fe.get_dynamic_dimension_embedding_variable(
    ...     "items", 2, 2, initializer=tf.ones_initializer())
    >>> ids = tf.sparse.from_dense([[7, 9]])
    >>> fe.nn.fused_safe_embedding_lookup_sparse(table, ids, blocknums=[2, 1]).numpy().tolist()
    [[1.0, 1.0, 0.5, 0.5]]
    """
    block_dim = as_integer("embedding_block_dimension", embedding_block_dimension)
    num_blocks = as_integer("embedding_block_num", embedding_block_num)
    option = ev_option or EmbeddingVariableOption()
    check_policy(name, blocknums, compression_ratio, option)
    is_counted = blocknums == FREQUENCY
    blocks = make_blocks(
        name,
        block_dim,
        num_blocks,
        option,
        is_counted=is_counted,
        key_dtype=key_dtype,
        value_dtype=value_dtype,
        initializer=initializer,
        trainable=trainable,
        collections=collections,
        partitioner=partitioner,
    )
    bounds = _make_bounds(f"{name}/bounds", num_blocks) if is_counted else None
    return DynamicEmbeddingVariable(full_name(name), blocks, bounds, compression_ratio)


def make_blocks(
    name: str,
    block_dim: int,
    num_blocks: int,
    option: EmbeddingVariableOption,
    *,
    is_counted: bool,
    initializer: Any = None,
    **arguments: Any,
) -> list[AnyEmbeddingVariable]:
    """The blocks of a table.

    Args:
        name: Of the table.
        block_dim: Length of a block.
        num_blocks: Number of blocks.
        option: Of each block.
        is_counted: Whether the table decides by its counts how many blocks an id reads.
        initializer: See `get_dynamic_dimension_embedding_variable`.
        **arguments: Further arguments of `get_embedding_variable`.

    Returns:
        EmbeddingVariables `NAME/block{i}`.
    """
    if initializer is None and tf.compat.v1.get_variable_scope().initializer is None:
        stddev = 1 / math.sqrt(block_dim * num_blocks)
        initializer = tf.compat.v1.truncated_normal_initializer(stddev=stddev)
    return [
        get_embedding_variable(
            f"{name}/block{i}",
            block_dim,
            initializer=initializer,
            ev_option=_counting(option) if is_counted and i == 0 else option,
            **arguments,
        )
        for i in range(num_blocks)
    ]


def first_bounds(num_blocks: int) -> np.ndarray:
    """`[num_blocks]` int64: the bounds of a new table."""
    return np.arange(1, num_blocks + 1, dtype=np.int64)


def _counting(option: EmbeddingVariableOption) -> EmbeddingVariableOption:
    """`option` with a filter that counts ids without a row; lookups say how often admits them."""
    return dataclasses.replace(option, filter_option=CounterFilter(filter_freq=2))


def _make_bounds(name: str, num_blocks: int) -> Any:
    with without_partitioner():
        return tf.compat.v1.get_variable(
            name,
            dtype=tf.int64,  # also where the scope reuses it
            initializer=first_bounds(num_blocks),
            trainable=False,
            use_resource=True,
        )


def check_policy(name: str, blocknums: Any, ratio: Any, option: EmbeddingVariableOption) -> None:
    """Checks who decides how many blocks an id reads.

    Args:
        name: Of the table.
        blocknums: See `get_dynamic_dimension_embedding_variable`.
        ratio: Its `compression_ratio`.
        option: Of each block.

    Raises:
        ValueError: See there.
    """
    if blocknums not in (None, FREQUENCY):
        raise ValueError(
            f"blocknums of {name!r} must be None or {FREQUENCY!r}, got {blocknums!r}; pass the "
            "numbers of ids to the lookup"
        )
    if blocknums is None:
        if ratio is not None:
            raise ValueError(
                f"compression_ratio = {ratio} of {name!r} needs blocknums={FREQUENCY!r}"
            )
        return
    if ratio is not None and not 0 < ratio <= 0.5:
        raise ValueError(
            f"compression_ratio of {name!r} must be in (0, 0.5], got {ratio}: shares that fall "
            "from block to block cannot have a greater mean"
        )
    if option.filter_option is not None:
        raise ValueError(
            f"ev_option of {name!r} has the filter {option.filter_option}, but with "
            f"blocknums={FREQUENCY!r} the bounds of the table decide which ids get a row; leave it "
            "out"
        )
