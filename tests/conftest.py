"""What every test shares: hypothesis profiles and the devices and builds that markers ask for."""

import zlib
from collections.abc import Iterator

import hypothesis
import pytest
import tensorflow as tf

from fused_embedding import _cuda

# "fast" is for CI: the same examples each time. "thorough" has others in each run.
hypothesis.settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True)
hypothesis.settings.register_profile("thorough", max_examples=2000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("fast")

IS_LEFT_OUT = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options to leave tests out, visibly."""
    parser.addoption("--skip-slow", action="store_true", help="skip what takes over five seconds")
    parser.addoption(
        "--one-in", type=int, default=1, metavar="N", help="of a test's cases run about one in N"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves cases out, the same ones each time, but no test as a whole."""
    one_in = config.getoption("--one-in")
    seen = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test in seen and zlib.crc32(item.nodeid.encode()) % one_in:
            item.stash[IS_LEFT_OUT] = True
        seen.add(test)


def pytest_report_header() -> str:
    """Says which TensorFlow is under test."""
    return f"tensorflow {tf.__version__}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips, with the reason, what this machine cannot run, or this run shall not."""
    if item.get_closest_marker("slow") and item.config.getoption("--skip-slow"):
        pytest.skip("takes over five seconds: run without --skip-slow")
    if item.stash.get(IS_LEFT_OUT, False):
        pytest.skip("one of many cases of a test: run without --one-in")
    if item.get_closest_marker("gpu") and not tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees no GPU here")
    if item.get_closest_marker("gpu") and not _cuda.has_kernels():
        pytest.skip("the ops have no kernels for GPUs here: make cuda")


@pytest.fixture(scope="module", params=["CPU", pytest.param("GPU", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the tests of a module run that uses it: on the CPU, then on a GPU."""
    with tf.device(f"/{request.param}:0"):
        yield request.param
