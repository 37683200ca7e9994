"""8 optimizer steps on random mixes of columns: grouped lookups and fe.train against stock."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.groups import grouped, random_case, stock

tf1 = tf.compat.v1
NUM_STEPS = 8
ADAM = (0.05, 0.9, 0.99, 1e-6)  # learning rate, both betas, epsilon
OPTIMIZERS = {
    "sgd": lambda train: train.GradientDescentOptimizer(0.1),
    "momentum": lambda train: train.MomentumOptimizer(0.1, 0.7, use_nesterov=True),
    "adagrad": lambda train: train.AdagradOptimizer(0.1),
    "rmsprop": lambda train: train.RMSPropOptimizer(0.05, momentum=0.3),
    "ftrl": lambda train: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adam": lambda train: train.AdamOptimizer(*ADAM),
}


class LazyAdam:
    """Adam in numpy; rows without a gradient rest. Source: Kingma and Ba, algorithm 1."""

    def __init__(self):
        self.step, self.moments = 0, {}

    def apply_gradients(self, grads_and_vars):
        lr, beta1, beta2, epsilon = ADAM
        self.step += 1
        lr *= np.sqrt(1 - beta2**self.step) / (1 - beta1**self.step)
        for i, (grad, variable) in enumerate(grads_and_vars):
            rows, m, v = variable.numpy(), *self.moments.get(i, np.zeros((2, *variable.shape)))
            sums = np.zeros_like(rows)
            np.add.at(sums, grad.indices.numpy(), grad.values.numpy())
            for row in set(grad.indices.numpy().tolist()):
                m[row] += (1 - beta1) * (sums[row] - m[row])
                v[row] += (1 - beta2) * (sums[row] ** 2 - v[row])
                rows[row] -= lr * m[row] / (np.sqrt(v[row]) + epsilon)
            self.moments[i] = m, v
            variable.assign(rows)


def train(initial, columns, lookup, optimizer):
    """Rows of all tables after the last step."""
    tables = [tf.Variable(rows) for rows in initial]
    rng = np.random.default_rng(1)
    for _ in range(NUM_STEPS):
        batch = []
        for column in columns:
            num_ids, shape = len(initial[column.table]), column.sp_ids.values.shape
            values = tf.cast(rng.integers(-1, num_ids, shape), column.sp_ids.values.dtype)
            batch.append(column._replace(sp_ids=column.sp_ids.with_values(values)))
        with tf.GradientTape() as tape:
            outputs = lookup(tables, batch)
            losses = [tf.reduce_sum(tf.tanh(tf.cast(o, tf.float64))) for o in outputs]
            loss = tf.add_n(losses)
        grads = tape.gradient(loss, tables)
        optimizer.apply_gradients(list(zip(grads, tables, strict=True)))
    return [table.numpy() for table in tables]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("seed", range(6))
def test_8_steps_equal_stock(seed, optimizer):
    tables, columns = random_case(seed)
    used = sorted({column.table for column in columns})
    initial = [tables[t].numpy() for t in used]
    columns = [column._replace(table=used.index(column.table)) for column in columns]
    make = OPTIMIZERS[optimizer]
    want_optimizer = LazyAdam() if optimizer == "adam" else make(tf1.train)
    want = train(initial, columns, stock, want_optimizer)
    got = train(initial, columns, grouped, make(fe.train))
    tol = 1e-6 if optimizer == "adam" else 1e-7  # stock keeps Adam's powers of beta in float32
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=10 * tol, atol=tol)
