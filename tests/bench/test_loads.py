"""The workloads A to H, the oracle that peers are compared with, and measurements in pairs."""

import dataclasses
import json

import numpy as np
import pytest
from bench_runs import ROOT, run_module
from benchmarks.harness import check, limit, oracle, pairs, steps
from benchmarks.harness.workloads import LOADS, WORKLOADS, Column, ColumnIds, Workload
from benchmarks.peers import torch_peers
from benchmarks.report import dense_reports

import processes

PHASES = ["forward", "sgd", "adagrad"]
MIXED = Workload(
    "mixed", (Column(50, 4), Column(50, 4), Column(40, 8, "mean", (1, 4)), Column(30, 4)), 16, 7
)


# In one process: flags of several programs cannot be defined in that of the tests.
TINY = """
import json, sys
from absl import flags
from benchmarks.harness import run, workloads

flags.FLAGS(sys.argv[:1] + sys.argv[2:])
for name in sys.argv[1].split(","):
    cells = run._measure_workload(workloads.WORKLOADS[name].tiny(), threads=1)
    print(json.dumps([name, cells]))
"""
# Those of D differ in their batch size, which is the same in a tiny size.
NAMES = [name for name in LOADS if name[0] != "D" or name == "D1"]


@pytest.mark.slow
def test_systems_agree_on_each_workload():
    arguments = ["--system=group,group_fused,stock", f"--phase={','.join(PHASES)}"]
    arguments += ["--rounds=1", "--block=1"]
    done = processes.run_program(TINY, ",".join(NAMES), *arguments, cwd=ROOT)
    lines = processes.output_of(done).splitlines()
    measured = dict(json.loads(line) for line in lines if line.startswith("["))
    assert list(measured) == NAMES
    for name, cells in measured.items():
        assert [cell["phase"] for cell in cells] == PHASES
        has_limit = WORKLOADS[name].dtype == "float32" and limit.SOURCE.exists()
        for cell in cells:
            ours = cell["systems"][dense_reports.OURS[cell["phase"]]]
            assert list(ours["speedup_over"])[-2:] == ["stock", "itself"]
            assert ("x_limit" in ours) == has_limit


@pytest.mark.parametrize("name", ["A", "B", "F1"])
def test_the_oracle_agrees_with_stock(name):
    workload = WORKLOADS[name].tiny()
    batch = workload.batches()[0]
    runner = steps.SessionRunner(workload, ["forward", "gradient"], ["stock"], 1)
    of_batch = oracle.Oracle(workload, batch)
    combined, gradients = runner.values("stock", "gradient")
    want = of_batch.combined(runner.read_rows("stock"))
    oracle.assert_close(of_batch.split(combined), want, "float32", "combined")
    touched = [column.touched() for column in batch.columns]
    got = [check._sum_by_id(*pair) for pair in zip(gradients, touched, strict=True)]
    want = of_batch.gradients(runner.program._top_grad)
    oracle.assert_close(got, want, "float32", "gradient")
    want[0] = want[0] * 1.001
    with pytest.raises(AssertionError, match="gradient of column 0"):
        oracle.assert_close(got, want, "float32", "gradient")
    runner.close()


def test_the_oracle_knows_the_optimizers():
    gradients = [np.array([[2.0, -3.0]])]
    [got] = oracle.change(gradients, "sgd", steps=2, rate=0.1, epsilon=1e-8)
    np.testing.assert_allclose(got, [[-0.4, 0.6]])
    [got] = oracle.change(gradients, "adagrad", steps=2, rate=0.1, epsilon=1.0)
    want = -0.2 / 3 - 0.2 / (8**0.5 + 1)
    np.testing.assert_allclose(got, [[want, 0.3 / 4 + 0.3 / (18**0.5 + 1)]])


def test_the_limit_of_columns_of_several_kinds_is_their_lookup():
    loop = limit.compile_loop()
    if loop is None:
        pytest.skip(f"{limit.SOURCE} is not there: the limit loop lies outside the repository")
    bound = limit.Limit(loop, MIXED, threads=1, with_slots=True)
    bound.steps("forward")["limit"](1)
    rows = []
    for column, ids in zip(MIXED.columns, MIXED.batches()[1].columns, strict=True):
        table = (1e-3 * (np.arange(column.rows * column.dim) % 1024) + 1e-3).reshape(-1, column.dim)
        rows.append(table[ids.touched()])
    of_batch = oracle.Oracle(MIXED, MIXED.batches()[1])
    got = of_batch.split(bound.combined)
    oracle.assert_close(got, of_batch.combined(rows), "float32", "combined rows")
    for step in bound.steps("adagrad").values():
        step(0)


@pytest.mark.parametrize("name", ["A", "C", "F24", "H_float16", "H_bfloat16", "W2"])
def test_what_peers_compute_agrees_with_the_oracle(name):
    pytest.importorskip("torch")
    pytest.importorskip("fbgemm_gpu")
    workload = WORKLOADS[name].tiny()
    names = torch_peers.able(list(torch_peers.NAMES), workload)
    peers = torch_peers.TorchPeers(workload, names, threads=1)
    for phase in PHASES:
        is_right = name != "H_bfloat16" or phase == "forward"
        assert list(peers.steps(phase)) == (names if is_right else [])


def test_a_peer_that_does_not_train_is_noticed(monkeypatch):
    pytest.importorskip("torch")
    peers = torch_peers.TorchPeers(MIXED, ["torch_embedding_bag"], threads=1)
    peer = peers._embedding_bag("sgd")
    lazy = dataclasses.replace(peer, train=lambda backward: None)
    with pytest.raises(AssertionError, match="lazy: change of rows by two steps of sgd of column"):
        peers._check("lazy", "sgd", lazy)


def test_peers_are_given_what_they_take():
    names = list(torch_peers.NAMES)
    assert torch_peers.able(names, WORKLOADS["W1"]) == ["torch_embedding_bag", "fbgemm_tbe"]
    assert torch_peers.able(names, WORKLOADS["W2"]) == names
    assert torch_peers.able(names, WORKLOADS["A"]) == ["torch_embedding_bag", "fbgemm_tbe_factors"]
    for name in ("F1", "H_bfloat16"):
        assert torch_peers.able(names, WORKLOADS[name]) == ["torch_embedding_bag"]


def test_factors_of_ids():
    ids = ColumnIds(np.array([4, 7, 7]), np.array([2, 0, 1]), np.array([1, 3, 5], np.float32))
    np.testing.assert_allclose(ids.factors("sum"), [1, 3, 5])
    np.testing.assert_allclose(ids.factors("mean"), [0.25, 0.75, 1])
    np.testing.assert_allclose(ids.factors("sqrtn"), [10**-0.5, 3 * 10**-0.5, 1])
    mean = ColumnIds(ids.ids, ids.row_lengths).factors("mean")
    np.testing.assert_allclose(mean, [0.5, 0.5, 1])


def test_invalid_ids_are_dropped_with_their_weights():
    ids = ColumnIds(np.array([-1, 7, -1]), np.array([2, 0, 1]), np.array([1, 3, 5], np.float32))
    assert [of.tolist() for of in ids.valid()] == [[7], [1, 0, 0], [3.0]]


def test_touched_bytes_are_those_of_the_distinct_rows_of_all_batches():
    uniform = Workload("u", (Column(10, 4), Column(3, 2)), 500, 1, 2, True, "float16")
    assert uniform.touched_bytes() == 2 * (10 * 4 + 3 * 2)
    one = Workload("one", (Column(1000, 1),), 1, 1, num_batches=1)
    assert one.touched_bytes() == 4


def test_variables_are_filled_once_by_their_initializers():
    runner = steps.SessionRunner(MIXED, ["forward"], ["stock"], 1)
    dense = runner.program.tables["dense"]
    assert dense.fill == []  # each is a run that optimizes the whole graph: minutes for C
    for column, table in enumerate(runner.session.run(dense.tables)):
        assert table.shape == (MIXED.columns[column].rows, MIXED.columns[column].dim)
        assert np.unique(table).size > table.size / 2
        assert np.abs(table).max() <= 0.05
    runner.close()


def test_summaries_of_workloads():
    assert WORKLOADS["A"].summary() == (
        "26 columns, dim 4 to 128, batch 2048, 5 to 30 weighted ids in a row of 13 of them"
    )
    assert WORKLOADS["B"].summary() == "1 column, dim 64, batch 512, 200 ids in a row"
    assert WORKLOADS["E"].summary().endswith("batch 4096, uniform ids, 48 batches")
    assert WORKLOADS["H_float16"].summary().endswith(", float16")


def test_ours_is_compared_with_the_systems_of_all_pairs():
    def cells(median, **speedups):
        ours = {"median_us": median, "speedup_over": speedups}
        return [{"phase": "sgd", "systems": {"group": ours, **{name: {} for name in speedups}}}]

    [cell] = pairs.merged([cells(5, stock=2), cells(9, itself=1, tbe=3), cells(7, itself=4)])
    assert list(cell["systems"]) == ["group", "stock", "itself", "tbe"]
    want = {"median_us": 5, "speedup_over": {"stock": 2, "itself": 1, "tbe": 3}}
    assert cell["systems"]["group"] == want


@pytest.mark.slow
def test_a_pair_is_measured_in_another_process(tmp_path):
    arguments = ["--workload=F24", "--tiny", "--pairs", "--system=group,stock", "--phase=forward"]
    arguments += ["--batches=3", "--ids=uniform", "--rounds=1", "--block=1"]
    record, _ = run_module("harness.run", tmp_path, *arguments)
    [cell] = record["cells"]
    assert {"group", "stock", "itself"} <= cell["systems"].keys()
    assert record["file"].endswith("-F24-t1-n3-uniform-tiny.json")
    summary = "1 column, dim 24, batch 16, 5 to 30 ids in a row, uniform ids, 3 batches"
    assert record["ids"]["summary"] == summary.replace("1 column", "4 columns")
    assert record["ids"]["touched_bytes"] <= 4 * 100 * 24 * 4


def test_the_fastest_way_of_a_peer_counts():
    ours = {"median_us": 2000, "p25_us": 1900, "p75_us": 2100, "x_limit": {"median": 1.5}}
    ways = {"fbgemm_tbe": {"median": 1.4}, "fbgemm_tbe_factors": {"median": 0.7}}
    ours["speedup_over"] = ways | {"stock": {"median": 3.0}, "itself": {"median": 1.01}}
    axes = {"workload": "F24", "threads": 1, "batch_size": 2048, "mode": "session"}
    ids = {"summary": "4 columns", "touched_bytes": 3 << 20, "l3_bytes": 32 << 20}
    cells = [{"phase": "forward", "systems": {"group": ours}}]
    table = dense_reports.reports([{"axes": axes, "ids": ids, "cells": cells}])["loads"]
    want = "| F24: 4 columns | 3 (32) | forward | 2 (1.9-2.1) | 1.50 | 1.01 | 3.00 |  | **0.70** |"
    assert table.splitlines()[-1] == want
