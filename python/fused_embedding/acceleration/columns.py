"""Stock's `input_layer`, `linear_model` and Keras 2's layers of feature columns, in one op each.

What is replaced are the function inside `input_layer` and `InputLayer`, the method and the function
inside `linear_model`, and the methods by which Keras's layers ask embedding columns. Subclasses of
stock's columns that have methods of their own are left.
"""

import contextvars
from collections.abc import Callable
from typing import Any

from tensorflow.python.feature_column import feature_column as fc_v1
from tensorflow.python.feature_column import feature_column_v2 as fc_v2

from fused_embedding.acceleration.replacements import Replacement
from fused_embedding.acceleration.switch import Switch
from fused_embedding.columns.fused_column import fuse
from fused_embedding.columns.groups import (
    StateManagerOfOriginals,
    columns_of_layer,
    looked_up_together,
)
from fused_embedding.columns.input_layer import instead_of_stock
from fused_embedding.columns.linear_model import names_of_sums, pending_sum
from fused_embedding.columns.stock_functions import with_globals

# Whether the sum of a column of a linear model is to be done with those of the others.
_sums_are_pending = contextvars.ContextVar("sums_are_pending", default=False)

_IN_LAYERS = (fc_v2.EmbeddingColumn, fc_v2.SharedEmbeddingColumn)
# Columns without it have fewer rows than the batch if its last rows have no id. Ours have zeros.
_IS_SAFE = "use_safe_embedding_lookup"
_ENDS_AT_LAST_ID = (
    "the result of a column with use_safe_embedding_lookup=False ends at the last row with an id"
)


def replacements(switch: Switch) -> list[Replacement]:
    """What is replaced while `switch` is on."""
    in_layers = [
        Replacement(column, "get_dense_tensor", lambda stock: _get_dense_tensor(switch, stock))
        for column in _IN_LAYERS
    ]
    return [
        Replacement(fc_v1, "_internal_input_layer", lambda stock: _input_layer(switch, stock)),
        Replacement(fc_v1._LinearModel, "call", lambda stock: _call_of_model(switch, stock)),
        Replacement(fc_v1, "_create_categorical_column_weighted_sum", _sum_of_column),
        *in_layers,
    ]


def _input_layer(switch: Switch, stock: Callable[..., Any]) -> Callable[..., Any]:
    def choose(columns: list[Any], ours: Callable[[], Any], stocks: Callable[[], Any]) -> Any:
        if not all(getattr(column, _IS_SAFE, True) for column in columns):
            switch.note("input_layer", _ENDS_AT_LAST_ID)
            return stocks()
        return switch.run("input_layer", ours, stocks)

    return instead_of_stock(stock, choose, merges=False)


def _call_of_model(switch: Switch, stock: Callable[..., Any]) -> Callable[..., Any]:
    with_sums = with_globals(stock, **names_of_sums(merges=False))

    def replaced(self: Any, features: Any) -> Any:
        def ours() -> Any:
            token = _sums_are_pending.set(True)
            try:
                return with_sums(self, features)
            finally:
                _sums_are_pending.reset(token)

        return switch.run("linear_model", ours, lambda: stock(self, features))

    return replaced


def _sum_of_column(stock: Callable[..., Any]) -> Callable[..., Any]:
    def replaced(column: Any, builder: Any, *args: Any, **kwargs: Any) -> Any:
        if _sums_are_pending.get():
            return pending_sum(column, builder, *args, **kwargs)
        return stock(column, builder, *args, **kwargs)

    return replaced


def _get_dense_tensor(switch: Switch, stock: Callable[..., Any]) -> Callable[..., Any]:
    def replaced(self: Any, transformation_cache: Any, state_manager: Any) -> Any:
        if type(self) not in _IN_LAYERS:
            return stock(self, transformation_cache, state_manager)
        if not self.use_safe_embedding_lookup:
            switch.note("embedding columns of a layer", _ENDS_AT_LAST_ID)
            return stock(self, transformation_cache, state_manager)
        return switch.run(
            "embedding columns of a layer",
            lambda: _look_up(self, transformation_cache, state_manager),
            lambda: stock(self, transformation_cache, state_manager),
        )

    return replaced


def _look_up(column: Any, transformation_cache: Any, state_manager: Any) -> Any:
    """The result of a column that a layer asks: one op looks up all that it has of these types."""
    of_layer = [c for c in columns_of_layer(state_manager) if type(c) in _IN_LAYERS]
    members = [c for c in of_layer if c.use_safe_embedding_lookup]
    members = members if column in members else [column]
    original = {fuse(member, "v3"): member for member in members}
    layer = StateManagerOfOriginals(state_manager, original)

    def record(_: list[Any]) -> list[Any]:
        return [fused.get_dense_tensor(transformation_cache, layer) for fused in original]

    key = (state_manager, "accelerated")
    return looked_up_together(column, members, transformation_cache, key, record, merges=False)
