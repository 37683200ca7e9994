r"""Times raw hash tables: ours beside recommenders-addons', alternating in one process.

    python -m benchmarks.tables.raw_table
    python -m benchmarks.tables.raw_table --num_keys=1000000 --system=ours --grow_rounds=1

Both must be installed in one environment: benchmarks/README.md says how. Finds and inserts are
timed at `--num_keys` resident keys; growing from nothing to there is timed batch by batch; memory
is that of a process which holds one table. Writes one JSON file.
"""

import gc
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.harness import limit, machine, resources, timing, workloads
from benchmarks.report import results

_NUM_KEYS = flags.DEFINE_integer("num_keys", 10_000_000, "Resident keys.", lower_bound=1000)
_DIM = flags.DEFINE_integer("dim", 16, "Length of a row.", lower_bound=1)
_SYSTEM = flags.DEFINE_list(
    "system",
    ["ours", "tfra", "ours_adagrad", "tfra_adagrad"],
    "Names from benchmarks/peers/table_systems.py.",
)
_BATCH = flags.DEFINE_integer("batch", 65536, "Keys of a find or an insert.", lower_bound=1)
_GROW_BATCH = flags.DEFINE_list("grow_batch", ["65536", "4096"], "Keys of an insert while growing.")
_GROW_ROUNDS = flags.DEFINE_integer("grow_rounds", 3, "How often the tables are grown.")
_ROUNDS = flags.DEFINE_integer("rounds", 12, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 5, "Timed calls of a system in a round.", lower_bound=1)
_COLLIDING = flags.DEFINE_integer("colliding_keys", 1_000_000, "Keys of tables that collide.")
_MEMORY_OF = flags.DEFINE_string("memory_of", None, "Print the memory of this table, and stop.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

NUM_BATCHES = 8
_SMALL_PAGE = 4096


def main(_: list[str]) -> None:
    """Measures, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # here, so that --help starts fast

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if _MEMORY_OF.value:
        print(_resident_bytes(_MEMORY_OF.value))
        return
    names = _SYSTEM.value
    cells = [_memory(names)]
    _touch_memory(len(names))
    tables: dict = {}
    for size in _GROW_BATCH.value:
        _close(tables)
        tables, grown = _grow(names, int(size))
        cells.append(grown)
    cells += _resident(tables)
    _close(tables)
    cells.append(_collisions(names))
    axes = {"table": "raw", "num_keys": _NUM_KEYS.value, "dim": _DIM.value, "threads": 1}
    axes |= {"batch": _BATCH.value, "rounds": _ROUNDS.value}
    record = results.record_of("benchmarks.tables.raw_table", axes, cells)
    results.write(record, "raw_table-t1", _OUTPUT.value)


# --- Memory ---


def _memory(names: Sequence[str]) -> dict:
    """Bytes of an entry, of a table with values and Adagrad's slot in a process of its own."""
    # Value and Adagrad slot; the peer keeps neither frequency nor version.
    payload = workloads.ROW_HEADER_BYTES + 2 * 4 * _DIM.value
    systems = {}
    for name in sorted({name.removesuffix("_adagrad") + "_adagrad" for name in names}):
        command = [sys.executable, "-m", "benchmarks.tables.raw_table", f"--memory_of={name}"]
        command += [f"--num_keys={_NUM_KEYS.value}", f"--dim={_DIM.value}"]
        done = subprocess.run(
            command, check=True, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True
        )
        entry = int(done.stdout.split()[-1]) / _NUM_KEYS.value
        systems[name] = {"bytes_per_entry": round(entry, 1), "x_payload": round(entry / payload, 3)}
    cell = {"phase": "memory", "payload_bytes": payload, "systems": systems}
    _report(cell, lambda e: f"{e['bytes_per_entry']} bytes, {e['x_payload']} x payload")
    return cell


def _resident_bytes(name: str) -> int:
    """What the process grows by when the table gets its keys, without their tensors."""
    from benchmarks.peers import table_systems

    table = table_systems.TABLES[name](_DIM.value)
    values = np.zeros([_BATCH.value, _DIM.value], np.float32)
    warm_up = workloads.hash64(np.arange(1000))
    table.insert(warm_up, values[:1000])  # so that the code is loaded
    before = _rss()
    for first in range(0, _NUM_KEYS.value, _BATCH.value):
        ids = np.arange(first, min(first + _BATCH.value, _NUM_KEYS.value))
        table.insert(workloads.hash64(ids), values[: len(ids)])
    assert table.size() == _NUM_KEYS.value
    return _rss() - before


def _rss() -> int:
    gc.collect()
    return resources.resident_bytes()


def _touch_memory(num_tables: int) -> None:
    """Has the system get as much memory as the tables will need, and gives it back.

    In a virtual machine the first touch of memory may cost many times a later one: growing would
    measure that, and of the system that happens to come first.
    """
    num_bytes = num_tables * _NUM_KEYS.value * (workloads.ROW_HEADER_BYTES + 8 * _DIM.value)
    pages = mmap.mmap(-1, num_bytes)
    pages.madvise(mmap.MADV_HUGEPAGE)
    for begin in range(0, num_bytes, _SMALL_PAGE):
        pages[begin] = 1
    pages.close()


# --- Growth ---


def _grow(names: Sequence[str], size: int) -> tuple[dict, dict]:
    """Grows a table of each system by `size` keys at a time, several times.

    Returns:
        The last tables, and the times.
    """
    import tensorflow as tf

    from benchmarks.peers import table_systems

    keys = workloads.hash64(np.arange(_NUM_KEYS.value))
    batches = [tf.constant(keys[i : i + size]) for i in range(0, len(keys), size)]
    values = _values(size)
    samples = {name: np.empty((_GROW_ROUNDS.value, len(batches))) for name in names}
    tables: dict = {}
    for r in range(_GROW_ROUNDS.value):
        _close(tables)
        tables |= {name: table_systems.TABLES[name](_DIM.value) for name in names}
        assert all(table.size() == 0 for table in tables.values()), "a table is not new"
        rng = np.random.default_rng(r)
        for i, batch in enumerate(batches):
            rows = values[: batch.shape[0]]
            for name in rng.permutation(names):
                start = time.perf_counter_ns()
                tables[name].insert(batch, rows)
                samples[name][r, i] = (time.perf_counter_ns() - start) / 1e3
    for name in names:
        np.testing.assert_array_equal(tables[name].find(batches[1]), values, err_msg=name)
        assert tables[name].size() == len(keys), name
    cell: dict = {"phase": f"grow_{size}", "check": "equal", "systems": {}}
    for name in names:
        cell["systems"][name] = _growth_figures(samples, name)
    _report(cell, lambda e: f"{e['million_keys_per_second']} M/s, p99.9 {e['p999_us']} us")
    return tables, cell


def _close(tables: dict) -> None:
    for table in tables.values():
        table.close()
    tables.clear()
    gc.collect()


def _growth_figures(samples: dict[str, np.ndarray], name: str) -> dict:
    seconds = np.median(samples[name].sum(axis=1)) / 1e6
    p999 = float(np.percentile(samples[name], 99.9))
    figures = timing.summary(samples[name]) | {
        "p999_us": round(p999, 1),
        "max_us": round(float(samples[name].max()), 1),
        "million_keys_per_second": round(_NUM_KEYS.value / seconds / 1e6, 3),
    }
    if name.startswith("ours"):
        others = [other for other in samples if not other.startswith("ours")]
        totals = {n: s.sum(axis=1, keepdims=True) for n, s in samples.items()}
        figures["speedup_over"] = {o: timing.ratio(totals[o], totals[name]) for o in others}
        figures["p999_of"] = {
            o: round(p999 / float(np.percentile(samples[o], 99.9)), 4) for o in others
        }
    return figures


def _values(n: int) -> Any:
    """`[n, dim]` rows that differ from each other."""
    import tensorflow as tf

    rng = np.random.default_rng(11)
    return tf.constant(rng.uniform(-0.05, 0.05, (n, _DIM.value)).astype(np.float32))


# --- Finds and inserts at a size ---


def _resident(tables: dict) -> list[dict]:
    """Finds, overwrites and inserts of tables that hold the keys."""
    n, size = _NUM_KEYS.value, _BATCH.value
    rng = np.random.default_rng(11)
    ids = {
        "find_uniform": [rng.integers(0, n, size) for _ in range(NUM_BATCHES)],
        "find_zipf": [workloads.zipf_ids(rng, n, size) for _ in range(NUM_BATCHES)],
        "find_missing": [rng.integers(n, 2 * n, size) for _ in range(NUM_BATCHES)],
    }
    loop = limit.compile_loop()
    keys = workloads.hash64(np.arange(n))
    bound = limit.HashLimit(loop, keys, _DIM.value) if loop else None
    cells = [_find(tables, bound, phase, batches) for phase, batches in ids.items()]
    cells.append(_timed("overwrite", _inserts(tables, _tensors(ids["find_uniform"]))))
    new = _tensors([np.arange(n + i * size, n + (i + 1) * size) for i in range(4)])
    undo = {name: _call(table.erase, new) for name, table in tables.items()}
    cells.append(_timed("insert", _inserts(tables, new), undo))
    return cells


def _tensors(batches: Sequence[np.ndarray]) -> list:
    """The keys of each batch of ids."""
    import tensorflow as tf

    return [tf.constant(workloads.hash64(ids)) for ids in batches]


def _find(
    tables: dict, bound: limit.HashLimit | None, phase: str, batches: list[np.ndarray]
) -> dict:
    """Finds of the keys of `batches`, beside the limit where there is one."""
    keys = [workloads.hash64(ids) for ids in batches]
    tensors = _tensors(batches)
    steps = {name: _call(table.find, tensors) for name, table in tables.items()}
    check = _assert_same_rows(tables, tensors[0])
    if bound:
        steps["limit"] = _call(bound.find, keys)
    return _timed(phase, steps) | {"check": check}


def _inserts(tables: dict, keys: list) -> dict[str, timing.Step]:
    """A step of each table that inserts a batch of keys, or overwrites their rows."""
    values = _values(_BATCH.value)

    def step(table: Any) -> timing.Step:
        return _call(lambda batch: table.insert(batch, values), keys)

    return {name: step(table) for name, table in tables.items()}


def _call(function: Callable[[Any], object], batches: list) -> timing.Step:
    return lambda i: function(batches[i % len(batches)])


def _assert_same_rows(tables: dict, keys: object) -> str:
    want, *others = (table.find(keys) for table in tables.values())
    for rows in others:
        np.testing.assert_array_equal(rows, want)
    return "equal"


def _timed(phase: str, steps: dict, undo: dict | None = None) -> dict:
    samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value, undo)
    systems = {}
    for name, times in samples.items():
        figures = timing.summary(times)
        figures["million_keys_per_second"] = round(_BATCH.value / figures["median_us"], 3)
        if "limit" in samples and name != "limit":
            figures["x_limit"] = timing.ratio(times, samples["limit"])
        if name.startswith("ours"):
            others = [o for o in samples if not o.startswith("ours") and o != "limit"]
            figures["speedup_over"] = {o: timing.ratio(samples[o], times) for o in others}
        systems[name] = figures
    cell = {"phase": phase, "systems": systems}
    _report(cell, lambda e: f"{e['million_keys_per_second']} M/s")
    return cell


# --- Keys chosen to collide ---


def _collisions(names: Sequence[str]) -> dict:
    """Finds and inserts of ours on chosen keys, relative to the same number of random keys."""
    import tensorflow as tf

    from benchmarks.peers import table_systems

    num_keys, size = _COLLIDING.value, min(_BATCH.value, _COLLIDING.value)
    name = next(name for name in names if name.startswith("ours"))
    rng = np.random.default_rng(11)
    chosen = {"random": workloads.hash64(np.arange(num_keys))}
    chosen |= dict(table_systems.adversarial_keys(num_keys))
    sample = [rng.integers(0, num_keys, size) for _ in range(NUM_BATCHES)]
    found = {what: [tf.constant(keys[s]) for s in sample] for what, keys in chosen.items()}
    tables, grown = _grow_chosen(name, chosen, size, rng)
    steps = {what: _call(table.find, found[what]) for what, table in tables.items()}
    finds = timing.alternate(steps, _ROUNDS.value, _BLOCK.value)
    systems = {
        what: {
            "find_x_random": timing.ratio(finds[what], finds["random"]),
            "insert_x_random": timing.ratio(grown[what], grown["random"]),
        }
        for what in chosen
    }
    cell = {"phase": "colliding", "num_keys": num_keys, "table": name, "systems": systems}
    _report(
        cell,
        lambda e: f"find x {e['find_x_random']['median']}, grow x {e['insert_x_random']['median']}",
    )
    return cell


def _grow_chosen(
    name: str, chosen: dict[str, np.ndarray], size: int, rng: np.random.Generator
) -> tuple[dict, dict[str, np.ndarray]]:
    """The last table of each set of keys, and `[rounds, 1]` microseconds of its growth."""
    import tensorflow as tf

    from benchmarks.peers import table_systems

    values = _values(size)
    batches = {
        what: [tf.constant(keys[i : i + size]) for i in range(0, len(keys) - size + 1, size)]
        for what, keys in chosen.items()
    }
    grown = {what: np.empty((_ROUNDS.value, 1)) for what in chosen}
    tables: dict = {}
    for r in range(_ROUNDS.value):
        for what in rng.permutation(list(chosen)):
            tables[what] = table_systems.TABLES[name](_DIM.value)
            start = time.perf_counter_ns()
            for batch in batches[what]:
                tables[what].insert(batch, values)
            grown[what][r] = (time.perf_counter_ns() - start) / 1e3
    return tables, grown


def _report(cell: dict, describe: Callable[[dict], str]) -> None:
    print(cell["phase"])
    for name, entry in cell["systems"].items():
        line = f"  {name:44s} {describe(entry)}"
        for other, speedup in entry.get("speedup_over", {}).items():
            line += f", {speedup['median']:.2f} x {other}"
        if "x_limit" in entry:
            line += f", {entry['x_limit']['median']:.2f} x limit"
        print(line, flush=True)


if __name__ == "__main__":
    app.run(main)
