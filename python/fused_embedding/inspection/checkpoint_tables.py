"""The tables of a checkpoint, read without the model that made them.

Files of tables are read by the op EmbeddingVariableFileSummary, tensors by TensorFlow's reader;
both check what they read.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint import object_based, side_files
from fused_embedding.ops import raw_ops
from fused_embedding.variable.content import CONTENT_NAMES
from fused_embedding.variable.row_size import WAITING_BYTES, RowLayout

# What readers of a bundle raise for tensors that are not what their names promise.
_OTHER_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class CheckpointError(Exception):
    """There is no checkpoint, or none that can be read."""


class DamagedTable(NamedTuple):
    """A table of a checkpoint that cannot be read.

    Attributes:
        name: Of the table.
        errors: What is wrong with which file.
    """

    name: str
    errors: list[str]


class KeyUse(NamedTuple):
    """How keys were used.

    Attributes:
        frequencies: `[n]` occurrences in training lookups.
        versions: `[n]` step of the last one.
    """

    frequencies: np.ndarray
    versions: np.ndarray


@dataclasses.dataclass(frozen=True)
class Table:
    """What a checkpoint says of a table.

    Attributes:
        name: Of the variable in the checkpoint.
        layout: Of a row.
        slots: Width of each slot, in numbers, by its name.
        updates: How often optimizers updated it: its own step.
        admission: Its filter: "all", "counter", "bloom"; "unknown" where tensors do not say.
        bloom_bytes: Bytes of the counters of a Bloom filter.
        use: Of the keys that have a row.
        waiting: Of the keys that a filter counts and has not admitted.
        num_files: Files it is in; 0: in tensors of the checkpoint.
        saved_bytes: Of those files or tensors.
        global_step: Of the checkpoint, where it has a tensor of that name; else 0.
    """

    name: str
    layout: RowLayout
    slots: dict[str, int]
    updates: int
    admission: str
    bloom_bytes: int
    use: KeyUse
    waiting: KeyUse
    num_files: int
    saved_bytes: int
    global_step: int = 0

    @property
    def num_rows(self) -> int:
        """Number of keys that have a row."""
        return len(self.use.frequencies)

    @property
    def num_waiting(self) -> int:
        """Number of keys that wait for admission."""
        return len(self.waiting.frequencies)

    @property
    def memory_bytes(self) -> float:
        """Memory of the table once it is restored, about."""
        rows = self.num_rows * self.layout.key_bytes
        return rows + self.num_waiting * WAITING_BYTES + self.bloom_bytes

    @property
    def now(self) -> int:
        """Step that ages are counted from: the global one, or the last training lookup's."""
        newest = (int(use.versions.max(initial=0)) for use in (self.use, self.waiting))
        return max(self.global_step, *newest)

    @property
    def ages(self) -> np.ndarray:
        """`[num_rows]` int64 steps since the last training lookup of each key with a row."""
        return np.maximum(self.now - self.use.versions.astype(np.int64), 0)


def read_tables(path: str) -> Iterator[Table | DamagedTable]:
    """Reads and checks all tables of a checkpoint, one after the other: see `find_tables`."""
    for read in find_tables(path):
        yield read()


def find_tables(path: str) -> list[Callable[[], Table | DamagedTable]]:
    """What reads and checks the tables of a checkpoint, each when it is called.

    Memory: 8 bytes a key of the table that is read, or the largest tensor where it is in tensors.

    Args:
        path: Prefix of a checkpoint, a folder of checkpoints (the last is read), or a SavedModel.

    Returns:
        Readers of the tables, in the order of their names.

    Raises:
        CheckpointError: If there is no checkpoint, or its index is damaged.
    """
    prefix = checkpoint_prefix(path)
    try:
        reader = tf.train.load_checkpoint(prefix)
        readers = _table_readers(reader, prefix)
    except (*_OTHER_ERRORS, tf.errors.OpError) as error:
        raise CheckpointError(
            f"checkpoint {prefix} cannot be read: {_message(error)}; give another one"
        ) from error
    return [functools.partial(_checked, name, read) for name, read in sorted(readers.items())]


def _checked(name: str, read: "_Read") -> Table | DamagedTable:
    try:
        return read(name)
    except _DamagedError as error:
        return DamagedTable(name, error.args[0])
    except _OTHER_ERRORS as error:
        # A bundle may have any tensor under any name, of any type and shape.
        what = f"a tensor has another type or shape than a table's ({error}); save it again"
        return DamagedTable(name, [what])


def checkpoint_prefix(path: str) -> str:
    """The prefix of the checkpoint that `path` means; see `read_tables`."""
    prefix: str | None = path.removesuffix(".index")
    if os.path.isdir(path):
        is_saved_model = os.path.exists(os.path.join(path, "saved_model.pb"))
        variables = os.path.join(path, "variables", "variables")
        prefix = variables if is_saved_model else tf.train.latest_checkpoint(path)
    if prefix is None or not os.path.exists(prefix + ".index"):
        raise CheckpointError(
            f"no checkpoint at {path}: a prefix with a file PREFIX.index, a folder with a "
            "file checkpoint, or a SavedModel is required; look at the files there"
        )
    return prefix


class _DamagedError(Exception):
    """Its argument is a list of what is wrong."""


_Read = Callable[[str], Table]


def _message(error: BaseException) -> str:
    """What an error says, without the names that TensorFlow puts around what an eager op says."""
    message = str(getattr(error, "message", error))
    return re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*$", "", message)


def _table_readers(reader: Any, prefix: str) -> dict[str, _Read]:
    """What reads each table of a checkpoint, by the table's name."""
    dtypes = reader.get_variable_to_dtype_map()
    has_step = dtypes.get("global_step") == tf.int64
    global_step = int(reader.get_tensor("global_step")) if has_step else 0
    return _of_objects(reader, prefix) | _of_names(reader, prefix, global_step)


def _of_objects(reader: Any, prefix: str) -> dict[str, _Read]:
    """Readers of what tf.train.Checkpoint and SavedModels hold."""
    readers: dict[str, _Read] = {}
    for key in reader.get_variable_to_dtype_map():
        if key.endswith(object_based.FILES):
            name = key.removesuffix(object_based.FILES)
            part = reader.get_tensor(name + object_based.PART).decode()
            name = f"{name}, partition {part}" if part else name
            readers |= _of_saves(prefix, name, reader.get_tensor(key), 0)
    return readers


def _of_names(reader: Any, prefix: str, global_step: int) -> dict[str, _Read]:
    """Readers of what Savers hold: names of files, or tensors."""
    readers: dict[str, _Read] = {}
    dtypes = reader.get_variable_to_dtype_map()
    for key, dtype in dtypes.items():
        if key.endswith("-files") and dtype == tf.string:
            suffixes = reader.get_tensor(key)
            if np.ndim(suffixes) in (1, 2) and all(map(side_files.is_suffix, np.ravel(suffixes))):
                readers |= _of_saves(prefix, key.removesuffix("-files"), suffixes, global_step)
        elif key.endswith("-keys"):
            name = key.removesuffix("-keys")
            if all(f"{name}-{column}" in dtypes for column in CONTENT_NAMES):
                readers[name] = _of_tensors(prefix, reader, global_step)
    return readers


def _of_saves(prefix: str, name: str, suffixes: Any, global_step: int) -> dict[str, _Read]:
    """Readers of a table, and of each incremental save of it, whose rows are those that changed."""
    first, *increments = np.atleast_2d(suffixes)
    readers = {name: _of_files(prefix, first, global_step)}
    for number, files in enumerate(increments, 1):
        save = f"{name}, incremental save {number}"
        readers[save] = _of_files(prefix, files, global_step)
    return readers


def _of_files(prefix: str, suffixes: Any, global_step: int) -> _Read:
    paths = [prefix + suffix.decode() for suffix in suffixes]
    return lambda name: _read_files(name, paths, global_step)


def _read_files(name: str, paths: list[str], global_step: int) -> Table:
    parts, errors = [], []
    for path in paths:
        try:
            part = raw_ops.EmbeddingVariableFileSummary(path=path)
            parts.append({key: value.numpy() for key, value in part._asdict().items()})
        except tf.errors.OpError as error:
            errors.append(_message(error))
    kinds = {(part["dtype"], int(part["dim"])) for part in parts}
    if len(kinds) > 1:
        errors.append(f"the files {', '.join(paths)} are not of one table; restore another one")
    if errors:
        raise _DamagedError(errors)
    dtype, dim = kinds.pop()
    slots: dict[str, int] = {}
    for part in parts:
        slots |= _slots(part)
    return Table(
        name=name,
        layout=RowLayout(dim, tf.as_dtype(dtype.decode()), sum(slots.values())),
        slots=slots,
        updates=max(int(part["step"]) for part in parts),
        admission=parts[0]["admission"].decode(),
        bloom_bytes=sum(int(part["bloom_bytes"]) for part in parts),
        use=_joined(parts, "frequencies", "versions"),
        waiting=_joined(parts, "filtered_frequencies", "filtered_versions"),
        num_files=len(paths),
        saved_bytes=sum(map(os.path.getsize, paths)),
        global_step=global_step,
    )


def _slots(columns: dict[str, np.ndarray]) -> dict[str, int]:
    names = [name.decode() for name in columns["slot_names"]]
    return dict(zip(names, columns["slot_widths"].tolist(), strict=True))


def _joined(parts: list[dict[str, np.ndarray]], frequencies: str, versions: str) -> KeyUse:
    columns = ([part[column] for part in parts] for column in (frequencies, versions))
    return KeyUse(*map(np.concatenate, columns))


# Columns with a row for each key.
_ROWS = ("values", "slots", "frequencies", "versions")
# Columns of a row or a key whose numbers a report does not need: checked, and dropped.
_ONLY_CHECKED = {"keys", "values", "slots", "filtered_keys", "initializer_matrix", "bloom"}


def _wrong_shapes(shapes: dict[str, tuple[int, ...]]) -> list[str]:
    """Of columns that do not have a row for each key."""
    keys = {"keys": _ROWS, "filtered_keys": ("filtered_frequencies", "filtered_versions")}
    return [
        f"{column} has the shape {list(shapes[column])}, but {of} {list(shapes[of])}; save the "
        "checkpoint again"
        for of, columns in keys.items()
        for column in columns
        if column in shapes and of in shapes and shapes[column][:1] != shapes[of]
    ]


def _of_tensors(prefix: str, reader: Any, global_step: int) -> _Read:
    return lambda name: _read_tensors(name, prefix, reader, global_step)


def _read_tensors(name: str, prefix: str, reader: Any, global_step: int) -> Table:
    kept, shapes, saved_bytes, errors = {}, {}, 0, []
    for column in CONTENT_NAMES:
        try:
            tensor = np.asarray(reader.get_tensor(f"{name}-{column}"))
        except tf.errors.OpError as error:
            errors.append(f"checkpoint {prefix}, tensor {name}-{column}: {_message(error)}")
            continue
        shapes[column] = tensor.shape
        saved_bytes += tensor.nbytes
        if column not in _ONLY_CHECKED:
            kept[column] = tensor
    errors += _wrong_shapes(shapes)
    if errors:
        raise _DamagedError(errors)
    slots = _slots(kept)
    dtype = reader.get_variable_to_dtype_map()[f"{name}-values"]
    bloom_bytes = int(np.prod(shapes["bloom"]))
    return Table(
        name=name,
        layout=RowLayout(shapes["values"][1], dtype, sum(slots.values())),
        slots=slots,
        updates=int(kept["step"]),
        admission="bloom" if bloom_bytes else "unknown",
        bloom_bytes=bloom_bytes,
        use=KeyUse(kept["frequencies"], kept["versions"]),
        waiting=KeyUse(kept["filtered_frequencies"], kept["filtered_versions"]),
        num_files=0,
        saved_bytes=saved_bytes,
        global_step=global_step,
    )
