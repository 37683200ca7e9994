"""A tf.train.CheckpointManager that saves only what changed in EmbeddingVariables."""

from typing import Any

import tensorflow as tf

from fused_embedding.checkpoint.object_based import saved_in
from fused_embedding.checkpoint.series import Series


class IncrementalCheckpointManager(tf.train.CheckpointManager):
    """A tf.train.CheckpointManager that saves only what changed in EmbeddingVariables.

    It takes the arguments of the stock manager, and any tf.train.Checkpoint restores its
    checkpoints. The first save has all of each table, and so has each 16th save after it; the
    others have what changed since the previous save (docs/checkpoints.md).

    >>> table = fe.get_embedding_variable("table", 4)
    >>> checkpoint = tf.train.Checkpoint(table=table)
    >>> manager = fe.train.IncrementalCheckpointManager(checkpoint, "models", max_to_keep=3)
    >>> table.upsert([7, 8], [[1.0] * 4] * 2)
    >>> manager.save()  # both rows
    'models/ckpt-1'
    >>> table.upsert([7], [[2.0] * 4])
    >>> manager.save()  # one row
    'models/ckpt-2'
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Makes the manager.

        Args:
            *args: Arguments of tf.train.CheckpointManager.
            **kwargs: Arguments of tf.train.CheckpointManager.

        Raises:
            ValueError: In a TF1 graph, where only `fe.train.Saver` saves incrementally.
        """
        if not tf.executing_eagerly():
            raise ValueError(
                "IncrementalCheckpointManager saves eagerly, and this is a TF1 graph: use "
                "fe.train.Saver(incremental=True) here"
            )
        super().__init__(*args, **kwargs)
        self._series = Series()

    def save(self, *args: Any, **kwargs: Any) -> str | None:
        """Saves a checkpoint.

        Args:
            *args: Arguments of tf.train.CheckpointManager.save.
            **kwargs: Arguments of tf.train.CheckpointManager.save.

        Returns:
            The prefix of the checkpoint; None if `check_interval` and the step skip this save.
        """
        try:
            with saved_in(self._series):
                path = super().save(*args, **kwargs)
        except BaseException:
            self._series.abandon()
            raise
        if path is not None:
            self._series.finish(path)
        return path
