"""Features that are looked up as the batch has them: the columns make no ids of them one by one.

A categorical column transforms its features by several ops, and an embedding column asks it for the
resulting ids. `with_raw_features` puts in its place a column that answers with a `FeatureIds`: what
the features are, and how they become ids. One op then does it for all columns of a group.
"""

from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as fc_v2
from tensorflow.python.ops import lookup_ops

from fused_embedding.columns.sequences import ids_by_step
from fused_embedding.lookup.feature_ids import (
    DEFAULT_HASH_KEY,
    CrossRule,
    Feature,
    FeatureIds,
    KeyRule,
    ParsedIds,
    is_readable,
)
from fused_embedding.ops.placement import is_in_another_task


class _Batch(NamedTuple):
    """The features of a call.

    Attributes:
        cache: The `_LazyBuilder` or `FeatureTransformationCache` of the call.
        state_manager: Empty, or that of the call, for a `FeatureTransformationCache`.
    """

    cache: Any
    state_manager: tuple[Any, ...]

    def get(self, key: Any) -> Any:
        """What stock's columns get for a feature or column."""
        return self.cache.get(key, *self.state_manager)

    def readable(self, key: str) -> Any:
        """The feature if the op can read it, else None."""
        feature = self.cache._features.get(key)
        if feature is None:
            return None
        if not is_readable(feature) and not isinstance(feature, tf.RaggedTensor):
            feature = self.get(key)  # an array becomes a tensor
        if not is_readable(feature):
            return None
        return tf.convert_to_tensor(feature) if isinstance(feature, tf.Variable) else feature


def _hash_rule(column: Any) -> KeyRule:
    return KeyRule("hash", column.hash_bucket_size)


def _identity_rule(column: Any) -> KeyRule:
    default = column.default_value
    return KeyRule("identity", column.number_buckets, -1 if default is None else default)


def _hashed(column: Any, batch: _Batch) -> Feature | None:
    return _of_rule(column, batch, _hash_rule(column))


def _identity(column: Any, batch: _Batch) -> Feature | None:
    feature = batch.readable(column.key)
    if feature is None or feature.dtype == tf.string:
        return None  # stock has an error for it
    return Feature(feature, _identity_rule(column))


def _of_rule(column: Any, batch: _Batch, rule: KeyRule) -> Feature | None:
    feature = batch.readable(column.key)
    if feature is None or (feature.dtype == tf.string) != (column.dtype == tf.string):
        return None
    return Feature(feature, rule)


def _vocabulary(column: Any, batch: _Batch) -> Feature | None:
    feature = _of_rule(column, batch, KeyRule("vocabulary"))
    if feature is None:
        return None
    key_dtype = tf.int64 if column.dtype.is_integer else column.dtype
    table = _vocabulary_table(column, key_dtype, *batch.state_manager).resource_handle
    if is_in_another_task(table.device):
        return None
    rule = KeyRule("vocabulary", column.num_oov_buckets, column.default_value, table=table)
    return feature._replace(rule=rule)


def _vocabulary_table(column: Any, key_dtype: tf.DType, state_manager: Any = None) -> Any:
    """The lookup table of a column; a layer keeps it with its weights, as for stock's columns."""
    if isinstance(column, fc_v2.VocabularyFileCategoricalColumn):
        return column._make_table(key_dtype, state_manager)
    name = f"{column.key}_lookup"
    if state_manager is not None and state_manager.has_resource(column, name):
        return state_manager.get_resource(column, name)
    with tf.init_scope():
        table = lookup_ops.index_table_from_tensor(
            tuple(column.vocabulary_list),
            column.num_oov_buckets,
            column.default_value,
            dtype=key_dtype,
            name=name,
        )
    if state_manager is not None:
        state_manager.add_resource(column, name, table)
    return table


def _bucketized(column: Any, batch: _Batch) -> Feature | None:
    numbers = batch.get(column.source_column)
    if not is_readable(numbers, [tf.float32]) or not isinstance(numbers, tf.Tensor):
        return None
    boundaries = tuple(column.boundaries)
    return Feature(numbers, KeyRule("bucketized", len(boundaries) + 1, boundaries=boundaries))


# Of these types, and not of subclasses, whose methods may do something else.
_FEATURES = {
    fc_v2.HashedCategoricalColumn: _hashed,
    fc_v2.IdentityCategoricalColumn: _identity,
    fc_v2.VocabularyFileCategoricalColumn: _vocabulary,
    fc_v2.VocabularyListCategoricalColumn: _vocabulary,
    fc_v2.BucketizedColumn: _bucketized,
}


def _feature_of(column: Any, batch: _Batch) -> Feature | None:
    """The feature of a categorical column; None if the column must transform it itself."""
    if hasattr(type(column), "key_rule"):  # a type of this package
        feature = batch.readable(column.key)
        rule = None if feature is None else column.key_rule(feature.dtype == tf.string)
        return None if rule is None else Feature(feature, rule)
    make = _FEATURES.get(type(column))
    return make(column, batch) if make is not None else None


def _part_of_cross(key: Any, batch: _Batch) -> Feature | None:
    if not isinstance(key, str):
        return _feature_of(key, batch)
    feature = batch.readable(key)
    return None if feature is None else Feature(feature, KeyRule("cross_part"))


def _crossed(column: Any, batch: _Batch) -> FeatureIds | None:
    keys = fc_v2._collect_leaf_level_keys(column)
    parts = [_part_of_cross(key, batch) for key in keys]
    features = [part for part in parts if part is not None]
    if len(features) < len(keys):
        return None
    # Stock's cross takes the raw dense features last.
    features.sort(key=lambda f: f.layout == "dense" and f.rule.kind == "cross_part")
    hash_key = column.hash_key or DEFAULT_HASH_KEY
    return FeatureIds(tuple(features), CrossRule(column.hash_bucket_size, hash_key))


def key_of_parsed(key: str, rule: KeyRule) -> str:
    """Under what a batch has the ids that were made of a feature when its examples were parsed.

    Args:
        key: Of the feature.
        rule: How its values became ids.
    """
    return f"ids of {key!r} by {rule.kind}, {rule.num_buckets}, {rule.default_key}"


def rule_of_parsed(column: Any) -> KeyRule | None:
    """How the values of a column's one feature become ids; None: it takes more than a rule.

    Args:
        column: A categorical column.
    """
    if type(column) is fc_v2.HashedCategoricalColumn:
        return _hash_rule(column)
    if type(column) is fc_v2.IdentityCategoricalColumn:
        return _identity_rule(column)
    if vars(type(column)).get("takes_parsed_ids"):
        return column.key_rule(column.dtype == tf.string)
    return None


def _parsed(column: Any, batch: _Batch) -> FeatureIds | None:
    rule = rule_of_parsed(column)
    parsed = None
    if rule is not None:
        parsed = batch.cache._features.get(key_of_parsed(column.key, rule))
    return None if parsed is None else FeatureIds((), parsed=ParsedIds(*parsed))


def _ids_of(column: Any, batch: _Batch) -> FeatureIds | None:
    parsed = _parsed(column, batch)
    if parsed is not None:
        return parsed
    if type(column) is fc_v2.CrossedColumn:
        return _crossed(column, batch)
    feature = _feature_of(column, batch)
    return None if feature is None else FeatureIds((feature,))


class _Answering:
    """Stands for a categorical column, equal to it, whose ids are known."""

    def __init__(self, column: Any, ids: FeatureIds, weights: Any):
        self._column = column
        self._pair = fc_v2.CategoricalColumn.IdWeightPair(ids, weights)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._column, name)

    @property
    def __class__(self) -> type:  # for isinstance
        return type(self._column)

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise AttributeError("the class of a column cannot be changed")

    def __eq__(self, other: Any) -> bool:
        return bool(self._column == other)

    def __hash__(self) -> int:
        return hash(self._column)

    def get_sparse_tensors(self, *_: Any, **__: Any) -> Any:
        """What an embedding column of a layer asks for."""
        return self._pair

    _get_sparse_tensors = get_sparse_tensors  # what one of `input_layer` asks for


def with_raw_features(categorical: Any, cache: Any, *state_manager: Any) -> Any:
    """A categorical column that answers with a `FeatureIds` where one op can make its ids.

    Args:
        categorical: The categorical column whose ids are looked up.
        cache: The `_LazyBuilder` or `FeatureTransformationCache` of the call.
        *state_manager: That of the call, for a `FeatureTransformationCache`.

    Returns:
        A column that is equal to `categorical`; itself, if it must transform its features.
    """
    batch = _Batch(cache, state_manager)
    is_weighted = isinstance(categorical, fc_v2.WeightedCategoricalColumn)
    ids = _ids_of(categorical.categorical_column if is_weighted else categorical, batch)
    if ids is None:
        return categorical
    weights = None
    if is_weighted:
        weights = categorical._transform_weight_tensor(batch.get(categorical.weight_feature_key))
    return _Answering(categorical, ids, weights)


def make_ragged_features_sparse(cache: Any) -> None:
    """Converts the ragged features of a call, which stock's columns do not take.

    Args:
        cache: The `_LazyBuilder` or `FeatureTransformationCache` of the call.
    """
    features = cache._features  # a copy of the user's
    for key, feature in features.items():
        if isinstance(feature, tf.RaggedTensor):
            features[key] = feature.to_sparse()


def with_raw_sequences(categorical: Any, cache: Any, *state_manager: Any) -> Any:
    """`with_raw_features` for a sequence column, each step of which is looked up alone.

    Args:
        categorical: The sequence column whose ids are looked up.
        cache: The `_LazyBuilder` or `FeatureTransformationCache` of the call.
        *state_manager: That of the call, for a `FeatureTransformationCache`.

    Returns:
        A column that is equal to `categorical`; itself, if it must transform its feature.
    """
    if type(categorical) is not fc_v2.SequenceCategoricalColumn:
        return categorical
    feature = _feature_of(categorical.categorical_column, _Batch(cache, state_manager))
    # The id of a bucketized value depends on its place in the row, which a step does not keep.
    if feature is None or feature.rule.kind == "bucketized":
        return categorical
    return _Answering(categorical, ids_by_step(feature), None)
