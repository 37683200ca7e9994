"""Prints digests of what training leaves in tables: `python content_digests.py NUM_THREADS`.

Tables of several shards and partitions, trained with the same batches: each must have the same
content. The batches are large enough to be shared out among threads.
"""

import hashlib
import json
import sys

import numpy as np
import tensorflow as tf

NUM_KEYS, BATCH, STEPS, DIM = 60_000, 20_000, 4, 5
v1 = tf.compat.v1

# A bounded table has one shard, or four, in place of sixteen; these never fill up.
TABLES = {
    "plain": {},
    "one_shard": {"max_capacity": 2_000},
    "four_shards": {"max_capacity": 10_000},
    "one_partition": {"num_partitions": 1},
    "two_partitions": {"num_partitions": 2},
    "three_partitions": {"num_partitions": 3},
    "mod_ev": {"num_partitions": 3, "strategy": "mod_ev"},
}


def batches(num_keys):
    """The same keys in every process; duplicates, negative keys, most of 64 bits."""
    rng = np.random.default_rng(0)
    keys = rng.integers(-(2**63), 2**63, num_keys)
    for _ in range(STEPS):
        yield keys[(num_keys * rng.random(BATCH) ** 3).astype(np.int64)]


def content(fe, num_keys, num_partitions=None, strategy="hash", max_capacity=None):
    """All rows of a trained table, partitions merged, in ascending order of keys."""
    partitioner = num_partitions and v1.fixed_size_partitioner(num_partitions)
    with tf.Graph().as_default(), v1.Session() as session:
        table = fe.get_embedding_variable(
            "table",
            DIM,
            initializer=tf.random_normal_initializer(),
            partitioner=partitioner,
            partition_strategy=strategy,
            ev_option=fe.EmbeddingVariableOption(
                filter_option=fe.CounterFilter(2 if num_keys == NUM_KEYS else 22),
                max_capacity=max_capacity,
            ),
        )
        ids = v1.placeholder(tf.int64, [BATCH])
        rows = np.arange(BATCH)
        indices = np.stack([rows // 4, rows % 4], axis=1)
        sp_ids = tf.SparseTensor(indices, ids, [BATCH // 4, 4])
        out = fe.nn.fused_safe_embedding_lookup_sparse(table, sp_ids, prune=False)
        train = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.tanh(out)))
        session.run(v1.global_variables_initializer())
        for keys in batches(num_keys):
            session.run(train, {ids: keys})
        parts = table if num_partitions else [table]
        columns = [session.run(list(part.export_content())[:8]) for part in parts]
    merged = [np.concatenate(column) for column in zip(*columns, strict=True)]
    order, filtered_order = np.argsort(merged[0]), np.argsort(merged[5])
    return [c[order] for c in merged[:5]] + [c[filtered_order] for c in merged[5:]]


def digest(arrays):
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()


def main(num_threads):
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(num_threads)
    import fused_embedding as fe

    digests = {}
    for name, attrs in TABLES.items():
        # Of few keys for the tables that must stay small.
        for num_keys in (NUM_KEYS, 1_500):
            if num_keys < attrs.get("max_capacity", num_keys + 1):
                arrays = content(fe, num_keys, **attrs)
                assert len(arrays[0]) > 500
                assert len(arrays[5]) > 100
                digests[f"{name}_{num_keys}"] = digest(arrays)
    json.dump(digests, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
