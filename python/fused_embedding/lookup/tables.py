"""Embedding tables: converts the tables that a user may pass to a list of shards."""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.lookup.ids import SparseIds, as_blocknums
from fused_embedding.lookup.names import column_name, table_name
from fused_embedding.ops import raw_ops
from fused_embedding.ops.dtypes import VALUE_DTYPES, UnsupportedDtypeError
from fused_embedding.ops.placement import lacks_kernels
from fused_embedding.ops.tf_private import colocate_with, variable_accessed
from fused_embedding.variable.composed import ComposedTable
from fused_embedding.variable.dynamic_dimension import DynamicEmbeddingVariable
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable


def _is_resource_variable(value: Any) -> bool:
    # tf.is_tensor is true for variables as well.
    return getattr(getattr(value, "handle", None), "dtype", None) == tf.resource


class Occurrences(NamedTuple):
    """How often ids occur in a batch, for tables that count.

    Attributes:
        counts: `[n]` int32 occurrences of n distinct ids; None: ids may repeat, and each counts
            once.
        default_id: Id that was filled into empty rows, which does not count as an occurrence; None:
            no id was filled in.
        num_filled: int32 number of rows that it was filled into.
    """

    counts: tf.Tensor | None = None
    default_id: int | None = None
    num_filled: tf.Tensor | None = None

    def without_filled(self, keys: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """`counts` `[n]` of `keys` `[n]`, minus the rows that the default id was filled into."""
        if self.default_id is None:
            return counts
        is_default = tf.equal(keys, self.default_id)
        return counts - tf.where(is_default, self.num_filled, tf.zeros_like(self.num_filled))


class Shard(NamedTuple):
    """One shard of a dense table; the whole table if it is not divided.

    Attributes:
        source: `[rows, ...]` a resource variable, read in place, or a tensor.
        owner: The variable or tensor that the user passed, which the gather is colocated with.
    """

    source: Any
    owner: Any

    @property
    def is_variable(self) -> bool:
        """Whether `source` is read through its resource handle."""
        return _is_resource_variable(self.source)

    @property
    def dtype(self) -> tf.DType:
        """Type of the values."""
        return self.source.dtype.base_dtype

    @property
    def read_dtype(self) -> tf.DType:
        """The dtype of a read of the user's table, which Keras 2 casts in mixed precision."""
        return getattr(self.owner, "_cast_dtype", self.dtype)

    @property
    def row_shape(self) -> tf.TensorShape:
        """Static shape of one row: `[dim]` for a matrix."""
        return self.source.shape[1:]

    def partition_shape(self) -> tf.Tensor:
        """`[k]` int64 shape of the shard, whose first element is its number of rows."""
        if self.source.shape.is_fully_defined():
            return tf.constant(self.source.shape.as_list(), tf.int64)
        with colocate_with(self.owner):
            return tf.shape(self.source, out_type=tf.int64)

    def gather(
        self,
        ids: tf.Tensor,
        *,
        ids_are_unique: bool,
        occurrences: Occurrences,
        column_name: str,
    ) -> tf.Tensor:
        """Reads rows on the shard's device, so that only ids and rows are transferred.

        Args:
            ids: `[n]` int64 row numbers in this shard.
            ids_are_unique: Whether the caller guarantees that no id occurs twice; the gradient then
                needs no merging.
            occurrences: Ignored: a dense table counts nothing.
            column_name: The lookup's name in errors.

        Returns:
            `[n, dim]` rows, flattened to one dimension each.
        """
        with colocate_with(self.owner):
            if self.is_variable and lacks_kernels(self.owner.device):
                return self._stock_gather(ids, ids_are_unique)
            if not self.is_variable:
                return raw_ops.FusedEmbeddingGather(
                    params=self.source,
                    ids=ids,
                    ids_are_unique=ids_are_unique,
                    column_name=column_name,
                )
            variable_accessed(self.source)
            return raw_ops.FusedEmbeddingResourceGather(
                resource=self.source.handle,
                ids=ids,
                dtype=self.dtype,
                ids_are_unique=ids_are_unique,
                params_shape=self.source.shape,
                column_name=column_name,
            )

    def _stock_gather(self, ids: tf.Tensor, ids_are_unique: bool) -> tf.Tensor:
        """`gather` by TensorFlow's own op, whose gradient repeats an id for each occurrence."""
        unique_idxs = None
        if not ids_are_unique:
            ids, unique_idxs, _ = raw_ops.UniqueWithCountsV3(input=ids)
        rows = self.stock_rows(ids)
        return rows if unique_idxs is None else tf.gather(rows, unique_idxs)

    def stock_rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Reads rows by TensorFlow's own op, on the shard's device.

        Args:
            ids: `[n]` row numbers in this shard.

        Returns:
            `[n, dim]` rows, flattened to one dimension each.
        """
        with colocate_with(self.owner):
            is_variable = self.is_variable
            rows = self.source.sparse_read(ids) if is_variable else tf.gather(self.source, ids)
            if self.source.shape.rank == 2:
                return rows
            dim = tf.reduce_prod(tf.shape(self.source)[1:])
            return tf.reshape(rows, [tf.size(ids), dim])


class EmbeddingVariableShard(NamedTuple):
    """An EmbeddingVariable, or one partition of one, as a shard. Its ids are keys.

    Attributes:
        source: The variable.
        inserts: Whether the lookup counts and inserts keys, determined when it is built.
    """

    source: EmbeddingVariable
    inserts: bool

    @property
    def owner(self) -> EmbeddingVariable:
        """The variable, which a lookup is colocated with."""
        return self.source

    @property
    def dtype(self) -> tf.DType:
        """Type of the values."""
        return self.source.dtype

    @property
    def read_dtype(self) -> tf.DType:
        """The dtype of a read, which is that of the values."""
        return self.dtype

    @property
    def row_shape(self) -> tf.TensorShape:
        """`[dim]`."""
        return self.source.shape[1:]

    def partition_shape(self) -> tf.Tensor:
        """`[2]` int64 with 0 rows: partition strategies of EmbeddingVariables ignore the number."""
        return tf.constant([0, self.source.embedding_dim], tf.int64)

    def gather(
        self,
        ids: tf.Tensor,
        *,
        ids_are_unique: bool,
        occurrences: Occurrences,
        column_name: str,
    ) -> tf.Tensor:
        """Looks up each distinct key once, on the table's device.

        Args:
            ids: `[n]` int64 keys.
            ids_are_unique: Whether the caller guarantees that no key occurs twice.
            occurrences: How often the keys occur in the batch.
            column_name: Ignored: any id is a key, so no error needs it.

        Returns:
            `[n, dim]` rows.
        """
        if ids_are_unique:
            counts = occurrences.without_filled(ids, occurrences.counts)
            return self.source.lookup(ids, counts, self.inserts)
        unique_ids, unique_idxs, counts = raw_ops.UniqueWithCountsV3(input=ids)
        counts = occurrences.without_filled(unique_ids, counts)
        rows = self.source.lookup(unique_ids, counts, self.inserts)
        return tf.gather(rows, unique_idxs)


class ComposedShard(NamedTuple):
    """A table that is put together from others, as the one shard of a table.

    Attributes:
        source: The table.
    """

    source: ComposedTable

    @property
    def owner(self) -> ComposedTable:
        """The table."""
        return self.source

    @property
    def dtype(self) -> tf.DType:
        """Type of the values."""
        return self.source.dtype

    @property
    def read_dtype(self) -> tf.DType:
        """The dtype of a read, which is that of the values."""
        return self.dtype

    @property
    def row_shape(self) -> tf.TensorShape:
        """`[dim]`."""
        return self.source.shape[1:]


# Without ComposedShard, which is taken apart before anything asks a shard for rows.
AnyShard = Shard | EmbeddingVariableShard


def _parts(params: Any) -> list[Any]:
    """Converts a list, a partitioned or a sharded variable to a list of its parts."""
    if isinstance(params, ComposedTable):
        return [params]
    if isinstance(params, PartitionedEmbeddingVariable):
        return list(params)
    if isinstance(params, list | tuple):
        # As tf.nn does: a list may hold one partitioned or sharded variable.
        return _parts(params[0]) if len(params) == 1 else list(params)
    if hasattr(params, "_get_partitions") or hasattr(params, "partitions"):  # PartitionedVariable
        return list(params)
    if hasattr(params, "variables"):  # tf.distribute's ShardedVariable
        return list(params.variables)
    return [params]


def has_embedding_variable(params: Any) -> bool:
    """Whether stock TensorFlow cannot look up in a user's table: EmbeddingVariables, composed ones.

    Args:
        params: See `as_shards`.
    """
    ours = EmbeddingVariable | ComposedTable
    return any(isinstance(_held(part), ours) for part in _parts(params))


def _held(part: Any) -> Any:
    """The tf.Variable or EmbeddingVariable that a Keras 3 variable holds; else the part itself."""
    return part.value if hasattr(part, "value") and not callable(part.value) else part


def _with_handle(variable: Any) -> Any:
    """Converts a variable of a tf.distribute strategy to one that can be read through a handle.

    Within a replica, a mirrored variable has the handle of that replica's copy. In cross-replica
    context, in which Keras builds models and predicts, it has no handle. All copies are equal
    there, so the first one is read. A variable with ON_READ synchronization is read as the
    aggregate of its copies.
    """
    if not isinstance(variable, tf.distribute.DistributedValues):
        return variable
    try:
        variable.handle  # noqa: B018  # raises in cross-replica context
    except ValueError:
        if variable.synchronization == tf.VariableSynchronization.ON_READ:
            return tf.convert_to_tensor(variable)
        return variable.distribute_strategy.experimental_local_results(variable)[0]
    return variable


def _shard(part: Any) -> Any:
    part = _held(part)
    if isinstance(part, ComposedTable):
        return ComposedShard(part)
    if isinstance(part, EmbeddingVariable):
        return EmbeddingVariableShard(part, part.inserts)
    if hasattr(part, "_cast_dtype"):
        # Variables that Keras 2 casts in mixed precision may report the dtype of the cast.
        return Shard(_with_handle(part._variable), part)
    part = _with_handle(part)
    if _is_resource_variable(part):
        return Shard(part, part)
    # A reference variable becomes the tensor in its buffer: no copy.
    tensor = tf.convert_to_tensor(part)
    return Shard(tensor, part if hasattr(part, "op") else tensor)


def _check_same_table(shard: AnyShard, first: AnyShard, name: str, first_name: str) -> None:
    same_rows = shard.row_shape.is_compatible_with(first.row_shape)
    if shard.dtype == first.dtype and same_rows:
        return
    error = ValueError if shard.dtype == first.dtype else TypeError
    raise error(
        f"shards must be of one table, but {name} has dtype {shard.dtype.name} and rows of shape "
        f"{shard.row_shape}, and {first_name} has {first.dtype.name} and {first.row_shape}"
    )


def _check_partitions(shards: list[AnyShard], argument: str) -> None:
    """Checks that a list with an EmbeddingVariable has all partitions of one, in order."""
    given = [s.source.partition for s in shards if isinstance(s, EmbeddingVariableShard)]
    whole = [
        dataclasses.replace(part, index=i, count=len(shards))
        for i, part in enumerate(given[:1] * len(shards))
    ]
    if given == whole:
        return
    raise ValueError(
        f"{argument} must be one EmbeddingVariable, or all partitions of one in order, but of "
        f"{len(shards)} shards these partitions are EmbeddingVariables: {given}; pass what "
        "fe.get_embedding_variable returned"
    )


def _check_composed(shards: list[AnyShard], argument: str) -> None:
    """Checks that a table of several parts is no shard of another."""
    if len(shards) == 1 or not any(isinstance(shard, ComposedShard) for shard in shards):
        return
    raise ValueError(
        f"{argument} is a list of {len(shards)} shards, of which some are tables of several parts: "
        f"{[shard.source for shard in shards]}; pass such a table alone"
    )


def as_shards(params: Any, argument: str) -> list[AnyShard]:
    """Converts a user's embedding table to shards.

    Args:
        params: A tensor, tf.Variable (resource or reference), list of those, PartitionedVariable or
            ShardedVariable; each part `[rows, ...]`. Or an EmbeddingVariable, partitioned or not,
            or a table of several parts.
        argument: Name of the argument, for messages.

    Returns:
        The shards, in order.

    Raises:
        ValueError: If there is no shard, if shards differ in the shape of a row, or if some are
            EmbeddingVariables that are not the partitions of one.
        TypeError: If shards differ in dtype, or the dtype is not float32, float64, float16 or
            bfloat16.
    """
    if params is None or (isinstance(params, list | tuple) and not params):
        raise ValueError(f"Missing {argument}: got {params}; pass a tensor, a variable or a list")
    shards = [_shard(part) for part in _parts(params)]
    first = shards[0]
    for i, shard in enumerate(shards):
        _check_same_table(shard, first, f"{argument}[{i}]", f"{argument}[0]")
    _check_partitions(shards, argument)
    _check_composed(shards, argument)
    if first.dtype not in VALUE_DTYPES:
        raise UnsupportedDtypeError(
            f"{argument} has dtype {first.dtype.name}; fused lookups need one of "
            f"{', '.join(dtype.name for dtype in VALUE_DTYPES)}: cast it, or use tf.nn"
        )
    return shards


def with_blocknums(ids: SparseIds, blocknums: Any, shards: list[AnyShard]) -> SparseIds:
    """The ids of a lookup, with the number of blocks that each reads.

    Args:
        ids: The batch.
        blocknums: See `as_blocknums`; None: the table decides, or has no blocks.
        shards: The table.

    Returns:
        The ids.

    Raises:
        ValueError: For blocknums of a table without blocks.
    """
    if blocknums is None:
        return ids
    if not isinstance(shards[0].owner, DynamicEmbeddingVariable):
        raise ValueError(
            f"{column_name(ids.name, table_name(shards[0].owner))}: blocknums were given, but the "
            "table has no blocks; leave them out, or look up a variable of "
            "fe.get_dynamic_dimension_embedding_variable"
        )
    return ids._replace(blocknums=as_blocknums(blocknums, ids.values.shape))
