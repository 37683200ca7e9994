"""Hits of memory on real clicks: of a table with a tier on an SSD, and of exact LRU and LFU.

The clicks are diginetica's, in their order, from `../shared/data` beside the repository.
"""

import collections
import gzip
import heapq
import pathlib
import tempfile
from typing import Any

import numpy as np

from benchmarks.harness import workloads

PATH = workloads.DATA / "sessions" / "diginetica.txt.gz"
DIM = 32
_ROW_BYTES = workloads.ROW_HEADER_BYTES + 4 * DIM
# Of core/table/tier/cold_tier.cc: what a row costs beside its bytes, and the least a store has.
_INDEX_BYTES, _STORE_BYTES, _NUM_SHARDS = 16, 4 << 20, 16


def read_clicks(num: int | None = None) -> np.ndarray:
    """`[num_clicks]` int64 ids in the order of the file."""
    with gzip.open(PATH, "rt") as lines:
        return np.array([int(word) for line in lines for word in line.split()][:num], np.int64)


def table_hits(
    clicks: np.ndarray, num_rows: int, strategy: str, folder: str | None = None, at_once: int = 64
) -> dict[str, Any]:
    """Looks the clicks up in a table with room for about so many rows.

    Args:
        clicks: `[num_clicks]` int64 ids.
        num_rows: Rows that memory has room for.
        strategy: "lfu" or "lru".
        folder: On the SSD; by default one that is removed.
        at_once: Clicks of a lookup.

    Returns:
        hits: Clicks whose row was in memory when their lookup came, and those after the first on
            an id in one lookup.
        rows_in_memory: On average, with those on their way to the disk.
        Counters of the table.
    """
    import tensorflow as tf  # here, so that --help starts fast

    import fused_embedding as fe

    if folder:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as path:
        handle = fe.raw_ops.EmbeddingVariableHandle(
            shared_name="clicks", dtype=tf.float32, dim=DIM, initializer="debug",
            storage_path=path, dram_bytes=_budget(num_rows), cache_strategy=strategy,
        )  # fmt: skip
        leaving, num_lookups = 0, 0
        for first in range(0, len(clicks), at_once):
            keys, counts = np.unique(clicks[first : first + at_once], return_counts=True)
            fe.raw_ops.EmbeddingVariableLookup(
                resource=handle, keys=keys, counts=counts.astype(np.int32), step=np.int64(-1),
                insert=True, dtype=tf.float32,
            )  # fmt: skip
            num_lookups += 1
            if num_lookups % 16 == 0:
                leaving += _counters(handle)["leaving"]
        counted = _counters(handle)
        tf.raw_ops.DestroyResourceOp(resource=handle)
    room = num_rows // _NUM_SHARDS * _NUM_SHARDS
    names = ("demotions", "cold_hits", "cold_bytes_read", "cold_puts", "cold_bytes_written")
    return {
        "hits": len(clicks) - counted["cold_gets"],
        "rows_in_memory": round(room + leaving / max(num_lookups // 16, 1), 1),
    } | {name: counted[name] for name in names}


def _budget(num_rows: int) -> int:
    rows = num_rows * (_ROW_BYTES + _INDEX_BYTES)
    others = 0
    for _ in range(9):  # which are a part of the sum
        others = _on_their_way(rows + others)
    return _STORE_BYTES + rows + others


def _on_their_way(num_bytes: int) -> int:
    """Of the bytes beside the store, those for rows that are read and written."""
    return max(-(-num_bytes // 64), 1 << 10) + 5 * max(-(-num_bytes // 256), 1 << 10)


def _counters(handle: Any) -> dict[str, int]:
    import fused_embedding as fe

    got = fe.raw_ops.EmbeddingVariableStatistics(resource=handle)
    names = [name.decode() for name in got.names.numpy()]
    return dict(zip(names, got.values.numpy().tolist(), strict=True))


def lru_hits(clicks: np.ndarray, num_rows: int) -> int:
    """Hits of a cache that gives up the row used longest ago."""
    rows: collections.OrderedDict[int, None] = collections.OrderedDict()
    hits = 0
    for click in clicks.tolist():
        if click in rows:
            hits += 1
            rows.move_to_end(click)
            continue
        rows[click] = None
        if len(rows) > num_rows:
            rows.popitem(last=False)
    return hits


def lfu_hits(clicks: np.ndarray, num_rows: int) -> int:
    """Hits of a cache that gives up the row used least often, of these the one used longest ago."""
    counts: collections.Counter[int] = collections.Counter()
    last: dict[int, int] = {}  # of rows in the cache
    queue: list[tuple[int, int, int]] = []  # with entries of earlier uses
    hits = 0
    for now, click in enumerate(clicks.tolist()):
        hits += click in last
        if click not in last and len(last) == num_rows:
            _, used, row = heapq.heappop(queue)
            while last.get(row) != used:
                _, used, row = heapq.heappop(queue)
            del last[row]
        counts[click] += 1
        last[click] = now
        heapq.heappush(queue, (counts[click], now, click))
    return hits
