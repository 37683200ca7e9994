"""A plan: which rank has which shard, as JSON with a digest, as text, and applied to a graph."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.planner import plan_report
from fused_embedding.planner.plan_checks import check_built, check_prefix, write_beside
from fused_embedding.planner.plan_saver import PlannedSaver
from fused_embedding.planner.types import ShardingType
from fused_embedding.variable.options import (
    EmbeddingVariableOption,
    StorageOption,
    StorageType,
)

VERSION = 1
_FORMAT = "fused_embedding sharding plan"
# What the digest is of: what a program that builds the tables must agree on.
_IDENTITY = (
    *("name", "dim", "dtype", "sharding_type", "ranks", "rows_per_rank", "is_tiered"),
    "partition_strategy",
)


@dataclasses.dataclass(frozen=True)
class PlannedTable:
    """What is planned for a table. Numbers are of each shard.

    Attributes:
        name: Name of the table.
        dim: Length of a row.
        dtype: Name of the dtype of the values.
        num_embeddings: Rows that the table was planned for.
        sharding_type: A value of ShardingType.
        ranks: The rank of each shard; () if each worker has the table.
        rows_per_rank: Most rows of a shard.
        is_tiered: Whether it has rows on the SSD.
        dram_bytes: Memory.
        ssd_bytes: On the SSD.
        seconds: Predicted seconds of its server for a step of every worker.
        keys: Predicted distinct keys of a worker's step.
        partition_strategy: How keys are assigned to shards.
    """

    name: str
    dim: int
    dtype: str
    num_embeddings: int
    sharding_type: str
    ranks: tuple[int, ...]
    rows_per_rank: int
    is_tiered: bool
    dram_bytes: int
    ssd_bytes: int
    seconds: float
    keys: float
    partition_strategy: str = "hash"


@dataclasses.dataclass(frozen=True)
class RankLoad:
    """What a rank is predicted to need, or what it has.

    Attributes:
        seconds: Of a step of every worker.
        dram_bytes: Memory.
        ssd_bytes: On the SSD.
    """

    seconds: float
    dram_bytes: int
    ssd_bytes: int


class ShardingPlan:
    """Which rank has which shard of which table.

    Attributes:
        tables: `{name: PlannedTable}` in the order of the configs.
        loads: A RankLoad for each rank.
        budget: What a rank may need; its `seconds` are those of a rank without tables.
        ssd_path: Folder on the SSD of each rank; None: there is none.
        ev_options: `{name: EmbeddingVariableOption}` that `ev_option` completes. They are not
            saved.
    """

    def __init__(
        self,
        tables: Sequence[PlannedTable],
        loads: Sequence[RankLoad],
        budget: RankLoad,
        *,
        ssd_path: str | None = None,
        ev_options: Mapping[str, EmbeddingVariableOption] | None = None,
    ) -> None:
        self.tables = {table.name: table for table in tables}
        self.loads = list(loads)
        self.budget = budget
        self.ssd_path = ssd_path
        self.ev_options = dict(ev_options or {})

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.loads)

    @property
    def digest(self) -> str:
        """64 hex digits of what programs must agree on: names, dims, shards, strategy, version."""
        tables = [
            {field: getattr(table, field) for field in _IDENTITY} for table in self.tables.values()
        ]
        tables.sort(key=lambda table: table["name"])
        identity = {"version": VERSION, "world_size": self.world_size, "tables": tables}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def table(self, name: str) -> PlannedTable:
        """What is planned for a table.

        Raises:
            ValueError: If the plan has no such table.
        """
        if name not in self.tables:
            raise ValueError(f"the plan has no table {name!r}; it has {list(self.tables)}")
        return self.tables[name]

    def ranks(self, name: str) -> tuple[int, ...]:
        """The rank of each partition of a table."""
        return self.table(name).ranks

    # --- JSON ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan and its digest as JSON."""
        content = {
            "format": _FORMAT,
            "version": VERSION,
            "digest": self.digest,
            "ssd_path": self.ssd_path,
            "budget": dataclasses.asdict(self.budget),
            "loads": [dataclasses.asdict(load) for load in self.loads],
            "tables": [dataclasses.asdict(table) for table in self.tables.values()],
        }
        with open(path, "w") as file:
            json.dump(content, file, indent=1)
            file.write("\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str], digest: str | None = None) -> "ShardingPlan":
        """Reads the file of `save`.

        Args:
            path: The file.
            digest: The digest that the plan must have; None: the file's own.

        Returns:
            The plan, without `ev_options`.

        Raises:
            ValueError: If the file is no plan, is of another version, was edited, or has another
                digest.
            OSError: If it cannot be read.
        """
        with open(path) as file:
            try:
                content = json.load(file)
                plan = cls._of_json(content)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{os.fspath(path)} is no plan: {error}; plan again") from error
        if content["digest"] != plan.digest:
            raise ValueError(
                f"{os.fspath(path)} has the digest {content['digest']}, but its tables have "
                f"{plan.digest}: it was edited; plan again"
            )
        if digest not in (None, plan.digest):
            raise ValueError(
                f"{os.fspath(path)} has the digest {plan.digest}, but {digest} is required: it is "
                "another plan; pass the one that the other tasks have"
            )
        return plan

    @classmethod
    def _of_json(cls, content: dict[str, Any]) -> "ShardingPlan":
        kind = (content.get("format"), content.get("version"))
        if kind != (_FORMAT, VERSION):
            raise ValueError(f"its format and version are {kind}, not {(_FORMAT, VERSION)}")
        tables = [
            PlannedTable(**{**table, "ranks": tuple(table["ranks"])}) for table in content["tables"]
        ]
        loads = [RankLoad(**load) for load in content["loads"]]
        budget = RankLoad(**content["budget"])
        return cls(tables, loads, budget, ssd_path=content["ssd_path"])

    # --- Text and plot ---

    def report(self) -> str:
        """The plan as text: tables from the costliest on, ranks, and how even they are."""
        return plan_report.text(self)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draws seconds and bytes of each rank.

        Args:
            path: File to write; its ending names the format: .png, .svg, .pdf.

        Raises:
            ImportError: If matplotlib is not installed: `pip install matplotlib`.
        """
        plan_report.plot(self, path)

    # --- In a program ---

    def device_setter(
        self, worker_device: str = "/job:worker", ps_device: str = "/job:ps"
    ) -> Callable[[tf.Operation], str]:
        """The device of each op, for tf.compat.v1.device: rank i is task i of `ps_device`.

        Tables of the plan are on their ranks, other variables on the ranks in turn.

        Args:
            worker_device: Device of all other ops.
            ps_device: Device of the servers, without a task.

        Returns:
            The device function. It raises ValueError for a table in more partitions than planned,
            and for one with a sharding type that TensorFlow cannot apply.
        """
        return tf.compat.v1.train.replica_device_setter(
            ps_tasks=self.world_size,
            ps_device=ps_device,
            worker_device=worker_device,
            ps_strategy=_RanksOfOps(self),
        )

    def partitioner(self, name: str) -> Any:
        """The `partitioner` for fe.get_embedding_variable; None: the table is in one piece.

        Raises:
            ValueError: If the plan has no such table.
            NotImplementedError: If it is DATA_PARALLEL or COLUMN_WISE.
        """
        ranks = self._applicable(name).ranks
        return tf.compat.v1.fixed_size_partitioner(len(ranks)) if len(ranks) > 1 else None

    def ev_option(
        self, name: str, ev_option: EmbeddingVariableOption | None = None
    ) -> EmbeddingVariableOption:
        """The `ev_option` for fe.get_embedding_variable: rows and storage of each partition.

        A table in memory gets `max_capacity`, and evicts by "lru" unless its options say "lfu". A
        table with rows on the SSD gets a StorageOption with its memory.

        Args:
            name: The table.
            ev_option: Options to complete; None: the constraints', or the defaults.

        Returns:
            The options.

        Raises:
            ValueError: If the plan has no such table, or no folder on the SSD.
            NotImplementedError: If the table is DATA_PARALLEL or COLUMN_WISE.
        """
        table = self._applicable(name)
        base = ev_option or self.ev_options.get(name) or EmbeddingVariableOption()
        if not table.is_tiered:
            eviction = base.eviction or "lru"
            return dataclasses.replace(base, max_capacity=table.rows_per_rank, eviction=eviction)
        if self.ssd_path is None:
            raise ValueError(
                f"the table {name!r} has rows on the SSD, but the topology has no ssd_path: the "
                "folder for them; pass Topology(ssd_path=...)"
            )
        storage = StorageOption(StorageType.DRAM_SSD, self.ssd_path, (table.dram_bytes,))
        return dataclasses.replace(base, storage_option=storage, max_capacity=None, eviction=None)

    def _applicable(self, name: str) -> PlannedTable:
        table = self.table(name)
        if table.sharding_type in (
            ShardingType.DATA_PARALLEL.value,
            ShardingType.COLUMN_WISE.value,
        ):
            raise NotImplementedError(
                f"the table {name!r} is planned as {table.sharding_type}, which this release plans "
                "but cannot apply: an EmbeddingVariable is divided by keys, and TensorFlow keeps "
                "no copies of it alike; plan with sharding_types table_wise and row_wise, or make "
                "the table of ordinary variables"
            )
        return table

    # --- Checks ---

    def check(self, variables: Any) -> None:
        """Checks that tables were made as planned.

        Args:
            variables: A tf.Graph, whose EmbeddingVariables are checked, or a list of
                EmbeddingVariables and partitioned ones.

        Raises:
            ValueError: If a planned table is missing, or has another dim, dtype, number of
                partitions or, in a graph with parameter servers, other tasks.
        """
        check_built(self, variables)

    def save_digest(self, prefix: str) -> None:
        """Writes the digest beside the checkpoint `prefix`.

        TensorFlow's savers remove the file with the checkpoint.
        """
        write_beside(self.digest, prefix)

    def check_digest(self, prefix: str) -> None:
        """Checks that a checkpoint was saved with this plan.

        A checkpoint without a digest is accepted: it is older, or was saved without a plan.

        Args:
            prefix: Prefix of the checkpoint.

        Raises:
            ValueError: If it was saved with another plan.
        """
        check_prefix(self.digest, prefix)

    def saver(self, *args: Any, from_plans: Sequence[str] = (), **kwargs: Any) -> PlannedSaver:
        """An fe.train.Saver whose checkpoints keep the digest, for tf.compat.v1.train.Scaffold.

        Its `restore` raises ValueError for a checkpoint that was saved with another plan.

        Args:
            *args: Arguments of fe.train.Saver.
            from_plans: Digests of plans whose checkpoints are restored too: their tables are
                divided anew, as when a server is added.
            **kwargs: Arguments of fe.train.Saver.

        Returns:
            The Saver.
        """
        return PlannedSaver(self, *args, from_plans=from_plans, **kwargs)

    def saver_listener(self) -> tf.compat.v1.train.CheckpointSaverListener:
        """A listener for tf.compat.v1.train.CheckpointSaverHook that saves the digest each time."""
        return _DigestListener(self)


class _DigestListener(tf.compat.v1.train.CheckpointSaverListener):
    def __init__(self, plan: ShardingPlan) -> None:
        self._plan = plan

    def begin(self) -> None:
        """Does nothing."""

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Writes the digest beside the newest checkpoint of the graph's saver."""
        savers = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
        for saver in savers:
            for prefix in saver.last_checkpoints[-1:]:
                self._plan.save_digest(prefix)


class _RanksOfOps:
    """The `ps_strategy` of a plan: the rank of an op that makes a variable."""

    def __init__(self, plan: ShardingPlan) -> None:
        self._plan = plan
        self._next = 0

    def __call__(self, op: tf.Operation) -> int:
        name, _, part = op.name.rpartition("/part_")
        if name in self._plan.tables and part.isdigit():
            return self._rank(name, int(part))
        if op.name in self._plan.tables:
            return self._rank(op.name, 0)
        rank = self._next
        self._next = (rank + 1) % self._plan.world_size
        return rank

    def _rank(self, name: str, part: int) -> int:
        table = self._plan._applicable(name)
        if part >= len(table.ranks):
            raise ValueError(
                f"the graph makes partition {part} of the table {name!r}, but {len(table.ranks)} "
                f"are planned; pass partitioner=plan.partitioner({name!r})"
            )
        return table.ranks[part]
