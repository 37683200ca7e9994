"""Runs a TensorFlow 1 or DeepRec program as it is.

python -m fused_embedding run PROGRAM.py [ARGUMENT ...] runs PROGRAM.py with DeepRec's names
installed and TensorFlow 2 behavior disabled; `import tensorflow` is tensorflow.compat.v1 there.
"""

import builtins
import runpy
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from fused_embedding.compat import deeprec

# Packages that mean what they say by `import tensorflow`, wherever they are installed.
_LIBRARIES = ("fused_embedding", "keras", "tensorflow", "tensorflow_estimator", "tf_keras")


def main(argv: Sequence[str]) -> int:
    """Runs the program `argv[0]` with the arguments `argv[1:]`."""
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if argv else 2
    if not Path(argv[0]).is_file():
        sys.exit(f"there is no program {argv[0]!r}; give the path of a Python file")
    tf.compat.v1.disable_v2_behavior()
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = list(argv), str(Path(argv[0]).resolve().parent)
    try:
        with deeprec.install(), tensorflow_is_v1():
            runpy.run_path(argv[0], run_name="__main__")
    finally:
        sys.argv, sys.path[0] = before
    return 0


@contextmanager
def tensorflow_is_v1() -> Iterator[None]:
    """`import tensorflow` gives tensorflow.compat.v1, but in installed packages.

    `sys.modules` stays as it is: TensorFlow and Keras import tensorflow too, some of it late.
    """
    stock_import = builtins.__import__

    def import_v1(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        module = stock_import(name, globals, locals, fromlist or (), level)
        path = name.split(".")
        if level or path[0] != "tensorflow" or not _is_of_program(globals or {}):
            return module
        return _find(path[1:], module) if fromlist else tf.compat.v1

    builtins.__import__ = import_v1
    try:
        yield
    finally:
        builtins.__import__ = stock_import


def _is_of_program(module: Mapping[str, Any]) -> bool:
    """Whether a module, given by its globals, is neither installed nor part of Python."""
    if str(module.get("__name__", "")).split(".")[0] in _LIBRARIES:
        return False
    file = Path(module.get("__file__") or "")
    is_installed = {"site-packages", "dist-packages"} & set(file.parts)
    return not is_installed and Path(sysconfig.get_path("stdlib")) not in file.parents


def _find(path: Sequence[str], default: types.ModuleType) -> Any:
    """The module `path` of tensorflow.compat.v1, or `default` where it has none."""
    found: Any = tf.compat.v1
    for name in path:
        found = getattr(found, name, None)
    return found if isinstance(found, types.ModuleType) else default
