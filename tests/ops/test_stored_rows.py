"""FusedEmbeddingStoredRowsGroupLookup beside the oracle of lookups in the decoded rows."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import group_stages
from checking import assert_close, assert_same_bits
from group_stages import Column
from oracle.small_rows import rounded_rows, stored_row

pytestmark = pytest.mark.on_cpu

FORMATS = ("int8", "int4", "bfloat16")
ROWS = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def stored(rows, row_format):
    """A variable of stored rows."""
    encoded = b"".join(stored_row(row, row_format) for row in rows)
    of_bytes = np.frombuffer(encoded, np.uint8).reshape(len(rows), -1)
    is_short = row_format == "bfloat16"
    return tf.Variable(of_bytes.view(tf.bfloat16.as_numpy_dtype) if is_short else of_bytes)


def lookup(variables, formats, dims, columns, concat=False, **changes):
    arguments = group_stages.arguments(columns) | {"num_outputs": 1 if concat else len(columns)}
    arguments |= {"dtype": tf.float32, "formats": formats, "dims": dims} | changes
    handles = [variable.handle for variable in variables]
    return fe.raw_ops.FusedEmbeddingStoredRowsGroupLookup(resources=handles, **arguments)


@pytest.mark.parametrize("seed", range(40))
def test_equals_the_oracle_on_random_columns(seed):
    rng = np.random.default_rng(seed)
    tables = [table.astype(np.float32) for table in group_stages.random_tables(rng)]
    formats = [str(rng.choice(FORMATS)) for _ in tables]
    columns = group_stages.random_columns(rng, tables, int(rng.integers(1, 6)))
    variables = [stored(*pair) for pair in zip(tables, formats, strict=True)]
    dims = [table.shape[1] for table in tables]
    got = lookup(variables, formats, dims, columns)
    decoded = [rounded_rows(*pair) for pair in zip(tables, formats, strict=True)]
    for g, want in zip(got, group_stages.want_combined(decoded, columns), strict=True):
        assert g.dtype == tf.float32
        assert_close(g, want, terms=64)
    one_size = [column._replace(num_rows=8) for column in columns]
    [side_by_side] = lookup(variables, formats, dims, one_size, concat=True)
    alone = lookup(variables, formats, dims, one_size)
    assert_same_bits(side_by_side, tf.concat(alone, axis=1))


@pytest.mark.parametrize("row_format", FORMATS)
@pytest.mark.parametrize("num_ids", [9, 129, 5000])
def test_long_rows(row_format, num_ids):
    ids = np.random.default_rng(1).integers(0, 4, num_ids)
    column = Column(0, ids, np.zeros(num_ids, np.int64), 1, combiner="mean")
    [got] = lookup([stored(ROWS, row_format)], [row_format], [3], [column])
    want = rounded_rows(ROWS, row_format)[ids].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(got[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("row_format", ["int8", "int4"])
def test_constant_rows_and_zeros_are_exact(row_format):
    rows = np.float32([[0.5, 0.5, 0.5], [0, 0, 0], [-2, -2, -2]])
    column = Column(0, [0, 1, 2], [0, 1, 2], 4, combiner="sum", default_id=2)
    [got] = lookup([stored(rows, row_format)], [row_format], [3], [column])
    assert_same_bits(got, np.concatenate([rows, rows[2:]]))


BAD_IDS = Column(0, [1, 4], [0, 1], 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"formats": ["int9"]}, "a row format must be int8, int4 or bfloat16, got int9"),
        ({"formats": ["int8", "int8"]}, "must have one entry for each of the 1 tables, got 2"),
        ({"formats": ["int4"]}, r"a row of 3 values has 6 bytes in the format of table 0, got a"),
        ({"formats": ["bfloat16"]}, "a variable holds uint8, but dtype is bfloat16"),
        ({"dims": [4]}, "a row of 4 values has 12 bytes in the format of table 0"),
        ({"dims": []}, "dims must have one entry"),
        ({"dims": [0]}, "dims must (be from 1 to|have one entry >= 1)"),
        ({"dims": [2**62]}, "dims must be from 1 to"),
        ({"combiners": ["max"]}, "combiner must be sum, mean or sqrtn, got max"),
        ({"column_names": ["feature 'a'"]}, r"feature 'a': id 4 at position 1 is outside \[0, 4\)"),
        ({}, r"column 0: id 4 at position 1 is outside \[0, 4\)"),
    ],
)
def test_bad_input_is_named(changes, message):
    arguments = {"formats": ["int8"], "dims": [3]} | changes
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        lookup([stored(ROWS, "int8")], columns=[BAD_IDS], **arguments)


@pytest.mark.parametrize("row_format", FORMATS)
def test_shapes_are_known_and_sessions_run(row_format):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = stored(ROWS, row_format)
        [output] = lookup([variable], [row_format], [3], [Column(0, [1, 2], [0, 1], 2)])
        assert output.shape.as_list() == [2, 3]
        session.run(tf.compat.v1.global_variables_initializer())
        want = rounded_rows(ROWS[1:3], row_format)
        np.testing.assert_allclose(session.run(output), want, rtol=1e-6)
