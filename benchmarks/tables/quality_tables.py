"""Kinds of tables of a number of bytes: how they are made, and what they have at the end.

Bytes are those of values, headers and indices. Slots of optimizers are not counted.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import workloads
from benchmarks.tables import quality_tasks

KINDS = ("hash", "multi_hash", "adaptive", "dynamic_dimension")
# What docs/embedding_variable.md says of a key's place in an index: 6.7 to 18 bytes.
INDEX_BYTES = 18
NUM_BLOCKS = 4
# What keyed tables aim at, of a budget: how many rows they get is not known in advance.
AIM = {"adaptive": 0.95, "dynamic_dimension": 0.85}
# By so much less than a bound an id's count may be to reach it before the next update of bounds.
OVERSHOOT = 0.15
STDDEV = 0.05  # of first values
NEVER = np.iinfo(np.int64).max


class Plan(NamedTuple):
    """A kind of table of a budget.

    Attributes:
        kind: "full" or one of KINDS.
        options: How it is made.
        modulus: Of ids, for "hash".
    """

    kind: str
    options: dict[str, Any]
    modulus: int | None = None


class Counting(NamedTuple):
    """Ids of a training, as keyed tables will see them.

    Attributes:
        ordered: `[ids_seen]` occurrences of each id in a pass, the largest first.
        passes: Over the train rows.
    """

    ordered: np.ndarray
    passes: int

    @classmethod
    def of(cls, task: quality_tasks.Task) -> "Counting":
        """Those of a task."""
        counts = task.counts()
        return cls(np.sort(counts[counts > 0])[::-1], task.epochs)


def row_bytes(dim: int) -> int:
    """Bytes of a row of float32."""
    return 4 * dim


def key_bytes(dim: int) -> int:
    """Bytes of a key of an EmbeddingVariable with its row; dim 0: of one that has no row yet."""
    row = workloads.ROW_HEADER_BYTES + row_bytes(dim)
    return -(-row // 8) * 8 + INDEX_BYTES


def full_bytes(task: quality_tasks.Task) -> int:
    """Bytes of a table with a row for each id."""
    return task.num_ids * row_bytes(task.dim)


def plan(kind: str, task: quality_tasks.Task, budget: float) -> Plan:
    """Returns the largest table of a kind within `budget` bytes, or a small one if none is."""
    num_rows = max(int(budget // row_bytes(task.dim)), 1)
    if kind == "hash":
        return Plan(kind, {"num_rows": num_rows}, modulus=num_rows)
    if kind == "multi_hash":
        return Plan(kind, {"rows": multi_hash_rows(task.num_ids, num_rows)})
    counting = Counting.of(task)
    waiting = len(counting.ordered) * key_bytes(0)
    # Keys without a row may exceed the budget by themselves: it is then spent on rows.
    aim = AIM[kind] * budget
    room = aim - waiting if waiting < aim else aim
    if kind == "adaptive":
        return Plan(kind, _adaptive_options(task, counting, room))
    return Plan(kind, {"ratio": _ratio(task, counting, room), "num_blocks": NUM_BLOCKS})


def multi_hash_rows(num_ids: int, num_rows: int) -> tuple[int, int]:
    """Rows of quotients and remainders: the most remainders, or the fewest rows that there can be.

    >>> multi_hash_rows(1000, 100), multi_hash_rows(1000, 10)
    ((12, 88), (32, 32))
    """
    for remainders in range(num_rows - 1, math.isqrt(num_ids), -1):
        quotients = -(-num_ids // remainders)
        if quotients + remainders <= num_rows:
            return quotients, remainders
    remainders = math.isqrt(num_ids - 1) + 1
    return -(-num_ids // remainders), remainders


def _adaptive_options(task: quality_tasks.Task, counting: Counting, room: float) -> dict[str, int]:
    """A half of the bytes is for shared rows, and a half for those that ids have of their own."""
    own_bytes = key_bytes(task.dim) - key_bytes(0)
    num_own = min(int(room / 2 // own_bytes), len(counting.ordered) - 1)
    # The next id has to stay below: it is counted in all passes.
    filter_freq = int(counting.ordered[num_own]) * counting.passes + 1
    num_shared = max(int(room / 2 // row_bytes(task.dim)), 1)
    return {"num_shared": num_shared, "filter_freq": filter_freq}


def _ratio(task: quality_tasks.Task, counting: Counting, room: float) -> float:
    """Share of the blocks that ids have, so that blocks and their keys have `room` bytes."""
    from fused_embedding.variable.dynamic_dimension import block_shares

    per_block = key_bytes(task.dim // NUM_BLOCKS)
    low, high = 0.0005, 0.5
    for _ in range(30):
        middle = (low + high) / 2
        blocks = [_num_reaching(counting, share) for share in block_shares(NUM_BLOCKS, middle)]
        # A key that has a block does not wait.
        expected = per_block * sum(blocks) - key_bytes(0) * blocks[0]
        low, high = (middle, high) if expected <= room else (low, middle)
    return round(low, 6)


def _num_reaching(counting: Counting, share: float) -> int:
    """Ids that get a block which a share of the ids is to have: more, as counts grow and tie."""
    rank = int(share * len(counting.ordered))
    if rank == 0:
        return 0
    bound = counting.ordered[rank - 1] * (1 - OVERSHOOT)
    return int(np.searchsorted(-counting.ordered, -bound, side="right"))


def make(of_plan: Plan, task: quality_tasks.Task, seed: int) -> Any:
    """Makes the table, in the default graph."""
    import tensorflow as tf  # here, so that --help starts fast

    import fused_embedding as fe

    v1 = tf.compat.v1
    first = v1.truncated_normal_initializer(stddev=STDDEV, seed=seed)
    options, dim = of_plan.options, task.dim
    if of_plan.kind in ("full", "hash"):
        num_rows = options.get("num_rows", task.num_ids)
        return v1.get_variable("table", [num_rows, dim], initializer=first, use_resource=True)
    if of_plan.kind == "multi_hash":
        dims = [[rows, dim] for rows in options["rows"]]
        return fe.get_multihash_variable("table", dims, initializer=first, num_ids=task.num_ids)
    if of_plan.kind == "adaptive":
        admission = fe.CounterFilter(filter_freq=options["filter_freq"])
        return fe.get_adaptive_embedding_variable(
            *("table", dim, options["num_shared"]),
            initializer=first,
            ev_option=fe.EmbeddingVariableOption(filter_option=admission),
        )
    return fe.get_dynamic_dimension_embedding_variable(
        *("table", dim // options["num_blocks"], options["num_blocks"]),
        initializer=first,
        blocknums="frequency",
        compression_ratio=options["ratio"],
    )


def embedding_variables(of_plan: Plan, table: Any) -> list[Any]:
    """The EmbeddingVariables of a table."""
    if of_plan.kind == "adaptive":
        return [table.ev_weights]
    return list(table.blocks) if of_plan.kind == "dynamic_dimension" else []


@dataclasses.dataclass(frozen=True)
class Content:
    """What a table has after the training.

    Attributes:
        fixed_rows: Rows of variables.
        keyed_rows: Rows of EmbeddingVariables.
        keyed_dim: Length of each of these.
        waiting_keys: Keys that are counted and have no row.
    """

    fixed_rows: int
    keyed_rows: int = 0
    keyed_dim: int = 0
    waiting_keys: int = 0

    def num_bytes(self, dim: int) -> dict[str, int]:
        """Bytes in all, and of these what waiting keys have."""
        waiting = self.waiting_keys * key_bytes(0)
        keyed = self.keyed_rows * key_bytes(self.keyed_dim)
        return {
            "bytes": self.fixed_rows * row_bytes(dim) + keyed + waiting,
            "bytes_of_waiting_keys": waiting,
        }


def content(of_plan: Plan, task: quality_tasks.Task, sizes: list[tuple[int, int]]) -> Content:
    """What a table has.

    Args:
        of_plan: As it was made by.
        task: Of the table.
        sizes: Rows and waiting keys of each of its EmbeddingVariables.
    """
    options = of_plan.options
    keyed, waiting = (sum(each) for each in zip(*sizes, strict=True)) if sizes else (0, 0)
    fixed = {
        "full": lambda: task.num_ids,
        "hash": lambda: options["num_rows"],
        "multi_hash": lambda: sum(options["rows"]),
        "adaptive": lambda: options["num_shared"],
        "dynamic_dimension": lambda: 0,
    }[of_plan.kind]()
    keyed_dim = {"adaptive": task.dim, "dynamic_dimension": task.dim // NUM_BLOCKS}
    return Content(fixed, keyed, keyed_dim.get(of_plan.kind, 0), waiting)
