r"""Measures the memory of training ordinary tables: its peak, over that of tables and slots.

    python -m benchmarks.tables.training_memory
    python -m benchmarks.tables.training_memory --optimizer=AdagradOptimizer,AdamOptimizer

Each system trains in a process of its own. The peak is above what the process has after the imports
of TensorFlow and this package; `over_content` is the peak over the bytes of tables and slots.
"""

import subprocess
import sys
from typing import Any

from absl import app, flags

from benchmarks.harness import machine, resources, workloads
from benchmarks.report import results

_WORKLOAD = flags.DEFINE_enum("workload", "W1", ["W1", "tiny"], "Tables and ids.")
_OPTIMIZER = flags.DEFINE_list("optimizer", ["AdagradOptimizer"], "Classes of v1 optimizers.")
_STEPS = flags.DEFINE_integer("steps", 30, "Steps of training.", lower_bound=1)
_MEMORY_OF = flags.DEFINE_enum("memory_of", None, ["stock", "ours"], "Print it, and stop.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

NUM_SLOTS = {"AdagradOptimizer": 1, "MomentumOptimizer": 1}  # of others 2
_ARGUMENTS: dict[str, tuple[float, ...]] = {"MomentumOptimizer": (0.05, 0.9)}


def main(_: list[str]) -> None:
    """Measures, and writes the JSON file."""
    if _MEMORY_OF.value:
        print(_peak_bytes(_MEMORY_OF.value, _OPTIMIZER.value[0]))
        return
    workload = workloads.WORKLOADS[_WORKLOAD.value]
    cells = [_cell(workload, optimizer) for optimizer in _OPTIMIZER.value]
    axes = {"workload": workload.name, "mode": "memory", "steps": _STEPS.value, "threads": 1}
    record = results.record_of("benchmarks.tables.training_memory", axes, cells)
    results.write(record, f"training_memory-{workload.name}-t1", _OUTPUT.value)


def _cell(workload: workloads.Workload, optimizer: str) -> dict[str, Any]:
    table_bytes = 4 * sum(column.rows * column.dim for column in workload.columns)
    content = table_bytes * (1 + NUM_SLOTS.get(optimizer, 2))
    systems = {}
    for system in ("stock", "ours"):
        command = [sys.executable, "-m", "benchmarks.tables.training_memory"]
        command += [f"--memory_of={system}", f"--optimizer={optimizer}", f"--steps={_STEPS.value}"]
        command += [f"--workload={workload.name}"]
        done = subprocess.run(
            command, check=True, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True
        )
        peak = int(done.stdout.split()[-1])
        systems[system] = {"peak_bytes": peak, "over_content": round(peak / content, 3)}
        print(
            f"{optimizer:<20} {system:<6} {peak / 2**20:9.0f} MiB {peak / content:6.3f} x content"
        )
    return {"phase": optimizer, "content_bytes": content, "systems": systems}


def _peak_bytes(system: str, optimizer: str) -> int:
    """Peak of this process above that of its imports, after some steps."""
    import tensorflow as tf

    import fused_embedding as fe
    from benchmarks.harness import sessions, systems

    before = resources.resident_bytes()
    workload, v1 = workloads.WORKLOADS[_WORKLOAD.value], tf.compat.v1
    train = fe.train if system == "ours" else v1.train
    with tf.Graph().as_default():
        tables = [
            v1.get_variable(f"table{i}", [column.rows, column.dim], use_resource=True)
            for i, column in enumerate(workload.columns)
        ]
        fed = [v1.placeholder(s.dtype, s.shape) for s in systems.fed_specs(workload)]
        inputs = systems.make_inputs(workload, fed)
        name = "group_fused" if system == "ours" else "stock"
        combined, trained = systems.SYSTEMS[name].lookup(inputs, tables)
        arguments = _ARGUMENTS.get(optimizer, (0.05,))
        step = getattr(train, optimizer)(*arguments).minimize(
            tf.reduce_sum(combined**2), var_list=trained
        )
        with v1.Session(config=sessions.session_config(threads=1)) as session:
            session.run(v1.global_variables_initializer())
            batches = workload.batches()
            for i in range(_STEPS.value):
                values = systems.feed(batches[i % len(batches)])
                session.run(step, dict(zip(fed, values, strict=True)))
    return resources.resident_bytes("VmHWM") - before


if __name__ == "__main__":
    app.run(main)
