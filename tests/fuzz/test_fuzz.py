import pathlib

import pytest

import fused_embedding as fe
import processes
from emulated_gpu import emulated_gpu
from fuzz import cases

ROOT = pathlib.Path(__file__).parents[2]


CALLS = 20_000
CALLS_PER_TEST = 10_000  # so that they run side by side


def test_every_op_is_called():
    """But for two: one takes references to variables, which eager calls do not have, one a GPU."""
    missing = set(fe.raw_ops.__all__) - {op.name for op in cases.OPS}
    assert missing == {"FusedEmbeddingSparseApply", "EmbeddingVariableGpuHandle"}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["/CPU:0", pytest.param("/GPU:0", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("first", range(0, CALLS, CALLS_PER_TEST))
def test_malformed_inputs_give_an_error_or_a_right_answer(first, device):
    calls = (f"--first={first}", f"--calls={first + CALLS_PER_TEST}", f"--device={device}")
    done = processes.run_module("fuzz", *calls, cwd=ROOT / "tests")
    print(done.stdout[-10000:], done.stderr[-2000:])
    assert done.returncode == 0
    assert f"{CALLS_PER_TEST} calls" in done.stdout


@pytest.mark.slow
def test_malformed_inputs_to_tables_in_hbm():
    with emulated_gpu():  # skips where there is none
        done = processes.run_module("fuzz", "--in_hbm", "--calls=2000", cwd=ROOT / "tests")
    print(done.stdout[-10000:], done.stderr[-2000:])
    assert done.returncode == 0
    assert "2000 calls" in done.stdout
