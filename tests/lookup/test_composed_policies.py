"""Tables of several parts that decide by their counts what an id reads; and errors of all."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tables import column_of, slices_of
from checking import sparse
from fused_embedding.variable.dynamic_dimension import block_shares

tf1 = tf.compat.v1
GROUP = fe.nn.group_embedding_lookup_sparse
INT64_MAX = np.iinfo(np.int64).max


def test_an_id_starts_as_its_shared_row_when_it_is_admitted():
    option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=3))
    table = fe.get_adaptive_embedding_variable("users", 2, 1, ev_option=option)
    table.hash_weights.assign([[5.0, 7.0]])
    for count in (1, 2, 3, 4):
        with tf.GradientTape() as tape:
            row = fe.nn.fused_safe_embedding_lookup_sparse(table, column_of(1))
        assert row.numpy().tolist() == [[5, 7]]
        shared, own = tape.gradient(row, [table.hash_weights, table.ev_weights])
        is_admitted = count >= 3
        assert slices_of(shared) == ({} if is_admitted else {0: [1, 1]})
        assert slices_of(own) == ({1: [1, 1]} if is_admitted else {})
        assert table.ev_weights.get_frequency([1]).numpy() == (count if is_admitted else 0)
    table.hash_weights.assign([[0.0, 0.0]])
    assert fe.nn.fused_safe_embedding_lookup_sparse(table, column_of(1)).numpy().tolist() == [
        [5, 7]
    ]
    with fe.inference():
        both = fe.nn.fused_safe_embedding_lookup_sparse(table, column_of(1, 2)).numpy()
    assert both.tolist() == [[5, 7], [0, 0]]
    assert table.ev_weights.get_frequency([1]).numpy() == 5


def frequency_table(num_blocks=4, **options):
    return fe.get_dynamic_dimension_embedding_variable(
        "items", 1, num_blocks, initializer=tf1.ones_initializer(), blocknums="frequency", **options
    )


def test_a_scope_reuses_a_table_that_counts():
    with tf.Graph().as_default():
        first = frequency_table(2)
        with tf1.variable_scope("", reuse=True):
            again = frequency_table(2)
        assert again.bounds is first.bounds


def num_read(table, *ids):
    rows = fe.nn.fused_safe_embedding_lookup_sparse(table, column_of(*ids)).numpy()
    return rows.sum(axis=1).astype(int).tolist()


def test_frequent_ids_read_more_blocks():
    table = frequency_table()
    table.bounds.assign([2, 3, 5, 6])
    # Two occurrences in one batch count before either is read.
    assert num_read(table, 7, 8, 7) == [1, 0, 1]
    assert [num_read(table, 7, 8) for _ in range(4)] == [[2, 1], [2, 2], [3, 2], [4, 3]]
    assert [b.total_count().numpy() for b in table.blocks] == [2, 2, 2, 1]
    with fe.inference():
        assert num_read(table, 7, 8, 9) == [4, 3, 0]
        assert num_read(table, 7, 8, 9) == [4, 3, 0]


def test_bounds_follow_the_counts():
    table = frequency_table(2, compression_ratio=0.25)
    assert table.bounds.numpy().tolist() == [1, 2]
    table.update_bounds()
    assert table.bounds.numpy().tolist() == [1, 2]  # no ids, no change
    ids = np.repeat(np.arange(100), np.arange(100, 0, -1))
    num_read(table, *ids)
    table.update_bounds()
    # Shares 0.3838 and 0.1162 of 100 ids: the 38th and the 11th most frequent.
    assert table.bounds.numpy().tolist() == [63, 90]
    small = frequency_table(2, compression_ratio=0.25)
    num_read(small, 1)
    small.update_bounds()
    assert small.bounds.numpy().tolist() == [INT64_MAX, INT64_MAX]


def test_shares_have_the_ratio_as_mean():
    assert np.allclose(block_shares(2, 0.25), [0.3838, 0.1162], atol=1e-4)
    assert np.allclose(block_shares(4, 0.25), [0.5406, 0.2798, 0.1318, 0.0477], atol=1e-4)


# --- Errors ---


def test_errors_say_what_was_given_and_what_to_do():
    table = fe.get_dynamic_dimension_embedding_variable("items", 2, 2)
    lookup = fe.nn.fused_safe_embedding_lookup_sparse
    with pytest.raises(ValueError, match="blocknums must be valid for dynamic"):
        lookup(table, column_of(1))
    with pytest.raises(ValueError, match="must be one blocknum for each id"):
        lookup(table, column_of(1), blocknums=[1, 2])
    with pytest.raises(TypeError, match="blocknums must be integers, got float32"):
        lookup(table, column_of(1), blocknums=[1.0])
    with pytest.raises(ValueError, match="has no blocks"):
        lookup(tf.Variable([[1.0]], name="plain"), column_of(0), blocknums=[1])
    with pytest.raises(ValueError, match="pass such a table alone"):
        lookup([table, table], column_of(1), blocknums=[1])
    with pytest.raises(NotImplementedError, match="items"):
        tf.convert_to_tensor(table)
    with pytest.raises(ValueError, match="default_id = -5"):
        GROUP([table], [column_of(1)], ["sum"], default_ids=[-5], blocknums=[[1]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocknums": "often"}, "must be None or 'frequency', got 'often'"),
        ({"compression_ratio": 0.2}, "needs blocknums='frequency'"),
        ({"blocknums": "frequency", "compression_ratio": 0.6}, "in \\(0, 0.5\\], got 0.6"),
        (
            {
                "blocknums": "frequency",
                "ev_option": fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(2)),
            },
            "has the filter",
        ),
    ],
)
def test_errors_of_the_policy(options, message):
    with pytest.raises(ValueError, match=message):
        fe.get_dynamic_dimension_embedding_variable("items", 2, 2, **options)
    with pytest.raises(ValueError, match="update_bounds of 'items'"):
        fe.get_dynamic_dimension_embedding_variable("items", 2, 2).update_bounds()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[2, 2]],), "num_of_partitions must be 2"),
        (([[2, 2], [0, 2]],), "numbers > 0"),
        (([[2, 2], [2, 3]],), "'add' needs rows of one length"),
        (([[2, 2], [2, 2]], "R-Q"), "complementary_strategy must be one of Q-R"),
        (([[2, 2], [2, 2]], "Q-R", "mult"), "operation must be one of add, mul, concat"),
    ],
)
def test_errors_of_multihash(arguments, message):
    with pytest.raises(ValueError, match=message):
        fe.get_multihash_variable("users", *arguments)


def test_default_ids_read_all_blocks():
    table = fe.get_dynamic_dimension_embedding_variable(
        "items", 1, 2, initializer=tf1.ones_initializer()
    )
    rows = GROUP([table], [sparse([4], [1], 3)], ["mean"], default_ids=[6], blocknums=[[1]])[0]
    assert rows.numpy().tolist() == [[1, 1], [1, 0], [1, 1]]


def test_keys_below_zero_where_nothing_is_pruned():
    table = fe.get_dynamic_dimension_embedding_variable(
        "items", 1, 2, initializer=tf1.ones_initializer()
    )
    lookup = fe.nn.fused_embedding_lookup_sparse_v2
    rows = lookup(table, column_of(-3, 4), combiner="mean", blocknums=[2, 1])
    assert rows.numpy().tolist() == [[1, 1], [1, 0]]
    assert table.blocks[1].export().keys.numpy().tolist() == [-3]
