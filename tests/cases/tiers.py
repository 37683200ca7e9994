"""What tests of tables with a tier on an SSD share."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe

LIBRARY = pathlib.Path(fe.__file__).parent / "_cold_store_rocksdb.so"
needs_rocksdb = pytest.mark.skipif(
    not LIBRARY.exists(), reason="built without RocksDB: apt-get install librocksdb-dev"
)


def on_ssd(folder, dram_bytes=16 << 20):
    storage = fe.StorageOption(fe.StorageType.DRAM_SSD, folder, [dram_bytes])
    return fe.EmbeddingVariableOption(storage_option=storage)


def make_table(name, dim, num_partitions, option):
    partitioner = None
    if num_partitions > 1:
        partitioner = tf.compat.v1.fixed_size_partitioner(num_partitions)
    return fe.get_embedding_variable(name, dim, ev_option=option, partitioner=partitioner)


def rows_of(table):
    """All rows by ascending key: keys, values, versions, frequencies."""
    exported = table.export()
    order = np.argsort(exported.keys.numpy())
    return {name: getattr(exported, name).numpy()[order] for name in exported._fields}


def parts_of(table):
    return list(table) if isinstance(table, fe.PartitionedEmbeddingVariable) else [table]


def look_up(table, keys):
    """Rows `[n, dim]` of `[n]` keys, which train."""
    keys = tf.convert_to_tensor(keys, tf.int64)
    n = tf.size(keys, tf.int64)
    indices = tf.stack([tf.range(n), tf.zeros([n], tf.int64)], axis=1)
    ids = tf.SparseTensor(indices, keys, tf.stack([n, 1]))
    return fe.nn.fused_embedding_lookup_sparse_v2(table, ids, combiner="sum")
