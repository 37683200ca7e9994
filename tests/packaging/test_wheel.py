import email.message
import email.parser
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest
import setuptools
import tensorflow as tf

import fused_embedding
import sbom

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = pathlib.Path(fused_embedding.__file__).parent
MINOR = ".".join(tf.__version__.split(".")[:2])
SETUPTOOLS = tuple(map(int, setuptools.__version__.split(".")[:2]))

pytestmark = pytest.mark.skipif(
    SETUPTOOLS < (77, 0), reason=f"needs setuptools 77 in this environment, has {SETUPTOOLS}"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """The wheel that setup.py packs around the library under test, as the Bazel build does."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", folder],
        cwd=ROOT,
        env={**os.environ, "FE_PREBUILT_DIR": str(PACKAGE)},
        check=True,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel) -> email.message.Message:
    """The fields of METADATA."""
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def test_names_and_versions_agree(wheel, metadata):
    version = fused_embedding.__version__
    assert pathlib.Path(wheel.filename).name.startswith(
        f"fused_embedding-{version}-py3-none-linux_"
    )
    assert (metadata["Name"], metadata["Version"]) == ("fused-embedding", version)
    assert "+" not in version  # an index takes no local versions


def test_holds_every_python_file_and_the_library(wheel):
    want = {"fused_embedding/_ops.so", "fused_embedding/py.typed", "fused_embedding_cli.py"}
    want.add("fused_embedding_doctor.py")
    rocksdb = PACKAGE / "_cold_store_rocksdb.so"
    want |= {f"fused_embedding/{rocksdb.name}"} if rocksdb.exists() else set()
    sources = PACKAGE.rglob("*.py")
    want |= {str(path.relative_to(PACKAGE.parent)) for path in sources}
    got = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert got == want


def test_installs_the_console_script(wheel):
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/entry_points.txt"))
    assert "fused-embedding = fused_embedding_cli:main" in wheel.read(name).decode()


def test_never_pulls_tensorflow_unasked(metadata):
    unconditional = [r for r in metadata.get_all("Requires-Dist") if "extra ==" not in r]
    assert not [r for r in unconditional if r.startswith(("tensorflow", "tf", "keras"))]


def test_extras_pin_the_minor_version(metadata):
    requirements = metadata.get_all("Requires-Dist")
    assert f'tensorflow-cpu=={MINOR}.*; extra == "cpu"' in requirements
    assert f'tensorflow[and-cuda]=={MINOR}.*; extra == "cuda"' in requirements
    assert f'fused-embedding-ssd=={fused_embedding.__version__}; extra == "ssd"' in requirements


def in_metadata(wheel, path):
    """The text of one file below `.dist-info`."""
    (name,) = (n for n in wheel.namelist() if n.endswith(f".dist-info/{path}"))
    return wheel.read(name).decode()


def test_carries_licences_and_notices(wheel, metadata):
    assert "Apache License" in in_metadata(wheel, "licenses/LICENSE")
    notice = in_metadata(wheel, "licenses/NOTICE")
    assert "GCC Runtime Library Exception" in notice
    theirs = in_metadata(wheel, "licenses/TENSORFLOW_THIRD_PARTY_NOTICES.txt")
    assert "Eigen" in theirs
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]


def test_lists_what_the_library_contains(wheel):
    bom = json.loads(in_metadata(wheel, "sboms/fused_embedding.cdx.json"))
    assert bom["metadata"]["component"]["version"] == fused_embedding.__version__
    parts = {part["name"]: part for part in bom["components"]}
    assert parts.keys() == {*sbom.HEADERS, "tensorflow", "libstdc++"}
    assert parts["tensorflow"]["version"] == tf.version.VERSION
    library = (PACKAGE / "_ops.so").read_bytes()
    assert parts["libstdc++"]["version"] == sbom.compiler_of(library) != ""


def run_setup(*arguments):
    """Runs setup.py where there is no TensorFlow."""
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *arguments],
        cwd=ROOT,
        env={**os.environ, "FE_TENSORFLOW_PATH": "/nowhere"},
        capture_output=True,
        text=True,
    )


def test_a_source_distribution_needs_no_tensorflow(tmp_path):
    done = run_setup("sdist", "--dist-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    top = f"fused_embedding-{fused_embedding.__version__}"
    with tarfile.open(tmp_path / f"{top}.tar.gz") as archive:
        names = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    folders = ("tf_ops/", "python/", "ssd/", "tests/cuda_emulation/")
    sources = {name for name in tracked if name.startswith(folders)}
    assert sources <= names
    assert {"CMakeLists.txt", "NOTICE", "setup.py", "tools/wheel_build.py"} <= names
    assert not [name for name in names if name.endswith((".so", "_build_info.py"))]


def test_a_wheel_without_tensorflow_is_refused(tmp_path):
    done = run_setup("bdist_wheel", "--dist-dir", str(tmp_path))
    assert done.returncode != 0
    assert "fused_embedding cannot be built: no TensorFlow" in done.stderr
    assert list(tmp_path.iterdir()) == []
