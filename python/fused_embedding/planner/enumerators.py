"""The ways to divide each table, and what each shard then costs its rank."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from fused_embedding.planner.costs import Costs
from fused_embedding.planner.tiers import Demand, demand_of, use_ssd
from fused_embedding.planner.types import (
    EmbeddingConfig,
    ParameterConstraints,
    ShardingType,
    StorageReservation,
    Topology,
)
from fused_embedding.variable.storage_options import MIN_DRAM_BYTES

BATCH_SIZE = 512
# What EmbeddingVariables can be made of.
DEFAULT_SHARDING_TYPES = (ShardingType.TABLE_WISE.value, ShardingType.ROW_WISE.value)
_SMALL_TABLE_BYTES = 1e6  # a copy on each worker costs less than messages
_WIDE_ROW_BYTES = 16 << 10  # a row that is worth being divided
_MIN_COLUMNS = 32


@dataclasses.dataclass(frozen=True)
class ShardingOption:
    """One way to divide a table. Numbers are of each shard, for a step of every worker.

    Attributes:
        demand: The table.
        sharding_type: How it is divided.
        num_shards: Number of ranks that have a shard; 0: none, each worker has the table.
        rows_per_rank: Most rows of a shard.
        seconds: CPU and network of its server.
        dram_bytes: Memory.
        ssd_bytes: On the SSD.
    """

    demand: Demand
    sharding_type: ShardingType
    num_shards: int
    rows_per_rank: int
    seconds: float
    dram_bytes: float
    ssd_bytes: float

    @property
    def name(self) -> str:
        """The table."""
        return self.demand.config.name


class EmbeddingEnumerator:
    """Lists the ways to divide each table.

    Tables of up to 1 MB are on each worker if DATA_PARALLEL is allowed. Rows above 16 KiB are
    divided if COLUMN_WISE is. All other tables are on 1, 2, 4, ... or all ranks.

    Args:
        topology: The ranks.
        batch_size: Examples of a worker's step; None: 512.
        constraints: By table; a table without has ParameterConstraints().
        estimator: Costs of a server; None: Costs().
        use_exact_enumerate_order: Accepted and ignored: the order is the configs'.
        sharding_types: Types for tables whose constraints name none.
        rows_rounding: "power_of_two", or a number: rows a rank are rounded up to a multiple.

    Raises:
        ValueError: For another batch_size or rows_rounding.
        TypeError: If `estimator` is no Costs.
    """

    def __init__(
        self,
        topology: Topology,
        batch_size: int | None = BATCH_SIZE,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        estimator: Costs | None = None,
        use_exact_enumerate_order: bool = False,
        *,
        sharding_types: Sequence[str] = DEFAULT_SHARDING_TYPES,
        rows_rounding: str | int = "power_of_two",
    ) -> None:
        self.topology = topology
        self.batch_size = BATCH_SIZE if batch_size is None else batch_size
        self.constraints = dict(constraints or {})
        self.costs = Costs() if estimator is None else estimator
        if not isinstance(self.costs, Costs):
            raise TypeError(f"estimator must be an fe.planner.Costs or None, got {estimator!r}")
        self.sharding_types = tuple(sharding_types)
        self.rows_rounding = rows_rounding
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be > 0, got {batch_size}")
        if rows_rounding != "power_of_two" and not (
            isinstance(rows_rounding, int) and rows_rounding >= 1
        ):
            raise ValueError(
                f"rows_rounding must be 'power_of_two' or a number of rows, got {rows_rounding!r}"
            )

    def update(
        self,
        batch_size: int | None,
        constraints: Mapping[str, ParameterConstraints] | None,
        costs: Costs | None,
    ) -> None:
        """Replaces what is not None, as a planner's arguments do."""
        if constraints is not None:
            self.constraints = dict(constraints)
        self.batch_size = self.batch_size if batch_size is None else batch_size
        self.costs = costs or self.costs

    def enumerate(
        self,
        eb_configs: Sequence[EmbeddingConfig],
        storage_reservation: StorageReservation | None = None,
        dram_share: float = 1.0,
    ) -> list[list[ShardingOption]]:
        """Lists the options of tables.

        Args:
            eb_configs: The tables.
            storage_reservation: What tables may not use; None: 15 %.
            dram_share: Share of the memory that tables with rows on SSDs plan with.

        Returns:
            For each table its options, from few shards to many.

        Raises:
            PlannerError: If tables do not fit in memory.
        """
        demands = [self._demand(config) for config in eb_configs]
        reservation = storage_reservation or StorageReservation()
        dram, _ = reservation.budget(self.topology, self.message_bytes(demands))
        on_ranks = [one for one in demands if not _is_on_workers(one)]
        use_ssd(on_ranks, self.topology, self.costs, dram * self.topology.world_size * dram_share)
        return [list(self._options(demand)) for demand in demands]

    def message_bytes(self, demands: Sequence[Demand]) -> float:
        """Bytes that a worker and a rank exchange in a step, if keys are spread evenly."""
        total = sum(
            one.distinct * self.costs.bytes_of_key(one.config.embedding_dim, one.config.data_type)
            for one in demands
        )
        return total / self.topology.world_size

    def constraints_of(self, config: EmbeddingConfig) -> ParameterConstraints:
        """The constraints of a table."""
        return self.constraints.get(config.name) or ParameterConstraints()

    def _demand(self, config: EmbeddingConfig) -> Demand:
        constraints = self.constraints_of(config)
        names = constraints.sharding_types or self.sharding_types
        types = frozenset(ShardingType(name) for name in names)
        return demand_of(config, constraints, types, self.batch_size)

    def _options(self, demand: Demand) -> Iterable[ShardingOption]:
        if _is_on_workers(demand):
            rows = demand.config.num_embeddings
            yield _option(demand, ShardingType.DATA_PARALLEL, 0, rows, [0.0, 0.0, 0.0])
            return
        counts = self._column_shards(demand)
        if counts:
            for count in counts:
                yield self._by_columns(demand, count)
            return
        for count in self._row_shards(demand):
            yield self._by_rows(demand, count)

    def _row_shards(self, demand: Demand) -> list[int]:
        world = self.topology.world_size
        constraints, types = demand.constraints, demand.types
        if constraints.num_shards is not None:
            if not 1 <= constraints.num_shards <= world:
                raise ValueError(
                    f"num_shards of {demand.config.name!r} must be 1 to world_size = {world}, got "
                    f"{constraints.num_shards}"
                )
            return [constraints.num_shards]
        counts = [1] if ShardingType.TABLE_WISE in types or world == 1 else []
        if ShardingType.ROW_WISE in types:
            powers = [2**i for i in range(1, world.bit_length()) if 2**i <= world]
            counts += sorted({*powers, world} - {1})
        if not counts:
            named = sorted(one.value for one in types)
            raise ValueError(
                f"sharding_types of {demand.config.name!r} are {named}, but it has "
                f"{demand.dram_bytes:.0f} bytes and rows of {demand.row_bytes:.0f} bytes: "
                f"data_parallel is for tables of up to {_SMALL_TABLE_BYTES:.0f} bytes, column_wise "
                f"for rows above {_WIDE_ROW_BYTES}; allow table_wise or row_wise too"
            )
        return counts

    def _column_shards(self, demand: Demand) -> list[int]:
        config = demand.config
        value_bytes = tf.as_dtype(config.data_type).size
        if ShardingType.COLUMN_WISE not in demand.types or (
            config.embedding_dim * value_bytes <= _WIDE_ROW_BYTES
        ):
            return []
        least = demand.constraints.min_partition or _MIN_COLUMNS
        most = min(config.embedding_dim // least, self.topology.world_size)
        return [2**i for i in range(1, most.bit_length()) if 2**i <= most]

    def _by_rows(self, demand: Demand, count: int) -> ShardingOption:
        config = demand.config
        rows = self.round_rows(math.ceil(config.num_embeddings / count), demand.constraints)
        dram = rows * demand.key_bytes
        if demand.is_tiered:
            dram = max(demand.dram_bytes / count, MIN_DRAM_BYTES)
        kind = ShardingType.TABLE_WISE if count == 1 else ShardingType.ROW_WISE
        seconds = self._seconds(demand, config.embedding_dim, demand.distinct / count, count)
        return _option(demand, kind, count, rows, [seconds, dram, demand.ssd_bytes / count])

    def _by_columns(self, demand: Demand, count: int) -> ShardingOption:
        config = demand.config
        dim = math.ceil(config.embedding_dim / count)
        rows = self.round_rows(config.num_embeddings, demand.constraints)
        dram = rows * demand.constraints.layout(config, dim).key_bytes
        if demand.is_tiered:
            dram = max(demand.dram_bytes / count, MIN_DRAM_BYTES)
        seconds = self._seconds(demand, dim, demand.distinct, count)
        kind = ShardingType.COLUMN_WISE
        return _option(demand, kind, count, rows, [seconds, dram, demand.ssd_bytes / count])

    def _seconds(self, demand: Demand, dim: int, num_keys: float, count: int) -> float:
        """Seconds of a shard with `num_keys` distinct keys of each worker's step."""
        dtype, costs = demand.config.data_type, self.costs
        of_key = costs.seconds_of_key(dim, dtype, self.topology.bandwidth)
        read = (demand.distinct - demand.hits) / count * costs.read_seconds
        of_worker = num_keys * of_key + read + costs.seconds_of_shard
        return self.topology.workers * of_worker

    def round_rows(self, rows: int, constraints: ParameterConstraints) -> int:
        """Rounds rows of a shard up as `rows_rounding` says.

        Args:
            rows: The rows.
            constraints: Of the table, for subclasses.

        Returns:
            The rounded rows.
        """
        if self.rows_rounding == "power_of_two":
            return 1 << (rows - 1).bit_length()
        multiple = int(self.rows_rounding)
        return -(-rows // multiple) * multiple


def _is_on_workers(demand: Demand) -> bool:
    is_small = demand.config.num_embeddings * demand.row_bytes <= _SMALL_TABLE_BYTES
    return ShardingType.DATA_PARALLEL in demand.types and is_small


def _option(
    demand: Demand, kind: ShardingType, count: int, rows: int, load: list[float]
) -> ShardingOption:
    """An option with whole bytes, of which sums are exact: up to 2^53."""
    seconds, dram, ssd = load
    return ShardingOption(
        demand, kind, count, rows, seconds, float(math.ceil(dram)), float(math.ceil(ssd))
    )
