import pathlib
import subprocess
import sys

import numpy as np
import pytest
from benchmarks.gpu import targets
from benchmarks.harness import timing

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_driver_measures_nothing_on_the_emulation(gpu, library_path, tmp_path):
    if not gpu.is_emulated:
        pytest.skip("this library has a GPU, which make gpu measures")
    command = [sys.executable, "-m", "benchmarks.gpu", f"--library={library_path}"]
    done = subprocess.run(
        [*command, f"--output={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "emulated: 23 cells ran; no figures, nothing stored\n"
    assert not list(tmp_path.iterdir())


def cell(micros, **others):
    summary = timing.summary(np.array([micros]))
    return dict.fromkeys(("run", "step", "end_to_end"), summary) | others


def figures():
    """Of a GPU that meets all targets, each by a little."""
    bags = {"torch_fused": cell(100), "torch_embedding_bag_with_forward": cell(1100)}
    forward = cell(109, run_share_of_copy=0.81, launches=11, waits=1, peers=bags)
    cpu = {phase: {"speedup_of_16": 10.5} for phase in ("lookup", "gradient")}
    return {
        "criteo_d128_forward": forward,
        "criteo_d16_forward": forward | {"run_share_of_copy": 0.51},
        "criteo_d16_table_forward": cell(140),
        "criteo_d128_backward": cell(109, peers=bags),
        "criteo_d128_backward_row_wise_adagrad": {"step_share_of_copy": 0.61},
        "unique": cell(49),
        "table_d8_gather": cell(100),
        "table_d8_load50_find": cell(120),
        "table_d8_load100_find": cell(129),
        "table_d8_load50_find_or_insert": cell(149),
        "cpu_W2": cpu,
        "cpu_W4": cpu,
    }


def test_targets_are_met_by_figures_that_meet_them():
    judged = targets.judge(figures())
    assert len(judged) == 16
    assert all(target["is_met"] for target in judged), judged


@pytest.mark.parametrize(
    "name",
    [
        "criteo_d128_forward",
        "criteo_d16_table_forward",
        "unique",
        "table_d8_load100_find",
        "table_d8_load50_find_or_insert",
    ],
)
def test_targets_are_missed_by_a_slower_gpu(name):
    cells = figures()
    slower = cell(500, run_share_of_copy=0.3, launches=30, waits=2)
    judged = targets.judge(cells | {name: cells[name] | slower})
    missed = [target for target in judged if not target["is_met"]]
    assert len(missed) == (5 if name == "criteo_d128_forward" else 1), missed


def test_what_was_not_measured_is_neither_met_nor_missed():
    assert {target["is_met"] for target in targets.judge({})} == {None}
