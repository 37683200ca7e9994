"""The op that makes ids of features, as a subgraph of stock ops."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf


class _Places(NamedTuple):
    """Where the values of a feature or cross are.

    Attributes:
        indices: `[nnz, 2]` int64 row and place in it.
        dense_shape: `[2]` int64.
    """

    indices: tf.Tensor
    dense_shape: tf.Tensor


class _Feature(NamedTuple):
    """A feature: attrs and inputs of the op."""

    values: tf.Tensor
    layout: str
    kind: str
    num_buckets: int
    default_key: int
    boundaries: list[float]
    inputs: "_Inputs"

    def placed(self, is_crossed: bool) -> tuple[tf.Tensor, Any]:
        """`[nnz]` values, and their `_Places`, or None where the op is not told them."""
        if self.layout in ("dense", "full"):
            return self._dense()
        if self.layout == "ragged":
            return self.values, self._ragged_places()
        if is_crossed:
            return self.values, _Places(next(self.inputs.indices), next(self.inputs.shapes))
        return self.values, None

    def _dense(self) -> tuple[tf.Tensor, _Places]:
        matrix = self.values if self.values.shape.rank == 2 else _as_matrix(self.values)
        if self.layout == "full" or self.kind in ("bucketized", "cross_part"):
            is_there = tf.ones_like(matrix, tf.bool)
        else:
            is_there = tf.not_equal(matrix, "" if matrix.dtype == tf.string else -1)
        places = tf.where(is_there)
        return tf.gather_nd(matrix, places), _Places(places, tf.shape(matrix, tf.int64))

    def _ragged_places(self) -> _Places:
        splits = next(self.inputs.row_splits)
        num_rows = tf.size(splits, out_type=tf.int64) - 1
        rows = tf.repeat(tf.range(num_rows), splits[1:] - splits[:-1])
        places = tf.range(tf.size(rows, out_type=tf.int64)) - tf.gather(splits, rows)
        return _Places(tf.stack([rows, places], axis=1), tf.stack([num_rows, 1]))

    def keys(self, values: tf.Tensor, places: Any) -> tf.Tensor:
        """`[nnz]` int64 keys of values; those of a cross_part are the values."""
        if self.kind == "cross_part":
            return values if values.dtype == tf.string else tf.cast(values, tf.int64)
        if self.kind == "hash":
            return _hash(values, self.num_buckets)
        if self.kind == "vocabulary":
            return self._found(values)
        if self.kind == "bucketized":
            buckets = tf.raw_ops.Bucketize(input=values, boundaries=self.boundaries)
            return tf.cast(buckets, tf.int64) + places.indices[:, 1] * self.num_buckets
        keys = tf.cast(values, tf.int64)
        if self.kind == "index":
            return tf.where(keys < 0, keys + self.num_buckets, keys)
        if self.default_key < 0:
            return keys
        is_there = (keys >= 0) & (keys < self.num_buckets)
        return tf.where(is_there, keys, tf.constant(self.default_key, tf.int64))

    def _found(self, values: tf.Tensor) -> tf.Tensor:
        table = next(self.inputs.tables)
        values = values if values.dtype == tf.string else tf.cast(values, tf.int64)
        not_found = tf.constant(-1 if self.num_buckets else self.default_key, tf.int64)
        found = tf.raw_ops.LookupTableFindV2(
            table_handle=table, keys=values, default_value=not_found
        )
        if not self.num_buckets:
            return found
        size = tf.raw_ops.LookupTableSizeV2(table_handle=table)
        return tf.where(tf.equal(found, not_found), _hash(values, self.num_buckets) + size, found)


class _Inputs(NamedTuple):
    """Inputs that some of the features have, of one feature after the other."""

    row_splits: Iterator[tf.Tensor]
    tables: Iterator[tf.Tensor]
    indices: Iterator[tf.Tensor]
    shapes: Iterator[tf.Tensor]


def column_keys(call: Any) -> dict[str, Any]:
    """Builds the stock form of a FusedEmbeddingColumnKeys.

    Args:
        call: A `serving.stock_ops.Call` of it.

    Returns:
        Its outputs by name.
    """
    features = iter(_features(call))
    crosses = zip(call.attr("cross_num_buckets"), call.attr("hash_keys"), strict=True)
    all_keys, rows, dense_shapes = [], [], []
    for num_parts in call.attr("num_parts") or [1] * len(call.attr("Tkeys")):
        parts = []
        for feature in (next(features) for _ in range(num_parts)):
            values, places = feature.placed(num_parts > 1)
            parts.append((feature.keys(values, places), places))
        keys, places = parts[0] if num_parts == 1 else _cross(parts, *next(crosses))
        all_keys.append(keys)
        if places is not None:
            rows.append(places.indices[:, 0])
            dense_shapes.append(places.dense_shape)
    return {"keys": all_keys, "rows": rows, "dense_shapes": dense_shapes}


def _features(call: Any) -> list[_Feature]:
    names = ("row_splits", "tables", "sparse_indices", "sparse_shapes")
    inputs = _Inputs(*(iter(call.inputs[name]) for name in names))
    boundaries = iter(call.attr("boundaries"))
    attrs = (call.attr(name) for name in ("layouts", "kinds", "num_buckets", "default_keys"))
    features = []
    for values, layout, kind, num_buckets, default_key in zip(
        call.inputs["values"], *attrs, strict=True
    ):
        size = num_buckets - 1 if kind == "bucketized" else 0
        taken = [next(boundaries) for _ in range(size)]
        features.append(_Feature(values, layout, kind, num_buckets, default_key, taken, inputs))
    return features


def _cross(
    parts: list[tuple[tf.Tensor, _Places]], num_buckets: int, hash_key: int
) -> tuple[tf.Tensor, _Places]:
    result = tf.raw_ops.SparseCross(
        indices=[places.indices for _, places in parts],
        values=[keys for keys, _ in parts],
        shapes=[places.dense_shape for _, places in parts],
        dense_inputs=[],
        hashed_output=True,
        num_buckets=num_buckets,
        hash_key=hash_key,
        out_type=tf.int64,
        internal_type=tf.int64,
    )
    return result.output_values, _Places(result.output_indices, result.output_shape)


def _hash(values: tf.Tensor, num_buckets: int) -> tf.Tensor:
    texts = values if values.dtype == tf.string else tf.strings.as_string(values)
    return tf.strings.to_hash_bucket_fast(texts, num_buckets)


def _as_matrix(values: tf.Tensor) -> tf.Tensor:
    """`[num_rows]` as `[num_rows, 1]`; a matrix of unknown rank as it is."""
    shape = tf.shape(values)
    width = tf.reduce_prod(shape[1:])
    return tf.reshape(values, tf.stack([shape[0], width]))


def example_keys(op: tf.Operation, serialized: tf.Tensor, names: tf.Tensor) -> dict[str, Any]:
    """The outputs of FusedEmbeddingParseExample that are keys.

    Args:
        op: The op.
        serialized: As its input.
        names: As its input.

    Returns:
        "keys", "key_rows" and "key_shapes", a tensor for each rule.
    """
    lists = ("names", "types", "kinds", "num_buckets", "defaults")
    rules = list(zip(*(op.get_attr(f"key_{name}") for name in lists), strict=True))
    dtypes = {rule[0]: rule[1] for rule in rules}
    parsed = tf.raw_ops.ParseExampleV2(
        serialized=serialized,
        names=names,
        sparse_keys=list(dtypes),
        dense_keys=tf.zeros([0], tf.string),
        ragged_keys=tf.zeros([0], tf.string),
        dense_defaults=[],
        num_sparse=len(dtypes),
        sparse_types=list(dtypes.values()),
        ragged_value_types=[],
        ragged_split_types=[],
        dense_shapes=[],
    )
    of_sparse = (parsed.sparse_indices, parsed.sparse_values, parsed.sparse_shapes)
    sparse = dict(zip(dtypes, zip(*of_sparse, strict=True), strict=True))
    no_inputs = _Inputs(*(iter(()) for _ in _Inputs._fields))
    made: dict[str, Any] = {"keys": [], "key_rows": [], "key_shapes": []}
    for name, _, kind, num_buckets, default in rules:
        indices, values, shape = sparse[name]
        feature = _Feature(values, "sparse", _text(kind), num_buckets, default, [], no_inputs)
        made["keys"].append(feature.keys(values, None))
        made["key_rows"].append(indices[:, 0])
        made["key_shapes"].append(shape)
    return made


def _text(attr: Any) -> str:
    return attr.decode() if isinstance(attr, bytes) else attr
