"""The keys and rows of a table as one numpy array: what Keras takes for the value of a weight.

`get_weights`, `set_weights` and what calls them (EarlyStopping with restore_best_weights) read and
write whole variables. A table has no dense value, so it gives a copy of its rows that carries the
keys, and takes only such a copy back.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from fused_embedding.variable.content import bloom_layout, import_whole

if TYPE_CHECKING:
    from fused_embedding.variable.embedding_variable import EmbeddingVariable

# Rows that a histogram is made of, at most.
NUM_SAMPLED_ROWS = 100_000
_FIRST_VALUE_COLUMNS = ("initializer", "initializer_parameters", "seed", "initializer_matrix")
_FILTER_COLUMNS = ("filtered_keys", "filtered_frequencies", "filtered_versions")
_state = threading.local()
_MAX_FRAMES = 8  # between here and the module of Keras that writes HDF5 files


class TableSnapshot(np.ndarray):
    """`[n, dim]` rows of an EmbeddingVariable, with the keys that they belong to.

    Copies and pickles are snapshots too. Slices, results of arithmetic and files of np.save have
    the numbers alone: no table takes them.

    Attributes:
        keys: `[n]` int64, ascending.
        first_values: How keys without a row start, by the names that a checkpoint has for it.
    """

    keys: np.ndarray | None
    first_values: dict[str, Any] | None

    def __new__(
        cls, keys: np.ndarray, values: np.ndarray, first_values: dict[str, Any]
    ) -> TableSnapshot:
        """Copies the values, so that an array made of a snapshot has the snapshot as its base."""
        snapshot = super().__new__(cls, values.shape, values.dtype)
        snapshot[...] = values
        snapshot.keys, snapshot.first_values = keys, first_values
        return snapshot

    def __array_finalize__(self, array: Any) -> None:
        self.keys = self.first_values = None

    def copy(self, order: Any = "C") -> Any:
        """A snapshot of the same rows.

        Args:
            order: Memory layout, as for numpy.ndarray.copy.

        Returns:
            A TableSnapshot; of a slice of one an array.
        """
        if self.keys is None or self.first_values is None:
            return np.array(self, order=order)
        return TableSnapshot(self.keys, np.asarray(self), self.first_values)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        if self.keys is None:
            return np.asarray(self).__reduce__()
        return TableSnapshot, (self.keys, np.array(self), self.first_values)


def take_snapshot(table: EmbeddingVariable) -> TableSnapshot:
    """A copy of a table's keys and rows; slots, frequencies and versions are left out.

    Raises:
        NotImplementedError: For a table with rows on an SSD.
    """
    _refuse_tier(table)
    content = table.export_content()
    first_values = {name: getattr(content, name).numpy() for name in _FIRST_VALUE_COLUMNS}
    return TableSnapshot(content.keys.numpy(), content.values.numpy(), first_values)


def is_for_hdf5() -> bool:
    """Whether Keras 2 reads weights to write them into an HDF5 file, which would lose the keys.

    It reads them by the function that get_weights() uses: only the callers tell the two apart.
    """
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame.f_code.co_filename.endswith("hdf5_format.py"):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def set_snapshot(table: EmbeddingVariable, value: Any) -> None:
    """Makes a table's keys, rows and first values those of a snapshot.

    Keys that the table has keep slots, frequency and version, as dense variables keep the slots of
    their optimizer. Keys that it does not have start with new ones.

    Args:
        table: A table of the same dim.
        value: A TableSnapshot, or what np.asarray made of one.

    Raises:
        NotImplementedError: For a table with rows on an SSD.
        TypeError: For an array without keys.
        ValueError: For rows of another length.
    """
    _refuse_tier(table)
    snapshot = _as_snapshot(value)
    if snapshot is None:
        raise TypeError(
            f"the EmbeddingVariable {table.name!r} was given {type(value).__name__} of shape "
            f"{getattr(value, 'shape', None)} as its value, but rows without their keys say "
            "nothing to a table; pass what get_weights() or numpy() of a table returned, unchanged"
        )
    if snapshot.shape[1:] != (table.embedding_dim,):
        raise ValueError(
            f"the EmbeddingVariable {table.name!r} has embedding_dim = {table.embedding_dim}, but "
            f"was given rows of length {snapshot.shape[1]}"
        )
    import_whole([table], _content_with(table, snapshot))


def _as_snapshot(value: Any) -> TableSnapshot | None:
    """The snapshot that a value is, or that np.asarray made it of, as Keras 2 does."""
    base = getattr(value, "base", None)
    for snapshot in (value, base):
        if isinstance(snapshot, TableSnapshot) and snapshot.keys is not None:
            same = snapshot.__array_interface__["data"] == value.__array_interface__["data"]
            if same and (snapshot.shape, snapshot.strides) == (value.shape, value.strides):
                return snapshot
    return None


def _content_with(table: EmbeddingVariable, snapshot: TableSnapshot) -> dict[str, Any]:
    """A table's content as of a checkpoint, with the keys, rows and first values of a snapshot."""
    content = table.export_content()._asdict()
    dtype, keys = table.dtype, np.asarray(snapshot.keys)
    columns = dict(snapshot.first_values or {})
    columns["initializer_matrix"] = tf.cast(columns["initializer_matrix"], dtype)
    columns |= {"keys": keys, "values": tf.cast(np.asarray(snapshot), dtype)}
    columns |= _kept_columns(content, keys)
    is_counted = ~np.isin(content["filtered_keys"].numpy(), keys)
    columns |= {name: content[name].numpy()[is_counted] for name in _FILTER_COLUMNS}
    columns["bloom"] = tf.stack([content["bloom"]] * table.partition.count)
    return content | columns | {"bloom_layout": tf.constant(bloom_layout(table))}


def _kept_columns(content: dict[str, tf.Tensor], keys: Any) -> dict[str, np.ndarray]:
    """What a table has beside the values of `keys`; of those it does not have, what is new."""
    old_keys = content["keys"].numpy()
    at = np.searchsorted(old_keys, keys)
    found = np.isin(keys, old_keys)
    first_slots = np.repeat(content["slot_initials"].numpy(), content["slot_widths"].numpy())
    first = {"slots": first_slots, "frequencies": 0, "versions": content["step"].numpy()}
    kept = {}
    for name, value in first.items():
        old = content[name].numpy()
        kept[name] = np.empty((len(keys), *old.shape[1:]), old.dtype)
        kept[name][...] = value
        kept[name][found] = old[at[found]]
    return kept


def _refuse_tier(table: EmbeddingVariable) -> None:
    if not table.table_attributes.get("storage_path"):
        return
    raise NotImplementedError(
        f"the EmbeddingVariable {table.name!r} has rows on an SSD and may be larger than memory, "
        "but get_weights(), set_weights(), EarlyStopping(restore_best_weights=True) and "
        "TensorBoard(histogram_freq=1) hold copies of it in memory; save the best model by "
        "tf.train.Checkpoint and restore that, with restore_best_weights=False and "
        "histogram_freq=0"
    )


# --- Histograms ---


@contextlib.contextmanager
def sampled_values() -> Iterator[None]:
    """Inside, a table that is read as a dense tensor gives some of its rows.

    For histograms: everywhere else such a read is an error.
    """
    _state.is_sampling = True
    try:
        yield
    finally:
        _state.is_sampling = False


def is_sampling() -> bool:
    """Whether this thread is inside `sampled_values()`."""
    return getattr(_state, "is_sampling", False)


def sample_rows(table: EmbeddingVariable) -> tf.Tensor:
    """`[n, dim]` rows of a table, n at most NUM_SAMPLED_ROWS, of keys drawn with a fixed seed.

    Raises:
        NotImplementedError: For a table with rows on an SSD.
    """
    _refuse_tier(table)
    values = table.export().values
    num_rows = int(values.shape[0])
    if num_rows <= NUM_SAMPLED_ROWS:
        return values
    drawn = np.random.default_rng(0).choice(num_rows, NUM_SAMPLED_ROWS, replace=False)
    return tf.gather(values, np.sort(drawn))
