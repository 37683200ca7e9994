r"""Times training steps of a table whose rows memory has no room for, beside one in memory.

    python -m benchmarks.tiers.steps --folder=/mnt/ssd/bench
    python -m benchmarks.tiers.steps --folder=/mnt/ssd/bench --num_keys=50000000 --rounds=5

Three tables get Zipf ids: in memory; with a tier on an SSD; with one, and a pipeline that fetches
the rows of the next steps. The first gets all keys, with Adagrad's slot, and trains for --history
steps; the others are restored from its checkpoint, so that their rows have frequencies as those of
a table that has trained for a while. Then each takes --settle steps before the first that is timed.
A fourth system takes steps on the second table whose rows were all fetched before: what the second
one takes longer, it waited for the disk. What the disk can do, fio measures before and after the
rounds. Writes one JSON file.
"""

import os
import pathlib
import shutil
import time
from typing import Any

from absl import app, flags

from benchmarks.harness import timing
from benchmarks.tiers import disk, full_tables

_ROUNDS = flags.DEFINE_integer("rounds", 8, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 8, "Timed steps of a system in a round.", lower_bound=1)
_HISTORY = flags.DEFINE_integer("history", 5000, "Steps in memory, of which all have a checkpoint.")
_SETTLE = flags.DEFINE_integer("settle", 400, "Steps before the first that is timed.")
_FIO_SECONDS = flags.DEFINE_integer("fio_seconds", 5, "Of fio before and after; 0: none.")
_STRATEGY = flags.DEFINE_enum("strategy", "LFU", ["LFU", "LRU"], "Which rows leave memory first.")

_AHEAD = 6  # batches, or more than a pipeline has fetched while other systems took their steps
_PREPARED_SEED = 12  # other ids: those of the second table would find rows that it brought
_HISTORY_SEED = 13


def main(_: list[str]) -> None:
    """Measures all systems, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    systems: dict[str, System] = {}
    for name in ("memory", "ssd", "ssd_prefetch"):
        systems[name] = System(name)
        systems[name].settle()
    shutil.rmtree(_checkpoint().parent)
    systems["ssd_resident"] = Prepared(systems["ssd"])
    num_bytes = full_tables.NUM_KEYS.value * full_tables.row_bytes()
    fio = disk.Fio(full_tables.FOLDER.value, num_bytes, _FIO_SECONDS.value)
    full_tables.wait()
    fio_rates = fio.reads_a_second()
    samples = timing.alternate(
        {name: system.step for name, system in systems.items()},
        _ROUNDS.value,
        _BLOCK.value,
        {name: system.count for name, system in systems.items()},
        _AHEAD,
    )
    fio_rates += fio.reads_a_second()
    measured = {name: timing.summary(of_one) for name, of_one in samples.items()}
    for name, system in systems.items():
        measured[name] |= system.report()
        measured[name]["speed_of_memory"] = timing.ratio(samples["memory"], samples[name])
        resident = timing.ratio(samples["ssd_resident"], samples[name])["median"]
        measured[name]["share_of_step_waited"] = round(1 - resident, 3)
        print(name, measured[name], flush=True)
    axes: dict[str, object] = {"share": full_tables.SHARE.value, "batch": full_tables.BATCH.value}
    axes |= {"strategy": _STRATEGY.value, "history": _HISTORY.value, "settle": _SETTLE.value}
    axes |= {"rounds": _ROUNDS.value, "block": _BLOCK.value, "untimed": _AHEAD, "zipf": 1.05}
    cell = {"phase": "adagrad", "systems": measured, "fio_reads_per_second": fio_rates}
    full_tables.write("tiers", "steps", [cell], axes)


def _checkpoint() -> pathlib.Path:
    return pathlib.Path(full_tables.FOLDER.value) / "history" / "checkpoint"


class System:
    """A table and its ids; what is counted is counted in its own steps alone."""

    def __init__(self, name: str) -> None:
        import tensorflow as tf  # here, so that --help starts fast

        import fused_embedding as fe

        self.name = name
        self.table = full_tables.Table.make(name, name != "memory", _STRATEGY.value)
        start = time.perf_counter()
        checkpoint = tf.train.Checkpoint(table=self.table.variable)
        if name == "memory":
            self._train_history()
            checkpoint.write(_checkpoint())
        else:
            checkpoint.read(_checkpoint()).assert_consumed()
        print(f"{name}: filled, {time.perf_counter() - start:,.0f} s", flush=True)
        dataset = self._dataset(tf)
        if name == "ssd_prefetch":
            variable = self.table.variable
            ahead = fe.data.prefetch_embeddings(lambda keys: [(variable, keys)])
            self.keys = iter(dataset.apply(ahead))
        else:
            self.keys = iter(dataset.prefetch(2))
        self.before = self.table.counters()

    def _train_history(self) -> None:
        self.table.fill()
        batches = full_tables.batches(_HISTORY_SEED)
        for _ in range(_HISTORY.value):
            self.table.train(next(batches))

    @staticmethod
    def _dataset(tf: Any) -> Any:
        spec = tf.TensorSpec([None], tf.int64)
        return tf.data.Dataset.from_generator(full_tables.batches, output_signature=spec)

    def settle(self) -> None:
        """Steps until frequent rows are in memory."""
        for i in range(_SETTLE.value):
            self.step(i)
            if (i + 1) % 50 == 0:
                now = self.table.counters()
                rate = full_tables.counted(self.before, now)["memory_hit_rate"]
                print(f"{self.name}: step {i + 1}, hits of memory {rate}", flush=True)
                self.before = now
        self.before = self.table.counters()

    def step(self, _: int) -> None:
        """One step of training."""
        self.table.train(next(self.keys))

    def count(self, _: int) -> None:
        """After a step."""

    def report(self) -> dict[str, float]:
        """What the counters of the steps say."""
        return full_tables.counted(self.before, self.table.counters())


class Prepared(System):
    """Steps whose rows are all in memory, on the table of another system."""

    def __init__(self, owner: System) -> None:
        self.owner, self.table = owner, owner.table
        self.batches = full_tables.batches(_PREPARED_SEED)
        self.cold_gets = 0
        self.at_begin = self.table.counters()
        self.count(0)
        self.cold_gets = 0

    def step(self, _: int) -> None:
        """One step, on keys that were prefetched."""
        self.at_begin = self.table.counters()
        self.table.train(self.keys)

    def count(self, _: int) -> None:
        """Fetches the rows of the next step; the other system's counters go on without these."""
        import tensorflow as tf

        self.cold_gets += self.table.counters()["cold_gets"] - self.at_begin["cold_gets"]
        self.keys = tf.constant(next(self.batches))
        self.table.variable.prefetch(self.keys)
        now, before = self.table.counters(), self.owner.before
        self.owner.before = {k: before[k] + now[k] - self.at_begin[k] for k in now}

    def report(self) -> dict[str, float]:
        """That nothing was read."""
        return {"cold_gets": self.cold_gets}


if __name__ == "__main__":
    app.run(main)
