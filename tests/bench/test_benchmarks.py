import pathlib
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from bench_runs import ROOT, run_module
from benchmarks.harness import check, kernels, limit, resources, sweep, timing
from benchmarks.harness.workloads import (
    MAX_IDS_PER_ROW,
    WORKLOADS,
    Batch,
    ColumnIds,
    Drift,
    ListWorkload,
    merged,
)
from benchmarks.report import compare, dense_reports, distributed_reports, results

import processes


def run_driver(folder, *arguments):
    return run_module("harness.run", folder, "--rounds=2", "--block=2", *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["session", "function"])
@pytest.mark.parametrize("workload", ["tiny", "tiny_multi_hot"])
def test_all_systems_agree_on_a_tiny_workload(tmp_path, workload, mode):
    record, done = run_driver(tmp_path, f"--workload={workload}", f"--mode={mode}")
    assert [cell["phase"] for cell in record["cells"]] == ["forward", "gradient", "sgd", "adagrad"]
    for cell in record["cells"]:
        assert cell["check"] == "equal"
        measured = cell["systems"]
        assert {"v2", "v1", "stock", "v2_default", "stock_default"} <= measured.keys()
        assert ("plain" in measured) == (workload == "tiny")
        assert ("columns_v2" in measured) == (workload == "tiny" and mode == "session")
        assert measured["v2"]["samples"] == 4
        assert measured["v2"]["speedup_over"]["stock"]["median"] > 0
    assert ("limit skipped" in done.stderr) == (not limit.SOURCE.exists())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "workload"), [("session", "tiny"), ("function", "tiny_multi_hot")]
)
def test_tables_without_a_vocabulary_agree_with_variables(tmp_path, mode, workload):
    arguments = [f"--workload={workload}"]
    arguments += ["--system=v2,ev_group,ev_group_inference,ev_v2,ev_v2_inference"]
    record, _ = run_driver(tmp_path, *arguments, f"--mode={mode}")
    assert record["axes"]["tables"] == "keyed"
    for cell in record["cells"]:
        assert cell["check"] == "equal"
        for name in ("ev_v2_inference", "ev_group_inference"):
            assert (name in cell["systems"]) == (cell["phase"] == "forward")
        assert cell["systems"]["ev_v2"]["speedup_over"]["v2"]["median"] > 0
        # The loop by key finds rows of one-hot columns.
        has_loop = limit.SOURCE.exists() and workload == "tiny" and cell["phase"] == "forward"
        assert ("x_limit_by_key" in cell["systems"]["ev_group"]) == has_loop


@pytest.mark.slow
def test_raw_table(tmp_path):
    arguments = [
        "--num_keys=20000",
        "--colliding_keys=20000",
        "--batch=512",
        "--grow_batch=500,800",
    ]
    arguments += ["--system=ours,ours_adagrad", "--rounds=2", "--block=2", "--grow_rounds=1"]
    record, _ = run_module("tables.raw_table", tmp_path, *arguments)
    cells = {cell["phase"]: cell["systems"] for cell in record["cells"]}
    assert record["command"].startswith("python -m benchmarks.tables.raw_table --num_keys=20000")
    assert list(cells) == [
        *("memory", "grow_500", "grow_800", "find_uniform", "find_zipf", "find_missing"),
        *("overwrite", "insert", "colliding"),
    ]
    assert cells["grow_500"]["ours"]["samples"] == 40
    assert cells["insert"]["ours_adagrad"]["million_keys_per_second"] > 0
    # Of 3 MB in a process of hundreds: memory that was freed before may be used again.
    assert 0.5 < cells["memory"]["ours_adagrad"]["x_payload"] < 5
    assert cells["colliding"]["random"]["find_x_random"]["median"] == 1


@pytest.mark.slow
def test_growth_reaches_a_size_and_keeps_it(tmp_path):
    arguments = ["--steps=300", "--live=5000", "--steps_to_live=50", "--expire_every=50"]
    arguments += ["--batch=512", "--early=200", "--window=100"]
    record, _ = run_module("tables.growth", tmp_path, *arguments)
    (cell,) = record["cells"]
    assert [point["step"] for point in record["series"]] == [100, 200, 300]
    assert 0.9 < cell["rows_late_over_early"] < 1.1
    assert cell["late_us"] > 0


@pytest.mark.slow
def test_forward_runs_at_most_four_kernels_of_ours_per_column(tmp_path):
    arguments = ["--workload=tiny", "--phase=forward", "--system=v2,v1,stock", "--variant=few"]
    record, _ = run_driver(tmp_path, *arguments)
    assert results.benchmark(pathlib.Path(record["file"])) == "tiny-t1-few"
    assert (record["axes"]["variant"], record["fitness"], record["unfit"]) == ("few", None, False)
    measured = record["cells"][0]["systems"]
    assert measured["stock"]["kernels_of_ours_per_column"] == 0
    assert 0 < measured["v1"]["kernels_of_ours_per_column"] <= 4
    assert 0 < measured["v2"]["kernels_of_ours_per_column"] <= 4


STEMS = sorted(
    path.stem
    for path in (ROOT / "benchmarks/ops").glob("*.py")
    if path.stem not in ("__init__", "inputs")
)


@pytest.mark.slow
@pytest.mark.parametrize("stem", STEMS)
def test_op_agrees_with_stock(tmp_path, stem):
    record, _ = run_driver(tmp_path, f"--op={stem}")
    assert all(cell["check"] == "equal" for cell in record["cells"])
    assert all(cell["systems"]["fused"]["bytes_moved"] > 0 for cell in record["cells"])


GENERATED = [name for name, made in WORKLOADS.items() if not isinstance(made, ListWorkload)]


@pytest.mark.parametrize("name", GENERATED)
def test_workload_is_a_function_of_its_name(name):
    workload = WORKLOADS[name]
    for first, second in zip(workload.batches(), workload.batches(), strict=True):
        for one, again in zip(first.columns, second.columns, strict=True):
            np.testing.assert_array_equal(one.ids, again.ids)


@pytest.mark.parametrize(("name", "function"), [("W1", "w1"), ("W3", "w3"), ("W4", "w4")])
def test_one_hot_ids_are_those_of_the_neutral_yardstick(name, function):
    yardstick = load_yardstick()
    for got, want in zip(WORKLOADS[name].batches(), getattr(yardstick, function)(), strict=True):
        np.testing.assert_array_equal(got.one_hot(), want)


def test_multi_hot_ids_are_those_of_the_neutral_yardstick():
    for batch, want in zip(WORKLOADS["W2"].batches(), load_yardstick().w2(), strict=True):
        [got] = batch.columns
        np.testing.assert_array_equal(got.row_lengths, want[0])
        np.testing.assert_array_equal(got.ids, want[1])


def test_drifting_keys_are_those_of_the_neutral_yardstick():
    for step in (0, 1500, 19_999):
        np.testing.assert_array_equal(Drift().keys(step), load_yardstick().w5(step))


def load_yardstick():
    path = limit.SOURCE.with_name("workload.py")
    if not path.exists():
        pytest.skip(f"{path} is not there: the neutral yardstick lies outside the repository")
    namespace = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)  # its folder is not importable
    return SimpleNamespace(**namespace)


def test_limit_looks_up_the_sums_of_the_rows():
    loop = limit.compile_loop()
    if loop is None:
        pytest.skip(f"{limit.SOURCE} is not there: the limit loop lies outside the repository")
    workload = WORKLOADS["tiny_multi_hot"]
    bound = limit.Limit(loop, workload, threads=1, with_slots=False)
    bound.steps("forward")["limit"](0)
    [batch] = workload.batches()[0].columns
    table = (1e-3 * (np.arange(100 * 8) % 1024) + 1e-3).reshape(100, 8)
    want = np.zeros((32, 8))
    row_ids, ids = batch.row_ids()[batch.ids >= 0], batch.ids[batch.ids >= 0]
    np.add.at(want, row_ids, table[ids])
    want /= np.maximum(np.bincount(row_ids, minlength=32), 1)[:, None]
    np.testing.assert_allclose(bound.combined, want, rtol=1e-5)


def test_limit_finds_rows_by_key():
    loop = limit.compile_loop()
    if loop is None:
        pytest.skip(f"{limit.SOURCE} is not there: the limit loop lies outside the repository")
    workload = WORKLOADS["tiny"]
    bound = limit.KeyLimit(loop, workload)
    columns = zip(bound.find(1), workload.batches()[1].columns, workload.columns, strict=True)
    for rows, batch, column in columns:
        table = 1e-3 * np.arange(column.rows * column.dim) + 1e-3
        np.testing.assert_allclose(rows, table.reshape(column.rows, -1)[batch.ids], rtol=1e-5)


def make_runner(values):
    """A runner whose systems return what `values` says, for a batch that looks up ids 1 and 3."""
    batch = Batch([ColumnIds(np.array([3, 1, 3]))])
    workload = SimpleNamespace(batches=lambda: [batch], dtype="float32")
    program = SimpleNamespace(workload=workload)
    return SimpleNamespace(program=program, values=lambda name, phase: values[name])


def slices(ids, rows):
    return SimpleNamespace(indices=np.array(ids), values=np.array(rows, np.float32))


def test_check_accepts_gradients_that_differ_in_order_and_merging():
    combined = np.ones((3, 1), np.float32)
    merged = [combined, [slices([3, 1], [[5.0], [2.0]])]]
    pairs = [combined, [slices([1, 3, 3, 0], [[2.0], [1.0], [4.0], [0.0]])]]
    check.assert_systems_agree(make_runner({"a": merged, "b": pairs}), ["a", "b"], "gradient")


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (slices([3, 1], [[5.0], [2.1]]), "gradient of table 0 of b and a differ"),
        (slices([3, 2], [[5.0], [2.0]]), "an id that was not looked up"),
    ],
)
def test_check_rejects_a_wrong_gradient(gradient, message):
    combined = np.ones((3, 1), np.float32)
    values = {"a": [combined, [slices([3, 1], [[5.0], [2.0]])]], "b": [combined, [gradient]]}
    with pytest.raises(AssertionError, match=message):
        check.assert_systems_agree(make_runner(values), ["a", "b"], "gradient")


def test_check_rejects_wrong_rows():
    values = {"a": [np.ones((2, 2))], "b": [np.array([[1.0, 1.0], [1.0, 1.01]])]}
    with pytest.raises(AssertionError, match="forward: combined rows of b and a differ"):
        check.assert_systems_agree(make_runner(values), ["a", "b"], "forward")


def test_alternate_times_every_system_in_every_round():
    calls = []
    steps = {name: lambda i, name=name: calls.append((name, i)) for name in ("a", "b")}
    samples = timing.alternate(steps, rounds=9, block=2)
    assert {name: times.shape for name, times in samples.items()} == {"a": (9, 2), "b": (9, 2)}
    blocks = [name for name, _ in calls[2 * timing.WARM_UP_STEPS :: 3]]
    rounds = {tuple(blocks[i : i + 2]) for i in range(0, 18, 2)}
    assert rounds == {("a", "b"), ("b", "a")}


def test_each_timed_step_is_undone():
    calls = []
    timing.alternate({"a": calls.append}, rounds=2, block=2, undo={"a": lambda i: calls.append(-i)})
    assert all(undone == -done for done, undone in zip(calls[::2], calls[1::2], strict=True))
    assert len(calls) == 2 * (timing.WARM_UP_STEPS + 2 * 3)


def test_blocks_start_with_steps_that_are_not_timed(monkeypatch):
    calls, now = [], [0]
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: now[0])

    def slow_at_first(i):
        calls.append(i)
        now[0] += 20_000 if (len(calls) - timing.WARM_UP_STEPS - 1) % 5 < 3 else 1_000

    samples = timing.alternate({"a": slow_at_first}, rounds=2, block=2, untimed=3)["a"]
    assert len(calls) == timing.WARM_UP_STEPS + 2 * 5
    np.testing.assert_array_equal(samples, 1.0)


def test_ratio_is_the_median_over_rounds():
    numerator = np.array([[2.0, 2.0], [3.0, 3.0], [80.0, 80.0]])
    denominator = np.array([[1.0, 1.0], [1.0, 1.0], [2.0, 2.0]])
    assert timing.ratio(numerator, denominator) == {"median": 3.0, "p25": 2.5, "p75": 21.5}


def test_summary_has_the_quartiles():
    want = {"samples": 5, "median_us": 3.0, "p25_us": 2.0, "p75_us": 4.0, "p95_us": 4.8}
    assert timing.summary(np.array([[5.0, 1.0, 2.0, 4.0, 3.0]])) == want


@pytest.mark.parametrize(
    ("new", "want"),
    [
        ((90, 85, 94), "faster"),
        ((90, 85, 96), "-"),
        ((97, 93, 94), "-"),
        ((120, 111, 130), "slower"),
    ],
)
def test_verdict_needs_separate_quartiles_and_five_percent(new, want):
    old = {"median": 100, "p25": 95, "p75": 110}
    assert compare.verdict(old, dict(zip(("median", "p25", "p75"), new, strict=True))) == want


def make_trace(*labels):
    nodes = [
        SimpleNamespace(timeline_label=label, op_start_rel_micros=1, op_end_rel_micros=1 + micros)
        for label, micros in labels
    ]
    return SimpleNamespace(dev_stats=[SimpleNamespace(node_stats=nodes)])


def test_kernels_are_counted_without_bookkeeping():
    label = "x/y = Unique(a, b)"
    traces = [
        make_trace((label, 5), (label, 7), ("c = Const()", 9), ("_SOURCE = NoOp()", 9)),
        make_trace((label, 5), (label, 9), ("c = Const()", 9), ("_SOURCE = NoOp()", 9)),
    ]
    assert kernels.summarize(traces) == [{"op": "Unique", "kernels": 2, "us": 13.0}]


def make_record(measured, mode="session"):
    axes = {"workload": "W1", "threads": 1, "batch_size": 4096, "mode": mode}
    return {"axes": axes, "cells": [{"phase": "forward", "systems": measured}]}


def test_losses_and_missed_targets_are_bold():
    ours = {"median_us": 2000, "p25_us": 1900, "p75_us": 2100, "kernels": 5}
    ours |= {"x_limit": {"median": 1.51}, "speedup_over": {}}
    ours["speedup_over"] = {"stock": {"median": 2.0}, "fbgemm_tbe": {"median": 0.9}}
    measured = {"group": ours, "stock": {"kernels": 12}, "fbgemm_tbe": {}}
    table = dense_reports.workload_table(make_record(measured))
    assert table.splitlines()[2].endswith("| kernels (stock's) | over stock | over TBE |")
    assert (
        "| forward | `group` | 2 (1.9-2.1) | **1.51** (1.5) | 5 (12) | 2.00 | **0.90** |" in table
    )
    ours["x_limit"]["median"] = 1.5
    assert "| 1.50 (1.5) |" in dense_reports.workload_table(make_record(measured))


@pytest.mark.slow
def test_serving_gives_the_latency_of_each_number_of_callers(tmp_path):
    arguments = ["--workload=tiny", "--batch=4", "--callers=1,3", "--rounds=2", "--calls=5"]
    record, _ = run_module("serving.small_batches", tmp_path, *arguments)
    assert [cell["callers"] for cell in record["cells"]] == [1, 3]
    for cell in record["cells"]:
        assert list(cell["systems"]) == ["group", "v2", "plain", "stock"]
        for figures in cell["systems"].values():
            assert figures["samples"] == 2 * 5 * cell["callers"]
            assert 0 < figures["p50_us"] <= figures["p99_us"]
    assert "| tiny | 4 | 3 |" in dense_reports.serving_table([record])


@pytest.mark.parametrize("name", ["gowalla", "amazon_book"])
def test_lists_of_real_ids_are_inside_their_table(name):
    workload = WORKLOADS[name]
    if not workload.path.exists():
        pytest.skip(f"{workload.path} is not there: the data lies outside the repository")
    longest = 0
    for [batch] in (batch.columns for batch in workload.batches()):
        assert len(batch.row_lengths) == workload.batch_size
        assert batch.row_lengths.sum() == batch.ids.size
        assert 0 <= batch.ids.min() <= batch.ids.max() < workload.table_rows[0]
        longest = max(longest, batch.row_lengths.max())
    assert 100 < longest <= MAX_IDS_PER_ROW


@pytest.mark.slow
def test_a_point_of_a_sweep_is_measured_in_another_process(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sweep", "--rounds=1", "--block=1"])
    cells = sweep.measure_in_process("num_columns", 1)
    assert [cell["phase"] for cell in cells] == list(sweep.SYSTEMS)
    for cell in cells:
        assert (cell["axis"], cell["value"]) == ("num_columns", 1)
        assert cell["systems"].keys() == set(sweep.SYSTEMS[cell["phase"]])
        assert cell["systems"]["stock"]["samples"] == 1


def test_a_sweep_changes_one_size():
    base = sweep.workload_at("batch_size", 4096)
    assert sweep.workload_at("dim", 16) == sweep.workload_at("num_columns", 26) == base
    assert {column.dim for column in sweep.workload_at("dim", 8).columns} == {8}
    assert sweep.workload_at("num_columns", 300).num_columns == 300


def test_one_table_has_the_rows_of_all_columns():
    columns = WORKLOADS["tiny"]
    one = merged(columns)
    assert (one.num_columns, one.batch_size, one.table_rows) == (1, 64, (107,))
    for batch, want in zip(one.batches(), columns.batches(), strict=True):
        first, second = want.one_hot()
        np.testing.assert_array_equal(batch.columns[0].ids, [*first, *(second + 100)])


@pytest.mark.slow
def test_many_columns_are_compared_with_one(tmp_path):
    arguments = ["--workload=tiny", "--rounds=2", "--block=2"]
    record, _ = run_module("tables.one_table", tmp_path, *arguments)
    assert [cell["phase"] for cell in record["cells"]] == ["forward", "adagrad"]
    for cell in record["cells"]:
        assert cell["systems"]["columns"]["of_one_table"]["median"] > 0
    assert "| tiny | 1 | forward |" in dense_reports.one_table_table([record])


@pytest.mark.parametrize("workload", ["tiny", "tiny_multi_hot"])
def test_rows_in_fewer_bytes_are_checked_and_measured(tmp_path, workload):
    arguments = [f"--workload={workload}", "--rounds=2", "--block=2", "--batches=2"]
    record, _ = run_module("serving.stored_rows", tmp_path, *arguments)
    [cell] = record["cells"]
    assert cell["check"] == "oracle"
    assert {"float32", "float32_again", "int8", "int4", "bfloat16"} <= set(cell["systems"])
    assert f"| {workload} | zipf | int8 |" in dense_reports.stored_rows_table([record])


@pytest.mark.slow
def test_steps_on_parameter_servers_are_compared_and_counted(tmp_path):
    arguments = ["--columns=3", "--ids=16", "--rows=50", "--dim=4", "--rounds=2", "--block=2"]
    record, _ = run_module("distributed.parameter_servers", tmp_path, *arguments)
    [cell] = record["cells"]
    traffic = {name: figures["traffic"] for name, figures in cell["systems"].items()}
    # Three a server, and the kernel there and back. 3 columns in 2 parts: 3 tensors each, 4 keyed.
    assert (traffic["messages"]["tensors"], traffic["keyed_messages"]["tensors"]) == (9, 9)
    assert (traffic["each_column"]["tensors"], traffic["keyed_each_column"]["tensors"]) == (21, 27)
    for figures in cell["systems"].values():
        assert figures["worker_cpu_us"] > 0
        assert figures["servers_cpu_us"] > 0
    assert "| 3 x 16 | 2 | messages |" in distributed_reports.table([record])


@pytest.mark.slow
def test_two_workers_are_counted_beside_one(tmp_path):
    arguments = ["--columns=2", "--ids=8", "--rows=20", "--dim=4", "--period=0.05"]
    arguments += ["--periods=2", "--servers=1"]  # test_steps_on_parameter_servers has two
    record, _ = run_module("distributed.two_workers", tmp_path, *arguments)
    [cell] = record["cells"]
    for figures in cell["systems"].values():
        assert min(figures.values()) > 0
    assert "| 2 x 8 | 1 | messages |" in distributed_reports.workers_table([record])


def test_another_clock_times_steps():
    ticks = iter(range(0, 10**9, 5000))
    steps = {"a": lambda i: None}
    samples = timing.alternate(steps, rounds=1, block=3, clock=lambda: next(ticks))["a"]
    np.testing.assert_array_equal(samples, 5.0)


def test_a_peer_that_is_not_there_is_named(tmp_path):
    arguments = ["--workload=tiny", "--peer=fbgem", f"--output={tmp_path}"]
    done = processes.run_module("benchmarks.harness.run", *arguments, cwd=ROOT)
    assert done.returncode != 0
    assert "no such peer: ['fbgem']; there are ('torch_embedding_bag', 'fbgemm_tbe'" in done.stderr


GUIDES = [f"docs/{name}.md" for name in ("performance", "results/README", "gpu", "building")]


@pytest.mark.parametrize("guide", ["benchmarks/README.md", *GUIDES])
def test_each_program_of_a_guide_exists(guide):
    for name in set(re.findall(r"\bbenchmarks(?:\.\w+)+", (ROOT / guide).read_text())):
        path = ROOT / name.replace(".", "/")
        assert (path / "__main__.py").exists() or path.with_suffix(".py").exists(), name


@pytest.mark.slow
def test_exports_give_the_same_scores_and_apply_deltas_under_load(tmp_path):
    arguments = ["--system=export_fused,stock", "--requests=40", "--rounds=2", "--deltas=3"]
    record, _ = run_module("serving.exports", tmp_path, "--batch=2", "--columns=3", *arguments)
    of_all, of_fused = (cell["systems"] for cell in record["cells"])
    assert of_all.keys() == {"export_fused", "stock"}
    assert of_fused["export_fused"]["deltas"] == 3
    for figures in [*of_all.values(), *of_fused.values()]:
        assert figures["samples"] == 40
        assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["longest_us"]


def test_a_drift_is_that_of_the_second_half():
    series = [
        {"second": s, "flat": 7.0, "early": min(s, 50), "late": 100 + 0.02 * max(s - 50, 0)}
        for s in range(1, 101)
    ]
    assert resources.drift(series, "flat") == 0
    assert resources.drift(series, "early") == 0
    assert resources.drift(series, "late") == pytest.approx(100 * 1.0 / 100.5, abs=1e-3)


def test_a_file_is_counted_once_and_as_long_as_it_is_open(tmp_path):
    (tmp_path / "a").write_bytes(bytes(8192))
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    size = (tmp_path / "a").stat().st_blocks * 512
    assert resources.bytes_below(tmp_path) == size
    assert resources.descriptors_below(tmp_path) == 0
    with (tmp_path / "a").open(), (tmp_path / "b").open():
        (tmp_path / "a").unlink()
        assert resources.descriptors_below(tmp_path) == 2
