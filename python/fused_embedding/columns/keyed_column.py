"""Columns over EmbeddingVariables: stock columns that get a table where stock makes a variable.

How they read features and look up is stock's and `_tf_feature_column`'s; private modules of
TensorFlow are imported for the reason given there.
"""

import inspect
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column as fc_v1
from tensorflow.python.feature_column import feature_column_v2 as fc_v2
from tensorflow.python.feature_column import serialization
from tensorflow.python.ops import init_ops

from fused_embedding.columns.fused_column import (
    FusedEmbeddingColumn,
    FusedSharedEmbeddingColumn,
    FusedSharedEmbeddingColumnV1,
    fused_lookup,
    version_over_table,
)
from fused_embedding.columns.groups import mode_of_keras
from fused_embedding.lookup.feature_ids import KeyRule
from fused_embedding.variable import options
from fused_embedding.variable.composed import ComposedTable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable
from fused_embedding.variable.scope import get_embedding_variable

# Strings hash to 0 .. NUM_STRING_IDS - 1; TensorFlow hashes to no more buckets.
NUM_STRING_IDS = 2**63 - 1

_VARIABLE = "embedding_weights"  # what stock columns call it
_WRAPPERS = (
    fc_v1._SequenceCategoricalColumn,
    fc_v1._WeightedCategoricalColumn,
    fc_v2.SequenceCategoricalColumn,
    fc_v2.WeightedCategoricalColumn,
)
_CategoricalFields = namedtuple(
    "_CategoricalFields", ("key", "dtype", "partition_num", "ev_option")
)


def string_ids(values: tf.Tensor) -> tf.Tensor:
    """`[nnz]` int64 ids of strings: FarmHash's Fingerprint64 modulo 2^63 - 1."""
    return tf.strings.to_hash_bucket_fast(values, NUM_STRING_IDS)


@serialization.register_feature_column
class IntegerizedCategoricalColumn(fc_v2.HashedCategoricalColumn):
    """See `fused_embedding.contrib.layers.sparse_column_with_integerized_feature`."""

    def _transform_input_tensor(self, input_tensor: tf.SparseTensor) -> tf.SparseTensor:
        ids = tf.math.floormod(tf.cast(input_tensor.values, tf.int64), self.hash_bucket_size)
        return tf.SparseTensor(input_tensor.indices, ids, input_tensor.dense_shape)


class TableCategoricalColumn(fc_v2.HashedCategoricalColumn):
    """A categorical column that makes the table of its embedding column.

    `HashedCategoricalColumn` gets a feature from the batch as this column does. A subclass has
    fields of its own, `key` and `dtype` among them, and `make_table`.

    Attributes:
        is_shareable: Whether several columns may share the table.
    """

    is_shareable = True

    def _transform_input_tensor(self, input_tensor: tf.SparseTensor) -> tf.SparseTensor:
        if self.dtype.is_integer != input_tensor.dtype.is_integer:
            raise ValueError(
                f"column {self.key!r} has dtype {self.dtype.name}, but the feature is "
                f"{input_tensor.dtype.name}; give the column the dtype of its feature"
            )
        values = input_tensor.values
        ids = string_ids(values) if self.dtype == tf.string else tf.cast(values, tf.int64)
        return tf.SparseTensor(input_tensor.indices, ids, input_tensor.dense_shape)

    def with_dimension(self, dimension: Any) -> tuple[Any, Any]:
        """The column of an embedding column of a dimension, and the length of an embedding.

        Args:
            dimension: The user's.
        """
        return self, dimension

    def make_table(self, name: str, dim: int, **arguments: Any) -> Any:
        """The table of the column in the current variable scope.

        Args:
            name: What stock columns call their variable.
            dim: Length of an embedding.
            **arguments: `initializer`, `trainable` and `collections`, as of
                `fe.get_embedding_variable`.
        """
        raise NotImplementedError

    def key_rule(self, is_text: bool) -> KeyRule | None:
        """How a value becomes an id; None where the feature is not of the column's dtype.

        Args:
            is_text: Whether the feature has strings.
        """
        if is_text != (self.dtype == tf.string):
            return None
        return KeyRule("hash", NUM_STRING_IDS) if is_text else KeyRule("identity", NUM_STRING_IDS)

    @property
    def num_buckets(self) -> int:
        """Refused: there is no such number."""
        raise NotImplementedError(
            f"the number of buckets of column {self.key!r} was asked for, but its table has none; "
            "pass the column to embedding_column, shared_embedding_columns or shared_embeddings of "
            "fe.feature_column, not to those of tf.feature_column, an indicator column or a linear "
            "model"
        )


def partitioner_of(num_parts: int | None) -> Any:
    """A partitioner into so many parts; None for one."""
    return None if num_parts is None else tf.compat.v1.fixed_size_partitioner(num_parts)


@serialization.register_feature_column
class EmbeddingVariableCategoricalColumn(_CategoricalFields, TableCategoricalColumn):
    """See `fused_embedding.feature_column.categorical_column_with_embedding`."""

    takes_parsed_ids = True  # raw_features.rule_of_parsed; not of subclasses

    def make_table(self, name: str, dim: int, **arguments: Any) -> Any:
        """An EmbeddingVariable."""
        return get_embedding_variable(
            name,
            dim,
            partitioner=partitioner_of(self.partition_num),
            ev_option=self.ev_option,
            **arguments,
        )

    def get_config(self) -> dict[str, Any]:
        """The fields, as JSON."""
        serialize = serialization._serialize_keras_object
        option = options.to_config(self.ev_option, serialize)
        return {**self._asdict(), "dtype": self.dtype.name, "ev_option": option}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None, columns_by_name: Any = None
    ) -> Any:
        """The column of `get_config`."""

        def deserialize(initializer: Any) -> Any:
            stock = dict(inspect.getmembers(init_ops, inspect.isclass))
            return serialization._deserialize_keras_object(
                initializer, module_objects=stock, custom_objects=custom_objects
            )

        option = options.from_config(config["ev_option"], deserialize)
        return cls(**{**config, "dtype": tf.as_dtype(config["dtype"]), "ev_option": option})


def categorical_column_of_table(column: Any) -> Any:
    """The column with a table that `column` is, or puts weights or a sequence around; else None."""
    while isinstance(column, _WRAPPERS):
        column = column.categorical_column
    return column if isinstance(column, TableCategoricalColumn) else None


def sparse_tensors_of(column: Any, features: Mapping[str, Any]) -> Any:
    """Ids, and weights or None, that a categorical column makes of a batch in a TF1 graph."""
    return column._get_sparse_tensors(fc_v1._LazyBuilder(dict(features)))


def sequence_column(column: TableCategoricalColumn) -> Any:
    """`column` for sequences."""
    return fc_v2.SequenceCategoricalColumn(column)


def with_table(column: Any, initializer: Any, do_fusion: Any) -> Any:
    """A stock embedding column over a column with a table, as one that looks up in the table.

    Args:
        column: What a function of tf.feature_column returned.
        initializer: The user's, where `column` has stock's default.
        do_fusion: The user's; None and False, which mean a stock lookup elsewhere, mean True.

    Returns:
        The column.

    Raises:
        NotImplementedError: If `column` starts from a checkpoint.
        ValueError: See `version_over_table`.
    """
    do_fusion = do_fusion or True
    version_over_table(do_fusion)
    column = _WITH_TABLE[type(column)](*column, do_fusion=do_fusion)
    creator = getattr(column, "shared_embedding_column_creator", None)
    checkpoint = column.ckpt_to_load_from if creator is None else creator._ckpt_to_load_from
    if checkpoint is not None:
        raise NotImplementedError(
            f"ckpt_to_load_from = {checkpoint!r} was given, but the table of {column.name!r} "
            "cannot start from the dense variable of a checkpoint; restore it with a Saver. Rows "
            "of an EmbeddingVariable can also be upserted, or come from an ev_option with a "
            "CheckpointOption"
        )
    if creator is None:
        return column._replace(initializer=initializer)
    return column


def make_shared(
    make_stock: Callable[[list[Any]], list[Any]],
    categorical_columns: Iterable[Any],
    initializer: Any,
    do_fusion: Any,
) -> list[Any]:
    """Columns that share one table.

    Args:
        make_stock: A function of tf.feature_column, given all but its columns.
        categorical_columns: Columns with tables, maybe weighted or of sequences.
        initializer: The user's.
        do_fusion: The user's.

    Returns:
        One column for each categorical column.

    Raises:
        ValueError: If some columns have no table, or their options differ.
        NotImplementedError: See `with_table`.
    """
    categorical_columns = list(categorical_columns)
    tables = [categorical_column_of_table(column) for column in categorical_columns]
    first = tables[0]
    _check_shareable(tables)
    for table in tables[1:]:
        if first is None or table is None or first._replace(key=table.key) != table:
            raise ValueError(
                "columns that share an EmbeddingVariable must all be made by "
                "categorical_column_with_embedding with the same dtype, partition_num and "
                f"ev_option, got {categorical_columns}"
            )
    assert first is not None
    # Stock asks for numbers of buckets and compares them, so it is shown columns that have some.
    stock = make_stock([_with_buckets(column) for column in categorical_columns])
    creators: dict[Any, Any] = {}  # stock's creator -> ours, one for all columns
    columns = []
    for column, categorical_column in zip(stock, categorical_columns, strict=True):
        column = column._replace(categorical_column=categorical_column)
        creator = getattr(column, "shared_embedding_column_creator", None)
        if creator is not None:
            shared = creators.setdefault(creator, _TableCreator(creator, first, initializer))
            column = column._replace(shared_embedding_column_creator=shared)
        columns.append(with_table(column, initializer, do_fusion))
    return columns


def _check_shareable(tables: list[Any]) -> None:
    for table in tables:
        if isinstance(table, TableCategoricalColumn) and not table.is_shareable:
            raise ValueError(
                f"{table.name!r} was given to shared columns, but its table has parts of its own; "
                "give each column an embedding_column"
            )


def _with_buckets(column: Any) -> Any:
    if isinstance(column, TableCategoricalColumn):
        return tf.feature_column.categorical_column_with_hash_bucket(column.key, 2, column.dtype)
    return column._replace(categorical_column=_with_buckets(column.categorical_column))


def _parts_of(table: Any) -> list[Any]:
    """The variables in a table that is none itself."""
    if isinstance(table, PartitionedEmbeddingVariable):
        return list(table)
    return list(table.variables) if isinstance(table, ComposedTable) else []


class _ModeOfKeras:
    """A column that takes the argument `training`, which layers of Keras 2 offer to columns."""

    def get_dense_tensor(
        self, transformation_cache: Any, state_manager: Any, training: Any = None
    ) -> tf.Tensor:
        with mode_of_keras(state_manager, training):
            stock = super().get_dense_tensor  # type: ignore[misc]
            return stock(transformation_cache, state_manager, training)

    def get_sequence_dense_tensor(
        self, transformation_cache: Any, state_manager: Any, training: Any = None
    ) -> Any:
        with mode_of_keras(state_manager, training):
            stock = super().get_sequence_dense_tensor  # type: ignore[misc]
            return stock(transformation_cache, state_manager, training)


@serialization.register_feature_column
class EmbeddingVariableColumn(_ModeOfKeras, FusedEmbeddingColumn):
    """See `fused_embedding.feature_column.embedding_column`."""

    has_embedding_variable = True

    def _make_table(self, trainable: bool, collections: Any = None, name: str = _VARIABLE) -> Any:
        return categorical_column_of_table(self.categorical_column).make_table(
            name,
            self.dimension,
            initializer=self.initializer,
            trainable=self.trainable and trainable,
            collections=collections,
        )

    def create_state(self, state_manager: Any) -> None:
        """Makes the table for a layer, as TensorFlow's columns make their variables."""
        layer = state_manager._layer
        scope = tf.compat.v1.get_variable_scope().name
        # DenseFeatures of tf.keras opens name scopes here, others a variable scope for the layer
        # and the column.
        is_scoped = layer.name in scope.split("/")
        name = _VARIABLE if is_scoped else f"{layer.name}/{self.name}/{_VARIABLE}"
        table = self._make_table(trainable=layer.trainable, name=name)
        # The layer tracks what it is given, as weights and for checkpoints, but not containers.
        state_manager.add_resource(self, _VARIABLE, table)
        for i, part in enumerate(_parts_of(table)):
            state_manager.add_resource(self, f"{_VARIABLE}/part_{i}", part)

    def _get_dense_tensor_internal(self, sparse_tensors: Any, state_manager: Any) -> tf.Tensor:
        return fused_lookup(self, state_manager.get_resource(self, _VARIABLE), sparse_tensors)

    def _old_get_dense_tensor_internal(
        self, sparse_tensors: Any, weight_collections: Any, trainable: bool
    ) -> tf.Tensor:
        table = self._make_table(trainable=trainable, collections=weight_collections)
        return fused_lookup(self, table, sparse_tensors)

    def _get_dense_tensor_internal_helper(self, sparse_tensors: Any, table: Any) -> tf.Tensor:
        return fused_lookup(self, table, sparse_tensors)


class SharedEmbeddingVariableColumnV1(FusedSharedEmbeddingColumnV1):
    """See `fused_embedding.feature_column.shared_embedding_columns`."""

    has_embedding_variable = True

    def _get_dense_tensor_internal(
        self, inputs: Any, weight_collections: Any = None, trainable: Any = None
    ) -> tf.Tensor:
        with tf.compat.v1.name_scope(None, default_name=self.name):
            sparse_tensors = self.categorical_column._get_sparse_tensors(inputs)
            return fused_lookup(self, self._table(weight_collections, trainable), sparse_tensors)

    def _table(self, weight_collections: Any, trainable: Any) -> Any:
        name = self.shared_embedding_collection_name
        tables = tf.compat.v1.get_collection(name)
        if not tables:
            table = categorical_column_of_table(self.categorical_column).make_table(
                _VARIABLE,
                self.dimension,
                initializer=self.initializer,
                trainable=self.trainable and trainable,
                collections=weight_collections,
            )
            tf.compat.v1.add_to_collection(name, table)
            return table
        if len(tables) > 1 or getattr(tables[0], "embedding_dim", None) != self.dimension:
            raise ValueError(
                f"collection {name!r} must hold the table of {self.name!r} with embedding_dim = "
                f"{self.dimension} and nothing else, but it has {tables}; choose another "
                "shared_embedding_collection_name"
            )
        return tables[0]


class _TableCreator(fc_v2.SharedEmbeddingColumnCreator):
    """Makes the one table of `shared_embeddings` in each graph."""

    def __init__(self, stock: Any, categorical_column: TableCategoricalColumn, initializer: Any):
        super().__init__(
            stock._dimension,
            initializer,
            stock._ckpt_to_load_from,
            stock._tensor_name_in_ckpt,
            num_buckets=None,
            trainable=stock._trainable,
            name=stock._name,
            use_safe_embedding_lookup=stock._use_safe_embedding_lookup,
        )
        self._categorical_column = categorical_column

    @property
    def embedding_weights(self) -> Any:
        key = tf.compat.v1.get_default_graph()._graph_key
        if key not in self._embedding_weights:
            self._embedding_weights[key] = self._categorical_column.make_table(
                self._name,
                self._dimension,
                initializer=self._initializer,
                trainable=self._trainable,
            )
        return self._embedding_weights[key]


@serialization.register_feature_column
class SharedEmbeddingVariableColumn(_ModeOfKeras, FusedSharedEmbeddingColumn):
    """See `fused_embedding.feature_column.shared_embeddings`."""

    has_embedding_variable = True


_WITH_TABLE = {
    fc_v2.EmbeddingColumn: EmbeddingVariableColumn,
    fc_v2.SharedEmbeddingColumn: SharedEmbeddingVariableColumn,
    fc_v1._SharedEmbeddingColumn: SharedEmbeddingVariableColumnV1,
}
