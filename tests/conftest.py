"""What every test shares: hypothesis profiles, the choice of cases, and devices."""

import gc
import logging
from collections.abc import Iterator

import hypothesis
import pytest
import tensorflow as tf
from tensorflow.python.eager.context import global_seed

from case_choice import (
    device,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_ignore_collect,
)
from serving.serving_cases import LIBRARY, Server

__all__ = [
    "device",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_ignore_collect",
]

# "fast" is for CI: the same examples each time. "thorough" has others in each run.
hypothesis.settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True)
hypothesis.settings.register_profile("thorough", max_examples=2000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("fast")


@pytest.fixture(autouse=True)
def seedless() -> Iterator[None]:
    """Takes back what a test left by tf.random.set_seed, which first values of tables depend on."""
    yield
    if global_seed() is not None:
        tf.random.set_seed(None)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Without what TensorFlow logs when objects of earlier tests are collected."""
    caplog.handler.addFilter(_is_of_this_test)
    yield caplog
    caplog.handler.removeFilter(_is_of_this_test)


def _is_of_this_test(record: logging.LogRecord) -> bool:
    return "Object was never used" not in record.getMessage()


@pytest.fixture(autouse=True)
def default_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """The CPU for tests that say so, what TensorFlow chooses for others."""
    if request.node.get_closest_marker("on_cpu") is None:
        yield
        return
    with tf.device("/CPU:0"):
        yield


# The servers that tests of exports share: a process takes seconds to import TensorFlow.


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Of stock TensorFlow."""
    running = Server()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def fused_server() -> Iterator[Server]:
    """With the ops of the package, and nothing else of it."""
    running = Server(LIBRARY)
    yield running
    running.stop()


def pytest_collection_finish() -> None:
    """Exempts what was imported from garbage collection: saves 4 % of the tests' CPU time."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    """Says which TensorFlow is under test."""
    return f"tensorflow {tf.__version__}"
