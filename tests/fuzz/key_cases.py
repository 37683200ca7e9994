"""Valid calls of the op that makes ids of features, and what its results must be."""

import numpy as np
import tensorflow as tf

from cases.keys import stock_keys

TEXTS = np.array([b"", b"a", b"oak", b"-1", b"seven b", b"a text of more than 16 bytes"], object)
LAYOUTS = ("dense", "full", "sparse", "ragged")
BOUNDARIES = [0.0, 3.0, 8.0]


def make(rng):
    """Arguments: up to three columns, and maybe a cross. Few kinds of calls: kernels are kept."""
    kinds = np.random.default_rng(int(rng.integers(12)))
    columns = [_make_column(rng, kinds) for _ in range(int(kinds.integers(1, 4)))]
    num_parts = [1] * len(columns)
    sparse = []
    if kinds.integers(2):
        parts, sparse = _make_cross(rng, kinds)
        columns += parts
        num_parts.append(len(parts))
    num_crosses = len(sparse)
    values, layouts, rules, splits = zip(*columns, strict=True)
    kinds_of_columns, num_buckets, default_keys = zip(*rules, strict=True)
    num_sparse = layouts[: len(num_parts) - num_crosses].count("sparse")
    return {
        "values": list(values),
        "row_splits": [of_column for of_column in splits if of_column is not None],
        "tables": [],
        "sparse_indices": [indices for indices, _ in sparse],
        "sparse_shapes": [shape for _, shape in sparse],
        "Tkeys": [tf.int64] * len(num_parts),
        "Trows": [tf.int64] * (len(num_parts) - num_sparse),
        "layouts": list(layouts),
        "kinds": list(kinds_of_columns),
        "num_buckets": list(num_buckets),
        "default_keys": list(default_keys),
        "boundaries": BOUNDARIES * kinds_of_columns.count("bucketized"),
        "num_parts": num_parts,
        "cross_num_buckets": [5] * num_crosses,
        "hash_keys": [3] * num_crosses,
    }


def _make_values(rng, dtype, size):
    if dtype is object:
        return TEXTS[rng.integers(0, len(TEXTS), size)]
    return rng.integers(-2, 12, size).astype(dtype)


def _make_column(rng, kinds):
    dtype = (np.int32, np.int64, np.float32, object)[kinds.integers(4)]
    layout = LAYOUTS[kinds.integers(4)]
    is_hash = dtype is object or bool(kinds.integers(2))
    rule = ("hash", 7, -1) if is_hash else ("identity", 9, int(kinds.integers(-1, 9)))
    if dtype is np.float32:
        layout, rule = "dense", ("bucketized", len(BOUNDARIES) + 1, -1)
    num_rows = int(rng.integers(0, 5))
    width = int(kinds.integers(1, 3))
    size = num_rows * width
    values = _make_values(rng, dtype, size)
    splits = None
    if layout == "ragged":
        inner = np.sort(rng.integers(0, size + 1, int(rng.integers(0, 4))))
        splits = np.concatenate([[0], inner, [size]]).astype(np.int64)
    elif layout in ("dense", "full"):
        values = values.reshape(num_rows, width)
    return values, layout, rule, splits


def _make_cross(rng, kinds):
    """A sparse and a dense feature, and the places of the sparse one."""
    num_rows = int(rng.integers(0, 4))
    rows = np.sort(rng.integers(0, num_rows, int(rng.integers(0, 5)))) if num_rows else np.zeros(0)
    rule = ("cross_part", 1, -1)
    sparse = _make_values(rng, (np.int64, object)[kinds.integers(2)], len(rows))
    dense = _make_values(rng, (np.int64, object)[kinds.integers(2)], num_rows).reshape(-1, 1)
    indices = np.stack([rows, np.zeros_like(rows)], axis=1).astype(np.int64)
    place = indices, np.array([num_rows, 1], np.int64)
    return [(sparse, "sparse", rule, None), (dense, "dense", rule, None)], [place]


def check(args, result):
    """Compares keys, rows and shapes."""
    rules = zip(args["kinds"], args["num_buckets"], args["default_keys"], strict=True)
    features = iter(zip(args["values"], args["layouts"], rules, strict=True))
    placed = iter(zip(result.rows, result.dense_shapes, strict=True))
    splits = iter(args["row_splits"])
    places = iter(zip(args["sparse_indices"], args["sparse_shapes"], strict=True))
    crosses = zip(args["cross_num_buckets"], args["hash_keys"], strict=True)
    for num_parts, keys in zip(args["num_parts"], result.keys, strict=True):
        if num_parts > 1:
            parts = [_part_of_cross(*next(features), places) for _ in range(num_parts)]
            crossed = tf.sparse.cross_hashed(parts, *next(crosses))
            want = crossed.values, crossed.indices[:, 0], crossed.dense_shape
        else:
            want = _want_of_feature(*next(features), splits)
        got = (keys, *next(placed)) if want[1] is not None else (keys,)
        for g, w in zip(got, want, strict=False):
            np.testing.assert_array_equal(g, w)


def _want_of_feature(values, layout, rule, splits):
    """Keys, rows and dense shape; of a sparse feature keys and None."""
    given = np.asarray(values)
    flat = given.reshape(-1)
    if layout == "sparse":
        return stock_keys(flat, *rule), None
    if layout in ("dense", "full"):
        width = given.shape[1] if given.ndim == 2 else 1
        rows = np.arange(len(flat)) // max(width, 1)
        if rule[0] == "bucketized":
            keys = tf.raw_ops.Bucketize(input=given, boundaries=BOUNDARIES).numpy()
            keys = keys.reshape(-1) + np.arange(len(flat)) % max(width, 1) * rule[1]
            return keys, rows, [given.shape[0], width]
        is_there = (layout == "full") | (flat != (b"" if flat.dtype == object else -1))
        return stock_keys(flat[is_there], *rule), rows[is_there], [given.shape[0], width]
    of_column = np.asarray(next(splits))
    num_rows = len(of_column) - 1
    rows = np.repeat(np.arange(num_rows), np.diff(of_column))
    return stock_keys(flat, *rule), rows, [num_rows, 1]


def _part_of_cross(values, layout, rule, places):
    """What stock crosses; of a dense feature whose values are hashed, a SparseTensor."""
    if rule[0] == "cross_part":
        flat = tf.convert_to_tensor(values)
        if layout == "dense":
            return flat
        indices, shape = next(places)
    elif layout == "dense":
        flat = np.asarray(values)
        indices = np.argwhere(flat != (b"" if flat.dtype == object else -1))
        shape, flat = flat.shape, stock_keys(flat[tuple(indices.T)], *rule)
    else:
        indices, shape = next(places)
        flat = stock_keys(values, *rule)
    return tf.SparseTensor(indices, flat, shape)


CASES = {"FusedEmbeddingColumnKeys": (make, check)}
