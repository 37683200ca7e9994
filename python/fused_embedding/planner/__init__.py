"""Plans of tables on parameter servers: docs/planner.md.

A plan decides which server has which shard of which table, how many rows a shard has and how much
memory. Names are TorchRec's; a rank is a parameter server.
"""

from fused_embedding.planner.costs import Costs
from fused_embedding.planner.enumerators import EmbeddingEnumerator, ShardingOption
from fused_embedding.planner.errors import PlannerError
from fused_embedding.planner.partitioners import GreedyPartitioner, GreedyProposer
from fused_embedding.planner.plan import PlannedTable, RankLoad, ShardingPlan
from fused_embedding.planner.planners import EmbeddingShardingPlanner
from fused_embedding.planner.statistics import KeyDistribution
from fused_embedding.planner.types import (
    EmbeddingBagConfig,
    EmbeddingConfig,
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
    ParameterConstraints,
    PoolingType,
    ShardingType,
    StorageReservation,
    Topology,
)

__all__ = [
    "Costs",
    "EmbeddingBagConfig",
    "EmbeddingConfig",
    "EmbeddingEnumerator",
    "EmbeddingShardingPlanner",
    "FixedPercentageStorageReservation",
    "GreedyPartitioner",
    "GreedyProposer",
    "HeuristicalStorageReservation",
    "KeyDistribution",
    "ParameterConstraints",
    "PlannedTable",
    "PlannerError",
    "PoolingType",
    "RankLoad",
    "ShardingOption",
    "ShardingPlan",
    "ShardingType",
    "StorageReservation",
    "Topology",
]


def __dir__() -> list[str]:
    return sorted(__all__)
