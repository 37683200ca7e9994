r"""Times training steps of a table whose rows memory has no room for, beside one in memory.

    python -m benchmarks.tiers --folder=/mnt/ssd/bench
    python -m benchmarks.tiers --folder=/mnt/ssd/bench --num_keys=50000000 --rounds=5

Three tables get the same Zipf ids: in memory; with a tier on an SSD; with one, and a pipeline that
fetches the rows of the next steps. Each has all keys, with Adagrad's slot, before the first step.
Writes one JSON file.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import machine, results, timing, workloads

_FOLDER = flags.DEFINE_string("folder", None, "Folder on the SSD.", required=True)
_NUM_KEYS = flags.DEFINE_integer("num_keys", 2_000_000, "Rows of a table.", lower_bound=1000)
_DIM = flags.DEFINE_integer("dim", 32, "Length of a row.", lower_bound=1)
_SHARE = flags.DEFINE_float("share", 0.25, "Budget in memory, of the bytes of all rows.")
_BATCH = flags.DEFINE_integer("batch", 163_840, "Ids of a step: W2 has so many.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 8, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 10, "Timed steps of a system in a round.", lower_bound=1)
_SETTLE = flags.DEFINE_integer("settle", 40, "Steps before the first that is timed.")
_STRATEGY = flags.DEFINE_enum("strategy", "LFU", ["LFU", "LRU"], "Which rows leave memory first.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

# Key, frequency and version, value, Adagrad's slot.
HEADER_BYTES = 8 + 4 + 4


def main(_: list[str]) -> None:
    """Measures all systems, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    systems = {name: System(name) for name in ("memory", "ssd", "ssd_prefetch")}
    for system in systems.values():
        for i in range(_SETTLE.value):
            system.step(i)
    before = {name: system.counters() for name, system in systems.items()}
    steps = {name: system.step for name, system in systems.items()}
    samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value)
    measured = {name: timing.summary(of_one) for name, of_one in samples.items()}
    for name, system in systems.items():
        counted = system.counters()
        measured[name] |= system.report({k: counted[k] - before[name][k] for k in counted}, counted)
        measured[name]["speed_of_memory"] = timing.ratio(samples["memory"], samples[name])
        print(name, measured[name], flush=True)
    axes = {"table": "tier", "num_keys": _NUM_KEYS.value, "dim": _DIM.value, "mode": "tiers"}
    axes |= {"share": _SHARE.value, "batch": _BATCH.value, "strategy": _STRATEGY.value}
    axes |= {"rounds": _ROUNDS.value, "block": _BLOCK.value, "zipf": workloads.ZIPF_EXPONENT}
    record = {"schema": results.SCHEMA, **machine.provenance("benchmarks.tiers")}
    record |= {"machine": machine.describe(), "axes": axes}
    record["cells"] = [{"phase": "adagrad", "systems": measured}]
    results.write(record, f"tiers-{_NUM_KEYS.value}", _OUTPUT.value)


def batches() -> Iterator[np.ndarray]:
    """`[batch]` int64 keys of one step after the other, the same in each call."""
    rng = np.random.default_rng(11)
    while True:
        yield workloads.hash64(workloads.zipf_ids(rng, _NUM_KEYS.value, _BATCH.value))


class System:
    """A table, its ids and an optimizer."""

    def __init__(self, name: str) -> None:
        import tensorflow as tf  # here, so that --help starts fast

        import fused_embedding as fe

        self._tf = tf
        self.budget = int(_NUM_KEYS.value * (HEADER_BYTES + 8 * _DIM.value) * _SHARE.value)
        storage = fe.StorageOption()
        if name != "memory":
            folder = os.path.join(_FOLDER.value, name)
            strategy = fe.CacheStrategy[_STRATEGY.value]
            storage = fe.StorageOption(fe.StorageType.DRAM_SSD, folder, [self.budget], strategy)
        option = fe.EmbeddingVariableOption(storage_option=storage)
        self.table = fe.get_embedding_variable("tiers", _DIM.value, ev_option=option)
        self.optimizer = tf.compat.v1.train.AdagradOptimizer(0.05)
        self._train(tf.constant([1, 2], tf.int64))  # makes the slot
        self._fill()
        spec = tf.TensorSpec([None], tf.int64)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
        if name == "ssd_prefetch":
            ahead = fe.data.prefetch_embeddings(lambda keys: [(self.table, keys)])
            self.keys = iter(dataset.apply(ahead))
        else:
            self.keys = iter(dataset.prefetch(2))

    def _fill(self) -> None:
        order = np.random.default_rng(5).permutation(_NUM_KEYS.value)
        for ids in np.array_split(order, -(-order.size // 100_000)):
            keys = workloads.hash64(ids)
            self.table.upsert(keys, np.zeros([len(keys), _DIM.value], np.float32))

    def _train(self, keys: Any) -> None:
        tf = self._tf
        with tf.GradientTape() as tape:
            distinct, positions = tf.unique(keys)
            rows = tf.nn.embedding_lookup(self.table, distinct)
            loss = tf.reduce_mean(tf.tanh(tf.gather(rows, positions)) - 0.1)
        grad = tape.gradient(loss, self.table)
        self.optimizer.apply_gradients([(grad, self.table)])

    def step(self, _: int) -> None:
        """One step of training."""
        self._train(next(self.keys))

    def counters(self) -> dict[str, int]:
        """Those of the table, since it was made."""
        return {name: int(value) for name, value in self.table.statistics().items()}

    def report(self, counted: dict[str, int], now: dict[str, int]) -> dict[str, float]:
        """What the counters of the timed steps say, and memory at their end."""
        num_keys = counted["hits"] + counted["misses"]
        return {
            "distinct_keys": num_keys,
            "memory_hit_rate": round(1 - counted["cold_gets"] / num_keys, 4),
            "cold_gets": counted["cold_gets"],
            "disk_reads": counted["cold_reads"],
            "disk_bytes_read": counted["cold_bytes_read"],
            "rows_written": counted["cold_puts"],
            "demotions": counted["demotions"],
            "memory_bytes": now["memory_bytes"],
            "memory_of_budget": round(now["memory_bytes"] / self.budget, 3),
            "disk_bytes": now["cold_bytes"],
        }


if __name__ == "__main__":
    app.run(main)
