"""Whether a program and its checkpoints are of a plan."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable
from fused_embedding.variable.scope import EMBEDDING_VARIABLES

if TYPE_CHECKING:
    from fused_embedding.planner.plan import PlannedTable, ShardingPlan

# TensorFlow removes files of this form with the checkpoint; its own have digits, tables' begin
# with "e": checkpoint/side_files.py.
_SUFFIX = ".data-plan_-of-digst"


def write_beside(digest: str, prefix: str) -> None:
    """Writes a digest beside a checkpoint; the file appears whole or not at all."""
    unfinished = f"{prefix}{_SUFFIX}.tmp"
    with open(unfinished, "w") as file:
        file.write(digest)
    os.replace(unfinished, prefix + _SUFFIX)


def check_prefix(digest: str, prefix: str, accepted: Sequence[str] = ()) -> None:
    """Refuses a checkpoint that has another digest beside it, unless that is `accepted`."""
    if not os.path.exists(f"{prefix}.index"):
        raise ValueError(f"there is no checkpoint {prefix}: {prefix}.index does not exist")
    try:
        with open(prefix + _SUFFIX) as file:
            saved = file.read().strip()
    except FileNotFoundError:
        return
    if saved not in (digest, *accepted):
        raise ValueError(
            f"the checkpoint {prefix} was saved with the plan {saved}, but this program has the "
            f"plan {digest}; load the plan that it was saved with, or name it in from_plans "
            "of plan.saver if tables are meant to be divided anew"
        )


def check_built(plan: "ShardingPlan", variables: Any) -> None:
    """Refuses tables that are not as planned."""
    built = _parts_by_name(variables)
    for table in plan.tables.values():
        if not table.ranks:
            continue
        parts = built.get(table.name)
        if parts is None:
            raise ValueError(
                f"the table {table.name!r} is planned, but the program has {sorted(built)}"
            )
        _check_table(table, parts)


def _parts_by_name(variables: Any) -> dict[str, list[EmbeddingVariable]]:
    if isinstance(variables, tf.Graph):
        variables = variables.get_collection(EMBEDDING_VARIABLES)
    built: dict[str, dict[int, EmbeddingVariable]] = {}
    for part in _flat(variables):
        built.setdefault(part.partition.whole_name, {})[part.partition.index] = part
    return {name: [parts[i] for i in sorted(parts)] for name, parts in built.items()}


def _flat(variables: Iterable[Any]) -> Iterable[EmbeddingVariable]:
    for variable in variables:
        is_partitioned = isinstance(variable, PartitionedEmbeddingVariable)
        yield from list(variable) if is_partitioned else [variable]


def _check_table(table: "PlannedTable", parts: list[EmbeddingVariable]) -> None:
    tasks = tuple(tf.DeviceSpec.from_string(part.handle.device).task for part in parts)
    pairs = {
        "dim": (parts[0].embedding_dim, table.dim),
        "dtype": (parts[0].dtype.name, table.dtype),
        "partitions": (len(parts), len(table.ranks)),
        "partition_strategy": (parts[0].partition.strategy, table.partition_strategy),
    }
    has_servers = not tf.executing_eagerly() and _is_on_server(parts[0])
    if has_servers and len(parts) == len(table.ranks):
        pairs["tasks"] = (tasks, table.ranks)
    different = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if different:
        differences = ", ".join(
            f"{k} {was!r}, planned {want!r}" for k, (was, want) in different.items()
        )
        raise ValueError(
            f"the table {table.name!r} is not as planned: {differences}; make it with "
            "plan.partitioner, plan.ev_option and in plan.device_setter"
        )


def _is_on_server(part: EmbeddingVariable) -> bool:
    return tf.DeviceSpec.from_string(part.handle.device).job not in (None, "localhost")
