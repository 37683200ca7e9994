"""Tables behind fe.nn, whole and in partitions, are trained as stock trains a variable."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.training import DIM, NUM_IDS, ROWS, loss_of, make_stock, train, v1
from checking import assert_close

INDICES = [[0, 0], [0, 1], [2, 0], [3, 0], [3, 1], [4, 0]]
BATCHES = [[3, 0, 3, 5, 3, 1], [1, -1, 4, 4, 4, 11], [0, 3, 5, 3, 2, 2], [7, 7, 7, 7, 7, 7]]
LOOKUPS = {
    "v1": lambda table, ids: fe.nn.fused_safe_embedding_lookup_sparse(
        table, ids, fusion_version="v1"
    ),
    "v2": lambda table, ids: fe.nn.fused_safe_embedding_lookup_sparse(
        table, ids, fusion_version="v2"
    ),
    "v3": lambda table, ids: fe.nn.fused_safe_embedding_lookup_sparse(
        table, ids, fusion_version="v3"
    ),
    "max_norm": lambda table, ids: fe.nn.fused_safe_embedding_lookup_sparse(
        table, ids, max_norm=0.5
    ),
    "stand_in": lambda table, ids: fe.nn.safe_embedding_lookup_sparse(table, ids),
}


def ids_of(values):
    return tf.SparseTensor(INDICES, values, [6, 2])


def train_table(lookup, num_partitions, make_optimizer):
    """The rows after each batch, read through a lookup, and the graph."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        partitioner = num_partitions and v1.fixed_size_partitioner(num_partitions)
        table = fe.get_embedding_variable("table", embedding_dim=DIM, partitioner=partitioner)
        keys = tf.range(NUM_IDS, dtype=tf.int64)
        initializer = table.upsert(keys, ROWS)
        values = v1.placeholder(tf.int64, [len(INDICES)])
        train_op = make_optimizer().minimize(loss_of(lookup(table, ids_of(values))))
        with fe.inference():
            one_a_row = tf.SparseTensor([[i, 0] for i in range(NUM_IDS)], keys, [NUM_IDS, 1])
            rows = fe.nn.fused_safe_embedding_lookup_sparse(table, one_a_row, combiner="sum")
        session.run([v1.global_variables_initializer(), initializer])
        history = []
        for batch in BATCHES:
            session.run(train_op, {values: batch})
            history.append(session.run(rows))
        return np.stack(history), graph


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("num_partitions", [None, 1, 3])
def test_trains_as_stock(lookup, num_partitions):
    def make_optimizer():
        return v1.train.AdagradOptimizer(0.1)

    def build(table, values):
        rows = tf.nn.safe_embedding_lookup_sparse(
            table, ids_of(values), max_norm=0.5 if lookup == "max_norm" else None
        )
        return make_optimizer().minimize(loss_of(rows))

    want = train(make_stock, build, BATCHES)
    assert not np.array_equal(want[-1], ROWS)
    got, graph = train_table(LOOKUPS[lookup], num_partitions, make_optimizer)
    assert_close(got, want, terms=128)
    (apply,) = [op for op in graph.get_operations() if op.type == "EmbeddingVariableApply"]
    assert apply.get_attr("slot_prefixes") == [b"Adagrad"] * (num_partitions or 1)


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("num_partitions", [None, 3])
def test_updates_have_the_row_handles(lookup, num_partitions):
    """No update has to find a row: the index is asked once a key and step, by the lookup."""
    _, graph = train_table(LOOKUPS[lookup], num_partitions, lambda: v1.train.AdagradOptimizer(0.1))
    (apply,) = [op for op in graph.get_operations() if op.type == "EmbeddingVariableApply"]
    num_parts = num_partitions or 1
    want = "EmbeddingVariableLookup"
    if lookup not in ("v1", "v2"):
        is_whole = num_parts == 1
        want = f"EmbeddingVariable{'GroupLookup' if is_whole else 'RemoteRows'}"
    handles = apply.inputs[2 * num_parts : 3 * num_parts]
    assert [handle.op.type for handle in handles] == [want] * num_parts


def test_probes():
    """What the table counts: one probe for each key and step."""
    with tf.Graph().as_default(), v1.Session() as session:
        table = fe.get_embedding_variable("table", embedding_dim=DIM)
        values = v1.placeholder(tf.int64, [len(INDICES)])
        loss = loss_of(fe.nn.fused_safe_embedding_lookup_sparse(table, ids_of(values)))
        train_op = v1.train.AdamOptimizer(0.1).minimize(loss)
        probes = table.statistics()["index_probes"]
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            before = session.run(probes)
            session.run(train_op, {values: [1, 2, 2, 7, 9, 7]})
            if before:  # the first step inserts the keys, which asks the index twice
                assert session.run(probes) - before == 4
