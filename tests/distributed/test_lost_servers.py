"""A server that is lost while there is no chief: the worker waits for its rows."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from distributed import cluster, lost_servers

pytestmark = pytest.mark.slow


def test_no_step_reads_a_row_that_was_lost(tmp_path):
    output = tmp_path / "kills.json"
    environment = cluster.environment()
    tests = pathlib.Path(__file__).parents[1]
    environment["PYTHONPATH"] += f"{os.pathsep}{tests}"
    command = [sys.executable, "-m", "distributed.lost_servers", "--kills=1"]
    subprocess.run(
        [*command, "--kinds=server_without_chief", f"--output={output}"],
        env=environment,
        check=True,
        timeout=lost_servers.DEADLINE_SECONDS,
    )
    found = json.loads(output.read_text())
    assert found["kinds"] == {"server_without_chief": 1}
    assert found["steps_on_lost_rows"] == 0
    assert found["steps_without_chief"] == 0
    assert found["undone_checkpoints"] == 0
