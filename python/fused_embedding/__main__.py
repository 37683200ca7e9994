"""Programs of fused_embedding.

python -m fused_embedding demo [--data PATH] trains a model with stock and with fused embeddings.
python -m fused_embedding run PROGRAM.py [ARGUMENT ...] runs a TensorFlow 1 or DeepRec program.
python -m fused_embedding convert SOURCE DESTINATION converts checkpoints: docs/migration/.
python -m fused_embedding inspect CHECKPOINT says what is in its tables, and checks every byte.
python -m fused_embedding advise IDS|CHECKPOINT says what filters and bounds would cost and keep.
python -m fused_embedding COMMAND --help lists a command's options.
"""

import importlib
import sys
from collections.abc import Sequence

from absl import app, flags

# A command is a module with `main(argv) -> exit status`, imported only when it is asked for.
_COMMANDS = {
    "demo": "fused_embedding.demo.main",
    "run": "fused_embedding.program_runner",
    "convert": "fused_embedding.convert.main",
    "inspect": "fused_embedding.inspection.inspect_command",
    "advise": "fused_embedding.inspection.advise_command",
}
# Those whose arguments are another program's, not flags.
_WITHOUT_FLAGS = ("run",)


def main(argv: Sequence[str]) -> None:
    """Runs the command named by `argv[1]` with the remaining arguments as its flags."""
    command = argv[1] if len(argv) > 1 else None
    if command in (None, "-h", "--help"):
        print(f"{__doc__}\ncommands: {', '.join(_COMMANDS)}")
        sys.exit(0 if command else 2)
    if command not in _COMMANDS:
        sys.exit(f"unknown command {command!r}; the commands are: {', '.join(_COMMANDS)}")
    module = importlib.import_module(_COMMANDS[command])
    if command in _WITHOUT_FLAGS:
        sys.exit(module.main(argv[2:]))
    # Without this, --help would show no flags: absl lists those of the main module only.
    flags.adopt_module_key_flags(module)
    app.run(module.main, argv=[f"{argv[0]} {command}", *argv[2:]])


if __name__ == "__main__":
    main(sys.argv)
