import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_malformed_inputs_give_an_error_or_a_right_answer():
    path = os.pathsep.join([str(ROOT / "tests"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--calls=100000"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    print(done.stdout[-10000:], done.stderr[-2000:])
    assert done.returncode == 0
    assert "100000 calls" in done.stdout
