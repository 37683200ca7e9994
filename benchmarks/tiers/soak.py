r"""Trains a table with a tier on an SSD for hours: do memory, descriptors and disk stay the same?

    python -m benchmarks.tiers.soak --folder=/mnt/ssd/bench
    python -m benchmarks.tiers.soak --folder=/mnt/ssd/bench --minutes=5 --num_keys=250000

Each step fetches the rows of the next ones, and trains Zipf ids with Adagrad. Some keys are erased
in each step, and those of an earlier step made again, so that the table keeps its size. Every
--save_every seconds a checkpoint is saved, and the one before the last removed. What the process
has is sampled every --sample seconds; the first half of the time is to warm up, and a line through
the samples of the second says how much they drift. Writes one JSON file; ends with 1 where memory
or descriptors drift by --limit percent or more.
"""

import collections
import os
import pathlib
import sys
import time
from collections.abc import Iterator

import numpy as np
from absl import app, flags

from benchmarks.harness import machine, resources, workloads
from benchmarks.report import results

_FOLDER = flags.DEFINE_string("folder", None, "Folder on the SSD.", required=True)
_MINUTES = flags.DEFINE_float("minutes", 120.0, "How long it trains.", lower_bound=0.1)
_SAMPLE = flags.DEFINE_float("sample", 10.0, "Seconds between two samples.", lower_bound=0.1)
_SAVE_EVERY = flags.DEFINE_float("save_every", 60.0, "Seconds between two saves.", lower_bound=0.1)
_NUM_KEYS = flags.DEFINE_integer("num_keys", 500_000, "Rows of the table.", lower_bound=10_000)
_DIM = flags.DEFINE_integer("dim", 32, "Length of a row.", lower_bound=1)
_SHARE = flags.DEFINE_float("share", 0.25, "Budget in memory, of the bytes of all rows.")
_BATCH = flags.DEFINE_integer("batch", 16_384, "Ids of a step.", lower_bound=1)
_ERASED = flags.DEFINE_integer("erased", 500, "Keys that are erased in a step.", lower_bound=1)
_REST = flags.DEFINE_float("rest", 0.0, "Seconds between two steps: others use the machine too.")
_LIMIT = flags.DEFINE_float("limit", 1.0, "Percent that memory and descriptors may drift.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

# What must not grow, however long a process trains.
JUDGED = ("resident_bytes", "descriptors", "threads", "table_bytes")
# RocksDB merges its files now and then, so that they and their descriptors go up and down, by more
# than a limit of one percent could tell from a drift.
REPORTED = ("rows", "open_files", "store_bytes", "disk_bytes")


def main(_: list[str]) -> None:
    """Trains, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    record = {"schema": results.SCHEMA, **machine.provenance("benchmarks.tiers.soak")}
    series = train(Program(pathlib.Path(_FOLDER.value)))
    drifts = {name: resources.drift(series, name) for name in (*JUDGED, *REPORTED)}
    is_flat = all(abs(drifts[name]) < _LIMIT.value for name in JUDGED)
    cell: dict[str, object] = {"phase": "adagrad", "is_flat": is_flat, "judged": list(JUDGED)}
    cell |= {"drift_percent": drifts, "seconds": series[-1]["second"]}
    for name, percent in drifts.items():
        print(f"  {name:16s} {percent:+8.3f} %{'' if name in JUDGED else ', not judged'}")
    axes = {"table": "tier", "mode": "soak", "minutes": _MINUTES.value, "dim": _DIM.value}
    axes |= {"num_keys": _NUM_KEYS.value, "share": _SHARE.value, "batch": _BATCH.value}
    axes |= {"erased": _ERASED.value, "save_every": _SAVE_EVERY.value, "sample": _SAMPLE.value}
    axes |= {"rest": _REST.value}
    record |= {"machine": machine.describe(), "axes": axes, "cells": [cell], "series": series}
    results.write(record, f"soak-{_MINUTES.value:g}", _OUTPUT.value)
    if not is_flat:
        sys.exit(1)


def train(program: "Program") -> list[dict[str, float]]:
    """Runs steps and saves for --minutes; returns the samples, with the second of each."""
    begin = time.monotonic()
    next_sample, next_save = _SAMPLE.value, _SAVE_EVERY.value
    series: list[dict[str, float]] = []
    while next_sample <= 60 * _MINUTES.value:
        program.step()
        time.sleep(_REST.value)
        second = time.monotonic() - begin
        if second >= next_save:
            program.save()
            next_save += _SAVE_EVERY.value
        if second >= next_sample:
            series.append({"second": round(second, 1)} | program.sample())
            next_sample += _SAMPLE.value
            if len(series) % 6 == 0:
                print(series[-1], flush=True)
    return series


class Program:
    """A table, its ids, an optimizer and a manager of checkpoints."""

    def __init__(self, folder: pathlib.Path) -> None:
        import tensorflow as tf  # here, so that --help starts fast

        import fused_embedding as fe

        self._tf = tf
        self._folder = folder
        row_bytes = workloads.ROW_HEADER_BYTES + 8 * _DIM.value
        budget = int(_NUM_KEYS.value * row_bytes * _SHARE.value)
        storage = fe.StorageOption(fe.StorageType.DRAM_SSD, folder / "tables", (budget,))
        option = fe.EmbeddingVariableOption(storage_option=storage)
        self._table = fe.get_embedding_variable("soak", _DIM.value, ev_option=option)
        self._optimizer = tf.compat.v1.train.AdagradOptimizer(0.05)
        self._rng = np.random.default_rng(11)
        self._erased: collections.deque[np.ndarray] = collections.deque()
        spec = tf.TensorSpec([None], tf.int64)
        dataset = tf.data.Dataset.from_generator(self._batches, output_signature=spec)
        ahead = fe.data.prefetch_embeddings(lambda keys: [(self._table, keys)])
        self._keys = iter(dataset.apply(ahead))
        for ids in np.array_split(np.arange(_NUM_KEYS.value), -(-_NUM_KEYS.value // 100_000)):
            self._upsert(workloads.hash64(ids))
        checkpoint = tf.train.Checkpoint(table=self._table)
        self._manager = tf.train.CheckpointManager(checkpoint, folder / "checkpoints", 2)
        self._num_steps = 0
        self._num_saves = 0

    def _batches(self) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(12)
        while True:
            yield workloads.hash64(workloads.zipf_ids(rng, _NUM_KEYS.value, _BATCH.value))

    def _upsert(self, keys: np.ndarray) -> None:
        self._table.upsert(keys, np.zeros([len(keys), _DIM.value], np.float32))

    def step(self) -> None:
        """Trains one batch, erases keys, and makes those again that were erased ten steps ago."""
        tf = self._tf
        with tf.GradientTape() as tape:
            distinct, positions = tf.unique(next(self._keys))
            rows = tf.nn.embedding_lookup(self._table, distinct)
            loss = tf.reduce_mean(tf.tanh(tf.gather(rows, positions)) - 0.1)
        grad = tape.gradient(loss, self._table)
        self._optimizer.apply_gradients([(grad, self._table)])
        ids = self._rng.integers(0, _NUM_KEYS.value, _ERASED.value)
        self._erased.append(workloads.hash64(ids))
        self._table.erase(self._erased[-1])
        if len(self._erased) > 10:
            self._upsert(self._erased.popleft())
        self._num_steps += 1

    def save(self) -> None:
        """Saves a checkpoint; the manager removes the third newest."""
        self._manager.save()
        self._num_saves += 1

    def sample(self) -> dict[str, float]:
        """Returns what the process, the table and the folder have now."""
        open_files = resources.descriptors_below(self._folder)
        counted = {name: int(value) for name, value in self._table.statistics().items()}
        return {
            "resident_bytes": resources.resident_bytes(),
            "descriptors": len(os.listdir("/proc/self/fd")) - open_files,
            "open_files": open_files,
            "threads": len(os.listdir("/proc/self/task")),
            "table_bytes": counted["memory_bytes"],
            "rows": counted["size"],
            "store_bytes": counted["cold_bytes"],
            "disk_bytes": resources.bytes_below(self._folder),
            "steps": self._num_steps,
            "saves": self._num_saves,
            "cold_gets": counted["cold_gets"],
            "cold_puts": counted["cold_puts"],
        }


if __name__ == "__main__":
    app.run(main)
