"""Which distribution is installed, what is refused, and which commands messages name."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import fused_embedding as fe
import fused_embedding_doctor as doctor
from fused_embedding import distribution, extras

PACKAGE = pathlib.Path(fe.__file__).parent
TF215, TF221 = "fused-embedding-tf215", "fused-embedding-tf221"


def install(site: pathlib.Path, name: str, version: str = "0.2.0", suffix: str = "dist-info"):
    """What pip, or a build, leaves beside a package."""
    folder = site / f"{name.replace('-', '_')}-{version}.{suffix}"
    folder.mkdir(parents=True)
    is_installed = suffix == "dist-info"
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    (folder / ("METADATA" if is_installed else "PKG-INFO")).write_text(metadata)
    if is_installed:
        (folder / "WHEEL").write_text("Wheel-Version: 1.0\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An environment of its own, in which nothing is installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def test_nothing_is_installed_where_the_package_is_used_in_place(site):
    install(site, "fused-embedding", suffix="egg-info")  # `setup.py` leaves one beside the sources
    install(site, "fused-embedding-ssd")  # a part of any of them
    assert distribution.installed() == {}
    assert distribution.refusal() == ""
    assert distribution.command_for_extra("demo") == "pip install matplotlib scipy tqdm"
    assert "librocksdb-dev" in distribution.command_for_extra("ssd")
    assert "fused-embedding`, with `.`" in distribution.command_for_tensorflow("2.21")


@pytest.mark.parametrize("name", ["fused-embedding", TF215, TF221])
def test_one_is_named_by_the_messages(site, name):
    install(site, name)
    assert distribution.installed() == {name: "0.2.0"}
    assert distribution.refusal() == ""
    command = f"pip install '{name}[demo]'"
    assert distribution.command_for_extra("demo") == command
    with pytest.raises(ImportError, match=rf"install the extra 'demo': pip install '{name}\["):
        extras.load("no_such_package")
    assert doctor.plots_check(["tqdm"]).to_do.endswith(command)


def test_another_tensorflow_has_another_wheel(site):
    install(site, TF215)
    want = f"`pip uninstall -y {TF215}`, then `pip install {TF221}`"
    assert distribution.command_for_tensorflow("2.21") == want
    # No wheel is made for it.
    assert "--no-cache-dir fused-embedding`" in distribution.command_for_tensorflow("2.22")


@pytest.mark.parametrize(
    ("tensorflow", "want"),
    [
        ("tensorflow-cpu 2.21.0", TF221),
        ("tensorflow 2.15.1", TF215),
        ("tensorflow 2.22.0", "fused-embedding"),  # no wheel is made for it
        (None, TF221),
    ],
)
def test_two_are_refused_by_name(site, tensorflow, want):
    install(site, TF215)
    install(site, TF221, "0.2.1")
    if tensorflow:
        install(site, *tensorflow.split())
    message = distribution.refusal()
    assert message.startswith(f"{TF215} 0.2.0 and {TF221} 0.2.1 are installed in one environment")
    assert f"`pip uninstall -y {TF215} {TF221}`, then `pip install {want}`" in message


def test_the_wheel_of_the_source_counts(site):
    install(site, "fused-embedding")
    install(site, TF221)
    assert f"`pip uninstall -y fused-embedding {TF221}`" in distribution.refusal()


def test_import_is_refused_before_tensorflow(tmp_path):
    """Modules of two versions would be imported together."""
    shutil.copytree(PACKAGE, tmp_path / "fused_embedding", ignore=shutil.ignore_patterns("*.so"))
    install(tmp_path, TF215)
    install(tmp_path, TF221)
    code = "import sys\ntry:\n import fused_embedding\nexcept ImportError as e: "
    code += "print(e, 'tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    # The name before is there where the package itself is installed.
    assert re.search(rf"`pip uninstall -y (\S+ )?{TF215} {TF221}`", done.stdout), done.stderr
    assert done.stdout.endswith("False\n")
