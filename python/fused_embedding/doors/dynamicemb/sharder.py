"""DynamicEmb's sharder: makes the tables of a plan."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.planner.plan import ShardingPlan
from fused_embedding.planner.types import EmbeddingConfig
from fused_embedding.variable.scope import AnyEmbeddingVariable, get_embedding_variable


class DynamicEmbeddingCollectionSharder:
    """Makes EmbeddingVariables as a plan says.

    Args:
        fused_params: Accepted and ignored: optimizers are TensorFlow's.
        qcomm_codecs_registry: Must be None: rows and gradients travel in the table's dtype.
        use_index_dedup: Accepted and ignored: lookups always deduplicate before they ask servers.

    Raises:
        ValueError: If `qcomm_codecs_registry` is given.
    """

    def __init__(
        self,
        fused_params: Mapping[str, Any] | None = None,
        qcomm_codecs_registry: Any = None,
        use_index_dedup: bool = False,
    ) -> None:
        if qcomm_codecs_registry is not None:
            raise ValueError(
                f"qcomm_codecs_registry = {qcomm_codecs_registry!r} was given, but messages have "
                "the dtype of the table; leave it out"
            )
        self.fused_params = dict(fused_params or {})
        self.use_index_dedup = use_index_dedup

    def shard(
        self,
        module: Sequence[EmbeddingConfig],
        params: ShardingPlan,
        env: Any = None,
        device: str | None = None,
    ) -> dict[str, AnyEmbeddingVariable]:
        """Makes the tables of a plan.

        Args:
            module: The configs of the tables.
            params: The plan.
            env: Accepted and ignored.
            device: In a graph, the worker's device, for example "/job:worker/task:0": each
                partition is then made on its server, a task of "/job:ps". None: the tables are
                made where variables of the current scope are.

        Returns:
            `{name: table}`: EmbeddingVariables and PartitionedEmbeddingVariables for the lookups
            of fe.nn. A row-wise table on one rank is an EmbeddingVariable.

        Raises:
            ValueError: If the plan has no such table.
            NotImplementedError: If a table is DATA_PARALLEL or COLUMN_WISE.

        >>> configs = [fe.planner.EmbeddingConfig(1000, 4, "users")]
        >>> plan = fe.planner.EmbeddingShardingPlanner(fe.planner.Topology(1)).plan(configs)
        >>> sharder = fe.dynamicemb.shard.DynamicEmbeddingCollectionSharder(use_index_dedup=True)
        >>> tables = sharder.shard(configs, plan)
        >>> tf.nn.embedding_lookup(tables["users"], [7, 1 << 60]).shape
        TensorShape([2, 4])
        """
        scope: Any = contextlib.nullcontext()
        if device is not None and not tf.executing_eagerly():
            scope = tf.compat.v1.device(params.device_setter(device))
        with scope:
            return {config.name: _make(config, params) for config in module}


def _make(config: EmbeddingConfig, plan: ShardingPlan) -> AnyEmbeddingVariable:
    return get_embedding_variable(
        config.name,
        config.embedding_dim,
        value_dtype=tf.as_dtype(plan.table(config.name).dtype),
        partitioner=plan.partitioner(config.name),
        ev_option=plan.ev_option(config.name),
    )
