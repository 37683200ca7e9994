"""The commands calibrate and plan."""

import json

import numpy as np
import pytest
import tensorflow as tf
from planner_cases import planner

import fused_embedding as fe
from fused_embedding.inspection import calibration, planned_model
from fused_embedding.inspection.checkpoint_tables import CheckpointError
from processes import run_module, run_program

v1 = tf.compat.v1
MODEL = {
    "topology": {"world_size": 3, "ddr_cap": 10**10, "num_workers": 2},
    "batch_size": 1000,
    "tables": [
        {"name": "users", "num_embeddings": 10**6, "embedding_dim": 16, "alpha": 1.2},
        {"name": "items", "num_embeddings": 5000, "embedding_dim": 8, "pooling_factors": [3]},
    ],
}


def write(folder, model):
    path = folder / "model.json"
    path.write_text(json.dumps(model))
    return str(path)


def test_plan_prints_and_writes(tmp_path):
    planner.Costs(key_seconds=1e-6).save(tmp_path / "costs.json")
    done = run_module(
        "fused_embedding",
        *("plan", write(tmp_path, MODEL), f"--costs={tmp_path}/costs.json"),
        *(f"--output={tmp_path}/plan.json", f"--plan_plot={tmp_path}/plan.png"),
    )
    assert done.returncode == 0, done.stderr
    plan = planner.ShardingPlan.load(tmp_path / "plan.json")
    assert plan.report() in done.stdout
    assert (plan.world_size, list(plan.tables)) == (3, ["users", "items"])
    assert plan.table("users").keys * max(1, len(plan.ranks("users"))) == pytest.approx(
        planner.KeyDistribution.zipf(10**6, 1.2).expected_distinct(1000)
    )
    assert (tmp_path / "plan.png").exists()


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"topology": {"world_size": 1, "ddr_cap": 1000}}, 1, "does not fit"),
        ({"topology": {"world_size": 0}}, 2, "world_size and num_workers must be > 0"),
    ],
)
def test_plan_exits(tmp_path, change, status, message):
    done = run_module("fused_embedding", "plan", write(tmp_path, {**MODEL, **change}))
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": []}, r"has the unknown keys \['table'\] and lacks \[\]"),
        ({"tables": [{"name": "x"}]}, r"lacks \['embedding_dim', 'num_embeddings'\]"),
        ({"tables": [7]}, "must be an object of JSON, got 7"),
        ({"checkpoint": "nowhere"}, "no checkpoint at"),
        ({"rows_rounding": "no"}, "rows_rounding must be"),
    ],
)
def test_plan_refuses(tmp_path, change, message):
    with pytest.raises((ValueError, CheckpointError), match=message):
        planned_model.read_model(write(tmp_path, {**MODEL, **change}))


def distribution_of(folder, model, name="users"):
    made, _ = planned_model.read_model(write(folder, model))
    return made.enumerator.constraints[name].distribution


def test_keys_are_counted_in_a_log(tmp_path):
    ids = np.random.default_rng(0).zipf(1.5, 10_000)
    np.save(tmp_path / "ids.npy", ids)
    table = {"name": "users", "num_embeddings": 10**6, "embedding_dim": 16, "ids": "ids.npy"}
    got = distribution_of(tmp_path, {**MODEL, "tables": [table]})
    assert got.num_keys == len(np.unique(ids))
    assert got.probabilities[0] == pytest.approx(np.mean(ids == 1))


@pytest.mark.parametrize("num_partitions", [1, 3])
def test_keys_are_counted_by_the_tables_of_a_checkpoint(tmp_path, num_partitions):
    with tf.Graph().as_default(), v1.Session() as session:
        partitioner = v1.fixed_size_partitioner(num_partitions) if num_partitions > 1 else None
        table = fe.get_embedding_variable("users", 4, partitioner=partitioner)
        rows = (
            tf.nn.embedding_lookup(table, [1, 1, 1, 2, 3, 3])
            if num_partitions == 1
            else (fe.nn.group_embedding_lookup([table], [tf.constant([1, 1, 1, 2, 3, 3])])[0])
        )
        session.run(rows)
        v1.train.Saver().save(session, str(tmp_path / "model"))
    table = {"name": "users", "num_embeddings": 10**6, "embedding_dim": 4}
    model = {**MODEL, "tables": [table], "checkpoint": "model"}
    got = distribution_of(tmp_path, model)
    assert got.probabilities.tolist() == pytest.approx([3 / 6, 2 / 6, 1 / 6])


def test_costs_are_fitted():
    rng = np.random.default_rng(0)
    factors = rng.uniform(1, 1000, [6, 3])
    true = np.array([1e-6, 3e-9, 2e-3])
    samples = [calibration.Sample(tuple(row), float(row @ true)) for row in factors]
    assert calibration.fitted(samples) == pytest.approx(true)
    below = [calibration.Sample((1.0, x), 1.0 - 0.01 * x) for x in (1.0, 2.0, 3.0)]
    step, each = calibration.fitted(below)
    assert each == 0
    assert 0.97 <= step <= 0.99


SMALL_CALIBRATION = """
import sys
from absl import flags
from fused_embedding.inspection import calibrate_command, calibration
calibration.ROWS = 4000
calibration._TABLE_CASES = tuple((t, min(n, 2000), d) for t, n, d in calibration._TABLE_CASES)
calibration._MIN_STEPS = 3
flags.FLAGS(["calibrate", "--seconds=0.02"])
sys.exit(calibrate_command.main(["calibrate", sys.argv[1]]))
"""


@pytest.mark.slow
def test_calibrate_measures_costs(tmp_path):
    path = tmp_path / "costs.json"
    done = run_program(SMALL_CALIBRATION, path)
    assert done.returncode == 0, done.stderr
    costs = planner.Costs.load(path)
    assert costs.message_seconds > 0
    assert costs.shard_seconds + costs.key_seconds + costs.value_seconds > 0
    assert costs.messages_of_server + costs.messages_of_shard >= 3
    assert json.loads(path.read_text())["tensorflow"] == tf.__version__
    assert "6 tables, 256 keys of each, dim 16" in done.stdout


def test_calibrate_refuses(tmp_path):
    done = run_module("fused_embedding", "calibrate", tmp_path / "no" / "costs.json")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
