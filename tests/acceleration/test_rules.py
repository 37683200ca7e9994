"""The rules of fe.accelerate: what it leaves as it is, and how it ends."""

import pickle
import threading

import acceleration_cases as cases
import numpy as np
import pytest
import tensorflow as tf

# As programs import them: before fe.accelerate() is called.
from tensorflow.compat.v1.nn import safe_embedding_lookup_sparse as early_lookup
from tensorflow.python.feature_column.feature_column import input_layer as early_input_layer
from tensorflow.python.feature_column.feature_column import linear_model as early_linear_model
from tensorflow.python.training.adagrad import AdagradOptimizer as EarlyAdagrad

import fused_embedding as fe
import processes
from fused_embedding.acceleration import api

pytestmark = pytest.mark.one_version

v1 = tf.compat.v1
SAFE, BARE = "safe_embedding_lookup_sparse", "embedding_lookup_sparse"


@pytest.fixture(autouse=True)
def _ends():
    yield
    fe.accelerate(False)


def owners():
    """Every module and class with something that is replaced."""
    with fe.accelerate():
        return list({id(owner): owner for owner, *_ in api._installation._replaced}.values())


def attributes(of):
    return [{name: id(value) for name, value in vars(owner).items()} for owner in of]


# How it ends.


def test_undone_exactly():
    of = owners()
    before = attributes(of)
    with fe.accelerate():
        assert attributes(of) != before
    assert attributes(of) == before


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_nested_ones_end_in_any_order(order):
    of = owners()
    before = attributes(of)
    started = [fe.accelerate(), fe.accelerate(optimizers="lazy"), fe.accelerate()]
    on = attributes(of)
    for i in order:
        assert attributes(of) == on, "a nested one must replace nothing again"
        started[i].stop()
        started[i].stop()  # does nothing
    assert attributes(of) == before


def test_the_last_one_has_the_records():
    with fe.accelerate() as outer:
        with fe.accelerate() as inner:
            tf.nn.safe_embedding_lookup_sparse(cases.ROWS, cases.ids())
        assert (cases.replaced(outer.records), cases.replaced(inner.records)) == (set(), {SAFE})
        tf.nn.safe_embedding_lookup_sparse(cases.ROWS, cases.ids())
    assert cases.replaced(outer.records) == {SAFE}
    assert str(fe.accelerate(False)) == "nothing was called"


def test_false_ends_all():
    of = owners()
    before = attributes(of)
    started = [fe.accelerate(), fe.accelerate()]
    fe.accelerate(False)
    assert attributes(of) == before
    for acceleration in started:
        acceleration.stop()
    assert attributes(of) == before


def test_an_error_inside_ends_it():
    of = owners()
    before = attributes(of)
    with pytest.raises(KeyError), fe.accelerate():
        raise KeyError
    assert attributes(of) == before


def test_threads_start_and_stop():
    of = owners()
    before = attributes(of)
    want = tf.nn.safe_embedding_lookup_sparse(cases.ROWS, cases.ids()).numpy()
    errors = []

    def run():
        try:
            for _ in range(15):
                with fe.accelerate():
                    got = tf.nn.safe_embedding_lookup_sparse(cases.ROWS, cases.ids()).numpy()
                    np.testing.assert_allclose(got, want, rtol=1e-6)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert attributes(of) == before


def test_it_may_end_while_a_call_runs():
    acceleration = fe.accelerate()

    def initializer(*arguments, **options):
        acceleration.stop()  # as another thread may
        return cases.rows(*arguments, **options)

    column = tf.feature_column.embedding_column(
        tf.feature_column.categorical_column_with_identity("ids", 5), 3, initializer=initializer
    )
    with tf.Graph().as_default(), v1.Session() as session:
        rows = v1.feature_column.input_layer({"ids": cases.ids()}, [column])
        session.run(v1.global_variables_initializer())
        assert session.run(rows).shape == (5, 3)


def test_it_may_end_while_gradients_are_applied():
    of = owners()
    before = attributes(of)

    def program(stop):
        table = tf.Variable(cases.ROWS)
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)

        other = tf.Variable(cases.ROWS)
        slices = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1, 1]), tf.constant([5, 3]))
        pairs = [(slices, table), (tf.ones([5, 3]), other)]
        stock = v1.train.MomentumOptimizer._resource_apply_dense

        def stopping(self, grad, var):
            stop()
            return stock(self, grad, var)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(v1.train.MomentumOptimizer, "_resource_apply_dense", stopping)
            optimizer.apply_gradients(pairs)
        return table.numpy(), other.numpy()

    want = program(lambda: None)
    got = program(fe.accelerate().stop)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert attributes(of) == before


MADE_MEANWHILE = """
import tensorflow as tf
import fused_embedding as fe
v1 = tf.compat.v1

def types():
    with tf.Graph().as_default() as graph:
        table = fe.get_embedding_variable("table", 3)
        rows = v1.get_variable("rows", [5, 3])
        ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([1, 1], tf.int64), [1, 2])
        loss = tf.reduce_sum(tf.nn.embedding_lookup_sparse(rows, ids, None))
        loss += tf.reduce_sum(tf.nn.embedding_lookup(table, ids.values))
        v1.train.AdagradOptimizer(0.1).minimize(loss)
        return [op.type for op in graph.get_operations()]

stock = v1.train.Optimizer.apply_gradients
with fe.accelerate():
    assert v1.train.Optimizer.apply_gradients is not stock
    first = types()
hooked = v1.train.Optimizer.apply_gradients
assert hooked is not stock  # training of tables stays
off = types()
with fe.accelerate():
    second = types()
assert v1.train.Optimizer.apply_gradients is hooked
for found in (first, off, second):
    of_table = any("EmbeddingVariable" in op and "Apply" in op for op in found)
    print("FusedEmbeddingResourceSparseApply" in found, of_table)
"""


def test_an_embedding_variable_made_meanwhile_is_trained_afterwards():
    printed = processes.output_of(processes.run_program(MADE_MEANWHILE))
    assert printed.split("\n")[:3] == ["True True", "False True", "True True"]


# Classes and names stay.


def test_classes_pickles_and_configurations_stay():
    column = tf.feature_column.embedding_column(
        tf.feature_column.categorical_column_with_hash_bucket("word", 7), 3
    )
    config, pickled = column.get_config(), pickle.dumps(column._replace(initializer=None))
    optimizer = v1.train.AdagradOptimizer
    names = (optimizer.__name__, optimizer.__module__, optimizer.__mro__, optimizer.__init__)
    with fe.accelerate():
        assert v1.train.AdagradOptimizer is optimizer is EarlyAdagrad
        now = (optimizer.__name__, optimizer.__module__, optimizer.__mro__, optimizer.__init__)
        assert now == names
        assert column.get_config() == config
        assert pickle.dumps(column._replace(initializer=None)) == pickled
        assert pickle.loads(pickled) == column._replace(initializer=None)
        same = type(column).from_config(config)
        assert (type(same), same.get_config()) == (type(column), config)
        assert v1.feature_column.input_layer.__name__ == "input_layer"


def test_names_that_were_imported_before():
    def program():
        with tf.Graph().as_default() as graph:
            features = {"ids": cases.ids()}
            deep = early_input_layer(features, [cases.embedding()])
            wide = early_linear_model(features, [cases.embedding().categorical_column])
            loss = tf.reduce_sum(deep) + tf.reduce_sum(wide)
            loss += tf.reduce_sum(early_lookup(cases.variable(), cases.ids()))
            EarlyAdagrad(0.1).minimize(loss)
            return cases.ours_in(graph)

    assert program() == []
    with fe.accelerate() as acceleration:
        assert len(program()) >= 4
    want = {"input_layer", "linear_model", SAFE, "AdagradOptimizer"}
    assert cases.replaced(acceleration.records) == want


class OtherColumn(
    tf.feature_column.embedding_column(
        tf.feature_column.categorical_column_with_identity("ids", 5), 3
    ).__class__
):
    def _get_dense_tensor_internal_helper(self, *arguments):
        return 2 * super()._get_dense_tensor_internal_helper(*arguments)


class ScalesSparse(v1.train.AdagradOptimizer):
    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        return super()._resource_apply_sparse_duplicate_indices(2 * grad, handle, indices)


class Finishes(v1.train.AdagradOptimizer):
    def _finish(self, update_ops, name_scope):
        assert all(isinstance(op, tf.Operation) for op in update_ops)
        return super()._finish(update_ops, name_scope)


class ScalesDense(v1.train.AdagradOptimizer):
    def _resource_apply_dense(self, grad, handle):
        return super()._resource_apply_dense(2 * grad, handle)


def test_a_subclass_of_a_column_is_left():
    @cases.in_session
    def program():
        stock = cases.embedding()
        return v1.feature_column.input_layer({"ids": cases.ids()}, [OtherColumn(*stock)]), []

    records = cases.assert_same(program)
    assert SAFE in cases.replaced(records), "its own call of tf.nn is no part of the layer's op"


@pytest.mark.parametrize("cls", [ScalesSparse, Finishes, ScalesDense])
def test_subclasses_of_an_optimizer(cls):
    @cases.in_session
    def program():
        table = cases.variable()
        step = cls(0.1).minimize(cases.loss_of(table) + tf.reduce_sum(cases.variable("dense")))
        return table, [step] * 3

    records = cases.assert_same(program)
    if cls is ScalesDense:
        assert cls.__name__ in cases.replaced(records)
    else:
        assert "overrides" in cases.left(records)[cls.__name__]


# Switched off, stock's graph is built.


def train_graph():
    with tf.Graph().as_default() as graph:
        features = {"ids": cases.ids()}
        deep = v1.feature_column.input_layer(features, [cases.embedding()])
        wide = v1.feature_column.linear_model(features, [cases.embedding().categorical_column])
        loss = tf.reduce_sum(deep) + tf.reduce_sum(wide) + cases.loss_of(cases.variable())
        v1.train.AdagradOptimizer(0.1).minimize(loss)
        v1.train.FtrlOptimizer(0.1).minimize(loss)
        return graph


def test_the_graph_is_stocks_afterwards():
    want = train_graph().as_graph_def()
    with fe.accelerate():
        accelerated = train_graph()
        assert cases.ours_in(accelerated)
    assert train_graph().as_graph_def() == want


def test_variables_and_collections_are_stocks():
    def names(graph):
        members = {key: graph.get_collection(key) for key in graph.get_all_collection_keys()}
        return {
            key: [getattr(item, "name", None) for item in found] for key, found in members.items()
        }

    want = names(train_graph())
    with fe.accelerate():
        assert names(train_graph()) == want


# The numbers of optimizers.


OTHERS = {
    "AdamOptimizer": lambda: v1.train.AdamOptimizer(0.1),
    "AdadeltaOptimizer": lambda: v1.train.AdadeltaOptimizer(0.1),
    "ProximalAdagradOptimizer": lambda: v1.train.ProximalAdagradOptimizer(0.1),
}
EQUAL = {
    "GradientDescentOptimizer": lambda: v1.train.GradientDescentOptimizer(0.1),
    "MomentumOptimizer": lambda: v1.train.MomentumOptimizer(0.1, 0.7, use_nesterov=True),
    "AdagradOptimizer": lambda: v1.train.AdagradOptimizer(0.1),
    "RMSPropOptimizer": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "FtrlOptimizer": lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
}


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("name", [*EQUAL, *OTHERS])
def test_optimizers_over_50_steps(name, use_resource):
    """Each batch repeats an id and leaves rows out, some for many steps."""

    def program():
        with tf.Graph().as_default(), v1.Session() as session:
            table = cases.variable(use_resource=use_resource)
            fed = v1.placeholder(tf.int64, [4])
            sp_ids = tf.SparseTensor(cases.INDICES, fed, cases.SHAPE)
            rows = tf.nn.safe_embedding_lookup_sparse(table, sp_ids)
            loss = tf.reduce_mean((rows - 1.0) ** 2)
            step = {**EQUAL, **OTHERS}[name]().minimize(loss)
            session.run(v1.global_variables_initializer())
            run = session.make_callable([loss, step], [fed])
            losses = [run([i % 4, i % 4, i % 3, 4 * (i % 10 == 9)])[0] for i in range(50)]
            return losses, session.run(v1.global_variables())

    records = cases.assert_same(program)
    assert (name in cases.replaced(records)) == (name in EQUAL)


def test_lazy_adam_is_asked_for():
    with pytest.raises(ValueError, match="keeps all numbers"):
        fe.accelerate(optimizers="fast")
    with fe.accelerate(optimizers="lazy") as acceleration, tf.Graph().as_default():
        v1.train.AdamOptimizer(0.1).minimize(cases.loss_of(cases.variable()))
    assert "AdamOptimizer" in cases.replaced(acceleration.records)
