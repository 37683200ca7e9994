"""`fused-embedding doctor`: what it says of healthy and of broken installations and machines."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

import fused_embedding as fe
import fused_embedding_cli
import fused_embedding_doctor as doctor
from fused_embedding.ops import cuda

PACKAGE = pathlib.Path(fe.__file__).parent
GOOD = {"tensorflow": "2.21.0", "imported": "0.2.0", "sums": [5.0, 2.0], "disabled_is_valid": True}


def run(*command, python_path=PACKAGE.parent, **env):
    """Runs a command; the environment has no FE_DISABLE but that of `env`."""
    kept = {k: v for k, v in os.environ.items() if k != "FE_DISABLE"}
    return subprocess.run(
        [sys.executable, *command],
        env={**kept, "PYTHONPATH": str(python_path), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_this_installation_works():
    done = run("-c", "import fused_embedding_cli as c; c.main(['', 'doctor', '--json'])")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["usable"] is True
    states = {check["name"]: check["state"] for check in found["checks"]}
    wanted = {"TensorFlow", "library", "import", "FE_DISABLE", "Keras", "CPU", "cores", "memory"}
    assert states.keys() == wanted | {"huge pages", "GPU", "RocksDB", "demo, plots"}
    assert {states[name] for name in ("TensorFlow", "library", "import", "FE_DISABLE")} == {"OK"}
    texts = {check["name"]: check["found"] for check in found["checks"]}
    assert texts["TensorFlow"].startswith(tf.__version__)
    assert texts["import"].startswith(f"fused_embedding {fe.__version__}; a fused lookup gives")


@pytest.mark.slow
def test_a_library_for_another_tensorflow_is_said_by_the_module_too(tmp_path):
    for name in ("fused_embedding_cli.py", "fused_embedding_doctor.py"):
        shutil.copy(PACKAGE.parent / name, tmp_path)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    package = pathlib.Path(shutil.copytree(PACKAGE, tmp_path / "fused_embedding", ignore=ignored))
    (package / "_build_info.py").write_text('TENSORFLOW_VERSION = "2.3.4"\n')
    (package / "_ops.so").touch()
    done = run("-m", "fused_embedding", "doctor", python_path=tmp_path)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["TensorFlow", "BROKEN"]
    assert "but the library was built for 2.3.4" in lines[0]
    assert '"tensorflow-cpu==2.3.*"' in lines[1]
    assert [line.split()[1] for line in lines if line.startswith(("library", "import"))] == [
        "BROKEN",
        "BROKEN",
    ]
    assert "import fails" not in done.stderr  # the package was not imported in its process
    assert lines[-1] == "fused_embedding cannot work here"


@pytest.mark.parametrize(
    ("argv", "original", "is_for_it"),
    [
        (["-m", "doctor"], ["python", "-m", "fused_embedding", "doctor"], True),
        (["-m", "doctor", "--json"], ["p", "-mfused_embedding", "doctor", "--json"], True),
        (["-m", "inspect"], ["python", "-m", "fused_embedding", "inspect"], False),
        (["-m", "doctor"], ["python", "-m", "other", "doctor"], False),
        (["doctor.py", "doctor"], ["python", "doctor.py", "doctor"], False),
        (["-m"], ["python", "-m", "fused_embedding"], False),
        ([""], ["python"], False),
        ([], [], False),  # an interpreter inside another program
        (["-m", "doctor"], [], False),
    ],
)
def test_the_package_knows_who_imports_it(monkeypatch, argv, original, is_for_it):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", original)
    assert fused_embedding_cli.is_for_doctor() is is_for_it


def test_unusable_arguments(capsys):
    assert doctor.main(["--jsn"]) == 2
    assert "unrecognized arguments" in capsys.readouterr().err
    assert doctor.main(["--help"]) == 0


@pytest.mark.parametrize("state", ["OK", "missing", "slower", "not known", "BROKEN"])
def test_only_what_is_broken_makes_it_unusable(monkeypatch, capsys, state):
    checks = [doctor.Check("a", "OK", "first\nsecond"), doctor.Check("name", state, "b", "c")]
    monkeypatch.setattr(doctor, "examine", lambda: checks)
    assert doctor.main([]) == (state == "BROKEN")
    lines = capsys.readouterr().out.splitlines()
    width = max(len(state), 2)
    assert lines[:2] == [f"a     {'OK':{width}}  first", " " * (width + 8) + "second"]
    assert lines[2:4] == [f"name  {state:{width}}  b", " " * (width + 8) + "to do: c"]
    assert ("cannot" in lines[-1]) == (state == "BROKEN")
    assert doctor.main(["--json"]) == (state == "BROKEN")
    found = json.loads(capsys.readouterr().out)
    assert found["checks"][1] == {"name": "name", "state": state, "found": "b", "to_do": "c"}
    assert found["usable"] == (state != "BROKEN")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a library for 2.21.0, and a system without files."""
    (tmp_path / "_build_info.py").write_text('"""x"""\n\nTENSORFLOW_VERSION = "2.21.0"\n')
    (tmp_path / "_ops.so").touch()
    monkeypatch.setattr(doctor, "PACKAGE", tmp_path)
    monkeypatch.setattr(doctor, "_SYSTEM", tmp_path)
    return tmp_path


def probe(error="", **facts):
    return doctor.Probe(facts, error)


def test_tensorflow(package, monkeypatch):
    assert doctor.tensorflow_check(probe(tensorflow="2.21.3")).state == "OK"
    other = doctor.tensorflow_check(probe(tensorflow="2.2.0"))
    assert (other.state, "built for 2.21.0" in other.found) == ("BROKEN", True)
    fails = doctor.tensorflow_check(probe(error="ImportError: no libz"))
    assert (fails.state, fails.found) == ("BROKEN", "import tensorflow fails: ImportError: no libz")
    monkeypatch.setattr(doctor, "is_there", lambda name: name != "tensorflow")
    absent = doctor.tensorflow_check(probe())
    assert (absent.state, absent.to_do) == ("BROKEN", 'pip install "tensorflow-cpu==2.21.*"')
    (package / "_build_info.py").unlink()
    assert doctor.tensorflow_check(probe()).to_do.endswith(doctor.SUPPORTED)
    assert doctor.tensorflow_check(probe(tensorflow="2.15.1")).state == "OK"


def test_library(package):
    assert doctor.library_check("2.21.9").state == "OK"
    assert doctor.library_check(None).state == "OK"
    assert doctor.library_check("2.2.0").state == "BROKEN"
    (package / "_ops.so").unlink()
    missing = doctor.library_check("2.21.0")
    assert (missing.state, "has not been built" in missing.found) == ("BROKEN", True)
    (package / "_ops.so").touch()
    (package / "_build_info.py").unlink()
    assert doctor.library_check("2.21.0").state == "BROKEN"


@pytest.mark.parametrize(
    ("error", "changed", "words"),
    [
        ("ImportError: x", {"imported": None, "sums": None}, "fails: ImportError: x"),
        ("x", {"tensorflow": None, "imported": None}, "TensorFlow does not import"),
        ("the process was ended by SIGILL", {"sums": None}, "ended by SIGILL"),
        ("", {"sums": [5.0, 3.0]}, "it gave [5.0, 3.0], not [5.0, 2.0]"),
    ],
)
def test_import(error, changed, words):
    facts = {name: value for name, value in (GOOD | changed).items() if value is not None}
    check = doctor.import_check(doctor.Probe(facts, error))
    assert (check.state, words in check.found) == ("BROKEN", True), check
    assert doctor.import_check(doctor.Probe(GOOD, "")).state == "OK"


def test_a_crash_is_told(tmp_path):
    """An interpreter that dies, one that fails, and one that says part of it."""
    python = tmp_path / "python"

    def found(script):
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        return doctor.run_probe(str(python))

    partly = """echo 'DOCTOR {"tensorflow": "2.21.0"}'; echo noise; """
    died = found(partly + "kill -SEGV $$")
    assert died == ({"tensorflow": "2.21.0"}, "the process was ended by SIGSEGV")
    assert found(partly + "echo a >&2; echo 'E: b' >&2; exit 1").error == "E: b"
    assert found("echo a warning >&2") == ({}, "")


def test_switch():
    good = doctor.Probe(GOOD, "")
    assert doctor.switch_check(good, "").state == "OK"
    assert doctor.switch_check(good, "lookup")[1:3] == (
        "slower",
        "lookup: stock TensorFlow does these parts",
    )
    facts = {k: v for k, v in GOOD.items() if k != "disabled_is_valid"}
    wrong = doctor.switch_check(doctor.Probe(facts, "ValueError: 'look'"), "look")
    assert (wrong.state, wrong.found) == ("BROKEN", "ValueError: 'look'")


def test_keras():
    assert doctor.keras_check(probe(keras="2.15.0"), False).state == "OK"
    assert doctor.keras_check(probe(keras="3.15.1"), True).found == "3.15.1 and tf_keras"
    assert doctor.keras_check(probe(keras="3.15.1"), False).state == "missing"
    assert doctor.keras_check(probe(keras_error="No module"), False)[1:3] == (
        "not known",
        "No module",
    )


def test_cpu(package):
    (package / "proc").mkdir()
    assert doctor.cpu_flags() is None
    assert doctor.cpu_check(None).state == "not known"
    (package / "proc/cpuinfo").write_text(
        "model name\t: Some CPU\nflags\t\t: fpu avx2 fma f16c\n\n"
    )
    assert doctor.cpu_flags() == {"fpu", "avx2", "fma", "f16c"}
    assert doctor.cpu_check(doctor.cpu_flags()).found == "Some CPU; the ops use AVX2"
    best = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"}
    assert doctor.cpu_check(best).found.endswith("use AVX-512")
    assert doctor.cpu_check(best - {"avx512vl"}).found.endswith("use AVX2")
    slow = doctor.cpu_check(best - {"fma"})
    assert (slow.state, slow.found[-10:]) == ("slower", "has no fma")


def test_the_features_are_those_that_the_library_asks_for():
    source = pathlib.Path(__file__).parents[2] / "tf_ops/core/base/simd.cc"
    asked = set(re.findall(r'__builtin_cpu_supports\("(\w+)"\)', source.read_text()))
    asked |= {name.lower() for name in re.findall(r"\bbit_(\w+)", source.read_text())}
    assert asked == set(doctor.SIMD_LEVELS["AVX-512"])
    assert {name for name in asked if "512" not in name} == set(doctor.SIMD_LEVELS["AVX2"])


def test_cores(package):
    (package / "sys/fs/cgroup").mkdir(parents=True)
    assert doctor.cpu_quota() is None
    for text, want in (("max 100000\n", None), ("150000 100000\n", 1.5)):
        (package / "sys/fs/cgroup/cpu.max").write_text(text)
        assert doctor.cpu_quota() == want
    assert doctor.cores_check(8, None).state == doctor.cores_check(8, 8.0).state == "OK"
    limited = doctor.cores_check(8, 1.5)
    assert (limited.state, limited.to_do[-3:]) == ("slower", "(1)")
    assert "may use 1.5 at once" in limited.found


def test_memory(package):
    assert doctor.memory_check().state == "not known"
    (package / "proc").mkdir()
    (package / "proc/meminfo").write_text("MemTotal:  8388608 kB\nMemAvailable:  4194304 kB\n")
    assert doctor.memory_check().found == "8.0 GiB, 4.0 GiB of it available"
    (package / "sys/fs/cgroup").mkdir(parents=True)
    (package / "sys/fs/cgroup/memory.max").write_text("1073741824\n")
    assert doctor.memory_check().found.endswith("the container may use 1.0 GiB")


@pytest.mark.parametrize(
    ("modes", "works", "disabled", "state", "words"),
    [
        (None, (True, True), "", "slower", "no transparent huge pages"),
        ("always madvise [never]", (True, True), "", "slower", "off (never)"),
        ("always [madvise] never", (True, True), "", "OK", "mode madvise"),
        ("[always] madvise never", (True, True), "", "OK", "mode always"),
        ("always [madvise] never", (True, False), "", "slower", "MADV_COLLAPSE does not"),
        ("always [madvise] never", (False, False), "", "slower", "refuses madvise"),
        ("always [madvise] never", (True, True), "huge_pages", "slower", "FE_DISABLE"),
    ],
)
def test_huge_pages(package, monkeypatch, modes, works, disabled, state, words):
    if modes:
        path = package / "sys/kernel/mm/transparent_hugepage"
        path.mkdir(parents=True)
        (path / "enabled").write_text(f"{modes}\n")
    monkeypatch.setattr(doctor, "try_huge_pages", lambda: works)
    monkeypatch.setenv("FE_DISABLE", disabled)
    check = doctor.huge_pages_check()
    assert (check.state, words in check.found) == (state, True), check


def test_the_trial_of_huge_pages_agrees_with_the_system():
    modes = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not modes.exists() or "[never]" in modes.read_text():
        pytest.skip("this system has no transparent huge pages")
    version = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    tried = {doctor.try_huge_pages() for _ in range(8)}  # memory lies elsewhere each time
    assert tried == {(True, version >= (6, 1))}


def test_gpu(package):
    assert doctor.gpu_check(probe(), driver=False)[1:] == (
        "missing",
        "no NVIDIA driver; _ops_cuda.so was not built; TensorFlow's CUDA is not known. "
        "The ops run on the CPU",
        "",
    )
    why = probe(is_cuda_build=True, no_gpu_kernels="build it as docs/building.md says")
    check = doctor.gpu_check(why, driver=True)
    assert (check.state, check.to_do) == ("missing", "build it as docs/building.md says")
    (package / "_ops_cuda.so").touch()
    works = doctor.gpu_check(probe(is_cuda_build=True, has_gpu_kernels=True, gpus=2), driver=True)
    assert (works.state, works.found) == (
        "OK",
        "2 GPUs; an NVIDIA driver; _ops_cuda.so is built; TensorFlow has CUDA",
    )


def test_why_there_are_no_gpu_kernels(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda, "_loaded", [])
    monkeypatch.setattr(cuda, "_obstacles", [])
    assert cuda.why_no_kernels() is None
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: {"is_cuda_build": True})
    cuda.load_kernels(tmp_path / "_ops_cuda.so")
    assert "built without CUDA" in cuda.why_no_kernels()
    monkeypatch.setattr(tf.sysconfig, "get_build_info", dict)
    cuda.load_kernels(tmp_path / "_ops_cuda.so")
    assert "this TensorFlow was built without CUDA" in cuda.why_no_kernels()


def test_optional_parts(package):
    assert doctor.rocksdb_check().state == "missing"
    (package / "_cold_store_rocksdb.so").write_text("no library")
    broken = doctor.rocksdb_check()
    assert (broken.state, "does not load" in broken.found) == ("missing", True)
    assert doctor.plots_check([]).state == "OK"
    assert doctor.plots_check(["tqdm"]).found == "not installed: tqdm"
