"""Tables with a tier on an SSD: which folder each has, and that SavedModels have none."""

import gc
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import processes
from cases.tiers import needs_rocksdb, on_ssd

tf1 = tf.compat.v1
PACKAGE = pathlib.Path(fe.__file__).parent
IDS = [3, 1 << 40, -5]

pytestmark = needs_rocksdb


def make(folder, name="users", **others):
    return fe.get_embedding_variable(name, 4, ev_option=on_ssd(folder), **others)


def in_use(folder):
    """Folders of tables that are there now: the others have the file of a lock alone."""
    return sorted({str(path.parents[1].relative_to(folder)) for path in folder.rglob("data")})


def test_a_table_has_a_folder_as_long_as_it_is_there(tmp_path):
    tables = [make(tmp_path, "ads/users"), make(tmp_path, "ads/users"), make(tmp_path, "items")]
    assert in_use(tmp_path) == ["ads%2Fusers", "ads%2Fusers~2", "items"]
    del tables[0]
    gc.collect()
    assert in_use(tmp_path) == ["ads%2Fusers~2", "items"]
    tables.append(make(tmp_path, "ads/users"))
    assert in_use(tmp_path) == ["ads%2Fusers", "ads%2Fusers~2", "items"]
    tables.clear()
    gc.collect()
    assert in_use(tmp_path) == []


def test_partitions_have_folders_of_their_own(tmp_path):
    table = make(tmp_path, partitioner=tf1.fixed_size_partitioner(2))
    rows = fe.nn.embedding_lookup_sparse(table, tf.sparse.from_dense([IDS]), None, combiner="sum")
    assert rows.shape == (1, 4)
    assert in_use(tmp_path) == ["users%2Fpart_0", "users%2Fpart_1"]


def test_sessions_of_a_process_do_not_share_one(tmp_path):
    with tf.Graph().as_default():
        table = make(tmp_path)
        added = table.upsert([5], np.ones([1, 4], np.float32))
        count = table.total_count()
        with tf1.Session() as train, tf1.Session() as evaluation:
            train.run(added)
            assert (train.run(count), evaluation.run(count)) == (1, 0)
            assert in_use(tmp_path) == ["users", "users~2"]
        del train, evaluation
        gc.collect()
        assert in_use(tmp_path) == []


@pytest.mark.slow
def test_another_process_has_the_folder(tmp_path):
    held = make(tmp_path)
    program = (
        "import sys, tensorflow as tf, fused_embedding as fe\n"
        "storage = fe.StorageOption(fe.StorageType.DRAM_SSD, sys.argv[1])\n"
        "option = fe.EmbeddingVariableOption(storage_option=storage)\n"
        "fe.get_embedding_variable('users', 4, ev_option=option)\n"
    )
    other = processes.run_program(program, tmp_path)
    assert "FailedPreconditionError: {{" in other.stderr
    assert f"cold store {tmp_path}/users is in use, by this process or another one" in other.stderr
    del held
    gc.collect()
    processes.output_of(processes.run_program(program, tmp_path))


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / "users/7/data").mkdir(parents=True)
    (tmp_path / "users/7/data/000001.sst").write_text("left")
    (tmp_path / "users/fe_table").touch()
    table = make(tmp_path)
    assert int(table.total_count()) == 0
    assert not (tmp_path / "users/7").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "users").mkdir()
    (tmp_path / "users/thesis.txt").touch()
    with pytest.raises(
        tf.errors.FailedPreconditionError, match=r"other files, such as thesis.txt; name a"
    ):
        make(tmp_path)
    assert (tmp_path / "users/thesis.txt").exists()


class Model(tf.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def look_up(self, ids):
        return tf.nn.embedding_lookup(self.table, ids)


def test_a_saved_model_is_in_memory(tmp_path):
    model = Model(make(tmp_path / "ssd"))
    rows = model.look_up(tf.constant(IDS, tf.int64)).numpy()
    tf.saved_model.save(model, str(tmp_path / "saved"))
    before = in_use(tmp_path / "ssd")
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_array_equal(loaded.look_up(tf.constant(IDS, tf.int64)), rows)
    assert in_use(tmp_path / "ssd") == before == ["users"]
    assert b"/ssd" not in (tmp_path / "saved/saved_model.pb").read_bytes()


def test_checkpoints_know_no_tier(tmp_path):
    saved = make(tmp_path / "ssd")
    rows = tf.nn.embedding_lookup(saved, IDS).numpy()
    path = tf.train.Checkpoint(table=saved).write(str(tmp_path / "saved"))
    in_dram = fe.get_embedding_variable("other", 4)
    tf.train.Checkpoint(table=in_dram).read(path).assert_consumed()
    again = make(tmp_path / "ssd")
    tf.train.Checkpoint(table=again).read(path).assert_consumed()
    for table in (in_dram, again):
        assert int(table.total_count()) == len(IDS)
        np.testing.assert_array_equal(tf.nn.embedding_lookup(table, IDS), rows)
