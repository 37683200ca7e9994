"""Valid calls of the op that makes ids of features, and what its results must be."""

import numpy as np
import tensorflow as tf

from cases.keys import stock_keys

TEXTS = np.array([b"", b"a", b"oak", b"-1", b"seven b", b"a text of more than 16 bytes"], object)
LAYOUTS = ("dense", "sparse", "ragged")


def make(rng):
    """Arguments: up to three columns. Few kinds of calls: kernels are kept."""
    kinds = np.random.default_rng(int(rng.integers(12)))
    columns = [_make_column(rng, kinds) for _ in range(int(kinds.integers(1, 4)))]
    layouts = [layout for _, layout, *_ in columns]
    return {
        "values": [values for values, *_ in columns],
        "row_splits": [splits for *_, splits in columns if splits is not None],
        "Tkeys": [tf.int64] * len(columns),
        "Trows": [tf.int64] * (len(columns) - layouts.count("sparse")),
        "layouts": layouts,
        "kinds": [rule[0] for _, _, rule, _ in columns],
        "num_buckets": [rule[1] for _, _, rule, _ in columns],
        "default_keys": [rule[2] for _, _, rule, _ in columns],
    }


def _make_column(rng, kinds):
    dtype = (np.int32, np.int64, object)[kinds.integers(3)]
    layout = LAYOUTS[kinds.integers(3)]
    is_hash = dtype is object or bool(kinds.integers(2))
    rule = ("hash", 7, -1) if is_hash else ("identity", 9, int(kinds.integers(-1, 9)))
    num_rows = int(rng.integers(0, 5))
    width = int(kinds.integers(1, 3))
    size = num_rows * width
    values = TEXTS[rng.integers(0, len(TEXTS), size)] if dtype is object else None
    if values is None:
        values = rng.integers(-2, 12, size).astype(dtype)
    splits = None
    if layout == "ragged":
        inner = np.sort(rng.integers(0, size + 1, int(rng.integers(0, 4))))
        splits = np.concatenate([[0], inner, [size]]).astype(np.int64)
    elif layout == "dense":
        values = values.reshape(num_rows, width)
    return values, layout, rule, splits


def check(args, result):
    """Compares keys, rows and shapes."""
    rules = zip(args["kinds"], args["num_buckets"], args["default_keys"], strict=True)
    placed = iter(zip(result.rows, result.dense_shapes, strict=True))
    splits = iter(args["row_splits"])
    for values, layout, rule, keys in zip(
        args["values"], args["layouts"], rules, result.keys, strict=True
    ):
        given = np.asarray(values)
        flat = given.reshape(-1)
        if layout == "sparse":
            np.testing.assert_array_equal(keys, stock_keys(flat, *rule))
            continue
        rows, dense_shape = next(placed)
        if layout == "dense":
            width = given.shape[1] if given.ndim == 2 else 1
            is_there = flat != (b"" if flat.dtype == object else -1)
            want_rows = np.arange(len(flat)) // max(width, 1)
            want = stock_keys(flat[is_there], *rule), want_rows[is_there], [given.shape[0], width]
        else:
            of_column = np.asarray(next(splits))
            num_rows = len(of_column) - 1
            want_rows = np.repeat(np.arange(num_rows), np.diff(of_column))
            want = stock_keys(flat, *rule), want_rows, [num_rows, 1]
        for g, w in zip((keys, rows, dense_shape), want, strict=True):
            np.testing.assert_array_equal(g, w)


CASES = {"FusedEmbeddingColumnKeys": (make, check)}
