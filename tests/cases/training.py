"""One training program on an EmbeddingVariable and on the stock variable that it must equal."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from checking import assert_close
from fused_embedding import raw_ops

v1 = tf.compat.v1
NUM_IDS, DIM = 12, 3
ROWS = np.random.RandomState(7).standard_normal((NUM_IDS, DIM)).astype(np.float32)

# By the module that has them: tf.compat.v1.train or fe.train.
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "gradient_descent": lambda train, lr=0.1: train.GradientDescentOptimizer(lr),
    "momentum": lambda train, lr=0.1: train.MomentumOptimizer(lr, 0.9),
    "nesterov": lambda train, lr=0.1: train.MomentumOptimizer(lr, 0.7, use_nesterov=True),
    "adagrad": lambda train, lr=0.1: train.AdagradOptimizer(lr, initial_accumulator_value=0.2),
    "rmsprop": lambda train, lr=0.1: train.RMSPropOptimizer(
        lr, decay=0.8, momentum=0.5, epsilon=1e-3
    ),
    "centered_rmsprop": lambda train, lr=0.1: train.RMSPropOptimizer(
        lr, epsilon=1e-3, centered=True
    ),
    "adam": lambda train, lr=0.1: train.AdamOptimizer(lr, beta1=0.8, beta2=0.95, epsilon=1e-4),
    "ftrl": lambda train, lr=0.1: train.FtrlOptimizer(
        lr,
        learning_rate_power=-0.6,
        initial_accumulator_value=0.3,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.1,
        l2_shrinkage_regularization_strength=0.02,
        beta=0.05,
    ),
    "ftrl_of_deeprec": lambda train, lr=0.1: train.FtrlOptimizer(
        lr, l1_regularization_strength=2.0, l2_regularization_strength=0.00001
    ),
}
STOCK_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    name: functools.partial(make, v1.train) for name, make in OPTIMIZERS.items()
}


def make_table(name: str = "table") -> tuple[Any, Any]:
    """An EmbeddingVariable that holds ROWS, and the op that puts them there."""
    table = fe.get_embedding_variable(name, embedding_dim=DIM)
    keys = tf.range(NUM_IDS, dtype=tf.int64)
    return table, raw_ops.EmbeddingVariableUpsert(resource=table.handle, keys=keys, values=ROWS)


def make_stock(name: str = "table") -> tuple[Any, Any]:
    """An ordinary variable that holds ROWS."""
    table = v1.get_variable(name, initializer=ROWS, use_resource=True)
    return table, table.initializer


def read(table: Any) -> tf.Tensor:
    """All rows; changes nothing."""
    if not isinstance(table, fe.EmbeddingVariable):
        return table.read_value()
    return raw_ops.EmbeddingVariableLookup(
        resource=table.handle,
        keys=tf.range(NUM_IDS, dtype=tf.int64),
        counts=tf.zeros([0], tf.int32),
        step=tf.constant(-1, tf.int64),
        insert=False,
        dtype=table.dtype,
    )[0]


def loss_of(rows: tf.Tensor, weight: Any = 1.0) -> tf.Tensor:
    """A loss whose gradient depends on the rows."""
    return tf.reduce_sum(tf.tanh(rows) ** 2 * tf.constant([1.0, -2.0, 0.5]) * weight)


Build = Callable[[Any, tf.Tensor], Any]  # table, [n] ids -> train op


def train(make: Callable[..., Any], build: Build, batches: list[list[int]], prepare: Any = None):
    """Runs a program in a graph of its own; the rows after each step: `[steps, NUM_IDS, DIM]`."""
    with tf.Graph().as_default(), v1.Session() as session:
        table, initializer = make()
        ids = v1.placeholder(tf.int64, [None])
        train_op = build(table, ids)
        rows = read(table)
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        session.run(initializer)
        if prepare is not None:
            prepare(session)
        history = []
        for batch in batches:
            session.run(train_op, {ids: np.array(batch, np.int64)})
            history.append(session.run(rows))
        return np.stack(history)


BATCHES = [[0, 3, 3, 5], [5, 1, 2, 0], [3, 3, 3, 3], [11, 0, 4, 7], [0, 1, 2, 3]]


def assert_trains_as_stock(build: Build, batches: list[list[int]] | None = None, terms: int = 64):
    """The program gives an EmbeddingVariable what it gives an ordinary variable, step by step."""
    batches = BATCHES if batches is None else batches
    got, want = train(make_table, build, batches), train(make_stock, build, batches)
    assert not np.array_equal(want[-1], ROWS), "the program trains nothing"
    assert_close(got, want, terms)
