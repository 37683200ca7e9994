"""OneEmbedding's `make_...` functions: initializers, options of tables and of storage."""

import dataclasses
import operator
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.variable.initializers import seeded, stable_seed
from fused_embedding.variable.options import EmbeddingVariableOption, StorageOption, StorageType
from fused_embedding.variable.storage_options import MIN_DRAM_BYTES

_SIZE_FACTORS = (1, 2, 3)
_BLOCK_SIZES = (512, 4096)
# Numbers that OneEmbedding stores per value for each rule, value included. It has no other rules.
_SIZE_FACTOR_OF_RULE = {"sgd": 1, "momentum": 2, "adagrad": 2, "adam": 3, "adamw": 3, "ftrl": 3}


@dataclasses.dataclass(frozen=True)
class ColumnOptions:
    """The initializer of one column of a table."""

    initializer: Any


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """The initializers of a table's rows.

    Attributes:
        initializer: Initializer of all columns; None: `columns` has those of each column.
        columns: Options of each column.
    """

    initializer: Any = None
    columns: tuple[ColumnOptions, ...] = ()

    def initializers(self, num_columns: int) -> list[Any]:
        """The initializer of each column.

        Raises:
            ValueError: If the length of `columns` is neither 0 nor `num_columns`.
        """
        if not self.columns:
            return [self.initializer] * num_columns
        if len(self.columns) != num_columns:
            raise ValueError(
                f"a table has options for {len(self.columns)} columns, but embedding_dim has "
                f"{num_columns}; pass make_table_options one make_column_options for each"
            )
        return [column.initializer for column in self.columns]


def make_uniform_initializer(low: float, high: float) -> Any:
    """An initializer that draws uniformly from `[low, high)`.

    Args:
        low: Lower bound.
        high: Upper bound.

    Returns:
        An initializer for `make_table_options` and `make_column_options`.

    Raises:
        ValueError: If `low` is above `high`.
    """
    if not low <= high:
        raise ValueError(f"low = {low} must be <= high = {high}; swap them")
    return tf.random_uniform_initializer(low, high)


def make_normal_initializer(mean: float, std: float) -> Any:
    """An initializer that draws from a normal distribution.

    Args:
        mean: Its mean.
        std: Its standard deviation.

    Returns:
        An initializer for `make_table_options` and `make_column_options`.

    Raises:
        ValueError: If `std` is negative.
    """
    if not std >= 0:
        raise ValueError(f"std must be >= 0, got {std}; it is a standard deviation")
    return tf.random_normal_initializer(mean, std)


def as_int(name: str, value: Any) -> int:
    """Checks that an argument is an integer.

    Raises:
        TypeError: If it is not.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None


def with_seed(initializers: Sequence[Any], seed: int, table: int) -> list[Any]:
    """The initializers of a table's columns, drawing what `seed` says.

    Args:
        initializers: One for each column; of all columns where it is the same.
        seed: Of the embedding; 0: they stay as they are.
        table: Number of the table: tables that start alike have rows of their own.

    Returns:
        As many. Those with a seed of their own, or nowhere to put one, are as they were.
    """
    if seed == 0:
        return list(initializers)
    if all(initializer is initializers[0] for initializer in initializers):
        return [seeded(initializers[0], stable_seed(seed, table))] * len(initializers)
    return [
        seeded(initializer, stable_seed(seed, table, column))
        for column, initializer in enumerate(initializers)
    ]


def _check_initializer(initializer: Any) -> None:
    if not callable(initializer):
        raise TypeError(
            f"an initializer is required, got {initializer!r}; make one with "
            "make_uniform_initializer or make_normal_initializer"
        )


def make_column_options(initializer: Any) -> ColumnOptions:
    """Sets the initializer of one column, for a table of several columns.

    Args:
        initializer: Result of `make_uniform_initializer` or `make_normal_initializer`, or any other
            initializer of TensorFlow.

    Returns:
        An entry of the list that `make_table_options` takes.

    Raises:
        TypeError: If `initializer` is not an initializer.
    """
    _check_initializer(initializer)
    return ColumnOptions(initializer)


def make_table_options(param: Any) -> TableOptions:
    """Sets the initializers of a table's rows.

    Args:
        param: An initializer of all columns, or a list of results of `make_column_options`, one for
            each column.

    Returns:
        An entry of the argument `tables` of the embeddings.

    Raises:
        TypeError: If `param` is neither.
        ValueError: If the list is empty.
    """
    if not isinstance(param, list | tuple):
        _check_initializer(param)
        return TableOptions(initializer=param)
    if not param:
        raise ValueError("param is an empty list; pass one make_column_options for each column")
    for column in param:
        if not isinstance(column, ColumnOptions):
            raise TypeError(
                f"a list for make_table_options must hold what make_column_options made, got "
                f"{column!r}"
            )
    return TableOptions(columns=tuple(param))


def make_table(param: Any) -> TableOptions:
    """Sets the initializers of a table's rows; the same function as `make_table_options`.

    Args:
        param: An initializer of all columns, or a list of results of `make_column_options`, one for
            each column.

    Returns:
        An entry of the argument `tables` of the embeddings.

    Raises:
        TypeError: If `param` is neither.
        ValueError: If the list is empty.
    """
    return make_table_options(param)


@dataclasses.dataclass(frozen=True)
class StoreOptions:
    """Where rows and snapshots are stored.

    Attributes:
        folder: Folder of this process's snapshots.
        capacity: Maximum number of rows of all tables together; None: no bound.
        size_factor: Numbers that are stored per number of a row, the number itself included.
        storage_dim: Numbers that are stored per row, which takes precedence over `size_factor`;
            -1: `size_factor` is used.
        storage: The tiers of all tables together.
    """

    folder: str
    capacity: int | None
    size_factor: int
    storage_dim: int
    storage: StorageOption

    def factor(self, dim: int) -> int:
        """`size_factor` for rows of `dim` numbers.

        Raises:
            ValueError: If `storage_dim` is not 1, 2 or 3 times `dim`.
        """
        if self.storage_dim == -1:
            return self.size_factor
        if self.storage_dim not in [factor * dim for factor in _SIZE_FACTORS]:
            raise ValueError(
                f"storage_dim = {self.storage_dim} was given for rows of {dim} numbers, but it "
                f"must be {dim} (SGD), {2 * dim} (momentum, Adagrad) or {3 * dim} (Adam, Ftrl)"
            )
        return self.storage_dim // dim

    def ev_option(self, num_tables: int) -> EmbeddingVariableOption:
        """The options of one of `num_tables` EmbeddingVariables, which share the caches evenly.

        Each may have `capacity` rows; the embedding checks the sum over all tables.

        Raises:
            ValueError: If the caches are too small for so many.
        """
        storage = self.storage
        if storage.is_on_ssd:
            _check_budget(storage.dram_bytes, num_tables)
            storage = dataclasses.replace(storage, storage_size=(storage.dram_bytes // num_tables,))
        return EmbeddingVariableOption(storage_option=storage, max_capacity=self.capacity)


def _check_budget(num_bytes: int, num_tables: int) -> None:
    if num_bytes // num_tables < MIN_DRAM_BYTES:
        raise ValueError(
            f"cache_budget_mb + host_cache_budget_mb = {num_bytes >> 20} were given for "
            f"{num_tables} tables on an SSD, but each needs {MIN_DRAM_BYTES >> 20} in memory; give "
            f"them {num_tables * MIN_DRAM_BYTES >> 20} or more"
        )


def check_size_factor(name: str, factor: int, rule: str) -> None:
    """Raises ValueError if a store's size factor does not fit the optimizer's rule."""
    needed = _SIZE_FACTOR_OF_RULE.get(rule, factor)
    if needed != factor:
        raise ValueError(
            f"the store_options of {name!r} say size_factor = {factor}, but {rule!r}, the rule of "
            f"the optimizer that is to train it, keeps {needed - 1} numbers beside each; pass "
            f"size_factor={needed}"
        )


def _check_positive(name: str, value: Any) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be > 0, got {value}")


def _folder(persistent_path: str | Sequence[str]) -> str:
    """The folder of the only rank."""
    if isinstance(persistent_path, str) and persistent_path:
        return os.path.join(persistent_path, "0-1")
    is_list = isinstance(persistent_path, list | tuple)
    if not is_list or not all(isinstance(path, str) and path for path in persistent_path):
        raise TypeError(f"persistent_path must be a path or a list of one, got {persistent_path!r}")
    if len(persistent_path) != 1:
        raise ValueError(
            f"persistent_path lists {len(persistent_path)} paths, one for each rank, but there is "
            "one rank: a process holds its tables whole; pass one path"
        )
    return persistent_path[0]


def _store_options(
    persistent_path: str | Sequence[str],
    capacity: int | None,
    size_factor: int,
    storage_dim: int,
    physical_block_size: int,
) -> StoreOptions:
    """Checks the options that all stores have; the result has rows in DRAM."""
    folder = _folder(persistent_path)
    if capacity is not None:
        _check_positive("capacity", capacity)
    if size_factor not in _SIZE_FACTORS:
        raise ValueError(
            f"size_factor must be 1 (SGD), 2 (momentum, Adagrad) or 3 (Adam, Ftrl), got "
            f"{size_factor}"
        )
    if storage_dim != -1:
        _check_positive("storage_dim", storage_dim)
    if physical_block_size not in _BLOCK_SIZES:
        raise ValueError(
            f"physical_block_size must be 512 or 4096, the bytes of a sector, got "
            f"{physical_block_size}"
        )
    storage = StorageOption(storage_type=StorageType.DRAM)
    return StoreOptions(folder, capacity, size_factor, storage_dim, storage)


def make_device_mem_store_options(
    persistent_path: str | Sequence[str],
    capacity: int,
    size_factor: int = 1,
    storage_dim: int = -1,
    physical_block_size: int = 4096,
) -> StoreOptions:
    """Store options for rows in device memory, which here is DRAM, as on a machine without GPUs.

    Args:
        persistent_path: Folder of snapshots, or a list of one: `PATH/0-1`, or the one listed.
        capacity: Maximum number of rows of all tables together, > 0. A lookup that exceeds it
            fails.
        size_factor: 1 for SGD, 2 with momentum or for Adagrad, 3 for Adam and Ftrl. Training by an
            optimizer that needs another is an error.
        storage_dim: `size_factor * dim`, the same as a number of elements; -1: use `size_factor`.
        physical_block_size: 512 or 4096; ignored for DRAM.

    Returns:
        The argument `store_options` of the embeddings.

    Raises:
        ValueError: For other values.
        TypeError: If `persistent_path` is neither a path nor a list.
    """
    _check_positive("capacity", capacity)
    return _store_options(persistent_path, capacity, size_factor, storage_dim, physical_block_size)


def make_cached_host_mem_store_options(
    cache_budget_mb: int,
    persistent_path: str | Sequence[str],
    capacity: int,
    size_factor: int = 1,
    storage_dim: int = -1,
    physical_block_size: int = 4096,
) -> StoreOptions:
    """Store options for rows in host memory. Device memory is DRAM too, so there is no cache.

    Args:
        cache_budget_mb: Megabytes of the cache, > 0; ignored.
        persistent_path: Folder of snapshots, or a list of one: `PATH/0-1`, or the one listed.
        capacity: Maximum number of rows of all tables together, > 0. A lookup that exceeds it
            fails.
        size_factor: 1 for SGD, 2 with momentum or for Adagrad, 3 for Adam and Ftrl. Training by an
            optimizer that needs another is an error.
        storage_dim: `size_factor * dim`, the same as a number of elements; -1: use `size_factor`.
        physical_block_size: 512 or 4096; ignored for DRAM.

    Returns:
        The argument `store_options` of the embeddings.

    Raises:
        ValueError: For other values.
        TypeError: If `persistent_path` is neither a path nor a list.
    """
    _check_positive("cache_budget_mb", cache_budget_mb)
    _check_positive("capacity", capacity)
    return _store_options(persistent_path, capacity, size_factor, storage_dim, physical_block_size)


def make_cached_ssd_store_options(  # noqa: PLR0913 - OneFlow's signature
    cache_budget_mb: int,
    persistent_path: str | Sequence[str],
    capacity: int | None = None,
    size_factor: int = 1,
    storage_dim: int = -1,
    physical_block_size: int = 4096,
    host_cache_budget_mb: int = 0,
) -> StoreOptions:
    """Store options for rows in memory and on an SSD: docs/storage_tiers.md.

    Args:
        cache_budget_mb: Megabytes of the cache in device memory. There is one cache, in DRAM, whose
            size is the sum of this and `host_cache_budget_mb`. The tables share it evenly, and each
            needs 16 or more.
        persistent_path: Folder on the SSD, or a list of one: `PATH/0-1`, or the one listed.
        capacity: A hint, which is ignored; or None.
        size_factor: 1 for SGD, 2 with momentum or for Adagrad, 3 for Adam and Ftrl. Training by an
            optimizer that needs another is an error.
        storage_dim: `size_factor * dim`, the same as a number of elements; -1: use `size_factor`.
        physical_block_size: 512 or 4096; ignored.
        host_cache_budget_mb: Megabytes of the cache in host memory.

    Returns:
        The argument `store_options` of the embeddings.

    Raises:
        ValueError: For other values, or if the caches are too small for a table.
        TypeError: If `persistent_path` is neither a path nor a list.
    """
    if (
        cache_budget_mb < 0
        or host_cache_budget_mb < 0
        or not cache_budget_mb + host_cache_budget_mb
    ):
        raise ValueError(
            f"cache_budget_mb = {cache_budget_mb} and host_cache_budget_mb = "
            f"{host_cache_budget_mb} were given, but one must be > 0 and none < 0"
        )
    store = _store_options(persistent_path, capacity, size_factor, storage_dim, physical_block_size)
    dram_bytes = (cache_budget_mb + host_cache_budget_mb) << 20
    _check_budget(dram_bytes, num_tables=1)
    storage = StorageOption(
        storage_type=StorageType.DRAM_SSD,
        storage_path=os.path.join(store.folder, "rows"),
        storage_size=(dram_bytes,),
    )
    return dataclasses.replace(store, capacity=None, storage=storage)
