"""What commands show on a terminal: bars of progress, and names from files that cannot hurt it."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from fused_embedding import extras


def printable(text: str) -> str:
    """`text` with control characters, and those that turn or hide text, as escapes.

    Names in a checkpoint are anybody's: one may hold what makes a terminal run or hide things.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Progress:
    """What `progress` gives."""

    def __init__(self, bar: Any = None) -> None:
        self._bar = bar

    def advance(self, name: str = "", amount: int = 1) -> None:
        """Says that something is done, which is called `name`."""
        if self._bar is not None:
            self._bar.set_postfix_str(printable(name), refresh=False)
            self._bar.update(amount)

    def print(self, text: str) -> None:
        """Prints to stdout, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(text, flush=True)
        if self._bar is not None:
            self._bar.refresh()


@contextlib.contextmanager
def progress(total: int | None, unit: str, description: str) -> Iterator[Progress]:
    """Shows a bar on stderr where that is a terminal, and tqdm is installed; else nothing.

    Args:
        total: So much there is to do; None: unknown.
        unit: What is counted: "table".
        description: What happens: "converted".

    Yields:
        What to tell when something is done.
    """
    if not (sys.stderr.isatty() and extras.is_installed("tqdm")):
        yield Progress()
        return
    tqdm = extras.load("tqdm").tqdm
    with tqdm(total=total, unit=unit, desc=description, unit_scale=total is None) as bar:
        yield Progress(bar)
