"""What setup.py and ssd/setup.py share: the version, a folder, CMake, and the tag of the wheels."""

import pathlib
import re
import subprocess
import tempfile
from collections.abc import Mapping

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent.parent
INIT = ROOT / "python/fused_embedding/__init__.py"


def version() -> str:
    """`fe.__version__`, without the import of the package."""
    found = re.search(r'^__version__ = "(.+)"$', INIT.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f'{INIT} must have a line `__version__ = "..."`, and has none')
    return found[1]


def new_folder() -> tempfile.TemporaryDirectory:
    """Makes a folder for one build: nothing of an earlier one, or of another environment, leaks in.

    It is as deep in the repository as build/dev: ccache tells compilations with other relative
    paths apart.
    """
    (ROOT / "build").mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="wheel-", dir=ROOT / "build")


def run_cmake(folder: pathlib.Path, options: Mapping[str, object], *targets: str) -> None:
    """Configures the build in `folder`, and builds `targets`."""
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja"]
    subprocess.run([*configure, *(f"-D{k}={v}" for k, v in options.items())], check=True)
    subprocess.run(["cmake", "--build", folder, "--target", *targets], check=True)


class LibraryBuild(build_ext):
    """Builds a library that Python finds by its path, and does not import."""

    def get_ext_filename(self, fullname: str) -> str:
        """The library has no Python ABI in its name: it never calls Python."""
        return fullname.replace(".", "/") + ".so"


class Py3Wheel(bdist_wheel):
    """Tags the wheel py3-none-PLATFORM: any Python 3, one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Replaces the tag of the building Python."""
        return "py3", "none", super().get_tag()[2]

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        """Adds to the metadata, which is in the folder `wheelfile_base`, before it is packed."""
        super().write_wheelfile(wheelfile_base, *arguments)
        self.add_notices(pathlib.Path(wheelfile_base))

    def add_notices(self, metadata: pathlib.Path) -> None:
        """Adds licences of others, and lists of parts, to the folder `metadata`."""
