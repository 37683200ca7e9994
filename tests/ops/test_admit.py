"""EmbeddingVariableAdmit: what is counted, inserted and said, beside a dict of counts."""

import numpy as np
import pytest
import tensorflow as tf
from table_cases import DIM, export, int64, make_table, metadata, size, upsert, values_of

from checking import VALUE_DTYPES, assert_same_bits, dtype_name
from fused_embedding import raw_ops

tf1 = tf.compat.v1
InvalidArgumentError = tf.errors.InvalidArgumentError
COUNTER = {"admission": "counter", "min_frequency": 3}
BLOOM = {"admission": "bloom", "min_frequency": 3, "bloom_counters": 4096, "bloom_hashes": 3}


def admit(tables, keys, first_values=(), minima=(), step=-1, insert=True, **attrs):
    """Whether keys are admitted, and their frequencies, of each column; tables by column."""
    distinct = list({id(table): table for table in tables}.values())
    numbers = {id(table): i for i, table in enumerate(distinct)}
    got = raw_ops.EmbeddingVariableAdmit(
        resources=distinct,
        keys=[int64(k) for k in keys],
        first_values=list(first_values),
        min_frequencies=int64(minima),
        step=tf.constant(step, tf.int64),
        table_of_column=[numbers[id(table)] for table in tables],
        insert=insert,
        **attrs,
    )
    return [list(map(bool, a)) for a in got.is_admitted], [
        list(map(int, f)) for f in got.frequencies
    ]


def rows_of(*values, dtype=tf.float32):
    return tf.cast(np.repeat(np.array(values, float)[:, np.newaxis], DIM, axis=1), dtype)


@pytest.mark.parametrize("filter_attrs", [COUNTER, BLOOM], ids=["counter", "bloom"])
def test_keys_are_counted_in_all_columns_before_any_is_admitted(filter_attrs):
    table, other = make_table(**filter_attrs), make_table()
    got = admit([table, other, table], [[7, 8, 7], [7], [7, -1]])
    assert got == ([[True, False, True], [True], [True, False]], [[3, 1, 3], [1], [3, 0]])
    assert admit([table], [[8, 9, 7]]) == ([[False, False, True]], [[2, 1, 4]])
    assert metadata(table, [7, 8]) == ([4, 0], [0, -1])


def test_a_random_history_is_that_of_a_dict():
    rng = np.random.default_rng(1)
    table, counts = make_table(**COUNTER), {}
    for step in range(40):
        keys = rng.integers(-2, 12, rng.integers(0, 9)).tolist()
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
        want = [counts[key] if key >= 0 else 0 for key in keys]
        assert admit([table], [keys], step=step) == ([[n >= 3 for n in want]], [want])
    admitted = sorted(key for key, n in counts.items() if key >= 0 and n >= 3)
    assert export(table).keys.numpy().tolist() == admitted


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_new_rows_start_with_the_first_values_of_their_key(dtype):
    table = make_table(dtype)
    upsert(table, [5], rows_of(50, dtype=dtype), dtype)
    values = [rows_of(1, 2, 3, 4, dtype=dtype), rows_of(5, 6, dtype=dtype)]
    admit([table, table], [[7, -1, 7, 5], [8, 7]], values)
    assert_same_bits(values_of(table, [7, 5, 8], dtype), rows_of(1, 50, 5, dtype=dtype).numpy())


def test_first_values_beside_a_column_without_keys():
    table = make_table()
    admit([table, table], [[], [7]], [tf.zeros([0, DIM]), rows_of(3)])
    assert_same_bits(values_of(table, [7]), rows_of(3).numpy())


def test_a_row_gets_the_values_of_the_batch_that_admits_it():
    table = make_table(**COUNTER)
    for value in (1, 2, 3, 4):
        admit([table], [[7]], [rows_of(value)])
    assert_same_bits(values_of(table, [7]), rows_of(3).numpy())


def test_minima_take_the_place_of_the_filters_own():
    tables = [make_table(**COUNTER), make_table(**COUNTER)]
    for count in range(1, 6):
        got = admit(tables, [[7], [7]], minima=[5, -1])
        assert got == ([[count >= 5], [count >= 3]], [[count], [count]])
    assert admit([make_table()], [[7]], minima=[9]) == ([[True]], [[1]])  # without a filter


def test_without_insert_nothing_changes():
    table = make_table(**COUNTER)
    admit([table], [[7, 7, 7, 8]], step=4)
    for _ in range(3):
        got = admit([table], [[7, 8, 9]], insert=False, step=9)
        assert got == ([[True, False, False]], [[3, 0, 0]])
    assert metadata(table, [7, 8]) == ([3, 0], [4, -1])
    frozen = make_table(frozen=True)
    assert admit([frozen], [[7]]) == ([[False]], [[0]])
    assert size(frozen) == 0


def test_negative_keys_where_nothing_is_pruned():
    table = make_table()
    assert admit([table], [[-5, 3]], prune=False) == ([[True, True]], [[1, 1]])
    assert export(table).keys.numpy().tolist() == [-5, 3]


@pytest.mark.parametrize("check_mode", ["error", "warning", "ignore"])
def test_full_tables(check_mode):
    table = make_table(max_capacity=1, check_mode=check_mode)
    assert admit([table], [[7]]) == ([[True]], [[1]])
    if check_mode == "error":
        with pytest.raises(tf.errors.ResourceExhaustedError):
            admit([table], [[7, 8]])
        assert metadata(table, [7])[0] == [1]
    else:
        assert admit([table], [[8, 7]])[0] == [[False, True]]
    assert export(table).keys.numpy().tolist() == [7]


def test_no_keys():
    table = make_table()
    assert admit([table, table], [[], []]) == ([[], []], [[], []])


def test_a_lookup_after_it_need_not_count():
    """EmbeddingVariableGroupLookup with `are_inserted`: a table counts its keys once."""
    counted, other = make_table(**COUNTER), make_table()
    admit([counted], [[7, 7, 7]])
    sp_ids = {"sp_values": [int64([7, 9])] * 2, "sp_indices": [int64([[0, 0], [1, 0]])] * 2}
    raw_ops.EmbeddingVariableGroupLookup(
        resources=[counted, other],
        **sp_ids,
        sp_dense_shapes=[int64([2, 1])] * 2,
        sp_weights=[],
        step=tf.constant(-1, tf.int64),
        num_outputs=2,
        table_of_column=[0, 1],
        weighted_columns=[],
        combiners=["sum"] * 2,
        max_norms=[-1.0] * 2,
        default_ids=[-1] * 2,
        insert=False,
        are_inserted=[False, True],
        dtype=tf.float32,
    )
    assert metadata(counted, [7, 9])[0] == [3, 0]
    assert metadata(other, [7, 9])[0] == [1, 1]


def test_in_a_graph_shapes_are_known_and_steps_are_kept():
    with tf.Graph().as_default(), tf1.Session() as session:
        table = make_table()
        keys = tf1.placeholder(tf.int64, [4])
        got = raw_ops.EmbeddingVariableAdmit(
            resources=[table],
            keys=[keys],
            first_values=[],
            min_frequencies=int64([]),
            step=tf.constant(6, tf.int64),
            table_of_column=[0],
            insert=True,
        )
        assert [o.shape for o in (*got.is_admitted, *got.frequencies)] == [(4,), (4,)]
        frequencies = session.run(got.frequencies[0], {keys: [1, 2, 1, -4]})
        assert frequencies.tolist() == [2, 1, 2, 0]
        found = raw_ops.EmbeddingVariableMetadata(resource=table, keys=int64([1]))
        assert session.run(found.versions).tolist() == [6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": [[[7]]]}, "keys"),
        ({"table_of_column": [1]}, r"table_of_column must be in \[0, 1\), got 1"),
        ({"table_of_column": [0, 0]}, "entry for each of the 1 columns, got 2"),
        ({"min_frequencies": int64([1, 2])}, "each of the 1 tables, got 2"),
        ({"min_frequencies": int64(1)}, "min_frequencies"),
        ({"step": int64([1])}, "step"),
        ({"first_values": [rows_of(1, 2)]}, rf"first_values must have shape \[1, {DIM}\]"),
        ({"first_values": [rows_of(1, dtype=tf.float64)]}, "first_values"),
        ({"first_values": [rows_of(1)] * 2}, "none or each of the 1 columns, got 2"),
    ],
)
def test_errors(change, message):
    table = make_table()
    arguments = {
        "resources": [table],
        "keys": [[7]],
        "first_values": [],
        "min_frequencies": int64([]),
        "step": int64(-1),
        "table_of_column": [0],
        "insert": True,
    }
    arguments |= change
    arguments["keys"] = [int64(keys) for keys in arguments["keys"]]
    with pytest.raises(InvalidArgumentError, match=message):
        raw_ops.EmbeddingVariableAdmit(**arguments)
    assert size(table) == 0


def test_a_table_without_a_column_is_an_error():
    with pytest.raises(InvalidArgumentError, match="table 1 must have a column"):
        raw_ops.EmbeddingVariableAdmit(
            resources=[make_table(), make_table()],
            keys=[int64([7])],
            first_values=[],
            min_frequencies=int64([]),
            step=int64(-1),
            table_of_column=[0],
            insert=True,
        )
