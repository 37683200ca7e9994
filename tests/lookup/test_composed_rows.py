"""Lookups of one row per id in tables of several parts."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tables import slices_of

tf1 = tf.compat.v1
LOOKUPS = {
    "v2": fe.nn.embedding_lookup,
    "v1": fe.compat.v1.nn.embedding_lookup,
    "group": lambda table, ids, blocknums=None: fe.nn.group_embedding_lookup(
        [table], [ids], blocknums=None if blocknums is None else [blocknums]
    )[0],
}


def blocks(name="items"):
    return fe.get_dynamic_dimension_embedding_variable(
        name, 2, 2, initializer=tf1.ones_initializer()
    )


@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
@pytest.mark.parametrize("shape", [[4], [2, 2], [2, 1, 2]], ids=str)
def test_worked_example_of_blocks(lookup, shape):
    table = blocks()
    ids, numbers = (np.reshape(v, shape) for v in ([7, 9, 7, 5], [2, 1, 2, 0]))
    with tf.GradientTape() as tape:
        rows = lookup(table, tf.constant(ids), blocknums=tf.constant(numbers))
        loss = tf.reduce_sum(rows)
    want = [[1] * 4, [1, 1, 0, 0], [1] * 4, [0] * 4]
    np.testing.assert_array_equal(rows, np.reshape(want, [*shape, 4]))
    grads = tape.gradient(loss, table.blocks)
    assert [slices_of(g) for g in grads] == [{7: [2, 2], 9: [1, 1]}, {7: [2, 2]}]
    assert [block.export().keys.numpy().tolist() for block in table.blocks] == [[7, 9], [7]]


@pytest.mark.parametrize("lookup", [LOOKUPS["v2"], LOOKUPS["v1"]], ids=["v2", "v1"])
def test_ragged_ids_and_max_norm(lookup):
    ids, numbers = tf.ragged.constant([[7, 9], [], [7]]), tf.ragged.constant([[2, 1], [], [0]])
    rows = lookup(blocks(), ids, blocknums=numbers, max_norm=1.0)
    row = [0.5] * 4
    want = [[row, [0.5**0.5] * 2 + [0.0] * 2], [], [[0.0] * 4]]
    assert [len(of_row) for of_row in rows] == [2, 0, 1]
    np.testing.assert_allclose(rows.values, want[0] + want[2], rtol=1e-6)


@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
def test_other_kinds_of_tables(lookup):
    ids = tf.constant([[0, 5], [11, 3]])
    hashed = fe.get_multihash_variable("users", [[3, 2], [4, 3]], operation="concat")
    want = tf.concat(
        [tf.gather(hashed.quotients, ids // 4), tf.gather(hashed.remainders, ids % 4)], -1
    )
    np.testing.assert_array_equal(lookup(hashed, ids), want)
    option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=2))
    adaptive = fe.get_adaptive_embedding_variable("words", 2, 5, ev_option=option)
    buckets = tf.strings.to_hash_bucket_fast(tf.strings.as_string(ids), 5)
    np.testing.assert_array_equal(lookup(adaptive, ids), tf.gather(adaptive.hash_weights, buckets))


@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
def test_errors(lookup):
    with pytest.raises(ValueError, match="blocknums must be valid for dynamic embedding variable"):
        lookup(blocks(), tf.constant([1]))
    with pytest.raises(ValueError, match="has no blocks"):
        lookup(tf.Variable(tf.ones([3, 2])), tf.constant([1]), blocknums=[1])
    with pytest.raises(ValueError, match=r"one blocknum for each id, got \(1,\) .* \(2,\) ids"):
        lookup(blocks(), tf.constant([1, 2]), blocknums=[1])
    with pytest.raises(TypeError, match="blocknums must be integers, got float32"):
        lookup(blocks(), tf.constant([1]), blocknums=[1.0])
