"""Reading and writing snapshots without any table: `make_persistent_table_reader`, `..._writer`."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.doors.one_embedding import snapshot

_ROWS_OF_A_BATCH = 65536


def _check(paths: Any, storage_dim: int, physical_block_size: int) -> list[str]:
    if not isinstance(paths, list | tuple) or not paths:
        raise TypeError(
            f"paths must be a list of folders that hold `snapshots`, as PERSISTENT_PATH/0-1, got "
            f"{paths!r}"
        )
    if storage_dim < 1:
        raise ValueError(f"storage_dim must be > 0, the numbers of a row, got {storage_dim}")
    if physical_block_size not in (512, 4096):
        raise ValueError(f"physical_block_size must be 512 or 4096, got {physical_block_size}")
    return list(paths)


class PersistentTableReader(Iterator[tuple[np.ndarray, np.ndarray]]):
    """Iterates over the rows of a snapshot, as `[n]` keys and `[n, storage_dim]` values.

    Attributes:
        table: Number of the table that the last batch is of.
    """

    def __init__(
        self, paths: list[str], snapshot_name: str, types: tuple[str, str], storage_dim: int
    ) -> None:
        self.table = -1
        self._storage_dim = storage_dim
        self._snapshots = [
            (path, snapshot_name, snapshot.read_manifest(path, snapshot_name)) for path in paths
        ]
        for path, _, manifest in self._snapshots:
            if (manifest.key_type, manifest.value_type) != types:
                raise ValueError(
                    f"the snapshot {snapshot_name!r} in {path!r} has {manifest.key_type} keys and "
                    f"{manifest.value_type} values, not {' and '.join(types)}; ask for those"
                )
        self._batches = self._read()

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        return next(self._batches)

    def __enter__(self) -> "PersistentTableReader":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration."""
        self._batches.close()

    def _read(self) -> Any:
        for path, name, manifest in self._snapshots:
            for table in range(manifest.num_tables):
                arrays = snapshot.read_table(path, name, manifest, table)
                keys = arrays["keys"].astype(manifest.key_type)
                values = self._stored(arrays, manifest, f"table {table} of {name!r} in {path!r}")
                for first in range(0, len(keys), _ROWS_OF_A_BATCH):
                    self.table = table
                    end = first + _ROWS_OF_A_BATCH
                    yield keys[first:end], values[first:end]

    def _stored(
        self, arrays: dict[str, np.ndarray], manifest: snapshot.Manifest, title: str
    ) -> np.ndarray:
        """Values, with what optimizers keep beside them if `storage_dim` asks for it."""
        values = arrays["values"].astype(tf.as_dtype(manifest.value_type).as_numpy_dtype)
        if self._storage_dim == manifest.dim:
            return values
        stored = np.concatenate([values, arrays.get("slots", values[:, :0])], axis=1)
        if stored.shape[1] != self._storage_dim:
            raise ValueError(
                f"storage_dim = {self._storage_dim} was given, but {title} has rows of "
                f"{manifest.dim} numbers, {stored.shape[1]} with those of its optimizers"
            )
        return stored


class PersistentTableWriter:
    """Writes rows that become a snapshot when it is closed, or when its `with` block ends well."""

    def __init__(self, folder: str, snapshot_name: str, manifest: snapshot.Manifest) -> None:
        self._folder, self._name, self._manifest = folder, snapshot_name, manifest
        self._keys: list[list[np.ndarray]] = [[] for _ in range(manifest.num_tables)]
        self._values: list[list[np.ndarray]] = [[] for _ in range(manifest.num_tables)]
        self._is_open = True

    def write(self, keys: Any, values: Any, table: int = 0) -> None:
        """Adds rows. Of a key that comes twice the last row counts.

        Args:
            keys: `[n]` of the key type.
            values: `[n, storage_dim]` of the value type.
            table: Number of the table.

        Raises:
            ValueError: For other shapes or dtypes, a table that there is not, a closed writer.
        """
        keys, values = np.array(keys), np.array(values)
        manifest = self._manifest
        if not self._is_open:
            raise ValueError(f"the writer of {self._name!r} is closed; make another")
        if not 0 <= table < manifest.num_tables:
            raise ValueError(f"table must be in [0, {manifest.num_tables}), got {table}")
        dtypes = [
            tf.as_dtype(name).as_numpy_dtype for name in (manifest.key_type, manifest.value_type)
        ]
        if [keys.dtype, values.dtype] != dtypes:
            raise ValueError(
                f"keys must be {manifest.key_type} and values {manifest.value_type}, got "
                f"{keys.dtype} and {values.dtype}; convert them with astype"
            )
        if keys.ndim != 1 or values.shape != (len(keys), manifest.dim):
            raise ValueError(
                f"keys must be [n] and values [n, {manifest.dim}], got {list(keys.shape)} and "
                f"{list(values.shape)}"
            )
        self._keys[table].append(keys)
        self._values[table].append(values)

    def close(self) -> None:
        """Makes the snapshot.

        Raises:
            FileExistsError: If there is one of that name.
        """
        if self._is_open:
            self._is_open = False
            numbers = range(self._manifest.num_tables)
            tables = [functools.partial(self._write, number) for number in numbers]
            snapshot.write(self._folder, self._name, self._manifest, tables)

    def _write(self, table: int, prefix: str) -> list[str]:
        return snapshot.write_arrays(self._rows(table), prefix)

    def _rows(self, table: int) -> dict[str, np.ndarray]:
        manifest = self._manifest
        keys = np.concatenate([np.zeros([0], np.int64), *self._keys[table]])
        dtype = tf.as_dtype(manifest.value_type).as_numpy_dtype
        values = np.concatenate([np.zeros([0, manifest.dim], dtype), *self._values[table]])
        distinct, last = np.unique(keys[::-1], return_index=True)
        return {"keys": distinct, "values": values[::-1][last]}

    def __enter__(self) -> "PersistentTableWriter":
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self.close()
        self._is_open = False


def make_persistent_table_reader(
    paths: Sequence[str],
    snapshot_name: str,
    key_type: Any,
    value_type: Any,
    storage_dim: int,
    physical_block_size: int = 4096,
) -> PersistentTableReader:
    """Reads the rows of a snapshot with numpy alone; of tables on an SSD by way of one in memory.

    Args:
        paths: Folders that hold `snapshots`: `PERSISTENT_PATH/0-1`, or the one that was listed.
        snapshot_name: Name of the snapshot.
        key_type: dtype of its keys.
        value_type: dtype of its values.
        storage_dim: Numbers of a row: `embedding_dim` for values alone, or, as for the store
            options, `embedding_dim * size_factor` for values and what the optimizer keeps.
        physical_block_size: 512 or 4096; ignored.

    Returns:
        An iterator, and context manager, of up to 65,536 `[n]` keys and `[n, storage_dim]` values
        at a time, table after table. One table is in memory at a time. Its attribute `table` says
        which one a batch is of.

    Raises:
        FileNotFoundError: If there is no such snapshot.
        ValueError: For other dtypes or another `storage_dim` than the snapshot's.
        TypeError: If `paths` is no list.
    """
    types = tf.as_dtype(key_type).name, tf.as_dtype(value_type).name
    paths = _check(paths, storage_dim, physical_block_size)
    return PersistentTableReader(paths, snapshot_name, types, storage_dim)


def make_persistent_table_writer(  # noqa: PLR0913 - OneFlow's signature
    paths: Sequence[str],
    snapshot_name: str,
    key_type: Any,
    value_type: Any,
    storage_dim: int,
    physical_block_size: int = 4096,
    *,
    num_tables: int = 1,
) -> PersistentTableWriter:
    """Writes rows as a snapshot that `load_snapshot` reads: no graph, no table.

    Args:
        paths: A list of one folder, as of `make_persistent_table_reader`.
        snapshot_name: Name of the snapshot.
        key_type: dtype of its keys, tf.int64 or tf.int32.
        value_type: dtype of its values.
        storage_dim: `embedding_dim`: what optimizers keep starts anew when it is loaded.
        physical_block_size: 512 or 4096; ignored.
        num_tables: Number of tables of the embedding that is to load it.

    Returns:
        A writer: `write(keys, values, table=0)` and `close()`, or a `with` block around it. Rows
        are in memory until then.

    Raises:
        ValueError: For values that are not these.
        TypeError: If `paths` is no list.
    """
    paths = _check(paths, storage_dim, physical_block_size)
    if len(paths) != 1 or num_tables < 1:
        raise ValueError(
            f"{len(paths)} paths and num_tables = {num_tables} were given, but one path and at "
            "least one table are required: a process holds its tables whole"
        )
    manifest = snapshot.Manifest(
        num_tables, storage_dim, tf.as_dtype(value_type).name, tf.as_dtype(key_type).name
    )
    return PersistentTableWriter(paths[0], snapshot_name, manifest)
