"""A file that is there as a whole or not at all."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A file to write, which becomes `path` at the end; what is there stays whole until then.

    Its name has the same suffix, and it goes if there is an error.
    """
    path = pathlib.Path(path)
    unfinished = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
