"""tf.nn.embedding_lookup and tf.gather of EmbeddingVariables, partitioned or not."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe

tf1 = tf.compat.v1
DIM = 4
KEYS = np.array([[7, 3, 7], [0, 1 << 40, 3]])
ROWS = np.arange(1, 17, dtype=np.float32).reshape(4, DIM)  # of 0, 3, 7 and 1 << 40
ROW_OF_KEY = dict(zip((0, 3, 7, 1 << 40), ROWS, strict=True))
WEIGHTS = np.arange(1, 7, dtype=np.float32).reshape(2, 3, 1)
LOOKUPS = {
    "nn": lambda table, keys: tf.nn.embedding_lookup(table, keys),
    "v1.nn": lambda table, keys: tf1.nn.embedding_lookup(table, keys),
    "gather": lambda table, keys: tf.gather(table, keys),
    "v1.gather": lambda table, keys: tf1.gather(table, keys),
    "fe.nn": lambda table, keys: fe.nn.embedding_lookup(table, keys),
    "nn of parts": lambda table, keys: tf.nn.embedding_lookup(list(table), keys),
    "v1.nn of parts": lambda table, keys: tf1.nn.embedding_lookup([*table], keys),
    "fe.nn of parts": lambda table, keys: fe.nn.embedding_lookup(list(table), keys),
    "fe.v1.nn": lambda table, keys: fe.compat.v1.nn.embedding_lookup(table, keys),
}


def make_table(partitions, strategy="hash"):
    partitioner = tf1.fixed_size_partitioner(partitions) if partitions else None
    return fe.get_embedding_variable(
        "table", DIM, partitioner=partitioner, partition_strategy=strategy
    )


def outcome(mode, lookup, partitions):
    """Rows, gradients by key, and frequencies of one lookup."""
    if mode == "session":
        with tf.Graph().as_default(), tf1.Session() as session:
            table = make_table(partitions)
            upsert = table.upsert([*ROW_OF_KEY], ROWS)
            parts = list(table) if partitions else [table]
            rows = lookup(table, tf.constant(KEYS))
            gradients = tf1.gradients(tf.reduce_sum(rows * WEIGHTS), parts)
            session.run(upsert)
            rows, gradients = session.run([rows, [(g.indices, g.values) for g in gradients]])
            frequencies = session.run(table.get_frequency([*ROW_OF_KEY]))
    else:
        table = make_table(partitions)
        table.upsert([*ROW_OF_KEY], ROWS)
        parts = list(table) if partitions else [table]

        def step(keys):
            with tf.GradientTape() as tape:
                rows = lookup(table, keys)
                loss = tf.reduce_sum(rows * WEIGHTS)
            return rows, [(g.indices, g.values) for g in tape.gradient(loss, parts)]

        step = tf.function(step) if mode == "function" else step
        rows, gradients = step(tf.constant(KEYS))
        frequencies = table.get_frequency([*ROW_OF_KEY])
    by_key = {}
    for indices, values in gradients:
        assert not set(by_key) & set(np.array(indices))  # each key in one partition
        by_key.update(zip(np.array(indices).tolist(), np.array(values), strict=True))
    return np.array(rows), by_key, np.array(frequencies)


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("mode", ["eager", "function", "session"])
def test_rows_gradients_and_counts_of_a_partitioned_variable(mode, lookup):
    rows, gradients, frequencies = outcome(mode, LOOKUPS[lookup], partitions=3)
    np.testing.assert_array_equal(rows, [[ROW_OF_KEY[key] for key in row] for row in KEYS.tolist()])
    want = {key: WEIGHTS[key == KEYS].sum() for key in ROW_OF_KEY}
    assert set(gradients) == set(want)
    for key, gradient in gradients.items():
        np.testing.assert_array_equal(gradient, [want[key]] * DIM)
    np.testing.assert_array_equal(frequencies, [1, 2, 2, 1])


@pytest.mark.parametrize("strategy", ["hash", "mod_ev"])
@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_all_kinds_of_ids(partitions, strategy):
    table = make_table(partitions, strategy)
    table.upsert([*ROW_OF_KEY], ROWS)
    lookup = tf.nn.embedding_lookup
    np.testing.assert_array_equal(lookup(table, 3), ROW_OF_KEY[3])
    np.testing.assert_array_equal(lookup(table, tf.constant([7], tf.int32)), [ROW_OF_KEY[7]])
    assert lookup(table, np.zeros([2, 0], np.int64)).shape == (2, 0, DIM)
    ragged = lookup(table, tf.ragged.constant([[7], [], [0, 3]], dtype=tf.int64))
    np.testing.assert_array_equal(ragged.flat_values, [ROW_OF_KEY[key] for key in (7, 0, 3)])
    np.testing.assert_array_equal(ragged.row_splits, [0, 1, 1, 3])
    want = ROW_OF_KEY[7] / np.linalg.norm(ROW_OF_KEY[7]) * 2
    np.testing.assert_allclose(lookup(table, [7], max_norm=2.0), [want], rtol=1e-6)


def test_a_dense_table_is_looked_up_by_stock():
    table = [tf.constant([[1.0], [2.0]]), tf.constant([[3.0], [4.0]])]
    np.testing.assert_array_equal(
        fe.nn.embedding_lookup(table, [1, 2], max_norm=1.5),
        tf.nn.embedding_lookup(table, [1, 2], max_norm=1.5),
    )
    np.testing.assert_array_equal(
        fe.compat.v1.nn.embedding_lookup(table, [1, 2]), tf1.nn.embedding_lookup(table, [1, 2])
    )


def test_what_is_no_whole_variable_is_refused():
    table = make_table(3)
    with pytest.raises(ValueError, match="all partitions of one"):
        fe.nn.embedding_lookup(list(table)[:2], [1])
    with pytest.raises(ValueError, match="all partitions of one"):
        tf.nn.embedding_lookup(list(table)[:2], [1])
    with pytest.raises(NotImplementedError, match=r"'table' was read .* as one dense tensor"):
        tf.gather(table, [1], axis=1)


def test_stocks_sparse_lookups_of_all_partitions():
    table = make_table(3)
    table.upsert([*ROW_OF_KEY], ROWS)
    ids = tf.sparse.from_dense(tf.constant([[7, 3], [1 << 40, 0]], tf.int64))
    want = [ROW_OF_KEY[7] + ROW_OF_KEY[3], ROW_OF_KEY[1 << 40]]
    for rows in (
        tf.nn.embedding_lookup_sparse(list(table), ids, None, combiner="sum"),
        tf.nn.safe_embedding_lookup_sparse(list(table), ids, combiner="sum"),
    ):
        np.testing.assert_array_equal(rows, want)
