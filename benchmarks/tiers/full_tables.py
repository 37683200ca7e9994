"""Tables that memory has no room for, as benchmarks have them: full, with Adagrad's slot."""

import dataclasses
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from benchmarks.harness import workloads
from benchmarks.report import results

FOLDER = flags.DEFINE_string("folder", None, "Folder on the SSD.", required=True)
NUM_KEYS = flags.DEFINE_integer("num_keys", 2_000_000, "Rows of a table.", lower_bound=1000)
DIM = flags.DEFINE_integer("dim", 32, "Length of a row.", lower_bound=1)
SHARE = flags.DEFINE_float("share", 0.25, "Budget in memory, of the bytes of all rows.")
BATCH = flags.DEFINE_integer("batch", 163_840, "Ids of a step: W2 has so many.", lower_bound=1)
AWAIT = flags.DEFINE_string("await", None, "Prepare, and measure once this file is there.")
OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

KEYS_OF_A_FILL = 100_000


def row_bytes() -> int:
    """Bytes of a row with Adagrad's slot."""
    return workloads.ROW_HEADER_BYTES + 8 * DIM.value


def budget() -> int:
    """Bytes in memory that a table with a tier on an SSD has."""
    return int(NUM_KEYS.value * row_bytes() * SHARE.value)


def batches(seed: int = 11) -> Iterator[np.ndarray]:
    """`[batch]` int64 keys of one step after the other, the same in each call."""
    rng = np.random.default_rng(seed)
    while True:
        yield workloads.hash64(workloads.zipf_ids(rng, NUM_KEYS.value, BATCH.value))


@dataclasses.dataclass
class Table:
    """A table and the optimizer that trains it."""

    variable: Any
    optimizer: Any

    @classmethod
    def make(cls, name: str, on_ssd: bool, strategy: str = "LFU") -> "Table":
        """An empty one with the slot; on the SSD in a folder of its name."""
        import tensorflow as tf  # here, so that --help starts fast

        import fused_embedding as fe

        storage = fe.StorageOption()
        if on_ssd:
            folder = os.path.join(FOLDER.value, name)
            which = fe.CacheStrategy[strategy]
            storage = fe.StorageOption(fe.StorageType.DRAM_SSD, folder, (budget(),), which)
        option = fe.EmbeddingVariableOption(storage_option=storage)
        variable = fe.get_embedding_variable("tiers", DIM.value, ev_option=option)
        table = cls(variable, tf.compat.v1.train.AdagradOptimizer(0.05))
        table.train(tf.constant([1, 2], tf.int64))  # makes the slot
        return table

    def fill(self) -> None:
        """Gives all keys a row; hashes are in no order, so neither are frequent keys."""
        for first in range(0, NUM_KEYS.value, KEYS_OF_A_FILL):
            ids = np.arange(first, min(first + KEYS_OF_A_FILL, NUM_KEYS.value))
            rows = np.zeros([len(ids), DIM.value], np.float32)
            self.variable.upsert(workloads.hash64(ids), rows)

    def train(self, keys: Any) -> None:
        """One step with `[n]` int64 keys."""
        import tensorflow as tf

        with tf.GradientTape() as tape:
            distinct, positions = tf.unique(keys)
            rows = tf.nn.embedding_lookup(self.variable, distinct)
            loss = tf.reduce_mean(tf.tanh(tf.gather(rows, positions)) - 0.1)
        grad = tape.gradient(loss, self.variable)
        self.optimizer.apply_gradients([(grad, self.variable)])

    def counters(self) -> dict[str, int]:
        """Those of the table, since it was made."""
        return {name: int(value) for name, value in self.variable.statistics().items()}


def counted(before: dict[str, int], now: dict[str, int], num_keys: int | None = None) -> dict:
    """What the counters of some steps say, and memory and disk at their end.

    Args:
        before: Counters at the steps' begin.
        now: Those at their end.
        num_keys: Distinct keys of each of the steps, added; by default as lookups counted them.
    """
    more = {name: now[name] - before[name] for name in now}
    num_keys = num_keys or more["hits"] + more["misses"]
    written = more["cold_bytes_written"] / max(more["cold_bytes_put"], 1)
    return {
        "distinct_keys": num_keys,
        "memory_hit_rate": round(1 - more["cold_gets"] / num_keys, 4),
        "cold_gets": more["cold_gets"],
        "cold_hits": more["cold_hits"],
        "disk_reads": more["cold_reads"],
        "disk_bytes_read": more["cold_bytes_read"],
        "rows_written": more["cold_puts"],
        "disk_bytes_written": more["cold_bytes_written"],
        "write_amplification": round(written, 2),
        "demotions": more["demotions"],
        "leaving": now["leaving"],
        "memory_bytes": now["memory_bytes"],
        "memory_of_budget": round(now["memory_bytes"] / budget(), 3),
        "disk_bytes": now["cold_bytes"],
        "disk_of_rows": round(now["cold_bytes"] / (NUM_KEYS.value * row_bytes()), 3),
    }


def write(mode: str, module: str, cells: list[dict], axes: dict) -> None:
    """Writes the JSON file of one benchmark of tiers."""
    axes = {"table": "tier", "mode": mode, "num_keys": NUM_KEYS.value, "dim": DIM.value} | axes
    record = results.record_of(f"benchmarks.tiers.{module}", axes, cells)
    results.write(record, f"{mode}-{NUM_KEYS.value}", OUTPUT.value)


def wait() -> None:
    """Until the machine is quiet: tables take longer to fill than to measure."""
    print("prepared", flush=True)
    while AWAIT.value and not pathlib.Path(AWAIT.value).exists():
        time.sleep(1)
