"""Which cases of the tests run: tests/grids.py and the hooks of tests/case_choice.py."""

import collections
import itertools
import pathlib

import numpy as np
import pytest

import case_choice
import grids

PYPROJECT = pathlib.Path(__file__).resolve().parents[2] / "pyproject.toml"


def combinations(rows, strength):
    return {c for row in rows for c in itertools.combinations(enumerate(row), strength)}


@pytest.mark.parametrize("strength", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(4,), (3, 2), (4, 4, 2), (17, 4, 2), (2, 3, 4, 5)])
def test_every_combination_of_a_grid_is_covered(sizes, strength):
    rows = list(itertools.product(*map(range, sizes)))
    chosen = grids.covering(rows, strength)
    got = combinations([rows[i] for i in chosen], min(strength, len(sizes)))
    assert got == combinations(rows, min(strength, len(sizes)))
    assert chosen == sorted(set(chosen)) == grids.covering(rows, strength)
    # No fewer can do; a greedy choice needs at most half as many again.
    fewest = np.prod(sorted(sizes)[-strength:])
    assert fewest <= len(chosen) <= 1.5 * fewest


def test_combinations_that_a_grid_lacks_are_not_wanted():
    rows = [row for row in itertools.product(range(4), repeat=3) if row[0] != row[1]]
    chosen = [rows[i] for i in grids.covering(rows, 2)]
    assert combinations(chosen, 2) == combinations(rows, 2)
    assert len(chosen) < len(rows) / 2


def test_a_grid_without_cases():
    assert grids.covering([], 2) == []


CASES = """
import pytest

grid = pytest.mark.parametrize

@grid("c", [0, False])
@grid(("b", "twin"), [(1, 1), (True, 2), (1.0, 3)])
@grid("a", [[], [], [], []])
def test_grid(a, b, twin, c):
    pass

@grid("a", range(4))
@grid("b", [0, pytest.param(1, marks=pytest.mark.xfail)])
@grid("c", range(4))
def test_some_may_fail(a, b, c):
    pass

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.one_version
def test_any_version():
    pass

@pytest.mark.kills
def test_kill():
    pass

@pytest.mark.gpu
def test_gpu():
    pass

def test_device(device):
    pass
"""


OTHERS = {"test_slow": 1, "test_any_version": 1, "test_device": 1}


class Recorder:
    """Keeps the names of what a run collects."""

    def pytest_collection_finish(self, session):
        self.names = [item.name for item in session.items]


@pytest.fixture
def collect(tmp_path, monkeypatch):
    """Collects CASES with options of pytest's."""
    (tmp_path / "test_cases.py").write_text(CASES)
    monkeypatch.setattr(case_choice, "missing_for_gpus", lambda: "none here")

    def run(*options):
        recorder = Recorder()
        command = ["-p", "case_choice", "-c", PYPROJECT, "--collect-only", "-q"]
        # The folders above have nothing to collect.
        folder = [f"--rootdir={tmp_path}", f"--confcutdir={tmp_path}", "--import-mode=importlib"]
        # unraisableexception collects the garbage of this process, TensorFlow's too, ten times.
        plugins = ["-p", "no:cacheprovider", "-p", "no:unraisableexception"]
        arguments = [*command, *folder, *plugins, *options, tmp_path]
        assert pytest.main([str(a) for a in arguments], plugins=[recorder]) == 0
        return recorder.names

    return run


@pytest.mark.parametrize(
    ("options", "want"),
    [
        (["--full-grids"], OTHERS | {"test_grid": 24, "test_some_may_fail": 32}),
        (["--grids=pairs"], OTHERS | {"test_grid": 12, "test_some_may_fail": 32}),
        ([], OTHERS | {"test_grid": 4, "test_some_may_fail": 20}),
        (["--grids=values"], OTHERS | {"test_grid": 4, "test_some_may_fail": 20}),
        (["--grids=one"], OTHERS | {"test_grid": 1, "test_some_may_fail": 17}),
        (["--kills"], OTHERS | {"test_kill": 1, "test_grid": 4, "test_some_may_fail": 20}),
        (["-m", "slow"], {"test_slow": 1}),
        (["--skip-one-version", "-k", "any_version or slow"], {"test_slow": 1}),
        (["--folders=ops,another"], {}),
        # Nothing is thinned that is asked for by name.
        (["--grids=values", "-k", "test_grid and a0 and True"], {"test_grid": 2}),
    ],
)
def test_which_cases_run(collect, options, want):
    names = collections.Counter(name.partition("[")[0] for name in collect(*options))
    assert {name: n for name, n in names.items() if name[0] == "t"} == want


def test_what_is_left_out_is_counted_by_reason(collect):
    skips = [name for name in collect("--skip-slow") if name[0] != "t"]
    assert skips == [
        "2 cases need a GPU: none here",  # test_gpu, and test_device on one
        "1 cases kill processes at work: run with --kills",
        "1 cases take over five seconds: run without --skip-slow",
        "32 cases add no value to their tests' grids: run with --full-grids",
    ]


def test_files_outside_of_the_folders_are_counted_and_not_imported(collect, tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/test_inside.py").write_text("def test_inside(): pass")
    (tmp_path / "another").mkdir()
    (tmp_path / "another/test_outside.py").write_text("raise AssertionError('imported')")
    names = collect("--folders=ops,columns")
    assert names == ["test_inside", "2 files are outside of ops,columns: run without --folders"]


@pytest.mark.parametrize("folder", ["ops", "columns"])
def test_parameters_of_kernels_meet_in_pairs(collect, tmp_path, folder):
    (tmp_path / folder).mkdir()
    (tmp_path / "test_cases.py").rename(tmp_path / folder / "test_cases.py")
    names = collections.Counter(name.partition("[")[0] for name in collect())
    assert names["test_grid"] == (12 if folder == "ops" else 4)


def test_with_a_gpu_its_cases_run(collect, monkeypatch):
    monkeypatch.setattr(case_choice, "missing_for_gpus", lambda: None)
    names = collect("--full-grids", "--kills")
    assert "test_gpu" in names
    assert all(name[0] == "t" for name in names)
