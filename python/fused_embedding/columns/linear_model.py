"""`tf.compat.v1.feature_column.linear_model` with fused lookups of its categorical columns.

TensorFlow's own function runs: linear_model -> _LinearModel -> _FCLinearWrapper ->
_create_weighted_sum -> the lookup. Each names the next, so each gets its own meaning of that one
name. With the best version the layer of a column returns what shall be looked up, and one op looks
up all of it where the columns are added.
"""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column as fc_v1

from fused_embedding.columns.fused_column import (
    DoFusion,
    ids_of_column,
    version_over_variable,
    with_lookups,
)
from fused_embedding.columns.input_layer import verify_batch_sizes
from fused_embedding.columns.raw_features import with_raw_features
from fused_embedding.columns.stock_functions import with_globals
from fused_embedding.lookup.group import Column
from fused_embedding.lookup.names import lookups_of_column
from fused_embedding.lookup.options import make_options
from fused_embedding.lookup.run import BEST, run_group
from fused_embedding.lookup.tables import as_shards

# Stock's, whatever fe.accelerate has in its place.
_stock_sum_of_column = fc_v1._create_categorical_column_weighted_sum


def linear_model_for(do_fusion: DoFusion) -> Callable[..., tf.Tensor]:
    """Returns `tf.compat.v1.feature_column.linear_model`, with the fused lookup if asked for.

    Args:
        do_fusion: See `fe.feature_column.linear_model`.

    Returns:
        The function.
    """
    version = version_over_variable(do_fusion)
    if version is None:
        return fc_v1.linear_model
    names_of_call: dict[str, Any] = {}
    if version == BEST:
        sum_of_column: Callable = pending_sum
        names_of_call = names_of_sums()
    else:
        sum_of_column = with_lookups(_stock_sum_of_column, version)
    weighted_sum = with_globals(
        fc_v1._create_weighted_sum, _create_categorical_column_weighted_sum=sum_of_column
    )
    wrapper = _subclass(fc_v1._FCLinearWrapper, call={"_create_weighted_sum": weighted_sum})
    model = _subclass(
        fc_v1._LinearModel, __init__={"_FCLinearWrapper": wrapper}, call=names_of_call
    )
    linear_model = inspect.unwrap(fc_v1.linear_model)  # its decorators only export and warn
    return with_globals(linear_model, _LinearModel=model)


def _subclass(base: type, **names_of_methods: dict[str, Any]) -> type:
    """A subclass of `base` in whose methods some global names mean something else."""
    methods = {m: with_globals(getattr(base, m), **names) for m, names in names_of_methods.items()}
    return type(base.__name__, (base,), methods)


class _Pending:
    """A lookup that is yet to be done. A layer would look into a tuple, which `Column` is."""

    def __init__(self, column: Column):
        self.column = column


class _Lookups:
    """Stands for the module `embedding_ops`."""

    def safe_embedding_lookup_sparse(
        self, params: Any, sp_ids: Any, sparse_weights: Any, combiner: str, **_: Any
    ) -> _Pending:
        options = make_options(combiner, None, None, prune=True, fill_empty_row=True)
        ids = ids_of_column(sp_ids, sparse_weights)
        return _Pending(Column(as_shards(params, "params"), ids, options))


class _Reshapes:
    """Stands for `sparse_ops` and `array_ops`, which make matrices of ids and weights."""

    def sparse_reshape(self, tensor: Any, shape: Any) -> Any:
        """The tensor itself if it is a matrix, and stock's result else."""
        return tensor if tensor.shape.rank == 2 else tf.sparse.reshape(tensor, shape)

    def shape(self, tensor: Any) -> Any:
        """tf.shape; of a matrix, what `sparse_reshape` ignores."""
        return [None] if tensor.shape.rank == 2 else tf.shape(tensor)


class _Sums:
    """Stands for `math_ops`."""

    def __init__(self, merges: bool):
        self._merges = merges

    def add_n(self, sums: list[Any], name: str) -> tf.Tensor:
        """tf.add_n, after the lookups of all columns together."""
        pending = [s.column for s in sums if isinstance(s, _Pending)]
        looked_up = iter(run_group(pending, merges=self._merges))
        return tf.add_n([next(looked_up) if isinstance(s, _Pending) else s for s in sums], name)


def names_of_sums(*, merges: bool = True) -> dict[str, Any]:
    """What names mean in the method of stock's linear model that adds the sums of its columns.

    Args:
        merges: See `run_group`.

    Returns:
        Meanings for `with_globals`, with which it takes what `pending_sum` returns.
    """
    return {
        "math_ops": _Sums(merges),
        "_verify_static_batch_size_equality": verify_batch_sizes,
    }


def pending_sum(column: Any, builder: Any, **kwargs: Any) -> _Pending:
    """What TensorFlow's function of a categorical column returns, to be looked up."""
    stock = with_globals(
        _stock_sum_of_column,
        embedding_ops=_Lookups(),
        sparse_ops=_Reshapes(),
        array_ops=_Reshapes(),
    )
    with lookups_of_column(column):
        pending: _Pending = stock(
            column=with_raw_features(column, builder), builder=builder, **kwargs
        )
    return pending
