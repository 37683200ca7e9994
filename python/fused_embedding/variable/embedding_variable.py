"""EmbeddingVariable: a table of embeddings without a vocabulary, as a TensorFlow variable."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.control_flow import branch_gradients, name_table
from fused_embedding.ops.tf_private import (
    BaseResourceVariable,
    EagerResourceDeleter,
    colocate_with,
    could_possibly_record,
    create_handle_data,
    register_serializable,
    set_handle_data,
    uid,
    variable_accessed,
)
from fused_embedding.variable import created, readiness, saved_model, snapshot
from fused_embedding.variable.inference import is_inference
from fused_embedding.variable.options import EmbeddingVariableOption
from fused_embedding.variable.reads import as_keys, global_step_value, read_keys, refuse_dense
from fused_embedding.variable.storage_options import StorageType

# The names of what the op EmbeddingVariableStatistics counts, in its order: a graph needs them
# before the op runs. The last ones are those of a tier on an SSD.
# C++: core/table/table_statistics.cc.
TIER_STATISTICS = (
    "demotions",
    "written_back",
    "leaving",
    "cold_gets",
    "cold_hits",
    "cold_reads",
    "cold_bytes_read",
    "cold_puts",
    "cold_bytes_put",
    "cold_bytes_written",
    "cold_bytes",
)
STATISTICS = (
    "size",
    "filtered",
    "memory_bytes",
    "index_probes",
    "hits",
    "misses",
    "inserts",
    "refusals",
    "not_admitted",
    "evictions",
    "expirations",
    "erasures",
    *TIER_STATISTICS,
)


@dataclasses.dataclass(frozen=True)
class Partition:
    """Which partition of a variable an EmbeddingVariable is.

    Attributes:
        whole_name: Name of the variable, without a partition's suffix.
        index: Number of the partition, from 0.
        count: Number of partitions.
        strategy: How keys are assigned to partitions, "hash" or "mod_ev".
    """

    whole_name: str
    index: int = 0
    count: int = 1
    strategy: str = "hash"


class ExportedRows(NamedTuple):
    """Rows of an EmbeddingVariable, in ascending order of their keys.

    Attributes:
        keys: `[n]` int64.
        values: `[n, dim]`.
        versions: `[n]` int64 step of the last training lookup.
        freqs: `[n]` int64 occurrences in training lookups.
    """

    keys: tf.Tensor
    values: tf.Tensor
    versions: tf.Tensor
    freqs: tf.Tensor


def _deleter(handle: Any, is_kept_by_functions: bool) -> Any:
    """The object that deletes a table: with the variable, or with the last reference to its handle.

    Signatures of a SavedModel may outlive the loaded object, as with stock's variables, so they
    keep its tables alive. A table that is trained is deleted with its variable: functions that
    captured its handle are in reference cycles, and its memory would only be freed by Python's
    garbage collector.
    """
    if not is_kept_by_functions:
        return EagerResourceDeleter(handle, handle.device)
    with tf.device(handle.device):
        copy = tf.identity(handle)  # the deleter would keep the handle itself alive
    handle._fused_embedding_deleter = EagerResourceDeleter(copy, handle.device)
    return None


@register_serializable(saved_model.PACKAGE, "EmbeddingVariable")
class EmbeddingVariable(BaseResourceVariable):
    """A `[?, dim]` variable whose rows are found by a 64-bit key. `fe.get_embedding_variable`.

    A key gets a row once training lookups have seen it often enough; the row's first value is a
    function of the key. `fe.nn`, feature columns and `tf.nn.embedding_lookup` read the variable.
    The optimizers in docs/training.md train it, and it is saved like any variable. Reading it as
    one dense tensor raises NotImplementedError.

    Attributes:
        embedding_dim: Length of a row.
        key_dtype: tf.int64 or tf.int32.
        option: The EmbeddingVariableOption.
        table_attributes: Attrs of the op that makes the table.
        partition: Which partition of a partitioned variable it is.
        check_rule: Called with the name of each optimizer rule before it trains the variable; it
            refuses the rule by raising. None: no rule is refused.

    A variable of a SavedModel is frozen: its lookups insert nothing.
    """

    check_rule: Callable[[str], None] | None = None

    def __init__(
        self,
        name: str,
        table_attributes: dict[str, Any],
        *,
        option: EmbeddingVariableOption,
        key_dtype: tf.DType = tf.int64,
        trainable: bool = True,
        partition: Partition | None = None,
    ) -> None:
        self.table_attributes = table_attributes
        self.option = option
        self.key_dtype = key_dtype
        self.embedding_dim: int = table_attributes["dim"]
        self.partition = partition or Partition(name)
        in_graph = not tf.executing_eagerly()
        # Two eager variables of one name are two variables; in a graph, names are unique.
        shared_name = name if in_graph else f"{name}_{uid()}"
        with tf.compat.v1.name_scope(None):
            handle = saved_model.make_handle(table_attributes, name, shared_name)
        # Shape [0, dim]: TensorFlow makes zeros of it as the gradient of a branch without a lookup.
        no_rows = tf.TensorShape([0, self.embedding_dim])
        set_handle_data(handle, create_handle_data(no_rows, table_attributes["dtype"]))
        name_table(handle, name)
        created.announce_table(self)
        shape = tf.TensorShape([None, self.embedding_dim])
        super().__init__(
            trainable=trainable,
            shape=shape,
            dtype=table_attributes["dtype"],
            handle=handle,
            name=name,
            unique_id=shared_name,
            handle_name=name,
            initializer_op=(
                readiness.make_initializer(handle, shape, f"{name}/Initializer")
                if in_graph
                else None
            ),
            in_graph_mode=in_graph,
            # Keras compiles a model only in the strategy scope that its variables were made in.
            distribute_strategy=(
                tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
            ),
        )
        is_loaded = table_attributes.get("frozen", False)
        self._deleter = None if in_graph else _deleter(handle, is_kept_by_functions=is_loaded)

    # --- Lookups ---

    def lookup(
        self, keys: tf.Tensor, counts: tf.Tensor | None = None, insert: bool | None = None
    ) -> tf.Tensor:
        """Looks up the rows of distinct keys. Inserts and counts them, except in `fe.inference()`.

        Args:
            keys: `[n]` int64, distinct.
            counts: `[n]` int32 occurrences of each key in the batch; None: one each.
            insert: Whether to insert and count; None: the property `inserts`.

        Returns:
            `[n, dim]` rows.
        """
        insert = self.inserts if insert is None else insert
        self.tell_of_lookup(insert)
        with colocate_with(self.handle), branch_gradients():
            return raw_ops.EmbeddingVariableLookup(
                resource=self.handle,
                keys=keys,
                counts=tf.zeros([0], tf.int32) if counts is None else counts,
                step=global_step_value(),
                insert=insert,
                dtype=self.dtype,
            ).embeddings

    @property
    def inserts(self) -> bool:
        """Whether a lookup that is built or run now counts and inserts keys."""
        return self.trainable and not is_inference()

    def tell_of_lookup(self, insert: bool) -> None:
        """Tells gradient tapes that an op looks up keys, and whether it inserts them."""
        variable_accessed(self)
        if insert and tf.executing_eagerly() and could_possibly_record():
            self.__dict__["_is_on_tape"] = True  # read by keras/optimizers.py

    def sparse_read(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Looks up keys of any shape. tf.gather and tf.nn.embedding_lookup call it.

        Args:
            indices: Integer keys of any shape.
            name: Name of the result.

        Returns:
            The rows: the shape of `indices` with `dim` appended.
        """
        return read_keys(indices, self.embedding_dim, self.lookup, name)

    # --- Content ---

    def total_count(self) -> tf.Tensor:
        """Number of rows, int64."""
        return self.statistics()["size"]

    def get_dynamic_shape(self) -> tf.Tensor:
        """`[2]` int64: number of rows, `dim`."""
        return tf.stack([self.total_count(), self.embedding_dim])

    @property
    def steps_to_live(self) -> int:
        """Steps after which an unused key expires, by GlobalStepEvict; 0: never."""
        return self.option.steps_to_live

    @property
    def storage_type(self) -> StorageType:
        """The tiers of the table: StorageType.DRAM, DRAM and an SSD, or HBM."""
        return self.option.storage_option.storage_type or StorageType.DRAM

    def get_frequency(self, ids: Any) -> tf.Tensor:
        """Occurrences of keys in training lookups, int64 shaped like `ids`; 0 without a row."""
        return self._metadata(ids)[0]

    def get_version(self, ids: Any) -> tf.Tensor:
        """Step of each key's last training lookup, int64 shaped like `ids`; -1 without a row."""
        return self._metadata(ids)[1]

    def _metadata(self, ids: Any) -> tuple[tf.Tensor, tf.Tensor]:
        keys = as_keys(ids)
        with colocate_with(self.handle):
            found = raw_ops.EmbeddingVariableMetadata(
                resource=self.handle, keys=tf.reshape(keys, [-1])
            )
        shape = tf.shape(keys)
        return tf.reshape(found.frequencies, shape), tf.reshape(found.versions, shape)

    def export(self) -> ExportedRows:
        """A copy of all rows, in ascending order of their keys."""
        content = self.export_content()
        return ExportedRows(content.keys, content.values, content.versions, content.frequencies)

    def export_content(self) -> Any:
        """All outputs of the op EmbeddingVariableExport: the content of a checkpoint."""
        with colocate_with(self.handle):
            return raw_ops.EmbeddingVariableExport(
                resource=self.handle, dtype=self.dtype, slot_dtype=self.slot_dtype
            )

    @property
    def slot_dtype(self) -> tf.DType:
        """Type of the optimizer slots: tf.float64 for float64 values, else tf.float32."""
        return tf.float64 if self.dtype == tf.float64 else tf.float32

    def upsert(self, keys: Any, values: Any) -> tf.Operation | None:
        """Sets the values of keys, and inserts missing keys without asking a filter.

        Args:
            keys: `[n]` integers; if a key occurs twice, its last row is used.
            values: `[n, dim]` rows, converted to the dtype of the variable.

        Returns:
            The operation, in a graph.
        """
        with colocate_with(self.handle):
            return raw_ops.EmbeddingVariableUpsert(
                resource=self.handle,
                keys=as_keys(keys),
                values=tf.convert_to_tensor(values, self.dtype),
            )

    def prefetch(self, keys: Any) -> tf.Operation | None:
        """Reads the rows of keys from the SSD into DRAM; does nothing without a tier on an SSD.

        `fe.data.prefetch_embeddings` does it for the next batches of an input pipeline.

        Args:
            keys: `[n]` integers.

        Returns:
            The operation, in a graph.
        """
        with colocate_with(self.handle):
            return raw_ops.EmbeddingVariablePrefetch(resource=self.handle, keys=as_keys(keys))

    def erase(self, keys: Any) -> tf.Tensor:
        """Removes the rows of keys, and the counts of keys that a filter has not admitted.

        Args:
            keys: `[n]` integers.

        Returns:
            Number of rows removed, int64.
        """
        with colocate_with(self.handle):
            return raw_ops.EmbeddingVariableErase(resource=self.handle, keys=as_keys(keys))

    def expire(
        self,
        step: Any = None,
        steps_to_live: int | None = None,
        l2_weight_threshold: float | None = None,
    ) -> tf.Tensor:
        """Removes rows that were not used for many steps, or whose values are small.

        Args:
            step: The current step; None: the global step, or the table's own counter without one.
            steps_to_live: A row not used for more than this many steps is removed; None: the value
                of GlobalStepEvict; 0: off.
            l2_weight_threshold: A row with an L2 norm below it is removed; None: the value of
                L2WeightEvict; 0: off.

        Returns:
            Number of rows removed, int64.
        """
        steps = self.option.steps_to_live if steps_to_live is None else steps_to_live
        norm = self.option.l2_weight_threshold
        norm = norm if l2_weight_threshold is None else l2_weight_threshold
        with colocate_with(self.handle):
            return raw_ops.EmbeddingVariableExpire(
                resource=self.handle,
                step=global_step_value() if step is None else tf.cast(step, tf.int64),
                steps_to_live=tf.constant(steps, tf.int64),
                l2_weight_threshold=tf.constant(norm, tf.float64),
            )

    def statistics(self) -> dict[str, tf.Tensor]:
        """Counters of the table by name, int64 scalars. docs/embedding_variable.md lists them."""
        with colocate_with(self.handle):
            values = raw_ops.EmbeddingVariableStatistics(resource=self.handle).values
            return dict(zip(STATISTICS, tf.unstack(values, len(STATISTICS)), strict=True))

    # --- The interface of a TensorFlow variable ---

    @classmethod
    def _variable_call(cls, *args: Any, **kwargs: Any) -> None:
        """Returns None: the class has arguments of its own, which tf.Variable would refuse."""

    def _ref(self) -> tf.Tensor:
        # tf.compat.v1.train.Optimizer computes gradients with respect to it.
        return self.handle

    @property
    def op(self) -> tf.Operation:
        """The op that makes the handle."""
        return self.handle.op

    def is_initialized(self, name: str | None = None) -> tf.Tensor:
        """Whether the table can be used: always, except on a server (docs/training.md)."""
        return readiness.is_initialized(self.handle, name)

    @property
    def handle_name(self) -> str:
        """Name of the op that makes the handle."""
        return self._handle_name.removesuffix(":0")

    def _export_to_saved_model_graph(
        self, object_map: Any, tensor_map: Any, options: Any, **kwargs: Any
    ) -> list[tf.Tensor]:
        return saved_model.export_handle(self, tensor_map)

    def _write_object_proto(self, proto: Any, options: Any) -> None:
        # Without this, TensorFlow would save it as a dense variable.
        proto.user_object.identifier = f"{saved_model.PACKAGE}.EmbeddingVariable"

    def _serialize_to_proto(self, object_proto: Any = None, **kwargs: Any) -> Any:
        return saved_model.to_proto(**saved_model.config_of(self))

    @classmethod
    def _deserialize_from_proto(cls, proto: Any, **kwargs: Any) -> "EmbeddingVariable":
        config = saved_model.from_proto(proto)
        partition = Partition(**config["partition"])
        return cls(**saved_model.arguments_of(config), partition=partition)

    def _copy_trackable_to_cpu(self, object_map: Any) -> NoReturn:
        # After a NotImplementedError TensorFlow would save rows that were trained meanwhile.
        raise tf.errors.UnimplementedError(
            None,
            None,
            f"EmbeddingVariable {self.name!r} cannot be saved by an asynchronous checkpoint, which "
            "copies every variable first; leave out the option enable_async",
        )

    def to_proto(self, export_scope: str | None = None) -> None:
        """Returns None: a MetaGraph has only its ops."""

    def __repr__(self) -> str:
        return (
            f"<fe.EmbeddingVariable {self.name!r} embedding_dim={self.embedding_dim} "
            f"dtype={self.dtype.name}>"
        )

    def _refuse_dense(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse_dense(self.name)

    def numpy(self) -> Any:
        """A copy of the rows, with their keys. Keras's get_weights() returns it.

        Returns:
            `[n, dim]` TableSnapshot, an array with the attribute `keys`.

        Raises:
            NotImplementedError: In a graph, for a table with rows on an SSD, and for HDF5 files,
                which cannot hold keys.
        """
        if not tf.executing_eagerly() or snapshot.is_for_hdf5():
            self._refuse_dense()
        return snapshot.take_snapshot(self)

    def assign(self, value: Any, *args: Any, **kwargs: Any) -> None:
        """Replaces keys and rows by those of a copy. Keras's set_weights() calls it.

        Args:
            value: The result of numpy() of this or another table.
            *args: Ignored.
            **kwargs: Ignored.

        Raises:
            TypeError: For an array without keys.
            ValueError: For rows of another length.
            NotImplementedError: In a graph, for a tensor, and for a table with rows on an SSD.
        """
        if not tf.executing_eagerly() or tf.is_tensor(value):
            self._refuse_dense()
        snapshot.set_snapshot(self, value)

    def _dense_var_to_tensor(self, dtype: Any = None, *args: Any, **kwargs: Any) -> tf.Tensor:
        if not snapshot.is_sampling():
            self._refuse_dense()
        rows = snapshot.sample_rows(self)
        return rows if dtype is None else tf.cast(rows, dtype)

    value = read_value = read_value_no_copy = eval = _refuse_dense
    _read_variable_op = __array__ = gather_nd = _refuse_dense
    assign_add = assign_sub = count_up_to = __deepcopy__ = _refuse_dense
    scatter_add = scatter_div = scatter_max = scatter_min = scatter_mul = _refuse_dense
    scatter_sub = scatter_update = batch_scatter_update = _refuse_dense
    scatter_nd_add = scatter_nd_max = scatter_nd_min = scatter_nd_sub = _refuse_dense
    scatter_nd_update = _strided_slice_assign = _refuse_dense
