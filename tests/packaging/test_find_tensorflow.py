import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

import find_tensorflow

TOOL = pathlib.Path(find_tensorflow.__file__)


def make_tensorflow(site: pathlib.Path, *versions: str, name: str = "tensorflow_cpu"):
    """A folder that looks like site-packages with TensorFlow in it."""
    package = site / "tensorflow"
    package.mkdir(parents=True)
    (package / find_tensorflow.LIBRARY).touch()
    for version in versions:
        (site / f"{name}-{version}.dist-info").mkdir()
    return package


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Two empty site-packages that stand for those of the environment."""
    folders = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(find_tensorflow, "site_folders", lambda: folders)
    monkeypatch.delenv("FE_TENSORFLOW_PATH", raising=False)
    return folders


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow_cpu"])
def test_finds_the_only_one(sites, name):
    package = make_tensorflow(sites[1], "2.21.0", name=name)
    found = find_tensorflow.find_tensorflow()
    assert found == (package.resolve(), "2.21.0")
    assert found.minor == "2.21"


def test_ignores_other_packages_of_the_family(sites):
    make_tensorflow(sites[0], "2.15.1")
    (sites[0] / "tensorflow_estimator-2.15.0.dist-info").mkdir()
    (sites[0] / "tensorflow_io_gcs_filesystem-0.37.1.dist-info").mkdir()
    assert find_tensorflow.find_tensorflow().version == "2.15.1"


def test_none_is_an_error(sites):
    with pytest.raises(
        find_tensorflow.NotFoundError,
        match=r"no TensorFlow \(looked for .*first/tensorflow, .*second/tensorflow\). Install one",
    ):
        find_tensorflow.find_tensorflow()


def test_several_are_an_error(sites):
    for site in sites:
        make_tensorflow(site, "2.21.0")
    with pytest.raises(
        find_tensorflow.NotFoundError,
        match=r"several TensorFlows: .*first.*second.*FE_TENSORFLOW",
    ):
        find_tensorflow.find_tensorflow()


def test_path_chooses_between_several(sites, monkeypatch):
    make_tensorflow(sites[0], "2.21.0")
    package = make_tensorflow(sites[1], "2.15.1")
    monkeypatch.setenv("FE_TENSORFLOW_PATH", str(package))
    assert find_tensorflow.find_tensorflow() == (package.resolve(), "2.15.1")


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        (["2.14.0"], r"TensorFlow 2.14.0 in .* is too old. Install one TensorFlow of 2.15 to 2.21"),
        (["2.15.1", "2.21.0"], r"has \['2.15.1', '2.21.0'\]. Uninstall all of them"),
        ([], "must hold the metadata of one TensorFlow version, but has none"),
    ],
)
def test_unfit_ones_are_an_error(sites, versions, message):
    make_tensorflow(sites[0], *versions)
    with pytest.raises(find_tensorflow.NotFoundError, match=message):
        find_tensorflow.find_tensorflow()


# What pip's build isolation does to the interpreter: the environment's packages leave sys.path.
ISOLATED = """
import runpy, sys
sys.path = [folder for folder in sys.path if "site-packages" not in folder]
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_pip_isolation_does_not_hide_the_environment():
    command = [sys.executable, "-I", "-c", ISOLATED, TOOL]
    got = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    path, version = got.split(";")
    assert pathlib.Path(path, find_tensorflow.LIBRARY).exists()
    assert version == tf.version.VERSION


def test_build_stops_with_the_message():
    run = subprocess.run(
        [sys.executable, TOOL],
        env={**os.environ, "FE_TENSORFLOW_PATH": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0
    assert "cannot be built: no TensorFlow" in run.stderr
    assert "in /nowhere" in run.stderr
