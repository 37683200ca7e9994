"""Rewrites a .tar.gz so that its bytes depend on the content of its files alone.

    tools/release/reproducible_sdist.py FILE.tar.gz

Files are sorted, belong to nobody, have the modes 644 or 755 and the time SOURCE_DATE_EPOCH.
setuptools writes the times of the build, and the user and the modes of the machine.
"""

import gzip
import io
import os
import pathlib
import sys
import tarfile


def rewrite(path: pathlib.Path, seconds: int) -> None:
    """Rewrites the archive `path`; `seconds` is the time of all files."""
    packed = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            fresh = tarfile.TarInfo(member.name)
            fresh.type, fresh.size, fresh.mtime = member.type, member.size, seconds
            fresh.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(fresh, old.extractfile(member) if member.isfile() else None)
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=seconds) as zipped,
    ):
        zipped.write(packed.getvalue())


if __name__ == "__main__":
    rewrite(pathlib.Path(sys.argv[1]), int(os.environ["SOURCE_DATE_EPOCH"]))
