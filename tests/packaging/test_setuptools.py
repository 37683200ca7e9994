"""tools/find_setuptools.py: the setuptools of a Bazel build. The environments here are made up."""

import importlib.util
import pathlib
import venv

import pytest

import find_setuptools

PIP = """
import json, pathlib, sys
pathlib.Path(sys.argv[sys.argv.index("--target") + 1], "arguments").write_text(json.dumps(sys.argv))
"""


@pytest.fixture
def environment(tmp_path):
    """Makes an environment with these files, and nothing else: not even pip."""

    def make(files):
        folder = tmp_path / "environment"
        venv.create(folder, symlinks=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        for name, content in files.items():
            (packages / name).parent.mkdir(parents=True, exist_ok=True)
            (packages / name).write_text(content)
        return str(folder / "bin/python")

    return make


def test_a_new_one_is_used_as_it_is(environment, tmp_path):
    python = environment({"setuptools/__init__.py": '__version__ = "77.0.3"'})
    assert find_setuptools.find_setuptools(str(tmp_path / "new"), python) == ""


OLD = {"setuptools/__init__.py": '__version__ = "76.1.0"'}


@pytest.mark.parametrize("files", [{}, OLD], ids=["none", "old"])
def test_without_pip_it_is_an_error(environment, tmp_path, files):
    """Environments of Python 3.12 have none; those of 3.11 have 65.5, which is too old."""
    python = environment(files)
    message = (
        f"{python} has no setuptools>=77, and pip could not get one for the build: "
        f".*No module named pip. Run `{python} -m pip install 'setuptools>=77'`"
    )
    with pytest.raises(find_setuptools.NotFoundError, match=message):
        find_setuptools.find_setuptools(str(tmp_path), python)


def test_pythonpath_does_not_count(environment, monkeypatch):
    """The build sets its own."""
    packages = pathlib.Path(importlib.util.find_spec("setuptools").origin).parents[1]
    monkeypatch.setenv("PYTHONPATH", str(packages))
    assert not find_setuptools.packs_wheels(environment({}))


def test_pip_puts_one_where_the_build_wants_it(environment, tmp_path):
    python = environment({"pip/__init__.py": "", "pip/__main__.py": PIP})
    assert find_setuptools.find_setuptools(str(tmp_path), python) == str(tmp_path)
    assert "setuptools>=77" in (tmp_path / "arguments").read_text()


def test_pip_builds_with_the_same_one():
    pyproject = pathlib.Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert f'"{find_setuptools.REQUIRED}"' in pyproject.read_text()
