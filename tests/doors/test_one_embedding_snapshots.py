"""fe.one_embedding: snapshots, and reading and writing them without a table."""

import json

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import processes

one = fe.one_embedding
v1 = tf.compat.v1
DIM = 3

# Trains for `steps` steps; loads before and saves after where names are given; prints all rows.
PROGRAM = """
import json, sys
import numpy as np, tensorflow as tf, fused_embedding as fe
one, v1 = fe.one_embedding, tf.compat.v1
folder, load, save, first, last = sys.argv[1:]
tables = [one.make_table(one.make_uniform_initializer(-1.0, 1.0)) for _ in range(2)]
store = one.make_device_mem_store_options(folder, 1000, 2)
embedding = one.MultiTableEmbedding("t", 3, tf.float32, tf.int64, tables, store)
optimizer = v1.train.AdagradOptimizer(0.5)
if load:
    embedding.load_snapshot(load)
for step in range(int(first), int(last)):
    ids = tf.constant(np.random.default_rng(step).integers(-9, 9, [5, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.tanh(embedding(ids)))
    grads = tape.gradient(loss, embedding.parameters())
    optimizer.apply_gradients(list(zip(grads, embedding.parameters())))
if save:
    embedding.save_snapshot(save)
exported = [[column.numpy().tolist() for column in table.export()] for table in embedding.tables]
print(json.dumps(exported))
"""


def make(folder, initializer=None, name="t", dim=DIM, num_tables=2, dtype=tf.float32):
    initializer = initializer or one.make_uniform_initializer(-1.0, 1.0)
    store = one.make_device_mem_store_options(str(folder), 1000, 2)
    tables = [one.make_table(initializer) for _ in range(num_tables)]
    return one.MultiTableEmbedding(name, dim, dtype, tf.int64, tables, store)


def train(embedding, ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.tanh(embedding(tf.constant(ids, tf.int64))))
    grads = tape.gradient(loss, embedding.parameters())
    pairs = list(zip(grads, embedding.parameters(), strict=True))
    v1.train.AdagradOptimizer(0.5).apply_gradients(pairs)


def content(embedding):
    return [[column.numpy().tolist() for column in table.export()] for table in embedding.tables]


@pytest.mark.slow
def test_training_goes_on_in_a_new_process(tmp_path):
    """Bit by bit as if it had not stopped: rows, accumulators, frequencies, versions."""

    def run(*arguments):
        done = processes.run_program(PROGRAM, tmp_path, *arguments, cwd=tmp_path)
        return json.loads(processes.output_of(done).splitlines()[-1])

    whole = run("", "", 0, 6)
    half = run("", "half", 0, 3)
    assert half != whole
    assert run("half", "", 3, 3) == half
    assert run("half", "", 3, 6) == whole


def test_load_replaces_everything(tmp_path):
    embedding = make(tmp_path)
    train(embedding, [[1, 2], [3, 4]])
    want = content(embedding)
    embedding.save_snapshot("a")
    train(embedding, [[1, 2], [5, 6]])
    assert content(embedding) != want
    embedding.load_snapshot("a")
    assert content(embedding) == want
    other = make(tmp_path, name="other")
    other.load_snapshot("a")
    assert content(other) == want
    np.testing.assert_array_equal(other([[77, 78]]), embedding([[77, 78]]))  # first values as well


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16])
def test_values_of_every_dtype_come_back(tmp_path, dtype):
    embedding = make(tmp_path, dtype=dtype)
    train(embedding, [[1, 2], [3, 4]])
    want = content(embedding)
    embedding.save_snapshot("a")
    other = make(tmp_path, dtype=dtype)
    other.load_snapshot("a")
    assert content(other) == want


def test_in_a_session(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        embedding = make(tmp_path)
        rows = embedding(tf.constant([[1, 2], [3, 4]], tf.int64))
        train_op = v1.train.AdagradOptimizer(0.5).minimize(tf.reduce_sum(tf.tanh(rows)))
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        embedding.save_snapshot("a")
        want = session.run([table.export() for table in embedding.tables])
        session.run(train_op)
        embedding.load_snapshot("a")
        got = session.run([table.export() for table in embedding.tables])
        for table, wanted in zip(got, want, strict=True):
            for column, wanted_column in zip(table, wanted, strict=True):
                np.testing.assert_array_equal(column, wanted_column)
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"with session.as_default\(\)"):
        make(tmp_path).save_snapshot("b")


def test_numpy_alone_reads_the_files(tmp_path):
    embedding = make(tmp_path)
    train(embedding, [[4, 2], [1, 2]])
    embedding.save_snapshot("a")
    with np.load(tmp_path / "0-1/snapshots/a/table_0.npz") as file:
        np.testing.assert_array_equal(file["keys"], [1, 4])
        np.testing.assert_array_equal(file["values"], embedding.tables[0].export().values)
        assert file["slot_names"].tolist() == [b"Adagrad/accumulator"]
        assert file["frequencies"].tolist() == [1, 1]


def test_names_and_wrong_tables_are_refused(tmp_path):
    embedding = make(tmp_path)
    train(embedding, [[1, 2]])
    embedding.save_snapshot("a")
    want = content(embedding)
    with pytest.raises(FileExistsError, match="exists, and is not overwritten"):
        embedding.save_snapshot("a")
    for name in ("", "..", "a/b", None):
        with pytest.raises(ValueError, match="must be the name of a folder"):
            embedding.save_snapshot(name)
    with pytest.raises(FileNotFoundError, match=r"no snapshot 'b' in .*; there are: a"):
        embedding.load_snapshot("b")
    for others in ({"dim": 4}, {"num_tables": 1}, {"dtype": tf.float64}):
        with pytest.raises(ValueError, match=r"is of Manifest.* load it into tables like those"):
            make(tmp_path, name="x", **others).load_snapshot("a")
    assert content(embedding) == want


@pytest.mark.parametrize("damage", ["cut", "altered", "missing", "json"])
def test_damage_is_found_before_a_table_changes(tmp_path, damage):
    embedding = make(tmp_path)
    train(embedding, [[key, key] for key in range(50)])
    embedding.save_snapshot("a")
    folder = tmp_path / "0-1/snapshots/a"
    path = folder / ("snapshot.json" if damage == "json" else "table_1.npz")
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "altered":
        path.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    else:
        path.write_bytes(data[: len(data) // 2])
    train(embedding, [[1, 2]])
    want = content(embedding)
    with pytest.raises(ValueError, match=f"{path.name}' is damaged or"):
        embedding.load_snapshot("a")
    assert content(embedding) == want


def test_a_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
    embedding = make(tmp_path)
    monkeypatch.setattr(np, "savez", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        embedding.save_snapshot("a")
    assert list((tmp_path / "0-1/snapshots").iterdir()) == []


# --- Reader and writer ---


def test_reader_gives_rows_and_what_optimizers_keep(tmp_path):
    embedding = make(tmp_path)
    train(embedding, [[4, 2], [1, 2]])
    embedding.save_snapshot("a")
    root = [str(tmp_path / "0-1")]
    with one.make_persistent_table_reader(root, "a", tf.int64, tf.float32, DIM) as reader:
        got = [(reader.table, keys, values) for keys, values in reader]
    assert [table for table, _, _ in got] == [0, 1]
    for (_, keys, values), table in zip(got, embedding.tables, strict=True):
        assert keys.dtype == np.int64
        assert values.dtype == np.float32
        np.testing.assert_array_equal(keys, table.export().keys)
        np.testing.assert_array_equal(values, table.export().values)
    with one.make_persistent_table_reader(root, "a", tf.int64, tf.float32, 2 * DIM) as reader:
        _, stored = next(reader)
    np.testing.assert_array_equal(stored[:, :DIM], embedding.tables[0].export().values)
    np.testing.assert_array_equal(stored[:, DIM:], embedding.tables[0].export_content().slots)
    assert np.all(stored[:, DIM:] > 0.1)  # accumulators


def test_reader_gives_65536_rows_at_a_time(tmp_path):
    keys = np.arange(100_000)
    values = keys[:, None].astype(np.float32)
    with one.make_persistent_table_writer([tmp_path], "a", tf.int64, tf.float32, 1) as writer:
        writer.write(keys, values)
    with one.make_persistent_table_reader([tmp_path], "a", tf.int64, tf.float32, 1) as reader:
        sizes = [len(batch) for batch, rows in reader if np.array_equal(batch, rows[:, 0])]
    assert sizes == [65536, 34464]


def test_what_is_written_is_loaded(tmp_path):
    """The rows of a dict, in two tables; other keys start as the tables say."""
    rng = np.random.default_rng(5)
    oracle = [{}, {}]
    root = [str(tmp_path / "0-1")]
    with one.make_persistent_table_writer(
        root, "given", tf.int64, tf.float32, DIM, num_tables=2
    ) as writer:
        for _ in range(3):
            for table, rows in enumerate(oracle):
                keys = rng.permutation(np.arange(-20, 20))[:15]
                values = rng.standard_normal([15, DIM]).astype(np.float32)
                writer.write(keys, values, table=table)
                rows.update(zip(keys.tolist(), values, strict=True))
    embedding = make(tmp_path)
    first = embedding([[99, 98]]).numpy()
    embedding.load_snapshot("given")
    for table, rows in zip(embedding.tables, oracle, strict=True):
        assert table.export().keys.numpy().tolist() == sorted(rows)
        np.testing.assert_array_equal(table.export().values, [rows[key] for key in sorted(rows)])
    np.testing.assert_array_equal(embedding([[99, 98]]), first)
    train(embedding, [[1, 2]])


def test_more_rows_than_the_capacity_are_refused(tmp_path):
    with one.make_persistent_table_writer(
        [str(tmp_path / "0-1")], "big", tf.int64, tf.float32, DIM, num_tables=2
    ) as writer:
        writer.write([5], np.zeros([1, DIM], np.float32))
        writer.write(np.arange(1001), np.zeros([1001, DIM], np.float32), table=1)
    embedding = make(tmp_path)
    with pytest.raises(ValueError, match=r"table_1.npz has 1001 rows, but the capacity .* is 1000"):
        embedding.load_snapshot("big")
    assert content(embedding)[0][0] == []


def test_a_writer_in_an_error_leaves_nothing(tmp_path):
    def write():
        with one.make_persistent_table_writer([tmp_path], "a", tf.int64, tf.float32, 1) as writer:
            writer.write([1], np.ones([1, 1], np.float32))
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_readers_and_writers_refuse(tmp_path):
    arguments = ("a", tf.int64, tf.float32, 2)
    with pytest.raises(TypeError, match="paths must be a list of folders"):
        one.make_persistent_table_reader("path", *arguments)
    with pytest.raises(FileNotFoundError, match="there are: none"):
        one.make_persistent_table_reader([str(tmp_path)], *arguments)
    for change, message in (({3: 0}, "storage_dim must be > 0"), ({4: 1024}, "512 or 4096")):
        changed = {**dict(enumerate(arguments)), **change}
        with pytest.raises(ValueError, match=message):
            one.make_persistent_table_writer([str(tmp_path)], *changed.values())
    with pytest.raises(ValueError, match="2 paths and num_tables = 1"):
        one.make_persistent_table_writer([str(tmp_path)] * 2, *arguments)
    writer = one.make_persistent_table_writer([str(tmp_path)], *arguments)
    row = np.ones([1, 2], np.float32)
    with pytest.raises(ValueError, match=r"table must be in \[0, 1\), got 1"):
        writer.write([1], row, table=1)
    with pytest.raises(ValueError, match="got int64 and float64; convert them"):
        writer.write([1], row.astype(np.float64))
    with pytest.raises(ValueError, match=r"got \[1\] and \[1, 1\]"):
        writer.write([1], row[:, :1])
    writer.write([1], row)
    writer.close()
    with pytest.raises(ValueError, match="is closed; make another"):
        writer.write([1], row)
    with pytest.raises(ValueError, match="has int64 keys and float32 values, not int32"):
        one.make_persistent_table_reader([str(tmp_path)], "a", tf.int32, tf.float32, 2)
    reader = one.make_persistent_table_reader([str(tmp_path)], "a", tf.int64, tf.float32, 5)
    with pytest.raises(ValueError, match=r"storage_dim = 5 .* rows of 2 numbers"):
        next(reader)


def test_names_and_devices_as_in_the_documents_of_oneflow(tmp_path):
    store = one.make_device_mem_store_options(str(tmp_path), 100, 2)
    tables = [one.make_table(one.make_uniform_initializer(-1.0, 1.0))]
    embedding = one.MultiTableEmbedding("named", DIM, tf.float32, tf.int64, tables, store)
    assert embedding.to("cuda").to("cpu") is embedding
    rows = embedding(tf.constant([[1], [2]], tf.int64)).numpy()
    embedding.save_snapshot("./my_snapshot")
    embedding.tables[0].upsert([1], [[0.0] * DIM])
    embedding.load_snapshot("my_snapshot")
    np.testing.assert_array_equal(embedding(tf.constant([[1], [2]], tf.int64)), rows)
    for name in ("", ".", "..", "../x", "a/b", str(tmp_path / "x"), 3):
        with pytest.raises(ValueError, match=r"snapshot_name must be the name of a folder"):
            embedding.save_snapshot(name)
    for device in ("tpu", tf.float16):
        with pytest.raises(ValueError, match=r"it takes 'cpu' or 'cuda'"):
            embedding.to(device)
