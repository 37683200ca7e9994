"""Processes that may have no more than some memory, in cgroups of version 1, as root."""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

_ROOT = pathlib.Path("/sys/fs/cgroup/memory")


@contextlib.contextmanager
def group(prefix: str) -> Iterator[pathlib.Path | None]:
    """A new one; None, with a line that says so, where there can be none."""
    try:
        made = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=_ROOT))
    except OSError as error:
        print(f"no memory cgroup of version 1, so nothing limits a process: {error}")
        yield None
        return
    try:
        yield made
    finally:
        made.rmdir()


def command(of_process: Sequence[str], made: pathlib.Path | None) -> list[str]:
    """What starts the process in the group, to which all that it has is charged then."""
    join = f"echo $$ > {made}/cgroup.procs && " if made else ""
    return ["sh", "-c", join + 'exec "$@"', "sh", *of_process]


def limit(made: pathlib.Path, num_bytes: int) -> dict[str, int]:
    """From now on processes in the group end once they have as much more.

    Pages of files that they have read count, and the system takes them back where it can.
    """
    stat = dict(line.split() for line in (made / "memory.stat").read_text().splitlines())
    wanted = int(stat["rss"]) + num_bytes
    (made / "memory.limit_in_bytes").write_text(str(wanted))
    got = int((made / "memory.limit_in_bytes").read_text())
    return {"anonymous_bytes": int(stat["rss"]), "limit_bytes": got}
