"""The stock v1 optimizers train EmbeddingVariables as they train ordinary variables."""

import gc

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.training import (
    BATCHES,
    DIM,
    NUM_IDS,
    ROWS,
    STOCK_OPTIMIZERS,
    assert_trains_as_stock,
    loss_of,
    make_stock,
    make_table,
    read,
    train,
    v1,
)
from checking import assert_close

ALL_IDS = [list(range(NUM_IDS))] * 4  # stock Adam moves the rows of other ids as well: let none be
OPTIMIZER = pytest.mark.parametrize("name", STOCK_OPTIMIZERS)


def batches_for(name):
    return ALL_IDS if name == "adam" else BATCHES


@OPTIMIZER
def test_minimize_is_stocks_step_by_step(name):
    def build(table, ids):
        loss = loss_of(tf.nn.embedding_lookup(table, ids))
        return STOCK_OPTIMIZERS[name]().minimize(loss)

    assert_trains_as_stock(build, batches_for(name))


@OPTIMIZER
def test_learning_rate_tensor(name):
    def build(table, ids):
        step = v1.train.get_or_create_global_step()
        rate = v1.train.exponential_decay(0.3, step, 1, 0.5)
        loss = loss_of(tf.nn.embedding_lookup(table, ids))
        return STOCK_OPTIMIZERS[name](rate).minimize(loss, step)

    assert_trains_as_stock(build, batches_for(name))


def test_callable_hyperparameters():
    def build(table, ids):
        loss = loss_of(tf.nn.embedding_lookup(table, ids))
        return v1.train.MomentumOptimizer(lambda: 0.05, lambda: 0.6).minimize(loss)

    assert_trains_as_stock(build)


@OPTIMIZER
@pytest.mark.parametrize("use_resource", [False, True])
def test_beside_ordinary_variables(name, use_resource):
    """Both kinds in one optimizer: both as stock, and the global step counts steps."""
    others = {}

    def build(table, ids):
        step = v1.train.get_or_create_global_step()
        ones = tf.ones([DIM])
        dense = v1.get_variable("dense", initializer=ones, use_resource=use_resource)
        sparse = v1.get_variable("sparse", initializer=ROWS, use_resource=use_resource)
        rows = tf.nn.embedding_lookup(table, ids) * dense + tf.nn.embedding_lookup(sparse, ids)
        with tf.control_dependencies([STOCK_OPTIMIZERS[name]().minimize(loss_of(rows), step)]):
            kept = others.setdefault(type(table).__name__, [])
            return tf.numpy_function(
                lambda *values: kept.append(values) or np.int64(0),
                [step.read_value(), dense.read_value(), sparse.read_value()],
                tf.int64,
            )

    assert_trains_as_stock(build, batches_for(name))
    got, want = others.values()
    assert [int(step) for step, *_ in got] == list(range(1, len(got) + 1))
    for got_values, want_values in zip(got, want, strict=True):
        for one, other in zip(got_values[1:], want_values[1:], strict=True):
            assert_close(one, other, terms=64)


def lazy_adam(rows, batches, lr, beta1, beta2, epsilon):
    """Adam on the rows of each step alone, in float64; the step's number is the optimizer's."""
    rows, m, v = rows.astype(np.float64), np.zeros(rows.shape), np.zeros(rows.shape)
    history = []
    for step, batch in enumerate(batches, start=1):
        grad = np.zeros(rows.shape)
        tanh = np.tanh(rows)
        slope = 2 * tanh * (1 - tanh**2) * [1.0, -2.0, 0.5]
        np.add.at(grad, batch, slope[batch])
        touched = np.unique(batch)
        m[touched] = beta1 * m[touched] + (1 - beta1) * grad[touched]
        v[touched] = beta2 * v[touched] + (1 - beta2) * grad[touched] ** 2
        rate = lr * np.sqrt(1 - beta2**step) / (1 - beta1**step)
        rows[touched] -= rate * m[touched] / (np.sqrt(v[touched]) + epsilon)
        history.append(rows.copy())
    return np.stack(history)


def test_adam_is_lazy():
    def build(table, ids):
        optimizer = v1.train.AdamOptimizer(0.1, beta1=0.8, beta2=0.9, epsilon=1e-3)
        return optimizer.minimize(loss_of(tf.nn.embedding_lookup(table, ids)))

    got = train(make_table, build, BATCHES)
    assert_close(got, lazy_adam(ROWS, BATCHES, 0.1, 0.8, 0.9, 1e-3), terms=128)


@pytest.mark.parametrize("has_ordinary", [False, True])
def test_powers_of_beta(has_ordinary):
    """They are stock's variables, saved with the others, and change once a step."""
    with tf.Graph().as_default(), v1.Session() as session:
        tables = [make_table(name) for name in ("b", "a")]
        loss = tf.add_n([loss_of(tf.nn.embedding_lookup(t, [1, 2])) for t, _ in tables])
        if has_ordinary:
            loss += v1.get_variable("w", initializer=1.0, use_resource=True)
        train_op = v1.train.AdamOptimizer(0.1, beta1=0.5, beta2=0.25).minimize(loss)
        powers = [v for v in v1.global_variables() if "power" in v.name]
        assert [v.name for v in powers] == ["beta1_power:0", "beta2_power:0"]
        session.run([v1.global_variables_initializer(), [op for _, op in tables]])
        for step in range(1, 4):
            assert session.run(powers) == [0.5**step, 0.25**step]
            session.run(train_op)


def test_two_optimizers_of_one_name_keep_their_own_slots():
    def build(table, ids):
        loss = loss_of(tf.nn.embedding_lookup(table, ids))
        first = v1.train.AdagradOptimizer(0.1).minimize(loss, var_list=[table])
        with tf.control_dependencies([first]):
            other = loss_of(tf.nn.embedding_lookup(table, ids), weight=3.0)
            return v1.train.AdagradOptimizer(0.2).minimize(other, var_list=[table])

    assert_trains_as_stock(build)


def applies(graph):
    return [op for op in graph.get_operations() if op.type == "EmbeddingVariableApply"]


def test_names_of_slots_are_stocks():
    with tf.Graph().as_default() as graph:
        table, _ = make_table()
        loss = loss_of(tf.nn.embedding_lookup(table, [1, 2]))
        optimizer = v1.train.AdagradOptimizer(0.1)
        optimizer.minimize(loss, var_list=[table])
        optimizer.minimize(loss, var_list=[table])  # the same optimizer: the same slots
        v1.train.AdagradOptimizer(0.1).minimize(loss, var_list=[table])
        gc.collect()  # the name of an optimizer that is gone is taken
        v1.train.AdagradOptimizer(0.1, name="Adagrad").minimize(loss, var_list=[table])
        v1.train.AdagradOptimizer(0.1, name="Other").minimize(loss, var_list=[table])
        prefixes = [op.get_attr("slot_prefixes") for op in applies(graph)]
        names = [b"Adagrad", b"Adagrad", b"Adagrad_1", b"Adagrad_2", b"Other"]
        assert prefixes == [[name] for name in names]


def test_plain_path_finds_each_row_once():
    """The update has the lookup's row handles, and no duplicates to look for."""
    with tf.Graph().as_default() as graph:
        table, _ = make_table()
        loss = loss_of(tf.nn.embedding_lookup(table, [1, 2, 1]))
        before = len(graph.get_operations())
        v1.train.AdagradOptimizer(0.1).minimize(loss)
        (apply,) = applies(graph)
        lookup = apply.inputs[2].op
        assert lookup.type == "EmbeddingVariableLookup"
        assert apply.inputs[1] is lookup.inputs[1]
        new = {op.type for op in graph.get_operations()[before:]}
        assert not {op for op in new if "Unique" in op}


def test_update_is_colocated_with_the_table():
    with tf.Graph().as_default() as graph:
        table, _ = make_table()
        v1.train.AdagradOptimizer(0.1).minimize(loss_of(tf.nn.embedding_lookup(table, [1])))
        (apply,) = applies(graph)
        assert table.handle.op.name.encode() in [
            group.removeprefix(b"loc:@") for group in apply.colocation_groups()
        ]


@OPTIMIZER
@pytest.mark.parametrize("in_function", [False, True])
def test_eager(name, in_function):
    """Eagerly and in tf.function, beside an ordinary variable, as a v1 session does it."""
    batches = batches_for(name)

    def build(table, ids):
        scale = v1.get_variable("scale", initializer=tf.ones([DIM]), use_resource=True)
        loss = loss_of(tf.nn.embedding_lookup(table, ids) * scale)
        return STOCK_OPTIMIZERS[name]().minimize(loss)

    want = train(make_stock, build, batches)
    table, _ = make_table(f"eager_{name}_{in_function}")
    scale = tf.Variable(tf.ones([DIM]))
    optimizer = STOCK_OPTIMIZERS[name]()

    def step(ids):
        optimizer.minimize(lambda: loss_of(tf.nn.embedding_lookup(table, ids) * scale))

    if in_function:
        step = tf.function(step, input_signature=[tf.TensorSpec([None], tf.int64)])
    for batch, rows in zip(batches, want, strict=True):
        step(tf.constant(batch, tf.int64))
        assert_close(read(table).numpy(), rows, terms=64)


def test_gradient_of_none_is_skipped_as_stocks():
    def build(table, ids):
        other = fe.get_embedding_variable("other", embedding_dim=DIM)
        optimizer = v1.train.AdagradOptimizer(0.1)
        loss = loss_of(tf.nn.embedding_lookup(table, ids))
        pairs = optimizer.compute_gradients(loss, [table, other])
        assert pairs[1][0] is None
        return optimizer.apply_gradients(pairs)

    assert_trains_as_stock(build)


class AdagradWithASchedule(v1.train.AdagradOptimizer):
    def _prepare(self):
        super()._prepare()
        self._learning_rate_tensor *= 0.5


class AdagradOfItsOwn(v1.train.AdagradOptimizer):
    def _resource_apply_sparse(self, grad, var, indices):
        return super()._resource_apply_sparse(grad * 2, var, indices)


def test_subclass_that_keeps_the_rule_trains():
    def build(table, ids):
        loss = loss_of(tf.nn.embedding_lookup(table, ids))
        return AdagradWithASchedule(0.1).minimize(loss)

    assert_trains_as_stock(build)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: v1.train.AdadeltaOptimizer(), "AdadeltaOptimizer cannot train .*'table.*use one"),
        (lambda: v1.train.ProximalAdagradOptimizer(0.1), "ProximalAdagradOptimizer cannot train"),
        (lambda: AdagradOfItsOwn(0.1), "overrides _resource_apply_sparse of AdagradOptimizer"),
    ],
)
def test_optimizers_without_a_rule_are_refused(make, message):
    with tf.Graph().as_default() as graph:
        table, _ = make_table()
        v1.get_variable("w", initializer=1.0, use_resource=True)
        loss = loss_of(tf.nn.embedding_lookup(table, [1]))
        optimizer = make()
        pairs = optimizer.compute_gradients(loss)
        before = graph.as_graph_def()
        with pytest.raises(NotImplementedError, match=message):
            optimizer.apply_gradients(pairs)
        assert graph.as_graph_def() == before, "a refused optimizer left ops"


@pytest.mark.parametrize("in_graph", [False, True])
def test_dense_gradient_is_refused(in_graph):
    def check():
        table, _ = make_table(f"refuses_dense_{in_graph}")
        with pytest.raises(TypeError, match=f"refuses_dense_{in_graph}.*IndexedSlices.*required"):
            v1.train.AdagradOptimizer(0.1).apply_gradients([(tf.ones([2, DIM]), table)])

    if in_graph:
        with tf.Graph().as_default():
            check()
    else:
        check()


def test_graphs_without_tables_are_stocks():
    """The hook changes nothing for others, is there once, and says what it wraps."""
    make_table("installs_the_hook")
    hooked = v1.train.Optimizer.apply_gradients
    make_table("installs_nothing_more")
    assert v1.train.Optimizer.apply_gradients is hooked
    stock = hooked.__wrapped__
    assert not hasattr(stock, "__wrapped__")

    def graph_def(apply_gradients):
        with tf.Graph().as_default() as graph:
            table, _ = make_stock()
            w = v1.get_variable("w", initializer=1.0, use_resource=False)
            loss = loss_of(tf.nn.embedding_lookup(table, [1, 2])) * w
            optimizer = v1.train.AdamOptimizer()
            pairs = (pair for pair in optimizer.compute_gradients(loss))
            apply_gradients(optimizer, pairs, v1.train.get_or_create_global_step(), name="train")
            return graph.as_graph_def()

    assert graph_def(hooked) == graph_def(stock)
