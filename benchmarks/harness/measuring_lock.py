r"""One measurement at a time on a machine: a lock on a file that all checkouts share.

    python -m benchmarks.harness.measuring_lock COMMAND ARGUMENTS...    runs COMMAND under the lock

The lock is the kernel's (flock) and belongs to the process, which COMMAND replaces, and to the
children that inherit it: it is released when the last of them ends, however it ends.
"""

import fcntl
import os
import pathlib
import shlex
import sys
import tempfile

PATH = pathlib.Path(tempfile.gettempdir()) / "fused_embedding_measuring.lock"
MAX_HOLDER_BYTES = 4096


class HeldError(RuntimeError):
    """Another process measures."""


def hold() -> int:
    """Takes the lock for this process, and for what it becomes by exec.

    Returns:
        The file descriptor that holds the lock; closing it releases the lock.

    Raises:
        HeldError: Another process has the lock; the message names it.
    """
    descriptor = _open()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, MAX_HOLDER_BYTES, 0).decode(errors="replace")
        os.close(descriptor)
        raise HeldError(
            f"process {holder or 'unknown'} is measuring, and two measurements at once spoil each "
            f"other; wait until it ends, or end it ({PATH} is locked)"
        ) from None
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} ({shlex.join(sys.orig_argv)})".encode(), 0)
    os.set_inheritable(descriptor, True)
    return descriptor


def _open() -> int:
    """Opens the file, which any user may have made."""
    try:
        return os.open(PATH, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        descriptor = os.open(PATH, os.O_RDWR | os.O_NOFOLLOW | os.O_CREAT, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask
        return descriptor


def main() -> None:
    """Becomes the command, with the lock."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m benchmarks.harness.measuring_lock COMMAND ARGUMENTS...")
    try:
        hold()
    except HeldError as error:
        sys.exit(f"not measured: {error}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
