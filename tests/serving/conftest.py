"""The servers that tests of exports share: a process takes seconds to import TensorFlow."""

import pytest

from serving.serving_cases import LIBRARY, Server


@pytest.fixture(scope="session")
def server():
    """Of stock TensorFlow."""
    running = Server()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def fused_server():
    """With the ops of the package, and nothing else of it."""
    running = Server(LIBRARY)
    yield running
    running.stop()
