"""Serialized examples as the batch of feature columns: one op parses them and makes ids.

The values of a feature that a column hashes, or takes as ids, become no tensor. Those of other
columns are parsed by the same op as `fe.io.parse_example` parses them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column as fc_v1
from tensorflow.python.feature_column import feature_column_v2 as fc_v2

from fused_embedding.columns.fused_column import FusedEmbeddingColumn, fuse
from fused_embedding.columns.groups import is_turned_off
from fused_embedding.columns.raw_features import ParsedFeature, rule_of_parsed
from fused_embedding.input.contexts import reason_for_stock
from fused_embedding.input.parsing import WantedKeys, parse_example, parse_keys
from fused_embedding.lookup.fusion_check import as_check

# Of features, whose integers the op reads as they are.
_DTYPES = (tf.int64, tf.string)


def features_for(
    features: Mapping[str, Any] | None, serialized: Any, feature_columns: Iterable[Any] | None
) -> tuple[Mapping[Any, Any], list[Any]]:
    """The batch of a call, which has features or serialized examples, and its columns.

    Args:
        features: Tensors by feature key, or None.
        serialized: `[num_examples]` strings, or None.
        feature_columns: Dense columns.

    Returns:
        Features by key, and by `ParsedFeature` those whose ids are made; and the columns.

    Raises:
        ValueError: If both or neither are given, there are no columns, two columns want a feature
            in different ways, or `serialized` is known to be no vector.
    """
    if (features is None) == (serialized is None):
        given = "neither" if features is None else "both"
        raise ValueError(
            f"input_layer needs features, a dict of tensors, or serialized, a vector of "
            f"tf.train.Examples, but {given} of them were given"
        )
    if feature_columns is None:
        raise ValueError("input_layer needs feature_columns, dense columns, but none were given")
    columns = fc_v1._normalize_feature_columns(feature_columns)
    if features is not None:
        return features, columns
    serialized = tf.convert_to_tensor(serialized, tf.string, name="serialized")
    if serialized.shape.rank not in (1, None):
        raise ValueError(
            f"serialized must be a vector of examples, got shape {serialized.shape}; "
            "tf.expand_dims(serialized, 0) makes a batch of one example"
        )
    return _parsed(serialized, columns), columns


def _parsed(serialized: tf.Tensor, columns: list[Any]) -> dict[Any, Any]:
    spec = fc_v1.make_parse_example_spec(columns)
    if reason_for_stock() is not None:
        return parse_example(serialized, spec)
    wanted: dict[ParsedFeature, WantedKeys] = {}
    others: dict[str, Any] = {}
    for column in columns:
        of_column = fc_v1.make_parse_example_spec([column])
        feature = _feature_by_rule(column)
        if feature is not None and of_column[feature.key].dtype in _DTYPES:
            dtype = of_column.pop(feature.key).dtype
            wanted[feature] = WantedKeys(feature.key, dtype, *feature.rule[:3])
        others |= of_column
    keys, features = parse_keys(serialized, list(wanted.values()), others)
    return {**features, **dict(zip(wanted, keys, strict=True))}


def _feature_by_rule(column: Any) -> ParsedFeature | None:
    """The feature of an embedding column and how its values become ids, where that is all."""
    column = fuse(column, "v3")
    if not isinstance(column, FusedEmbeddingColumn) or is_turned_off(column):
        return None
    if as_check(column.do_fusion) is not None:
        return None
    categorical = column.categorical_column
    if isinstance(categorical, fc_v2.WeightedCategoricalColumn):
        categorical = categorical.categorical_column
    rule = rule_of_parsed(categorical)
    return None if rule is None else ParsedFeature(categorical.key, rule)
