"""An Estimator trains and evaluates on a cluster of processes, with messages to its servers."""

import json
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

from distributed import cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(tf, "estimator"), reason=f"TensorFlow {tf.__version__} has no Estimators"
    ),
]
TASKS = {"chief": 1, "worker": 1, "ps": 2}
SECONDS = 300
NUM_STEPS = 200
# Not imported: it needs Estimators.
PROGRAM = pathlib.Path(__file__).with_name("estimator_program.py")


def start(job, index, addresses, folder):
    config = {"cluster": addresses, "task": {"type": job, "index": index}}
    return subprocess.Popen(
        [sys.executable, PROGRAM, folder, str(NUM_STEPS)],
        env={**cluster.environment(), "TF_CONFIG": json.dumps(config)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_train_and_evaluate_on_two_servers(tmp_path):
    ports = [f"localhost:{port}" for port in cluster.free_ports(4)]
    addresses = {"chief": ports[:1], "worker": ports[1:2], "ps": ports[2:]}
    tasks = {
        (job, i): start(job, i, addresses, tmp_path) for job in TASKS for i in range(TASKS[job])
    }
    tasks["evaluator", 0] = start("evaluator", 0, addresses, tmp_path)
    try:
        for job in ("chief", "worker", "evaluator"):
            _, errors = tasks[job, 0].communicate(timeout=SECONDS)
            assert tasks[job, 0].returncode == 0, errors[-3000:]
    finally:
        for process in tasks.values():
            process.kill()
            process.wait()
    found = json.loads((tmp_path / "evaluated.json").read_text())
    assert found["global_step"] >= NUM_STEPS
    assert found["loss"] < 0.2  # log(2) = 0.69 before
    built = [json.loads(path.read_text()) for path in tmp_path.glob("ops-*.json")]
    assert len(built) == 2  # the chief's and the worker's
    for rows in built:
        want = ["EmbeddingVariableRemoteRows"] * 2 + ["FusedEmbeddingResourceRemoteRows"] * 2
        assert sorted(rows) == want
