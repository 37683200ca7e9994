"""Checkpoints of tables with a tier on an SSD: files of RocksDB's, that go where others go."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tiers import look_up, make_table, needs_rocksdb, on_ssd, parts_of, rows_of
from checking import assert_same_bits
from fused_embedding.convert.destination import write
from fused_embedding.convert.source import open_source
from fused_embedding.inspection import inspect_command

pytestmark = [needs_rocksdb, pytest.mark.one_version]
tf1 = tf.compat.v1
DIM = 32
NUM_KEYS = 20_000


def filled(folder, name="filled", num_partitions=1):
    table = make_table(name, DIM, num_partitions, on_ssd(folder))
    add(table, 0)
    return table


def add(table, number):
    """Other rows for each number."""
    keys = np.arange(NUM_KEYS, dtype=np.int64) + number * NUM_KEYS // 2
    values = np.random.default_rng(number).normal(size=[NUM_KEYS, DIM]).astype(np.float32)
    table.upsert(keys, values)


def assert_same_rows(got, want):
    for part in want:
        assert_same_bits(got[part], want[part])


def is_cold(path):
    """Whether it is a file of RocksDB's; a table's begins with its own name."""
    return not path.read_bytes().startswith(b"FE_TABLE")


def files_of(prefix):
    """Those that hold tables, and those that hold their rows."""
    ours = sorted(prefix.parent.glob(f"{prefix.name}.data-e*"))
    return [x for x in ours if not is_cold(x)], [x for x in ours if is_cold(x)]


@pytest.mark.parametrize("num_partitions", [1, 2])
def test_go_with_their_checkpoint(num_partitions, tmp_path):
    table = filled(tmp_path / "ssd", num_partitions=num_partitions)
    folder = tmp_path / "saves"
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(t=table), folder, max_to_keep=2)
    for number in range(4):
        add(table, number)
        manager.save()
    for number in (3, 4):
        tables, cold = files_of(folder / f"ckpt-{number}")
        assert len(tables) == num_partitions
        assert len(cold) >= num_partitions
        assert sum(x.stat().st_size for x in tables) < 1 << 20
    assert {x.name.split(".")[0] for x in folder.iterdir()} == {"checkpoint", "ckpt-3", "ckpt-4"}
    assert all(x.is_file() for x in folder.iterdir())


@pytest.mark.parametrize("num_saved", [1, 2])
@pytest.mark.parametrize("num_restored", [1, 2])
@pytest.mark.parametrize("is_on_ssd", [False, True])
def test_are_restored_by_any_table(num_saved, num_restored, is_on_ssd, tmp_path):
    table = filled(tmp_path / "ssd", "saved", num_saved)
    path = tf.train.Checkpoint(t=table).write(str(tmp_path / "saved"))
    option = on_ssd(tmp_path / "ssd") if is_on_ssd else fe.EmbeddingVariableOption()
    restored = make_table("restored", DIM, num_restored, option)
    restored.upsert([-7], [[1.0] * DIM])  # goes
    tf.train.Checkpoint(t=restored).read(path).assert_consumed()
    if is_on_ssd:
        # RocksDB has the rows from its files, or memory from what was read of them.
        with fe.inference():
            look_up(restored, np.arange(100))
        hits = [int(part.statistics()["cold_hits"]) for part in parts_of(restored)]
        assert (sum(hits) == 100) == (num_saved == num_restored)
    assert_same_rows(rows_of(restored), rows_of(table))
    for one in (table, restored):
        add(one, 1)
    assert_same_rows(rows_of(restored), rows_of(table))


def test_are_replaced_as_a_whole(tmp_path):
    table = filled(tmp_path / "ssd")
    prefix = tmp_path / "saved"
    checkpoint = tf.train.Checkpoint(t=table)
    checkpoint.write(str(prefix))
    first = files_of(prefix)[1]
    add(table, 1)
    checkpoint.write(str(prefix))
    tables, second = files_of(prefix)
    assert len(tables) == 1
    assert first
    assert second
    assert not set(first) & set(second)


def test_a_savedmodel_needs_no_rocksdb(tmp_path):
    model = tf.Module()
    model.table = filled(tmp_path / "ssd")
    model.serve = tf.function(
        lambda keys: tf.nn.embedding_lookup(model.table, keys),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    tf.saved_model.save(model, tmp_path / "model")
    tables, cold = files_of(tmp_path / "model/variables/variables")
    assert len(tables) == 1
    assert not cold
    loaded = tf.saved_model.load(tmp_path / "model")
    keys = np.arange(0, NUM_KEYS, 77)
    want = tf.nn.embedding_lookup(model.table, keys)
    assert_same_bits(loaded.serve(tf.constant(keys)).numpy(), want.numpy())


def test_incremental_checkpoints_hold_all_of_them(tmp_path):
    on_disk = filled(tmp_path / "ssd", "on_disk")
    in_memory = make_table("in_memory", DIM, 1, fe.EmbeddingVariableOption())
    checkpoint = tf.train.Checkpoint(on_disk=on_disk, in_memory=in_memory)
    manager = fe.train.IncrementalCheckpointManager(checkpoint, str(tmp_path / "s"), max_to_keep=1)
    for number in range(3):
        add(on_disk, number)
        add(in_memory, number)
        path = manager.save()
    (full,) = fe.train.read_changes(path, "on_disk", DIM)
    (changes,) = fe.train.read_changes(path, "in_memory", DIM)
    assert (full.is_full, changes.is_full) == (True, False)
    assert sorted(full.keys) == sorted(rows_of(on_disk)["keys"])
    restored = make_table("restored", DIM, 1, on_ssd(tmp_path / "ssd"))
    tf.train.Checkpoint(on_disk=restored).restore(path).expect_partial()
    assert_same_rows(rows_of(restored), rows_of(on_disk))


@pytest.mark.parametrize("is_incremental", [False, True])
def test_savers_of_sessions(is_incremental, tmp_path):
    with tf.Graph().as_default():
        table = make_table("in_session", DIM, 2, on_ssd(tmp_path / "ssd"))
        keys = np.arange(NUM_KEYS, dtype=np.int64)
        parts = parts_of(table)
        fill = [
            part.upsert(keys[i::2], tf.ones([NUM_KEYS // 2, DIM])) for i, part in enumerate(parts)
        ]
        count = table.total_count()
        (tmp_path / "saves").mkdir()
        saver = fe.train.Saver(incremental=is_incremental, max_to_keep=2)
        with tf1.Session() as session:
            for step in range(4):
                session.run(fill)
                path = saver.save(session, str(tmp_path / "saves/model"), global_step=step)
        with tf1.Session() as session:
            saver.restore(session, path)
            assert session.run(count) == NUM_KEYS
    names = {x.name.split(".")[0] for x in (tmp_path / "saves").iterdir()}
    assert names == {"checkpoint", "model-2", "model-3"}
    assert len(files_of(tmp_path / "saves/model-3")[0]) == 2


def test_commands_read_them(tmp_path, capsys):
    table = filled(tmp_path / "ssd")
    path = tf.train.Checkpoint(table=table).save(str(tmp_path / "saves/ckpt"))
    assert inspect_command.inspect(path) == 0
    assert f"rows        {NUM_KEYS:,}\n" in capsys.readouterr().out
    write(open_source(path, [], None, 0.1), str(tmp_path / "converted/model"), "ours", {}, str)
    restored = make_table("table", DIM, 1, fe.EmbeddingVariableOption())
    fe.convert.restore(str(tmp_path / "converted/model"), {"table": restored})
    want, got = rows_of(table), rows_of(restored)
    for part in ("keys", "values"):
        assert_same_bits(got[part], want[part])


def test_a_file_that_is_gone_is_named(tmp_path):
    table = filled(tmp_path / "ssd")
    path = tf.train.Checkpoint(t=table).write(str(tmp_path / "saved"))
    cold = files_of(tmp_path / "saved")[1]
    os.remove(cold[0])
    want = rows_of(table)
    with pytest.raises(tf.errors.DataLossError, match=f"{cold[0].name} is missing"):
        tf.train.Checkpoint(t=table).read(path)
    assert_same_rows(rows_of(table), want)


def test_a_folder_that_is_gone_is_made_anew_by_a_restore(tmp_path):
    table = filled(tmp_path / "ssd")
    checkpoint = tf.train.Checkpoint(t=table)
    path = checkpoint.write(str(tmp_path / "saved"))
    want = rows_of(table)
    # RocksDB's compaction deletes files at the same time: some are gone before rmtree gets to them.
    while (tmp_path / "ssd").exists():
        shutil.rmtree(tmp_path / "ssd", ignore_errors=True)
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"{tmp_path}/ssd/filled"):
        checkpoint.write(str(tmp_path / "other"))
    checkpoint.read(path)
    assert_same_rows(rows_of(table), want)
    add(table, 1)
    checkpoint.write(path)
