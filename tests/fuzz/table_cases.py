"""Valid calls of the ops of the embedding table, and what must hold after any call that succeeds.

A call finds the table that the calls before it have left. So a check looks at what the call was
given, what it returned and what the table holds now, and at no history.
"""

import functools
import pathlib
import tempfile

import numpy as np
import tensorflow as tf

import fused_embedding as fe
import oracle.lookup

DIM = 3
KEYS = (0, 1, 2, 3, 5, -1, 2**63 - 1, -(2**63), 1 << 32)
RULES = {
    "sgd": [0.5],
    "adagrad": [0.5, 0.0, 0.25],
    "row_wise_adagrad": [0.5, 0.0, 0.25],
    "momentum": [0.5, 0.5, 0.0],
}
COLUMNS = ("keys", "values", "slots", "frequencies", "versions")

# A fixed choice: TensorFlow keeps a kernel for each set of attributes.
TABLES = {
    "plain": {},
    "counter": {"admission": "counter", "min_frequency": 2, "no_permission_value": 7.0},
    "bloom": {
        **{"admission": "bloom", "min_frequency": 2, "no_permission_value": 7.0},
        **{"bloom_counters": 1000, "bloom_hashes": 3},
    },
    "full": {"max_capacity": 4},
    "lru": {"max_capacity": 4, "eviction": "lru", "check_mode": "ignore"},
}


@functools.cache
def folder():
    """On the SSD; it is removed when the process ends."""
    return tempfile.TemporaryDirectory()


# Of 16 shards each has one row in memory: two keys of a shard take turns on the disk.
ROWS_IN_MEMORY = (4 << 20) + 6 * 1024 + 1024
if (pathlib.Path(fe.__file__).parent / "_cold_store_rocksdb.so").exists():
    TABLES["ssd"] = {
        **{"storage_path": folder().name, "storage_name": "", "dram_bytes": ROWS_IN_MEMORY},
        "cache_strategy": "lru",
    }
REFUSES_NEGATIVE_COUNTS = True  # else they are none
ROOMY = [name for name in TABLES if name != "full"]  # refuse no key
ATTRS = {"dtype": tf.float32, "dim": DIM, "initializer": "debug"}
TYPES = {"dtype": tf.float32, "slot_dtype": tf.float32}


def make_handle(rng):
    name = str(rng.choice(list(TABLES)))
    attrs = {"admission": "all", "min_frequency": 0, "bloom_counters": 0, "bloom_hashes": 0}
    attrs |= {"max_capacity": 0, "eviction": "none", "check_mode": "error", "seed": 1}
    attrs |= {"initializer_a": 0.0, "initializer_b": 1.0, "initializer_matrix": b"\0" * 4 * DIM}
    delete(fe.raw_ops.EmbeddingVariableHandle(shared_name="made", **ATTRS))
    return attrs | ATTRS | TABLES[name] | {"shared_name": "made"}


def delete(handle):
    tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def check_handle(args, got):
    """A table was made of these attributes: it can be used."""
    try:
        lookup(got, args["dtype"])
    finally:
        delete(got)


def lookup(resource, dtype=tf.float32):
    fe.raw_ops.EmbeddingVariableLookup(
        resource=resource,
        keys=tf.constant([1], tf.int64),
        counts=tf.zeros([0], tf.int32),
        step=tf.constant(-1, tf.int64),
        insert=True,
        dtype=dtype,
    )


def table(rng):
    """Handle of a table in some state."""
    name = str(rng.choice(list(TABLES)))
    handle = fe.raw_ops.EmbeddingVariableHandle(shared_name=name, **ATTRS, **TABLES[name])
    if rng.integers(8) == 0:
        delete(handle)
        handle = fe.raw_ops.EmbeddingVariableHandle(shared_name=name, **ATTRS, **TABLES[name])
    return handle


def keys_of(rng, low=0):
    size = rng.integers(low, 5)
    return rng.choice(np.array(KEYS, np.int64), size, replace=False)


def int64(value):
    return np.array(value, np.int64)


def export(handle):
    """The content; all columns fit together, whatever happened before."""
    content = fe.raw_ops.EmbeddingVariableExport(resource=handle, **TYPES)
    arrays = {name: np.asarray(value.numpy()) for name, value in content._asdict().items()}
    assert (np.diff(arrays["keys"].astype(object)) > 0).all()
    assert {len(arrays[name]) for name in COLUMNS} == {len(arrays["keys"])}
    assert arrays["slots"].shape[1] == arrays["slot_widths"].sum()
    assert (arrays["frequencies"] >= 0).all()
    assert (arrays["versions"] >= 0).all()
    return arrays


def make_lookup(rng):
    keys = keys_of(rng)
    counts = rng.integers(0, 3, len(keys) * rng.integers(2)).astype(np.int32)
    # A full table refuses keys by an error, which is no wrong answer: a bound that does not.
    name = str(rng.choice(ROOMY))
    handle = fe.raw_ops.EmbeddingVariableHandle(shared_name=name, **ATTRS, **TABLES[name])
    return {
        "resource": handle,
        "keys": keys,
        "counts": counts,
        "step": int64(rng.integers(-1, 9)),
        "insert": bool(rng.integers(2)),
        "dtype": tf.float32,
    }


def check_lookup(args, got):
    keys, counts = args["keys"], args["counts"]
    assert keys.ndim == 1
    assert got.embeddings.shape == (len(keys), DIM)
    assert got.handles.shape == keys.shape
    assert len(counts) in (0, len(keys))
    assert not args["insert"] or not REFUSES_NEGATIVE_COUNTS or (counts >= 0).all()
    content = export(args["resource"])
    if args["insert"] and len(set(keys.tolist())) == len(keys):  # else a key may be admitted midway
        here = np.isin(keys, content["keys"])
        np.testing.assert_array_equal(got.handles.numpy()[here] >= 0, True)
        rows = np.searchsorted(content["keys"], keys[here])
        np.testing.assert_array_equal(got.embeddings.numpy()[here], content["values"][rows])


def make_admit(rng):
    names = rng.choice(ROOMY, rng.integers(1, 3), replace=False)
    tables = [*range(len(names)), *rng.integers(0, len(names), rng.integers(2)).tolist()]
    keys = [rng.choice(np.array(KEYS, np.int64), rng.integers(5)) for _ in tables]
    values = [rng.integers(-9, 9, [len(k), DIM]).astype(np.float32) for k in keys]
    return {
        "resources": [
            fe.raw_ops.EmbeddingVariableHandle(shared_name=name, **ATTRS, **TABLES[name])
            for name in names.tolist()
        ],
        "keys": keys,
        "first_values": values if rng.integers(2) else [],
        "min_frequencies": int64(rng.integers(-1, 4, len(names) * rng.integers(2))),
        "step": int64(rng.integers(-1, 9)),
        "table_of_column": tables,
        "insert": bool(rng.integers(2)),
        "prune": bool(rng.integers(2)),
    }


def check_admit(args, got):
    for i, t in enumerate(args["table_of_column"]):
        keys, is_admitted = args["keys"][i], got.is_admitted[i].numpy()
        frequencies = got.frequencies[i].numpy()
        assert keys.ndim == 1
        assert is_admitted.shape == frequencies.shape == keys.shape
        dropped = (keys < 0) & args["prune"]
        assert not is_admitted[dropped].any()
        assert not frequencies[dropped].any()
        content = export(args["resources"][t])
        # A full table may have evicted a row of the same batch.
        assert not (is_admitted & ~np.isin(keys, content["keys"])).any() or args["insert"]


def make_upsert(rng):
    keys = keys_of(rng)
    name = str(rng.choice(ROOMY))
    handle = fe.raw_ops.EmbeddingVariableHandle(shared_name=name, **ATTRS, **TABLES[name])
    values = rng.integers(-9, 9, [len(keys), DIM]).astype(np.float32)
    return {"resource": handle, "keys": keys, "values": values}


def check_upsert(args, got):
    content = export(args["resource"])
    keys, values = args["keys"], args["values"]
    for i in range(len(keys)):
        if keys[i] in content["keys"] and keys[i] not in keys[i + 1 :]:
            row = content["values"][list(content["keys"]).index(keys[i])]
            np.testing.assert_array_equal(row, values[i])


def make_resource_and_keys(rng):
    return {"resource": table(rng), "keys": keys_of(rng)}


def check_erase(args, got):
    assert 0 <= int(got) <= len(set(args["keys"].tolist()))
    assert not np.isin(args["keys"], export(args["resource"])["keys"]).any()


def check_prefetch(args, got):
    assert got is None
    export(args["resource"])


def make_expire(rng):
    return {
        "resource": table(rng),
        "step": int64(rng.integers(-1, 20)),
        "steps_to_live": int64(rng.integers(-1, 20)),
        "l2_weight_threshold": np.array(rng.choice([0.0, 1.0, -1.0])),
    }


def check_expire(args, got):
    content = export(args["resource"])
    assert int(got) >= 0
    norms = np.linalg.norm(content["values"].astype(np.float64), axis=1)
    threshold = float(args["l2_weight_threshold"])
    assert not threshold > 0 or not (norms < threshold * (1 - 1e-9)).any()


def make_metadata(rng):
    return {"resource": table(rng), "keys": keys_of(rng)}


def check_metadata(args, got):
    content = export(args["resource"])
    rows = {k: i for i, k in enumerate(content["keys"].tolist())}
    for i, key in enumerate(args["keys"].tolist()):
        want = (0, -1)
        if key in rows:
            want = (content["frequencies"][rows[key]], content["versions"][rows[key]])
        assert (int(got.frequencies[i]), int(got.versions[i])) == want


def make_statistics(rng):
    return {"resource": table(rng)}


def check_statistics(args, got):
    assert (got.values.numpy() >= 0).all()
    assert got.values[0] == len(export(args["resource"])["keys"])


def check_seed(args, got):
    content = fe.raw_ops.EmbeddingVariableExport(resource=args["resource"], **TYPES)
    assert got == content.seed


def check_initialize(args, got):
    assert fe.raw_ops.EmbeddingVariableIsInitialized(**args).numpy()


def check_is_initialized(args, got):
    assert got.numpy()


def make_serving_lock(rng):
    return {"resource": table(rng)}


def check_serving_lock(args, got):
    fe.raw_ops.EmbeddingVariableServingUnlock(lock=got, results=[])


def make_serving_unlock(rng):
    lock = fe.raw_ops.EmbeddingVariableServingLock(resource=table(rng))
    return {"lock": lock, "results": [int64(0)] * rng.integers(3)}


def check_serving_unlock(args, got):
    """Nothing comes out; a change that waited for ever would end the fuzz."""


def make_apply(rng):
    rule = str(rng.choice(list(RULES)))
    names = rng.choice(list(TABLES), rng.integers(1, 3), replace=False)
    keys = [keys_of(rng) for _ in names]
    handles = [rng.choice([-1, 0, 1, 7 << 32, 2**62], len(k) * rng.integers(2)) for k in keys]
    return {
        "resources": [
            fe.raw_ops.EmbeddingVariableHandle(shared_name=name, **ATTRS, **TABLES[name])
            for name in names.tolist()
        ],
        "keys": keys,
        "handles": [int64(h) for h in handles],
        "grads": [rng.integers(-9, 9, [len(k), DIM]).astype(np.float32) for k in keys],
        "hyperparameters": [np.array(RULES[rule]) for _ in keys],
        "rule": rule,
        "slot_prefixes": [rule] * len(keys),
    }


def check_apply(args, got):
    # An eager call that lacks one tensor of a list takes the first of the next list of that type.
    integers = [*args["keys"], *args["handles"]]
    for i, handle in enumerate(args["resources"]):
        keys, grad = integers[i], args["grads"][i]
        assert keys.ndim == 1
        assert grad.shape == (len(keys), DIM)
        assert len(args["hyperparameters"][i]) == len(RULES[args["rule"]])
        export(handle)


def make_serving_change(rng):
    names = rng.choice(ROOMY, rng.integers(1, 3), replace=False)
    keys = [keys_of(rng) for _ in names]
    count = int(rng.integers(3))
    return {
        "resources": [
            fe.raw_ops.EmbeddingVariableHandle(shared_name=name, **ATTRS, **TABLES[name])
            for name in names.tolist()
        ],
        "keys": keys,
        "values": [rng.integers(-9, 9, [len(k), DIM]).astype(np.float32) for k in keys],
        "removed_keys": [keys_of(rng) for _ in keys],
        "is_full": [np.bool_(rng.integers(2)) for _ in keys],
        "variables": [tf.Variable(0.0).handle for _ in range(count)],
        "new_values": [np.float32(rng.integers(9)) for _ in range(count)],
    }


def check_serving_change(args, got):
    for i, handle in enumerate(args["resources"]):
        check_upsert({"resource": handle, **{n: args[n][i] for n in ("keys", "values")}}, got)
        keys, found = args["keys"][i], export(handle)["keys"]
        assert not np.isin(np.setdiff1d(args["removed_keys"][i], keys), found).any()
        assert not args["is_full"][i] or np.isin(found, keys).all()
    assigned = zip(args["variables"], args["new_values"], strict=True)
    # The last value of one that is there twice.
    for handle, value in {id(handle): (handle, value) for handle, value in assigned}.values():
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)
        np.testing.assert_array_equal(read, value)


def make_export(rng):
    return {"resource": table(rng), **TYPES}


def check_export(args, got):
    export(args["resource"])


def make_import(rng):
    """Into a table without a bound or a Bloom filter, which a content must fit."""
    name = str(rng.choice([name for name in ("plain", "ssd") if name in TABLES]))
    handle = fe.raw_ops.EmbeddingVariableHandle(shared_name=name, **ATTRS, **TABLES[name])
    content = export(handle)
    # Rows in any order are legal.
    order = rng.permutation(len(content["keys"]))
    content |= {name: content[name][order] for name in COLUMNS}
    content["slot_initials"] = np.zeros(len(content["slot_initials"]))
    partition = {"partition_index": 0, "num_partitions": 1, "partition_strategy": "hash"}
    return {"resource": handle, **content, **partition}


def check_import(args, got):
    content = export(args["resource"])
    keys = np.unique(args["keys"])
    count = args["num_partitions"]
    if count > 9:
        return  # more than the oracle has shards for
    parts, _ = oracle.lookup.partition(keys, [0] * count, args["partition_strategy"])
    np.testing.assert_array_equal(content["keys"], parts[args["partition_index"]])
    assert content["slot_names"].tolist() == args["slot_names"].tolist()
    if len(keys) == len(args["keys"]) and count == 1:
        order = np.argsort(args["keys"])
        np.testing.assert_array_equal(content["values"], args["values"][order])
        np.testing.assert_array_equal(content["slots"], args["slots"][order])


CASES = {
    "EmbeddingVariableHandle": (make_handle, check_handle),
    "EmbeddingVariableLookup": (make_lookup, check_lookup),
    "EmbeddingVariableAdmit": (make_admit, check_admit),
    "EmbeddingVariableUpsert": (make_upsert, check_upsert),
    "EmbeddingVariableErase": (make_resource_and_keys, check_erase),
    "EmbeddingVariablePrefetch": (make_resource_and_keys, check_prefetch),
    "EmbeddingVariableExpire": (make_expire, check_expire),
    "EmbeddingVariableMetadata": (make_metadata, check_metadata),
    "EmbeddingVariableStatistics": (make_statistics, check_statistics),
    "EmbeddingVariableSeed": (make_statistics, check_seed),
    "EmbeddingVariableInitialize": (make_statistics, check_initialize),
    "EmbeddingVariableIsInitialized": (make_statistics, check_is_initialized),
    "EmbeddingVariableServingChange": (make_serving_change, check_serving_change),
    "EmbeddingVariableServingLock": (make_serving_lock, check_serving_lock),
    "EmbeddingVariableServingUnlock": (make_serving_unlock, check_serving_unlock),
    "EmbeddingVariableApply": (make_apply, check_apply),
    "EmbeddingVariableExport": (make_export, check_export),
    "EmbeddingVariableImport": (make_import, check_import),
}
