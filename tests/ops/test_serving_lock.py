"""EmbeddingVariableServingLock and -Unlock: requests together, changes alone, no thread waits."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from table_cases import DIM, int64, make_table

from fused_embedding import raw_ops
from stages import SHAPE_ERROR

v1 = tf.compat.v1
SECONDS = 60  # until a test says that something hangs


def lock(resource):
    return raw_ops.EmbeddingVariableServingLock(resource=resource)


def unlock(held):
    return raw_ops.EmbeddingVariableServingUnlock(lock=held, results=[1.0, "two"])


def change(resource):
    """Waits for the lock alone, and changes nothing."""
    return raw_ops.EmbeddingVariableServingChange(
        resources=[resource],
        keys=[int64([])],
        values=[np.zeros([0, DIM], np.float32)],
        removed_keys=[int64([])],
        is_full=[False],
        variables=[],
        new_values=[],
    )


class Thread(threading.Thread):
    """Calls something, and keeps its error."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self.function, self.args, self.error = function, args, None
        self.start()

    def run(self):
        try:
            self.function(*self.args)
        except Exception as error:
            self.error = error

    def ends(self):
        self.join(SECONDS)
        assert not self.is_alive()
        return self.error


def test_a_change_waits_for_all_requests():
    table = make_table()
    held = [lock(table) for _ in range(3)]
    changing = Thread(change, table)
    for one in held[1:]:
        unlock(one)
        changing.join(0.05)
        assert changing.is_alive()
    unlock(held[0])
    assert changing.ends() is None
    unlock(held[0])  # once is enough
    change(table)
    held = lock(table)
    changing = Thread(change, table)
    changing.join(0.05)
    assert changing.is_alive()
    del held  # nobody has it any more
    assert changing.ends() is None


def test_tables_have_locks_of_their_own():
    first, second = make_table(), make_table()
    held = lock(first)
    change(second)
    unlock(held)


def test_a_lock_outlives_its_table():
    table = make_table()
    held = lock(table)
    changing = Thread(change, table)
    changing.join(0.05)
    tf.raw_ops.DestroyResourceOp(resource=table)
    assert changing.is_alive()
    unlock(held)
    assert changing.ends() is None
    with pytest.raises(tf.errors.NotFoundError, match="does not exist"):
        lock(table)


def test_what_is_no_lock_is_an_error():
    numbers = tf.raw_ops.EmptyTensorList(
        element_shape=-1, max_num_elements=1, element_dtype=tf.float32
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="ServingLock gave"):
        unlock(numbers)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ServingLock gave"):
        unlock(tf.stack([lock(make_table())]))


def test_shapes():
    @tf.function
    def traced():
        held = lock(make_table())
        assert held.shape.rank == 0
        with pytest.raises(ValueError, match=SHAPE_ERROR):
            unlock(held[None])
        unlock(held)

    traced.get_concrete_function()


@pytest.fixture
def session():
    """With one thread for ops, which a wait must not take."""
    config = v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
    with tf.Graph().as_default(), v1.Session(config=config) as made:
        yield made


class Waits:
    """A graph that locks a table, changes it, and keeps locks in the session."""

    def __init__(self, session):
        table = make_table()
        self.session = session
        self.kept = v1.get_session_handle(lock(table))
        with tf.control_dependencies([unlock(lock(table))]):
            self.read = tf.constant(7)
        self.change = change(table)

    def hold(self):
        return self.session.run(self.kept)

    def run(self, op, seconds=SECONDS):
        return self.session.run(op, options=v1.RunOptions(timeout_in_ms=int(1000 * seconds)))


def test_no_thread_waits(session):
    waits = Waits(session)
    held = waits.hold()
    threads = [Thread(waits.run, waits.change)]
    threads[0].join(0.05)
    threads += [Thread(waits.run, waits.read) for _ in range(20)]
    threads += [Thread(waits.run, waits.change) for _ in range(3)]
    assert session.run(tf.constant(3)) == 3  # the one thread is free
    assert all(thread.is_alive() for thread in threads)
    held.delete()
    assert [thread.ends() for thread in threads] == [None] * len(threads)


def test_a_wait_is_cancelled_and_holds_nobody_up(session):
    waits = Waits(session)
    held = waits.hold()
    behind = Thread(waits.run, waits.change, 0.5)
    with pytest.raises(tf.errors.DeadlineExceededError):
        waits.run(waits.change, 0.1)
    assert isinstance(behind.ends(), tf.errors.DeadlineExceededError)
    assert waits.run(waits.read) == 7  # no change waits any more
    held.delete()
    waits.run(waits.change)
    assert waits.run(waits.read) == 7


def test_requests_that_wait_for_a_change_are_cancelled(session):
    waits = Waits(session)
    held = waits.hold()
    changing = Thread(waits.run, waits.change)
    changing.join(0.05)
    with pytest.raises(tf.errors.DeadlineExceededError):
        waits.run(waits.read, 0.1)
    held.delete()
    assert changing.ends() is None
    assert waits.run(waits.read) == 7


def test_a_step_that_fails_releases_the_lock(session):
    table = make_table()
    numbers = v1.placeholder(tf.float32)
    held = lock(table)
    with tf.control_dependencies([held]):
        checked = tf.debugging.check_numerics(numbers, "bad")
    with tf.control_dependencies([checked]):
        done = unlock(held)
    changed = change(table)
    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
            session.run(done, {numbers: np.nan})
        session.run(changed, options=v1.RunOptions(timeout_in_ms=1000 * SECONDS))
        session.run(done, {numbers: 1.0})
