"""The sparse lookups of tf.nn and tf.compat.v1.nn, by TensorFlow's dispatch on types.

All of their names end in the functions of `tf.compat.v1.nn`, which ask these first.
"""

import contextvars
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.acceleration.replacements import Dispatch
from fused_embedding.acceleration.switch import Switch
from fused_embedding.lookup import stock_signatures
from fused_embedding.ops.dtypes import UnsupportedDtypeError
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable

# Whether one of our functions runs, which calls stock's for a dtype that the fused ops do not have.
_is_ours = contextvars.ContextVar("is_ours", default=False)

_TABLES = (EmbeddingVariable, PartitionedEmbeddingVariable)


def _has_tables(params: Any) -> bool:
    """Whether a lookup is of EmbeddingVariables, of which stock has an error that says more."""
    parts = params if isinstance(params, list | tuple) else [params]
    return any(isinstance(part, _TABLES) for part in parts)


def _run(
    switch: Switch, kind: str, params: Any, is_fast: bool, ours: Callable[[], tf.Tensor]
) -> Any:
    """The result of our function; NotImplemented where stock's must be called."""
    if _is_ours.get():
        # Our function calls stock's in its handler of the error that has the reason.
        raise UnsupportedDtypeError(str(sys.exc_info()[1]))
    if _has_tables(params):
        return NotImplemented
    if is_fast:
        switch.note(kind, "allow_fast_lookup=True has a gradient of its own")
        return NotImplemented
    token = _is_ours.set(True)
    try:
        return switch.run(kind, ours, lambda: NotImplemented)
    except (TypeError, ValueError, NotImplementedError) as error:
        # Stock does it, or has an error of its own.
        switch.note(kind, f"the fused ops do not take it: {error}")
        return NotImplemented
    finally:
        _is_ours.reset(token)


def dispatches(switch: Switch) -> list[Dispatch]:
    """The functions that TensorFlow asks while `switch` is on."""

    def safe(
        embedding_weights: Any,
        sparse_ids: Any,
        sparse_weights: Any = None,
        combiner: str | None = "mean",
        default_id: int | None = None,
        name: str | None = None,
        partition_strategy: str = "div",
        max_norm: float | None = None,
        allow_fast_lookup: bool = False,
    ) -> Any:
        def ours() -> tf.Tensor:
            return stock_signatures.safe_embedding_lookup_sparse_v1(
                embedding_weights,
                sparse_ids,
                sparse_weights,
                combiner,
                default_id,
                name,
                partition_strategy,
                max_norm,
            )

        kind = "safe_embedding_lookup_sparse"
        return _run(switch, kind, embedding_weights, allow_fast_lookup, ours)

    def bare(
        params: Any,
        sp_ids: Any,
        sp_weights: Any,
        partition_strategy: str = "mod",
        name: str | None = None,
        combiner: str | None = None,
        max_norm: float | None = None,
        allow_fast_lookup: bool = False,
    ) -> Any:
        def ours() -> tf.Tensor:
            return stock_signatures.embedding_lookup_sparse_v1(
                params, sp_ids, sp_weights, partition_strategy, name, combiner, max_norm
            )

        return _run(switch, "embedding_lookup_sparse", params, allow_fast_lookup, ours)

    nn = tf.compat.v1.nn
    return [
        Dispatch(nn.safe_embedding_lookup_sparse, {"sparse_ids": tf.SparseTensor}, safe),
        Dispatch(nn.embedding_lookup_sparse, {"sp_ids": tf.SparseTensor}, bare),
    ]
