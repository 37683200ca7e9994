"""Executed ops of a training step of 26 columns, by kind of table: docs/compressed_tables.md."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from checking import executed_ops

# On a GPU there are copies to the CPU besides.
pytestmark = pytest.mark.on_cpu

tf1 = tf.compat.v1
NUM_COLUMNS = 26


def blocks(i, **options):
    return fe.get_dynamic_dimension_embedding_variable(f"t{i}", 4, 2, **options)


FILTER = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=3))
# The most that are executed today.
KINDS = {
    "tables": (lambda i: tf1.get_variable(f"t{i}", [100, 8], use_resource=True), 93),
    "multi-hash": (lambda i: fe.get_multihash_variable(f"t{i}", [[10 + i, 8]] * 2), 177),
    "EmbeddingVariables": (lambda i: fe.get_embedding_variable(f"t{i}", 8), 68),
    "blocks": (blocks, 182),
    "frequency": (lambda i: blocks(i, blocknums="frequency"), 222),
    "adaptive": (
        lambda i: fe.get_adaptive_embedding_variable(f"t{i}", 8, 10, ev_option=FILTER),
        218,
    ),
}


@pytest.mark.skipif(
    not tf.__version__.startswith("2.21"),
    reason="others fold other constants",
)
@pytest.mark.parametrize("kind", KINDS)
def test_ops_of_a_training_step(kind):
    make, most = KINDS[kind]
    rng = np.random.default_rng(0)
    with tf.Graph().as_default(), tf1.Session() as session:
        tables = [make(i) for i in range(NUM_COLUMNS)]
        indices = tf1.placeholder(tf.int64, [None, 2])
        shape = tf1.placeholder(tf.int64, [2])
        values = [tf1.placeholder(tf.int64, [None]) for _ in tables]
        ids = [tf.SparseTensor(indices, v, shape) for v in values]
        numbers = [tf1.placeholder(tf.int64, [None]) for _ in tables] if kind == "blocks" else None
        output = fe.nn.group_embedding_lookup_sparse(
            tables, ids, ["mean"] * NUM_COLUMNS, blocknums=numbers, concat=True
        )
        train = fe.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(output * output))
        session.run(tf1.global_variables_initializer())
        feeds = {indices: np.stack([np.arange(16)] * 2, axis=1), shape: [16, 16]}
        feeds |= {v: rng.integers(0, 90, 16) for v in values}
        feeds |= {n: rng.integers(0, 3, 16) for n in numbers or ()}
        num_ops = sum(executed_ops(session, train, feeds).values())
    assert num_ops <= most
