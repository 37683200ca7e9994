"""The systems under comparison: ways to look one workload's ids up in tables with the same rows."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from benchmarks.harness import variables, workloads

PHASES = ("forward", "gradient", "sgd", "adagrad")
_TRAINING = ("forward", "sgd", "adagrad")
_UPDATING = ("sgd", "adagrad")


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a step is given.

    Attributes:
        fed: the tensors that a step is called with.
        sparse: one SparseTensor for each column.
        weights: one SparseTensor for each column, or None.
    """

    workload: workloads.Workload
    fed: list[tf.Tensor]
    sparse: list[tf.SparseTensor]
    weights: list[tf.SparseTensor | None]


def fed_specs(workload: workloads.Workload) -> list[tf.TensorSpec]:
    """Returns the shapes and dtypes of Inputs.fed.

    First the ids of all one-hot columns, then of each other column indices, ids and weights.
    """
    num_one_hot = sum(column.is_one_hot for column in workload.columns)
    shape = [num_one_hot, workload.batch_size]
    specs = [tf.TensorSpec(shape, tf.int64)] if num_one_hot else []
    for column in workload.columns:
        if not column.is_one_hot:
            specs += [tf.TensorSpec([None, 2], tf.int64), tf.TensorSpec([None], tf.int64)]
            specs += [tf.TensorSpec([None], tf.float32)] if column.is_weighted else []
    return specs


def feed(batch: workloads.Batch) -> list[np.ndarray]:
    """Returns the arrays for Inputs.fed."""
    has_one_hot = any(column.row_lengths is None for column in batch.columns)
    arrays = [batch.one_hot()] if has_one_hot else []
    for column in batch.columns:
        if column.row_lengths is None:
            continue
        starts = np.cumsum(column.row_lengths) - column.row_lengths
        places = np.arange(column.ids.size) - np.repeat(starts, column.row_lengths)
        arrays += [np.stack([column.row_ids(), places], axis=1).astype(np.int64), column.ids]
        arrays += [column.weights] if column.weights is not None else []
    return [_aligned(array) for array in arrays]


def _aligned(array: np.ndarray) -> np.ndarray:
    """Returns a copy that TensorFlow takes as it is, as it takes a pipeline's batches.

    An array that does not begin at a multiple of 64 bytes is copied at each step.
    """
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def make_inputs(workload: workloads.Workload, fed: list[tf.Tensor]) -> Inputs:
    """Builds the SparseTensors of the fed tensors."""
    num_rows = workload.batch_size
    one_hot_indices = np.stack([np.arange(num_rows), np.zeros(num_rows)], axis=1).astype(np.int64)
    one_hot_indices, shape = tf.constant(one_hot_indices), tf.constant([num_rows, 1], tf.int64)
    pooled_shape = tf.constant([num_rows, workloads.MAX_IDS_PER_ROW], tf.int64)
    tensors = iter(fed)
    has_one_hot = any(column.is_one_hot for column in workload.columns)
    one_hot = iter(tf.unstack(next(tensors)) if has_one_hot else ())
    sparse, weights = [], []
    for column in workload.columns:
        indices = one_hot_indices if column.is_one_hot else next(tensors)
        ids = next(one_hot) if column.is_one_hot else next(tensors)
        dense_shape = shape if column.is_one_hot else pooled_shape
        sparse.append(tf.SparseTensor(indices, ids, dense_shape))
        of_ids = (
            tf.SparseTensor(indices, next(tensors), dense_shape) if column.is_weighted else None
        )
        weights.append(of_ids)
    return Inputs(workload, fed, sparse, weights)


# Of the inputs and the tables: the combined rows, and what their gradients are taken for.
Lookup = Callable[[Inputs, list], tuple[tf.Tensor, list]]


def _each_column(lookup: Callable[..., tf.Tensor]) -> Lookup:
    """A lookup of each column's table, ids, weights and combiner."""

    def combined(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
        columns = zip(tables, inputs.sparse, inputs.weights, _combiners(inputs), strict=True)
        return _concat([lookup(*column) for column in columns]), tables

    return combined


def _combiners(inputs: Inputs) -> list[workloads.Combiner]:
    return [column.combiner for column in inputs.workload.columns]


def _concat(columns: list[tf.Tensor]) -> tf.Tensor:
    return tf.concat(columns, axis=1) if len(columns) > 1 else columns[0]


def _stock(
    table: tf.Variable, ids: tf.SparseTensor, weights: tf.SparseTensor | None, combiner: str
) -> tf.Tensor:
    return tf.nn.safe_embedding_lookup_sparse(table, ids, weights, combiner)


def _fused(fusion_version: Literal["v1", "v2", "v3"]) -> Lookup:
    def lookup(
        table: tf.Variable,
        ids: tf.SparseTensor,
        weights: tf.SparseTensor | None,
        combiner: workloads.Combiner,
    ) -> tf.Tensor:
        import fused_embedding as fe  # stock alone can be measured where ours is not installed

        return fe.nn.fused_safe_embedding_lookup_sparse(
            table, ids, weights, combiner, fusion_version=fusion_version
        )

    return _each_column(lookup)


def _group(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
    import fused_embedding as fe

    lookup = fe.nn.group_embedding_lookup_sparse
    of_columns = (inputs.sparse, _combiners(inputs), inputs.weights)
    return lookup(tables, *of_columns, concat=True), tables


def _without_inserting(lookup: Lookup) -> Lookup:
    def combined(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
        import fused_embedding as fe

        with fe.inference():
            return lookup(inputs, tables)

    return combined


def _plain(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
    pairs = zip(tables, inputs.sparse, strict=True)
    return _concat([tf.nn.embedding_lookup(table, ids.values) for table, ids in pairs]), tables


def _tfra(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
    from tensorflow_recommenders_addons import dynamic_embedding

    lookups = [
        dynamic_embedding.safe_embedding_lookup_sparse(
            table,
            ids,
            combiner=inputs.workload.columns[i].combiner,
            name=f"{variables.column_name(i)}_lookup",
            return_trainable=True,
        )
        for i, (table, ids) in enumerate(zip(tables, inputs.sparse, strict=True))
    ]
    columns, trained = zip(*lookups, strict=True)
    return _concat(list(columns)), list(trained)


def _input_layer(make_column: Callable[..., object]) -> Lookup:
    def combined(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
        features, columns = {}, []
        for i, (table, ids) in enumerate(zip(tables, inputs.sparse, strict=True)):
            features[variables.column_name(i)] = ids
            category = tf.feature_column.categorical_column_with_identity(
                variables.column_name(i), table.shape[0]
            )
            column = inputs.workload.columns[i]
            columns.append(make_column(category, column.dim, combiner=column.combiner))
        with tf.compat.v1.variable_scope(variables.SCOPE, reuse=True):
            return tf.compat.v1.feature_column.input_layer(features, columns), tables

    return combined


def _fused_column(category: Any, dim: int, combiner: workloads.Combiner) -> object:
    import fused_embedding as fe

    return fe.feature_column.embedding_column(category, dim, combiner, do_fusion="v2")


@dataclasses.dataclass(frozen=True)
class System:
    """One way to do the lookups.

    Attributes:
        lookup: builds it.
        tables: the kind of its tables, of benchmarks/harness/variables.py.
        is_ours: whether ratios of the others to it are reported.
        arithmetic: whether Grappler's arithmetic optimisation is on, as it is by default. It turns
            stock's gather into a read of the whole table, which TensorFlow copies once the
            variable has had a sparse update: the fair comparison is without it.
        one_hot_only: whether the system cannot take invalid ids and several ids in a row.
        float32_only: whether the system has tables of float32 alone, or this driver only such.
        session_only: whether the system needs a graph of TensorFlow 1.
        phases: what the system can do.
        optimizers: whose v1 optimizers train it: "stock" TensorFlow's or "fused", of fe.train.
    """

    lookup: Lookup
    tables: str = "dense"
    is_ours: bool = False
    arithmetic: bool = False
    one_hot_only: bool = False
    float32_only: bool = False
    session_only: bool = False
    phases: tuple[str, ...] = PHASES
    optimizers: str = "stock"

    def takes(self, workload: workloads.Workload) -> bool:
        """Whether the system can look up the columns of a workload."""
        is_float32_only = self.float32_only or self.tables != "dense"
        return (workload.is_one_hot or not self.one_hot_only) and (
            workload.dtype == "float32" or not is_float32_only
        )


_IN_COLUMNS: dict[str, Any] = {"one_hot_only": True, "float32_only": True, "session_only": True}
SYSTEMS = {
    "group": System(_group, is_ours=True),
    "v3": System(_fused("v3"), is_ours=True),
    "v2": System(_fused("v2"), is_ours=True),
    "v1": System(_fused("v1"), is_ours=True),
    "stock": System(_each_column(_stock)),
    # The same with the optimizers of fe.train.
    "group_fused": System(_group, is_ours=True, phases=_UPDATING, optimizers="fused"),
    "v2_fused": System(_fused("v2"), is_ours=True, phases=_UPDATING, optimizers="fused"),
    "stock_fused": System(_each_column(_stock), is_ours=True, phases=_UPDATING, optimizers="fused"),
    # Tables without a vocabulary. A training lookup finds or inserts, counts and dates; one without
    # inserting does what the peer's always does.
    "ev_v2": System(_fused("v2"), "embedding_variable", is_ours=True),
    "ev_v2_inference": System(
        _without_inserting(_fused("v2")), "embedding_variable", is_ours=True, phases=("forward",)
    ),
    "ev_group": System(_group, "embedding_variable", is_ours=True),
    "ev_group_inference": System(
        _without_inserting(_group), "embedding_variable", is_ours=True, phases=("forward",)
    ),
    # What its gradients are taken for are not ids: they are checked by the rows after a step.
    "tfra": System(_tfra, "tfra", one_hot_only=True, session_only=True, phases=_TRAINING),
    "plain": System(_plain, one_hot_only=True),
    "columns_v2": System(_input_layer(_fused_column), is_ours=True, **_IN_COLUMNS),
    "columns_stock": System(_input_layer(tf.feature_column.embedding_column), **_IN_COLUMNS),
    "group_default": System(_group, is_ours=True, arithmetic=True, phases=("forward", "gradient")),
    "group_fused_default": System(
        _group, is_ours=True, arithmetic=True, phases=_UPDATING, optimizers="fused"
    ),
    "v2_default": System(_fused("v2"), is_ours=True, arithmetic=True),
    "stock_default": System(_each_column(_stock), arithmetic=True),
    "v2_fused_default": System(
        _fused("v2"), is_ours=True, arithmetic=True, phases=_UPDATING, optimizers="fused"
    ),
}
