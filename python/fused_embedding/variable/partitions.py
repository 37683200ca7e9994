"""An EmbeddingVariable in several partitions."""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.placement import on_cpu
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
    """One partition in a SavedModel of the whole variable: it has a handle, but no content."""

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
    """A variable that is divided into EmbeddingVariables, each of which has a part of the keys.

    Checkpoints track it as one object, whose content does not depend on the number of partitions.

    Attributes:
        embedding_dim: Length of a row.
        dtype: Type of the values.
        key_dtype: tf.int64 or tf.int32.
        partition_strategy: How keys are assigned to partitions, "hash" or "mod_ev".
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
        # Made here and not on first use, when the graph may be finalized.
        self._initializer = tf.group(*made, name=f"{name}/Initializer") if made else None

    @property
    def name(self) -> str:
        """Name without a partition's suffix."""
        return self._whole_name

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        # A checkpoint has the whole content, not partitions: their number may change on restore.
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
        """Does nothing: the constructor has received the partitions."""

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
        """Looks up keys of any shape. tf.gather and tf.nn.embedding_lookup call it.

        Args:
            indices: Integer keys of any shape.
            name: Name of the result.

        Returns:
            The rows: the shape of `indices` with `dim` appended.
        """
        return read_keys(indices, self.embedding_dim, self._lookup, name)

    def _lookup(self, keys: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Looks up distinct keys `[n]`, which occur `counts` `[n]` times; returns `[n, dim]`."""
        positions, keys_of_parts = self._partition(keys)
        rows = [
            part.lookup(part_keys, tf.gather(counts, part_positions))
            for part, part_keys, part_positions in zip(
                self._parts, keys_of_parts, positions, strict=True
            )
        ]
        with on_cpu():
            return tf.dynamic_stitch(positions, rows)

    @property
    def initializer(self) -> tf.Operation | None:
        """The operation that initializes all partitions; None eagerly."""
        return self._initializer

    def is_initialized(self, name: str | None = None) -> tf.Tensor:
        """Whether all partitions can be used: always, except on servers (docs/training.md)."""
        return tf.reduce_all(tf.stack([part.is_initialized() for part in self._parts]), name=name)

    def total_count(self) -> tf.Tensor:
        """Number of rows, int64."""
        return self.statistics()["size"]

    def get_dynamic_shape(self) -> tf.Tensor:
        """`[2]` int64: number of rows, `dim`."""
        return tf.stack([self.total_count(), self.embedding_dim])

    @property
    def steps_to_live(self) -> int:
        """Steps after which an unused key expires, by GlobalStepEvict; 0: never."""
        return self._parts[0].steps_to_live

    @property
    def storage_type(self) -> StorageType:
        """The tiers of each partition: StorageType.DRAM, DRAM and an SSD, or HBM."""
        return self._parts[0].storage_type

    def statistics(self) -> dict[str, tf.Tensor]:
        """Sums of the partitions' counters by name, int64: docs/embedding_variable.md."""
        all_parts = [part.statistics() for part in self._parts]
        return {name: tf.add_n([part[name] for part in all_parts]) for name in all_parts[0]}

    def get_frequency(self, ids: Any) -> tf.Tensor:
        """Occurrences of keys in training lookups, int64 shaped like `ids`; 0 without a row."""
        return self._of_each_key(ids, EmbeddingVariable.get_frequency)

    def get_version(self, ids: Any) -> tf.Tensor:
        """Step of each key's last training lookup, int64 shaped like `ids`; -1 without a row."""
        return self._of_each_key(ids, EmbeddingVariable.get_version)

    def export(self) -> ExportedRows:
        """A copy of the rows of all partitions, in ascending order of their keys."""
        columns = zip(*[part.export() for part in self._parts], strict=True)
        rows = ExportedRows(*[tf.concat(column, axis=0) for column in columns])
        order = tf.argsort(rows.keys)  # only the rows of each partition are in order
        return ExportedRows(*[tf.gather(column, order) for column in rows])

    def upsert(self, keys: Any, values: Any) -> tf.Operation | None:
        """Sets the values of keys, and inserts missing keys without asking a filter.

        Args:
            keys: `[n]` integers; if a key occurs twice, its last row is used.
            values: `[n, dim]` rows, converted to the dtype of the variable.

        Returns:
            The operation, in a graph.
        """
        positions, keys_of_parts = self._partition(as_keys(keys))
        values = tf.convert_to_tensor(values, self.dtype)
        return self._group(
            part.upsert(part_keys, tf.gather(values, part_positions))
            for part, part_keys, part_positions in zip(
                self._parts, keys_of_parts, positions, strict=True
            )
        )

    def prefetch(self, keys: Any) -> tf.Operation | None:
        """Reads the rows of keys from the SSD into DRAM; does nothing without a tier on an SSD.

        Args:
            keys: `[n]` integers.

        Returns:
            The operation, in a graph.
        """
        _, keys_of_parts = self._partition(as_keys(keys))
        parts = zip(self._parts, keys_of_parts, strict=True)
        return self._group(part.prefetch(part_keys) for part, part_keys in parts)

    def erase(self, keys: Any) -> tf.Tensor:
        """Removes the rows of keys, and the counts of keys that a filter has not admitted.

        Args:
            keys: `[n]` integers.

        Returns:
            Number of rows removed, int64.
        """
        _, keys_of_parts = self._partition(as_keys(keys))
        parts = zip(self._parts, keys_of_parts, strict=True)
        return tf.add_n([part.erase(part_keys) for part, part_keys in parts])

    def expire(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        """Removes rows that were not used for many steps, or whose values are small.

        Args:
            *args: `step`, `steps_to_live` and `l2_weight_threshold` of EmbeddingVariable.expire,
                all optional.
            **kwargs: The same by name.

        Returns:
            Number of rows removed, int64.
        """
        return tf.add_n([part.expire(*args, **kwargs) for part in self._parts])

    def _partition(self, keys: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """The positions in `keys` of each partition's keys, and these keys."""
        with on_cpu():
            part_of_key, keys_of_parts = self.divide(keys)
            positions = tf.dynamic_partition(tf.range(tf.size(keys)), part_of_key, len(self))
            return positions, keys_of_parts

    def divide(self, keys: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Assigns keys to partitions.

        Args:
            keys: `[n]` int64.

        Returns:
            `[n]` int32 number of the partition of each key, and the keys of each partition.
        """
        partition = raw_ops.PartitionWithPermutation(
            input=keys,
            partition_shapes=[tf.constant([0, self.embedding_dim], tf.int64)] * len(self),
            partition_strategy=self.partition_strategy,
        )
        return partition.partition_permutation[:, 0], partition.partitioned_values

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
        """Raises NotImplementedError: the variable has no dense tensor."""
        refuse_dense(self.name)


# Without this, TensorFlow would convert the object as a list.
tf.register_tensor_conversion_function(
    PartitionedEmbeddingVariable, lambda value, *args, **kwargs: refuse_dense(value.name)
)


AnyEmbeddingVariable = EmbeddingVariable | PartitionedEmbeddingVariable


def parts_of(variable: AnyEmbeddingVariable) -> list[EmbeddingVariable]:
    """All partitions; of a variable without partitions itself."""
    return list(variable) if isinstance(variable, PartitionedEmbeddingVariable) else [variable]
