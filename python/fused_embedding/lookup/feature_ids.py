"""Ids that are yet to be made of raw features: one op makes those of all columns of a group."""

import itertools
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.ids import SparseIds, with_own_rows
from fused_embedding.ops import raw_ops
from fused_embedding.ops.placement import device_of_op
from fused_embedding.ops.tf_private import control_flow_context

# The types of features that the op reads; of floats it makes buckets.
FEATURE_DTYPES = (tf.int32, tf.int64, tf.string)

# What stock's crosses start their hashes with if the column says nothing.
DEFAULT_HASH_KEY = 0xDECAFCAFFE


class KeyRule(NamedTuple):
    """What a column makes of a value.

    Attributes:
        kind: "identity", the value itself; "index", so, but `num_buckets` is added to a negative
            value; "hash", the fingerprint of a string, or of the decimal
            text of an integer, modulo `num_buckets`; "vocabulary", what `table` has for the value;
            "bucketized", the number of `boundaries` up to the value, plus `num_buckets` for each
            place in front of it in its row; "cross_part", what a cross hashes.
        num_buckets: Number of ids, at least 1. Of "vocabulary", the number of ids behind those of
            the table for values that it does not have, maybe 0.
        default_key: Of "identity", the id of values outside `[0, num_buckets)`; negative: such a
            value is an id. Of "vocabulary" without buckets, the id of values that it does not have.
        boundaries: Of "bucketized", ascending.
        table: Of "vocabulary", the handle of a lookup table to int64.
    """

    kind: Literal["identity", "index", "hash", "vocabulary", "bucketized", "cross_part"]
    num_buckets: int = 1
    default_key: int = -1
    boundaries: tuple[float, ...] = ()
    table: tf.Tensor | None = None


class CrossRule(NamedTuple):
    """How the values of several features become one id.

    Attributes:
        num_buckets: Number of ids, at least 1.
        hash_key: What the hash starts with.
    """

    num_buckets: int
    hash_key: int = DEFAULT_HASH_KEY


class Feature(NamedTuple):
    """A feature of a batch, and the rule by which its values become ids.

    Attributes:
        tensor: A dense feature, `[num_rows]` or `[num_rows, width]`, in which "" and -1 are places
            without a value unless the rule is "cross_part"; or a SparseTensor or RaggedTensor of
            rank 2. int32, int64 or string, and float32 for "bucketized".
        rule: How a value becomes an id.
        is_full: Whether each place of a dense feature has a value, "" and -1 among them.
    """

    tensor: tf.Tensor | tf.SparseTensor | tf.RaggedTensor
    rule: KeyRule
    is_full: bool = False

    @property
    def layout(self) -> Literal["dense", "full", "sparse", "ragged"]:
        """What kind of tensor the feature is."""
        if isinstance(self.tensor, tf.SparseTensor):
            return "sparse"
        if isinstance(self.tensor, tf.RaggedTensor):
            return "ragged"
        return "full" if self.is_full else "dense"

    @property
    def components(self) -> list[tf.Tensor]:
        """The tensors that the feature consists of."""
        tensors: list[tf.Tensor] = tf.nest.flatten(self.tensor, expand_composites=True)
        return tensors

    @property
    def values(self) -> tf.Tensor:
        """The feature's values."""
        return self.tensor if self.layout in ("dense", "full") else self.tensor.values


class _ShapeTensor:
    """Stands for a tensor with the shape of ids, and adds no op to a graph."""

    def __init__(self, rank: int):
        self._rank = rank

    def get_shape(self) -> tf.TensorShape:
        """The shape of a shape, as that of a tensor."""
        return tf.TensorShape([self._rank])


class ParsedIds(NamedTuple):
    """Ids that the op made which parsed examples.

    Attributes:
        ids: `[nnz]` int64.
        rows: `[nnz]` int64 example of each.
        dense_shape: `[2]` int64 number of examples, and of the ids of the one with most.
    """

    ids: tf.Tensor
    rows: tf.Tensor
    dense_shape: tf.Tensor


class FeatureIds(NamedTuple):
    """Ids that are yet to be made: the features of a column.

    Attributes:
        features: One; those of a cross, of which each combination of values in a row is an id; none
            of ids that are parsed.
        cross: How several features become one id, or None.
        weights: `[nnz]` weight of each id, or None.
        name: What errors call the ids.
        leading_shape: `[2]` int64 rows and steps of sequences, whose steps are the rows of
            `features`; else None.
        static_leading_shape: What is known of `leading_shape` when the graph is built.
        lengths: `[num_rows]` int64 length of each sequence, or None.
        is_own: See `SparseIds`.
        shared: What makes the shared rows of the ids in an adaptive table; None: their own hashes.
        parsed: The ids, if they are there already.
    """

    features: tuple[Feature, ...]
    cross: CrossRule | None = None
    weights: tf.Tensor | None = None
    name: str = "ids"
    leading_shape: tf.Tensor | None = None
    static_leading_shape: tf.TensorShape | None = None
    lengths: tf.Tensor | None = None
    is_own: tf.Tensor | None = None
    shared: "FeatureIds | None" = None
    parsed: ParsedIds | None = None

    @property
    def _rank(self) -> int:
        return 2 if self.leading_shape is None else 3

    @property
    def dense_shape(self) -> "_ShapeTensor":
        """What feature columns ask for the rank of ids."""
        return _ShapeTensor(self._rank)

    @property
    def shape(self) -> tf.TensorShape:
        """That of ids, as a SparseTensor has it."""
        return tf.TensorShape([None] * self._rank)

    @property
    def sparse_tensors(self) -> list[tf.SparseTensor]:
        """Those of the features that are sparse."""
        return [feature.tensor for feature in self.features if feature.layout == "sparse"]

    @property
    def sparse(self) -> tf.SparseTensor | None:
        """The one feature of the column, if it is sparse: it says where the ids are."""
        return next(iter(self.sparse_tensors), None) if self.cross is None else None


def is_readable(feature: Any, dtypes: Sequence[tf.DType] = FEATURE_DTYPES) -> bool:
    """Whether one op makes ids of such a feature.

    Args:
        feature: What a batch has for a column.
        dtypes: The types of values that are.

    Returns:
        False for another dtype or rank, and for what is no tensor.
    """
    if not tf.is_tensor(feature) or feature.dtype not in dtypes:
        return False
    is_dense = isinstance(feature, tf.Tensor | tf.Variable)
    return feature.shape.rank == 2 or (is_dense and feature.shape.rank == 1)


def is_none(feature: tf.Tensor) -> tf.Tensor:
    """Which places of a dense feature hold "" or -1, and so no value; bool of the same shape."""
    return tf.equal(feature, tf.constant("" if feature.dtype == tf.string else -1, feature.dtype))


def make_ids(columns: Sequence[FeatureIds]) -> list[SparseIds]:
    """Makes the ids of several columns; those that its graph has already are used again.

    A wide and a deep part, or two layers, mostly have the same columns.

    Args:
        columns: Their features.

    Returns:
        The ids of each, whose `indices` are `[nnz]` rows where no sparse feature has them.
    """
    made = _made_in_graph()
    where = () if tf.executing_eagerly() else (device_of_op(), control_flow_context())
    identities = [(_identity(column), where) for column in columns]
    made.update(
        (identity, _Made(column.parsed.ids, column.parsed[1:], (column.parsed,)))
        for identity, column in zip(identities, columns, strict=True)
        if column.parsed is not None
    )
    missing = {
        identity: column
        for identity, column in zip(identities, columns, strict=True)
        if identity not in made
    }
    if missing:
        made.update(zip(missing, _make(list(missing.values())), strict=True))
    ids = []
    for column, identity in zip(columns, identities, strict=True):
        keys, place, _ = made[identity]
        leading = (column.leading_shape, column.static_leading_shape)
        of_column = SparseIds(keys, *place, column.weights, *leading, name=column.name)
        is_own = column.is_own
        ids.append(of_column if is_own is None else with_own_rows(of_column, is_own))
    return ids


class _Made(NamedTuple):
    """Ids that a graph has.

    Attributes:
        keys: `[nnz]`.
        place: The row of each, or `[nnz, 2]` indices, and `[2]` dense shape.
        sources: What they are made of, which keeps the tensors that `_identity` names by their id.
    """

    keys: tf.Tensor
    place: tuple[tf.Tensor, tf.Tensor]
    sources: tuple[Feature | ParsedIds, ...]


def _made_in_graph() -> dict[Any, _Made]:
    """The ids that the current graph has; none eagerly."""
    if tf.executing_eagerly():
        return {}
    graph = tf.compat.v1.get_default_graph()
    if not hasattr(graph, "_fe_ids"):
        graph._fe_ids = {}
    made: dict[Any, _Made] = graph._fe_ids
    return made


def _identity(column: FeatureIds) -> Hashable:
    """What the ids of a column depend on."""
    features = [
        (
            *map(id, feature.components),
            feature.is_full,
            feature.rule._replace(table=None),
            id(feature.rule.table),
        )
        for feature in column.features
    ]
    parsed = () if column.parsed is None else tuple(map(id, column.parsed))
    return tuple(features), column.cross, parsed


def _make(columns: Sequence[FeatureIds]) -> list[_Made]:
    num_placed = sum(column.sparse is None for column in columns)
    result = raw_ops.FusedEmbeddingColumnKeys(
        **_features([feature for column in columns for feature in column.features]),
        **_crosses(columns),
        Tkeys=[tf.int64] * len(columns),
        Trows=[tf.int64] * num_placed,
        column_names=[column.name for column in columns],
    )
    placed = zip(result.rows, result.dense_shapes, strict=True)
    made = []
    for column, keys in zip(columns, result.keys, strict=True):
        sparse = column.sparse
        place = next(placed) if sparse is None else (sparse.indices, sparse.dense_shape)
        made.append(_Made(keys, place, column.features))
    return made


def _features(features: list[Feature]) -> dict[str, Any]:
    """The arguments of the op that are lists of features."""
    rules = [feature.rule for feature in features]
    kinds, num_buckets, default_keys, boundaries, tables = zip(*rules, strict=True)
    ragged = [feature.tensor for feature in features if feature.layout == "ragged"]
    return {
        "values": [feature.values for feature in features],
        "row_splits": [tf.cast(tensor.row_splits, tf.int64) for tensor in ragged],
        "tables": [table for table in tables if table is not None],
        "layouts": [feature.layout for feature in features],
        "kinds": kinds,
        "num_buckets": num_buckets,
        "default_keys": default_keys,
        "boundaries": list(itertools.chain(*boundaries)),
    }


def _crosses(columns: Sequence[FeatureIds]) -> dict[str, Any]:
    """The arguments that are lists of crosses, and where the sparse features of crosses are."""
    crossed = [column for column in columns if column.cross is not None]
    if not crossed:
        return {"sparse_indices": [], "sparse_shapes": []}
    num_buckets, hash_keys = zip(*(column.cross for column in crossed), strict=True)
    sparse = [tensor for column in crossed for tensor in column.sparse_tensors]
    return {
        "num_parts": [len(column.features) for column in columns],
        "cross_num_buckets": num_buckets,
        "hash_keys": hash_keys,
        "sparse_indices": [tensor.indices for tensor in sparse],
        "sparse_shapes": [tensor.dense_shape for tensor in sparse],
    }
