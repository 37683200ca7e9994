"""Metadata of the wheel, and the step that runs CMake for `_ops.so`."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    sys.exit("setuptools is too old: 70.1 or newer is required; run `pip install -U setuptools`")

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
from find_tensorflow import NotFoundError, find_tensorflow  # noqa: E402

try:
    TENSORFLOW = find_tensorflow()
except NotFoundError as error:
    sys.exit(f"fused_embedding cannot be built: {error}")
VERSION = re.search(
    r'^__version__ = "(.+)"$', (ROOT / "python/fused_embedding/__init__.py").read_text(), re.M
)[1]
# A new folder for each build: nothing of an earlier one, or of another environment, leaks in. It is
# as deep in the repository as build/dev: ccache tells compilations with other relative paths apart.
(ROOT / "build").mkdir(exist_ok=True)
BUILD_BASE = tempfile.TemporaryDirectory(prefix="wheel-", dir=ROOT / "build")


def _switch(name: str, default: str, *others: str) -> str:
    """An environment variable of the build."""
    value = os.environ.get(name, default)
    if value not in (default, *others):
        raise SystemExit(f"{name} is {value!r}; set it to {' or '.join((default, *others))}")
    return value


class CMakeBuild(build_ext):
    """Builds the native library; FE_PREBUILT_DIR is where Bazel has put it already.

    FE_CUDA=ON also builds the one for GPUs, for FE_CUDA_ARCHITECTURES. FE_ROCKSDB=ON wants the one
    for tables on an SSD, OFF leaves it out, and AUTO builds it where librocksdb is found.
    """

    def get_ext_filename(self, fullname: str) -> str:
        """The library has no Python ABI in its name: it never calls Python."""
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext: Extension) -> None:
        """Puts `_ops.so`, `_build_info.py` and other libraries beside the Python files."""
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve().parent
        target.mkdir(parents=True, exist_ok=True)
        prebuilt = os.environ.get("FE_PREBUILT_DIR")
        if prebuilt:
            rocksdb = pathlib.Path(prebuilt, "_cold_store_rocksdb.so")
            for name in (
                "_ops.so",
                "_build_info.py",
                *([rocksdb.name] if rocksdb.exists() else []),
            ):
                shutil.copy(pathlib.Path(prebuilt, name), target / name)
            return
        build = pathlib.Path(self.build_temp).resolve()
        options = {
            "Python_EXECUTABLE": sys.executable,
            "FE_TENSORFLOW_PATH": TENSORFLOW.path,
            "FE_OUTPUT_DIR": target,
        }
        targets = ["ops"]
        options["FE_CUDA"] = _switch("FE_CUDA", "OFF", "ON")
        options["FE_ROCKSDB"] = _switch("FE_ROCKSDB", "AUTO", "ON", "OFF")
        if options["FE_CUDA"] == "ON":
            options["FE_CUDA_ARCHITECTURES"] = os.environ.get("FE_CUDA_ARCHITECTURES", "")
            targets.append("ops_cuda")
        configure = ["cmake", "-S", ROOT, "-B", build, "-G", "Ninja"]
        subprocess.run([*configure, *(f"-D{k}={v}" for k, v in options.items())], check=True)
        subprocess.run(["cmake", "--build", build, "--target", *targets], check=True)


class Py3Wheel(bdist_wheel):
    """Tags the wheel py3-none-PLATFORM: any Python 3, one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Replaces the tag of the building Python."""
        return "py3", "none", super().get_tag()[2]


setup(
    name="fused_embedding",
    # The C++ interface of TensorFlow changes with each minor version, so a wheel fits one of them.
    version=f"{VERSION}+tf{TENSORFLOW.minor}",
    description="Fused sparse embedding lookup and dynamic embedding variables for TensorFlow",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    package_dir={"": "python"},
    packages=find_packages("python"),
    py_modules=["fused_embedding_cli", "fused_embedding_doctor"],
    entry_points={"console_scripts": ["fused-embedding = fused_embedding_cli:main"]},
    package_data={"fused_embedding": ["py.typed"]},
    ext_modules=[Extension("fused_embedding._ops", sources=[])],
    options={"build": {"build_base": BUILD_BASE.name, "build_temp": BUILD_BASE.name}},
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": Py3Wheel},
    # TensorFlow only through an extra: installing never pulls the large CUDA wheel unasked.
    install_requires=["numpy", "absl-py"],
    extras_require={
        "cpu": [f"tensorflow-cpu=={TENSORFLOW.minor}.*"],
        "cuda": [f"tensorflow[and-cuda]=={TENSORFLOW.minor}.*"],
        "demo": ["matplotlib", "scikit-learn", "tqdm"],
        "test": ["hypothesis", "pytest", "scikit-learn"],
    },
)
