r"""Measures the memory of a table with a tier on an SSD, in a process that may have no more.

    python -m benchmarks.tiers.memory --folder=/mnt/ssd/bench --num_keys=20000000

A process of its own trains a small table in memory, which is what TensorFlow and a step need; then
it may grow by 1.5 x the budget: the cgroup that it is in (version 1, as root) ends it else. It
makes a table with a tier on an SSD, fills it, and trains it. Writes one JSON file.
"""

import gc
import json
import os
import pathlib
import subprocess
import sys

from absl import app, flags

from benchmarks.harness import confine, machine, resources
from benchmarks.tiers import full_tables

_STEPS = flags.DEFINE_integer("steps", 60, "Steps of training.", lower_bound=1)
_LIMIT = flags.DEFINE_float("limit", 1.5, "What the process may grow by, of the budget.")
_CHILD = flags.DEFINE_string("child", None, "Measure in this process; its cgroup, or - for none.")


def main(_: list[str]) -> None:
    """Starts the process, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if _CHILD.value:
        print(json.dumps(_measure(None if _CHILD.value == "-" else pathlib.Path(_CHILD.value))))
        return
    with confine.group("fe_tier_") as group:
        figures = _run_child(group)
    print(figures)
    axes = {"share": full_tables.SHARE.value, "limit": _LIMIT.value, "steps": _STEPS.value}
    cells = [{"phase": "memory", "systems": {"ssd_prefetch": figures}}]
    full_tables.write("tier_memory", "memory", cells, axes)


def _run_child(group: pathlib.Path | None) -> dict:
    command = [sys.executable, "-m", "benchmarks.tiers.memory", f"--child={group or '-'}"]
    command += [f"--{flag.name}={flag.value}" for flag in (_STEPS, _LIMIT)]
    shared = ("FOLDER", "NUM_KEYS", "DIM", "SHARE", "BATCH")
    command += [f"--{flag.name}={flag.value}" for flag in (getattr(full_tables, f) for f in shared)]
    command = confine.command(command, group)
    done = subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the process ended with {done.returncode}; -9: it needed more memory")
    return json.loads(done.stdout.splitlines()[-1])


def _measure(group: pathlib.Path | None) -> dict:
    import tensorflow as tf

    import fused_embedding as fe

    small = full_tables.Table.make("small", on_ssd=False)
    keys = full_tables.batches()
    for _ in range(10):
        small.train(tf.constant(next(keys) % 100_000))
    del small
    gc.collect()
    before, budget = resources.resident_bytes(), full_tables.budget()
    figures: dict = {"budget": budget, "tensorflow_bytes": before}
    if group:
        figures |= confine.limit(group, int(_LIMIT.value * budget))
    table = full_tables.Table.make("confined", on_ssd=True)
    table.fill()
    filled = table.counters()
    figures["filled_of_budget"] = _of_budget(resources.resident_bytes() - before)
    spec = tf.TensorSpec([None], tf.int64)
    dataset = tf.data.Dataset.from_generator(full_tables.batches, output_signature=spec)
    ahead = fe.data.prefetch_embeddings(lambda ids: [(table.variable, ids)])
    stream = iter(dataset.apply(ahead))
    for _ in range(_STEPS.value):
        table.train(next(stream))
    figures |= full_tables.counted(filled, table.counters())
    figures["grown_of_budget"] = _of_budget(resources.resident_bytes() - before)
    figures["most_of_budget"] = _of_budget(resources.resident_bytes("VmHWM") - before)
    if group:
        figures["cgroup_most_bytes"] = int((group / "memory.max_usage_in_bytes").read_text())
        figures["cgroup_refusals"] = int((group / "memory.failcnt").read_text())
    return figures


def _of_budget(num_bytes: int) -> float:
    return round(num_bytes / full_tables.budget(), 3)


if __name__ == "__main__":
    app.run(main)
