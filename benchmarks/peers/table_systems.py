"""The hash tables under comparison: raw finds and inserts, without a model around them."""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class RawTable(NamedTuple):
    """A table of `[dim]` float32 rows by int64 key; every call is an eager op.

    Attributes:
        find: `[n, dim]` rows of `[n]` keys, zeros where there is none; inserts nothing.
        insert: sets the rows of `[n]` keys to `[n, dim]` values.
        erase: removes `[n]` keys.
        size: number of rows.
        close: frees its memory, where the system does not when the table is dropped.
    """

    find: Callable[[tf.Tensor], tf.Tensor]
    insert: Callable[[tf.Tensor, tf.Tensor], object]
    erase: Callable[[tf.Tensor], object]
    size: Callable[[], int]
    close: Callable[[], object] = lambda: None


def ours(dim: int, with_slot: bool) -> RawTable:
    """An EmbeddingVariable's table, without or with the slot that Adagrad keeps in its rows."""
    import fused_embedding as fe  # the peer can be measured where ours is not installed

    ops, no_keys = fe.raw_ops, np.zeros([0], np.int64)
    zeros = tf.compat.v1.zeros_initializer()
    variable = fe.get_embedding_variable("raw_table", dim, initializer=zeros)
    table = {"resource": variable.handle}
    if with_slot:  # an optimizer's first step makes its slots
        ops.EmbeddingVariableApply(
            resources=[variable.handle],
            keys=[no_keys],
            handles=[no_keys],
            grads=[tf.zeros([0, dim])],
            hyperparameters=[tf.constant([0.01, 0.0, 0.1], tf.float64)],
            rule="adagrad",
            slot_prefixes=["Adagrad"],
        )
    options = {"counts": tf.zeros([0], tf.int32), "step": tf.constant(-1, tf.int64)}
    options |= {"insert": False, "dtype": tf.float32}
    return RawTable(
        find=lambda keys: ops.EmbeddingVariableLookup(**table, keys=keys, **options).embeddings,
        insert=lambda keys, rows: ops.EmbeddingVariableUpsert(**table, keys=keys, values=rows),
        erase=lambda keys: ops.EmbeddingVariableErase(**table, keys=keys),
        size=lambda: int(variable.total_count()),
    )


# A second table of one name would be the first one, keys and all.
_tfra_numbers = itertools.count()


def tfra(dim: int, with_slot: bool) -> RawTable:
    """The cuckoo table of tensorflow-recommenders-addons; its slots are a second table."""
    import tensorflow_recommenders_addons as addons

    number = next(_tfra_numbers)
    tables = [
        addons.dynamic_embedding.get_variable(
            f"{name}_{number}", key_dtype=tf.int64, dim=dim, devices=["/CPU:0"], initializer=0.0
        ).tables[0]
        for name in ("raw_table", "raw_table_slot")[: 1 + with_slot]
    ]
    return RawTable(
        find=tables[0].lookup,
        insert=lambda keys, rows: [table.insert(keys, rows) for table in tables],
        erase=lambda keys: [table.remove(keys) for table in tables],
        size=lambda: int(tables[0].size()),
        close=lambda: [
            tf.raw_ops.DestroyResourceOp(resource=table.resource_handle) for table in tables
        ],
    )


TABLES: dict[str, Callable[[int], RawTable]] = {
    "ours": lambda dim: ours(dim, with_slot=False),
    "ours_adagrad": lambda dim: ours(dim, with_slot=True),
    "tfra": lambda dim: tfra(dim, with_slot=False),
    "tfra_adagrad": lambda dim: tfra(dim, with_slot=True),
}


def adversarial_keys(n: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and `[n]` int64 keys that defeat tables which hash badly."""
    ids = np.arange(n, dtype=np.int64)
    yield "sequential", ids
    for shift in (16, 32, 40):
        yield f"multiples of 2^{shift}", ids << shift
    yield "equal low and high 20 bits", (ids << 20) | (0x5A5A5 << 44) | 0x5A5A5
    yield "equal high bits of the hash without its key", _unmix64(ids.astype(np.uint64))
    yield "equal low bits of the hash without its key", _unmix64(ids.astype(np.uint64) << 40)


def _unmix64(hashes: np.ndarray) -> np.ndarray:
    """`[n]` uint64 to the int64 that fmix64, which the tables of ours use, sends there."""
    x = hashes ^ (hashes >> np.uint64(33))
    x = x * np.uint64(pow(0xC4CEB9FE1A85EC53, -1, 2**64))
    x ^= x >> np.uint64(33)
    x = x * np.uint64(pow(0xFF51AFD7ED558CCD, -1, 2**64))
    return (x ^ (x >> np.uint64(33))).astype(np.int64)
