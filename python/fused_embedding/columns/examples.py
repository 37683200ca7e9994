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
from fused_embedding.columns.raw_features import key_of_parsed, rule_of_parsed
from fused_embedding.input import parsing
from fused_embedding.input.contexts import reason_for_stock
from fused_embedding.input.parsing import WantedKeys
from fused_embedding.lookup.feature_ids import KeyRule, ParsedIds
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
        Features by key, and by `key_of_parsed` those whose ids are made; and the columns.

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
    return _parsed(serialized, columns), columns


def parse_example(serialized: Any, feature_columns: Iterable[Any]) -> dict[str, Any]:
    """Parses the features of columns, and makes their ids, ahead of `input_layer`.

    For the function of `tf.data.Dataset.map`: ids are made beside the training step, by as many
    threads as the dataset has, in the order of the examples.

    Args:
        serialized: `[num_examples]` serialized `tf.train.Example` messages.
        feature_columns: Dense columns, and categorical ones of a `linear_model`.

    Returns:
        What `fe.feature_column.input_layer` takes as `features`, with the same dense columns, and
        `linear_model` with the categorical ones. Of an embedding column that hashes, takes integer
        ids or is without a vocabulary: the ids and their rows, and no tensor of the feature. Of
        others: the feature, as `fe.io.parse_example` parses it.

    Raises:
        ValueError: If there are no columns, two columns want a feature in different ways, or
            `serialized` is known to be no vector.
        tf.errors.InvalidArgumentError: If an example cannot be parsed: as of `fe.io.parse_example`.

    >>> user = tf.feature_column.categorical_column_with_hash_bucket("user", 1000)
    >>> columns = [tf.feature_column.embedding_column(user, 4)]
    >>> feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"ann"]))
    >>> example = tf.train.Example(features=tf.train.Features(feature={"user": feature}))
    >>> with tf.Graph().as_default():
    ...     rows = tf.data.Dataset.from_tensors([example.SerializeToString()])
    ...     rows = rows.map(lambda row: fe.feature_column.parse_example(row, columns))
    ...     features = tf.compat.v1.data.make_one_shot_iterator(rows).get_next()
    ...     inputs = fe.feature_column.input_layer(features, columns)
    >>> inputs.shape
    TensorShape([None, 4])
    """
    return _parsed(serialized, fc_v1._normalize_feature_columns(feature_columns))


def _parsed(serialized: Any, columns: list[Any]) -> dict[str, Any]:
    serialized = tf.convert_to_tensor(serialized, tf.string, name="serialized")
    if serialized.shape.rank not in (1, None):
        raise ValueError(
            f"serialized must be a vector of examples, got shape {serialized.shape}; "
            "tf.expand_dims(serialized, 0) makes a batch of one example"
        )
    spec = fc_v1.make_parse_example_spec(columns)
    if reason_for_stock() is not None:
        return parsing.parse_example(serialized, spec)
    wanted: dict[str, WantedKeys] = {}
    others: dict[str, Any] = {}
    for column in columns:
        of_column = fc_v1.make_parse_example_spec([column])
        key, rule = _feature_by_rule(column)
        if rule is not None and of_column[key].dtype in _DTYPES:
            dtype = of_column.pop(key).dtype
            wanted[key_of_parsed(key, rule)] = WantedKeys(key, dtype, *rule[:3])
        others |= of_column
    keys, features = parsing.parse_keys(serialized, list(wanted.values()), others)
    ids = {key: ParsedIds(*of_feature) for key, of_feature in zip(wanted, keys, strict=True)}
    return {**features, **ids}


def _feature_by_rule(column: Any) -> tuple[str, KeyRule | None]:
    """The feature of an embedding column and how its values become ids, where that is all."""
    column = fuse(column, "v3")
    if not isinstance(column, FusedEmbeddingColumn) or is_turned_off(column):
        return "", None
    if as_check(column.do_fusion) is not None:
        return "", None
    categorical = column.categorical_column
    if isinstance(categorical, fc_v2.WeightedCategoricalColumn):
        categorical = categorical.categorical_column
    rule = rule_of_parsed(categorical)
    return ("", None) if rule is None else (categorical.key, rule)
