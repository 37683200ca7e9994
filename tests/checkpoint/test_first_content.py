"""CheckpointOption: tables that start with the content of one in a checkpoint."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe

tf1 = tf.compat.v1
KEYS = [3, 1 << 40, 7]
ROWS = np.arange(1, 7, dtype=np.float32).reshape(3, 2)


def make(name="table", partitions=None, **fields):
    option = fe.EmbeddingVariableOption(ckpt=fe.CheckpointOption(**fields) if fields else None)
    partitioner = tf1.fixed_size_partitioner(partitions) if partitions else None
    return fe.get_embedding_variable(name, 2, partitioner=partitioner, ev_option=option)


def save(path, saver=tf1.train.Saver, rows=ROWS):
    with tf.Graph().as_default(), tf1.Session() as session:
        session.run(make().upsert(KEYS, rows))
        return saver().save(session, str(path / "model"))


def content(exported):
    return dict(zip(np.array(exported.keys).tolist(), np.array(exported.values), strict=True))


def assert_loaded(exported, rows=ROWS):
    loaded = content(exported)
    assert set(loaded) == set(KEYS)
    for key, row in zip(KEYS, rows, strict=True):
        np.testing.assert_array_equal(loaded[key], row)


@pytest.mark.parametrize("saver", [tf1.train.Saver, fe.train.Saver])
@pytest.mark.parametrize("partitions", [None, 2])
def test_a_table_starts_with_that_of_a_checkpoint(tmp_path, saver, partitions):
    path = save(tmp_path, saver)
    fields = {"ckpt_to_load_from": path, "tensor_name_in_ckpt": "table"}
    table = make("other", partitions, **fields)  # eagerly at once
    keys = np.concatenate([part.export().keys for part in (table if partitions else [table])])
    assert sorted(keys) == sorted(KEYS)
    np.testing.assert_array_equal(tf.gather(table, KEYS), ROWS)
    with fe.compat.install(), tf.Graph().as_default(), tf1.Session() as session:
        table = make("other", partitions, **fields)
        rows = tf.gather(table, KEYS)
        session.run(tf1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(rows), ROWS)


def test_a_folder_and_the_tables_own_name(tmp_path):
    save(tmp_path)
    assert_loaded(make(ckpt_to_load_from=str(tmp_path)).export())


@pytest.mark.parametrize("saver", [tf1.train.Saver, fe.train.Saver])
@pytest.mark.parametrize("always", [False, True])
def test_a_restore_wins_unless_told_otherwise(tmp_path, saver, always):
    (tmp_path / "first").mkdir()
    first, later = save(tmp_path / "first"), save(tmp_path, saver, rows=-ROWS)
    with fe.compat.install(), tf.Graph().as_default(), tf1.Session() as session:
        table = make(ckpt_to_load_from=first, always_load_from_specific_ckpt=always)
        session.run(tf1.global_variables_initializer())
        saver().restore(session, later)
        assert_loaded(session.run(table.export()), ROWS if always else -ROWS)


def test_a_monitored_session_loads_once(tmp_path):
    path = save(tmp_path)
    folder = str(tmp_path / "model_dir")
    for want in (ROWS, ROWS + 1):
        with fe.compat.install(), tf.Graph().as_default():
            table = make(ckpt_to_load_from=path)
            step = tf1.train.get_or_create_global_step()
            exported, train = table.export(), table.upsert(KEYS, ROWS + 1)
            count = tf1.assign_add(step, 1)
            with tf1.train.MonitoredTrainingSession(checkpoint_dir=folder) as session:
                assert_loaded(session.run(exported), want)
                session.run([train, count])


def test_errors(tmp_path):
    path = save(tmp_path)
    with pytest.raises(ValueError, match=r"has no table 'other', but table; pass the name of one"):
        make("other", ckpt_to_load_from=path)
    with pytest.raises(ValueError, match="'/no/such' is no checkpoint"):
        make(ckpt_to_load_from="/no/such")
    with pytest.raises(ValueError, match="tensor_name_in_ckpt was given without ckpt_to_load_from"):
        fe.CheckpointOption(tensor_name_in_ckpt="table")
    with pytest.raises(NotImplementedError, match=r"init_data_source = 'odps' .* upsert\(\)"):
        fe.CheckpointOption(init_data_source="odps")
    with (
        tf.Graph().as_default(),
        pytest.raises(NotImplementedError, match=r"'table'.* call fe\.compat\.install\(\) first"),
    ):
        make(ckpt_to_load_from=path)
