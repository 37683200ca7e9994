"""Files that are written atomically."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A context with a temporary file to write, which is renamed to `path` at the end.

    An existing file at `path` does not change before that. The temporary name has the same suffix.
    After an error the temporary file is removed.
    """
    path = pathlib.Path(path)
    unfinished = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
