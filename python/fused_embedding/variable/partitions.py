"""An EmbeddingVariable in several partitions."""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.placement import beside_hash_tables
from fused_embedding.ops.tf_private import Trackable, register_serializable
from fused_embedding.variable import saved_model
from fused_embedding.variable.embedding_variable import (
    EmbeddingVariable,
    ExportedRows,
)
from fused_embedding.variable.reads import as_keys, read_keys, refuse_dense
from fused_embedding.variable.storage_options import StorageType


@register_serializable(saved_model.PACKAGE, "PartOfEmbeddingVariable")
class PartInSavedModel(Trackable):
    """Stands for one partition where the whole variable is saved: it has a handle, no content."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def _export_to_saved_model_graph(
        self, object_map: Any, tensor_map: Any, options: Any, **kwargs: Any
    ) -> list[tf.Tensor]:
        return saved_model.export_handle(self._part, tensor_map)

    def _serialize_to_proto(self, object_proto: Any = None, **kwargs: Any) -> Any:
        return self._part._serialize_to_proto(object_proto)

    @classmethod
    def _deserialize_from_proto(cls, proto: Any, **kwargs: Any) -> Any:
        return EmbeddingVariable._deserialize_from_proto(proto=proto)


@register_serializable(saved_model.PACKAGE, "PartitionedEmbeddingVariable")
class PartitionedEmbeddingVariable(tf.Module):
    """EmbeddingVariables that share the keys of one table among them.

    Checkpoints track it as one object, whose content does not depend on the number of partitions.

    Attributes:
        embedding_dim: Length of a row.
        dtype: Type of the values.
        key_dtype: tf.int64 or tf.int32.
        partition_strategy: How keys belong to partitions, "hash" or "mod_ev".
    """

    def __init__(self, name: str, parts: list[EmbeddingVariable]) -> None:
        super().__init__()
        self._whole_name = name
        self._parts = tuple(parts)
        self.embedding_dim = parts[0].embedding_dim
        self.dtype = parts[0].dtype
        self.key_dtype = parts[0].key_dtype
        self.trainable = parts[0].trainable
        self.partition_strategy = parts[0].partition.strategy
        made = [part.initializer for part in parts if part.initializer is not None]
        # Not made when it is asked for: the graph may be finalized then.
        self._initializer = tf.group(*made, name=f"{name}/Initializer") if made else None

    @property
    def name(self) -> str:
        """Name without a partition's suffix."""
        return self._whole_name

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        # Its content is its own, not that of its partitions: there may be others when it returns.
        if save_type != "savedmodel":
            return {}
        parts = (PartInSavedModel(part) for part in self._parts)
        return {f"part_{index}": part for index, part in enumerate(parts)}

    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        self._parts[0]._copy_trackable_to_cpu(object_map)

    def _deserialization_dependencies(self, children: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in children.items() if name.startswith("part_")}

    def _serialize_to_proto(self, object_proto: Any = None, **kwargs: Any) -> Any:
        return saved_model.to_proto(name=self.name)

    @classmethod
    def _deserialize_from_proto(
        cls, proto: Any, dependencies: dict[str, EmbeddingVariable], **kwargs: Any
    ) -> "PartitionedEmbeddingVariable":
        parts = [dependencies[f"part_{index}"] for index in range(len(dependencies))]
        return cls(saved_model.from_proto(proto)["name"], parts)

    def _add_trackable_child(self, name: str, value: Any) -> None:
        """Nothing: its partitions were given to it when it was made."""

    def __iter__(self) -> Iterator[EmbeddingVariable]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> EmbeddingVariable:
        return self._parts[index]

    def __repr__(self) -> str:
        return f"<fe.PartitionedEmbeddingVariable {self.name!r} of {len(self)} partitions>"

    def _get_variable_list(self) -> list[EmbeddingVariable]:
        return list(self._parts)

    @property
    def shape(self) -> tf.TensorShape:
        """`[?, dim]`."""
        return tf.TensorShape([None, self.embedding_dim])

    def sparse_read(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """As EmbeddingVariable's."""
        return read_keys(indices, self.embedding_dim, self._lookup, name)

    def _lookup(self, keys: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """The rows of distinct keys `[n]` that occur `counts` `[n]` times: `[n, dim]`."""
        positions, keys_of_parts = self._partition(keys)
        rows = [
            part.lookup(part_keys, tf.gather(counts, part_positions))
            for part, part_keys, part_positions in zip(
                self._parts, keys_of_parts, positions, strict=True
            )
        ]
        with beside_hash_tables():
            return tf.dynamic_stitch(positions, rows)

    @property
    def initializer(self) -> tf.Operation | None:
        """The operation that initializes all partitions; None eagerly."""
        return self._initializer

    def is_initialized(self, name: str | None = None) -> tf.Tensor:
        """Whether all partitions may be used, as EmbeddingVariable's."""
        return tf.reduce_all(tf.stack([part.is_initialized() for part in self._parts]), name=name)

    def total_count(self) -> tf.Tensor:
        """Number of rows, int64."""
        return self.statistics()["size"]

    def get_dynamic_shape(self) -> tf.Tensor:
        """As EmbeddingVariable's."""
        return tf.stack([self.total_count(), self.embedding_dim])

    @property
    def steps_to_live(self) -> int:
        """As EmbeddingVariable's."""
        return self._parts[0].steps_to_live

    @property
    def storage_type(self) -> StorageType:
        """As EmbeddingVariable's."""
        return self._parts[0].storage_type

    def statistics(self) -> dict[str, tf.Tensor]:
        """Counters of all partitions added up, as EmbeddingVariable's."""
        all_parts = [part.statistics() for part in self._parts]
        return {name: tf.add_n([part[name] for part in all_parts]) for name in all_parts[0]}

    def get_frequency(self, ids: Any) -> tf.Tensor:
        """As EmbeddingVariable's."""
        return self._of_each_key(ids, EmbeddingVariable.get_frequency)

    def get_version(self, ids: Any) -> tf.Tensor:
        """As EmbeddingVariable's."""
        return self._of_each_key(ids, EmbeddingVariable.get_version)

    def export(self) -> ExportedRows:
        """A copy of all rows, by ascending key."""
        columns = zip(*[part.export() for part in self._parts], strict=True)
        rows = ExportedRows(*[tf.concat(column, axis=0) for column in columns])
        order = tf.argsort(rows.keys)  # each partition is in order, but not all of them together
        return ExportedRows(*[tf.gather(column, order) for column in rows])

    def upsert(self, keys: Any, values: Any) -> tf.Operation | None:
        """As EmbeddingVariable's."""
        positions, keys_of_parts = self._partition(as_keys(keys))
        values = tf.convert_to_tensor(values, self.dtype)
        return self._group(
            part.upsert(part_keys, tf.gather(values, part_positions))
            for part, part_keys, part_positions in zip(
                self._parts, keys_of_parts, positions, strict=True
            )
        )

    def prefetch(self, keys: Any) -> tf.Operation | None:
        """As EmbeddingVariable's."""
        _, keys_of_parts = self._partition(as_keys(keys))
        parts = zip(self._parts, keys_of_parts, strict=True)
        return self._group(part.prefetch(part_keys) for part, part_keys in parts)

    def erase(self, keys: Any) -> tf.Tensor:
        """As EmbeddingVariable's."""
        _, keys_of_parts = self._partition(as_keys(keys))
        parts = zip(self._parts, keys_of_parts, strict=True)
        return tf.add_n([part.erase(part_keys) for part, part_keys in parts])

    def expire(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        """As EmbeddingVariable's."""
        return tf.add_n([part.expire(*args, **kwargs) for part in self._parts])

    def _partition(self, keys: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Positions in `keys`, and keys, of each partition."""
        with beside_hash_tables():
            partition = raw_ops.PartitionWithPermutation(
                input=keys,
                partition_shapes=[tf.constant([0, self.embedding_dim], tf.int64)] * len(self),
                partition_strategy=self.partition_strategy,
            )
            part_of_key = partition.partition_permutation[:, 0]
            positions = tf.dynamic_partition(tf.range(tf.size(keys)), part_of_key, len(self))
            return positions, partition.partitioned_values

    def _of_each_key(
        self, ids: Any, method: Callable[[EmbeddingVariable, tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        keys = as_keys(ids)
        positions, keys_of_parts = self._partition(tf.reshape(keys, [-1]))
        results = [
            method(part, part_keys)
            for part, part_keys in zip(self._parts, keys_of_parts, strict=True)
        ]
        return tf.reshape(tf.dynamic_stitch(positions, results), tf.shape(keys))

    @staticmethod
    def _group(operations: Iterator[tf.Operation | None]) -> tf.Operation | None:
        made = [operation for operation in operations if operation is not None]
        return tf.group(*made) if made else None

    def as_tensor(self) -> NoReturn:
        """Raises: there is no dense tensor of it."""
        refuse_dense(self.name)


# Without it, TensorFlow would take the object for a list.
tf.register_tensor_conversion_function(
    PartitionedEmbeddingVariable, lambda value, *args, **kwargs: refuse_dense(value.name)
)
