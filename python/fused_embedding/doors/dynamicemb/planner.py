"""DynamicEmb's planner, with its names and arguments, on fe.planner."""

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.doors.dynamicemb.options import (
    DynamicEmbInitializerArgs,
    DynamicEmbInitializerMode,
    DynamicEmbTableOptions,
)
from fused_embedding.planner.costs import Costs
from fused_embedding.planner.enumerators import BATCH_SIZE, EmbeddingEnumerator
from fused_embedding.planner.partitioners import GreedyPartitioner, GreedyProposer
from fused_embedding.planner.plan import ShardingPlan
from fused_embedding.planner.planners import EmbeddingShardingPlanner
from fused_embedding.planner.types import (
    EmbeddingConfig,
    ParameterConstraints,
    ShardingType,
    StorageReservation,
    Topology,
)

HKVConfig = DynamicEmbTableOptions
"""The name of DynamicEmbTableOptions in early DynamicEmb."""

_ROW_WISE = [ShardingType.ROW_WISE.value]


@dataclasses.dataclass
class DynamicEmbParameterConstraints(ParameterConstraints):
    """What is known of a table, and which plans of it are allowed.

    Attributes:
        use_dynamicemb: Whether `dynamicemb_options` are the table's. Such a table is row-wise on
            all ranks, unless `sharding_types` or `num_shards` say otherwise.
        dynamicemb_options: Options of the table, which the planner completes.
    """

    use_dynamicemb: bool | None = False
    dynamicemb_options: DynamicEmbTableOptions | None = dataclasses.field(
        default_factory=DynamicEmbTableOptions
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.use_dynamicemb and not isinstance(self.dynamicemb_options, DynamicEmbTableOptions):
            raise TypeError(
                "dynamicemb_options must be a fe.dynamicemb.DynamicEmbTableOptions, got "
                f"{self.dynamicemb_options!r}"
            )

    @property
    def options(self) -> DynamicEmbTableOptions | None:
        """The table's options; None: `use_dynamicemb` is False."""
        return self.dynamicemb_options if self.use_dynamicemb else None


class DynamicEmbeddingEnumerator(EmbeddingEnumerator):
    """Lists the ways to divide each table: fe.planner.EmbeddingEnumerator.

    Args:
        topology: The ranks.
        batch_size: Examples of a worker's step; None: 512.
        constraints: By table.
        estimator: Costs of a server; None: fe.planner.Costs().
        use_exact_enumerate_order: Accepted and ignored: the order is the configs'.
        rows_rounding: "power_of_two": rows a rank are rounded up to one, as by HKV. "bucket": to a
            multiple of the table's `bucket_capacity`, as by later DynamicEmb.

    Raises:
        ValueError: For another batch_size or rows_rounding.
        TypeError: If `estimator` is no fe.planner.Costs.
    """

    def __init__(
        self,
        topology: Topology,
        batch_size: int | None = BATCH_SIZE,
        constraints: Mapping[str, DynamicEmbParameterConstraints] | None = None,
        estimator: Costs | None = None,
        use_exact_enumerate_order: bool = False,
        *,
        rows_rounding: str = "power_of_two",
    ) -> None:
        if rows_rounding not in ("power_of_two", "bucket"):
            raise ValueError(
                f"rows_rounding must be 'power_of_two' or 'bucket', got {rows_rounding!r}"
            )
        super().__init__(topology, batch_size, constraints, estimator, use_exact_enumerate_order)
        self._is_by_bucket = rows_rounding == "bucket"

    def constraints_of(self, config: EmbeddingConfig) -> ParameterConstraints:
        """The constraints of a table; of a DynamicEmb table they say row-wise on all ranks."""
        constraints = super().constraints_of(config)
        is_row_wise = constraints.sharding_types in (None, _ROW_WISE)
        if _options_of(constraints) and is_row_wise and constraints.num_shards is None:
            world_size = self.topology.world_size
            return dataclasses.replace(constraints, sharding_types=_ROW_WISE, num_shards=world_size)
        return constraints

    def round_rows(self, rows: int, constraints: ParameterConstraints) -> int:
        """Rounds rows of a shard up, to a power of two or to a multiple of the bucket."""
        options = _options_of(constraints)
        if options and self._is_by_bucket:
            return -(-rows // options.bucket_capacity) * options.bucket_capacity
        return super().round_rows(rows, constraints)


class DynamicEmbeddingShardingPlanner:
    """Plans tables, and completes their DynamicEmbTableOptions.

    Args:
        eb_configs: The tables.
        topology: The ranks; None: the enumerator's, or one rank, with a warning.
        batch_size: Examples of a worker's step; None: the enumerator's, or 512.
        enumerator: Lists the ways to divide each table; None: a DynamicEmbeddingEnumerator.
        storage_reservation: What tables may not use; None: the default of fe.planner.
        proposer: Chooses how many shards each table has; None: the default of fe.planner.
        partitioner: Places shards; None: the default of fe.planner.
        performance_model: Costs, an fe.planner.Costs; None: the enumerator's.
        stats: Must be None: `plan.report()` prints a plan.
        constraints: By table; None: the enumerator's.
        debug: Whether `collective_plan` prints the report.

    Raises:
        ValueError: For tables with the same name, constraints of unknown tables, or an enumerator
            of another topology.
    """

    def __init__(
        self,
        eb_configs: Sequence[EmbeddingConfig],
        topology: Topology | None = None,
        batch_size: int | None = None,
        enumerator: EmbeddingEnumerator | None = None,
        storage_reservation: StorageReservation | None = None,
        proposer: GreedyProposer | None = None,
        partitioner: GreedyPartitioner | None = None,
        performance_model: Costs | None = None,
        stats: Any = None,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        debug: bool = True,
    ) -> None:
        if topology is None and enumerator is None:
            warnings.warn(
                "no topology was given: the plan is for one server with 128 GiB of memory; pass "
                "topology=fe.planner.Topology(world_size=...)",
                RuntimeWarning,
                stacklevel=2,
            )
            topology = Topology(1)
        if enumerator is None and topology is not None:
            enumerator = DynamicEmbeddingEnumerator(topology, batch_size)
        self._configs = list(eb_configs)
        self._planner = EmbeddingShardingPlanner(
            topology,
            batch_size,
            enumerator,
            storage_reservation,
            proposer,
            partitioner,
            performance_model,
            stats,
            constraints,
            debug,
        )

    def collective_plan(
        self, module: Any = None, sharders: Sequence[Any] | None = None, pg: Any = None
    ) -> ShardingPlan:
        """Plans the tables, and completes their options.

        The `dynamicemb_options` of the constraints are replaced by options with `dim`, dtypes,
        `max_capacity` as rows a rank, and the bounds of UNIFORM, +-sqrt(1 / num_embeddings). Each
        task that plans the same tables gets the same plan: nothing is communicated.

        Args:
            module: Accepted and ignored: the tables are `eb_configs`.
            sharders: Accepted and ignored.
            pg: Accepted and ignored.

        Returns:
            The plan. Its `ev_option` completes the options of the tables.

        Raises:
            PlannerError: If tables do not fit; it names a table and the bytes lacking.
        """
        plan = self._planner.plan(self._configs)
        for config in self._configs:
            constraints = self._planner.enumerator.constraints.get(config.name)
            if isinstance(constraints, DynamicEmbParameterConstraints) and constraints.options:
                rows = plan.table(config.name).rows_per_rank
                options = complete_options(constraints.options, config, rows)
                constraints.dynamicemb_options = options
                plan.ev_options[config.name] = options.ev_option(config.num_embeddings)
        return plan

    def plan(self, module: Any = None, sharders: Sequence[Any] | None = None) -> ShardingPlan:
        """TorchRec's name of `collective_plan` in one process."""
        return self.collective_plan(module, sharders)


def _options_of(constraints: ParameterConstraints) -> DynamicEmbTableOptions | None:
    if isinstance(constraints, DynamicEmbParameterConstraints):
        return constraints.options
    return None


def complete_options(
    options: DynamicEmbTableOptions, config: EmbeddingConfig, rows_per_rank: int
) -> DynamicEmbTableOptions:
    """Options with what the planner knows.

    Args:
        options: What the user gave.
        config: The table.
        rows_per_rank: Most rows of a shard.

    Returns:
        The completed options.

    Raises:
        ValueError: If `options.dim` is given and is not the table's.
    """
    if options.dim not in (None, config.embedding_dim):
        raise ValueError(
            f"dynamicemb_options of {config.name!r} have dim = {options.dim}, but its config has "
            f"embedding_dim = {config.embedding_dim}; leave dim out"
        )
    return dataclasses.replace(
        options,
        dim=config.embedding_dim,
        max_capacity=rows_per_rank,
        init_capacity=options.init_capacity and min(options.init_capacity, rows_per_rank),
        index_type=options.index_type or tf.int64,
        embedding_dtype=options.embedding_dtype or config.data_type,
        initializer_args=_with_bounds(options.initializer_args, config.num_embeddings),
    )


def _with_bounds(args: DynamicEmbInitializerArgs, num_embeddings: int) -> DynamicEmbInitializerArgs:
    if args.mode != DynamicEmbInitializerMode.UNIFORM:
        return args
    bound = math.sqrt(1 / num_embeddings)
    return dataclasses.replace(
        args,
        lower=-bound if args.lower is None else args.lower,
        upper=bound if args.upper is None else args.upper,
    )
