"""fe.one_embedding.make_cached_ssd_store_options: it asks for the tier, and trains on it."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tiers import needs_rocksdb

one = fe.one_embedding
NUM_TABLES = 3


def make(store_options):
    uniform = one.make_table(one.make_uniform_initializer(-1.0, 1.0))
    return one.MultiTableEmbedding(
        "tables", 4, tf.float32, tf.int64, [uniform] * NUM_TABLES, store_options
    )


def test_all_tables_share_the_budget(tmp_path):
    store = one.make_cached_ssd_store_options(60, str(tmp_path), 5, 2, host_cache_budget_mb=12)
    for num_tables in (1, 4):
        option = store.ev_option(num_tables)
        assert option.max_capacity is None  # a hint
        assert option.storage_option == fe.StorageOption(
            fe.StorageType.DRAM_SSD, str(tmp_path / "0-1/rows"), ((72 << 20) // num_tables,)
        )
    with tf.Graph().as_default():
        for table in make(store).tables:
            assert table.op.get_attr("storage_path") == str(tmp_path / "0-1/rows").encode()
            assert table.op.get_attr("dram_bytes") == (72 << 20) // NUM_TABLES


def test_a_budget_is_needed(tmp_path):
    with pytest.raises(ValueError, match="one must be > 0 and none < 0"):
        one.make_cached_ssd_store_options(0, str(tmp_path))
    with pytest.raises(ValueError, match=r"= 15 were given for 1 tables .* give them 16 or more"):
        one.make_cached_ssd_store_options(15, str(tmp_path))
    store = one.make_cached_ssd_store_options(40, str(tmp_path))
    with pytest.raises(ValueError, match=r"= 40 were given for 3 tables .* give them 48 or more"):
        make(store)


@needs_rocksdb
def test_it_trains_as_in_memory(tmp_path):
    on_ssd = make(one.make_cached_ssd_store_options(48, str(tmp_path / "ssd"), size_factor=2))
    in_dram = make(one.make_device_mem_store_options(str(tmp_path / "dram"), 9999, size_factor=2))
    for embedding in (on_ssd, in_dram):
        rng, optimizer = np.random.default_rng(3), tf.compat.v1.train.AdagradOptimizer(0.1)
        for _ in range(4):
            ids = tf.constant(rng.integers(0, 500, [200, NUM_TABLES]))
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.tanh(embedding(ids)))
            grads = tape.gradient(loss, embedding.parameters())
            optimizer.apply_gradients(list(zip(grads, embedding.parameters(), strict=True)))
    on_ssd.save_snapshot("trained")
    in_dram.save_snapshot("trained")
    assert len(list((tmp_path / "ssd/0-1/rows").iterdir())) == NUM_TABLES
    assert not list((tmp_path / "ssd/0-1/snapshots/trained").glob("*.npz"))
    restored = [
        make(one.make_cached_ssd_store_options(48, str(tmp_path / "ssd"), size_factor=2)),
        # Those of one are read by the other.
        make(one.make_cached_ssd_store_options(48, str(tmp_path / "dram"), size_factor=2)),
        make(one.make_device_mem_store_options(str(tmp_path / "ssd"), 9999, size_factor=2)),
    ]
    for embedding in restored:
        embedding.load_snapshot("trained")
    for want, *others in zip(
        in_dram.tables, on_ssd.tables, *(one.tables for one in restored), strict=True
    ):
        for got in others:
            assert_same_content(got, want)


def assert_same_content(got, want):
    for name, column in want.export_content()._asdict().items():
        other = getattr(got.export_content(), name)
        np.testing.assert_array_equal(other, column, err_msg=name)


@needs_rocksdb
def test_a_reader_gives_their_rows(tmp_path):
    embedding = make(one.make_cached_ssd_store_options(48, str(tmp_path), size_factor=2))
    embedding(tf.constant([[3, 4, 5], [7, 8, 9]], tf.int64))
    embedding.save_snapshot("rows")
    with one.make_persistent_table_reader(
        [str(tmp_path / "0-1")], "rows", tf.int64, tf.float32, 4
    ) as reader:
        read = [(reader.table, sorted(keys), values.shape) for keys, values in reader]
    assert read == [(0, [3, 7], (2, 4)), (1, [4, 8], (2, 4)), (2, [5, 9], (2, 4))]


@needs_rocksdb
def test_snapshots_of_a_session(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session().as_default() as session:
        embedding = make(one.make_cached_ssd_store_options(48, str(tmp_path), size_factor=2))
        rows = embedding(tf.constant([[3, 4, 5]], tf.int64))
        counts = [table.total_count() for table in embedding.tables]
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(rows)
        embedding.save_snapshot("rows")
        session.run([table.erase([3, 4, 5]) for table in embedding.tables])
        assert session.run(counts) == [0, 0, 0]
        embedding.load_snapshot("rows")
        assert session.run(counts) == [1, 1, 1]


@needs_rocksdb
def test_a_damaged_file_is_named(tmp_path):
    embedding = make(one.make_cached_ssd_store_options(48, str(tmp_path), size_factor=2))
    embedding(tf.constant([[3, 4, 5]], tf.int64))
    embedding.save_snapshot("rows")
    file = next((tmp_path / "0-1/snapshots/rows").glob("table_1.data-e*"))
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(tf.errors.DataLossError, match=file.name):
        embedding.load_snapshot("rows")
    assert [int(table.total_count()) for table in embedding.tables] == [1, 1, 1]
