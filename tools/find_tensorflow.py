"""Finds the one TensorFlow to build against, by path: nothing of it is imported.

setup.py, CMakeLists.txt and Bazel's repository rule all ask here. Prints `PATH;VERSION`.
"""

import os
import pathlib
import re
import site
import sys
import sysconfig
from typing import NamedTuple

LIBRARY = "libtensorflow_framework.so.2"
OLDEST = (2, 15)
REMEDY = (
    f"Install one TensorFlow of 2.15 to 2.21 into the environment of {sys.executable} first "
    "(`pip install tensorflow-cpu`), or set FE_TENSORFLOW_PATH to the folder of an installed one "
    "(.../site-packages/tensorflow). A wheel such as fused-embedding-tf221 needs no build: "
    "`pip install 'fused-embedding-tf221[cpu]'`"
)


class TensorFlow(NamedTuple):
    """An installed TensorFlow."""

    path: pathlib.Path
    version: str  # "2.21.0"

    @property
    def minor(self) -> str:
        """The part of the version that fixes the C++ interface: "2.21"."""
        return ".".join(self.version.split(".")[:2])


class NotFoundError(Exception):
    """There is no TensorFlow to build against, or more than one."""


def site_folders() -> list[pathlib.Path]:
    """Where the environment of this interpreter keeps packages.

    Asked of sysconfig and not of sys.path: pip's build isolation takes site-packages out of
    sys.path, but leaves sys.prefix at the environment that pip installs into.
    """
    folders = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    config = pathlib.Path(sys.prefix, "pyvenv.cfg")
    if sys.prefix == sys.base_prefix:  # not a venv: Debian keeps pip's packages apart
        folders += [*site.getsitepackages(), site.getusersitepackages()]
    elif re.search(r"include-system-site-packages\s*=\s*true", config.read_text()):
        folders += site.getsitepackages([sys.base_prefix])
    return list(dict.fromkeys(pathlib.Path(folder).resolve() for folder in folders))


def version_of(path: pathlib.Path) -> str:
    """Reads the version from the metadata that pip wrote beside the package."""
    names = [p.name for p in path.parent.glob("tensorflow*.dist-info")]
    pattern = r"tensorflow(?:_cpu|_gpu|_intel|_rocm)?-(\d+\.\d+\.\d+)[^-]*\.dist-info"
    versions = {m[1] for m in (re.fullmatch(pattern, name) for name in names) if m}
    if len(versions) != 1:
        raise NotFoundError(
            f"{path.parent} must hold the metadata of one TensorFlow version, but has "
            f"{sorted(versions) or 'none'}. Uninstall all of them and install one"
        )
    return versions.pop()


def find_tensorflow() -> TensorFlow:
    """Returns FE_TENSORFLOW_PATH if it is set, else the only TensorFlow of this environment.

    Raises:
        NotFoundError: If there is none, more than one, or one that is too old; it says what to do.
    """
    chosen = os.environ.get("FE_TENSORFLOW_PATH")
    candidates = [pathlib.Path(chosen)] if chosen else [f / "tensorflow" for f in site_folders()]
    found = [path.resolve() for path in candidates if (path / LIBRARY).is_file()]
    if not found:
        places = ", ".join(map(str, candidates))
        raise NotFoundError(f"no TensorFlow (looked for {LIBRARY} in {places}). {REMEDY}")
    if len(found) > 1:
        places = ", ".join(map(str, found))
        raise NotFoundError(
            f"several TensorFlows: {places}. Set FE_TENSORFLOW_PATH to the one to build against"
        )
    version = version_of(found[0])
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise NotFoundError(f"TensorFlow {version} in {found[0]} is too old. {REMEDY}")
    return TensorFlow(found[0], version)


def main() -> int:
    """Prints `PATH;VERSION`, a CMake list."""
    try:
        tensorflow = find_tensorflow()
    except NotFoundError as error:
        print(f"fused_embedding cannot be built: {error}", file=sys.stderr)
        return 1
    print(tensorflow.path, tensorflow.version, sep=";")
    return 0


if __name__ == "__main__":
    sys.exit(main())
