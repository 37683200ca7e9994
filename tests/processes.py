"""Programs in fresh processes that find TensorFlow imported, which takes 4 CPU seconds otherwise.

The processes are forks of one that has imported the package and done nothing with it: no thread of
TensorFlow's runs in it yet.
"""

import multiprocessing
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["fused_embedding"])


def _run(module: str, arguments: list[str], cwd: str, outputs: list[str]) -> None:
    """Becomes `python -m module arguments`, in the child."""
    os.chdir(cwd)
    for descriptor, path in enumerate(outputs, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.path.insert(0, cwd)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_module(module: str, *arguments: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs `python -m module arguments` in the folder `cwd`, and returns what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"{folder}/stdout", f"{folder}/stderr"]
        child = _CONTEXT.Process(target=_run, args=(module, list(arguments), str(cwd), outputs))
        child.start()
        child.join()
        printed = [pathlib.Path(path).read_text() for path in outputs]
    return subprocess.CompletedProcess([module, *arguments], child.exitcode, *printed)
