"""What pyproject.toml cannot say of the distribution: what depends on TensorFlow and on CMake."""

import json
import os
import pathlib
import shutil
import sys

import setuptools
from setuptools import Extension, setup

if int(setuptools.__version__.split(".")[0]) < 77:
    sys.exit(
        f"setuptools {setuptools.__version__} is too old: 77 or newer is required; "
        "run `pip install -U setuptools`"
    )

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
import sbom  # noqa: E402
import wheel_build  # noqa: E402
from find_tensorflow import NotFoundError, TensorFlow, find_tensorflow  # noqa: E402


def _tensorflow() -> TensorFlow | None:
    """The TensorFlow of this build; None: the command is for a source distribution.

    Front ends run `egg_info` before every other command, and `pip` before it knows of TensorFlow.
    """
    if {"egg_info", "sdist"} & set(sys.argv[1:]):
        return None
    try:
        return find_tensorflow()
    except NotFoundError as error:
        sys.exit(f"fused_embedding cannot be built: {error}")


TENSORFLOW = _tensorflow()
# The C++ interface of TensorFlow changes with each minor version, so a wheel fits one of them.
OF_TENSORFLOW = f"=={TENSORFLOW.minor}.*" if TENSORFLOW else ">=2.15,<2.22"
BUILD_BASE = wheel_build.new_folder()


def _switch(name: str, default: str, *others: str) -> str:
    """An environment variable of the build."""
    value = os.environ.get(name, default)
    if value not in (default, *others):
        raise SystemExit(f"{name} is {value!r}; set it to {' or '.join((default, *others))}")
    return value


class CMakeBuild(wheel_build.LibraryBuild):
    """Builds the native library; FE_PREBUILT_DIR is where Bazel has put it already.

    FE_CUDA=ON also builds the one for GPUs, for FE_CUDA_ARCHITECTURES. FE_ROCKSDB=ON wants the one
    for tables on an SSD, OFF leaves it out, and AUTO builds it where librocksdb is found.
    """

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
        wheel_build.run_cmake(pathlib.Path(self.build_temp).resolve(), options, *targets)


class Wheel(wheel_build.Py3Wheel):
    """A wheel that says what the library contains of others."""

    def add_notices(self, metadata: pathlib.Path) -> None:
        """Adds TensorFlow's notices, which cover the headers compiled in, and the list of parts."""
        notices = TENSORFLOW.path / "THIRD_PARTY_NOTICES.txt"
        if notices.exists():
            shutil.copy(notices, metadata / "licenses" / f"TENSORFLOW_{notices.name}")
        library = metadata.parent / "fused_embedding/_ops.so"
        if not library.exists():  # an editable installation has no copy of it
            return
        name, version = self.distribution.get_name(), self.distribution.get_version()
        parts = sbom.of_wheel(name, version, TENSORFLOW.version, library.read_bytes())
        (metadata / "sboms").mkdir()
        text = json.dumps(parts, indent=2) + "\n"
        (metadata / "sboms/fused_embedding.cdx.json").write_text(text)


setup(
    version=wheel_build.version(),
    ext_modules=[Extension("fused_embedding._ops", sources=[])],
    options={"build": {"build_base": BUILD_BASE.name, "build_temp": BUILD_BASE.name}},
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": Wheel},
    extras_require={
        "cpu": [f"tensorflow-cpu{OF_TENSORFLOW}"],
        "cuda": [f"tensorflow[and-cuda]{OF_TENSORFLOW}"],
        "ssd": [f"fused-embedding-ssd=={wheel_build.version()}"],
        "demo": ["matplotlib", "scipy", "tqdm"],
        # 26 needs NumPy 2, which TensorFlow takes from 2.18 on.
        "parquet": ["pyarrow<26"],
        "test": ["hypothesis", "pytest"],
    },
)
