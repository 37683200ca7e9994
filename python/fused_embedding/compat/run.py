"""Runs a TensorFlow 1 or DeepRec program as it is.

python -m fused_embedding run PROGRAM.py [ARGUMENT ...] runs PROGRAM.py with DeepRec's names
installed and TensorFlow 2 behavior disabled; `import tensorflow` is tensorflow.compat.v1 there.

python -m fused_embedding run --accelerate PROGRAM.py [ARGUMENT ...] runs any program of stock
TensorFlow as `python PROGRAM.py` does, under fe.accelerate(). At the end it says on standard error
what was replaced and what was left. --accelerate=lazy also replaces optimizers with other numbers.
"""

import ast
import builtins
import importlib.util
import os
import runpy
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from fused_embedding.acceleration.api import accelerate
from fused_embedding.acceleration.switch import Optimizers
from fused_embedding.compat import deeprec, deeprec_absent

_ACCELERATE: dict[str, Optimizers] = {"--accelerate": "equal", "--accelerate=lazy": "lazy"}
_KERAS_SWITCH = "TF_USE_LEGACY_KERAS"
# Packages that mean what they say by `import tensorflow`, wherever they are installed.
_LIBRARIES = ("fused_embedding", "keras", "tensorflow", "tensorflow_estimator", "tf_keras")


def main(argv: Sequence[str]) -> int:
    """Runs the program `argv[0]` with the arguments `argv[1:]`."""
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if argv else 2
    if argv[0] in _ACCELERATE:
        _run_accelerated(argv[1:], _ACCELERATE[argv[0]])
        return 0
    program = _program(argv)
    _run_with_keras_2(program)
    _warn_of_kv_handles(program)
    tf.compat.v1.disable_v2_behavior()
    try:
        with deeprec.install(), tensorflow_is_v1():
            _run(argv)
    except Exception as error:
        _add_advice(error)
        raise
    return 0


def _program(argv: Sequence[str]) -> Path:
    if not argv or not Path(argv[0]).is_file():
        given = repr(argv[0]) if argv else "without a name"
        sys.exit(f"there is no program {given}; give the path of a Python file")
    return Path(argv[0])


def _run(argv: Sequence[str]) -> None:
    """Runs a program with its arguments, as `python` does."""
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = list(argv), str(Path(argv[0]).resolve().parent)
    try:
        runpy.run_path(argv[0], run_name="__main__")
    finally:
        sys.argv, sys.path[0] = before


def _run_accelerated(argv: Sequence[str], optimizers: Optimizers) -> None:
    _program(argv)
    with accelerate(optimizers=optimizers) as acceleration:
        try:
            _run(argv)
        finally:  # a program may end by sys.exit
            print(f"fe.accelerate:\n{acceleration}", file=sys.stderr)


def _add_advice(error: Exception) -> None:
    """Lets the traceback end with what to do, where TensorFlow's message does not say it."""
    advice = deeprec_absent.advice_for(str(error))
    if advice is None:
        return
    if sys.version_info >= (3, 11):
        error.add_note(advice)
    else:
        print(advice, file=sys.stderr)


def _run_with_keras_2(program: Path) -> None:
    """Starts this process anew with TF_USE_LEGACY_KERAS=1, where the program needs it.

    tf.layers and tf.nn.rnn_cell have been parts of Keras 2 alone since TensorFlow 2.16, which
    decides for a Keras before the program runs.
    """
    has_keras_3 = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 16)
    if not has_keras_3 or _KERAS_SWITCH in os.environ or not keras_2_uses(program):
        return
    if importlib.util.find_spec("tf_keras") is None:
        sys.exit(
            f"{program} uses {', '.join(keras_2_uses(program))}, which TensorFlow "
            f"{tf.__version__} has in Keras 2 only; install it: pip install tf_keras"
        )
    os.environ[_KERAS_SWITCH] = "1"
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def keras_2_uses(program: Path) -> list[str]:
    """What a program, or a module beside it that it imports, uses of Keras 2.

    Args:
        program: Its file.

    Returns:
        Names such as "tf.layers", sorted.
    """
    return sorted({name for node in _nodes(program) for name in _keras_2_names(node)})


def _warn_of_kv_handles(program: Path) -> None:
    """Says that no op has DeepRec's name of a table's: looking for it finds nothing, silently."""
    name = deeprec_absent.KV_HANDLE
    if any(isinstance(node, ast.Constant) and node.value == name for node in _nodes(program)):
        print(deeprec_absent.advice_for(name), file=sys.stderr)


def _nodes(program: Path) -> Iterator[ast.AST]:
    """The syntax of a program, and of the modules beside it that it imports."""
    unread, read = [program.resolve()], set()
    while unread:
        file = unread.pop()
        read.add(file)
        try:
            nodes = list(ast.walk(ast.parse(file.read_bytes())))
        except (OSError, SyntaxError, ValueError):
            continue  # running it says what is wrong
        yield from nodes
        beside = {
            program.resolve().parent / Path(*module.split(".")).with_suffix(".py")
            for node in nodes
            for module in _imported(node)
        }
        unread += [path for path in beside if path.is_file() and path not in read]


def _keras_2_names(node: ast.AST) -> list[str]:
    """The name under which `keras_2_uses` lists an expression, if it is one of those."""
    if not isinstance(node, ast.Attribute):
        return []
    owner = getattr(node.value, "attr", getattr(node.value, "id", None))
    names = {"layers": ("tf", "tf1", "tensorflow", "v1"), "rnn_cell": ("nn",)}
    if owner not in names.get(node.attr, ()):
        return []
    return ["tf.layers" if node.attr == "layers" else "tf.nn.rnn_cell"]


def _imported(node: ast.AST) -> list[str]:
    """Names of the modules that a statement may import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


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
