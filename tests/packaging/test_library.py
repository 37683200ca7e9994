"""What `_ops.so` asks of the machine that it is loaded on."""

import pathlib
import re
import shutil
import subprocess

import pytest
import tensorflow as tf

import fused_embedding

OPS = pathlib.Path(fused_embedding.__file__).with_name("_ops.so")
TENSORFLOW = pathlib.Path(tf.sysconfig.get_lib())
FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI")

pytestmark = pytest.mark.skipif(
    not (shutil.which("objdump") and shutil.which("nm")), reason="needs objdump and nm of binutils"
)


def needed_versions(library: pathlib.Path, family: str) -> set[tuple[int, ...]]:
    """The symbol versions of `family` that `library` needs of the system's libraries."""
    headers = subprocess.check_output(["objdump", "--private-headers", library], text=True)
    references = headers.partition("Version References:")[2]
    found = re.findall(rf"^ +0x\S+ +0x\S+ +\d+ {family}_([\d.]+)$", references, re.MULTILINE)
    return {tuple(map(int, version.split("."))) for version in found}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["_ops.so", "_ops_cuda.so"])
def test_needs_no_symbol_newer_than_tensorflow(name, family):
    library = OPS.with_name(name)
    if not library.exists():
        pytest.skip("needs _ops_cuda.so: make cuda")
    ours = needed_versions(library, family)
    theirs = set()
    for of_tensorflow in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        theirs |= needed_versions(TENSORFLOW / of_tensorflow, family)
    assert theirs, f"objdump shows no {family} version in TensorFlow's libraries"
    newer = {version for version in ours if version > max(theirs)}
    assert not newer, f"{family}: TensorFlow needs {max(theirs)} at most, {name} needs {newer}"


def test_reads_versions_at_all():
    assert needed_versions(OPS, "GLIBC"), "without any, the test above would show nothing"


def test_exports_nothing():
    """Two libraries with symbols of one name would run each other's code."""
    assert subprocess.check_output(["nm", "-D", "--defined-only", OPS], text=True) == ""


def test_links_nothing_but_tensorflow_and_the_c_library():
    output = subprocess.check_output(["objdump", "--private-headers", OPS], text=True)
    needed = set(re.findall(r"NEEDED +(\S+)", output))
    system = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
    assert needed - system == {"libtensorflow_framework.so.2"}
    assert "RUNPATH" not in output
    assert "RPATH" not in output


def test_runs_its_own_cpp_runtime_alone():
    """TensorFlow 2.15 exports parts of libstdc++: streams made of both copies crash."""
    needed = subprocess.check_output(["nm", "-D", "-C", "--undefined-only", OPS], text=True)
    assert "tensorflow::" in needed
    assert re.findall(r"^ +U (std::.*)$", needed, re.MULTILINE) == []
