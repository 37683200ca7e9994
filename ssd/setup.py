"""Builds `_cold_store_rocksdb.so` into the package's folder, and collects licences."""

import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))
import wheel_build  # noqa: E402

LIBRARY = "fused_embedding/_cold_store_rocksdb.so"
BUILD_BASE = wheel_build.new_folder()


class CMakeBuild(wheel_build.LibraryBuild):
    """Builds the library with CMake; TensorFlow is not asked for."""

    def build_extension(self, ext: Extension) -> None:
        """Puts the library where `_ops.so` of the package looks for it."""
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = pathlib.Path(self.build_temp).resolve()
        options = {"FE_BUILD_OPS": "OFF", "FE_ROCKSDB": "ON", "FE_CUDA": "OFF"}
        wheel_build.run_cmake(folder, options, "cold_store_rocksdb")
        shutil.copy(folder / target.name, target)


class Wheel(wheel_build.Py3Wheel):
    """A wheel with the licences of all libraries that it links to."""

    def add_notices(self, metadata: pathlib.Path) -> None:
        """Adds what Debian's packages of the libraries say of copyright."""
        (metadata / "licenses").mkdir(exist_ok=True)
        shutil.copy(HERE.parent / "LICENSE", metadata / "licenses")
        library = metadata.parent / LIBRARY
        linked = subprocess.run(["ldd", library], capture_output=True, text=True, check=True)
        for path in re.findall(r"=> (/\S+)", linked.stdout):
            for package in _packages_of(pathlib.Path(path).resolve()):
                copyright_file = pathlib.Path("/usr/share/doc", package, "copyright")
                shutil.copy(copyright_file, metadata / "licenses" / f"{package}.copyright")


def _packages_of(path: pathlib.Path) -> list[str]:
    """The Debian packages that have a file; [] on other systems."""
    if not shutil.which("dpkg-query"):
        return []
    # Packages name files as they were before /lib became a link to /usr/lib, or as they are now.
    command = ["dpkg-query", "--search", f"*{str(path).removeprefix('/usr')}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line.partition(":")[0] for line in found.stdout.splitlines()]


setup(
    version=wheel_build.version(),
    ext_modules=[Extension("fused_embedding._cold_store_rocksdb", sources=[])],
    options={"build": {"build_base": BUILD_BASE.name, "build_temp": BUILD_BASE.name}},
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": Wheel},
)
