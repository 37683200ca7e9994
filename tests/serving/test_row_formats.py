"""Rows in fewer bytes: what is stored and what is read, against an oracle in exact fractions."""

import numpy as np
import pytest
import tensorflow as tf

from fused_embedding.serving.row_formats import FORMATS
from fused_embedding.serving.stored_rows import Coding
from oracle import small_rows

RNG = np.random.default_rng(0)
DIMS = (1, 2, 5, 8, 64)
LARGEST = {"int8": 2.0**126, "int4": 65504.0, "bfloat16": float(tf.bfloat16.max)}
# Rows of dim values, [n, dim] float32.
ROWS = {
    "normal": lambda dim: RNG.normal(size=[4, dim]),
    "small": lambda dim: RNG.normal(size=[4, dim]) * 1e-6,
    "far from zero": lambda dim: 1000 + RNG.normal(size=[4, dim]) * [[0.01], [0.1], [1], [10]],
    "one number": lambda dim: np.repeat([[0.0], [-0.0], [0.1], [-7.0], [1e-30]], dim, axis=1),
    "between quants": lambda dim: RNG.integers(0, 31, [6, dim]) / 2.0,
    "sparse": lambda dim: RNG.normal(size=[4, dim]) * (RNG.random([4, dim]) < 0.2),
}


def rows_of(kind, dim):
    return ROWS[kind](dim).astype(np.float32)


@pytest.mark.parametrize("row_format", FORMATS)
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dim", DIMS)
def test_stored_rows_are_those_of_the_oracle(row_format, kind, dim):
    rows = rows_of(kind, dim)
    coding = Coding(row_format, dim, tf.float32)
    stored = coding.encode(rows, "table", str)
    want = [small_rows.stored_row(row, row_format) for row in rows]
    assert [row.tobytes() for row in stored] == want
    read = coding.decode(tf.constant(stored)).numpy()
    want = np.stack([small_rows.numbers_of(row, dim, row_format) for row in want])
    assert read.tobytes() == want.tobytes()
    assert_close(read, rows, stored, row_format)


def assert_close(read, rows, stored, row_format):
    """Within half a quantum, and what float32 rounds."""
    rows = rows.astype(np.float64)
    if row_format == "bfloat16":
        bound = np.abs(rows) * 2.0**-8
    else:
        scales = [small_rows.scale_of(row.tobytes(), row_format) for row in stored]
        bound = np.array(scales)[:, None] / 2 + np.abs(rows).max(1, keepdims=True) * 2.0**-23
    assert (np.abs(read - rows) <= bound).all()


@pytest.mark.parametrize("row_format", FORMATS)
def test_an_odd_float_type_of_a_table_is_read_back(row_format):
    for dtype in (tf.float16, tf.bfloat16, tf.float64):
        rows = RNG.normal(size=[9, 7]).astype(dtype.as_numpy_dtype)
        coding = Coding(row_format, 7, dtype)
        read = coding.decode(tf.constant(coding.encode(rows, "table", str)))
        assert read.dtype == dtype
        assert read.numpy().tobytes() == small_rows.rounded_rows(rows, row_format).tobytes()


def test_rows_have_as_many_bytes_as_documented():
    bytes_of = {name: [f.row_bytes(dim) for dim in (64, 7)] for name, f in FORMATS.items()}
    assert bytes_of == {"int8": [72, 15], "int4": [36, 8], "bfloat16": [128, 14]}


def test_relative_errors_are_as_documented():
    """In docs/serving.md, for normally distributed numbers."""
    documented = {
        ("bfloat16", 64): 0.0017,
        ("int8", 64): 0.0053,
        ("int8", 8): 0.0029,
        ("int4", 64): 0.090,
        ("int4", 8): 0.049,
    }
    for (row_format, dim), error in documented.items():
        rows = np.random.default_rng(1).normal(size=[4000, dim]).astype(np.float32)
        coding = Coding(row_format, dim, tf.float32)
        read = coding.decode(tf.constant(coding.encode(rows, "table", str))).numpy()
        relative = np.sqrt(np.mean((read - rows) ** 2) / np.mean(rows**2))
        np.testing.assert_allclose(relative, error, rtol=0.03)


@pytest.mark.parametrize("row_format", FORMATS)
def test_numbers_at_the_bounds_of_a_format(row_format):
    largest = LARGEST[row_format]
    coding = Coding(row_format, 3, tf.float64)
    rows = np.array([[-largest, 0, largest], [largest] * 3, [-largest] * 3])
    read = coding.decode(tf.constant(coding.encode(rows, "table", str))).numpy()
    assert np.isfinite(read).all()
    np.testing.assert_allclose(read, rows, rtol=0, atol=largest / 14)
    for number in (np.nan, np.inf, -np.inf, np.nextafter(largest, np.inf), -1.01 * largest):
        with pytest.raises(ValueError, match=rf"row 1 of 'ads' has the number .* {row_format} "):
            coding.encode(np.array([[1, 2, 3], [0, number, 1.0]]), "ads", lambda i: f"row {i}")


@pytest.mark.parametrize("row_format", FORMATS)
def test_no_rows(row_format):
    coding = Coding(row_format, 5, tf.float32)
    stored = coding.encode(np.zeros([0, 5], np.float32), "table", str)
    assert coding.decode(tf.constant(stored)).shape == [0, 5]


def test_more_rows_than_one_chunk(monkeypatch):
    monkeypatch.setattr("fused_embedding.serving.stored_rows._CHUNK_ROWS", 4)
    rows = rows_of("normal", 8).repeat(3, axis=0)[:10]
    coding = Coding("int8", 8, tf.float32)
    stored = coding.encode(rows, "table", str)
    assert [row.tobytes() for row in stored] == [small_rows.stored_row(r, "int8") for r in rows]
    rows[9, 2] = np.nan
    with pytest.raises(ValueError, match="9 of 'table'"):
        coding.encode(rows, "table", str)
