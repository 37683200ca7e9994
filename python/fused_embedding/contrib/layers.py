"""The sparse columns of tf.contrib.layers, with DeepRec's EmbeddingVariables and `do_fusion`.

For `tf.compat.v1` graphs. Variables have tf.contrib's names: `SCOPE/NAME_embedding/weights`.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.columns import api
from fused_embedding.columns.composed_api import dynamic_dimension_column
from fused_embedding.columns.fused_column import DoFusion
from fused_embedding.columns.keyed_column import (
    IntegerizedCategoricalColumn,
    categorical_column_of_table,
    sparse_tensors_of,
)
from fused_embedding.variable.dynamic_dimension import DynamicEmbeddingVariable
from fused_embedding.variable.inference import is_inference
from fused_embedding.variable.options import (
    CheckpointOption,
    EmbeddingVariableOption,
    GlobalStepEvict,
)

__all__ = [
    "UPDATE_BOUNDS",
    "embedding_column",
    "input_from_feature_columns",
    "sparse_column_with_dynamic_dimension_embedding",
    "sparse_column_with_embedding",
    "sparse_column_with_hash_bucket",
    "sparse_column_with_integerized_feature",
]

UPDATE_BOUNDS = "update_bounds"
"""Graph collection of operations, one for each dynamic-dimension column that is trained."""


def __dir__() -> list[str]:
    return sorted(__all__)


class SparseColumn(NamedTuple):
    """A feature of ids.

    Attributes:
        kind: What tf.contrib calls such a column; it comes before the name when columns are sorted.
        categorical_column: The same feature as a column of tf.feature_column.
        combiner: What a linear model does with the ids of a row; an embedding column has its own.
    """

    kind: str
    categorical_column: Any
    combiner: str = "sum"

    @property
    def name(self) -> str:
        """Key of the feature."""
        return self.categorical_column.name

    @property
    def length(self) -> int:
        """Number of ids that there can be."""
        return self.categorical_column.num_buckets


class EmbeddingColumn(NamedTuple):
    """A feature of ids as embeddings; `dense_column` does the work."""

    sparse_id_column: SparseColumn
    dense_column: Any

    @property
    def name(self) -> str:
        """Name of the column's scope."""
        return f"{self.sparse_id_column.name}_embedding"

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What columns are sorted by."""
        sparse, dense = self.sparse_id_column, self.dense_column
        return sparse.kind, sparse.name, dense.dimension, dense.combiner


def sparse_column_with_embedding(
    column_name: str,
    dtype: Any = tf.string,
    partition_num: int | None = None,
    steps_to_live: int | None = None,
    init_data_source: str | None = None,
    ht_partition_num: int = 1000,
    ev_option: EmbeddingVariableOption | None = None,
) -> SparseColumn:
    """A sparse column without a vocabulary: its embeddings are in an EmbeddingVariable.

    Args:
        column_name: Key of the feature.
        dtype: tf.string or an integer type; see
            `fused_embedding.feature_column.categorical_column_with_embedding`.
        partition_num: Number of parts that the table is divided into; None: one.
        steps_to_live: Short for `ev_option` with `GlobalStepEvict(steps_to_live)`.
        init_data_source: Not in this release; must be None.
        ht_partition_num: Accepted and ignored.
        ev_option: What the table does beside growing.

    Returns:
        A column for `embedding_column`.

    Raises:
        ValueError: If `steps_to_live` and an `ev_option` with an `evict_option` are given; see also
            `categorical_column_with_embedding`.
        NotImplementedError: If `init_data_source` is given.
    """
    option = ev_option or EmbeddingVariableOption(ht_partition_num=ht_partition_num)
    if init_data_source is not None:
        option = dataclasses.replace(
            option, ckpt=CheckpointOption(init_data_source=init_data_source)
        )
    option = _with_steps_to_live(option, steps_to_live)
    column = api.categorical_column_with_embedding(column_name, dtype, partition_num, option)
    return SparseColumn("_SparseColumnEmbedding", column)


def _with_steps_to_live(
    option: EmbeddingVariableOption, steps_to_live: int | None
) -> EmbeddingVariableOption:
    if not steps_to_live:
        return option
    if option.evict_option is not None:
        raise ValueError(
            f"steps_to_live = {steps_to_live} and ev_option with {option.evict_option} were "
            "given, which both say when keys leave; pass one of them"
        )
    return dataclasses.replace(option, evict_option=GlobalStepEvict(steps_to_live))


def sparse_column_with_dynamic_dimension_embedding(
    column_name: str,
    dtype: Any = tf.string,
    partition_num: int | None = None,
    steps_to_live: int | None = None,
    embedding_block_dimension: int | None = None,
    embedding_block_num: int | None = None,
    *,
    compression_ratio: float | None = None,
    ev_option: EmbeddingVariableOption | None = None,
) -> SparseColumn:
    """A sparse column without a vocabulary, in which frequent ids have longer rows than rare ones.

    An id reads as many blocks as there are bounds that its number of occurrences reaches; the
    others are zero. The bounds are 1, 2, ... at first. The operations in the graph collection
    `UPDATE_BOUNDS` set them by the counts: run them every some thousand steps.

    Args:
        column_name: Key of the feature.
        dtype: tf.string or an integer type; see
            `fused_embedding.feature_column.categorical_column_with_embedding`.
        partition_num: Number of parts that each block is divided into; None: one.
        steps_to_live: Short for `ev_option` with `GlobalStepEvict(steps_to_live)`.
        embedding_block_dimension: Length of a block, > 0.
        embedding_block_num: Number of blocks, > 0.
        compression_ratio: Share of the blocks that ids have on average after an update of the
            bounds, in (0, 0.5]; None: 0.5.
        ev_option: What the table of each block does beside growing.

    Returns:
        A column for `embedding_column`, whose `dimension` is that of all blocks. The variables are
        the EmbeddingVariables `weights/block0`, ..., and `weights/bounds`.

    Raises:
        ValueError: If a block dimension or number is < 1, for a `compression_ratio` outside
            (0, 0.5], a filter in `ev_option`, or two of `steps_to_live` and `evict_option`.
        TypeError: If a block dimension or number is not given.

    Source: DeepRec's documents; there users say how many blocks an id reads.
    """
    option = _with_steps_to_live(ev_option or EmbeddingVariableOption(), steps_to_live)
    column = dynamic_dimension_column(
        column_name,
        embedding_block_dimension,  # type: ignore[arg-type]  # checked
        embedding_block_num,  # type: ignore[arg-type]  # checked
        dtype,
        partition_num,
        option,
        compression_ratio,
    )
    return SparseColumn("_SparseColumnDynamicDimensionEmbedding", column)


def sparse_column_with_hash_bucket(
    column_name: str,
    hash_bucket_size: int,
    combiner: str = "sum",
    dtype: Any = tf.string,
    hash_keys: Any = None,
) -> SparseColumn:
    """A sparse column whose ids are the hash of the feature modulo a number.

    Args:
        column_name: Key of the feature.
        hash_bucket_size: Number of ids, > 1.
        combiner: What a linear model does with the ids of a row.
        dtype: tf.string or an integer type, whose decimal numbers are hashed.
        hash_keys: Of tf.contrib's hashed embeddings, which are not here; must be None.

    Returns:
        A column for `embedding_column`.

    Raises:
        ValueError: If `hash_bucket_size` or `dtype` is not one of the above.
        NotImplementedError: If `hash_keys` is given.

    Source: `tf.contrib.layers.sparse_column_with_hash_bucket` of TensorFlow 1.15.
    """
    if hash_keys is not None:
        raise NotImplementedError(
            f"hash_keys = {hash_keys} was given, but they are for hashed embeddings, which "
            "fe.contrib.layers does not have; leave it out"
        )
    column = tf.feature_column.categorical_column_with_hash_bucket(
        column_name, hash_bucket_size, tf.as_dtype(dtype)
    )
    return SparseColumn("_SparseColumnHashed", column, combiner)


def sparse_column_with_integerized_feature(
    column_name: str, bucket_size: int, combiner: str = "sum", dtype: Any = tf.int64
) -> SparseColumn:
    """A sparse column of integers, whose ids are the integers modulo a number.

    Args:
        column_name: Key of the feature.
        bucket_size: Number of ids, >= 1.
        combiner: What a linear model does with the ids of a row.
        dtype: An integer type.

    Returns:
        A column for `embedding_column`.

    Raises:
        ValueError: If `bucket_size` or `dtype` is not one of the above.

    Source: `tf.contrib.layers.sparse_column_with_integerized_feature` of TensorFlow 1.15.
    """
    dtype = tf.as_dtype(dtype)
    if not dtype.is_integer:
        raise ValueError(
            f"dtype of {column_name!r} must be an integer type, got {dtype.name}; use "
            "sparse_column_with_hash_bucket"
        )
    if not bucket_size >= 1:
        raise ValueError(f"bucket_size of {column_name!r} must be >= 1, got {bucket_size}")
    column = IntegerizedCategoricalColumn(column_name, bucket_size, dtype)
    return SparseColumn("_SparseColumnIntegerized", column, combiner)


def embedding_column(
    sparse_id_column: SparseColumn,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    do_fusion: DoFusion = None,
) -> EmbeddingColumn:
    """A column that embeds the ids of a sparse column.

    Args:
        sparse_id_column: One of the columns of this module.
        dimension: Length of an embedding.
        combiner: "sum", "mean" or "sqrtn" over the ids of a row.
        initializer: By default a truncated normal of standard deviation `1 / sqrt(number of ids)`,
            and `1 / sqrt(dimension)` for an EmbeddingVariable.
        ckpt_to_load_from: Checkpoint with the first values of the table.
        tensor_name_in_ckpt: Name of the table in `ckpt_to_load_from`.
        max_norm: Longer embeddings are scaled to this L2 norm before they are combined.
        trainable: Whether training changes the table.
        do_fusion: See `fused_embedding.feature_column.embedding_column`.

    Returns:
        A column for `input_from_feature_columns`.

    Raises:
        TypeError: If `sparse_id_column` is not one of this module.
        ValueError: If an argument is not one of the above.

    Source: `tf.contrib.layers.embedding_column` of TensorFlow 1.15.
    """
    if not isinstance(sparse_id_column, SparseColumn):
        raise TypeError(
            f"sparse_id_column must be made by fe.contrib.layers.sparse_column_..., got "
            f"{sparse_id_column!r}; for columns of tf.feature_column use fe.feature_column"
        )
    categorical_column = sparse_id_column.categorical_column
    if initializer is None and categorical_column_of_table(categorical_column) is None:
        stddev = 1.0 / math.sqrt(sparse_id_column.length)
        initializer = tf.compat.v1.truncated_normal_initializer(0.0, stddev)
    dense_column = api.embedding_column(
        categorical_column,
        dimension,
        combiner=combiner,
        initializer=initializer,
        ckpt_to_load_from=ckpt_to_load_from,
        tensor_name_in_ckpt=tensor_name_in_ckpt,
        max_norm=max_norm,
        trainable=trainable,
        do_fusion=do_fusion,
    )
    return EmbeddingColumn(sparse_id_column, dense_column)


def input_from_feature_columns(
    columns_to_tensors: Mapping[str, Any],
    feature_columns: Collection[EmbeddingColumn],
    weight_collections: list[str] | None = None,
    trainable: bool = True,
    scope: str | None = None,
) -> tf.Tensor:
    """The input of a network: the embeddings of all columns beside each other.

    Args:
        columns_to_tensors: Feature by key, `[num_rows, ...]` Tensors or SparseTensors.
        feature_columns: Columns of `embedding_column`, in any order: they are sorted by the kind of
            their sparse column, then by name.
        weight_collections: More collections for the variables.
        trainable: Whether the variables go into TRAINABLE_VARIABLES.
        scope: Name of the variable scope.

    Returns:
        `[num_rows, sum of dimensions]` float32.

    Raises:
        TypeError: If a column is not one of this module.

    Source: `tf.contrib.layers.input_from_feature_columns` of TensorFlow 1.15.
    """
    for column in feature_columns:
        if not isinstance(column, EmbeddingColumn):
            raise TypeError(
                "feature_columns must be made by fe.contrib.layers.embedding_column, got "
                f"{column!r}; for columns of tf.feature_column use its input_layer"
            )
    tensors = list(columns_to_tensors.values())
    outputs = []
    with tf.compat.v1.variable_scope(scope, "input_from_feature_columns", tensors):
        for column in sorted(set(feature_columns), key=lambda column: column.key):
            with tf.compat.v1.variable_scope(None, column.name, tensors):
                sparse_tensors = sparse_tensors_of(
                    column.dense_column.categorical_column, columns_to_tensors
                )
                weights = _weights(column.dense_column, weight_collections or [], trainable)
                _collect_update(weights)
                outputs.append(
                    column.dense_column._get_dense_tensor_internal_helper(sparse_tensors, weights)
                )
        return tf.concat(outputs, axis=1)


def _collect_update(table: Any) -> None:
    """Puts the operation that updates the bounds of a table into its collection."""
    if isinstance(table, DynamicEmbeddingVariable) and table.trainable and not is_inference():
        tf.compat.v1.add_to_collection(UPDATE_BOUNDS, table.update_bounds())


def _weights(column: Any, weight_collections: list[str], trainable: bool) -> Any:
    """The table of a column, under tf.contrib's name."""
    options = {"initializer": column.initializer, "trainable": trainable and column.trainable}
    keys = tf.compat.v1.GraphKeys
    collections = {*weight_collections, keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES}
    categorical_column = categorical_column_of_table(column.categorical_column)
    if categorical_column is not None:
        return categorical_column.make_table(
            "weights", column.dimension, collections=sorted(collections), **options
        )
    return tf.compat.v1.get_variable(
        "weights",
        [column.categorical_column.num_buckets, column.dimension],
        tf.float32,
        collections=sorted(collections),
        **options,
    )
