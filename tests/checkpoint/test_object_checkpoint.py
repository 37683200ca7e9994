"""tf.train.Checkpoint and CheckpointManager: what only they have."""

import numpy as np
import pytest
import tensorflow as tf
from saved_tables import (
    NUM_STEPS,
    PARTITIONS,
    assert_same,
    content_of,
    eager,
    keys_of_step,
    make,
    rows_of,
    train_step,
)

import fused_embedding as fe

v1 = tf.compat.v1


class Model(tf.Module):
    """An EmbeddingVariable beside an ordinary variable."""

    def __init__(self, partitions=None):
        super().__init__()
        self.table = make(partitions)
        self.scale = tf.Variable(2.0)

    @tf.function
    def train(self, keys, step):
        train_step(self.table, keys, step)

    @tf.function
    def lookup(self, keys):
        with fe.inference():
            return self.scale * rows_of(self.table, keys)


def trained(partitions=None):
    model = Model(partitions)
    for step in range(NUM_STEPS):
        model.train(tf.constant(keys_of_step(step)), step)
    return model


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_ten_saves_of_which_two_are_kept_leave_no_orphans(tmp_path, partitions):
    model = trained(partitions)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), tmp_path, max_to_keep=2)
    for _ in range(10):
        manager.save()
    prefixes = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
    assert prefixes == {"checkpoint", "ckpt-9", "ckpt-10"}
    num_files = len([path for path in tmp_path.iterdir() if ".data-e" in path.name])
    assert num_files == 2 * (partitions or 1)
    want = content_of(model.table, eager)
    model.train(tf.constant(keys_of_step(77)), 77)
    manager.restore_or_initialize()
    assert_same(content_of(model.table, eager), want)


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_a_table_is_restored_when_it_is_made(tmp_path, partitions):
    model = trained(2)
    path = tf.train.Checkpoint(model=model).save(tmp_path / "model")
    later = tf.Module()
    status = tf.train.Checkpoint(model=later).restore(path)
    with pytest.raises(AssertionError, match="Unresolved"):
        status.assert_consumed()
    later.table = make(partitions)
    assert_same(content_of(later.table, eager), content_of(model.table, eager))
    later.scale = tf.Variable(0.0)
    status.assert_consumed()
    assert float(later.scale) == 2.0


def test_a_table_that_is_not_asked_for_is_partial(tmp_path):
    path = tf.train.Checkpoint(model=trained()).save(tmp_path / "model")
    other = tf.train.Checkpoint(model=tf.Module())
    other.restore(path).expect_partial()
    with pytest.raises(AssertionError):
        other.restore(path).assert_consumed()
    fresh = Model()
    status = tf.train.Checkpoint(model=tf.Module(), fresh=fresh).restore(path)
    status.expect_partial()
    with pytest.raises(AssertionError, match="not bound"):
        status.assert_existing_objects_matched()
    assert int(fresh.table.total_count()) == 0


def test_functions_read_what_is_restored(tmp_path):
    model = trained(3)
    keys = tf.constant(keys_of_step(2))
    path = tf.train.Checkpoint(model=model).save(tmp_path / "model")
    want = model.lookup(keys)
    other = Model(2)
    other.lookup(keys)
    tf.train.Checkpoint(model=other).restore(path).assert_consumed()
    np.testing.assert_array_equal(other.lookup(keys), want)


@pytest.mark.parametrize("module", ["tensorflow.keras", "tf_keras"])
def test_keras_models_hold_tables(tmp_path, module):
    keras = tf.keras if module == "tensorflow.keras" else pytest.importorskip("tf_keras")

    class Layer(keras.layers.Layer):
        def __init__(self, partitions):
            super().__init__()
            self.table = make(partitions)

        def call(self, keys):
            with fe.inference():
                return rows_of(self.table, tf.cast(keys, tf.int64))

    def make_model(partitions):
        return keras.Sequential([Layer(partitions), keras.layers.Dense(1)])

    model = make_model(2)
    for step in range(NUM_STEPS):
        train_step(model.layers[0].table, keys_of_step(step), step)
    keys = tf.constant(keys_of_step(1))
    want = model(keys)
    path = tf.train.Checkpoint(model=model).save(tmp_path / "model")
    other = make_model(3)
    other(keys)
    tf.train.Checkpoint(model=other).restore(path).assert_consumed()
    np.testing.assert_array_equal(other(keys), want)


def test_partitions_may_be_tracked_one_by_one(tmp_path):
    model = trained(2)
    first, second = model.table
    path = tf.train.Checkpoint(a=first, b=second).save(tmp_path / "model")
    other = make(2)
    tf.train.Checkpoint(a=other[0], b=other[1]).restore(path).assert_consumed()
    assert_same(content_of(other, eager), content_of(model.table, eager))
    with pytest.raises(tf.errors.InvalidArgumentError, match="another part of a table"):
        tf.train.Checkpoint(a=other[1], b=other[0]).restore(path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="another part of a table"):
        tf.train.Checkpoint(a=make(3)[0]).restore(path)


def test_two_tables_of_one_name_are_two(tmp_path):
    models = [trained(), Model()]
    models[1].train(tf.constant([5], tf.int64), 3)
    path = tf.train.Checkpoint(models=models).save(tmp_path / "model")
    others = [Model(), Model()]
    tf.train.Checkpoint(models=others).restore(path).assert_consumed()
    for other, model in zip(others, models, strict=True):
        assert_same(content_of(other.table, eager), content_of(model.table, eager))


def test_a_save_that_fails_after_the_tables_leaves_nothing_for_long(tmp_path):
    model = trained(2)
    checkpoint = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    manager.save()
    (tmp_path / "ckpt-2_temp").write_text("in the way of TensorFlow's own files")
    with pytest.raises(tf.errors.OpError):
        manager.save()
    (tmp_path / "ckpt-2_temp").unlink()
    manager.save()
    prefixes = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
    assert prefixes == {"checkpoint", "ckpt-1", "ckpt-3"}


@pytest.mark.parametrize("partitions", [None, 2])
def test_asynchronous_checkpoints_are_refused(tmp_path, partitions):
    options = tf.train.CheckpointOptions(enable_async=True)
    with pytest.raises(tf.errors.UnimplementedError, match="asynchronous"):
        tf.train.Checkpoint(model=trained(partitions)).save(tmp_path / "model", options)


def test_training_goes_on_bit_equal(tmp_path):
    def run(num_steps, restored=None, saved=None, partitions=None):
        with tf.Graph().as_default(), v1.Session() as session:
            table = make(partitions)
            keys = v1.placeholder(tf.int64, [None])
            step = v1.train.get_or_create_global_step()
            rows = rows_of(table, keys)
            loss = tf.reduce_sum((rows - tf.cast(keys[:, None] % 7, tf.float32)) ** 2)
            train = v1.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
            saver = v1.train.Saver()
            session.run(v1.global_variables_initializer())
            if restored:
                saver.restore(session, restored)
            losses = []
            while session.run(step) < num_steps:
                feed = {keys: keys_of_step(int(session.run(step)))}
                losses.append(session.run([loss, train], feed)[0])
            if saved:
                saver.save(session, saved)
            return losses, content_of(table, session.run)

    path = str(tmp_path / "model")
    want_losses, want = run(8)
    run(5, saved=path)
    for partitions in (None, 2):
        losses, content = run(8, restored=path, partitions=partitions)
        if partitions is None:
            assert losses == want_losses[5:]
            assert_same(content, want)
        assert_same(content, want, but=("step",))
    assert len(set(want_losses)) == 8
