"""The systems under comparison: ways to look one workload's ids up in tables with the same rows."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from benchmarks.harness import variables, workloads

PHASES = ("forward", "gradient", "sgd", "adagrad")
MAX_IDS_PER_ROW = 4096  # the longest list of real ids has 3,582
_TRAINING = ("forward", "sgd", "adagrad")
_UPDATING = ("sgd", "adagrad")


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a step is given.

    Attributes:
        fed: the tensors that a step is called with.
        sparse: one SparseTensor for each column.
        dense: `[num_columns, batch_size]` int64 ids, or None if not one-hot.
    """

    workload: workloads.Workload
    fed: list[tf.Tensor]
    sparse: list[tf.SparseTensor]
    dense: tf.Tensor | None


def fed_specs(workload: workloads.Workload) -> list[tf.TensorSpec]:
    """Returns the shapes and dtypes of Inputs.fed."""
    if workload.is_one_hot:
        return [tf.TensorSpec([workload.num_columns, workload.batch_size], tf.int64)]
    return [tf.TensorSpec([None, 2], tf.int64), tf.TensorSpec([None], tf.int64)]


def feed(batch: workloads.Batch) -> list[np.ndarray]:
    """Returns the arrays for Inputs.fed."""
    if batch.row_lengths is None:
        return [_aligned(batch.ids)]
    starts = np.cumsum(batch.row_lengths) - batch.row_lengths
    columns = np.arange(batch.ids.size) - np.repeat(starts, batch.row_lengths)
    indices = np.stack([batch.row_ids(), columns], axis=1).astype(np.int64)
    return [_aligned(indices), _aligned(batch.ids)]


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
    """Builds the sparse and dense views of the fed tensors."""
    num_rows = workload.batch_size
    if not workload.is_one_hot:
        shape = tf.constant([num_rows, MAX_IDS_PER_ROW], tf.int64)
        return Inputs(workload, fed, [tf.SparseTensor(fed[0], fed[1], shape)], None)
    indices = np.stack([np.arange(num_rows), np.zeros(num_rows)], axis=1).astype(np.int64)
    indices, shape = tf.constant(indices), tf.constant([num_rows, 1], tf.int64)
    columns = tf.unstack(fed[0])
    return Inputs(workload, fed, [tf.SparseTensor(indices, c, shape) for c in columns], fed[0])


# Of the inputs and the tables: the combined rows, and what their gradients are taken for.
Lookup = Callable[[Inputs, list], tuple[tf.Tensor, list]]


def _each_column(
    lookup: Callable[[tf.Variable, tf.SparseTensor, workloads.Combiner], tf.Tensor],
) -> Lookup:
    def combined(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
        combiner = inputs.workload.combiner
        columns = [lookup(t, ids, combiner) for t, ids in zip(tables, inputs.sparse, strict=True)]
        return _concat(columns), tables

    return combined


def _concat(columns: list[tf.Tensor]) -> tf.Tensor:
    return tf.concat(columns, axis=1) if len(columns) > 1 else columns[0]


def _stock(table: tf.Variable, ids: tf.SparseTensor, combiner: str) -> tf.Tensor:
    return tf.nn.safe_embedding_lookup_sparse(table, ids, combiner=combiner)


def _fused(fusion_version: Literal["v1", "v2", "v3"]) -> Lookup:
    def lookup(table: tf.Variable, ids: tf.SparseTensor, combiner: workloads.Combiner) -> tf.Tensor:
        import fused_embedding as fe  # stock alone can be measured where ours is not installed

        return fe.nn.fused_safe_embedding_lookup_sparse(
            table, ids, combiner=combiner, fusion_version=fusion_version
        )

    return _each_column(lookup)


def _group(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
    import fused_embedding as fe

    combiners = [inputs.workload.combiner] * len(tables)
    lookup = fe.nn.group_embedding_lookup_sparse
    return lookup(tables, inputs.sparse, combiners, concat=True), tables


def _without_inserting(lookup: Lookup) -> Lookup:
    def combined(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
        import fused_embedding as fe

        with fe.inference():
            return lookup(inputs, tables)

    return combined


def _plain(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
    ids = tf.unstack(inputs.dense)
    columns = [tf.nn.embedding_lookup(t, i) for t, i in zip(tables, ids, strict=True)]
    return _concat(columns), tables


def _tfra(inputs: Inputs, tables: list) -> tuple[tf.Tensor, list]:
    from tensorflow_recommenders_addons import dynamic_embedding

    lookups = [
        dynamic_embedding.safe_embedding_lookup_sparse(
            table,
            ids,
            combiner=inputs.workload.combiner,
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
            column = make_column(category, inputs.workload.dim, combiner=inputs.workload.combiner)
            columns.append(column)
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
        session_only: whether the system needs a graph of TensorFlow 1.
        phases: what the system can do.
        optimizers: whose v1 optimizers train it: "stock" TensorFlow's or "fused", of fe.train.
    """

    lookup: Lookup
    tables: str = "dense"
    is_ours: bool = False
    arithmetic: bool = False
    one_hot_only: bool = False
    session_only: bool = False
    phases: tuple[str, ...] = PHASES
    optimizers: str = "stock"


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
    "columns_v2": System(
        _input_layer(_fused_column), is_ours=True, one_hot_only=True, session_only=True
    ),
    "columns_stock": System(
        _input_layer(tf.feature_column.embedding_column), one_hot_only=True, session_only=True
    ),
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
