"""EmbeddingVariables under tf.distribute strategies: where they are, and which can train them."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_log = logging.getLogger("fused_embedding")

# A partitioner that divides by size sees a table without an end; no cluster has so many servers.
_MAX_PARTITIONS = 4096


def strategy_of_servers() -> Any:
    """The tf.distribute.ParameterServerStrategy whose scope this is, or None."""
    strategy = tf.distribute.get_strategy()
    return strategy if isinstance(strategy, tf.distribute.ParameterServerStrategy) else None


def partitioner_of(strategy: Any) -> Callable[..., Any] | None:
    """The `variable_partitioner` that a strategy was given, for tables; None: it has none.

    A table that a partitioner would divide by its size gets a part for each server.
    """
    extended = strategy.extended
    partitioner = getattr(extended, "_variable_partitioner", None)
    if partitioner is None:
        return None

    def partition(shape: tf.TensorShape, dtype: tf.DType) -> list[int]:
        rows, *others = partitioner(shape=shape, dtype=dtype)
        return [extended._num_ps if rows > _MAX_PARTITIONS else rows, *others]

    return partition


@contextlib.contextmanager
def placed_by(strategy: Any) -> Iterator[None]:
    """Places what is made inside on the server whose turn it is, as a variable of the strategy.

    Args:
        strategy: Of `strategy_of_servers`; None leaves the place as it is.
    """
    if strategy is None:
        yield
        return
    _say_where_tables_are()
    # No dims: such a variable is never divided.
    variable = tf.Variable(0, trainable=False, name="place_of_table")
    with tf.device(variable.device):
        yield


@functools.cache
def _say_where_tables_are() -> None:
    _log.info(
        "EmbeddingVariables made in the scope of ParameterServerStrategy are on its parameter "
        "servers; before 0.2 they were on the coordinator"
    )


def check_trains_tables(variable: Any) -> None:
    """Raises NotImplementedError if the current strategy cannot train a table.

    There is one copy of a table. On parameter servers a step has one replica; the replicas of
    MirroredStrategy are in one process, and can add up their gradients.
    """
    strategy = tf.distribute.get_strategy()
    is_one_process = isinstance(
        strategy, tf.distribute.MirroredStrategy | tf.distribute.OneDeviceStrategy
    )
    if not tf.distribute.has_strategy() or is_one_process:
        return
    if strategy_of_servers() is not None and strategy.num_replicas_in_sync == 1:
        return
    raise NotImplementedError(
        f"the EmbeddingVariable {variable.name!r} cannot be trained under "
        f"{type(strategy).__name__} with {strategy.num_replicas_in_sync} replicas: there is one "
        "copy of a table, which tf.distribute neither mirrors nor shards; train under "
        "MirroredStrategy, under ParameterServerStrategy with one device a worker, or outside of a "
        "strategy's scope (predictions work inside it)"
    )
