"""Programs that save a table beside a dense variable, by each way to save.

All numbers of both are one stamp, so that a checkpoint with parts of two saves is noticed.
"""

import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

import fused_embedding as fe

v1 = tf.compat.v1
NUM_KEYS, DIM = 3000, 8
KEYS = np.arange(NUM_KEYS, dtype=np.int64)


def _table(storage: pathlib.Path | None) -> Any:
    if storage is None:
        option = fe.EmbeddingVariableOption()
    else:
        ssd = fe.StorageOption(fe.StorageType.DRAM_SSD, str(storage), [16 << 20])
        option = fe.EmbeddingVariableOption(storage_option=ssd)
    partitioner = v1.fixed_size_partitioner(2)
    return fe.get_embedding_variable("table", DIM, partitioner=partitioner, ev_option=option)


class InSession:
    """A Saver in a session: stock's of a tf.Variable, or fe.train.Saver of a table."""

    def __init__(self, folder: pathlib.Path, max_to_keep: int, **saver: Any) -> None:
        self._prefix = str(folder / "ckpt")
        with tf.Graph().as_default():
            self._stamp = v1.placeholder(tf.float32, [])
            self._dense = v1.get_variable("dense", [], use_resource=True)
            set_dense = self._dense.assign(self._stamp)
            values = tf.fill([NUM_KEYS, DIM], self._stamp)
            if saver.pop("stock", False):
                table = v1.get_variable("table", [NUM_KEYS, DIM], use_resource=True)
                self._set = [set_dense, table.assign(values)]
                self._rows = table.read_value()
                self._saver = v1.train.Saver(max_to_keep=max_to_keep, **saver)
            else:
                table = _table(None)
                self._set = [set_dense, table.upsert(KEYS, values)]
                self._rows = table.export().values
                self._saver = fe.train.Saver(max_to_keep=max_to_keep, **saver)
            self._session = v1.Session()
            self._session.run(v1.global_variables_initializer())

    def save(self, number: int, stamp: float) -> str:
        """Sets all numbers to `stamp`, and saves as checkpoint `number`."""
        with self._session.graph.as_default():
            self._session.run(self._set, {self._stamp: stamp})
            return self._saver.save(self._session, self._prefix, global_step=number)

    def restore(self, path: str) -> tuple[float, np.ndarray]:
        """The dense variable and the rows of a checkpoint."""
        with self._session.graph.as_default():
            self._saver.restore(self._session, path)
            return self._session.run((self._dense, self._rows))


class Eager:
    """tf.train.Checkpoint, or a manager of incremental ones."""

    def __init__(
        self,
        folder: pathlib.Path,
        max_to_keep: int,
        is_stock: bool = False,
        manager: Any = tf.train.CheckpointManager,
        storage: pathlib.Path | None = None,
    ) -> None:
        self._dense = tf.Variable(0.0)
        self._is_stock = is_stock
        self._table = tf.Variable(tf.zeros([NUM_KEYS, DIM])) if is_stock else _table(storage)
        self._checkpoint = tf.train.Checkpoint(table=self._table, dense=self._dense)
        self._manager = manager(self._checkpoint, str(folder), max_to_keep=max_to_keep)

    def save(self, number: int, stamp: float) -> str:
        """Sets all numbers to `stamp`, and saves as checkpoint `number`."""
        self._dense.assign(stamp)
        values = tf.fill([NUM_KEYS, DIM], stamp)
        if self._is_stock:
            self._table.assign(values)
        else:
            self._table.upsert(KEYS, values)
        return self._manager.save(checkpoint_number=number)

    def restore(self, path: str) -> tuple[float, np.ndarray]:
        """The dense variable and the rows of a checkpoint."""
        self._checkpoint.restore(path).assert_existing_objects_matched()
        rows = self._table if self._is_stock else self._table.export().values
        return float(self._dense), np.asarray(rows)


def make(kind: str, folder: pathlib.Path, storage: pathlib.Path, max_to_keep: int) -> Any:
    """A program of one of KINDS; `storage` is where tables on an SSD have their rows."""
    manager = fe.train.IncrementalCheckpointManager
    makers: dict[str, Any] = {
        "stock Saver": lambda: InSession(folder, max_to_keep, stock=True),
        "stock Saver sharded": lambda: InSession(folder, max_to_keep, stock=True, sharded=True),
        "stock Checkpoint": lambda: Eager(folder, max_to_keep, is_stock=True),
        "Saver": lambda: InSession(folder, max_to_keep),
        "Saver sharded": lambda: InSession(folder, max_to_keep, sharded=True),
        "Saver incremental": lambda: InSession(folder, max_to_keep, incremental=True),
        "Checkpoint": lambda: Eager(folder, max_to_keep),
        "Checkpoint incremental": lambda: Eager(folder, max_to_keep, manager=manager),
        "Checkpoint SSD": lambda: Eager(folder, max_to_keep, storage=storage),
    }
    return makers[kind]()


KINDS = (
    "stock Saver",
    "stock Saver sharded",
    "stock Checkpoint",
    "Saver",
    "Saver sharded",
    "Saver incremental",
    "Checkpoint",
    "Checkpoint incremental",
    "Checkpoint SSD",
)


def is_whole(program: Any, path: str) -> bool:
    """Whether a checkpoint is restored, and is of one save."""
    try:
        dense, rows = program.restore(path)
    except (tf.errors.OpError, LookupError):
        return False
    return rows.shape == (NUM_KEYS, DIM) and bool(np.all(rows == dense))


def prefix_of(path: pathlib.Path) -> str:
    """The name of the checkpoint that a file belongs to."""
    return path.name.partition(".data-")[0]


def tag_of(path: pathlib.Path) -> str:
    """The letters that the files of a save have in common."""
    suffix = path.name.partition(".data-")[2]
    return suffix[1:5] + suffix[9]


def tags_of(prefix: pathlib.Path) -> set[str]:
    """Those of the files that a checkpoint names."""
    reader = tf.train.load_checkpoint(str(prefix))
    entries = [name for name in reader.get_variable_to_shape_map() if name.endswith("files")]
    suffixes = [suffix for name in entries for suffix in np.ravel(reader.get_tensor(name))]
    return {tag_of(pathlib.Path(f"{prefix}{suffix.decode()}")) for suffix in suffixes}
