r"""Trains tables without a vocabulary on ids that grow and drift: does a step stay as fast?

    python -m benchmarks.tables.growth
    python -m benchmarks.tables.growth --steps=400 --live=10000 --steps_to_live=100

Each step looks 26 columns up and trains them with Adagrad. 2 % of the keys were never seen before,
the hot set rotates, and rows that were not used for --steps_to_live steps expire. A plain C loop
over fixed tables (benchmarks/harness/limit.py) is timed between the steps: it tells the machine's
drift from the tables'. Writes one JSON file; benchmarks/report/growth_plot.py draws it.
"""

import dataclasses
import os
import time
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.harness import limit, resources, workloads
from benchmarks.report import results

_STEPS = flags.DEFINE_integer("steps", 20_000, "Training steps.", lower_bound=10)
_LIVE = flags.DEFINE_integer("live", 1_000_000, "Keys of a column that come again.")
_BATCH = flags.DEFINE_integer("batch", 4096, "Keys of a column in a step.", lower_bound=1)
_STEPS_TO_LIVE = flags.DEFINE_integer("steps_to_live", 1000, "Steps until an unused key expires.")
_EXPIRE_EVERY = flags.DEFINE_integer("expire_every", 100, "Steps between two expiries.")
_DIM = flags.DEFINE_integer("dim", 16, "Length of a row.")
_THREADS = flags.DEFINE_integer("threads", 1, "Intra-op and inter-op threads.")
_EARLY = flags.DEFINE_integer("early", 2000, "The step that the last one is compared with.")
_WINDOW = flags.DEFINE_integer("window", 500, "Steps whose median stands for one step.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

_SAMPLE = 100  # steps of one point of the series
_LIMIT_EVERY = 10  # steps between two runs of the limit loop
_LEARNING_RATE = 0.01


def main(_: list[str]) -> None:
    """Measures, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # here, so that --help starts fast

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    drift = workloads.Drift(live=_LIVE.value, batch_size=_BATCH.value)
    series, step_us, limit_us = _train(drift)
    axes = {"workload": "W5", "threads": _THREADS.value, "batch_size": drift.batch_size}
    axes |= {"steps": _STEPS.value, "live": _LIVE.value, "steps_to_live": _STEPS_TO_LIVE.value}
    axes |= {"expire_every": _EXPIRE_EVERY.value, "dim": _DIM.value, "tables": "growing"}
    cells = [summary(series, step_us, limit_us)]
    record = results.record_of("benchmarks.tables.growth", axes, cells) | {"series": series}
    results.write(record, f"W5-t{_THREADS.value}", _OUTPUT.value)


def _train(drift: workloads.Drift) -> tuple[list[dict], np.ndarray, np.ndarray]:
    """Runs all steps; returns the series, each step's time and the limit loop's before it, in us.

    Where the loop is not there or did not run, its time is NaN.
    """
    program = _Program(drift)
    loop = limit.compile_loop()
    run_limit = None
    if loop:
        bound = limit.Limit(loop, _fixed_tables(drift), _THREADS.value, with_slots=False)
        run_limit = bound.steps("forward")["limit"]
    step_us, limit_us = np.empty(_STEPS.value), np.full(_STEPS.value, np.nan)
    series: list[dict] = []
    expire_ms = 0.0
    for i in range(_STEPS.value):
        keys = drift.keys(i)
        if run_limit and i % _LIMIT_EVERY == 0:
            limit_us[i] = _microseconds(lambda i=i: run_limit(i // _LIMIT_EVERY))
            program.find(keys)  # its tables are back in the caches
        step_us[i] = _microseconds(lambda keys=keys: program.step(keys))
        if (i + 1) % _EXPIRE_EVERY.value == 0:
            expire_ms = _microseconds(program.expire) / 1e3
        if (i + 1) % _SAMPLE == 0:
            times = step_us[i + 1 - _SAMPLE : i + 1]
            series.append(_point(i + 1, times, limit_us[i + 1 - _SAMPLE : i + 1], expire_ms))
            series[-1] |= program.content()
            if (i + 1) % (10 * _SAMPLE) == 0:
                print(series[-1], flush=True)
    return series, step_us, limit_us


def _fixed_tables(drift: workloads.Drift) -> workloads.Workload:
    """W1, of the size of the keys that come again."""
    columns = (workloads.Column(drift.live, _DIM.value),) * drift.num_columns
    return dataclasses.replace(
        workloads.WORKLOADS["W1"], columns=columns, batch_size=drift.batch_size
    )


def _microseconds(function: Any) -> float:
    start = time.perf_counter_ns()
    function()
    return (time.perf_counter_ns() - start) / 1e3


def _point(step: int, step_us: np.ndarray, limit_us: np.ndarray, expire_ms: float) -> dict:
    point = {"step": step, "expire_ms": round(expire_ms, 1)}
    for name, q in (("median_us", 50), ("p95_us", 95), ("max_us", 100)):
        point[name] = round(float(np.percentile(step_us, q)), 1)
    if not np.all(np.isnan(limit_us)):
        point["limit_us"] = round(float(np.nanmedian(limit_us)), 1)
    return point


def summary(series: list[dict], step_us: np.ndarray, limit_us: np.ndarray) -> dict:
    """Compares a window of steps around the early step with the last window."""
    half = _WINDOW.value // 2
    early = slice(max(_EARLY.value - half, 0), _EARLY.value + half)
    late = slice(len(step_us) - _WINDOW.value, len(step_us))
    at_early = next((p for p in series if p["step"] >= _EARLY.value), series[-1])
    cell = {
        "phase": "adagrad",
        "early_step": _EARLY.value,
        "early_us": round(float(np.median(step_us[early])), 1),
        "late_us": round(float(np.median(step_us[late])), 1),
        "late_over_early": round(float(np.median(step_us[late]) / np.median(step_us[early])), 4),
        "memory_late_over_early": _quotient(series[-1], at_early, "memory_bytes"),
        "resident_late_over_early": _quotient(series[-1], at_early, "resident_bytes"),
        "rows_late_over_early": _quotient(series[-1], at_early, "rows"),
    }
    if not np.all(np.isnan(limit_us[early])):
        drift = np.nanmedian(limit_us[late]) / np.nanmedian(limit_us[early])
        cell["limit_late_over_early"] = round(float(drift), 4)
    for name, value in cell.items():
        print(f"  {name:26s} {value}")
    return cell


def _quotient(late: dict, early: dict, name: str) -> float:
    return round(late[name] / early[name], 4)


class _Program:
    """A TensorFlow 1 session that trains one EmbeddingVariable for each column."""

    def __init__(self, drift: workloads.Drift):
        import tensorflow as tf

        import fused_embedding as fe
        from benchmarks.harness import sessions

        v1 = tf.compat.v1
        config = sessions.session_config(_THREADS.value)
        with tf.Graph().as_default() as graph:
            keys = v1.placeholder(tf.int64, [drift.num_columns, drift.batch_size])
            option = fe.EmbeddingVariableOption(
                evict_option=fe.GlobalStepEvict(steps_to_live=_STEPS_TO_LIVE.value)
            )
            step = v1.train.get_or_create_global_step()
            tables = [
                fe.get_embedding_variable(f"column_{i}", _DIM.value, ev_option=option)
                for i in range(drift.num_columns)
            ]
            combined = _combined(tables, keys)
            loss = tf.reduce_sum(combined * 1e-3)
            train = v1.train.AdagradOptimizer(_LEARNING_RATE).minimize(loss, global_step=step)
            with fe.inference():
                found = _combined(tables, keys)
            statistics = [table.statistics() for table in tables]
            rows = tf.add_n([counts["size"] for counts in statistics])
            memory = tf.add_n([counts["memory_bytes"] for counts in statistics])
            expire = tf.group(*[table.expire() for table in tables])
            initialize = v1.global_variables_initializer()
        self._session = v1.Session(graph=graph, config=config)
        self._session.run(initialize)
        self.step = self._session.make_callable([train, combined.op], feed_list=[keys])
        self.find = self._session.make_callable([found.op], feed_list=[keys])
        self.expire = self._session.make_callable(expire)
        self._content = self._session.make_callable([rows, memory])

    def content(self) -> dict[str, int]:
        """Returns rows, bytes of the tables, and resident bytes of the process."""
        rows, memory = self._content()
        resident = resources.resident_bytes()
        return {"rows": int(rows), "memory_bytes": int(memory), "resident_bytes": resident}


def _combined(tables: list, keys: Any) -> Any:
    import tensorflow as tf

    import fused_embedding as fe

    num_rows = keys.shape[1]
    indices = np.stack([np.arange(num_rows), np.zeros(num_rows)], axis=1).astype(np.int64)
    indices, shape = tf.constant(indices), tf.constant([num_rows, 1], tf.int64)
    columns = [tf.SparseTensor(indices, column, shape) for column in tf.unstack(keys)]
    lookup = fe.nn.fused_safe_embedding_lookup_sparse
    pairs = zip(tables, columns, strict=True)
    return tf.concat([lookup(table, ids, combiner="sum") for table, ids in pairs], axis=1)


if __name__ == "__main__":
    app.run(main)
