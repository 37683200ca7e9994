"""First values of slots: stock's, and no copy of them in a session."""

import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.training import OPTIMIZERS, v1
from checking import assert_same_bits
from fused_embedding.train.slot_values import _MIN_VALUES

DIM = 64
NUM_ROWS = _MIN_VALUES // DIM
DEEPREC = {
    "adagrad_decay": lambda train: train.AdagradDecayOptimizer(
        0.1, tf.compat.v1.train.get_or_create_global_step(), 0.3
    ),
    "row_wise_adagrad": lambda train: train.RowWiseAdagradOptimizer(0.1, 0.3),
    "adam_async": lambda train: train.AdamAsyncOptimizer(0.1),
    "adamw": lambda train: train.AdamWOptimizer(0.01, 0.1),
}


def program(make, train, dtype=tf.float32, **variable):
    """Slots by the names of their variables, and shapes of the constants that a session keeps."""
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable(
            "table", [2 * NUM_ROWS, DIM], dtype, v1.random_uniform_initializer(seed=1), **variable
        )
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 3]))
        optimizer = make(train)
        optimizer.minimize(loss)
        metadata = v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        session.run(v1.global_variables_initializer(), options=options, run_metadata=metadata)
        slots = {v.op.name: v for v in v1.global_variables() if v.op.name.startswith("table/")}
        constants = [
            tf.TensorShape(node.attr["value"].tensor.tensor_shape)
            for graph in metadata.partition_graphs
            for node in graph.node
            if node.op == "Const"
        ]
        return session.run(slots), [c for c in constants if c.num_elements() >= _MIN_VALUES]


@pytest.mark.parametrize("use_resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_are_stocks(name, use_resource):
    ours, kept = program(OPTIMIZERS[name], fe.train, use_resource=use_resource)
    stocks, _ = program(OPTIMIZERS[name], v1.train, use_resource=use_resource)
    assert list(ours) == list(stocks)
    for slot in stocks:
        assert_same_bits(ours[slot], stocks[slot])
    assert not kept


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16], ids=lambda d: d.name)
def test_slots_of_other_types_and_of_partitions_are_stocks(dtype):
    how = {"dtype": dtype, "partitioner": v1.fixed_size_partitioner(2)}
    ours, kept = program(OPTIMIZERS["adagrad"], fe.train, **how)
    stocks, _ = program(OPTIMIZERS["adagrad"], v1.train, **how)
    assert list(ours) == list(stocks)
    assert len(ours) == 4
    for slot in stocks:
        assert_same_bits(ours[slot], stocks[slot])
    assert not kept


@pytest.mark.parametrize("name", DEEPREC)
def test_a_session_keeps_no_copy_of_other_slots(name):
    slots, kept = program(DEEPREC[name], fe.train)
    assert slots
    assert not kept


def test_stock_keeps_a_copy():
    """Else the tests above would have nothing to find."""
    assert program(OPTIMIZERS["adagrad"], v1.train)[1]
