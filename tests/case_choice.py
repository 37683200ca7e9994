"""Hooks of pytest that choose the cases of a run, and the devices that tests run on."""

import collections
import fnmatch
import functools
import pathlib
from collections.abc import Iterator

import pytest
import tensorflow as tf

import grids
from fused_embedding.ops import cuda

# How many values a run combines: none, one of a parameter, or two of two; and what that covers.
STRENGTHS = {"one": 0, "values": 1, "pairs": 2}
COVERED = ("case", "value", "pair of values")
# Whose parameters meet in kernels. Elsewhere most of them choose a way of their own.
PAIRED_FOLDERS = ("ops", "lookup", "table", "core_api")
UNTHINNED_MARKERS = ("skip", "skipif", "xfail")
# How many files `--folders` keeps from being collected.
FILES_OUTSIDE = pytest.StashKey[int]()


@functools.cache
def missing_for_gpus() -> str | None:
    """What this machine or build lacks to run ops on a GPU. Devices are listed once per process."""
    if not tf.config.list_physical_devices("GPU"):
        return "TensorFlow sees no GPU here"
    if not cuda.has_kernels():
        return "the ops have no kernels for GPUs here: make cuda"
    return None


class LeftOut(pytest.Item):
    """A skip that stands for all cases left out for one reason, so that the summary shows them."""

    def __init__(self, *, reason: str, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def runtest(self) -> None:
        """Skips with the reason."""
        pytest.skip(self.reason)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options to leave tests out, visibly."""
    parser.addoption("--skip-slow", action="store_true", help="skip what takes over five seconds")
    parser.addoption(
        "--skip-one-version",
        action="store_true",
        help="skip what CI runs with one version of TensorFlow alone",
    )
    parser.addoption("--kills", action="store_true", help="run what kills processes at work")
    parser.addoption("--folders", help="skip what is not in these folders: ops,checkpoint")
    parser.addoption(
        "--grids",
        choices=("full", *STRENGTHS),
        help="of a test with several parameters run every case (full), cases that cover each pair "
        "of values (pairs, the default for tests of kernels), cases that cover each value (values, "
        "the default for others), or one case (one)",
    )
    parser.addoption(
        "--full-grids", action="store_const", const="full", dest="grids", help="--grids=full"
    )


def parameters(item: pytest.Item) -> dict[str, object]:
    """The values of a case's parameters, by name."""
    return item.callspec.params if hasattr(item, "callspec") else {}


def rows_of(grid: list[pytest.Item]) -> list[tuple[int, ...]]:
    """The cases of one grid, each as the ordinals of its parameters' values.

    Values are told apart by identity: many have no hash, and True, 1 and 1.0 are equal.
    """
    columns = []
    for name in parameters(grid[0]):
        ids = [id(parameters(item)[name]) for item in grid]
        ordinals = {value: i for i, value in enumerate(dict.fromkeys(ids))}
        columns.append(tuple(ordinals[value] for value in ids))
    # Parameters that one decorator sets together are one.
    return list(zip(*dict.fromkeys(columns), strict=True))


def thinned(items: list[pytest.Item], strength: int) -> set[pytest.Item]:
    """The cases that the rest of their grids make redundant at `strength`."""
    cases = collections.defaultdict(list)
    for item in items:
        if parameters(item) and not any(map(item.get_closest_marker, UNTHINNED_MARKERS)):
            cases[item.nodeid.partition("[")[0], tuple(parameters(item))].append(item)
    redundant = set()
    for grid in cases.values():
        kept = set(grids.covering(rows_of(grid), strength))
        redundant |= {item for i, item in enumerate(grid) if i not in kept}
    return redundant


# Its words, how many cases it concerns, and those among the items.
Reason = tuple[str, int, set[pytest.Item]]


def cases_left_out(config: pytest.Config, items: list[pytest.Item]) -> Iterator[Reason]:
    """What this run leaves out, for one reason after another."""
    items = list(items)
    for leave_out in (_on_gpus, _of_other_folders, _kills, _slow, _of_one_version, _redundant):
        for left_out in leave_out(config, items):
            yield left_out
            items = [item for item in items if item not in left_out[2]]


def _on_gpus(_: pytest.Config, items: list[pytest.Item]) -> Iterator[Reason]:
    if missing := missing_for_gpus():
        on_gpus = {item for item in items if item.get_closest_marker("gpu")}
        # The fixture `device` makes no case for a GPU here: each of its cases lacks its twin.
        twins = sum(parameters(item).get("device") == "CPU" for item in items)
        yield f"cases need a GPU: {missing}", len(on_gpus) + twins, on_gpus


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """Keeps files outside of `--folders` from being imported, and counts them."""
    folders = config.getoption("--folders")
    if not folders or not fnmatch.fnmatch(collection_path.name, "test_*.py"):
        return None
    if collection_path.parent.name in folders.split(","):
        return None
    config.stash[FILES_OUTSIDE] = config.stash.get(FILES_OUTSIDE, 0) + 1
    return True


def _of_other_folders(config: pytest.Config, _: list[pytest.Item]) -> Iterator[Reason]:
    if num_files := config.stash.get(FILES_OUTSIDE, 0):
        folders = config.getoption("--folders")
        yield f"files are outside of {folders}: run without --folders", num_files, set()


def _kills(config: pytest.Config, items: list[pytest.Item]) -> Iterator[Reason]:
    if not config.getoption("--kills"):
        kills = {item for item in items if item.get_closest_marker("kills")}
        yield "cases kill processes at work: run with --kills", len(kills), kills


def _slow(config: pytest.Config, items: list[pytest.Item]) -> Iterator[Reason]:
    if config.getoption("--skip-slow"):
        slow = {item for item in items if item.get_closest_marker("slow")}
        yield "cases take over five seconds: run without --skip-slow", len(slow), slow


def _of_one_version(config: pytest.Config, items: list[pytest.Item]) -> Iterator[Reason]:
    if config.getoption("--skip-one-version"):
        others = {item for item in items if item.get_closest_marker("one_version")}
        reason = "cases need no second TensorFlow: run without --skip-one-version"
        yield reason, len(others), others


def _redundant(config: pytest.Config, items: list[pytest.Item]) -> Iterator[Reason]:
    by_strength = collections.defaultdict(list)
    for item in items:
        is_paired = item.path.parent.name in PAIRED_FOLDERS
        grids_of = config.getoption("--grids") or ("pairs" if is_paired else "values")
        if grids_of != "full":
            by_strength[STRENGTHS[grids_of]].append(item)
    for strength, of_strength in by_strength.items():
        redundant = thinned(of_strength, strength)
        reason = f"cases add no {COVERED[strength]} to their tests' grids: run with --full-grids"
        yield reason, len(redundant), redundant


@pytest.hookimpl(trylast=True)  # after -k and -m: the grids of what was asked for are covered
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves cases out, always the same ones, and adds a skip that counts them per reason."""
    skips = []
    for reason, number, cases in cases_left_out(config, items):
        items[:] = [item for item in items if item not in cases]
        config.hook.pytest_deselected(items=list(cases))
        if number:
            name = f"{number} {reason}"
            skips.append(LeftOut.from_parent(session, name=name, reason=name))
    items += skips


ON_GPUS = [] if missing_for_gpus() else [pytest.param("GPU", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module", params=["CPU", *ON_GPUS])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the tests of a module run that uses it: on the CPU, and on a GPU where there is one."""
    with tf.device(f"/{request.param}:0"):
        yield request.param
