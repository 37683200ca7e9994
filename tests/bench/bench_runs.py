"""Runs of benchmark programs of tiny sizes."""

import pathlib
import sys

import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks.report import results  # noqa: E402


def run_module(module, folder, *arguments):
    """The record that a program writes into an empty folder, and the process that ran."""
    arguments = [*arguments, f"--output={folder}"]
    done = processes.run_module(f"benchmarks.{module}", *arguments, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = folder.iterdir()
    return results.load(path), done
