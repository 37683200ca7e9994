"""EmbeddingVariables in graphs: variable scopes, reuse, collections, partitioners, sessions."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tables import make_debug as make

v1 = tf.compat.v1
Option = fe.EmbeddingVariableOption


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_names():
    with v1.variable_scope("outer"), v1.variable_scope("inner"):
        variable = make(name="table")
    assert (variable.name, variable.op.name) == ("outer/inner/table:0", "outer/inner/table")
    with v1.name_scope("not_a_variable_scope"):
        assert make(name="other").name == "other:0"


def test_a_name_twice_is_an_error():
    make()
    with pytest.raises(ValueError, match=r"'table' already exists.*AUTO_REUSE"):
        make()


def test_reuse():
    with v1.variable_scope("scope"):
        first = make()
    with v1.variable_scope("scope", reuse=True):
        assert make() is first
        with pytest.raises(ValueError, match=r"'scope/other' does not exist.*AUTO_REUSE"):
            make(name="other")
    with v1.variable_scope("scope", reuse=v1.AUTO_REUSE):
        assert make() is first
        assert make(name="other") is make(name="other")
    with v1.variable_scope("scope") as scope:
        scope.reuse_variables()
        assert make() is first


def test_reuse_of_partitions():
    with v1.variable_scope("scope", reuse=v1.AUTO_REUSE):
        assert make(3) is make(3)
        with pytest.raises(ValueError, match="partitions 3 -> None"):
            make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 3}, "dim 2 -> 3"),
        ({"value_dtype": tf.float64}, "dtype"),
        ({"key_dtype": tf.int32}, "key_dtype"),
        ({"ev_option": Option(max_capacity=5)}, "max_capacity 0 -> 5"),
        ({"ev_option": Option(filter_option=fe.CounterFilter(3))}, "min_frequency 0 -> 3"),
        ({"initializer": tf.ones_initializer()}, "initializer 'debug' -> 'constant'"),
        ({"num_partitions": 2}, "partitions None -> 2"),
    ],
)
def test_reuse_with_other_options_is_an_error(arguments, message):
    with v1.variable_scope("scope", reuse=v1.AUTO_REUSE):
        make()
        with pytest.raises(ValueError, match=f"exists with other options: .*{message}"):
            make(**arguments)


def test_one_name_for_a_table_and_a_dense_variable():
    """Ops of one graph have names of their own; the table keeps its own name."""
    v1.get_variable("table", [2, 2])
    variable = make()
    assert variable.partition.whole_name == "table"


def test_collections():
    make(name="a", collections=["mine"])
    b = make(2, name="b")
    make(name="c", trainable=False)

    def names(key):
        return [variable.name for variable in v1.get_collection(key)]

    parts = ["b/part_0:0", "b/part_1:0"]
    assert names(fe.EMBEDDING_VARIABLES) == ["a:0", *parts, "c:0"]
    assert names(v1.GraphKeys.TRAINABLE_VARIABLES) == ["a:0", *parts]
    assert names("mine") == ["a:0"]
    assert names(v1.GraphKeys.GLOBAL_VARIABLES) == []
    assert v1.trainable_variables("b") == list(b)
    assert b.trainable


def test_global_initializers_leave_it_alone():
    variable = make()
    v1.get_variable("dense", [2])
    with v1.Session() as session:
        session.run(variable.upsert([1], [[1.0, 2.0]]))
        session.run(v1.global_variables_initializer())
        assert session.run(v1.report_uninitialized_variables()).tolist() == []
        assert session.run(variable.total_count()) == 1


def test_the_scopes_initializer():
    with v1.variable_scope("scope", initializer=tf.constant_initializer(3.0)):
        variable = fe.get_embedding_variable("table", 2)
    with v1.Session() as session:
        rows = session.run(tf.nn.embedding_lookup(variable, [1]))
    np.testing.assert_array_equal(rows, [[3.0, 3.0]])


def test_the_scopes_partitioner():
    with v1.variable_scope("scope", partitioner=v1.fixed_size_partitioner(2)):
        variable = fe.get_embedding_variable("table", 2)
    assert [part.name for part in variable] == ["scope/table/part_0:0", "scope/table/part_1:0"]


@pytest.mark.parametrize(
    "partitioner",
    [
        v1.fixed_size_partitioner(4),
        v1.variable_axis_size_partitioner(2**30, max_shards=4),
        v1.min_max_variable_partitioner(4, min_slice_size=1024),
    ],
    ids=["fixed", "axis_size", "min_max"],
)
def test_partitioners_of_tensorflow(partitioner):
    assert len(fe.get_embedding_variable("table", 2, partitioner=partitioner)) == 4


def test_a_graphs_table_is_made_by_its_session():
    variable = make()
    rows = tf.nn.embedding_lookup(variable, [1, 2])
    for _ in range(2):
        with v1.Session() as session:
            assert session.run(variable.total_count()) == 0
            session.run(rows)
            assert session.run(variable.total_count()) == 2


def test_a_closed_session_is_an_error():
    variable = make()
    session = v1.Session()
    session.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(variable.total_count())


def test_a_container_that_was_reset():
    """tf.compat.v1.Session.reset is for servers; deleting the table is what it does."""
    variable = make()
    delete = tf.raw_ops.DestroyResourceOp(resource=variable.handle)
    rows = tf.nn.embedding_lookup(variable, [1])
    with v1.Session() as session:
        session.run(rows)
        session.run(delete)
        assert session.run(variable.total_count()) == 0  # made again, empty
