"""What a plan is made for: tables, servers, constraints, reserved storage.

Names and the order of arguments are TorchRec's; dtypes are TensorFlow's. A rank is a parameter
server.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.ops.dtypes import VALUE_DTYPES
from fused_embedding.planner.statistics import KeyDistribution
from fused_embedding.variable.options import EmbeddingVariableOption
from fused_embedding.variable.row_size import RowLayout

DDR_CAP = 128 << 30
INTRA_HOST_BW = 10e9
INTER_HOST_BW = 3e9


class ShardingType(enum.Enum):
    """How a table is divided.

    TABLE_WISE: one rank has all of it. ROW_WISE: each of several ranks has a share of the keys.
    DATA_PARALLEL: each worker has a copy. COLUMN_WISE: each of several ranks has a range of the
    columns. EmbeddingVariables can be made of the first two: docs/planner.md.
    """

    DATA_PARALLEL = "data_parallel"
    TABLE_WISE = "table_wise"
    COLUMN_WISE = "column_wise"
    ROW_WISE = "row_wise"


class PoolingType(enum.Enum):
    """How the rows of a bag are combined."""

    SUM = "SUM"
    MEAN = "MEAN"
    NONE = "NONE"


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig:
    """A table whose lookups return a row for each id.

    Attributes:
        num_embeddings: Number of rows that the table is planned for, > 0.
        embedding_dim: Length of a row, > 0.
        name: Name of the table in the graph, with its variable scopes.
        data_type: dtype of the values: tf.float32, tf.float64, tf.float16, tf.bfloat16.
        feature_names: Features that are looked up in the table. Each is a lookup of a step; an
            empty list counts as one.

    Raises:
        ValueError: For numbers < 1, or an empty name.
        TypeError: For another dtype.
    """

    num_embeddings: int
    embedding_dim: int
    name: str = ""
    data_type: Any = tf.float32
    feature_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        for field in ("num_embeddings", "embedding_dim"):
            if not getattr(self, field) >= 1:
                raise ValueError(
                    f"{field} of {self.name!r} must be > 0, got {getattr(self, field)}"
                )
        if not self.name:
            raise ValueError("name must be the table's name, got ''; plans know tables by names")
        if tf.as_dtype(self.data_type) not in VALUE_DTYPES:
            names = ", ".join(dtype.name for dtype in VALUE_DTYPES)
            raise TypeError(
                f"data_type of {self.name!r} must be one of {names}, got {self.data_type!r}"
            )

    @property
    def num_features(self) -> int:
        """Number of lookups of a step."""
        return max(len(self.feature_names), 1)


@dataclasses.dataclass(frozen=True)
class EmbeddingBagConfig(EmbeddingConfig):
    """A table whose lookups combine the rows of each bag of ids.

    Attributes:
        pooling: How; it does not change a plan.
    """

    pooling: PoolingType = PoolingType.SUM


@dataclasses.dataclass
class ParameterConstraints:
    """What is known of a table, and which plans of it are allowed.

    Attributes:
        sharding_types: Values of ShardingType that are allowed; None: those of the enumerator.
        compute_kernels: Accepted and ignored: there is one kernel.
        min_partition: COLUMN_WISE: fewest columns of a shard. None: 32.
        pooling_factors: Mean number of ids of an example, for each feature; the last one is
            used for further features.
        num_poolings: Lookups of a feature in an example, likewise.
        batch_sizes: Examples of a worker's step, likewise; None: the planner's.
        is_weighted: Accepted and ignored: weights stay on the worker.
        enforce_hbm: Accepted and ignored: there is no HBM tier.
        bounds_check_mode: Accepted and ignored: a table without a vocabulary has no bounds.
        distribution: How often each key occurs; None: Zipf with the exponent 1.05.
        num_slots: Optimizer slots as long as a row: 0 SGD, 1 Adagrad, 2 Adam.
        num_shards: ROW_WISE: number of ranks; None: the planner chooses.
        ev_option: Options of the table, which the plan completes; None: the defaults.
    """

    sharding_types: list[str] | None = None
    compute_kernels: list[str] | None = None
    min_partition: int | None = None
    pooling_factors: list[float] = dataclasses.field(default_factory=lambda: [1.0])
    num_poolings: list[float] | None = None
    batch_sizes: list[int] | None = None
    is_weighted: bool = False
    enforce_hbm: bool | None = None
    bounds_check_mode: Any = None
    distribution: KeyDistribution | None = dataclasses.field(default=None, kw_only=True)
    num_slots: int = dataclasses.field(default=1, kw_only=True)
    num_shards: int | None = dataclasses.field(default=None, kw_only=True)
    ev_option: EmbeddingVariableOption | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        known = [one.value for one in ShardingType]
        unknown = sorted(set(self.sharding_types or ()) - set(known))
        if unknown:
            raise ValueError(f"sharding_types must be of {', '.join(known)}, got {unknown}")

    def ids_of_step(self, config: EmbeddingConfig, batch_size: int) -> float:
        """Ids that a worker looks up in the table in a step."""
        total = 0.0
        for feature in range(config.num_features):
            batch = _of_feature(self.batch_sizes or [batch_size], feature)
            poolings = _of_feature(self.num_poolings or [1.0], feature)
            total += batch * poolings * _of_feature(self.pooling_factors or [1.0], feature)
        return total

    def layout(self, config: EmbeddingConfig, dim: int) -> RowLayout:
        """What a row of `dim` columns holds."""
        return RowLayout(dim, tf.as_dtype(config.data_type), dim * self.num_slots)


def _of_feature(values: Sequence[float], feature: int) -> float:
    return values[min(feature, len(values) - 1)]


@dataclasses.dataclass(frozen=True)
class Topology:
    """The parameter servers, and what each has.

    Attributes:
        world_size: Number of ranks, > 0: a rank is one parameter server.
        compute_device: Accepted and ignored: tables are on CPUs.
        hbm_cap: Accepted and ignored: there is no HBM tier.
        ddr_cap: Bytes of memory of a rank; None: 128 GiB.
        local_world_size: Ranks of one host; None: one.
        hbm_mem_bw: Accepted and ignored.
        ddr_mem_bw: Accepted and ignored: costs of keys are measured.
        intra_host_bw: Bytes a second between ranks of a host; None: 10e9.
        inter_host_bw: Bytes a second between hosts; None: 3e9. Workers are on other hosts, unless
            one host has all ranks.
        ssd_cap: Bytes of SSD of a rank; 0: there is none.
        ssd_path: Folder on the SSD of each rank, for tables that have rows there.
        num_workers: Number of workers; None: as many as ranks.

    Raises:
        ValueError: For sizes < 0, or a world_size or num_workers < 1.
    """

    world_size: int
    compute_device: str = "cpu"
    hbm_cap: int | None = None
    ddr_cap: int | None = None
    local_world_size: int | None = None
    hbm_mem_bw: float | None = None
    ddr_mem_bw: float | None = None
    intra_host_bw: float | None = None
    inter_host_bw: float | None = None
    ssd_cap: int = dataclasses.field(default=0, kw_only=True)
    ssd_path: str | None = dataclasses.field(default=None, kw_only=True)
    num_workers: int | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.world_size < 1 or (self.num_workers or 1) < 1:
            raise ValueError(
                f"world_size and num_workers must be > 0, got {self.world_size} and "
                f"{self.num_workers}"
            )
        if self.ddr_bytes < 0 or self.ssd_cap < 0:
            raise ValueError(
                f"ddr_cap and ssd_cap must be >= 0, got {self.ddr_cap} and {self.ssd_cap}"
            )

    @property
    def ddr_bytes(self) -> int:
        """Bytes of memory of a rank."""
        return DDR_CAP if self.ddr_cap is None else int(self.ddr_cap)

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self.num_workers or self.world_size

    @property
    def bandwidth(self) -> float:
        """Bytes a second between a worker and a rank."""
        if self.world_size <= (self.local_world_size or 1) and self.world_size > 1:
            return self.intra_host_bw or INTRA_HOST_BW
        return self.inter_host_bw or INTER_HOST_BW


@dataclasses.dataclass(frozen=True)
class StorageReservation:
    """Storage of a rank that no table may use.

    Attributes:
        percentage: Share of memory and of SSD, in [0, 1).

    Raises:
        ValueError: For another percentage.
    """

    percentage: float = 0.15

    def __post_init__(self) -> None:
        if not 0 <= self.percentage < 1:
            raise ValueError(f"percentage must be in [0, 1), got {self.percentage}; 0.05 is 5 %")

    def budget(self, topology: Topology, message_bytes: float) -> tuple[float, float]:
        """Bytes that tables may use.

        Args:
            topology: The ranks.
            message_bytes: Bytes of a worker's messages to a rank in a step.

        Returns:
            Bytes of memory and of SSD of a rank.
        """
        share = 1 - self.percentage
        return share * topology.ddr_bytes, share * topology.ssd_cap


class FixedPercentageStorageReservation(StorageReservation):
    """Reserves a share of the storage and nothing else."""


@dataclasses.dataclass(frozen=True)
class HeuristicalStorageReservation(StorageReservation):
    """Reserves a share of the storage, and memory for two messages of each worker."""

    def budget(self, topology: Topology, message_bytes: float) -> tuple[float, float]:
        """As StorageReservation.budget, less the memory of the messages."""
        memory, ssd = super().budget(topology, message_bytes)
        return max(memory - 2 * topology.workers * message_bytes, 0.0), ssd
