"""OneEmbedding's modules: several tables of one dim, one dtype and one type of keys."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.doors.one_embedding import snapshot
from fused_embedding.doors.one_embedding.options import (
    StoreOptions,
    TableOptions,
    as_int,
    check_size_factor,
    make_normal_initializer,
    make_table_options,
    with_seed,
)
from fused_embedding.lookup import group_signatures
from fused_embedding.lookup.group import Column
from fused_embedding.lookup.ids import SparseIds
from fused_embedding.lookup.options import make_options
from fused_embedding.lookup.run import run_group_side_by_side
from fused_embedding.lookup.tables import as_shards
from fused_embedding.ops import raw_ops
from fused_embedding.ops.tf_private import colocate_with
from fused_embedding.variable.embedding_variable import STATISTICS
from fused_embedding.variable.partitions import parts_of
from fused_embedding.variable.scope import get_embedding_variable


class _ColumnsSideBySide:
    """Initializer of rows whose columns start differently. A table runs it for a matrix of rows."""

    def __init__(self, dims: Sequence[int], initializers: Sequence[Any]) -> None:
        self._columns = list(zip(dims, initializers, strict=True))

    def __call__(self, shape: Any, dtype: Any = tf.float32, **kwargs: Any) -> tf.Tensor:
        columns = [start([shape[0], dim], dtype=dtype) for dim, start in self._columns]
        return tf.concat(columns, axis=1)


def _first_values(dims: Sequence[int], initializers: Sequence[Any]) -> Any:
    """One initializer for rows of several columns."""
    is_one = all(initializer is initializers[0] for initializer in initializers)
    return initializers[0] if is_one else _ColumnsSideBySide(dims, initializers)


def _as_tables(tables: Any, default_initializer: Any) -> list[TableOptions]:
    if tables is None:
        return [make_table_options(default_initializer or make_normal_initializer(0.0, 0.05))]
    if not isinstance(tables, list | tuple) or not tables:
        raise ValueError(
            f"tables must be a list of what make_table_options made, one for each table, or None, "
            f"got {tables!r}"
        )
    for table in tables:
        if not isinstance(table, TableOptions):
            raise TypeError(f"tables must hold what make_table_options made, got {table!r}")
    return list(tables)


def _as_padding(padding_idx: Any, key_type: tf.DType) -> int | None:
    """`padding_idx` as an int, after a check that it may be an id."""
    if padding_idx is None:
        return None
    padding = as_int("padding_idx", padding_idx)
    if not key_type.min <= padding <= key_type.max:
        raise ValueError(
            f"padding_idx = {padding} is no {key_type.name}, the key_type of ids; pass the id that "
            "stands for no entry, or None"
        )
    return padding


class _Embedding(tf.Module):
    """What both modules are: tables whose rows are the columns side by side."""

    def __init__(  # noqa: PLR0913 - OneFlow's signature
        self,
        name: str,
        embedding_dim: int | Sequence[int],
        dtype: Any,
        key_type: Any,
        tables: Any,
        store_options: StoreOptions,
        default_initializer: Any = None,
        padding_idx: int | None = None,
        seed: int = 0,
    ) -> None:
        column_dims = self._column_dims(embedding_dim)
        super().__init__()
        if not isinstance(store_options, StoreOptions):
            raise TypeError(
                f"store_options must be what a make_..._store_options function made, got "
                f"{store_options!r}"
            )
        self._given_name = name
        self.key_type, self.dtype = tf.as_dtype(key_type), tf.as_dtype(dtype)
        self.padding_idx = _as_padding(padding_idx, self.key_type)
        self.seed = as_int("seed", seed)
        self.embedding_dim = sum(column_dims)
        self.store_options = store_options
        factor = store_options.factor(self.embedding_dim)
        table_options = _as_tables(tables, default_initializer)
        ev_option = store_options.ev_option(len(table_options))
        self.tables = [
            get_embedding_variable(
                f"{name}/table_{i}",
                self.embedding_dim,
                key_dtype=self.key_type,
                value_dtype=self.dtype,
                initializer=_first_values(
                    column_dims, with_seed(table.initializers(len(column_dims)), self.seed, i)
                ),
                ev_option=ev_option,
            )
            for i, table in enumerate(table_options)
        ]
        for part in self.parameters():
            part.check_rule = functools.partial(check_size_factor, name, factor)

    @staticmethod
    def _column_dims(embedding_dim: Any) -> list[int]:
        """Lengths of the columns of a row, after a check."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._given_name

    @property
    def num_tables(self) -> int:
        """Number of tables."""
        return len(self.tables)

    def parameters(self) -> list[Any]:
        """The EmbeddingVariables, for optimizers and gradients."""
        return [part for table in self.tables for part in parts_of(table)]

    def to(self, device: Any = None) -> Any:
        """Does nothing: rows are in host memory, where all ops on them run, whatever the device.

        Args:
            device: "cpu", "cuda" or "cuda:0", as for OneFlow's modules; or None.

        Returns:
            The embedding itself.

        Raises:
            ValueError: For anything else, such as a dtype, which would change the embedding.
        """
        kind = device.partition(":")[0] if isinstance(device, str) else device
        if kind not in (None, "cpu", "cuda"):
            raise ValueError(
                f"{self.name!r}.to() was called with {device!r}, but it takes 'cpu' or 'cuda', "
                "which both leave the rows in host memory; the type of rows is the argument dtype "
                "of the embedding"
            )
        return self

    def __call__(self, ids: Any, table_ids: Any = None) -> tf.Tensor:
        """The same as `forward`."""
        return self.forward(ids, table_ids)

    def forward(self, ids: Any, table_ids: Any = None) -> tf.Tensor:
        """Looks up ids in all tables by one op.

        Ids are keys, negative ids included, and each table has its own rows: an id in two tables
        has two rows. In training every id gets a row; in `fe.inference()` nothing changes. The id
        `padding_idx` reads zeros in each table, gets no row and is not trained.

        Args:
            ids: `[batch, num_tables]` of `key_type`; column i is looked up in table i. With one
                table, or with `table_ids`, any shape.
            table_ids: Table number of each id, integers of the shape of `ids`; None: the number of
                the column.

        Returns:
            The shape of `ids` with `embedding_dim` appended: `[batch, num_tables, dim]`.

        Raises:
            TypeError: If ids are not of `key_type`.
            ValueError: If the shape of `ids` or `table_ids` does not fit.
            tf.errors.ResourceExhaustedError: If a table would have more rows than `capacity`. The
                table has not changed.
            tf.errors.InvalidArgumentError: For a table id that is not the number of a table, or if
                all tables together now have more rows than `capacity`.
        """
        ids = tf.convert_to_tensor(ids, dtype_hint=self.key_type)
        if ids.dtype != self.key_type:
            raise TypeError(
                f"ids of {self.name!r} must be {self.key_type.name}, its key_type, got "
                f"{ids.dtype.name}; cast them"
            )
        if table_ids is not None:
            rows = self._look_up_mixed(ids, tf.convert_to_tensor(table_ids))
        elif self.num_tables == 1:
            rows = self._look_up_one(ids)
        elif ids.shape.rank != 2 or ids.shape[1] != self.num_tables:
            raise ValueError(
                f"ids of {self.name!r} must be [batch, {self.num_tables}], a column for each "
                f"table, got {ids.shape}; for ids in any order pass table_ids as well"
            )
        else:
            rows = self._look_up_columns(ids)
        rows.set_shape(ids.shape.concatenate([self.embedding_dim]))
        return self._checked_for_capacity(rows)

    def _checked_for_capacity(self, rows: tf.Tensor) -> tf.Tensor:
        """What a lookup has read, after a check of how many rows all tables together have now.

        A table by itself holds its bound, which is `capacity` as well.
        """
        parts, capacity = self.parameters(), self.store_options.capacity
        if capacity is None or len(parts) == 1 or not parts[0].inserts:
            return rows
        with tf.control_dependencies([rows]):
            statistics = tf.stack([_statistics(part) for part in parts])
        num_rows = tf.reduce_sum(statistics[:, STATISTICS.index("size")])
        message = (
            f"the tables of {self.name!r} may have {capacity} rows together, the capacity of its "
            "store_options; raise it, or erase or expire rows. They have now:"
        )
        check = tf.debugging.Assert(num_rows <= capacity, [message, tf.strings.as_string(num_rows)])
        with tf.control_dependencies([] if check is None else [check]):
            return tf.identity(rows)

    def _look_up_one(self, ids: tf.Tensor) -> tf.Tensor:
        if self.padding_idx is None:
            return group_signatures.group_embedding_lookup(self.tables, [ids])[0]
        return self._look_up_mixed(ids, tf.zeros_like(ids))

    def _look_up_columns(self, ids: tf.Tensor) -> tf.Tensor:
        num_rows = tf.shape(ids, out_type=tf.int64)[0]
        dense_shape = tf.stack([num_rows, tf.ones_like(num_rows)])
        options = make_options("sum", None, None, prune=False, fill_empty_row=False)
        side_by_side = run_group_side_by_side(
            [
                Column(as_shards(table, "tables"), SparseIds(column, indices, dense_shape), options)
                for table, (column, indices) in zip(
                    self.tables, self._columns_of(ids, num_rows), strict=True
                )
            ]
        )
        return tf.reshape(side_by_side, [-1, self.num_tables, self.embedding_dim])

    def _columns_of(
        self, ids: tf.Tensor, num_rows: tf.Tensor
    ) -> Iterable[tuple[tf.Tensor, tf.Tensor]]:
        """Ids `[n]` of each table but the padding, and `[n, 2]` int64, first the row of each."""
        if self.padding_idx is None:
            rows = tf.range(num_rows)
            indices = tf.stack([rows, rows], axis=1)  # one id a row, for all columns
            return [(column, indices) for column in tf.unstack(ids, axis=1)]
        # Rows without an id read zeros.
        places = tf.where(tf.not_equal(ids, self.padding_idx))
        tables = tf.cast(places[:, 1], tf.int32)
        values = tf.dynamic_partition(tf.gather_nd(ids, places), tables, self.num_tables)
        return zip(values, tf.dynamic_partition(places, tables, self.num_tables), strict=True)

    def _look_up_mixed(self, ids: tf.Tensor, table_ids: tf.Tensor) -> tf.Tensor:
        if not table_ids.dtype.is_integer or not table_ids.shape.is_compatible_with(ids.shape):
            raise ValueError(
                f"table_ids must be integers of the shape of ids, {ids.shape}, got "
                f"{table_ids.dtype.name} of shape {table_ids.shape}"
            )
        tables = tf.reshape(tf.cast(table_ids, tf.int32), [-1])
        flat = tf.reshape(ids, [-1])
        if self.padding_idx is None:
            rows = self._look_up_flat(flat, tables)
        else:
            places = tf.where(tf.not_equal(flat, self.padding_idx))
            rows = self._look_up_flat(tf.gather_nd(flat, places), tf.gather_nd(tables, places))
            rows = tf.scatter_nd(places, rows, [tf.size(flat, tf.int64), self.embedding_dim])
        return tf.reshape(rows, tf.concat([tf.shape(ids), [self.embedding_dim]], axis=0))

    def _look_up_flat(self, ids: tf.Tensor, tables: tf.Tensor) -> tf.Tensor:
        """`[n, dim]` rows of ids `[n]` in tables `[n]`."""
        positions = tf.dynamic_partition(tf.range(tf.size(ids)), tables, self.num_tables)
        ids_of_tables = tf.dynamic_partition(ids, tables, self.num_tables)
        rows = group_signatures.group_embedding_lookup(self.tables, ids_of_tables)
        return tf.reshape(tf.dynamic_stitch(positions, rows), [-1, self.embedding_dim])

    def save_snapshot(self, snapshot_name: str) -> None:
        """Writes all tables with their optimizer states below the persistent path.

        A snapshot is a folder, `snapshots/NAME`, with one file per table that numpy reads. It is
        written atomically. Tables are copied in memory one at a time; for tables near the size of
        memory use tf.train.Checkpoint. Tables on an SSD are not copied: the snapshot has hard links
        to their files. In a TF1 graph, call this in a session.

        Args:
            snapshot_name: Name of the folder.

        Raises:
            ValueError: For a name that is not a valid name of a folder.
            FileExistsError: If a snapshot of that name exists.
        """
        tables = [parts_of(table) for table in self.tables]
        snapshot.save(self.store_options.folder, snapshot_name, self._manifest(), tables)

    def load_snapshot(self, snapshot_name: str) -> None:
        """Replaces the content of all tables by that of a snapshot.

        Args:
            snapshot_name: Name of a snapshot that `save_snapshot` or a writer of
                `make_persistent_table_writer` wrote below the persistent path.

        Raises:
            FileNotFoundError: If there is no such snapshot; the message lists the existing ones.
            ValueError: If it has other tables or more rows than `capacity`, or a file is damaged.
                No table has changed.
            tf.errors.DataLossError: If a file of a table on an SSD is damaged. That table has not
                changed; the tables before it have.
        """
        tables = [parts_of(table) for table in self.tables]
        store = self.store_options
        snapshot.load(store.folder, snapshot_name, self._manifest(), tables, store.capacity)

    def _manifest(self) -> snapshot.Manifest:
        return snapshot.Manifest(
            num_tables=self.num_tables,
            dim=self.embedding_dim,
            value_type=self.dtype.name,
            key_type=self.key_type.name,
        )


def _statistics(part: Any) -> tf.Tensor:
    """`[len(STATISTICS)]` int64, in one op: its `statistics()` are one for each."""
    with colocate_with(part.handle):
        return raw_ops.EmbeddingVariableStatistics(resource=part.handle).values


class MultiTableEmbedding(_Embedding):
    """Tables without a vocabulary that are looked up together. A tf.Module.

    Args:
        name: Name of the module; its tables are the EmbeddingVariables `NAME/table_0`, ...
        embedding_dim: Length of a row, > 0.
        dtype: tf.float32, tf.float64, tf.float16 or tf.bfloat16.
        key_type: tf.int64 or tf.int32.
        tables: A list of `make_table_options`, one for each table; None: one table.
        store_options: Result of `make_device_mem_store_options`,
            `make_cached_host_mem_store_options` or `make_cached_ssd_store_options`.
        default_initializer: Initializer if `tables` is None; None: normal, standard deviation 0.05.
        padding_idx: The id that reads zeros in each table and is not trained; None: no id.
        seed: Seed of the first values; 0: derived from the name. `tf.random.set_seed` is combined
            with it, as in TensorFlow.

    Raises:
        TypeError: For arguments of other types.
        ValueError: For other values.

    >>> one = fe.one_embedding
    >>> tables = [one.make_table(one.make_uniform_initializer(-0.1, 0.1)) for _ in range(3)]
    >>> store = one.make_device_mem_store_options("/tmp/store", capacity=1000)
    >>> users = one.MultiTableEmbedding("users", 4, tf.float32, tf.int64, tables, store)
    >>> users.forward(tf.constant([[7, 1 << 60, -1]], tf.int64)).shape
    TensorShape([1, 3, 4])
    """

    @staticmethod
    def _column_dims(embedding_dim: Any) -> list[int]:
        if not isinstance(embedding_dim, int):
            raise TypeError(
                f"embedding_dim must be an int, got {embedding_dim!r}; for a dim for each column "
                "use MultiTableMultiColumnEmbedding"
            )
        return [embedding_dim]


class MultiTableMultiColumnEmbedding(_Embedding):
    """Tables whose rows have several columns, each with its own dim and initializer.

    A row is the concatenation of its columns: `forward` returns `[batch, num_tables, sum of dims]`.
    If the columns of a table have different initializers, first values are rows of a matrix with
    4096 rows.

    Args:
        name: Name of the module; its tables are the EmbeddingVariables `NAME/table_0`, ...
        embedding_dim: A list of the dims of the columns, or an int: one column.
        dtype: tf.float32, tf.float64, tf.float16 or tf.bfloat16.
        key_type: tf.int64 or tf.int32.
        tables: A list of `make_table_options`, one for each table, each of a list of
            `make_column_options`; None: one table.
        store_options: Result of `make_device_mem_store_options`,
            `make_cached_host_mem_store_options` or `make_cached_ssd_store_options`.
        default_initializer: Initializer if `tables` is None; None: normal, standard deviation 0.05.
        padding_idx: The id that reads zeros in each table and is not trained; None: no id.
        seed: Seed of the first values; 0: derived from the name. `tf.random.set_seed` is combined
            with it, as in TensorFlow.

    Raises:
        TypeError: For arguments of other types.
        ValueError: For other values, and if a table's number of columns differs from that of the
            dims.
    """

    @staticmethod
    def _column_dims(embedding_dim: Any) -> list[int]:
        dims = [embedding_dim] if isinstance(embedding_dim, int) else list(embedding_dim)
        if not dims or not all(isinstance(dim, int) for dim in dims):
            raise TypeError(
                f"embedding_dim must be a list of ints, one for each column, got {embedding_dim!r}"
            )
        if min(dims) < 1:
            raise ValueError(f"embedding_dim must be > 0 for each column, got {dims}")
        return dims
