"""A tf.compat.v1.train.Saver that streams tables to files, without copies of them in memory."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.checkpoint import first_content, side_files, unfinished
from fused_embedding.checkpoint.saveable import EmbeddingVariableSaveable
from fused_embedding.checkpoint.series import Series
from fused_embedding.checkpoint.side_files import Continued, Drawn
from fused_embedding.ops.placement import on_cpu
from fused_embedding.ops.tf_private import (
    BulkSaverBuilder,
    SaveableObject,
    SaveSpec,
    SessionInterface,
)
from fused_embedding.variable.embedding_variable import EmbeddingVariable


class _StreamedSaveable(SaveableObject):
    """Saves an EmbeddingVariable as files; the checkpoint holds their names as `NAME-files`."""

    def __init__(self, parts: Sequence[EmbeddingVariable], name: str) -> None:
        self._parts = parts
        self._prefix = name
        self.checkpoint: tf.Tensor | None = None  # prefix of the checkpoint, for the ops made next
        self.continued: Continued | None = None  # set for incremental saves
        self.drawn = Drawn()
        device = parts[0].handle.device
        spec = SaveSpec(lambda: self._files, "", f"{name}-files", dtype=tf.string, device=device)
        super().__init__(parts[0].handle, [spec], parts[0].handle.op.name)

    @functools.cached_property
    def _files(self) -> tf.Tensor:
        return side_files.save(
            self._parts, self.checkpoint, self._prefix, self.continued, drawn=self.drawn
        )

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> tf.Operation:
        operation = first_content.instead_of_restoring(self._parts)
        if operation is not None:
            return operation
        with on_cpu():  # but for what is beside the tables
            return tf.group(side_files.restore(self._parts, self.checkpoint, restored_tensors[0]))


class _StreamingBuilder(BulkSaverBuilder):
    """Sets the checkpoint of the tables' saveables, and the checkpoint that it continues."""

    def __init__(self, write_version: Any, is_incremental: bool) -> None:
        super().__init__(write_version)
        self._is_incremental = is_incremental
        self.continued: Continued | None = None  # placeholders of incremental saves
        self.tag: tf.Tensor | None = None  # placeholder; None without tables
        self._num_files = 0
        self.tables: list[str] = []  # names of the tables in the checkpoint

    def _build_internal(self, names_to_saveables: Any, **kwargs: Any) -> Any:
        if self._is_incremental:
            self.continued = Continued(
                tf.compat.v1.placeholder_with_default("", [], "continued_prefix"),
                tf.compat.v1.placeholder_with_default(0, [], "continued_links"),
                tf.compat.v1.placeholder_with_default("", [], "continued_tag"),
            )
        if isinstance(names_to_saveables, dict):
            by_name = {name: self._streamed(one) for name, one in names_to_saveables.items()}
            return super()._build_internal(by_name, **kwargs)
        listed = [self._streamed(one) for one in names_to_saveables]
        return super()._build_internal(listed, **kwargs)

    def _streamed(self, saveable: Any) -> Any:
        if not isinstance(saveable, EmbeddingVariableSaveable):
            return saveable
        self.tables.append(saveable.prefix)
        streamed = _StreamedSaveable(saveable.parts, saveable.prefix)
        streamed.continued = self.continued
        if self.tag is None:
            self.tag = tf.compat.v1.placeholder_with_default("", [], "tag_of_files")
        streamed.drawn = Drawn(self.tag, self._num_files)
        self._num_files += len(saveable.parts)
        return streamed

    def _AddShardedSaveOps(self, filename_tensor: Any, per_device: Any) -> Any:  # noqa: N802
        for _, saveables in per_device:
            _tell(saveables, filename_tensor)
        return super()._AddShardedSaveOps(filename_tensor, per_device)

    def save_op(self, filename_tensor: Any, saveables: Any) -> Any:
        # For a shard `filename_tensor` is not the prefix; _AddShardedSaveOps has already set that.
        _tell([one for one in saveables if getattr(one, "checkpoint", "") is None], filename_tensor)
        return super().save_op(filename_tensor, saveables)

    def bulk_restore(self, filename_tensor: Any, saveables: Any, *args: Any) -> Any:
        _tell(saveables, filename_tensor)
        return super().bulk_restore(filename_tensor, saveables, *args)


def _tell(saveables: Sequence[Any], checkpoint: tf.Tensor) -> None:
    for saveable in saveables:
        if isinstance(saveable, _StreamedSaveable):
            saveable.checkpoint = checkpoint


class _SavingSession(SessionInterface):
    """Wraps a session of a Saver: each save in it draws the names of its files."""

    def __init__(
        self, session: Any, saver: Any, feed: Callable[[str, str], dict[Any, Any]]
    ) -> None:
        self._session = session
        self._prefix_name = saver.saver_def.filename_tensor_name
        self._feed = feed  # returns further feeds for a checkpoint's prefix and tag

    @property
    def graph(self) -> tf.Graph:
        return self._session.graph

    def run(self, fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
        if self._prefix_name not in (feed_dict or {}):
            return self._session.run(fetches, feed_dict, *args, **kwargs)
        prefix = feed_dict[self._prefix_name]

        def write(save: unfinished.UnfinishedSave) -> Any:
            feed = {**feed_dict, **self._feed(prefix, save.begin())}
            return self._session.run(fetches, feed, *args, **kwargs)

        return unfinished.save_whole(prefix, write)


class Saver(tf.compat.v1.train.Saver):
    """A tf.compat.v1.train.Saver that streams EmbeddingVariables to files beside the checkpoint.

    It takes the arguments of the stock Saver, except `builder`. As extra memory it needs a
    sixteenth of a table instead of copies of it. TensorFlow removes the files with their
    checkpoint. It restores only tables that an fe.train.Saver saved, because the stock Saver saves
    tables as tensors.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     table = fe.get_embedding_variable("table", 4)
    ...     _ = session.run(table.upsert([7], [[1.0, 2.0, 3.0, 4.0]]))
    ...     path = fe.train.Saver(max_to_keep=2).save(session, "/tmp/model", global_step=1)
    >>> path
    '/tmp/model-1'
    """

    _builder: Any

    def __init__(self, *args: Any, incremental: bool = False, **kwargs: Any) -> None:
        """Makes the Saver.

        Args:
            *args: Arguments of tf.compat.v1.train.Saver.
            incremental: Whether a checkpoint holds only what changed in the tables since the
                previous checkpoint, which it continues. Each checkpoint can be restored, whichever
                others are removed.
            **kwargs: Arguments of tf.compat.v1.train.Saver.

        Raises:
            ValueError: For the arguments `builder` and write_version=V1, and for
                incremental=True eagerly or together with saver_def.
        """
        if incremental and (tf.executing_eagerly() or kwargs.get("saver_def") is not None):
            raise ValueError(
                "Saver(incremental=True) makes its own ops in a TF1 graph: leave out saver_def; "
                "eagerly, use fe.train.IncrementalCheckpointManager"
            )
        self._series = Series() if incremental else None
        super().__init__(*args, **kwargs)

    def _build(self, *args: Any, **kwargs: Any) -> None:
        if self._builder is None:
            if self._write_version != tf.compat.v1.train.SaverDef.V2:
                raise ValueError("fe.train.Saver writes version V2 of checkpoints, not V1")
            self._builder = _StreamingBuilder(self._write_version, self._series is not None)
        elif not isinstance(self._builder, _StreamingBuilder):
            raise ValueError("fe.train.Saver has its own builder: leave out the argument builder")
        super()._build(*args, **kwargs)

    def save(
        self, sess: Any, save_path: Any, global_step: Any = None, *args: Any, **kwargs: Any
    ) -> str | None:
        """Saves a checkpoint, and removes files that interrupted saves left behind.

        Args:
            sess: The session with the variables.
            save_path: Prefix of the checkpoint.
            global_step: Number that is appended to the prefix, or None.
            *args: Further arguments of tf.compat.v1.train.Saver.save.
            **kwargs: Further arguments of tf.compat.v1.train.Saver.save.

        Returns:
            The prefix of the checkpoint with its number.
        """
        tag = getattr(self._builder, "tag", None)
        if tag is None or tf.executing_eagerly() or not isinstance(sess, SessionInterface):
            return super().save(sess, save_path, global_step, *args, **kwargs)
        stock_save, series = super().save, self._series
        if series is None:
            session = _SavingSession(sess, self, lambda _, drawn: {tag: drawn})
            return stock_save(session, save_path, global_step, *args, **kwargs)

        def save_continued(continued: Continued) -> str | None:
            def feed(prefix: str, drawn: str) -> dict[Any, Any]:
                series.begin(prefix, drawn, continued)
                placeholders = self._builder.continued
                return {tag: drawn, **dict(zip(placeholders, continued, strict=True))}

            session = _SavingSession(sess, self, feed)
            return stock_save(session, save_path, global_step, *args, **kwargs)

        path = series.save("the checkpoint", save_continued)
        series.finish(path or "")
        return path

    @property
    def is_incremental(self) -> bool:
        """Whether a checkpoint holds only what changed since the previous checkpoint."""
        return self._series is not None

    def restart_series(self) -> None:
        """Makes the next save a full one."""
        if self._series is not None:
            self._series.restart()

    def restore(self, sess: Any, save_path: Any) -> None:
        """Restores all variables of the Saver from a checkpoint.

        Args:
            sess: The session to restore into.
            save_path: Prefix of a checkpoint of an fe.train.Saver.

        Raises:
            tf.errors.NotFoundError: If the checkpoint lacks a variable, or tf.compat.v1.train.Saver
                has saved a table in it.
            tf.errors.DataLossError: If a file of the checkpoint is damaged.
        """
        self.restart_series()
        try:
            super().restore(sess, save_path)
        except tf.errors.NotFoundError as error:
            if name := self._saved_as_tensors(save_path):
                raise tf.errors.NotFoundError(
                    None,
                    None,
                    f"the checkpoint {save_path!r} holds the EmbeddingVariable {name!r} as "
                    "tensors, which tf.compat.v1.train.Saver wrote, but fe.train.Saver restores "
                    "files of tables: restore it with tf.compat.v1.train.Saver, then save it with "
                    "this one",
                ) from error
            raise

    def _saved_as_tensors(self, save_path: Any) -> str | None:
        """The first of the Saver's tables that the stock Saver saved in a checkpoint, or None."""
        saved = {name for name, _ in tf.train.list_variables(save_path)}
        tables = self._builder.tables if self._builder else []
        return next((name for name in tables if f"{name}-keys" in saved), None)
