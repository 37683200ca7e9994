"""The console script `fused-embedding`; `python -m fused_embedding` is the same.

A module of its own beside the package: importing anything from `fused_embedding` loads TensorFlow,
which takes seconds, and help or a mistyped command should not wait for it.
"""

import importlib
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple


class _Command(NamedTuple):
    """A command.

    Attributes:
        module: Has `main(argv) -> exit status`; it is imported when the command is run.
        arguments: What follows the command, for the usage line.
        summary: What it does.
        has_flags: Whether its arguments are absl flags; else they are another program's.
    """

    module: str
    arguments: str
    summary: str
    has_flags: bool = True


_COMMANDS = {
    "demo": _Command(
        "fused_embedding.demo.main",
        "[--data=PATH]",
        "train a model with stock and with fused embeddings",
    ),
    "run": _Command(
        "fused_embedding.compat.run",
        "PROGRAM.py [ARGUMENT ...]",
        "run a TensorFlow 1 or DeepRec program as it is",
        has_flags=False,
    ),
    "convert": _Command(
        "fused_embedding.convert.main",
        "SOURCE DESTINATION [--to=FORMAT]",
        "convert checkpoints: docs/migration/",
    ),
    "inspect": _Command(
        "fused_embedding.inspection.inspect_command",
        "CHECKPOINT [--report=FILE.png|FILE.html]",
        "list what the tables of a checkpoint hold, and check every byte of them",
    ),
    "doctor": _Command(
        "fused_embedding_doctor",
        "[--json]",
        "say what this installation has and lacks, and what to do",
        has_flags=False,
    ),
    "advise": _Command(
        "fused_embedding.inspection.advise_command",
        "IDS|CHECKPOINT [--plot=FILE.png]",
        "list what filters and bounds would cost and keep",
    ),
    "calibrate": _Command(
        "fused_embedding.inspection.calibrate_command",
        "COSTS.json [--seconds=S]",
        "measure what plans of tables on servers are made with",
    ),
    "plan": _Command(
        "fused_embedding.inspection.plan_command",
        "MODEL.json [--costs=COSTS.json] [--output=PLAN.json]",
        "plan on which servers the tables of a model are: docs/planner.md",
    ),
}
_USAGE = "usage: fused-embedding COMMAND [ARGUMENT ...]"


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command named by `argv[1]` with the remaining arguments, and exits.

    Args:
        argv: Program and arguments; None: those of the process.
    """
    argv = sys.argv if argv is None else argv
    name = argv[1] if len(argv) > 1 else None
    if name in (None, "-h", "--help", "help"):
        print(_help())
        sys.exit(0 if name else 2)
    if name == "--version":
        print(f"fused_embedding {_version()}")
        sys.exit(0)
    if name not in _COMMANDS:
        sys.exit(
            f"unknown command {name!r}; the commands are: {', '.join(_COMMANDS)}\n{_USAGE}\n"
            "fused-embedding --help says what each does"
        )
    sys.exit(_run(name, argv[2:]))


def is_for_doctor() -> bool:
    """Whether this process is `python -m fused_embedding doctor`, and its module is looked for.

    Python imports the package before the package's `__main__`, and the doctor has to run where the
    package cannot be imported. The console script needs no such question.
    """
    if sys.argv[:2] != ["-m", "doctor"]:
        return False
    before = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    return before[-1:] in (["fused_embedding"], ["-mfused_embedding"])


def _run(name: str, arguments: Sequence[str]) -> int:
    command = _COMMANDS[name]
    module = importlib.import_module(command.module)
    if not command.has_flags:
        return module.main(arguments)
    from absl import app, flags  # not before it is needed: see the module's docstring

    # absl's --help lists the flags of the main module, and prints its docstring.
    flags.disclaim_key_flags()
    flags.adopt_module_key_flags(module)
    sys.modules["__main__"].__doc__ = f"{_usage_of(name)}\n\n{command.summary}"
    app.run(module.main, argv=[f"fused-embedding {name}", *arguments])
    return 0  # not reached: absl exits


def _usage_of(name: str) -> str:
    return f"usage: fused-embedding {name} {_COMMANDS[name].arguments}"


def _help() -> str:
    width = max(len(name) for name in _COMMANDS)
    lines = [f"  {name.ljust(width)}  {one.summary}" for name, one in _COMMANDS.items()]
    usages = [f"  {_usage_of(name).removeprefix('usage: ')}" for name in _COMMANDS]
    return "\n".join(
        [
            *(_USAGE, "", "Programs of fused_embedding, sparse embeddings for TensorFlow.", ""),
            *(f"commands: {', '.join(_COMMANDS)}", *lines, ""),
            *usages,
            "  fused-embedding COMMAND --help lists a command's options",
            "  fused-embedding --version",
        ]
    )


def _version() -> str:
    """What is installed: "0.2.0 for TensorFlow 2.21"."""
    package = pathlib.Path(__file__).with_name("fused_embedding")
    source = (package / "__init__.py").read_text()
    version = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    build_info = package / "_build_info.py"
    if not build_info.exists():
        return f"{version[0]} (its ops are not built)"
    tensorflow = re.findall(r'^TENSORFLOW_VERSION = "(\d+\.\d+)', build_info.read_text(), re.M)
    return f"{version[0]} for TensorFlow {tensorflow[0]}"
