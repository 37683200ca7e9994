"""Batches of tensors from Parquet files."""

import atexit
import functools
import glob
import itertools
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.input.arrow_columns import Layout, arrays_of, layout_of, num_nulls, pyarrow

Paths = str | os.PathLike | Sequence[str | os.PathLike]


class Shuffle(NamedTuple):
    """A random order of rows, another one in each epoch, the same ones for a seed.

    The row groups of a shard are put in a random order. The rows of so many of them at a time are
    in memory, and mixed.
    """

    seed: int
    row_groups: int = 8


def parquet(
    paths: Paths,
    columns: Sequence[str] | None = None,
    *,
    batch_size: int,
    shuffle: Shuffle | None = None,
    shard: tuple[int, int] = (0, 1),
    resume: int = 0,
) -> tf.data.Dataset:
    """Makes a dataset of the rows of Parquet files, in batches.

    A list column becomes a ragged tensor, with a level for each level of lists; a list of a fixed
    size becomes a dense `[batch, size]` tensor; all others become `[batch]` tensors. A null list is
    an empty one. Strings and binaries become strings, dictionaries what they are of.

    Each iteration of the dataset is an epoch: each row of the shard once. Batches go on over the
    ends of row groups and files; the last one of an epoch may be smaller. While a step runs, a
    thread reads the next batch.

    Example: twelve batches were trained on before a job ended.

        dataset = fe.data.parquet("clicks/*.parquet", ["user", "items"], batch_size=4096,
                                  shuffle=fe.data.Shuffle(seed=1), resume=12)

    Args:
        paths: Files, or patterns with `*`, in the order in which they are read.
        columns: Those that are read, and the keys of a batch; None: all.
        batch_size: Rows of a batch.
        shuffle: Order of the rows; None: that of the files.
        shard: Index and number of shards. A row group belongs to one shard: the first to the first,
            the second to the second, and so on.
        resume: Batches that were read before, in all epochs. They are skipped, row groups unread,
            and those that follow are the same as without an end. All other arguments, and the
            files, must be the same as well.

    Returns:
        A dataset of dicts, from names to tensors. tf.train.Checkpoint cannot save its iterators:
        that is what `resume` is for.

    Raises:
        ImportError: If pyarrow is not installed; the message has the command that does it.
        FileNotFoundError: If a path or a pattern matches no file.
        TypeError: If no tensor can be made of a column's type, or it differs between files.
        ValueError: If an argument is out of its range, a column is not in a file, or there are more
            shards than row groups.
        tf.errors.InvalidArgumentError: When a batch is read: if a value is null.
    """
    _check_range("batch_size", batch_size, 1)
    _check_range("resume", resume, 0)
    if shuffle is not None:
        _check_range("shuffle.seed", shuffle.seed, 0)
        _check_range("shuffle.row_groups", shuffle.row_groups, 1)
    files = [_File(path) for path in _expanded(paths)]
    layouts = _layouts(files, columns)
    row_groups = _of_shard([group for file in files for group in file.row_groups()], *shard)
    stream = _Stream(row_groups, layouts, batch_size, shuffle)
    stream.skip(resume)
    return _numbers(stream).map(functools.partial(_batch, stream)).prefetch(1)


def _numbers(stream: "_Stream") -> tf.data.Dataset:
    """The numbers of the batches of an epoch: of the next one whenever something iterates."""

    def of_next_epoch(_: tf.Tensor) -> tf.data.Dataset:
        first, end = tf.numpy_function(stream.next_epoch, [], [tf.int64, tf.int64])
        return tf.data.Dataset.range(first, end)

    return tf.data.Dataset.from_tensors(0).flat_map(of_next_epoch)


def _batch(stream: "_Stream", number: tf.Tensor) -> dict[str, Any]:
    """The columns of a batch."""
    specs = [spec for layout in stream.layouts for spec in layout.specs()]
    # Not Dataset.from_generator, which checks the shape of each array in Python.
    tensors = tf.numpy_function(stream.batch, [number], [spec.dtype for spec in specs])
    for tensor, spec in zip(tensors, specs, strict=True):
        tensor.set_shape(spec.shape)
    given = iter(tensors)
    return {
        layout.name: layout.tensor_of([next(given) for _ in layout.specs()])
        for layout in stream.layouts
    }


def _check_range(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}")


def _expanded(paths: Paths) -> list[str]:
    """All files, patterns replaced by what they match, in the order of names."""
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    found: list[str] = []
    for path in [os.fspath(one) for one in given]:
        matches = sorted(glob.glob(path)) if glob.has_magic(path) else [path]
        if not matches or not all(map(os.path.isfile, matches)):
            raise FileNotFoundError(f"{path!r} is no file, and no pattern that matches files alone")
        found += matches
    if not found:
        raise FileNotFoundError("`paths` is empty; give files, or patterns as 'clicks/*.parquet'")
    return found


class _RowGroup(NamedTuple):
    file: "_File"
    ordinal: int
    num_rows: int

    def read(self, layouts: Sequence[Layout]) -> Any:
        """The table of these columns."""
        names = [layout.name for layout in layouts]
        try:
            table = self.file.open().read_row_group(self.ordinal, names).select(names)
        except (pyarrow().ArrowException, OSError) as error:
            raise ValueError(
                f"row group {self.ordinal} of {self.file.path} cannot be read: {error}"
            ) from error
        for name, column in zip(names, table.columns, strict=True):
            if nulls := sum(map(num_nulls, column.chunks)):
                raise ValueError(
                    f"column {name!r} has {nulls} null values in row group {self.ordinal} of "
                    f"{self.file.path}; tensors have none: fill them when the file is written, or "
                    "leave the column out of `columns`"
                )
        return table


class _File:
    """A file whose footer has been read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._metadata = pyarrow("parquet").read_metadata(path)
        self.schema = self._metadata.schema.to_arrow_schema()

    def open(self) -> Any:
        """The pyarrow file; the footer is not read again."""
        file = pyarrow("parquet").ParquetFile
        return file(self.path, metadata=self._metadata, memory_map=True)

    def row_groups(self) -> Iterator[_RowGroup]:
        """Those with rows."""
        for index in range(self._metadata.num_row_groups):
            if num_rows := self._metadata.row_group(index).num_rows:
                yield _RowGroup(self, index, num_rows)


def _layouts(files: Sequence[_File], columns: Sequence[str] | None) -> list[Layout]:
    """Those of the columns, which all files must have alike."""
    names = list(files[0].schema.names if columns is None else columns)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the columns are {names}; give at least one, and each once")
    for file, name in itertools.product(files, names):
        there = file.schema.names.count(name)
        if there != 1:
            raise ValueError(
                f"column {name!r} is {there} times in {file.path}, which has {file.schema.names}"
            )
        first = files[0].schema.field(name).type
        if file.schema.field(name).type != first:
            raise TypeError(
                f"column {name!r} has type {file.schema.field(name).type} in {file.path} and "
                f"{first} in {files[0].path}; write both with one type"
            )
    return [layout_of(name, files[0].schema.field(name).type) for name in names]


def _of_shard(row_groups: list[_RowGroup], index: int, count: int) -> list[_RowGroup]:
    if not 0 <= index < count:
        raise ValueError(f"shard is {(index, count)}; the index must be below the number of shards")
    if 0 < len(row_groups) < count:
        raise ValueError(
            f"the files have {len(row_groups)} row groups, too few for {count} shards; write them "
            "with smaller row groups"
        )
    return row_groups[index::count]


# A thread that asks for the interpreter's lock when the interpreter is gone never returns, and an
# iterator that somebody has kept waits for it.
_SECONDS_TO_RETURN = 0.05
_streams: weakref.WeakSet["_Stream"] = weakref.WeakSet()


@atexit.register
def _close_streams() -> None:
    for stream in list(_streams):
        stream.close()


class _Stream:
    """The batches of all epochs, numbered through."""

    def __init__(
        self,
        row_groups: Sequence[_RowGroup],
        layouts: Sequence[Layout],
        batch_size: int,
        shuffle: Shuffle | None,
    ) -> None:
        self._row_groups, self.layouts = row_groups, layouts
        self._batch_size, self._shuffle = batch_size, shuffle
        num_rows = sum(group.num_rows for group in row_groups)
        self._per_epoch = -(-num_rows // batch_size)
        self._is_closed = False
        self._last_call = 0.0
        self._lock = threading.Lock()  # iterators that run at the same time share what follows
        self._first_of_epoch = 0  # of the next one
        self._next = -1
        self._batches: Iterator[list[np.ndarray]] = iter([])  # from `_next` on
        _streams.add(self)

    def skip(self, num_batches: int) -> None:
        """The next epoch is the one that so many batches of all epochs end in, from there on."""
        self._first_of_epoch = num_batches if self._per_epoch else 0

    def next_epoch(self) -> tuple[np.int64, np.int64]:
        """The first batch of an epoch, and the one after its last."""
        with self._lock:
            first = self._first_of_epoch
            if self._per_epoch:
                self._first_of_epoch = (first // self._per_epoch + 1) * self._per_epoch
            return np.int64(first), np.int64(self._first_of_epoch)

    def batch(self, number: int) -> list[np.ndarray]:
        """The arrays of a batch. Whatever is before it is not read, unless it was asked for."""
        with self._lock:
            self._last_call = time.monotonic()
            if self._is_closed:
                raise RuntimeError("the program ends")
            epoch, of_epoch = divmod(int(number), self._per_epoch)
            if number != self._next or of_epoch == 0:
                self._batches = self._from(epoch, of_epoch)
            self._next = -1  # if this fails, the next one starts anew
            batch = next(self._batches)
            self._next = number + 1
            return batch

    def close(self) -> None:
        """Returns when no thread of TensorFlow's is in `batch`, or will be for long."""
        with self._lock:
            self._is_closed = True
            self._last_call = time.monotonic()
        while time.monotonic() < self._last_call + _SECONDS_TO_RETURN:
            time.sleep(_SECONDS_TO_RETURN / 10)

    def _from(self, epoch: int, first: int) -> Iterator[list[np.ndarray]]:
        """The batches of an epoch, from its batch `first` on."""
        size = self._batch_size
        rest = None  # rows that do not fill a batch yet
        for table in self._tables(epoch, first * size):
            rest = table if rest is None else pyarrow().concat_tables([rest, table])
            whole = rest.num_rows // size * size
            for row in range(0, whole, size):
                yield self._arrays(rest.slice(row, size))
            rest = rest.slice(whole)
        if rest is not None and rest.num_rows:
            yield self._arrays(rest)

    def _tables(self, epoch: int, first_row: int) -> Iterator[Any]:
        """The rows of an epoch in their order, from `first_row` on; what is before is not read."""
        for number, window in enumerate(self._windows(epoch)):
            num_rows = sum(group.num_rows for group in window)
            if first_row < num_rows:
                yield self._table(window, (epoch, number)).slice(first_row)
            first_row = max(first_row - num_rows, 0)

    def _windows(self, epoch: int) -> list[Sequence[_RowGroup]]:
        """Row groups whose rows are in memory together."""
        groups, size = self._row_groups, 1
        if self._shuffle is not None:
            order = np.random.default_rng([self._shuffle.seed, epoch]).permutation(len(groups))
            groups, size = [groups[i] for i in order], self._shuffle.row_groups
        return [groups[i : i + size] for i in range(0, len(groups), size)]

    def _table(self, window: Sequence[_RowGroup], number: tuple[int, int]) -> Any:
        table = pyarrow().concat_tables([group.read(self.layouts) for group in window])
        if self._shuffle is None:
            return table
        rng = np.random.default_rng([self._shuffle.seed, *number])
        return table.take(pyarrow().array(rng.permutation(table.num_rows)))

    def _arrays(self, table: Any) -> list[np.ndarray]:
        arrays: list[np.ndarray] = []
        for layout, column in zip(self.layouts, table.columns, strict=True):
            chunks = [chunk for chunk in column.chunks if len(chunk)]
            whole = chunks[0] if len(chunks) == 1 else column.combine_chunks()
            arrays += arrays_of(layout, whole)
        return arrays
