"""tf.compat.v1.train.Saver and what stands on it, with nothing said about EmbeddingVariables."""

import logging
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from saved_tables import (
    DIM,
    NAME,
    NUM_STEPS,
    OPTIONS,
    PARTITIONS,
    Program,
    assert_same,
    assert_whole,
    exports_of,
    keys_of_step,
    make,
    merged,
    train_step,
)

import fused_embedding as fe

v1 = tf.compat.v1
DTYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("saved", PARTITIONS)
def test_everything_comes_back_into_any_number_of_partitions(tmp_path, option, saved):
    program = Program(saved, option)
    program.train(range(NUM_STEPS))
    want = program.content()
    assert_whole(want, option)
    program.save(tmp_path / "model")
    assert_same(program.content(), want)  # saving changes nothing
    program.train(range(NUM_STEPS, NUM_STEPS + 2))
    after = program.content()
    for restored in PARTITIONS:
        other = Program(restored, option)
        other.train([99])  # what is there before is replaced
        other.restore(tmp_path / "model")
        is_same_filter = option != "bloom" or (saved or 1) == (restored or 1)
        but = () if is_same_filter else ("bloom",)
        assert_same(other.content(), want, but=but)
        if not is_same_filter:  # counters of other partitions count other keys: from zero again
            assert not other.content()["bloom"].any()
            continue
        other.train(range(NUM_STEPS, NUM_STEPS + 2))
        assert_same(other.content(), after)


def test_what_is_saved_does_not_depend_on_partitions(tmp_path):
    def tensors(partitions):
        program = Program(partitions, "counter")
        program.train(range(NUM_STEPS))
        prefix = program.save(tmp_path / f"model{partitions}")
        reader = tf.train.load_checkpoint(prefix)
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}

    want = tensors(None)
    assert f"{NAME}-keys" in want
    for partitions in PARTITIONS[1:]:
        got = tensors(partitions)
        assert got.keys() == want.keys()
        for name in want.keys() - {f"{NAME}-bloom"}:
            np.testing.assert_array_equal(got[name], want[name], err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_each_dtype_comes_back(tmp_path, dtype):
    program = Program(2, dtype=dtype)
    program.train(range(NUM_STEPS))
    program.save(tmp_path / "model")
    other = Program(3, dtype=dtype)
    other.restore(tmp_path / "model")
    assert other.content()["values"].dtype == dtype.as_numpy_dtype
    assert_same(other.content(), program.content())


def test_first_values_are_those_of_the_checkpoint(tmp_path):
    matrix = np.arange(5 * DIM, dtype=np.float32).reshape(5, DIM)
    program = Program(None, initializer=tf.compat.v1.constant_initializer(matrix[0]))
    program.train([0])
    program.save(tmp_path / "model")
    other = Program(2, initializer=tf.compat.v1.random_normal_initializer(seed=5))
    other.restore(tmp_path / "model")
    assert_same(other.content(), program.content())
    unseen = 10**12 + np.arange(40)  # none of them has a row
    for one in (program, other):
        one.session.run(one.train_op, {one.keys: unseen, one.step: 7})
    assert_same(other.content(), program.content())


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"dim": DIM + 1}, r"values must have shape \[\d+, 4\]"),
        ({"dtype": tf.float64}, f"tensor_name = {NAME}-.*"),
    ],
    ids=["dim", "dtype"],
)
def test_another_table_is_an_error_and_unharmed(tmp_path, kwargs, message):
    program = Program(None)
    program.train(range(2))
    program.save(tmp_path / "model")
    other = Program(2, **kwargs)
    other.train(range(NUM_STEPS))
    before = other.content()
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        other.restore(tmp_path / "model")
    assert_same(other.content(), before)


@pytest.mark.parametrize(
    ("damage", "message"),
    # What TensorFlow says of its own files.
    [("truncated", "less bytes than requested"), ("flipped", "model.*Checksum does not match")],
)
def test_damaged_file_is_an_error(tmp_path, damage, message):
    program = Program(None)
    program.train(range(NUM_STEPS))
    program.save(tmp_path / "model")
    data = tmp_path / "model.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    if damage == "truncated":
        del content[-10:]
    else:
        content[len(content) // 2] ^= 1
    data.write_bytes(content)
    other = Program(None)
    other.train([3])
    before = other.content()
    with pytest.raises((tf.errors.DataLossError, tf.errors.OutOfRangeError), match=message):
        other.restore(tmp_path / "model")
    assert_same(other.content(), before)


@pytest.mark.parametrize(
    ("evict_option", "expired"),
    [
        (fe.GlobalStepEvict(steps_to_live=4), lambda row: row.version < 10 - 4),
        (fe.L2WeightEvict(l2_weight_threshold=2.0), lambda row: row.norm < 2.0),
    ],
    ids=["steps", "norm"],
)
def test_rows_expire_when_a_checkpoint_is_saved(tmp_path, evict_option, expired):
    option = fe.EmbeddingVariableOption(evict_option=evict_option)
    with tf.Graph().as_default(), v1.Session() as session:
        variable = fe.get_embedding_variable(NAME, 1, ev_option=option)
        step = v1.train.get_or_create_global_step()
        lookups = [
            fe.raw_ops.EmbeddingVariableLookup(
                resource=variable.handle,
                keys=tf.constant([key], tf.int64),
                counts=tf.zeros([0], tf.int32),
                step=tf.constant(key, tf.int64),
                insert=True,
                dtype=tf.float32,
            ).handles
            for key in range(10)
        ]
        set_values = variable.upsert(tf.range(10), tf.reshape(tf.range(10.0), [10, 1]) / 2)
        session.run([step.initializer])
        session.run([step.assign(10), lookups])
        session.run(set_values)
        v1.train.Saver().save(session, str(tmp_path / "model"))
        rows = [type("Row", (), {"key": key, "version": key, "norm": key / 2}) for key in range(10)]
        want = [row.key for row in rows if not expired(row)]
        assert 0 < len(want) < 10
        assert session.run(variable.export().keys).tolist() == want
        saved = tf.train.load_variable(str(tmp_path / "model"), f"{NAME}-keys")
        assert saved.tolist() == want


@pytest.mark.parametrize("partitions", [None, 2])
def test_saver_of_a_list_without_it_warns(partitions, caplog):
    with tf.Graph().as_default():
        make(partitions)
        other = v1.get_variable("other", [2])
        with caplog.at_level(logging.WARNING):
            v1.train.Saver([other])
            assert f"EmbeddingVariable '{NAME}' is not saved" in caplog.text
            caplog.clear()
            v1.train.Saver()
            assert "EmbeddingVariable" not in caplog.text


@pytest.mark.parametrize("partitions", [None, 2])
@pytest.mark.parametrize(
    ("var_list", "prefix"),
    [
        (lambda variable: [variable], NAME),
        (lambda variable: v1.trainable_variables(), NAME),
        (lambda variable: {"new name": variable}, "new name"),
        (lambda variable: {"renamed": list(v1.trainable_variables())}, "renamed"),
    ],
    ids=["list", "trainable_variables", "dict", "dict_of_list"],
)
def test_saver_takes_it_in_a_list(tmp_path, partitions, var_list, prefix, caplog):
    program = Program(partitions)
    program.train(range(2))
    want = program.content()
    with program.graph.as_default(), caplog.at_level(logging.WARNING):
        saver = v1.train.Saver(var_list(program.variable))
        path = saver.save(program.session, str(tmp_path / "model"))
        program.train([5])
        saver.restore(program.session, path)
    assert "not saved" not in caplog.text
    assert_same(program.content(), want)
    names = {name for name, _ in tf.train.list_variables(path)}
    assert f"{prefix}-keys" in names
    assert all(name.startswith(prefix) for name in names)


def test_eager_variable_in_a_saver_is_refused():
    variable = fe.get_embedding_variable(NAME, DIM)
    with pytest.raises(ValueError, match=r"tf\.train\.Checkpoint"):
        v1.train.Saver([variable])


def train_monitored(
    directory: Any, partitions: int | None, num_steps: int, make_saver: Any = lambda: None
) -> Any:
    """Trains up to the step `num_steps`; returns the content then."""
    with tf.Graph().as_default():
        variable = make(partitions, "counter")
        step = v1.train.get_or_create_global_step()
        keys = v1.placeholder(tf.int64, [None])
        with tf.control_dependencies(train_step(variable, keys, step)):
            train_op = step.assign_add(1)
        exports = exports_of(variable)
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(directory),
            scaffold=v1.train.Scaffold(saver=make_saver()),
            save_checkpoint_steps=2,
            save_summaries_steps=None,
        ) as session:
            now = session.run_step_fn(lambda step_context: step_context.session.run(step))
            while now < num_steps:
                now = session.run(train_op, {keys: keys_of_step(int(now))})
            return merged(session.run(exports))


@pytest.mark.parametrize(
    "make_saver",
    [lambda: None, lambda: fe.train.Saver(sharded=True, max_to_keep=2)],
    ids=["default", "streams"],
)
@pytest.mark.parametrize("partitions", [(None, None), (2, 3)], ids=str)
def test_monitored_session_goes_on_where_it_was(tmp_path, partitions, make_saver):
    first, second = partitions
    train_monitored(tmp_path / "interrupted", first, 4, make_saver)
    got = train_monitored(tmp_path / "interrupted", second, 7, make_saver)
    want = train_monitored(tmp_path / "whole", None, 7)
    assert_whole(want, "counter")
    assert_same(got, want)


@pytest.mark.skipif(not hasattr(v1, "estimator"), reason="this TensorFlow has no Estimator")
def test_estimator_goes_on_where_it_was(tmp_path):
    def model_fn(features, labels, mode):
        del labels
        variable = make(2, "counter")
        step = v1.train.get_or_create_global_step()
        with tf.control_dependencies(train_step(variable, features, step)):
            train_op = step.assign_add(1)
        loss = tf.constant(0.0)
        return tf.compat.v1.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(first):
        steps = tf.data.Dataset.range(first, 100)
        return steps.map(
            lambda step: tf.ensure_shape(
                tf.numpy_function(lambda i: keys_of_step(int(i)), [step], tf.int64), [None]
            )
        )

    def contents(directory, steps):
        for first, last in steps:
            estimator = v1.estimator.Estimator(model_fn, str(directory))
            estimator.train(lambda first=first: input_fn(first), max_steps=last)
        reader = tf.train.load_checkpoint(str(directory))
        names = [n for n in reader.get_variable_to_shape_map() if n.startswith(f"{NAME}-")]
        return {name: reader.get_tensor(name) for name in names}

    want = contents(tmp_path / "whole", [(0, 7)])
    assert len(want[f"{NAME}-keys"]) > 20
    assert_same(contents(tmp_path / "interrupted", [(0, 3), (3, 7)]), want)


def test_meta_graph_restores_without_the_program(tmp_path):
    program = Program(2)
    program.train(range(NUM_STEPS))
    want = program.content()
    with program.graph.as_default():
        exports = exports_of(program.variable)
    names = [{key: tensor.name for key, tensor in part.items()} for part in exports]
    program.save(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.import_meta_graph(str(tmp_path / "model.meta")).restore(
            session, str(tmp_path / "model")
        )
        assert_same(merged(session.run(names)), want)


def test_partitions_may_get_their_slots_in_any_order(tmp_path):
    program = Program(None)
    program.train(range(NUM_STEPS))
    want = program.content()
    in_two = Program(2)
    with in_two.graph.as_default():
        _, second = in_two.variable
        other_order = train_step(second, [], 0, rules=("momentum", "adagrad"))
    in_two.session.run(other_order)
    in_two.train(range(NUM_STEPS))
    in_two.save(tmp_path / "model")
    program.restore(tmp_path / "model")
    assert_same(program.content(), want, but=("step",))  # two updates more
    only_one = Program(2)
    with only_one.graph.as_default():
        only_momentum = train_step(only_one.variable[1], keys_of_step(0), 0, rules=["momentum"])
    only_one.session.run(only_momentum)
    only_one.save(tmp_path / "one")
    program.restore(tmp_path / "one")
    got = program.content()
    assert list(got["slot_names"]) == [b"Momentum/momentum"]
    np.testing.assert_array_equal(got["keys"], keys_of_step(0))


def test_saving_beside_training_gives_whole_rows(tmp_path):
    """Each row is saved with the slots and frequency of one moment."""
    rules = ["adagrad"]  # between the updates of two, a row is of one and not yet of the other
    program = Program(2, rules=rules)
    keys = np.arange(3000)
    feed = {program.keys: keys, program.step: 1}
    program.session.run(program.train_op, feed)
    states = {}  # what a row may be: all rows of a step's keys change alike
    reference = Program(None, rules=rules)
    for step in range(40):
        reference.session.run(reference.train_op, {reference.keys: keys, reference.step: 1})
        content = reference.content()
        for key in (0, 1, 2999):
            row = (content["values"][key], content["slots"][key])
            states[key, step] = np.concatenate(row).tobytes()
    stop = threading.Event()
    seen = set()

    def save():
        path = program.save(tmp_path / "model")
        reader = tf.train.load_checkpoint(path)
        values, slots = reader.get_tensor(f"{NAME}-values"), reader.get_tensor(f"{NAME}-slots")
        for key in (0, 1, 2999):
            row = np.concatenate([values[key], slots[key]]).tobytes()
            steps = [step for step in range(40) if states[key, step] == row]
            assert steps, key
            seen.add(steps[0])

    def train():
        for _ in range(39):
            program.session.run(program.train_op, feed)
        stop.set()

    save()
    thread = threading.Thread(target=train)
    thread.start()
    while not stop.is_set():
        save()
    thread.join()
    save()
    assert {0, 39} <= seen
