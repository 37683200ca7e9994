"""Which checkpoint the next incremental save continues."""

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf
from absl import logging

from fused_embedding.checkpoint.side_files import MAX_LINKS, Continued

Saved = TypeVar("Saved")


def _reason(error: tf.errors.OpError) -> str:
    """The message of an op's error, without the lines that name places in a graph."""
    lines = [line for line in error.message.splitlines() if line.strip() and "[[" not in line]
    return lines[-1] if lines else error.message


class Series:
    """A series of saves, each of which has what changed since the previous save.

    The first save is full, and so is the save after MAX_LINKS saves. A save is also full if the
    table cannot tell what changed, because it was restored or another series has begun. A restore
    gives the same content in any case. A save belongs to the series once its checkpoint is
    complete, which the caller reports by `finish`.
    """

    def __init__(self) -> None:
        self._prefix, self._tag = "", ""
        self._unfinished_tag = ""
        self._num_links: dict[str, int] = {}  # by the `name` of `save`
        self._unfinished: dict[str, int] = {}

    def save(self, name: str, write: Callable[[Continued], Saved]) -> Saved:
        """Writes the next save, in full if the series cannot be continued.

        Args:
            name: Name of what is saved, for the log.
            write: Writes it; raises FailedPreconditionError if the series cannot be continued.

        Returns:
            What `write` returns.
        """
        num_links = self._num_links.get(name, 0)
        if 0 < num_links < MAX_LINKS:
            try:
                saved = write(Continued(self._prefix, num_links, self._tag))
            except tf.errors.FailedPreconditionError as error:
                logging.warning("%s is saved in full: %s", name, _reason(error))
            else:
                self._unfinished[name] = num_links + 1
                return saved
        saved = write(Continued("", 0, ""))
        self._unfinished[name] = 1
        return saved

    def begin(self, prefix: str, tag: str, continued: Continued) -> None:
        """Records that the writing of a checkpoint begins.

        Args:
            prefix: Prefix of the checkpoint.
            tag: Tag of its file names (side_files.Drawn).
            continued: The checkpoint that `save` continues.

        Raises:
            FailedPreconditionError: If the checkpoint would replace the one that it continues.
        """
        if continued.num_links and prefix == continued.prefix:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"an incremental save cannot replace the one that it continues, {prefix}",
            )
        self._unfinished_tag = tag

    def finish(self, prefix: str) -> None:
        """Records that the checkpoint `prefix`, with all saves since the last one, is complete."""
        self._prefix, self._tag = prefix, self._unfinished_tag
        self._num_links, self._unfinished = self._unfinished, {}

    def abandon(self) -> None:
        """Records that the checkpoint failed: the next save continues the previous checkpoint."""
        self._unfinished = {}

    def restart(self) -> None:
        """Makes the next save a full one."""
        self._num_links, self._unfinished = {}, {}
