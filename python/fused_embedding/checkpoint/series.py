"""Which checkpoint the next incremental save continues."""

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf
from absl import logging

from fused_embedding.checkpoint.side_files import MAX_LINKS, Continued

Saved = TypeVar("Saved")


def _reason(error: tf.errors.OpError) -> str:
    """What an op said, without the places in which a graph was made."""
    lines = [line for line in error.message.splitlines() if line.strip() and "[[" not in line]
    return lines[-1] if lines else error.message


class Series:
    """Saves of which each has what changed since the one before.

    The first has all; so has the one after MAX_LINKS of them, and any one whose table does not
    know what changed: it was restored meanwhile, or another series has begun. What is saved is the
    same in either case. A save counts once its checkpoint is whole, and it is told so.
    """

    def __init__(self) -> None:
        self._prefix, self._tag = "", ""
        self._unfinished_tag = ""
        self._num_links: dict[str, int] = {}  # by name of what is saved
        self._unfinished: dict[str, int] = {}

    def save(self, name: str, write: Callable[[Continued], Saved]) -> Saved:
        """Writes what is to be saved next, in full where it cannot be continued.

        Args:
            name: Of what is saved.
            write: Writes it; FailedPreconditionError says that it cannot be continued.

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
        """A checkpoint is saved.

        Args:
            prefix: Of it.
            tag: Of the names of its files (side_files.Drawn).
            continued: What `save` wants it to continue.

        Raises:
            FailedPreconditionError: It cannot: it replaces that.
        """
        if continued.num_links and prefix == continued.prefix:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"an incremental save cannot replace the one that it continues, {prefix}",
            )
        self._unfinished_tag = tag

    def finish(self, prefix: str) -> None:
        """The checkpoint of that prefix, with all that was saved since the last one, is whole."""
        self._prefix, self._tag = prefix, self._unfinished_tag
        self._num_links, self._unfinished = self._unfinished, {}

    def abandon(self) -> None:
        """The checkpoint was not finished: the next save continues the one before."""
        self._unfinished = {}

    def restart(self) -> None:
        """The next save has all."""
        self._num_links, self._unfinished = {}, {}
