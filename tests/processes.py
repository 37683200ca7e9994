"""Programs in fresh processes that find TensorFlow imported, which takes 4 CPU seconds otherwise.

The processes are forks of one that has imported the package and done nothing with it: no thread of
TensorFlow's runs in it yet. Tests of the import itself, of another package or of variables of the
environment that TensorFlow reads when it is imported start Python themselves.
"""

import multiprocessing
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.process import BaseProcess

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["fused_embedding"])
Completed = subprocess.CompletedProcess[str]
TIMEOUT = 600  # seconds


def run_module(module: str, *arguments: object, cwd: str | pathlib.Path = ".") -> Completed:
    """Runs `python -m module arguments` in the folder `cwd`, and returns what it printed."""
    return _run(_become_module, module, arguments, cwd)


def run_program(source: str, *arguments: object, cwd: str | pathlib.Path = ".") -> Completed:
    """As `python -c source arguments`."""
    return _run(_become_program, source, arguments, cwd)


def start(function: Callable[..., None], *arguments: object) -> BaseProcess:
    """Starts a process that calls a function of a module."""
    process = _CONTEXT.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def output_of(done: Completed) -> str:
    """What a program wrote to its standard output, once it is known to have succeeded."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _run(
    become: Callable[[str], None], what: str, arguments: tuple, cwd: str | pathlib.Path
) -> Completed:
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"{folder}/stdout", f"{folder}/stderr"]
        child = _CONTEXT.Process(target=_in_child, args=(become, what, words, str(cwd), outputs))
        child.start()
        child.join(TIMEOUT)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise TimeoutError(f"{what[:200]!r} took more than {TIMEOUT} s")
        printed = [pathlib.Path(path).read_text() for path in outputs]
    return subprocess.CompletedProcess([what, *words], child.exitcode, *printed)


def _in_child(
    become: Callable[[str], None], what: str, words: list[str], cwd: str, outputs: list[str]
) -> None:
    os.chdir(cwd)
    for descriptor, path in enumerate(outputs, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.path.insert(0, os.getcwd())
    sys.argv[1:] = words
    become(what)


def _become_module(module: str) -> None:
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _become_program(source: str) -> None:
    exec(compile(source, "<program>", "exec"), {"__name__": "__main__"})
