"""The console script: what it answers before TensorFlow is imported."""

import json
import pathlib
import subprocess
import sys

import pytest

import fused_embedding
import fused_embedding_cli

PYTHON = pathlib.Path(fused_embedding_cli.__file__).parent
# As the script that pip makes, and then what it took.
SCRIPT = """
import json, sys, time
from fused_embedding_cli import main
try:
    main()
finally:
    print(json.dumps([time.process_time(), "tensorflow" in sys.modules, "absl" in sys.modules]))
"""


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--help"], 0, "fused-embedding convert SOURCE DESTINATION [--to=FORMAT]"),
        (["--version"], 0, f"fused_embedding {fused_embedding.__version__} for TensorFlow 2."),
        (["trian"], 1, "unknown command 'trian'; the commands are: demo, run, convert"),
        ([], 2, "usage: fused-embedding COMMAND"),
    ],
)
def test_answers_without_tensorflow(arguments, status, message):
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={"PYTHONPATH": str(PYTHON)},
        capture_output=True,
        text=True,
        check=False,
    )
    *output, took = result.stdout.splitlines()
    assert result.returncode == status, result.stderr
    assert message in "\n".join([*output, result.stderr])
    seconds, has_tensorflow, has_absl = json.loads(took)
    assert (has_tensorflow, has_absl) == (False, False)
    assert seconds < 2  # TensorFlow alone takes longer


def test_every_command_is_a_module():
    for command in fused_embedding_cli._COMMANDS.values():
        path = PYTHON.joinpath(*command.module.split(".")).with_suffix(".py")
        assert "def main(argv: Sequence[str]) -> int:" in path.read_text()
