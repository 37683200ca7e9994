"""FE_DISABLE=apply: optimizers of fe.train and fe.keras update by their stock base class."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import keras_optimizers
from cases.disabled import assert_no_op_of_ours, assert_same_graph, new_graph
from cases.kerases import KERASES, is_keras_3
from cases.training import OPTIMIZERS, loss_of, v1
from checking import assert_close, assert_same_bits

ROWS = np.random.default_rng(2).standard_normal((6, 3)).astype(np.float32)
BATCHES = ([1, 2, 2, 5], [0, 2], [5, 1, 1])
EVERY_ROW = ([1, 2, 2, 5, 0, 3, 4], [0, 1, 2, 3, 4, 5, 5])
OPTIMIZER = pytest.mark.parametrize("name", OPTIMIZERS)
KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES.keys())


@pytest.fixture
def off(monkeypatch):
    monkeypatch.setenv("FE_DISABLE", "apply")


def loss_of_tables(variables, ids):
    return sum(loss_of(tf.nn.embedding_lookup(variable, ids)) for variable in variables)


# --- fe.train ---


def build_graph(module, name):
    """A step on two tables; what it needs is in the graph's collections."""
    variables = [v1.get_variable(key, initializer=ROWS) for key in ("a", "b")]
    ids = v1.placeholder(tf.int64, [None], name="ids")
    step = v1.train.get_or_create_global_step()
    return ids, OPTIMIZERS[name](module).minimize(loss_of_tables(variables, ids), step)


@OPTIMIZER
@pytest.mark.parametrize("use_resource", [False, True], ids=["reference", "resource"])
def test_the_graph_is_that_of_the_stock_optimizer(off, name, use_resource):
    graphs = []
    for module in (fe.train, v1.train):
        with new_graph(use_resource=use_resource) as graph:
            build_graph(module, name)
        graphs.append(graph)
    assert_no_op_of_ours(graphs[0])
    assert_same_graph(*graphs)


@OPTIMIZER
@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
def test_updates_outside_of_sessions_have_stocks_bits(off, name, in_function):
    def train(module):
        variables = [tf.Variable(ROWS), tf.Variable(ROWS)]
        optimizer = OPTIMIZERS[name](module)

        def step(ids):
            optimizer.minimize(lambda: loss_of_tables(variables, ids))

        if in_function:
            step = tf.function(step, input_signature=[tf.TensorSpec([None], tf.int64)])
        for batch in BATCHES:
            step(tf.constant(batch, tf.int64))
        if in_function:
            assert_no_op_of_ours(step.get_concrete_function().graph)
        slots = [optimizer.get_slot(variables[0], s) for s in optimizer.get_slot_names()]
        return [v.numpy() for v in (*variables, *slots)]

    for got, want in zip(train(fe.train), train(v1.train), strict=True):
        assert_same_bits(got, want)


@OPTIMIZER
@pytest.mark.parametrize("first", ["", "apply"])
def test_numbers_and_checkpoints_go_both_ways(name, first, tmp_path, monkeypatch):
    """Of Adam all rows are in every step: only without the switch it is lazy."""
    batches = EVERY_ROW if name == "adam" else BATCHES

    def run(value, path, restored=None):
        monkeypatch.setenv("FE_DISABLE", value)
        with new_graph(), v1.Session() as session:
            ids, step = build_graph(fe.train, name)
            saver = v1.train.Saver()
            session.run(v1.global_variables_initializer())
            if restored:
                saver.restore(session, restored)
            for batch in batches:
                session.run(step, {ids: batch})
            values = session.run({v.name: v for v in v1.global_variables()})
            return saver.save(session, str(path)), values

    second = "" if first else "apply"
    path, values = run(first, tmp_path / "first")
    _, others = run(second, tmp_path / "second")
    _, later = run(first, tmp_path / "same", path)
    _, other_later = run(second, tmp_path / "other", path)
    for got, want in ((others, values), (other_later, later)):
        assert got.keys() == want.keys()
        for key, value in want.items():
            assert_close(np.float32(got[key]), np.float32(value), 256, err_msg=key)


def test_embedding_variables_and_optimizers_without_a_stock_base_stay_ours(off):
    with new_graph() as graph:
        table = fe.get_embedding_variable("table", 3)
        variable = v1.get_variable("a", initializer=ROWS)
        loss = loss_of_tables([table, variable], tf.constant([1, 2], tf.int64))
        fe.train.AdagradOptimizer(0.1).minimize(loss)
        fe.train.AdamAsyncOptimizer(0.1).minimize(loss)
    types = [op.type for op in graph.get_operations()]
    assert types.count("EmbeddingVariableApply") == 2
    assert types.count("ResourceSparseApplyAdagrad") == 1
    assert "FusedEmbeddingResourceSparseApply" not in types


def test_an_unknown_word_is_an_error_of_the_first_step(monkeypatch):
    monkeypatch.setenv("FE_DISABLE", "updates")
    with new_graph(), pytest.raises(ValueError, match="FE_DISABLE is 'updates'"):
        build_graph(fe.train, "adagrad")


# --- fe.keras ---


def keras_variables(keras):
    rows = [ROWS, ROWS[::-1].copy()]
    return [keras.Variable(r) if is_keras_3(keras) else tf.Variable(r) for r in rows]


def keras_step(variables, optimizer, ids):
    values = [
        getattr(v, "value", v) if not callable(getattr(v, "value", None)) else v for v in variables
    ]
    with tf.GradientTape() as tape:
        loss = loss_of_tables(values, ids)
    optimizer.apply_gradients(zip(tape.gradient(loss, values), variables, strict=True))


def keras_state(variables, optimizer):
    own = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    return [np.asarray(v) for v in (*variables, *own)]


def train_keras(keras, module, case, in_function, **more):
    variables = keras_variables(keras)
    optimizer = keras_optimizers.make(module, case, **more)
    optimizer.build(variables)

    def step(ids):
        keras_step(variables, optimizer, ids)

    if in_function:
        step = tf.function(step, input_signature=[tf.TensorSpec([None], tf.int64)])
        assert_no_op_of_ours(step.get_concrete_function().graph)
    for batch in BATCHES:
        step(tf.constant(batch, tf.int64))
    return keras_state(variables, optimizer)


@KERAS
@pytest.mark.parametrize("case", keras_optimizers.OPTIMIZERS)
@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
def test_keras_updates_have_stocks_bits(off, keras, case, in_function):
    """Slots, iterations and learning rate too. In Keras 3 repeated ids are squared one by one."""
    got = train_keras(keras, fe.keras.fused_optimizers(keras), case, in_function)
    want = train_keras(keras, keras.optimizers, case, in_function)
    for one, other in zip(got, want, strict=True):
        assert_same_bits(one, other)


@KERAS
@pytest.mark.parametrize("clip", [{"clipnorm": 0.1}, {"global_clipnorm": 0.1}, {"clipvalue": 0.1}])
def test_keras_clips_as_stock(off, keras, clip):
    got = train_keras(keras, fe.keras.fused_optimizers(keras), "adagrad", False, **clip)
    want = train_keras(keras, keras.optimizers, "adagrad", False, **clip)
    for one, other in zip(got, want, strict=True):
        assert_same_bits(one, other)


@KERAS
@pytest.mark.parametrize("first", ["", "apply"])
def test_keras_checkpoints_go_both_ways(keras, first, tmp_path, monkeypatch):
    """Adagrad on distinct ids has the same numbers with and without the switch."""
    optimizers = fe.keras.fused_optimizers(keras)

    def make():
        variables = keras_variables(keras)
        optimizer = keras_optimizers.make(optimizers, "adagrad")
        optimizer.build(variables)
        tracked = {f"v{i}": variable for i, variable in enumerate(variables)}
        return variables, optimizer, tf.train.Checkpoint(optimizer=optimizer, **tracked)

    def run(value, variables, optimizer):
        monkeypatch.setenv("FE_DISABLE", value)
        for batch in ([1, 2], [2, 5, 0]):
            keras_step(variables, optimizer, tf.constant(batch, tf.int64))
        return keras_state(variables, optimizer)

    variables, optimizer, checkpoint = make()
    run(first, variables, optimizer)
    path = checkpoint.write(str(tmp_path / "model"))
    other_variables, other_optimizer, other_checkpoint = make()
    other_checkpoint.read(path).assert_consumed()
    got = run("" if first else "apply", other_variables, other_optimizer)
    for one, other in zip(got, run(first, variables, optimizer), strict=True):
        assert_close(np.float32(one), np.float32(other), 64)
