"""Serialized examples as the input of an `EmbeddingGroup`: how each feature is parsed."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.input.contexts import reason_for_stock
from fused_embedding.input.parsing import WantedKeys, parse_example, parse_keys
from fused_embedding.lookup.feature_ids import ParsedIds

_FEATURES: dict[str, Any] = {
    "VarLenFeature": tf.io.VarLenFeature,
    "FixedLenFeature": tf.io.FixedLenFeature,
    "RaggedFeature": tf.io.RaggedFeature,
}


def check_examples(features: Mapping[str, Any], examples: Any) -> dict[str, Any]:
    """The constructor's `examples`, after a check.

    Args:
        features: Of the layer, by name.
        examples: What was given.

    Raises:
        ValueError: If a feature of the layer is not parsed, or one in another way than the layer
            can write to a file.
    """
    if not isinstance(examples, Mapping) or set(examples) != set(features):
        given = sorted(examples) if isinstance(examples, Mapping) else examples
        raise ValueError(
            f"examples must say how each of the features {sorted(features)} is parsed, as a "
            f"dictionary of tf.io.VarLenFeature and others, got {given!r}"
        )
    for name, feature in examples.items():
        is_partitioned = bool(getattr(feature, "partitions", ()))
        if type(feature).__name__ not in _FEATURES or is_partitioned:
            raise ValueError(
                f"examples[{name!r}] must be a tf.io.VarLenFeature, a FixedLenFeature or a "
                f"RaggedFeature without partitions, got {feature!r}"
            )
    return dict(examples)


def examples_to_config(examples: Mapping[str, Any] | None) -> Any:
    """`examples` as JSON."""
    if examples is None:
        return None
    return {
        name: {
            "kind": type(feature).__name__,
            "dtype": tf.as_dtype(feature.dtype).name,
            "shape": list(getattr(feature, "shape", ())),
            "default": _as_json(getattr(feature, "default_value", None)),
            "value_key": getattr(feature, "value_key", None),
        }
        for name, feature in examples.items()
    }


def _as_json(default: Any) -> Any:
    if default is None:
        return None
    values = np.asarray(default).tolist()
    return tf.nest.map_structure(lambda v: v.decode() if isinstance(v, bytes) else v, values)


def examples_from_config(config: Any) -> dict[str, Any] | None:
    """The `examples` of `examples_to_config`."""
    if config is None:
        return None
    return {name: _feature_of(dict(of_feature)) for name, of_feature in config.items()}


def _feature_of(config: dict[str, Any]) -> Any:
    dtype = tf.as_dtype(config["dtype"])
    if config["kind"] == "FixedLenFeature":
        return tf.io.FixedLenFeature(config["shape"], dtype, config["default"])
    if config["kind"] == "RaggedFeature":
        return tf.io.RaggedFeature(dtype, config["value_key"])
    return tf.io.VarLenFeature(dtype)


def parse_inputs(
    serialized: Any, examples: Mapping[str, Any], rule_of: Callable[[str, tf.DType], Any]
) -> dict[str, Any]:
    """What the layers of each feature are called with.

    Args:
        serialized: `[num_examples]` strings.
        examples: How each feature is parsed.
        rule_of: Called with the name and dtype of a feature that may have any number of values:
            the rule by which they become ids, or None.

    Returns:
        By name a `ParsedIds` or what `parse_example` returns.
    """
    if reason_for_stock() is not None:
        return parse_example(serialized, dict(examples))
    wanted = {}
    for name, feature in examples.items():
        rule = rule_of(name, feature.dtype) if isinstance(feature, tf.io.VarLenFeature) else None
        if rule is not None:
            wanted[name] = WantedKeys(name, feature.dtype, *rule[:3])
    others = {name: feature for name, feature in examples.items() if name not in wanted}
    keys, features = parse_keys(serialized, list(wanted.values()), others)
    return features | {n: ParsedIds(*of) for n, of in zip(wanted, keys, strict=True)}


def input_specs(keras: Any, serialized: Any, examples: Mapping[str, Any]) -> dict[str, Any]:
    """Symbolic tensors of each feature, in Keras 3, of symbolic examples.

    Args:
        keras: The module.
        serialized: A KerasTensor of strings.
        examples: How each feature is parsed.
    """
    num_examples = serialized.shape[0]
    specs = {}
    for name, feature in examples.items():
        is_fixed = isinstance(feature, tf.io.FixedLenFeature)
        shape = tuple(feature.shape) if is_fixed else (None,)
        dtype = tf.as_dtype(feature.dtype).name
        is_sparse = {"sparse": True} if isinstance(feature, tf.io.VarLenFeature) else {}
        specs[name] = keras.KerasTensor((num_examples, *shape), dtype=dtype, **is_sparse)
    return specs
