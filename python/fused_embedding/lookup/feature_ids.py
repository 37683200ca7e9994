"""Ids that are yet to be made of raw features: one op makes those of all columns of a group."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.ids import SparseIds
from fused_embedding.ops import raw_ops

# The types of features that the op reads.
FEATURE_DTYPES = (tf.int32, tf.int64, tf.string)


class KeyRule(NamedTuple):
    """What a column makes of a value.

    Attributes:
        kind: "identity", the value itself; "hash", the fingerprint of a string, or of the decimal
            text of an integer, modulo `num_buckets`.
        num_buckets: Number of ids, at least 1.
        default_key: The id of values outside `[0, num_buckets)`; negative: such a value is an id.
            Of "identity" only.
    """

    kind: Literal["identity", "hash"]
    num_buckets: int
    default_key: int = -1


class _ShapeOfMatrix:
    """Stands for a tensor with the shape of a matrix, and adds no op to a graph."""

    def get_shape(self) -> tf.TensorShape:
        """The shape of a shape, as that of a tensor."""
        return tf.TensorShape([2])


class FeatureIds(NamedTuple):
    """A feature of a batch, and the rule by which it becomes ids.

    Attributes:
        feature: A dense feature, `[num_rows]` or `[num_rows, width]`, in which "" and -1 are places
            without a value; or a SparseTensor or RaggedTensor of rank 2. int32, int64 or string.
        rule: How a value becomes an id.
        weights: `[nnz]` weight of each id, or None.
        name: What errors call the ids.
    """

    feature: tf.Tensor | tf.SparseTensor | tf.RaggedTensor
    rule: KeyRule
    weights: tf.Tensor | None = None
    name: str = "ids"

    @property
    def dense_shape(self) -> "_ShapeOfMatrix":
        """What feature columns ask for the rank of ids."""
        return _ShapeOfMatrix()

    @property
    def shape(self) -> tf.TensorShape:
        """That of a matrix, as a SparseTensor has it."""
        return tf.TensorShape([None, None])

    @property
    def leading_shape(self) -> None:
        """None, as that of a `SparseIds` of rank 2."""
        return None

    @property
    def layout(self) -> Literal["dense", "sparse", "ragged"]:
        """What kind of tensor the feature is."""
        if isinstance(self.feature, tf.SparseTensor):
            return "sparse"
        return "ragged" if isinstance(self.feature, tf.RaggedTensor) else "dense"

    @property
    def values(self) -> tf.Tensor:
        """The feature's values."""
        return self.feature if self.layout == "dense" else self.feature.values


def is_readable(feature: Any) -> bool:
    """Whether one op makes ids of such a feature.

    Args:
        feature: What a batch has for a column.

    Returns:
        False for another dtype or rank, and for what is no tensor.
    """
    if not tf.is_tensor(feature) or feature.dtype not in FEATURE_DTYPES:
        return False
    is_dense = isinstance(feature, tf.Tensor)
    return feature.shape.rank == 2 or (is_dense and feature.shape.rank == 1)


def make_ids(features: Sequence[FeatureIds]) -> list[SparseIds]:
    """Makes the ids of several columns.

    Args:
        features: The features.

    Returns:
        The ids of each, whose `indices` are `[nnz]` rows where the feature is not sparse.
    """
    layouts = [column.layout for column in features]
    ragged = [column.feature for column in features if column.layout == "ragged"]
    kinds, num_buckets, default_keys = zip(*(column.rule for column in features), strict=True)
    result = raw_ops.FusedEmbeddingColumnKeys(
        values=[column.values for column in features],
        row_splits=[tf.cast(feature.row_splits, tf.int64) for feature in ragged],
        Tkeys=[tf.int64] * len(features),
        Trows=[tf.int64] * (len(features) - layouts.count("sparse")),
        layouts=layouts,
        kinds=kinds,
        num_buckets=num_buckets,
        default_keys=default_keys,
        column_names=[column.name for column in features],
    )
    placed = zip(result.rows, result.dense_shapes, strict=True)
    ids = []
    for column, keys in zip(features, result.keys, strict=True):
        if column.layout == "sparse":
            indices, dense_shape = column.feature.indices, column.feature.dense_shape
        else:
            indices, dense_shape = next(placed)
        ids.append(SparseIds(keys, indices, dense_shape, column.weights, name=column.name))
    return ids
