"""fe.get_embedding_variable: methods and options, eagerly, in functions and in sessions."""

import gc
import logging
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tables import look_up, read
from cases.tables import make_debug as make
from checking import VALUE_DTYPES, dtype_name
from fused_embedding.variable.embedding_variable import STATISTICS, TIER_STATISTICS

v1 = tf.compat.v1
PARTITIONS = (None, 1, 3)


# --- Methods ---


@pytest.mark.parametrize("num_partitions", PARTITIONS)
def test_methods(num_partitions):
    variable = make(num_partitions)
    keys = [5, -(2**63), 2**63 - 1, 0, -7, 100_001]
    look_up(variable, keys, [1, 2, 3, 4, 5, 6])
    assert int(variable.total_count()) == 6
    assert variable.get_frequency([[5, 100_001], [1, -7]]).numpy().tolist() == [[1, 6], [0, 5]]
    assert variable.get_version([[5], [1]]).numpy().tolist() == [[0], [-1]]
    assert int(variable.get_frequency(0)) == 4
    rows = variable.export()
    assert rows.keys.numpy().tolist() == sorted(keys)
    exported = dict(zip(rows.keys.numpy().tolist(), rows.values.numpy().tolist(), strict=True))
    assert exported == {key: [key % 100_000] * 2 for key in keys}
    frequencies = dict(zip(rows.keys.numpy().tolist(), rows.freqs.numpy().tolist(), strict=True))
    assert frequencies == dict(zip(keys, [1, 2, 3, 4, 5, 6], strict=True))
    assert rows.versions.numpy().tolist() == [0] * 6
    variable.upsert([5, 77, -1], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    np.testing.assert_array_equal(read(variable, [77, -1, 5]), [[3, 4], [5, 6], [1, 2]])
    assert int(variable.get_frequency(5)) == 1
    assert int(variable.erase([5, 6, 77])) == 2
    assert int(variable.total_count()) == 6
    assert int(variable.expire(step=100, steps_to_live=1)) == 6
    assert int(variable.total_count()) == 0


@pytest.mark.parametrize("num_partitions", PARTITIONS)
def test_methods_of_int32_keys(num_partitions):
    variable = make(num_partitions, key_dtype=tf.int32)
    keys = np.array([1, -1, 2**31 - 1, -(2**31)], np.int32)
    variable.upsert(keys, np.ones([4, 2]))
    assert variable.get_version(keys).numpy().tolist() == [0] * 4
    assert int(variable.erase(keys[:3])) == 3
    assert variable.key_dtype == tf.int32


@pytest.mark.parametrize("num_partitions", PARTITIONS)
def test_methods_without_keys(num_partitions):
    variable = make(num_partitions)
    none = np.zeros(0, np.int64)
    variable.upsert(none, np.zeros([0, 2]))
    assert int(variable.erase(none)) == 0
    assert variable.get_frequency(none).shape == (0,)
    rows = variable.export()
    assert [column.shape.as_list() for column in rows] == [[0], [0, 2], [0], [0]]


@pytest.mark.parametrize("num_partitions", PARTITIONS)
def test_methods_in_a_session(num_partitions):
    with tf.Graph().as_default(), v1.Session() as session:
        variable = make(num_partitions)
        keys = v1.placeholder(tf.int64, [None])
        upsert = variable.upsert(keys, tf.ones([tf.size(keys), 2]))
        erase = variable.erase(keys)
        rows = variable.export()
        session.run(upsert, {keys: [1, 2, 3]})
        assert session.run(erase, {keys: [3, 4]}) == 1
        assert sorted(session.run(rows.keys)) == [1, 2]
        frequencies, versions, count = session.run(
            [variable.get_frequency(keys), variable.get_version(keys), variable.total_count()],
            {keys: [1, 4]},
        )
        assert (frequencies.tolist(), versions.tolist(), count) == ([0, 0], [0, -1], 2)
        assert session.run(variable.expire(l2_weight_threshold=9.0)) == 2


@pytest.mark.parametrize("num_partitions", PARTITIONS)
def test_methods_in_a_function(num_partitions):
    variable = make(num_partitions)

    @tf.function
    def step(keys):
        variable.upsert(keys, tf.ones([3, 2]))
        return variable.erase(keys[:1]), variable.total_count(), variable.get_frequency(keys)

    erased, count, frequencies = step(tf.constant([1, 2, 3], tf.int64))
    assert (int(erased), int(count), frequencies.numpy().tolist()) == (1, 2, [0, 0, 0])


@pytest.mark.parametrize("num_partitions", PARTITIONS)
def test_statistics(num_partitions):
    variable = make(
        num_partitions, ev_option=fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(2))
    )
    look_up(variable, [1, 2, 3], [2, 2, 1])
    look_up(variable, [1])
    variable.erase([1])
    variable.expire(step=10, steps_to_live=1)
    got = {name: int(value) for name, value in variable.statistics().items()}
    assert tuple(got) == STATISTICS
    assert got.pop("memory_bytes") > 0
    assert got.pop("index_probes") > 0
    assert {name: got.pop(name) for name in TIER_STATISTICS} == dict.fromkeys(TIER_STATISTICS, 0)
    assert got == {
        "size": 0,
        "filtered": 0,
        "hits": 1,
        "misses": 3,
        "inserts": 2,
        "refusals": 0,
        "not_admitted": 1,
        "evictions": 0,
        "expirations": 1,
        "erasures": 1,
    }


def test_upsert_in_a_wrong_shape_is_an_error():
    variable = make()
    for values in (np.ones([2, 3]), np.ones([1, 2]), np.ones(2)):
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=r"shape|Dimension"):
            variable.upsert([1, 2], values)
    with pytest.raises(TypeError, match="keys must be int32 or int64, got float"):
        variable.upsert([1.0], np.ones([1, 2]))
    assert int(variable.total_count()) == 0


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_dtypes(dtype, num_partitions):
    variable = make(num_partitions, value_dtype=dtype)
    assert variable.dtype == dtype
    assert look_up(variable, [3]).dtype == dtype
    variable.upsert([3], [[0.5, 2.0]])
    rows = variable.export()
    assert rows.values.dtype == dtype
    assert rows.values.numpy().astype(float).tolist() == [[0.5, 2.0]]


# --- Options ---


def options(**fields):
    return fe.EmbeddingVariableOption(**fields)


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize(
    "filter_option",
    [fe.CounterFilter(3), fe.CBFFilter(3, 10_000, 0.01), fe.CBFFilter(3)],
    ids=["counter", "bloom", "exact_bloom"],
)
def test_filters(filter_option, num_partitions):
    init = fe.InitializerOption(default_value_no_permission=0.5)
    option = options(filter_option=filter_option, init_option=init)
    variable = make(num_partitions, ev_option=option)
    not_admitted, admitted = [[0.5, 0.5]], [[8.0, 8.0]]
    np.testing.assert_array_equal(look_up(variable, [8]), not_admitted)
    np.testing.assert_array_equal(look_up(variable, [8]), not_admitted)
    np.testing.assert_array_equal(read(variable, [8]), not_admitted)
    np.testing.assert_array_equal(look_up(variable, [8]), admitted)
    assert int(variable.get_frequency(8)) == 3
    np.testing.assert_array_equal(look_up(variable, [9], [3]), [[9.0, 9.0]] * 3)


@pytest.mark.parametrize("filter_option", [fe.CounterFilter(3), fe.CBFFilter(3, 10_000, 0.01)])
def test_a_filtered_key_has_no_gradient(filter_option):
    with tf.Graph().as_default(), v1.Session() as session:
        variable = make(ev_option=options(filter_option=filter_option))
        ids = tf.constant([1, 1, 1, 2], tf.int64)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, ids))
        train = v1.train.GradientDescentOptimizer(1.0).minimize(loss)
        session.run(train)
        keys, values = session.run(list(variable.export()[:2]))
        assert keys.tolist() == [1]
        assert values.tolist() == [[1 - 3.0] * 2]


def test_a_batch_with_more_keys_than_a_table_that_evicts_has_rows():
    variable = make(ev_option=options(max_capacity=3, eviction="lru"))
    message = "1 keys do not fit .* all of them used by the same batch and so not evicted; raise it"
    with pytest.raises(tf.errors.ResourceExhaustedError, match=message):
        look_up(variable, [1, 2, 3, 4])


@pytest.mark.parametrize("check_mode", ["error", "warning", "ignore"])
def test_a_full_table(check_mode):
    variable = make(ev_option=options(max_capacity=3, check_mode=check_mode))
    look_up(variable, [1, 2, 3])
    if check_mode == "error":
        message = "2 keys do not fit into a table of max_capacity = 3 rows; raise it, choose an evi"
        with pytest.raises(tf.errors.ResourceExhaustedError, match=message):
            look_up(variable, [1, 4, 5])
        assert int(variable.get_frequency(1)) == 1
    else:
        np.testing.assert_array_equal(look_up(variable, [1, 4, 5]), [[1, 1], [0, 0], [0, 0]])
        assert int(variable.get_frequency(1)) == 2
        assert int(variable.statistics()["refusals"]) == 2
    assert sorted(variable.export().keys.numpy()) == [1, 2, 3]
    np.testing.assert_array_equal(look_up(variable, [2]), [[2, 2]])
    # What it refused is read, as what it never saw is.
    np.testing.assert_array_equal(read(variable, [4]), [[4, 4]])
    variable.erase([2])
    np.testing.assert_array_equal(look_up(variable, [4]), [[4, 4]])


REFUSED = """
import fused_embedding as fe, tensorflow as tf
option = fe.EmbeddingVariableOption(max_capacity=3, check_mode={check_mode!r})
table = fe.get_embedding_variable("table", 2, ev_option=option)
tf.nn.embedding_lookup(table, [1, 2, 3, 4, 5])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("check_mode", "num_lines"), [("warning", 1), ("ignore", 0)])
def test_a_full_table_says_so_in_the_log(check_mode, num_lines):
    done = subprocess.run(
        [sys.executable, "-c", REFUSED.format(check_mode=check_mode)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "0"},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    message = "the full table refused 2 keys, which read zeros; raise max_capacity or allow evic"
    assert done.stderr.count(message) == num_lines


@pytest.mark.parametrize(("eviction", "gone"), [("lru", 1), ("lfu", 2)])
def test_a_full_table_evicts(eviction, gone):
    variable = make(ev_option=options(max_capacity=3, eviction=eviction))
    raw = fe.raw_ops.EmbeddingVariableLookup
    for step, (key, count) in enumerate([(1, 5), (2, 1), (3, 5), (4, 1)]):
        raw(
            resource=variable.handle,
            keys=np.array([key]),
            counts=np.array([count], np.int32),
            step=tf.constant(step, tf.int64),
            insert=True,
            dtype=tf.float32,
        )
    assert sorted(variable.export().keys.numpy()) == sorted({1, 2, 3, 4} - {gone})
    assert int(variable.statistics()["evictions"]) == 1


def test_a_batch_larger_than_the_table_pins_its_rows():
    variable = make(ev_option=options(max_capacity=3, eviction="lru", check_mode="ignore"))
    look_up(variable, [7, 8, 9])
    np.testing.assert_array_equal(look_up(variable, [1, 2, 3, 4]), [[1, 1], [2, 2], [3, 3], [0, 0]])
    strict = make(ev_option=options(max_capacity=3, eviction="lru"))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="1 keys do not fit"):
        look_up(strict, [1, 2, 3, 4])
    assert int(strict.total_count()) == 0


@pytest.mark.parametrize("num_partitions", PARTITIONS)
def test_expiry_options(num_partitions):
    by_step = make(num_partitions, ev_option=options(evict_option=fe.GlobalStepEvict(5)))
    look_up(by_step, [1])
    assert int(by_step.expire(step=5)) == 0
    assert int(by_step.expire(step=6, steps_to_live=0)) == 0
    assert int(by_step.expire(step=6)) == 1
    by_norm = make(num_partitions, ev_option=options(evict_option=fe.L2WeightEvict(2.0)))
    look_up(by_norm, [1, 2])
    assert int(by_norm.expire(step=100)) == 1
    assert by_norm.export().keys.numpy().tolist() == [2]
    by_neither = make(num_partitions)
    look_up(by_neither, [0, 1])
    assert int(by_neither.expire(step=100)) == 0


def test_the_global_step_is_the_version():
    with tf.Graph().as_default(), v1.Session() as session:
        variable = make(ev_option=options(evict_option=fe.GlobalStepEvict(3)))
        step = v1.train.get_or_create_global_step()
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(variable, ids)
        session.run(v1.global_variables_initializer())
        for key in range(4):
            session.run(rows, {ids: [key]})
            session.run(v1.assign_add(step, 10))
        assert session.run(variable.get_version([0, 1, 2, 3])).tolist() == [0, 10, 20, 30]
        session.run(v1.assign(step, 13))
        assert session.run(variable.expire()) == 1
        assert session.run(variable.export().keys).tolist() == [1, 2, 3]


def test_training_steps_are_the_version_without_a_global_step():
    with tf.Graph().as_default(), v1.Session() as session:
        variable = make()
        rows = tf.nn.embedding_lookup(variable, tf.constant([5], tf.int64))
        train = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows))
        for _ in range(3):
            session.run(train)
        assert session.run(variable.get_version([5])).tolist() == [2]


def test_an_option_of_another_type_is_an_error():
    with pytest.raises(TypeError, match=r"ev_option must be an fe\.EmbeddingVariableOption"):
        make(ev_option=fe.CounterFilter(3))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dim": 0}, ValueError, "embedding_dim must be > 0, got 0"),
        ({"dim": -1}, ValueError, "embedding_dim must be > 0, got -1"),
        ({"dim": "16"}, TypeError, "embedding_dim must be an integer, got '16'"),
        ({"key_dtype": tf.string}, TypeError, "key_dtype must be int64 or int32, got string"),
        ({"key_dtype": tf.uint64}, TypeError, "key_dtype must be int64 or int32"),
        ({"value_dtype": tf.int32}, TypeError, "value_dtype must be one of float32"),
        ({"partition_strategy": "div"}, ValueError, "partition_strategy .* hash, mod_ev"),
        ({"partitioner": lambda shape, dtype: [1, 2]}, ValueError, "only keys can"),
        ({"partitioner": lambda shape, dtype: [0, 1]}, ValueError, "only keys can"),
        ({"initializer": "zeros!"}, TypeError, "initializer"),
    ],
)
def test_wrong_arguments_are_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        make(**arguments)


# --- Initial values ---

INITIALIZERS = {
    "zeros": (tf.zeros_initializer(), lambda rows: np.ptp(rows) == 0 and rows[0, 0] == 0),
    "ones": (tf.ones_initializer(), lambda rows: np.ptp(rows) == 0 and rows[0, 0] == 1),
    "constant": (tf.constant_initializer(0.25), lambda rows: set(rows.flat) == {0.25}),
    "number": (0.25, lambda rows: set(rows.flat) == {0.25}),
    "uniform": (
        tf.random_uniform_initializer(-2.0, 3.0),
        lambda rows: abs(rows.mean() - 0.5) < 0.05 and rows.min() >= -2 and rows.max() < 3,
    ),
    "normal": (
        tf.random_normal_initializer(1.0, 2.0),
        lambda rows: abs(rows.mean() - 1) < 0.05 and abs(rows.std() - 2) < 0.05,
    ),
    "truncated_normal": (
        v1.truncated_normal_initializer(1.0, 2.0),
        lambda rows: abs(rows.mean() - 1) < 0.05 and np.abs(rows - 1).max() <= 4,
    ),
    "default": (None, lambda rows: abs(rows.std() * 2 - 0.88) < 0.02 and np.abs(rows).max() <= 1),
    "glorot": (v1.glorot_uniform_initializer(), lambda rows: 0 < rows.std() < 0.1),
}


@pytest.mark.parametrize("case", INITIALIZERS)
def test_first_values(case):
    initializer, is_right = INITIALIZERS[case]
    variable = fe.get_embedding_variable("table", 4, initializer=initializer)
    keys = np.random.default_rng(0).integers(-(2**63), 2**63, 20_000)
    rows = read(variable, keys)
    assert is_right(rows)
    np.testing.assert_array_equal(look_up(variable, keys), rows)
    np.testing.assert_array_equal(look_up(variable, keys[::-1]), rows[::-1])


def test_rows_of_an_array():
    matrix = np.arange(6.0).reshape(3, 2)
    variable = make(initializer=matrix)
    np.testing.assert_array_equal(read(variable, [0, 4, -1]), matrix[[0, 1, 2]])


def test_first_values_depend_on_name_and_seed():
    def rows(name="table", seed=None):
        with tf.Graph().as_default(), v1.Session() as session:
            v1.set_random_seed(seed)
            return session.run(tf.nn.embedding_lookup(fe.get_embedding_variable(name, 4), [1, 2]))

    np.testing.assert_array_equal(rows(), rows())
    assert (rows() != rows("other")).all()
    assert (rows() != rows(seed=3)).all()
    np.testing.assert_array_equal(rows(seed=3), rows(seed=3))


# --- As a TensorFlow object ---


def test_an_eager_variable_goes_with_its_object():
    variable = make()
    handle = variable.handle
    look_up(variable, [1])
    del variable
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError, match="it was deleted"):
        fe.raw_ops.EmbeddingVariableStatistics(resource=handle)


def test_eager_variables_of_one_name_are_two():
    first, second = make(), make()
    look_up(first, [1])
    assert (int(first.total_count()), int(second.total_count())) == (1, 0)


def test_a_variable_made_in_a_function_is_made_once():
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = None

        @tf.function
        def __call__(self, ids):
            if self.table is None:
                self.table = make()
            return tf.nn.embedding_lookup(self.table, ids)

    model = Model()
    for _ in range(2):
        np.testing.assert_array_equal(model(tf.constant([3])), [[3.0, 3.0]])
    assert int(model.table.total_count()) == 1


def test_a_function_makes_one_trace_for_one_shape():
    variable = make()
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def look(ids):
        traces.append(1)
        return tf.nn.embedding_lookup(variable, ids)

    for n in range(1, 4):
        look(tf.range(n, dtype=tf.int64))
    assert len(traces) == 1
    assert int(variable.total_count()) == 3


def test_gradient_tape_watches_it():
    variable = make()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, [1, 2, 1]))
    assert [v.name for v in tape.watched_variables()] == ["table:0"]
    grad = tape.gradient(loss, variable)
    assert isinstance(grad, tf.IndexedSlices)
    assert grad.indices.numpy().tolist() == [1, 2]
    np.testing.assert_array_equal(grad.values, [[2.0, 2.0], [1.0, 1.0]])


def test_reprs_name_it():
    assert re.search(r"'table:0' embedding_dim=2 dtype=float32", repr(make()))
    assert re.search(r"'table' of 3 partitions", repr(make(3)))


def test_shape():
    for variable in (make(), make(2)):
        assert variable.shape.as_list() == [None, 2]
    assert make(name="x")._shared_name.startswith("x")


def test_nothing_is_logged_at_first(caplog):
    with caplog.at_level(logging.WARNING):
        look_up(make(), [1])
    assert caplog.records == []
