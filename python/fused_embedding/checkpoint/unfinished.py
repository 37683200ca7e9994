"""Unfinished saves: which files they have written, and which process may remove them.

The files of tables are written before the `.index` that names them. Until then the files do not
show whether a process is still writing, was killed, or copies a checkpoint. So a save draws a tag
at random for the names of its files, and has one more file while it runs:

    ckpt-3.data-ek2cd-of-aaaaa    a table
    ckpt-3.data-ek2cd-of-aaaba    another one
    ckpt-3.data-ok2cd-of-asave    the save with the tag "k2cda": its owner holds a lock on it

The kernel releases the lock when the owner ends, however it ends; no process waits for the lock. A
later save removes the files whose tag has a released lock. Decision 029 has the details.
"""

import contextlib
import contextvars
import fcntl
import glob
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from fused_embedding.checkpoint import side_files

Saved = TypeVar("Saved")
_MAX_ATTEMPTS = 10
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
# Suffixes of the tensors with file names: fe.train.Saver's and tf.train.Checkpoint's.
ENTRIES = ("-files", "/.ATTRIBUTES/fused_embedding_files")
_CURRENT: contextvars.ContextVar["UnfinishedSave | None"] = contextvars.ContextVar(
    "unfinished_save", default=None
)


class UnfinishedSave:
    """A save of a checkpoint. It begins when the first table requests the tag."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.tag = ""
        self._lock: _Lock | None = None
        self._before: set[str] = set()  # table files that existed before
        self._replaced: dict[str, int] = {}  # inodes of the replaced checkpoint's files, by suffix

    def begin(self) -> str:
        """The tag for the names of its files."""
        if not self.tag:
            remove_abandoned(self.prefix)
            self._before = {path for path in self._files() if not _Lock.is_name(path)}
            with contextlib.suppress(
                tf.errors.DataLossError
            ):  # a checkpoint with files of two saves, which this save replaces
                self._replaced = _inodes(self.prefix, named_files(self.prefix) or set())
            self._lock, self.tag = _new_lock(self.prefix, self._replaced)
        return self.tag

    def finish(self) -> bool:
        """Removes the files of the checkpoint that this one has replaced.

        Returns:
            Whether all files of the checkpoint are of one save. TensorFlow renames file by file, so
            if two processes save to one prefix, some files may be of the other process.

        Raises:
            NotFoundError: If the checkpoint lacks a file.
        """
        if not self.tag:
            return True
        try:
            named = self._named_and_there()
            if self.is_shared():
                _read(self.prefix, lambda key, dtype: True)
        except tf.errors.DataLossError:  # a checksum does not match: the file is of another save
            return False
        if named is not None:
            _remove_replaced(self.prefix, self._replaced, named)
            _remove_unnamed(self.prefix, self.tag)  # another save has replaced this one
        return True

    def _named_and_there(self) -> set[str] | None:
        while True:
            named = named_files(self.prefix)
            gone = sorted(x for x in named or () if not os.path.exists(self.prefix + x))
            if not gone:
                return named
            if named_files(self.prefix) == named:  # no other save has replaced it meanwhile
                raise tf.errors.NotFoundError(
                    None,
                    None,
                    f"checkpoint {self.prefix} was saved, but another process removed its file "
                    f"{self.prefix}{gone[0]} meanwhile, as one does that saves to the same prefix "
                    "and keeps few checkpoints; save again, and give each process its own prefix",
                )

    def is_shared(self) -> bool:
        """Whether another process saves to this prefix, or has done so meanwhile."""
        if not self.tag:
            return False
        others = [path for path in self._files() if side_files.tag_of(path[-20:]) != self.tag]
        return not self._before.issuperset(others)

    def _files(self) -> set[str]:
        return set(glob.glob(f"{glob.escape(self.prefix)}.data-[eo]????-of-?????"))

    def discard(self) -> None:
        """Removes the files of this save that the checkpoint does not name."""
        if self.tag:
            _remove_unnamed(self.prefix, self.tag)

    def close(self) -> None:
        """Ends the save: removes its lock file."""
        if self._lock is not None:
            self._lock.remove()
        self._lock = None


def save_whole(prefix: str, write: Callable[[UnfinishedSave], Saved]) -> Saved:
    """Saves a checkpoint; after an error no file of it remains.

    Args:
        prefix: Prefix of the checkpoint, such as `DIR/NAME-NUMBER`.
        write: Writes the checkpoint. Called again if the result has files of another process's
            save.

    Returns:
        What `write` returns.
    """
    failed: list[str] = []  # tags
    for _ in range(_MAX_ATTEMPTS):
        with _current(UnfinishedSave(prefix)) as save:
            result = _written(save, write)
            if result is not None:
                for tag in failed:
                    _remove_unnamed(prefix, tag)
                return result[0]
            failed.append(save.tag)
    raise tf.errors.DataLossError(
        None,
        None,
        f"checkpoint {prefix} has files of two saves, because another process saves to the same "
        "prefix; give each process its own prefix, and save again",
    )


def _written(save: UnfinishedSave, write: Callable[[UnfinishedSave], Saved]) -> list[Saved] | None:
    """The result of `write` in a list of one; None if another process interfered."""
    try:
        result = write(save)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
        # Both write to TensorFlow's folder `PREFIX_temp`: the other has moved files of this one,
        # which may have replaced some of the other's checkpoint.
        if save.is_shared():
            return None
        raise
    return [result] if save.finish() else None


@contextlib.contextmanager
def _current(save: UnfinishedSave) -> Iterator[UnfinishedSave]:
    token = _CURRENT.set(save)
    try:
        yield save
    except BaseException:
        save.discard()
        raise
    finally:
        _CURRENT.reset(token)
        save.close()


def current_tag() -> str:
    """The tag of the save in progress; "" if the save's begin and end are not known."""
    save = _CURRENT.get()
    return "" if save is None else save.begin()


def named_files(prefix: str) -> set[str] | None:
    """Suffixes of the table files that a checkpoint names; None if it does not exist."""
    if not os.path.isfile(f"{prefix}.index"):
        return None
    found = _read(prefix, lambda key, dtype: key.endswith(ENTRIES) and dtype == tf.string)
    if found is None:
        return None
    suffixes = [suffix for value in found for suffix in value.ravel()]
    return {suffix.decode() for suffix in suffixes if side_files.is_suffix(suffix)}


def _read(prefix: str, is_wanted: Callable[[str, tf.DType], bool]) -> list[Any] | None:
    """The values of some tensors of a checkpoint; None if it does not exist.

    Raises:
        DataLossError: If it cannot be read.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        dtypes = reader.get_variable_to_dtype_map()
        return [reader.get_tensor(key) for key, dtype in dtypes.items() if is_wanted(key, dtype)]
    except (tf.errors.OpError, LookupError, RuntimeError, ValueError) as error:
        if not os.path.isfile(f"{prefix}.index"):  # removed meanwhile
            return None
        raise tf.errors.DataLossError(None, None, f"checkpoint {prefix}: {error}") from error


def remove_abandoned(prefix: str) -> None:
    """Removes what saves of a series wrote whose owner has ended, as far as that can be proved.

    Args:
        prefix: Of a checkpoint of the series, as `DIR/NAME-NUMBER`.
    """
    series = re.sub(r"(?<=-)\d+$", "", prefix)
    number = r"\d+" if series.endswith("-") else ""
    for path in glob.glob(glob.escape(series) + "*" + _Lock.PATTERN):
        of_save, _, suffix = path.rpartition(".data-")
        if not re.fullmatch(number, of_save[len(series) :]):
            continue
        lock = _Lock.take_over(path)
        if lock is None:
            continue
        try:
            named = _remove_unnamed(of_save, side_files.tag_of(f".data-{suffix}"))
            if named is not None:
                _remove_replaced(of_save, lock.replaced, named)
            lock.remove()
        finally:
            lock.close()


def _remove_unnamed(prefix: str, tag: str) -> set[str] | None:
    """Removes the files of a tag, unless the checkpoint names one of it: it names all, then."""
    try:
        named = named_files(prefix)
    except tf.errors.DataLossError:  # it may name them
        return None
    if any(side_files.tag_of(suffix) == tag for suffix in named or ()):
        return named
    escaped = glob.escape(prefix)
    _remove(f"{escaped}{side_files.pattern_of(tag)}*")
    _remove(f"{escaped}_temp/*{tag}.*")
    return named


def _remove_replaced(prefix: str, replaced: dict[str, int], named: set[str]) -> None:
    """Removes files of an older save of a checkpoint, but for those with another inode by now."""
    used = {side_files.tag_of(suffix) for suffix in named}
    for suffix, inode in _inodes(prefix, replaced.keys() - named).items():
        if inode != replaced[suffix]:
            continue
        tag = side_files.tag_of(suffix)
        _remove(glob.escape(prefix + suffix))
        if tag not in used:  # the rows of a table with a tier on an SSD
            _remove(glob.escape(prefix) + side_files.pattern_of(tag))


def _remove(pattern: str) -> None:
    for path in glob.glob(pattern):
        with contextlib.suppress(OSError):
            if os.path.isdir(path):  # of a save that was killed while it moved a folder's files
                shutil.rmtree(path)
            else:
                os.remove(path)


def _inodes(prefix: str, suffixes: Any) -> dict[str, int]:
    inodes = {}
    for suffix in suffixes:
        with contextlib.suppress(OSError):
            inodes[suffix] = os.stat(prefix + suffix).st_ino
    return inodes


def _boot() -> str:
    """The ID of the running kernel, all of whose processes see each other's locks."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


class _Lock:
    """The file that marks a save in progress."""

    PATTERN = ".data-o????-of-?save"

    def __init__(self, path: str, file: int, replaced: dict[str, int]) -> None:
        self._path = path
        self._file = file
        self.replaced = replaced

    @staticmethod
    def is_name(path: str) -> bool:
        return ".data-o" in path[-20:]

    @classmethod
    def make(cls, path: str, replaced: dict[str, int]) -> "_Lock":
        """Makes the file, and locks it.

        Raises:
            OSError: If the file exists, or the file system has no locks.
        """
        lock = cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), replaced)
        try:
            fcntl.flock(lock._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # No process takes over the lock of a file without an owner's identity.
            content = json.dumps({**lock._identity(), "replaced": replaced})
            os.write(lock._file, content.encode())
        except BaseException:
            lock.remove()
            raise
        return lock

    @classmethod
    def take_over(cls, path: str) -> "_Lock | None":
        """Takes the lock of an owner that has ended; None if that is not proved.

        It is proved if a process of this kernel has made this very file. A file that was copied or
        moved has another inode or is in another folder. Nothing is known about processes of other
        machines.
        """
        try:
            lock = cls(path, os.open(path, os.O_RDWR), {})
        except OSError:
            return None
        try:
            content = json.loads(os.read(lock._file, os.fstat(lock._file).st_size))
            lock.replaced = content.pop("replaced")
            if content == lock._identity():
                fcntl.flock(lock._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock._is_there():
                    return lock
        except (OSError, ValueError, KeyError, AttributeError):
            pass
        lock.close()
        return None

    def _identity(self) -> dict[str, Any]:
        folder = os.stat(os.path.dirname(self._path) or ".")
        return {
            "boot": _boot(),
            "file": os.fstat(self._file).st_ino,
            "folder": folder.st_ino,
            "name": os.path.basename(self._path),
        }

    def _is_there(self) -> bool:
        """Whether the file has not been removed since it was opened."""
        return os.stat(self._path).st_ino == os.fstat(self._file).st_ino

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # TensorFlow removes it with its checkpoint
            if self._is_there():
                os.remove(self._path)
        self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def _new_lock(prefix: str, replaced: dict[str, int]) -> tuple[_Lock | None, str]:
    """The lock of a new save, and its tag.

    There is no lock if the files are on a machine whose files this process cannot access, or the
    file system has no locks. If such a save is killed, its files remain.
    """
    while True:
        tag = "".join(secrets.choice(_LETTERS) for _ in range(side_files.TAG_SIZE))
        try:
            return _Lock.make(f"{prefix}.data-o{tag[:4]}-of-{tag[4:]}save", replaced), tag
        except FileExistsError:  # another save has drawn the same tag
            continue
        except OSError:
            return None, tag
