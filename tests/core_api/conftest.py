"""The library under test: core with a GPU where FE_CORE_LIBRARY names it, else the emulation.

These tests need numpy alone: `pytest --confcutdir=tests/core_api tests/core_api` runs them where no
TensorFlow is.
"""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks.gpu import core  # noqa: E402

LIBRARY = os.environ.get("FE_CORE_LIBRARY", str(ROOT / "build/core_tests/core_emulated.so"))


@pytest.fixture(scope="session")
def library_path():
    """Where the library is."""
    if not os.path.exists(LIBRARY):
        pytest.skip(f"{LIBRARY} is not built: make core-tests, or make gpu")
    return LIBRARY


@pytest.fixture(scope="session")
def library(library_path):
    """The library, loaded."""
    return core.load(library_path)


@pytest.fixture(scope="session")
def gpu(library):
    """The GPU, or its emulation."""
    try:
        return core.Machine(library)
    except core.CoreError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cpu(library):
    """Three threads."""
    return core.Machine(library, threads=3)
