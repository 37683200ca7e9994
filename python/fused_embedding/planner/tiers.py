"""Which tables have rows on the SSD, and how much memory each has."""

import dataclasses

import numpy as np

from fused_embedding.planner.costs import Costs
from fused_embedding.planner.errors import PlannerError
from fused_embedding.planner.statistics import KeyDistribution
from fused_embedding.planner.types import (
    EmbeddingConfig,
    ParameterConstraints,
    ShardingType,
    Topology,
)
from fused_embedding.variable.storage_options import MIN_DRAM_BYTES

# Below this a table's rows stay in memory: a tier on an SSD needs 16 MiB for itself.
_LEAST_TIERED_BYTES = 4 * MIN_DRAM_BYTES
DEFAULT_ALPHA = 1.05


@dataclasses.dataclass
class Demand:
    """What a table needs of all ranks together, for a step of every worker.

    Attributes:
        config: The table.
        constraints: What is known of it.
        types: Sharding types that are allowed.
        distribution: How often keys occur.
        num_ids: Ids that a worker looks up in a step.
        distinct: Expected distinct keys of them.
        key_bytes: Memory of a key and its row.
        row_bytes: Of a row on the SSD.
        dram_bytes: Memory; without an SSD tier it is what all rows take.
        is_tiered: Whether it has rows on the SSD.
        hits: Expected distinct keys of a step whose rows are in memory.
    """

    config: EmbeddingConfig
    constraints: ParameterConstraints
    types: frozenset[ShardingType]
    distribution: KeyDistribution
    num_ids: float
    distinct: float
    key_bytes: float
    row_bytes: float
    dram_bytes: float
    is_tiered: bool = False
    hits: float = 0.0

    @property
    def ssd_bytes(self) -> float:
        """Bytes on the SSD: all rows, because a row in memory keeps its place there."""
        return self.config.num_embeddings * self.row_bytes if self.is_tiered else 0.0


def demand_of(
    config: EmbeddingConfig,
    constraints: ParameterConstraints,
    types: frozenset[ShardingType],
    batch_size: int,
) -> Demand:
    """What a table with all rows in memory needs."""
    layout = constraints.layout(config, config.embedding_dim)
    distribution = constraints.distribution or KeyDistribution.zipf(
        config.num_embeddings, DEFAULT_ALPHA
    )
    num_ids = constraints.ids_of_step(config, batch_size)
    distinct = distribution.expected_distinct(num_ids)
    return Demand(
        config=config,
        constraints=constraints,
        types=types,
        distribution=distribution,
        num_ids=num_ids,
        distinct=distinct,
        key_bytes=layout.key_bytes,
        row_bytes=layout.row_bytes,
        dram_bytes=config.num_embeddings * layout.key_bytes,
        hits=distinct,
    )


def use_ssd(demands: list[Demand], topology: Topology, costs: Costs, dram_bytes: float) -> None:
    """Gives tables an SSD tier if their rows do not fit in memory.

    Memory goes to the keys with the most seconds saved a byte. A key that is in a batch with
    the probability p saves p * read_seconds.

    Args:
        demands: The tables, which are changed.
        topology: The ranks.
        costs: What a read costs.
        dram_bytes: Memory of all ranks for these tables.

    Raises:
        PlannerError: If tables that cannot have an SSD tier do not fit in memory.
    """
    in_memory = sum(one.dram_bytes for one in demands)
    if in_memory <= dram_bytes or not topology.ssd_cap:
        return
    tiered = [one for one in demands if one.dram_bytes >= _LEAST_TIERED_BYTES]
    left = dram_bytes - (in_memory - sum(one.dram_bytes for one in tiered))
    room = left - MIN_DRAM_BYTES * len(tiered)
    if not tiered or room < 0:
        largest = max(demands, key=lambda one: one.dram_bytes)
        raise PlannerError(
            f"the tables need {in_memory:.0f} bytes of memory, and {dram_bytes:.0f} are there; "
            f"rows of {len(tiered)} tables can be on SSDs, which leaves "
            f"{MIN_DRAM_BYTES * max(len(tiered), 1) - left:.0f} bytes lacking; the largest table "
            f"is {largest.config.name!r}; raise ddr_cap or world_size"
        )
    for one, granted in zip(tiered, _granted(tiered, costs, room), strict=True):
        one.is_tiered = True
        one.dram_bytes = float(granted) + MIN_DRAM_BYTES
        rows = one.dram_bytes / one.key_bytes
        share = rows / one.config.num_embeddings * one.distribution.num_keys
        one.hits = one.distribution.expected_distinct(one.num_ids, share)


def _granted(tiered: list[Demand], costs: Costs, room: float) -> np.ndarray:
    """Bytes of `room` for each table: bins of keys in the order of seconds saved a byte."""
    gains = [
        one.distribution.presence(one.num_ids) * costs.read_seconds / one.key_bytes
        for one in tiered
    ]
    size = np.concatenate([_bin_bytes(one) for one in tiered])
    table = np.repeat(np.arange(len(tiered)), [len(gain) for gain in gains])
    order = np.argsort(-np.concatenate(gains), kind="stable")
    before = np.cumsum(size[order]) - size[order]
    granted = np.clip(room - before, 0, size[order])  # the last bin may get a part
    return np.bincount(table[order], weights=granted, minlength=len(tiered))


def _bin_bytes(demand: Demand) -> np.ndarray:
    """Memory of the keys of each bin; a log may have fewer keys than the table has rows."""
    widths = demand.distribution.widths
    return widths * (demand.config.num_embeddings * demand.key_bytes / widths.sum())
