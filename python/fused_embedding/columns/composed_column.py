"""Categorical columns over tables of several parts: multi-hash, dynamic dimension, adaptive."""

from collections import namedtuple
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as fc_v2
from tensorflow.python.feature_column import serialization

from fused_embedding.columns.keyed_column import (
    EmbeddingVariableCategoricalColumn,
    TableCategoricalColumn,
    partitioner_of,
)
from fused_embedding.variable.adaptive import AdaptiveEmbeddingVariable, make_hash_weights
from fused_embedding.variable.composed import full_name
from fused_embedding.variable.dynamic_dimension import (
    FREQUENCY,
    get_dynamic_dimension_embedding_variable,
)
from fused_embedding.variable.multihash import MultiHashVariable, make_parts

_VARIABLE = "embedding_weights"
_MultiHashFields = namedtuple(
    "_MultiHashFields",
    ("key", "dims", "operation", "dtype", "partition_num", "is_deeprecs", "row_dims"),
    defaults=(None,),
)
_DynamicDimensionFields = namedtuple(
    "_DynamicDimensionFields",
    ("key", "dtype", "partition_num", "ev_option", "block_dim", "num_blocks", "compression_ratio"),
)
_AdaptiveFields = namedtuple(
    "_AdaptiveFields", ("key", "dtype", "partition_num", "ev_option", "hash_bucket_size")
)


@serialization.register_feature_column
class MultiHashCategoricalColumn(_MultiHashFields, TableCategoricalColumn):
    """See `fused_embedding.feature_column.categorical_column_with_multihash`.

    `dims` are the rows of the two parts, `row_dims` the lengths of their rows, or None before an
    embedding column says them. With `is_deeprecs`, quotients are by `q_rows`, and parts are
    combined before the operation.
    """

    is_shareable = False

    def with_dimension(self, dimension: Any) -> tuple[Any, int]:
        """The column with the lengths of its parts' rows, and the length of an embedding.

        Args:
            dimension: That of an embedding column: a number, or one for each part.

        Raises:
            ValueError: If it does not suit the operation.
        """
        is_concat = self.operation == "concat"
        row_dims = _row_dims(dimension, is_concat=is_concat)
        if row_dims is None:
            wanted = "(d_q, d_r)" if is_concat else "a number, or two equal ones,"
            raise ValueError(
                f"dimension of column {self.key!r}, whose operation is {self.operation!r}, must be "
                f"{wanted} > 0, got {dimension!r}"
            )
        return self._replace(row_dims=row_dims), sum(row_dims) if is_concat else row_dims[0]

    def make_table(self, name: str, dim: int, **arguments: Any) -> Any:
        """A MultiHashVariable with the variables NAME_q and NAME_r."""
        parts = make_parts(
            [f"{name}_q", f"{name}_r"],
            list(zip(self.dims, self.row_dims, strict=True)),
            dtype=tf.float32,
            partitioner=partitioner_of(self.partition_num),
            use_resource=True,
            **arguments,
        )
        return MultiHashVariable(
            full_name(name),
            parts,
            self.operation,
            divisor=self.dims[0 if self.is_deeprecs else 1],
            modulus=self.dims[1],
            pools_first=self.is_deeprecs,
        )

    def get_config(self) -> dict[str, Any]:
        """The fields, as JSON."""
        return {**self._asdict(), "dtype": self.dtype.name}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None, columns_by_name: Any = None
    ) -> Any:
        """The column of `get_config`."""
        pairs = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
        return cls(**{**pairs, "dtype": tf.as_dtype(config["dtype"])})


def _row_dims(dimension: Any, *, is_concat: bool) -> tuple[int, int] | None:
    """The lengths of the rows of two parts; None where `dimension` does not say them."""
    dims = np.asarray(dimension)
    if dims.shape == () and not is_concat:
        dims = np.repeat(dims, 2)
    is_pair = dims.shape == (2,) and np.issubdtype(dims.dtype, np.integer) and dims.min() > 0
    if not is_pair or (dims[0] != dims[1] and not is_concat):
        return None
    return int(dims[0]), int(dims[1])


@serialization.register_feature_column
class AdaptiveCategoricalColumn(  # type: ignore[misc]
    _AdaptiveFields,  # its fields, not those of the next class
    EmbeddingVariableCategoricalColumn,
):
    """See `fused_embedding.feature_column.categorical_column_with_adaptive_embedding`."""

    is_shareable = False

    def make_table(self, name: str, dim: int, **arguments: Any) -> Any:
        """An AdaptiveEmbeddingVariable of `ev_weights` and `hash_weights`."""
        prefix = name.removesuffix(_VARIABLE)
        own = super().make_table(f"{prefix}ev_weights", dim, **arguments)
        shared = make_hash_weights(
            f"{prefix}hash_weights", [self.hash_bucket_size, dim], tf.float32, **arguments
        )
        return AdaptiveEmbeddingVariable(full_name(name), shared, own, self.hash_bucket_size)


@serialization.register_feature_column
class DynamicDimensionCategoricalColumn(  # type: ignore[misc]
    _DynamicDimensionFields,  # its fields, not those of the next class
    EmbeddingVariableCategoricalColumn,
):
    """See `fe.contrib.layers.sparse_column_with_dynamic_dimension_embedding`."""

    is_shareable = False

    def with_dimension(self, dimension: Any) -> tuple[Any, int]:
        """The column, and the length of all blocks.

        Args:
            dimension: That of an embedding column.

        Raises:
            ValueError: If it is another.
        """
        whole = self.block_dim * self.num_blocks
        if dimension != whole:
            raise ValueError(
                f"dimension of column {self.key!r}, which has {self.num_blocks} blocks of "
                f"{self.block_dim}, must be {whole}, got {dimension!r}"
            )
        return self, whole

    def make_table(self, name: str, dim: int, **arguments: Any) -> Any:
        """A DynamicEmbeddingVariable that decides by its counts."""
        return get_dynamic_dimension_embedding_variable(
            name,
            self.block_dim,
            self.num_blocks,
            partitioner=partitioner_of(self.partition_num),
            ev_option=self.ev_option,
            blocknums=FREQUENCY,
            compression_ratio=self.compression_ratio,
            **arguments,
        )


def with_dimension(categorical_column: Any, dimension: Any) -> tuple[Any, Any]:
    """A categorical column and a dimension as stock's embedding column takes them.

    Args:
        categorical_column: Any, maybe a column with a table in a weighted one.
        dimension: The user's.

    Returns:
        A column, and an integer where it is a multi-hash column.
    """
    if isinstance(categorical_column, TableCategoricalColumn):
        return categorical_column.with_dimension(dimension)
    if isinstance(categorical_column, fc_v2.WeightedCategoricalColumn):
        inner, dimension = with_dimension(categorical_column.categorical_column, dimension)
        return categorical_column._replace(categorical_column=inner), dimension
    return categorical_column, dimension


def adaptive_keys(columns: Any) -> list[str]:
    """The keys of the adaptive columns among embedding columns.

    Args:
        columns: Dense columns.
    """
    keys = []
    for column in columns:
        while hasattr(column, "categorical_column"):
            column = column.categorical_column
        if isinstance(column, AdaptiveCategoricalColumn):
            keys.append(column.key)
    return keys
