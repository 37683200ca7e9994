"""A server that is lost while there is no chief: the worker waits for its rows."""

import json

import pytest

import processes

pytestmark = pytest.mark.slow


def test_no_step_reads_a_row_that_was_lost(tmp_path):
    output = tmp_path / "kills.json"
    flags = ["--kills=1", "--kinds=server_without_chief", f"--output={output}"]
    processes.output_of(processes.run_module("distributed.lost_servers", *flags))
    found = json.loads(output.read_text())
    assert found["kinds"] == {"server_without_chief": 1}
    assert found["steps_on_lost_rows"] == 0
    assert found["steps_without_chief"] == 0
    assert found["undone_checkpoints"] == 0
