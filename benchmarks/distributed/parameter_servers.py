r"""Times training steps whose tables are on parameter servers, and counts what crosses.

    python -m benchmarks.distributed.parameter_servers
    python -m benchmarks.distributed.parameter_servers --columns=200 --ids=128

One worker, this process, trains by Adagrad on columns of one id a row. Each table is divided into
as many parts as there are servers, each a process on this machine. Systems: `stock`; `each_column`,
our lookups column by column; `messages`, all columns in one message each way for each server;
`messages_again`, to say how far two equal things are apart; and `keyed_each_column` and
`keyed_messages` on tables without a vocabulary. They take turns in one process, block by block.
Before anything is timed, the losses of five steps are compared. Times are CPU time: loopback has no
latency, so that fewer messages gain more in a network than they do here. Writes one JSON file.
"""

import collections
import os
import time
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.harness import timing
from benchmarks.report import results

_COLUMNS = flags.DEFINE_integer("columns", 26, "Columns, each with a table.", lower_bound=1)
_IDS = flags.DEFINE_integer("ids", 512, "Rows of a batch: one id a row.", lower_bound=1)
_ROWS = flags.DEFINE_integer("rows", 100_000, "Rows of a table.", lower_bound=1)
_DIM = flags.DEFINE_integer("dim", 16, "Values of a row.", lower_bound=1)
_SERVERS = flags.DEFINE_integer("servers", 2, "Parameter servers.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 9, "Rounds of alternation.", lower_bound=2)
_BLOCK = flags.DEFINE_integer("block", 10, "Timed steps of a system in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

SYSTEMS = (
    *("stock", "each_column", "messages", "messages_again"),
    *("keyed_each_column", "keyed_messages"),
)
# Whose time a figure of a step is.
CLOCKS = ("worker_cpu", "servers_cpu", "wall")
_CHECKED_STEPS = 5
_POWER = 4  # of uniform numbers: few ids are frequent


def main(_: list[str]) -> None:
    """Measures, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from fused_embedding.inspection import local_servers

    with local_servers.running(_SERVERS.value) as running:
        systems = {name: System(name, running.target) for name in SYSTEMS}
        _check_losses(systems)
        traced = {name: system.traffic() for name, system in systems.items()}
        steps = {name: system.step for name, system in systems.items()}

        def clock() -> np.ndarray:
            servers = int(1e9 * sum(running.cpu_seconds()))
            return np.array([time.process_time_ns(), servers, time.perf_counter_ns()])

        samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value, clock=clock)
    cell = {"phase": "adagrad", "check": "equal", "systems": _figures(samples, traced)}
    _report(cell)
    axes: dict[str, object] = {
        "mode": "parameter_servers",
        "workload": f"{_COLUMNS.value}x{_IDS.value}",
    }
    axes |= {"columns": _COLUMNS.value, "batch_size": _IDS.value, "rows": _ROWS.value}
    axes |= {"dim": _DIM.value, "servers": _SERVERS.value, "rounds": _ROUNDS.value}
    record = results.record_of("benchmarks.distributed.parameter_servers", axes, [cell])
    results.write(record, f"parameter_servers-{_COLUMNS.value}", _OUTPUT.value)


class System:
    """A model and its session in a worker, the first of which makes the variables."""

    def __init__(self, name: str, target: str, task: int = 0) -> None:
        import tensorflow as tf

        tf1 = tf.compat.v1
        self._graph = tf.Graph()
        setter = tf1.train.replica_device_setter(
            ps_tasks=_SERVERS.value, worker_device=f"/job:worker/task:{task}"
        )
        with self._graph.as_default(), tf1.device(setter):
            self._number = tf1.placeholder(tf.int32, [])
            self._loss, self._train = _build(name, self._number)
            # Else a session waits for the other workers.
            filters = ["/job:ps", f"/job:worker/task:{task}"]
            self._session = tf1.Session(target, config=tf1.ConfigProto(device_filters=filters))
            if task == 0:
                self._session.run(tf1.global_variables_initializer())
            self._call = self._session.make_callable([self._loss, self._train], [self._number])

    def step(self, number: int) -> float:
        """Trains on the batch of a number; the loss before."""
        loss, _ = self._call(number)
        return float(loss)

    def traffic(self) -> dict[str, Any]:
        """What one step executes, and what crosses between tasks."""
        import tensorflow as tf

        options = tf.compat.v1.RunOptions(trace_level=3, output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        fetches = [self._loss, self._train]
        self._session.run(fetches, {self._number: 0}, options=options, run_metadata=metadata)
        return _traffic_of(metadata)


def _build(name: str, number: Any) -> tuple[Any, Any]:
    """Loss and training step of a system on the batch of a number."""
    import tensorflow as tf

    import fused_embedding as fe

    tf1 = tf.compat.v1
    uniform = tf.random.stateless_uniform([_IDS.value, _COLUMNS.value], tf.stack([number, 7]))
    ids = tf.cast(tf.floor(_ROWS.value * uniform**_POWER), tf.int64)
    label = tf.reduce_sum(tf.cast(ids % 7, tf.float32), axis=1, keepdims=True) / _COLUMNS.value
    rows = tf.range(_IDS.value, dtype=tf.int64)
    indices = tf.stack([rows, tf.zeros_like(rows)], axis=1)
    shape = tf.constant([_IDS.value, 1], tf.int64)
    columns = [tf.SparseTensor(indices, ids[:, c], shape) for c in range(_COLUMNS.value)]
    tables = [_table(name, c) for c in range(_COLUMNS.value)]
    embedded = tf.concat(_look_up(name, tables, columns), axis=1)
    width = _COLUMNS.value * _DIM.value
    init = tf1.random_uniform_initializer(-0.1, 0.1, seed=1)
    # Servers keep variables by their names.
    kernel = tf1.get_variable(f"{name}_kernel", [width, 1], initializer=init, use_resource=True)
    loss = tf.reduce_mean((embedded @ kernel - label) ** 2)
    is_stock = name == "stock"
    optimizer = (tf1.train if is_stock else fe.train).AdagradOptimizer(0.05)
    return loss, optimizer.minimize(loss)


def _table(name: str, column: int) -> Any:
    import tensorflow as tf

    import fused_embedding as fe

    tf1 = tf.compat.v1
    partitioner = tf1.fixed_size_partitioner(_SERVERS.value)
    of_system = f"{name}_{column}"
    if name.startswith("keyed"):
        init = tf1.truncated_normal_initializer(stddev=0.05, seed=column)
        return fe.get_embedding_variable(
            of_system, _DIM.value, initializer=init, partitioner=partitioner
        )
    init = tf1.random_uniform_initializer(-0.05, 0.05, seed=column)
    shape = [_ROWS.value, _DIM.value]
    return tf1.get_variable(
        of_system, shape, initializer=init, partitioner=partitioner, use_resource=True
    )


def _look_up(name: str, tables: list[Any], columns: list[Any]) -> list[Any]:
    import tensorflow as tf

    import fused_embedding as fe

    pairs = zip(tables, columns, strict=True)
    if name == "stock":
        return [
            tf.compat.v1.nn.safe_embedding_lookup_sparse(
                table, ids, combiner="mean", partition_strategy="div"
            )
            for table, ids in pairs
        ]
    if name.endswith("each_column"):
        return [
            fe.nn.fused_safe_embedding_lookup_sparse(
                table, ids, combiner="mean", partition_strategy="div", fusion_version="v2"
            )
            for table, ids in pairs
        ]
    return fe.nn.group_embedding_lookup_sparse(
        tables, columns, ["mean"] * len(columns), partition_strategy="div"
    )


def _check_losses(systems: dict[str, System]) -> None:
    """Compares the losses of some steps: of ordinary tables, and of those without a vocabulary."""
    losses = {
        name: [system.step(i) for i in range(_CHECKED_STEPS)] for name, system in systems.items()
    }
    for name, of_system in losses.items():
        like = "keyed_each_column" if name.startswith("keyed") else "stock"
        np.testing.assert_allclose(of_system, losses[like], rtol=1e-4, err_msg=name)


def _traffic_of(metadata: Any) -> dict[str, Any]:
    import tensorflow as tf

    executed = collections.Counter(
        node.timeline_label.partition("=")[2].strip().partition("(")[0]
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    )
    sent = [node for graph in metadata.partition_graphs for node in graph.node if _crosses(node)]
    sizes = _bytes_of_outputs(metadata)
    bytes_from = {"worker": 0, "ps": 0}
    for node in sent:
        name, _, slot = node.input[0].partition(":")
        job = tf.DeviceSpec.from_string(node.attr["send_device"].s.decode()).job
        bytes_from[str(job)] += sizes.get((name, int(slot or 0)), 0)
    floats = tf.float32.as_datatype_enum
    return {
        "executed_ops": sum(executed.values()),
        "handle_ops": executed["VarHandleOp"] + executed["EmbeddingVariableHandle"],
        "tensors": len(sent),
        "tensors_of_floats": sum(node.attr["T"].type == floats for node in sent),
        "bytes_to_servers": bytes_from["worker"],
        "bytes_to_worker": bytes_from["ps"],
    }


def _crosses(node: Any) -> bool:
    """Whether a tensor is sent to another task, and is no signal without content."""
    if node.op != "_Send" or "/ctrl_" in node.input[0]:
        return False
    ends = (node.attr[end].s.decode() for end in ("send_device", "recv_device"))
    source, target = (end.partition("/device")[0] for end in ends)
    return bool(source != target)


def _bytes_of_outputs(metadata: Any) -> dict[tuple[str, int], int]:
    import tensorflow as tf

    sizes = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            for output in node.output:
                of = output.tensor_description
                if not of.dtype:  # nothing was output
                    continue
                count = int(np.prod([dim.size for dim in of.shape.dim], dtype=np.int64))
                sizes[node.node_name, output.slot] = count * tf.as_dtype(of.dtype).size
    return sizes


def _figures(samples: dict[str, np.ndarray], traced: dict[str, dict]) -> dict[str, dict]:
    """Of each system: CPU of a step, what it is of the others', and the traffic."""
    cpu = {name: of_system[:, :, 0] + of_system[:, :, 1] for name, of_system in samples.items()}
    systems: dict[str, dict] = {}
    for name, of_system in samples.items():
        figures: dict[str, Any] = timing.summary(cpu[name])
        for i, clock in enumerate(CLOCKS):
            figures[f"{clock}_us"] = round(float(np.median(of_system[:, :, i])), 1)
        figures["speedup_over"] = {
            other: timing.ratio(cpu[other], cpu[name]) for other in cpu if other != name
        }
        systems[name] = figures | {"traffic": traced[name]}
    return systems


def _report(cell: dict) -> None:
    for name, entry in cell["systems"].items():
        over = {other: round(s["median"], 2) for other, s in entry["speedup_over"].items()}
        worker, servers = (entry[f"{clock}_us"] / 1e3 for clock in CLOCKS[:2])
        total = entry["median_us"] / 1e3
        print(f"{name:18s} CPU {total:6.2f} ms: worker {worker:.2f}, servers {servers:.2f}")
        print(f"  {entry['traffic']}; less than the others' by {over}")


if __name__ == "__main__":
    app.run(main)
