"""The planner: options, proposals, placements, and the best of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.planner.costs import Costs
from fused_embedding.planner.enumerators import EmbeddingEnumerator, ShardingOption
from fused_embedding.planner.errors import PlannerError
from fused_embedding.planner.partitioners import (
    Budget,
    GreedyPartitioner,
    GreedyProposer,
    Placement,
    Scale,
)
from fused_embedding.planner.plan import PlannedTable, RankLoad, ShardingPlan
from fused_embedding.planner.types import (
    EmbeddingConfig,
    HeuristicalStorageReservation,
    ParameterConstraints,
    ShardingType,
    StorageReservation,
    Topology,
)

# Memory that tables with rows on SSDs plan with: less where the rest does not divide evenly.
_DRAM_SHARES = (0.98, 0.9, 0.75, 0.5)


class EmbeddingShardingPlanner:
    """Decides on which servers each table is, and what each server stores.

    Args:
        topology: The ranks; None: the enumerator's.
        batch_size: Examples of a worker's step; None: the enumerator's, or 512.
        enumerator: Lists the ways to divide each table; None: an EmbeddingEnumerator.
        storage_reservation: What tables may not use; None: a HeuristicalStorageReservation.
        proposer: Chooses how many shards each table has; None: a GreedyProposer.
        partitioner: Places shards; None: a GreedyPartitioner.
        performance_model: Costs; None: the enumerator's.
        stats: Must be None: `ShardingPlan.report` prints a plan.
        constraints: By table; None: the enumerator's.
        debug: Whether `plan` prints the report.

    Raises:
        ValueError: If there is no topology, or it is not the enumerator's.
    """

    def __init__(
        self,
        topology: Topology | None = None,
        batch_size: int | None = None,
        enumerator: EmbeddingEnumerator | None = None,
        storage_reservation: StorageReservation | None = None,
        proposer: GreedyProposer | None = None,
        partitioner: GreedyPartitioner | None = None,
        performance_model: Costs | None = None,
        stats: Any = None,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        debug: bool = False,
    ) -> None:
        if stats is not None:
            raise ValueError(f"stats = {stats!r} was given; print plan.report() instead")
        if enumerator is None:
            if topology is None:
                raise ValueError("topology is required: it says how many servers there are")
            enumerator = EmbeddingEnumerator(topology, batch_size, constraints, performance_model)
        if topology not in (None, enumerator.topology):
            raise ValueError(
                f"topology is {topology}, and the enumerator's {enumerator.topology}; pass the "
                "same one"
            )
        enumerator.update(batch_size, constraints, performance_model)
        self.topology = enumerator.topology
        self.enumerator = enumerator
        self._reservation = storage_reservation or HeuristicalStorageReservation()
        self._proposer = proposer or GreedyProposer()
        self._partitioner = partitioner or GreedyPartitioner()
        self._debug = debug

    def plan(self, eb_configs: Sequence[EmbeddingConfig]) -> ShardingPlan:
        """Plans tables.

        Args:
            eb_configs: The tables.

        Returns:
            The plan with the smallest objective: the largest seconds of a rank by their mean, and
            a quarter of the largest memory of a rank by its mean.

        Raises:
            PlannerError: If tables do not fit; it names a table and the bytes lacking.
            ValueError: For tables with the same name, or constraints of an unknown table.
        """
        self._check_names(eb_configs)
        errors = []
        for share in _DRAM_SHARES if self.topology.ssd_cap else (1.0,):
            try:
                options = self.enumerator.enumerate(eb_configs, self._reservation, share)
                placed, budget = self._best(options)
            except PlannerError as error:
                errors.append(error)
                continue
            plan = self._made(placed, budget)
            if self._debug:
                print(plan.report())
            return plan
        raise errors[0]

    def budget(self, options: Sequence[Sequence[ShardingOption]]) -> Budget:
        """What a rank can take."""
        demands = [one[0].demand for one in options if one[0].num_shards]
        message_bytes = self.enumerator.message_bytes(demands)
        dram, ssd = self._reservation.budget(self.topology, message_bytes)
        seconds = self.topology.workers * self.enumerator.costs.seconds_of_server
        return Budget(self.topology.world_size, np.floor(dram), np.floor(ssd), seconds)

    def _check_names(self, eb_configs: Sequence[EmbeddingConfig]) -> None:
        names = [config.name for config in eb_configs]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"tables must have different names, but there are two of {twice}")
        unknown = sorted(set(self.enumerator.constraints) - set(names))
        if unknown:
            raise ValueError(f"constraints are of the tables {unknown}, which are not in {names}")

    def _best(self, options: Sequence[Sequence[ShardingOption]]) -> tuple[Placement, Budget]:
        budget = self.budget(options)
        scale = Scale(options, budget)
        placements, errors = [], []
        for proposal in self._proposer.proposals(options, budget):
            try:
                placements.append(self._partitioner.partition(proposal, options, budget))
            except PlannerError as error:
                errors.append(error)
        if not placements:
            raise errors[0]
        return min(placements, key=lambda one: scale.objective(one.loads)), budget

    def _made(self, placed: Placement, budget: Budget) -> ShardingPlan:
        tables = [
            _planned(option, ranks)
            for option, ranks in zip(placed.options, placed.ranks, strict=True)
        ]
        loads = [
            RankLoad(float(seconds) + budget.seconds, int(dram), int(ssd))
            for seconds, dram, ssd in placed.loads
        ]
        options = {
            option.name: option.demand.constraints.ev_option
            for option in placed.options
            if option.demand.constraints.ev_option is not None
        }
        return ShardingPlan(
            tables,
            loads,
            RankLoad(budget.seconds, int(budget.dram_bytes), int(budget.ssd_bytes)),
            ssd_path=self.topology.ssd_path,
            ev_options=options,
        )


def _planned(option: ShardingOption, ranks: tuple[int, ...]) -> PlannedTable:
    demand = option.demand
    # A lookup in a column shard has all keys of the batch, in a row shard its share.
    is_by_rows = option.sharding_type == ShardingType.ROW_WISE
    return PlannedTable(
        name=demand.config.name,
        dim=demand.config.embedding_dim,
        dtype=tf.as_dtype(demand.config.data_type).name,
        num_embeddings=demand.config.num_embeddings,
        sharding_type=option.sharding_type.value,
        ranks=ranks,
        rows_per_rank=option.rows_per_rank,
        is_tiered=demand.is_tiered,
        dram_bytes=int(option.dram_bytes),
        ssd_bytes=int(option.ssd_bytes),
        seconds=option.seconds,
        keys=demand.distinct / (max(option.num_shards, 1) if is_by_rows else 1),
    )
