"""Disks that are full, below a table with a tier and below its checkpoints: a tmpfs is one."""

import pathlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tiers import look_up, make_table, needs_rocksdb, on_ssd, rows_of
from checking import assert_same_bits

pytestmark = needs_rocksdb
DIM = 64
NUM_KEYS = 60_000  # with their slots 31 MB, of which 10 are in memory
BATCH = 10_000
DISK_MB = 96  # room for all rows, what is merged, and what is dead
LEFT_MB = 4


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[Callable[[int], pathlib.Path]]:
    """Makes file systems of so many MB, in memory."""
    mounted: list[pathlib.Path] = []

    def mount(num_mb: int) -> pathlib.Path:
        folder = tmp_path / f"disk_{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={num_mb}m", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("a full disk needs the command mount")
        if done.returncode != 0:
            pytest.skip(f"a full disk needs the right to mount one: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        # Lazily: a table may have files there until it is collected.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Trainer:
    """Trains a table, and tries again what a full disk did not let it do."""

    def __init__(self, name: str, option: fe.EmbeddingVariableOption) -> None:
        self.table = make_table(name, DIM, 1, option)
        self._optimizer = tf.compat.v1.train.AdagradOptimizer(0.1)
        self.errors: list[str] = []
        self.free_space: Callable[[], None] = lambda: None

    def train(self, num_steps: int, first: int = 0) -> None:
        for step in range(first, first + num_steps):
            keys = np.random.default_rng(step).permutation(NUM_KEYS)[:BATCH] * 7919
            with tf.GradientTape() as tape:
                rows = self._try(lambda keys=keys: look_up(self.table, keys))
                loss = tf.reduce_sum(tf.tanh(rows) ** 2)
            grad = tape.gradient(loss, self.table)
            self._try(lambda grad=grad: self._optimizer.apply_gradients([(grad, self.table)]))

    def rows(self) -> dict[str, np.ndarray]:
        """All of them, which writes those that the disk lacks."""
        return self._try(lambda: rows_of(self.table))

    def _try(self, work: Callable[[], Any]) -> Any:
        # Once there is space RocksDB needs some seconds to see it.
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                return work()
            except tf.errors.ResourceExhaustedError as error:
                self.errors.append(error.message)
                self.free_space()
                time.sleep(0.1)
        raise AssertionError(f"no row can be written, long after there was space: {self.errors}")


def assert_same_rows(got: Trainer, want: Trainer) -> None:
    rows, want_rows = got.rows(), want.rows()
    for part in want_rows:
        assert_same_bits(rows[part], want_rows[part])


def files_in(folder: pathlib.Path) -> dict[str, int]:
    return {str(file): file.stat().st_size for file in folder.rglob("*")}


def test_training_goes_on_once_there_is_space(disk):
    folder = disk(DISK_MB)
    filler = folder / "filler"
    on_disk = Trainer("full", on_ssd(folder / "tables"))
    in_memory = Trainer("full", fe.EmbeddingVariableOption())
    on_disk.free_space = lambda: filler.unlink(missing_ok=True)
    for trainer in (on_disk, in_memory):
        trainer.train(1)  # makes the slot, for which all rows are copied
    filler.write_bytes(bytes(shutil.disk_usage(folder).free - (LEFT_MB << 20)))
    for trainer in (on_disk, in_memory):
        trainer.train(11, first=1)
    assert on_disk.errors, "the disk was never full"
    for message in on_disk.errors:
        assert str(folder / "tables" / "full") in message
        assert "No space left on device" in message
    assert not in_memory.errors
    assert int(on_disk.table.statistics()["cold_bytes"]) > LEFT_MB << 20
    assert_same_rows(on_disk, in_memory)


def test_a_save_that_does_not_fit_leaves_the_one_before(disk, tmp_path):
    folder = disk(24)
    trainer = Trainer("saved", on_ssd(tmp_path / "ssd"))
    checkpoint = tf.train.Checkpoint(table=trainer.table)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=3)
    trainer.train(1)
    path = manager.save()
    files = files_in(folder)
    want = rows_of(trainer.table)
    trainer.train(11, first=1)
    for _ in range(2):
        with pytest.raises(tf.errors.ResourceExhaustedError, match="No space left") as raised:
            manager.save()
        assert str(folder / "ckpt-") in raised.value.message
    assert manager.latest_checkpoint == path
    assert files_in(folder) == files, "a save that failed has left files"
    restored = make_table("restored", DIM, 1, on_ssd(tmp_path / "ssd"))
    tf.train.Checkpoint(table=restored).restore(path).assert_existing_objects_matched()
    got = rows_of(restored)
    for part in want:
        assert_same_bits(got[part], want[part])
    # What could not be saved is still there.
    in_memory = Trainer("saved", fe.EmbeddingVariableOption())
    in_memory.train(13)
    trainer.train(1, first=12)
    assert_same_rows(trainer, in_memory)
