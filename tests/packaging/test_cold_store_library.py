"""`_cold_store_rocksdb.so`, which is beside `_ops.so` where the build found RocksDB."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tiers import make_table, needs_rocksdb, on_ssd

OPS = pathlib.Path(fe.__file__).with_name("_ops.so")
ROCKSDB = OPS.with_name("_cold_store_rocksdb.so")

needs_tools = pytest.mark.skipif(
    not (shutil.which("objdump") and shutil.which("nm")), reason="needs objdump and nm of binutils"
)


def needed_libraries(library: pathlib.Path) -> set[str]:
    """What `library` names as its own dependencies."""
    headers = subprocess.check_output(["objdump", "--private-headers", library], text=True)
    return set(re.findall(r"NEEDED +(\S+)", headers))


@needs_tools
@needs_rocksdb
def test_only_it_needs_rocksdb():
    assert [name for name in needed_libraries(ROCKSDB) if name.startswith("librocksdb.so")]
    assert not [name for name in needed_libraries(OPS) if "rocksdb" in name]
    everything = subprocess.check_output(["ldd", OPS], text=True)
    assert "libtensorflow_framework" in everything
    assert "rocksdb" not in everything


@needs_tools
@needs_rocksdb
def test_exports_one_function():
    exported = subprocess.check_output(["nm", "-D", "--defined-only", ROCKSDB], text=True)
    functions = [line.split()[-1] for line in exported.splitlines() if " T " in line]
    assert [re.fullmatch(r"fused_embedding_open_cold_store_\d+", name) for name in functions]
    assert len(functions) == 1


@needs_tools
def test_the_package_loads_it_by_the_oldest_symbols():
    """Those of libdl moved in glibc 2.34, which binds a library that is not told otherwise."""
    needed = subprocess.check_output(["nm", "-D", "--undefined-only", OPS], text=True)
    versions = dict(re.findall(r"U (dl\w+)@(\S+)$", needed, re.MULTILINE))
    assert versions.keys() >= {"dladdr", "dlerror", "dlopen", "dlsym"}
    assert set(versions.values()) == {"GLIBC_2.2.5"}


# Asks for a tier, and for a checkpoint of a table that had one, prints the errors, and does
# everything else.
ASKS_FOR_A_TIER = """
import sys

import tensorflow as tf
import fused_embedding as fe

storage = fe.StorageOption(fe.StorageType.DRAM_SSD, "ssd")
try:
    fe.get_embedding_variable(
        "on_ssd", 2, ev_option=fe.EmbeddingVariableOption(storage_option=storage)
    )
except tf.errors.UnimplementedError as error:
    print(fe.__file__, error.message)
table = fe.get_embedding_variable("in_dram", 2, initializer=tf.ones_initializer())
assert tf.nn.embedding_lookup(table, [5]).numpy().tolist() == [[1.0, 1.0]]
for path in sys.argv[1:]:
    try:
        tf.train.Checkpoint(table=table).restore(path)
    except tf.errors.UnimplementedError as error:
        print(error.message)
    assert table.export().keys.numpy().tolist() == [5]
"""


def run_beside(folder, rocksdb, *checkpoints):
    """Runs the program with a package whose `_cold_store_rocksdb.so` has these bytes, or is not."""
    package = folder / "package/fused_embedding"
    package.mkdir(parents=True)
    for path in OPS.parent.iterdir():
        if path.name not in (ROCKSDB.name, "__pycache__"):
            (package / path.name).symlink_to(path)
    if rocksdb is not None:
        (package / ROCKSDB.name).write_bytes(rocksdb)
    return subprocess.run(
        [sys.executable, "-c", ASKS_FOR_A_TIER, *checkpoints],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_package_without_it_says_what_to_install(tmp_path):
    run = run_beside(tmp_path, None)
    assert run.returncode == 0, run.stderr
    library = tmp_path / "package/fused_embedding/_cold_store_rocksdb.so"
    assert re.search(
        rf"needs {library}, which is not there: .* built without RocksDB; install librocksdb-dev",
        run.stdout,
    )


@needs_tools
@needs_rocksdb
@pytest.mark.slow
def test_a_machine_without_rocksdb_says_what_to_install(tmp_path):
    (name,) = (name for name in needed_libraries(ROCKSDB) if "rocksdb" in name)
    other = re.sub(r"\d", "x", name)
    table = make_table("in_dram", 2, 1, on_ssd(tmp_path / "tier"))
    path = tf.train.Checkpoint(table=table).write(str(tmp_path / "saved"))
    library = ROCKSDB.read_bytes().replace(name.encode(), other.encode())
    run = run_beside(tmp_path, library, path)
    assert run.returncode == 0, run.stderr
    assert re.search(rf"cold store {path}\.data-e\S+ needs RocksDB, but: {other}", run.stdout)
    assert re.search(
        rf"needs RocksDB, but: {other}: cannot open .*; install the librocksdb that it names "
        r"\(Debian 12: apt-get install librocksdb7.8\)",
        run.stdout,
    )
