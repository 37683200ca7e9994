"""Folders that are written atomically."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """A context with a temporary folder to write into, which is renamed to `path` at the end.

    After an error the temporary folder is removed.

    Raises:
        FileExistsError: If `path` exists and is not empty.
    """
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise FileExistsError(
            f"{path!r} exists, and is not overwritten; choose another, or move it"
        )
    parent, name = os.path.split(os.path.abspath(path))
    unfinished = os.path.join(parent, f".{name}.{uuid.uuid4().hex}.unfinished")
    os.makedirs(unfinished)
    try:
        yield unfinished
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
