r"""Times lookups of rows in fewer bytes beside those of float32 rows, the limit and peers.

    python -m benchmarks.serving.stored_rows --workload=W2
    python -m benchmarks.serving.stored_rows --workload=W2 --ids=uniform --batches=48
    peer/bin/python -m benchmarks.serving.stored_rows --workload=W2 --peer=torch_int8,tbe_int8

Forward passes, one thread, in turns in one process. A system is `float32`, the op of ordinary
variables; `int8`, `int4` and `bfloat16`, that of stored rows; `float32_again`, to say how far two
equal things are apart; or a peer. Before anything is timed, the combined rows of a batch are
compared with an oracle. Writes one JSON file.
"""

import dataclasses
import os
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.harness import limit, machine, oracle, timing, workloads
from benchmarks.report import results

_WORKLOAD = flags.DEFINE_string("workload", "W2", "One of benchmarks/harness/workloads.py.")
_IDS = flags.DEFINE_enum("ids", "zipf", ["zipf", "uniform"], "How ids are distributed.")
_BATCHES = flags.DEFINE_integer("batches", 8, "Batches that repeat.", lower_bound=1)
_PEER = flags.DEFINE_list("peer", [], "Names from benchmarks/peers/torch_small_rows.py.")
_ROUNDS = flags.DEFINE_integer("rounds", 9, "Rounds of alternation.", lower_bound=2)
_BLOCK = flags.DEFINE_integer("block", 5, "Timed calls of a system in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

FORMATS = ("int8", "int4", "bfloat16")
_CYCLE = 4096  # random rows that repeat in a table


def main(_: list[str]) -> None:
    """Measures, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    workload = _workload()
    batches = workload.batches()
    ours = _Ours(workload, batches)
    steps = ours.steps()
    if loop := limit.compile_loop():
        steps |= limit.Limit(loop, workload, 1, with_slots=False).steps("forward")
    if _PEER.value:
        from benchmarks.peers import torch_small_rows

        steps |= torch_small_rows.steps(workload, batches, _PEER.value)
    samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value)
    cell = {"phase": "forward", "check": "oracle", "systems": _figures(samples, batches)}
    _report(cell)
    axes = {"mode": "stored_rows", "workload": workload.name, "ids": _IDS.value, "threads": 1}
    axes |= {"batches": _BATCHES.value, "rounds": _ROUNDS.value}
    axes |= {"touched_bytes": workload.touched_bytes(), "l3_bytes": machine.l3_bytes()}
    record = results.record_of("benchmarks.serving.stored_rows", axes, [cell])
    what = f"stored_rows-{workload.name}-{_IDS.value}" + ("-peers" if _PEER.value else "")
    results.write(record, what, _OUTPUT.value)


def _workload() -> workloads.Workload:
    is_uniform = _IDS.value == "uniform"
    workload = workloads.WORKLOADS[_WORKLOAD.value]
    return dataclasses.replace(workload, num_batches=_BATCHES.value, is_uniform=is_uniform)


# --- Ours ---


class _Ours:
    """The ops over tables of one workload, in a session of one thread."""

    def __init__(self, workload: workloads.Workload, batches: list[workloads.Batch]) -> None:
        import tensorflow as tf

        self._workload, self._batches = workload, batches
        self._graph = tf.Graph()
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
        )
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)

    def steps(self) -> dict[str, timing.Step]:
        """A callable of the batch number for each system."""
        with self._graph.as_default():
            inputs = [_inputs(self._workload, batch) for batch in self._batches]
            floats = self._variables("float32")
            outputs = {"float32": [_look_up(floats, None, one) for one in inputs]}
            outputs["float32_again"] = [_look_up(floats, None, one) for one in inputs]
            for row_format in FORMATS:
                tables = self._variables(row_format)
                outputs[row_format] = [_look_up(tables, row_format, one) for one in inputs]
            self._check(outputs)
            return {name: self._in_turn(of_system) for name, of_system in outputs.items()}

    def _in_turn(self, outputs: list[list[Any]]) -> timing.Step:
        import tensorflow as tf

        calls = [self._session.make_callable(tf.group(*of_batch)) for of_batch in outputs]
        for call in calls:  # the first call prepares its graph
            call()
        return lambda i: calls[i % len(calls)]()

    def _variables(self, row_format: str) -> list[Any]:
        """A variable of each column's table, filled by and by: a graph has at most 2 GB."""
        import tensorflow as tf

        variables: list[Any] = []
        for column in self._workload.columns:
            cycle = _cycle(column.dim, row_format)
            dtype = tf.as_dtype(cycle.dtype)
            value = tf.compat.v1.placeholder(dtype, [_CYCLE, cycle.shape[1]])
            repeated = tf.tile(value, [-(-column.rows // _CYCLE), 1])[: column.rows]
            variable = tf.compat.v1.get_variable(
                f"{row_format}_{len(variables)}", initializer=repeated, use_resource=True
            )
            self._session.run(variable.initializer, {value: cycle})
            variables.append(variable)
        return variables

    def _check(self, outputs: dict[str, list[list[Any]]]) -> None:
        """Compares the combined rows of batch 0 with the oracle."""
        touched = [ids.touched() for ids in self._batches[0].columns]
        expected = oracle.Oracle(self._workload, self._batches[0])
        for name, of_system in outputs.items():
            row_format = name.removesuffix("_again")
            rows = [
                _decoded(row_format, column.dim)[ids % _CYCLE]
                for column, ids in zip(self._workload.columns, touched, strict=True)
            ]
            got = self._session.run(of_system[0])
            oracle.assert_close(got, expected.combined(rows), "float32", name)


def _cycle(dim: int, row_format: str) -> np.ndarray:
    """`[_CYCLE, width]` random rows as a table stores them."""
    from fused_embedding.serving import row_formats

    formats = row_formats.FORMATS
    rows = np.random.default_rng(dim).uniform(-0.05, 0.05, (_CYCLE, dim))
    return formats[row_format].encode(rows) if row_format in formats else rows.astype(np.float32)


def _decoded(row_format: str, dim: int) -> np.ndarray:
    """The numbers of `_cycle`."""
    from fused_embedding.serving import row_formats

    formats = row_formats.FORMATS
    stored = _cycle(dim, row_format)
    if row_format not in formats:
        return stored
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(formats[row_format].decode(tf.constant(stored), dim))


def _inputs(workload: workloads.Workload, batch: workloads.Batch) -> dict[str, Any]:
    """Arguments of the ops for a batch, but for the tables."""
    import tensorflow as tf

    columns = range(workload.num_columns)
    return {
        "sp_values": [tf.constant(ids.ids) for ids in batch.columns],
        "sp_indices": [tf.constant(ids.row_ids()) for ids in batch.columns],
        "sp_dense_shapes": [tf.constant([workload.batch_size, 1], tf.int64) for _ in columns],
        "sp_weights": [],
        "weighted_columns": [],
        "table_of_column": list(columns),
        "combiners": [column.combiner for column in workload.columns],
        "max_norms": [-1.0 for _ in columns],
        "default_ids": [-1 for _ in columns],
        "num_outputs": len(columns),
    }


def _look_up(variables: list[Any], row_format: str | None, inputs: dict[str, Any]) -> list[Any]:
    import tensorflow as tf

    import fused_embedding as fe

    arguments = inputs | {"resources": [v.handle for v in variables], "dtype": tf.float32}
    if row_format is None:
        return fe.raw_ops.FusedEmbeddingResourceGroupLookup(**arguments)
    widths = [variable.shape[1] for variable in variables]
    return fe.raw_ops.FusedEmbeddingStoredRowsGroupLookup(
        **arguments,
        formats=[row_format] * len(variables),
        dims=[_dim(row_format, width) for width in widths],
    )


def _dim(row_format: str, width: int) -> int:
    """Of rows of an even dim."""
    return {"int8": width - 8, "int4": 2 * (width - 4), "bfloat16": width}[row_format]


# --- Figures ---


def _figures(samples: dict[str, np.ndarray], batches: list[workloads.Batch]) -> dict[str, dict]:
    ids = np.mean([sum(ids.ids.size for ids in batch.columns) for batch in batches])
    systems = {}
    for name, times in samples.items():
        figures = timing.summary(times)
        figures["ns_per_id"] = round(float(np.median(times)) * 1e3 / ids, 2)
        figures["speedup_over"] = {
            other: timing.ratio(samples[other], times) for other in samples if other != name
        }
        systems[name] = figures
    return systems


def _report(cell: dict) -> None:
    for name, entry in cell["systems"].items():
        over = {
            other: round(speedup["median"], 2) for other, speedup in entry["speedup_over"].items()
        }
        print(f"{name:16s} {entry['ns_per_id']:7.2f} ns an id; times faster than {over}")


if __name__ == "__main__":
    app.run(main)
