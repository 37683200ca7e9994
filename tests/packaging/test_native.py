import importlib.util
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import types

import pytest
import tensorflow as tf

import fused_embedding
from fused_embedding.ops import library

PACKAGE = pathlib.Path(fused_embedding.__file__).parent
# Of the CPU seconds that TensorFlow's own import takes in the same process: machines and their load
# differ by more than a factor of 2. It is 0.10 to 0.13 today.
MAX_IMPORT_SHARE = 0.2
NUM_IMPORTS = 3
TIME_IMPORT = """
import time
start = time.process_time()
import tensorflow
between = time.process_time()
import fused_embedding
print((time.process_time() - between) / (between - start))
"""


def load_native(folder: pathlib.Path) -> types.ModuleType:
    """Executes a copy of ops/library.py whose package is `folder`."""
    (folder / "ops").mkdir()
    path = shutil.copy(library.__file__, folder / "ops")
    spec = importlib.util.spec_from_file_location("native_under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def built_for(monkeypatch):
    """Pretends that the library was built for a version; None: that it was not built."""

    def pretend(version: str | None) -> None:
        info = None
        if version is not None:
            info = types.ModuleType("fused_embedding._build_info")
            info.TENSORFLOW_VERSION = version
        monkeypatch.setitem(sys.modules, "fused_embedding._build_info", info)

    return pretend


def test_build_info_names_the_running_tensorflow():
    info = importlib.import_module("fused_embedding._build_info")
    assert info.TENSORFLOW_VERSION == tf.version.VERSION


@pytest.mark.parametrize("version", [tf.__version__, None])
def test_missing_library_says_how_to_build(tmp_path, built_for, version):
    built_for(version)
    with pytest.raises(ImportError, match=r"_ops.so has not been built; .*`pip install .`"):
        load_native(tmp_path)


def test_other_minor_version_says_what_to_do(tmp_path, built_for):
    built_for("2.3.4")
    (tmp_path / "_ops.so").touch()
    running = re.escape(tf.__version__)
    with pytest.raises(
        ImportError,
        match=rf"built for TensorFlow 2\.3, but TensorFlow {running} is running.*"
        r'For this TensorFlow: `pip .*`pip install "tensorflow-cpu==2\.3\.\*"`',
    ):
        load_native(tmp_path)


def test_other_patch_version_loads(tmp_path, built_for, monkeypatch):
    # Not for real: a second library would register every kernel once more in this process.
    loaded = []
    monkeypatch.setattr(tf, "load_op_library", loaded.append)
    built_for(f"{'.'.join(tf.__version__.split('.')[:2])}.99")
    (tmp_path / "_ops.so").touch()
    load_native(tmp_path)
    assert loaded == [str(tmp_path / "_ops.so")]


@pytest.mark.slow
def test_import_is_quick_beyond_tensorflow():
    command = [sys.executable, "-c", TIME_IMPORT]
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    shares = [float(subprocess.check_output(command, env=env)) for _ in range(NUM_IMPORTS)]
    assert statistics.median(shares) < MAX_IMPORT_SHARE, f"shares of the imports: {shares}"
