"""fe.train's optimizers: EmbeddingVariables, rows of ordinary variables and dense ones alike."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.training import BATCHES, DIM, NUM_IDS, ROWS, make_stock, make_table, read, train, v1
from checking import assert_close


class Reference:
    """A rule in float64 on the rows of a step; state by row."""

    def __init__(self, **hyperparameters: Any):
        self.h = hyperparameters
        self.slots: dict[str, np.ndarray] = {}

    def slot(self, name, initial, width=DIM):
        return self.slots.setdefault(name, np.full((NUM_IDS, width), initial, np.float64))


class AdagradDecay(Reference):
    def step(self, rows, ids, grad, step):
        accumulator = self.slot("accumulator", self.h["initial"])
        num_decays = self.slot("decays", 0.0, 1)
        for i in ids:
            if step // self.h["decay_step"] > num_decays[i, 0]:
                decayed = accumulator[i] * self.h["decay_rate"]
                accumulator[i] = np.maximum(decayed, self.h["initial"])
                num_decays[i] += 1
            accumulator[i] += grad[i] ** 2
            rows[i] -= self.h["lr"] * grad[i] / np.sqrt(accumulator[i])


class RowWiseAdagrad(Reference):
    def step(self, rows, ids, grad, step):
        accumulator = self.slot("accumulator", self.h["initial"], 1)
        for i in ids:
            accumulator[i] += np.mean(grad[i] ** 2)
            rows[i] -= self.h["lr"] * grad[i] / (np.sqrt(accumulator[i]) + self.h["epsilon"])


class AdamW(Reference):
    def step(self, rows, ids, grad, step):
        beta1, beta2 = self.h["betas"]
        m, v = self.slot("m", 0.0), self.slot("v", 0.0)
        rate = self.h["lr"] * np.sqrt(1 - beta2**step) / (1 - beta1**step)
        for i in ids:
            m[i] = beta1 * m[i] + (1 - beta1) * grad[i]
            v[i] = beta2 * v[i] + (1 - beta2) * grad[i] ** 2
            decay = self.h["lr"] * self.h.get("decay", 0.0) * rows[i]
            rows[i] -= rate * m[i] / (np.sqrt(v[i]) + self.h["epsilon"]) + decay


class AsyncRmsProp(Reference):
    def step(self, rows, ids, grad, step):
        beta1, beta2 = self.h["betas"]
        m, v = self.slot("m", 0.0), self.slot("v", 0.0)
        for i in ids:
            v[i] = beta2 * v[i] + (1 - beta2) * grad[i] ** 2
            m[i] = beta1 * m[i] + self.h["lr"] * grad[i] / np.sqrt(v[i] + self.h["epsilon"])
            rows[i] -= m[i]


def global_step():
    return v1.train.get_or_create_global_step()


ADAM = {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}
ADAM_REFERENCE = {"lr": 0.1, "betas": (0.8, 0.9), "epsilon": 1e-3}
CASES = {
    "adagrad_decay": (
        lambda: fe.train.AdagradDecayOptimizer(0.1, global_step(), 0.5, 2, 0.7),
        lambda: AdagradDecay(lr=0.1, initial=0.5, decay_step=2, decay_rate=0.7),
    ),
    "adagrad_decay_every_step": (
        lambda: fe.train.AdagradDecayOptimizer(0.1, global_step(), 0.01, 1, 0.5),
        lambda: AdagradDecay(lr=0.1, initial=0.01, decay_step=1, decay_rate=0.5),
    ),
    "row_wise_adagrad": (
        lambda: fe.train.RowWiseAdagradOptimizer(lambda: 0.1, 0.2, 1e-2),
        lambda: RowWiseAdagrad(lr=0.1, initial=0.2, epsilon=1e-2),
    ),
    "row_wise_adagrad_of_zeros": (
        lambda: fe.train.RowWiseAdagradOptimizer(0.1),
        lambda: RowWiseAdagrad(lr=0.1, initial=0.0, epsilon=1e-10),
    ),
    "adamw": (
        lambda: fe.train.AdamWOptimizer(0.3, 0.1, **ADAM),
        lambda: AdamW(**ADAM_REFERENCE, decay=0.3),
    ),
    "adamw_callable": (
        lambda: fe.train.AdamWOptimizer(lambda: 0.3, lambda: 0.1, **ADAM),
        lambda: AdamW(**ADAM_REFERENCE, decay=0.3),
    ),
    "adam_async": (
        lambda: fe.train.AdamAsyncOptimizer(0.1, **ADAM),
        lambda: AdamW(**ADAM_REFERENCE),
    ),
    "adam_async_rmsprop": (
        lambda: fe.train.AdamAsyncOptimizer(0.1, **ADAM, apply_sparse_rmsprop=True),
        lambda: AsyncRmsProp(**ADAM_REFERENCE),
    ),
}
CASE = pytest.mark.parametrize("case", CASES)
WEIGHTS = np.array([1.0, -2.0, 0.5], np.float32)


def expected(reference, batches):
    """The reference's rows after each step of the loss of `sparse_loss`."""
    rows, history = ROWS.astype(np.float64), []
    for step, batch in enumerate(batches, start=1):
        grad = np.zeros(rows.shape)
        np.add.at(grad, batch, rows[batch] * WEIGHTS)
        reference.step(rows, np.unique(batch), grad, step)
        history.append(rows.copy())
    return np.stack(history)


def sparse_loss(table, ids):
    return tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2 * WEIGHTS) / 2


def make_reference_variable(name="table"):
    table = v1.get_variable(name, initializer=ROWS, use_resource=False)
    return table, table.initializer


@CASE
@pytest.mark.parametrize("make", [make_table, make_stock, make_reference_variable])
def test_sparse(case, make):
    make_optimizer, make_reference = CASES[case]

    def build(table, ids):
        return make_optimizer().minimize(sparse_loss(table, ids), global_step())

    assert_close(train(make, build, BATCHES), expected(make_reference(), BATCHES), terms=256)


@pytest.mark.parametrize("make", [make_table, make_stock])
def test_rows_that_come_late_decay_once_a_period(make):
    batches = [[0], [1], [1], [1, 0], [0]]
    make_optimizer, make_reference = CASES["adagrad_decay"]

    def build(table, ids):
        return make_optimizer().minimize(sparse_loss(table, ids), global_step())

    assert_close(train(make, build, batches), expected(make_reference(), batches), terms=256)


@CASE
@pytest.mark.parametrize("make", [make_stock, make_reference_variable])
def test_dense(case, make):
    make_optimizer, make_reference = CASES[case]
    reference = make_reference()
    if isinstance(reference, AsyncRmsProp):
        reference = AdamW(**ADAM_REFERENCE)  # a dense gradient is Adam's

    def build(table, ids):
        loss = tf.reduce_sum(tf.identity(table) ** 2 * WEIGHTS) / 2
        return make_optimizer().minimize(loss, global_step())

    batches = [list(range(NUM_IDS))] * 4
    assert_close(train(make, build, batches), expected(reference, batches), terms=256)


@CASE
def test_scalars_and_vectors_are_rows_of_one(case):
    with tf.Graph().as_default(), v1.Session() as session:
        scalar = v1.get_variable("scalar", initializer=3.0)
        vector = v1.get_variable("vector", initializer=[3.0, 3.0])
        matrix = v1.get_variable("matrix", initializer=[[3.0]])
        loss = tf.add_n([tf.reduce_sum(v**2) for v in (scalar, vector, matrix)])
        train_op = CASES[case][0]().minimize(loss, global_step())
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train_op)
        got = [np.ravel(v) for v in session.run([scalar, vector, matrix])]
        assert_close(np.concatenate(got), np.full(4, got[0][0]))
        assert got[0][0] < 3.0


@CASE
@pytest.mark.parametrize("in_function", [False, True])
def test_eager(case, in_function):
    make_optimizer, make_reference = CASES[case]
    table, _ = make_table(f"eager_{case}_{in_function}")
    step = tf.Variable(0, dtype=tf.int64)
    if "decay" in case and "adagrad" in case:
        optimizer = fe.train.AdagradDecayOptimizer(
            0.1, step, *((0.5, 2, 0.7) if case == "adagrad_decay" else (0.01, 1, 0.5))
        )
    else:
        optimizer = make_optimizer()
    dense = tf.Variable(1.0)

    def update(ids):
        optimizer.minimize(lambda: sparse_loss(table, ids) + dense**2, global_step=step)

    if in_function:
        update = tf.function(update, input_signature=[tf.TensorSpec([None], tf.int64)])
    for batch, rows in zip(BATCHES, expected(make_reference(), BATCHES), strict=True):
        update(tf.constant(batch, tf.int64))
        assert_close(read(table).numpy(), rows, terms=256)
    assert step.numpy() == len(BATCHES)
    assert dense.numpy() < 1.0


def test_adamw_decays_what_it_is_told():
    def build(table, ids, decay_var_list=None):
        other, initializer = make_table("other")
        with tf.control_dependencies([initializer]):
            loss = sparse_loss(table, ids) + sparse_loss(other, ids)
        optimizer = fe.train.AdamWOptimizer(0.3, 0.1, **ADAM)
        return optimizer.minimize(
            loss, decay_var_list=decay_var_list and decay_var_list(table, other)
        )

    def rows(decay_var_list):
        return train(make_table, lambda t, ids: build(t, ids, decay_var_list), BATCHES)

    with_decay = expected(AdamW(**ADAM_REFERENCE, decay=0.3), BATCHES)
    without = expected(AdamW(**ADAM_REFERENCE), BATCHES)
    assert_close(rows(None), with_decay, terms=256)
    assert_close(rows(lambda table, other: [table]), with_decay, terms=256)
    assert_close(rows(lambda table, other: [other]), without, terms=256)


def test_adam_async_has_powers_for_each_variable():
    with tf.Graph().as_default(), v1.Session() as session:
        (a, init_a), (b, init_b) = make_table("a"), make_table("b")
        w = v1.get_variable("w", initializer=1.0, use_resource=True)
        optimizer = fe.train.AdamAsyncOptimizer(0.1, beta1=0.5, beta2=0.25)
        both = optimizer.minimize(sparse_loss(a, [1]) + sparse_loss(b, [2]) + w**2)
        only_a = optimizer.minimize(sparse_loss(a, [1]), var_list=[a])
        powers = {
            v.op.name: [optimizer.get_slot(v, f"beta{i}_power") for i in (1, 2)] for v in (a, b, w)
        }
        assert {p.ref() for ps in powers.values() for p in ps} <= {
            v.ref() for v in v1.global_variables()
        }
        session.run([v1.global_variables_initializer(), init_a, init_b])
        session.run(both)
        session.run(only_a)
        assert session.run(powers) == {
            "a": [0.5**3, 0.25**3],
            "b": [0.5**2, 0.25**2],
            "w": [0.5**2, 0.25**2],
        }


def test_adam_async_steps_of_each_variable():
    """A table that has seen one update is at its first step, whatever others have seen."""
    with tf.Graph().as_default(), v1.Session() as session:
        (a, init_a), (b, init_b) = make_table("a"), make_table("b")
        optimizer = fe.train.AdamAsyncOptimizer(0.1, **ADAM)
        only_a = optimizer.minimize(sparse_loss(a, [1]), var_list=[a])
        both = optimizer.minimize(sparse_loss(a, [1]) + sparse_loss(b, [1]), var_list=[a, b])
        session.run([v1.global_variables_initializer(), init_a, init_b])
        session.run(only_a)
        session.run(both)
        history = expected(AdamW(**ADAM_REFERENCE), [[1], [1]])
        assert_close(session.run(read(a)), history[1], terms=256)
        assert_close(session.run(read(b)), history[0], terms=256)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fe.train.AdagradDecayOptimizer(0.1, None, 0.0), "must be > 0, got 0.0"),
        (lambda: fe.train.AdagradDecayOptimizer(0.1, None, 0.1, 0), "decay_step must be > 0"),
        (lambda: fe.train.AdagradDecayOptimizer(0.1, None, 0.1, 1, 1.0), r"in \(0, 1\), got 1.0"),
        (lambda: fe.train.RowWiseAdagradOptimizer(0.1, -1.0), "must be >= 0, got -1.0"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
