"""Stock feature columns with one more field, `do_fusion`, that chooses the lookup.

This room imports private TensorFlow modules for feature columns: the column classes and the layers
under `input_layer` and `linear_model` have no public name. All of them call the lookup as
`embedding_ops.<function>`. `with_globals` gives one method of one column another meaning of that
name, so TensorFlow keeps making the variables, collections, names and checkpoint entries.
"""

from collections import namedtuple
from collections.abc import Callable
from typing import Any, Literal, cast

import tensorflow as tf
from tensorflow.python.feature_column import feature_column as fc_v1
from tensorflow.python.feature_column import feature_column_v2 as fc_v2
from tensorflow.python.feature_column import serialization

from fused_embedding.columns.groups import (
    LooksUpItsGroup,
    Recording,
    RecordsItsGroup,
    recording,
    sequence_of_stock,
)
from fused_embedding.columns.row_choice import with_row_choice
from fused_embedding.columns.stock_functions import with_globals
from fused_embedding.lookup import deeprec_signatures
from fused_embedding.lookup.checked import checked_lookup
from fused_embedding.lookup.feature_ids import FeatureIds
from fused_embedding.lookup.fusion_check import FusionCheck, as_check
from fused_embedding.lookup.group import Column
from fused_embedding.lookup.ids import as_sparse_ids, weight_values
from fused_embedding.lookup.names import ids_name, lookups_of_column
from fused_embedding.lookup.options import make_options
from fused_embedding.lookup.run import BEST, LOOKUPS, run_group, run_lookup
from fused_embedding.lookup.tables import as_shards
from fused_embedding.ops.disabled import is_disabled, why_disabled
from fused_embedding.ops.path_notes import noted
from fused_embedding.variable.adaptive import AdaptiveEmbeddingVariable
from fused_embedding.variable.composed import ComposedTable

# Stock's under tf.compat.v1, whose name is ours while fe.compat.deeprec is installed.
shared_embedding_columns = fc_v2.shared_embedding_columns

DoFusion = Literal["v1", "v2", "v3", "check"] | FusionCheck | bool | None


def resolve_fusion(do_fusion: DoFusion) -> Literal["v1", "v2", "v3"] | FusionCheck | None:
    """Turns `do_fusion` into the version to run, None for stock TensorFlow.

    Args:
        do_fusion: None, a bool or the name of a version; True is the best path that inputs allow.

    Returns:
        "v1", "v2", "v3", how to check, or None.

    Raises:
        ValueError: If `do_fusion` is anything else.
    """
    if do_fusion is None or do_fusion is False:
        return None
    if do_fusion is True:
        return BEST
    check = as_check(do_fusion)
    if check is not None:
        return check
    if isinstance(do_fusion, str) and do_fusion in LOOKUPS:
        return cast(Literal["v1", "v2", "v3"], do_fusion)
    raise ValueError(
        f"do_fusion must be None, False, True, 'v1', 'v2', 'v3', 'check' or an fe.FusionCheck, but "
        f"{do_fusion!r} was given; use True, or None for stock TensorFlow"
    )


def version_over_table(do_fusion: DoFusion) -> Literal["v1", "v2", "v3"]:
    """`resolve_fusion` for columns with EmbeddingVariables, which stock cannot look up."""
    version = resolve_fusion(do_fusion or True)
    if version is None or isinstance(version, FusionCheck):
        raise ValueError(
            f"do_fusion = {do_fusion!r} was given for a column with an EmbeddingVariable, in which "
            "stock TensorFlow has no lookup to compare with; use do_fusion=True"
        )
    return version


def version_over_variable(
    do_fusion: DoFusion,
) -> Literal["v1", "v2", "v3", "stock"] | FusionCheck | None:
    """`resolve_fusion` for ordinary tables: "stock" if FE_DISABLE has turned the lookup off."""
    version = resolve_fusion(do_fusion)
    return "stock" if version is not None and is_disabled("lookup") else version


def version_of(column: Any) -> Literal["v1", "v2", "v3", "stock"] | FusionCheck | None:
    """The version that looks up an embedding column with `do_fusion`."""
    if column.has_embedding_variable:
        return version_over_table(column.do_fusion)
    return version_over_variable(column.do_fusion)


def fuse(column: Any, do_fusion: DoFusion) -> Any:
    """Returns a stock embedding column with `do_fusion`; other columns, and None, as they are."""
    if resolve_fusion(do_fusion) is None or type(column) not in _FUSED:
        return column
    return _FUSED[type(column)](*column, do_fusion=do_fusion)


def is_embedding_column(column: Any) -> bool:
    """Whether a column is an embedding column, stock's or ours."""
    return isinstance(column, tuple(_FUSED))


def with_lookups(function: Callable, version: Any) -> Callable:
    """`function` of TensorFlow, of a column, with the lookups of a version.

    Args:
        function: Of a private module; its first argument is a column.
        version: See `version_over_variable`.

    Returns:
        A function of the same arguments.
    """
    if version is None:
        return function
    lookups: Any
    if version == "stock":
        lookups = _StockLookups()
    elif isinstance(version, FusionCheck):
        lookups = _CheckedLookups(version)
    else:
        lookups = _FusedLookups(version)
    ours = with_globals(function, embedding_ops=lookups)

    def of_column(column: Any, *args: Any, **kwargs: Any) -> Any:
        with lookups_of_column(column):
            return ours(column, *args, **kwargs)

    return of_column


def fused_lookup(column: Any, table: Any, sparse_tensors: Any) -> tf.Tensor:
    """Embeddings of a column's ids in a table that stock TensorFlow cannot look up in.

    Args:
        column: An embedding column with `do_fusion`.
        table: An EmbeddingVariable.
        sparse_tensors: The ids, and their weights or None, of a categorical column.

    Returns:
        `[num_rows, dim]` combined embeddings.
    """
    lookups = _FusedLookups(version_over_table(column.do_fusion))
    ids, weights = sparse_tensors
    is_safe = column.use_safe_embedding_lookup or ids.shape.rank != 2
    if isinstance(table, ComposedTable):
        with lookups_of_column(column):
            return _composed_lookup(column, table, ids, weights, is_safe)
    lookup = lookups.safe_embedding_lookup_sparse if is_safe else lookups.embedding_lookup_sparse_v2
    with lookups_of_column(column):
        return lookup(
            table,
            ids,
            weights,
            combiner=column.combiner,
            name=f"{column.name}_weights",
            max_norm=column.max_norm,
        )


def _composed_lookup(column: Any, table: Any, ids: Any, weights: Any, is_safe: bool) -> Any:
    """`fused_lookup` in a table of several parts."""
    how = {"combiner": column.combiner, "max_norm": column.max_norm}
    lookup = _column(table, ids, weights, is_safe=is_safe, **how)
    if isinstance(table, AdaptiveEmbeddingVariable):
        lookup = lookup._replace(ids=with_row_choice(lookup.ids, column, table))
    is_recorded = recording() is not Recording.NONE
    if is_recorded and (lookup.ids.leading_shape is None or recording() is Recording.ALL):
        return lookup
    return run_group([lookup])[0]


def ids_of_column(sp_ids: Any, sp_weights: Any) -> Any:
    """What a recorded lookup of a column has to look up.

    Args:
        sp_ids: A SparseTensor, or a `FeatureIds`, which `raw_feature` put in its place.
        sp_weights: A SparseTensor, or None.

    Returns:
        A `SparseIds` or a `FeatureIds`.
    """
    if not isinstance(sp_ids, FeatureIds):
        return as_sparse_ids(sp_ids, sp_weights, "sp_ids")
    weights = weight_values(sp_weights, tf.TensorShape([None]))
    return sp_ids._replace(weights=weights, name=ids_name("sp_ids"))


def _column(params: Any, sp_ids: Any, sp_weights: Any, *, is_safe: bool, **how: Any) -> Column:
    options = make_options(
        how["combiner"], how["max_norm"], None, prune=is_safe, fill_empty_row=is_safe
    )
    return Column(as_shards(params, "params"), ids_of_column(sp_ids, sp_weights), options)


def _recorded(*args: Any, **how: Any) -> Any:
    """A `Column`; the result for ids of another rank, which is reshaped."""
    column = _column(*args, **how)
    if column.ids.leading_shape is None or recording() is Recording.ALL:
        return column
    return run_lookup(BEST, *column)


def _of_feature(*args: Any, name: str, **how: Any) -> tf.Tensor:
    """The embeddings of a feature that one op makes ids of: a group of one column."""
    with tf.name_scope(name):
        [embeddings] = run_group([_column(*args, **how)])
    return embeddings


class _FusedLookups:
    """Stands where TensorFlow's columns expect the module `embedding_ops`."""

    def __init__(self, version: Literal["v1", "v2", "v3"]):
        self._version = version

    # linear_model names the weights.
    def safe_embedding_lookup_sparse(
        self, params: Any, sp_ids: Any, sparse_weights: Any, **kwargs: Any
    ) -> Any:
        if recording() is not Recording.NONE:
            return _recorded(params, sp_ids, sparse_weights, is_safe=True, **kwargs)
        if isinstance(sp_ids, FeatureIds):
            return _of_feature(params, sp_ids, sparse_weights, is_safe=True, **kwargs)
        kwargs["fusion_version"] = self._version
        return deeprec_signatures.fused_safe_embedding_lookup_sparse(
            params, sp_ids, sparse_weights, **kwargs
        )

    def embedding_lookup_sparse_v2(
        self, params: Any, sp_ids: Any, sp_weights: Any, **kwargs: Any
    ) -> Any:
        if recording() is not Recording.NONE:
            return _recorded(params, sp_ids, sp_weights, is_safe=False, **kwargs)
        if isinstance(sp_ids, FeatureIds):
            return _of_feature(params, sp_ids, sp_weights, is_safe=False, **kwargs)
        # Stock drops the rows after the last id, so that the columns of a batch differ in length.
        # Its documentation allows zeros there as well, which is what the fused ops give.
        lookup: Any = {
            "v1": deeprec_signatures.fused_embedding_lookup_sparse,
            "v2": deeprec_signatures.fused_embedding_lookup_sparse_v2,
            "v3": deeprec_signatures.fused_embedding_lookup_sparse_v3,
        }[self._version]
        return lookup(params, sp_ids, sp_weights, fill_empty_row=False, **kwargs)


class _CheckedLookups:
    """Like `_FusedLookups`, but compares with stock's lookup. Never part of a group."""

    def __init__(self, check: FusionCheck):
        self._check = check

    def safe_embedding_lookup_sparse(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["fusion_version"] = self._check
        return deeprec_signatures.fused_safe_embedding_lookup_sparse(*args, **kwargs)

    def embedding_lookup_sparse_v2(
        self, params: Any, sp_ids: Any, sp_weights: Any, *, name: str, **how: Any
    ) -> Any:
        options = make_options(
            how["combiner"], how["max_norm"], None, prune=False, fill_empty_row=False
        )
        return checked_lookup(self._check, params, sp_ids, sp_weights, options, name)


class _StockLookups:
    """Like `_FusedLookups`, but calls stock's functions. Notes that FE_DISABLE is the reason."""

    def __getattr__(self, name: str) -> Callable[..., tf.Tensor]:
        def lookup(*args: Any, **kwargs: Any) -> tf.Tensor:
            with noted(why_disabled("lookup")):
                return getattr(fc_v2.embedding_ops, name)(*args, **kwargs)

        return lookup


def _fields(stock: Any) -> Any:
    """The namedtuple of a stock column's fields, `do_fusion` and `group`.

    As the first base of a column it replaces all that `collections.namedtuple` wrote for the
    stock fields (`_make`, `_replace`, `__repr__`, pickling), which would fail on one more.
    """
    fields = (*stock._fields, "do_fusion", "group")
    return namedtuple(f"Fused{stock.__name__}Fields", fields, defaults=(None,))


@serialization.register_feature_column
class FusedEmbeddingColumn(
    LooksUpItsGroup,
    _fields(fc_v2.EmbeddingColumn),  # type: ignore[misc]
    fc_v2.EmbeddingColumn,
):
    """See `fused_embedding.feature_column.embedding_column`."""

    def _get_dense_tensor_internal_helper(self, *args: Any) -> tf.Tensor:
        stock = fc_v2.EmbeddingColumn._get_dense_tensor_internal_helper
        return with_lookups(stock, version_of(self))(self, *args)

    def _get_sequence_dense_tensor(self, *args: Any, **kwargs: Any) -> Any:
        stock = fc_v2.EmbeddingColumn._get_sequence_dense_tensor
        return sequence_of_stock(stock, self, *args, **kwargs)

    @classmethod
    def from_config(cls, config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The column of `get_config`, which may be older than groups."""
        return super().from_config({"group": None, **config}, *args, **kwargs)


@serialization.register_feature_column
class FusedSharedEmbeddingColumn(
    LooksUpItsGroup,
    _fields(fc_v2.SharedEmbeddingColumn),  # type: ignore[misc]
    fc_v2.SharedEmbeddingColumn,
):
    """See `fused_embedding.feature_column.shared_embeddings`."""

    def _get_dense_tensor_internal(self, *args: Any) -> tf.Tensor:
        stock = fc_v2.SharedEmbeddingColumn._get_dense_tensor_internal
        return with_lookups(stock, version_of(self))(self, *args)


class FusedSharedEmbeddingColumnV1(
    RecordsItsGroup,
    _fields(fc_v1._SharedEmbeddingColumn),  # type: ignore[misc]
    fc_v1._SharedEmbeddingColumn,
):
    """See `fused_embedding.feature_column.shared_embedding_columns`."""

    def _get_dense_tensor_internal(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        stock = fc_v1._SharedEmbeddingColumn._get_dense_tensor_internal
        return with_lookups(stock, version_of(self))(self, *args, **kwargs)

    def _get_sequence_dense_tensor(self, *args: Any, **kwargs: Any) -> Any:
        stock = fc_v1._SharedEmbeddingColumn._get_sequence_dense_tensor
        return sequence_of_stock(stock, self, *args, **kwargs)


_FUSED = {
    fc_v2.EmbeddingColumn: FusedEmbeddingColumn,
    fc_v2.SharedEmbeddingColumn: FusedSharedEmbeddingColumn,
    fc_v1._SharedEmbeddingColumn: FusedSharedEmbeddingColumnV1,
}
