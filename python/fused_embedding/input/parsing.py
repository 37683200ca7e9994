"""`tf.io.parse_example` and `tf.io.parse_single_example` with an op of this package.

TensorFlow's own functions turn features into the arguments of the op, and its outputs into results;
only the op is another one.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.input.contexts import reason_for_stock
from fused_embedding.ops import raw_ops
from fused_embedding.ops.tf_private import parsing_config, parsing_ops

_FEATURES = [
    tf.io.VarLenFeature,
    tf.io.SparseFeature,
    tf.io.FixedLenFeature,
    tf.io.FixedLenSequenceFeature,
    tf.io.RaggedFeature,
]


def parse_example(
    serialized: Any, features: Any, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    """Parses serialized `tf.train.Example` messages: `tf.io.parse_example`, faster.

    Results, what is accepted and the texts of errors are stock's; docs/input.md has the inputs that
    end the process there and are errors here.

    Stock's op is built where a graph may be saved for a server without this package: in a
    SavedModel, in an Estimator's mode PREDICT, and in a `tf.function` that no gradient tape watches
    and that is not the function of a `tf.data.Dataset`. For a tf.data service see `with_stock_ops`.

    Args:
        serialized: `[num_examples]` strings. A scalar is one example without a batch dimension.
        features: A dict from names to `tf.io.VarLenFeature`, `SparseFeature`, `FixedLenFeature`,
            `FixedLenSequenceFeature` (with `allow_missing=True`) and `RaggedFeature`.
        example_names: `[num_examples]` strings, what errors call the examples.
        name: A name for the op.

    Returns:
        A dict from the names in `features`: a `tf.SparseTensor` `[num_examples, most values]` for a
        VarLenFeature and `[num_examples, *size]` for a SparseFeature, a tensor
        `[num_examples, *shape]` for a FixedLenFeature and `[num_examples, most steps, *shape]` for
        a FixedLenSequenceFeature, a `tf.RaggedTensor` for a RaggedFeature.

    Raises:
        ValueError: If `features` is empty, or a feature is not valid.
        tf.errors.InvalidArgumentError: When the op runs, if an example is malformed, lacks a
            feature without a default, or has another type or number of values.

    Source: `tf.io.parse_example`.

    >>> feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[3, 5]))
    >>> example = tf.train.Example(features=tf.train.Features(feature={"ids": feature}))
    >>> features = {"ids": tf.io.VarLenFeature(tf.int64)}
    >>> fe.io.parse_example([example.SerializeToString()], features)["ids"].values.numpy()
    array([3, 5])
    """
    if not features:
        raise ValueError(f"Argument `features` cannot be None or falsy. Got {features}")
    if reason_for_stock() is not None:
        return tf.io.parse_example(serialized, features, example_names, name)
    features = parsing_ops._prepend_none_dimension(features)
    params = parsing_config._ParseOpParams.from_features(features, _FEATURES)
    outputs = parse_raw(serialized, example_names, params, name)
    return parsing_config._construct_tensors_for_composite_features(features, outputs)


def parse_single_example(
    serialized: Any, features: Any, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    """Parses one serialized `tf.train.Example`: `tf.io.parse_single_example`, faster.

    A batch takes less time an example: `parse_example` behind `Dataset.batch`.

    Args:
        serialized: A scalar string.
        features: As in `parse_example`.
        example_names: A scalar string, which stock does not read either.
        name: A name for the op.

    Returns:
        As `parse_example`, without the dimension `num_examples`.

    Raises:
        ValueError: If `features` is empty, a feature is not valid, or `serialized` is no scalar.
        tf.errors.InvalidArgumentError: As in `parse_example`.

    Source: `tf.io.parse_single_example`.

    >>> example = tf.train.Example().SerializeToString()
    >>> ids = tf.io.FixedLenFeature([2], tf.int64, default_value=[3, 5])
    >>> fe.io.parse_single_example(example, {"ids": ids})["ids"].numpy()
    array([3, 5])
    """
    if features is None:
        raise ValueError("Invalid argument: features cannot be None.")
    if not features:
        raise ValueError("Invalid argument: features cannot be empty.")
    with tf.name_scope(name or "ParseSingleExample"):
        serialized = tf.convert_to_tensor(serialized, name="serialized")
        serialized = parsing_ops._assert_scalar(serialized, "serialized")
        return parse_example(serialized, features, example_names, name)


def parse_raw(serialized: Any, names: Any, params: Any, name: str | None) -> dict[str, Any]:
    """`parsing_ops._parse_example_raw` with the op of this package.

    Args:
        serialized: As in `parse_example`.
        names: `example_names` there.
        params: What TensorFlow makes of features, a `_ParseOpParams`.
        name: A name for the op.

    Returns:
        Tensors by name: sparse, dense, ragged.

    Raises:
        ValueError: If there is no feature, or ragged ones and the rank of `serialized` is unknown.
    """
    if params.num_features == 0:
        raise ValueError("Must provide at least one feature key.")
    with tf.name_scope(name or "ParseExample"):
        serialized = tf.convert_to_tensor(serialized, name="serialized")
        if params.ragged_keys and serialized.shape.ndims is None:
            raise ValueError("serialized must have statically-known rank to parse ragged features.")
        outputs = _parse(serialized, [] if names is None else names, params, name)
        return _features_of(outputs, params, serialized.shape)


class WantedKeys(NamedTuple):
    """A feature whose values become keys, by a rule of a feature column.

    Attributes:
        name: Of the feature, whose examples may have any number of values.
        dtype: tf.string or tf.int64.
        kind: "hash" or "identity", of integers; see `lookup.feature_ids.KeyRule`.
        num_buckets: As there.
        default_key: As there.
    """

    name: str
    dtype: tf.DType
    kind: str
    num_buckets: int
    default_key: int


def parse_keys(
    serialized: Any, keys: Sequence[WantedKeys], features: dict[str, Any]
) -> tuple[list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]], dict[str, Any]]:
    """Parses a batch of examples, and makes keys of some features in the same op.

    Args:
        serialized: `[num_examples]` strings.
        keys: Of features. Without any, this is `parse_example`.
        features: As in `parse_example`, maybe none.

    Returns:
        For each of `keys` `[nnz]` int64 keys, `[nnz]` int64 example of each, and `[2]` int64 number
        of examples and most values of one; and what `parse_example` returns for `features`.
    """
    if not keys:
        return [], parse_example(serialized, features)
    with tf.name_scope("ParseExample"):
        features = parsing_ops._prepend_none_dimension(features)
        params = parsing_config._ParseOpParams.from_features(features, _FEATURES)
        serialized = tf.convert_to_tensor(serialized, name="serialized")
        names, dtypes, kinds, num_buckets, defaults = zip(*keys, strict=True)
        outputs = _parse(
            serialized,
            [],
            params,
            None,
            Tkeys=[tf.int64] * len(keys),
            key_names=names,
            key_types=dtypes,
            key_kinds=kinds,
            key_num_buckets=num_buckets,
            key_defaults=defaults,
        )
        parsed = _features_of(outputs, params, serialized.shape)
        parsed = parsing_config._construct_tensors_for_composite_features(features, parsed)
        made = zip(outputs.keys, outputs.key_rows, outputs.key_shapes, strict=True)
        return list(made), parsed


def _features_of(outputs: Any, params: Any, shape: tf.TensorShape) -> dict[str, Any]:
    """Tensors by name: sparse, dense, ragged, of examples of a shape."""
    ragged = parsing_config._build_ragged_tensors(
        shape, outputs.ragged_values, outputs.ragged_row_splits
    )
    of_sparse = (outputs.sparse_indices, outputs.sparse_values, outputs.sparse_shapes)
    sparse = [tf.SparseTensor(*parts) for parts in zip(*of_sparse, strict=True)]
    keys = params.sparse_keys + params.dense_keys + params.ragged_keys
    return dict(zip(keys, [*sparse, *outputs.dense_values, *ragged], strict=True))


def _parse(serialized: tf.Tensor, names: Any, params: Any, name: str | None, **keys: Any) -> Any:
    op: Callable[..., Any] = raw_ops.FusedEmbeddingParseExample
    return op(
        serialized=serialized,
        names=names,
        sparse_keys=params.sparse_keys,
        dense_keys=params.dense_keys,
        ragged_keys=params.ragged_keys,
        dense_defaults=params.dense_defaults_vec,
        num_sparse=len(params.sparse_keys),
        sparse_types=params.sparse_types,
        ragged_value_types=params.ragged_value_types,
        ragged_split_types=params.ragged_split_types,
        dense_shapes=params.dense_shapes_as_proto,
        name=name,
        **keys,
    )
