"""Features that are looked up as the batch has them: the columns make no ids of them one by one.

A categorical column transforms its feature by several ops, and keeps the result in the cache of a
call of `input_layer` or of a layer. While lookups are recorded, the cache has a `FeatureIds` in
place of that result: what the feature is, and how it becomes ids. One op then does it for all
columns.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as fc_v2

from fused_embedding.lookup.feature_ids import FeatureIds, KeyRule, is_readable


def _rule_of_hashed(column: Any, is_text: bool) -> KeyRule | None:
    if is_text != (column.dtype == tf.string):
        return None  # stock has an error for it
    return KeyRule("hash", column.hash_bucket_size)


def _rule_of_identity(column: Any, is_text: bool) -> KeyRule | None:
    if is_text:
        return None
    default = column.default_value
    return KeyRule("identity", column.number_buckets, -1 if default is None else default)


# Of these types, and not of subclasses, whose methods may do something else.
_RULES = {
    fc_v2.HashedCategoricalColumn: _rule_of_hashed,
    fc_v2.IdentityCategoricalColumn: _rule_of_identity,
}


def key_rule(column: Any, dtype: tf.DType) -> KeyRule | None:
    """How a categorical column makes an id of a value.

    Args:
        column: A categorical column. A type of this package has a method `key_rule`.
        dtype: That of the feature.

    Returns:
        The rule; None if the column must transform the feature itself.
    """
    is_text = dtype == tf.string
    if hasattr(type(column), "key_rule"):
        return column.key_rule(is_text)
    rule = _RULES.get(type(column))
    return rule(column, is_text) if rule is not None else None


def _feature_ids(column: Any, cache: Any, get: Any) -> FeatureIds | None:
    feature = cache._features.get(getattr(column, "key", None))
    if feature is None:
        return None
    if not is_readable(feature) and not isinstance(feature, tf.RaggedTensor):
        feature = get(column.key)  # an array becomes a tensor
    if not is_readable(feature):
        return None
    rule = key_rule(column, feature.dtype)
    return None if rule is None else FeatureIds(feature, rule)


@contextlib.contextmanager
def raw_feature(categorical: Any, cache: Any, *state_manager: Any) -> Iterator[None]:
    """A column's lookup gets a `FeatureIds` where one op can make the ids of its feature.

    Args:
        categorical: The categorical column whose ids are looked up.
        cache: The `_LazyBuilder` or `FeatureTransformationCache` of the call.
        *state_manager: That of the call, for a `FeatureTransformationCache`.

    Yields:
        Nothing.
    """
    is_weighted = isinstance(categorical, fc_v2.WeightedCategoricalColumn)

    def get(key: str) -> Any:
        return cache.get(key, *state_manager)

    ids = _feature_ids(categorical.categorical_column if is_weighted else categorical, cache, get)
    if ids is None:
        yield
        return
    result: Any = ids
    if is_weighted:
        result = ids, categorical._transform_weight_tensor(get(categorical.weight_feature_key))
    # Other columns of the call, such as an indicator of this one, get what they always got.
    transformed = cache._feature_tensors
    before = transformed.pop(categorical, None)
    transformed[categorical] = result
    try:
        yield
    finally:
        del transformed[categorical]
        if before is not None:
            transformed[categorical] = before
