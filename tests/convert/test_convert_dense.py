"""Stock variables as tables, row number = key, and back."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from convert import deeprec_files
from fused_embedding.convert.destination import write
from fused_embedding.convert.source import open_source
from fused_embedding.convert.table import ConvertError

v1 = tf.compat.v1
ROWS, DIM = 12, 4
OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.1),
    "centered_rmsprop": lambda: v1.train.RMSPropOptimizer(0.1, centered=True),
}


def train_dense(path, make_optimizer, partitions=None, dtype=tf.float32):
    """Trains stock variables, and saves them; all tensors of the checkpoint."""
    partitioner = partitions and v1.fixed_size_partitioner(partitions)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        users = v1.get_variable("users", [ROWS, DIM], dtype, partitioner=partitioner)
        v1.get_variable("kernel", [DIM, DIM])
        rows = tf.nn.embedding_lookup(users, [1, 3, 5])
        step = v1.train.get_or_create_global_step()
        train = make_optimizer().minimize(tf.reduce_sum(rows**2), step)
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        v1.train.Saver().save(session, str(path))
    return deeprec_files.read(path)


def convert(source, destination, to="ours", tables=(), num_rows=None):
    opened = open_source(str(source), tables, None, 0.1)
    return write(opened, str(destination), to, num_rows or {}, lambda name: None)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_round_trip_is_byte_equal(tmp_path, optimizer):
    saved = train_dense(tmp_path / "dense", OPTIMIZERS[optimizer])
    convert(tmp_path / "dense", tmp_path / "ours", tables=["users"])
    convert(tmp_path / "ours", tmp_path / "again", to="dense", num_rows={"users": ROWS})
    deeprec_files.assert_same_checkpoint(deeprec_files.read(tmp_path / "again"), saved)


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16])
def test_round_trip_of_other_types(tmp_path, dtype):
    saved = train_dense(tmp_path / "dense", OPTIMIZERS["adam"], dtype=dtype)
    convert(tmp_path / "dense", tmp_path / "ours", tables=["users"])
    convert(tmp_path / "ours", tmp_path / "again", to="dense", num_rows={"": ROWS})
    deeprec_files.assert_same_checkpoint(deeprec_files.read(tmp_path / "again"), saved)


def test_through_deeprec_and_partitions(tmp_path):
    saved = train_dense(tmp_path / "dense", OPTIMIZERS["adam"], partitions=3)
    convert(tmp_path / "dense", tmp_path / "deeprec", to="deeprec", tables=["users"])
    convert(tmp_path / "deeprec", tmp_path / "again", to="dense", num_rows={"": ROWS})
    deeprec_files.assert_same_checkpoint(deeprec_files.read(tmp_path / "again"), saved)


def test_slots_are_those_of_the_table(tmp_path):
    saved = train_dense(tmp_path / "dense", OPTIMIZERS["centered_rmsprop"])
    convert(tmp_path / "dense", tmp_path / "ours", tables=["users"])
    table = fe.get_embedding_variable("users", DIM)
    fe.convert.restore(str(tmp_path / "ours"), {"users": table})
    content = table.export_content()
    names = content.slot_names.numpy().astype(str).tolist()
    slots = dict(zip(names, np.split(content.slots.numpy(), 3, axis=1), strict=True))
    for kind, suffix in (("rms", ""), ("mg", "_1"), ("momentum", "_2")):
        np.testing.assert_array_equal(slots[f"RMSProp/{kind}"], saved[f"users/RMSProp{suffix}"])


def save_table(path, keys, initializer=0.25):
    """A trained table of ours, as the stock Saver saves it."""
    with tf.Graph().as_default(), v1.Session() as session:
        table = fe.get_embedding_variable("users", DIM, initializer=initializer)
        rows = tf.nn.embedding_lookup(table, keys)
        optimizer = v1.train.AdagradOptimizer(0.1, initial_accumulator_value=0.3)
        session.run(optimizer.minimize(tf.reduce_sum(rows)))
        v1.train.Saver().save(session, str(path))
        return dict(zip(keys, session.run(rows), strict=True))


def test_missing_rows_are_first_values(tmp_path):
    initializer = tf.random_normal_initializer()
    found = save_table(tmp_path / "ours", [2, 5], initializer)
    lines = convert(tmp_path / "ours", tmp_path / "dense", "dense", num_rows={"": 7})
    dense = deeprec_files.read(tmp_path / "dense")
    with tf.Graph().as_default(), v1.Session() as session:  # of the same seed
        table = fe.get_embedding_variable("users", DIM, initializer=initializer)
        want = session.run(tf.nn.embedding_lookup(table, list(range(7))))
    want[[2, 5]] = [found[2], found[5]]
    np.testing.assert_array_equal(dense["users"], want)
    assert (np.delete(dense["users/Adagrad"], [2, 5], axis=0) == np.float32(0.3)).all()
    assert "  5 of 7 rows have no key, the first 0: they are first values" in lines


@pytest.mark.parametrize(("keys", "given"), [([2, 9], 9), ([-1, 2], 9)])
def test_keys_outside_are_refused(tmp_path, keys, given):
    save_table(tmp_path / "ours", keys)
    with pytest.raises(ConvertError, match=f"1 keys that are no row of {given}"):
        convert(tmp_path / "ours", tmp_path / "dense", "dense", num_rows={"users": given})
    assert not list(tmp_path.glob("dense*"))


def test_number_of_rows_must_be_given(tmp_path):
    save_table(tmp_path / "ours", [1])
    with pytest.raises(ConvertError, match="pass --num_rows=ROWS, or --num_rows=users=ROWS"):
        convert(tmp_path / "ours", tmp_path / "dense", "dense", num_rows={"items": 3})


@pytest.mark.parametrize(
    ("tables", "message"), [([], "has no table"), (["user"], "not in .*meant")]
)
def test_variables_are_proposed(tmp_path, tables, message):
    train_dense(tmp_path / "dense", OPTIMIZERS["sgd"])
    with pytest.raises(ConvertError, match=f"{message}.*: kernel, users"):
        convert(tmp_path / "dense", tmp_path / "ours", tables=tables)


def test_variable_of_an_object_checkpoint(tmp_path):
    module = tf.Module()
    module.users, module.kernel = tf.Variable(tf.random.normal([5, 3])), tf.Variable(1.0)
    path = tf.train.Checkpoint(model=module).write(str(tmp_path / "objects"))
    lines = convert(path, tmp_path / "ours", tables=["model/users"])
    assert all(name.startswith("model/users-") for name in deeprec_files.read(tmp_path / "ours"))
    assert any("beside the tables; restore them" in line for line in lines)
    table = fe.get_embedding_variable("table", 3)
    fe.convert.restore(str(tmp_path / "ours"), {"model/users": table})
    np.testing.assert_array_equal(tf.nn.embedding_lookup(table, list(range(5))), module.users)
