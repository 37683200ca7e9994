"""Predicted and measured CPU of parameter servers on this machine, for a plan of fe.planner.

`python -m benchmarks.distributed.planned_servers --servers=2,3,4` measures the costs of this
machine, plans tables, makes them on servers by the plan, trains them by one worker, and prints the
CPU of a step that the plan predicts for each server and what was measured. Writes one JSON file.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags

import fused_embedding as fe
from benchmarks.report import results
from fused_embedding.inspection import local_servers
from fused_embedding.inspection.calibration import ROWS, TableStep, calibrate, measure_step

planner = fe.planner

_SERVERS = flags.DEFINE_list("servers", ["2", "3", "4"], "Numbers of servers to try.")
_SECONDS = flags.DEFINE_float("seconds", 2.0, "Time for each measurement.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 512, "Examples of a step.")
_COSTS = flags.DEFINE_string("costs", None, "Costs of this machine; else they are measured.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

# Dim, pooling factor and exponent of each table; each has ROWS rows.
TABLES = (
    *((16, 1, 1.05), (16, 20, 1.2), (32, 5, 1.05), (64, 1, 1.1), (8, 10, 0.8), (16, 5, 1.3)),
    *((32, 20, 1.0), (64, 5, 1.2), (8, 1, 1.05), (16, 10, 1.1)),
)


def configs_and_constraints() -> tuple[list[Any], dict[str, Any]]:
    configs = [planner.EmbeddingConfig(ROWS, dim, f"t{i}") for i, (dim, _, _) in enumerate(TABLES)]
    constraints = {
        f"t{i}": planner.ParameterConstraints(
            pooling_factors=[pooling], distribution=planner.KeyDistribution.zipf(ROWS, alpha)
        )
        for i, (_, pooling, alpha) in enumerate(TABLES)
    }
    return configs, constraints


def batches(batch_size: int) -> Iterator[list[np.ndarray]]:
    rng = np.random.default_rng(1)
    made = []
    ends = [np.cumsum(np.arange(1, ROWS + 1) ** -alpha) for _, _, alpha in TABLES]
    for _ in range(8):
        draws = [rng.random(batch_size * pooling) for _, pooling, _ in TABLES]
        made.append([np.searchsorted(e, d * e[-1]) for e, d in zip(ends, draws, strict=True)])
    while True:
        yield from made


def made_tables(plan: Any, configs: Sequence[Any]) -> list[Any]:
    """The tables as the plan says, without its bounds: every row stays."""
    with tf.compat.v1.device(plan.device_setter("/job:worker/task:0")):
        return [
            fe.get_embedding_variable(
                config.name, config.embedding_dim, partitioner=plan.partitioner(config.name)
            )
            for config in configs
        ]


def compare(num_servers: int, costs: Any) -> dict[str, Any]:
    configs, constraints = configs_and_constraints()
    # Without a network, seconds are those of the CPU.
    topology = planner.Topology(num_servers, num_workers=1, inter_host_bw=float("inf"))
    plan = planner.EmbeddingShardingPlanner(
        topology, _BATCH_SIZE.value, performance_model=costs, constraints=constraints
    ).plan(configs)
    with local_servers.running(num_servers) as cluster:
        step = TableStep(lambda: made_tables(plan, configs))
        measured, num_messages = measure_step(
            cluster, step, batches(_BATCH_SIZE.value), _SECONDS.value
        )
    predicted = [load.seconds for load in plan.loads]
    for rank, (want, got) in enumerate(zip(predicted, measured, strict=True)):
        print(
            f"{num_servers} servers, server {rank}: predicted {1e6 * want:.0f} us, measured "
            f"{1e6 * got:.0f} us, {want / got - 1:+.1%}"
        )
    shards = sum(len(table.ranks) for table in plan.tables.values())
    return {
        "servers": num_servers,
        "shards": shards,
        "messages": num_messages,
        "predicted_seconds": predicted,
        "measured_seconds": measured,
    }


def main(argv: Sequence[str]) -> None:
    del argv
    costs = planner.Costs.load(_COSTS.value) if _COSTS.value else calibrate(_SECONDS.value, print)
    cases = [compare(int(number), costs) for number in _SERVERS.value]
    ratios = [
        want / got - 1
        for case in cases
        for want, got in zip(case["predicted_seconds"], case["measured_seconds"], strict=True)
    ]
    print(f"largest error {max(map(abs, ratios)):.1%}")
    cells = [{"phase": f"{case['servers']} servers", **case} for case in cases]
    axes: dict[str, Any] = {"mode": "planned_servers", "workload": "planned_tables"}
    axes |= {"batch_size": _BATCH_SIZE.value, "costs": vars(costs)}
    record = results.record_of("benchmarks.distributed.planned_servers", axes, cells)
    results.write(record, "planned_servers", _OUTPUT.value)


if __name__ == "__main__":
    app.run(main)
