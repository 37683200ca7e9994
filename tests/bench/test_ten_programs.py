"""The benchmark of ten programs under fe.accelerate: its programs in turns, its table and plot."""

import json
import pathlib
import sys

import numpy as np
import pytest

import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks.harness import processes as processes_of_harness  # noqa: E402
from benchmarks.harness import stepwise, timing  # noqa: E402
from benchmarks.programs import catalogue, figures, tf1  # noqa: E402
from benchmarks.programs.setting import Size  # noqa: E402
from benchmarks.report import program_reports, results  # noqa: E402

TINY = ["--columns=1", "--rows=20", "--dim=4", "--rounds=2", "--block=2", "--threads=1"]
LEFT = {
    "Adam of Keras": 'it would not be equal; optimizers="lazy" replaces it all the same',
    "DenseFeatures": "it is in a tf.function without a gradient tape, which may be saved",
}


def run(folder, name):
    options = [*TINY, f"--program={name}", "--batch_size=16", f"--output={folder}"]
    return processes.run_module("benchmarks.columns.programs", *options, cwd=ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["monitored", "functional", "custom_loop"])
def test_a_program_takes_turns_with_itself_accelerated(tmp_path, name):
    missing = catalogue.PROGRAMS[name].missing()
    if missing:
        pytest.skip(missing)
    done = run(tmp_path, name)
    assert done.returncode == 0, done.stderr[-3000:]
    [path] = tmp_path.iterdir()
    assert results.benchmark(path) == f"programs-{name}-t1-b16"
    record = results.load(path)
    [cell] = record["cells"]
    is_left = name == "functional"
    lazy = ["accelerate_lazy"] if is_left else []
    assert list(cell["systems"]) == ["stock_default", "stock", "accelerate", *lazy]
    assert cell["replaced"]
    assert ("Adam of Keras" in cell["left"]) == is_left
    for entry in cell["systems"].values():
        assert entry["samples"] == entry["wall"]["samples"] == 4
        assert entry["median_us"] > 0
    title = catalogue.PROGRAMS[name].title
    assert f"| {title} | {record['machine']['tensorflow']} | 16 | 1 |" in program_reports.section(
        [record]
    )


@pytest.mark.slow
def test_a_program_that_this_tensorflow_has_not_is_skipped_with_a_reason(tmp_path):
    missing = catalogue.PROGRAMS["estimator"].missing()
    if missing is None:
        pytest.skip("this TensorFlow has Estimators")
    done = run(tmp_path, "estimator")
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"estimator: skipped: {missing}" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_table_has_all_programs():
    assert list(catalogue.PROGRAMS) == list(program_reports.NAMES)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--program=monitord", "no such program: ['monitord']; there are ('wide_and_deep',"),
        ("--batch_size=12", "--batch_size must be multiples of 8, got ['12']"),
    ],
)
def test_an_option_that_no_program_takes_is_an_error(tmp_path, option, words):
    options = [option, f"--output={tmp_path}"]
    done = processes.run_module("benchmarks.columns.programs", *options, cwd=ROOT)
    assert done.returncode != 0
    assert words in done.stdout + done.stderr


def test_programs_grow_with_their_size():
    [small], [large] = (tf1.batches(Size(n, 100, batch=16), 1) for n in (1, 26))
    assert len(large) - 1 == 5 * (len(small) - 1)
    assert len(tf1.deep_columns(Size(26))) == 35  # 25 embeddings, 5 indicators, 5 numbers
    assert large["word4"].shape == (16, 1)
    np.testing.assert_array_equal(Size(batch=16).indices()[8:] - [8, 0], Size().indices())


def counting(num, log):
    """A program of some steps, which notes what it does."""

    def program(after_step):
        log.append("begin")
        try:
            for i in range(num):
                log.append(i)
                after_step(10 * i)
        finally:
            log.append("end")

    return program


def test_a_stepwise_program_waits_after_each_step():
    log = []
    program = stepwise.Stepwise(counting(5, log))
    assert (program.first, log) == (0, ["begin", 0])
    assert [program.step(), program.step()] == [10, 20]
    assert log == ["begin", 0, 1, 2]
    program.end()
    assert log[-1] == "end"
    assert not program._thread.is_alive()


def test_stepwise_programs_take_turns():
    log = []
    one, other = (stepwise.Stepwise(counting(3, log)) for _ in range(2))
    assert [one.step(), other.step(), other.step(), one.step()] == [10, 10, 20, 20]


def test_an_error_of_a_stepwise_program_is_its_callers():
    def fails(after_step):
        after_step(0)
        raise KeyError("word")

    program = stepwise.Stepwise(fails)
    with pytest.raises(KeyError, match="word"):
        program.step()
    with pytest.raises(RuntimeError, match="has no more steps"):
        stepwise.Stepwise(lambda after_step: None)


def test_steps_are_timed_by_several_clocks():
    ticks = iter(range(1000))
    samples = timing.alternate(
        {"a": lambda i: None}, 2, 3, clock=lambda: np.array([1, 2]) * 1000 * next(ticks)
    )
    np.testing.assert_array_equal(samples["a"], np.broadcast_to([1.0, 2.0], (2, 3, 2)))


def test_each_combination_is_measured_in_a_process(monkeypatch):
    commands, measured = [], []
    monkeypatch.setattr(sys, "argv", ["programs", "--threads=1,2", "--rounds=3"])
    monkeypatch.setattr(
        processes_of_harness.subprocess, "run", lambda command, **_: commands.append(command[2:])
    )

    def measure(*values):
        measured.append(values)

    axes = {"program": ["a"], "threads": ["1", "2"]}
    processes_of_harness.measure_each("columns.programs", axes, measure)
    processes_of_harness.measure_each("columns.programs", axes | {"threads": ["2"]}, measure)
    module = "benchmarks.columns.programs"
    assert commands == [[module, "--program=a", f"--threads={n}", "--rounds=3"] for n in (1, 2)]
    assert measured == [("a", "2")]


def test_losses_that_are_not_stocks_are_not_timed():
    figures.check("accelerate", [1.0, 2.0], [1.0, 2.0 + 1e-6])
    figures.check("accelerate_lazy", [1.0, 2.5], [1.0, 2.0])
    for system in ("accelerate", "accelerate_lazy"):
        with pytest.raises(AssertionError, match=f"{system} has other losses than stock"):
            figures.check(system, [1.1, 2.0], [1.0, 2.0])
    with pytest.raises(AssertionError, match="accelerate has other losses"):
        figures.check("accelerate", [1.0, 2.5], [1.0, 2.0])


def make_record(program="functional", batch_size=8, **axes):
    """A result with speedups of 2, wall 0.5, and of the lazy optimizer 4."""
    samples = {name: np.full((3, 2, 2), time) for name, time in (("stock_default", 4e3),)}
    samples |= {"stock": samples["stock_default"] * 0.75}
    samples |= {"accelerate": np.stack([np.full((3, 2), 2e3), np.full((3, 2), 8e3)], 2)}
    samples |= {"accelerate_lazy": np.full((3, 2, 2), 1e3)}
    axes |= {"title": f"its {program}", "program": program, "threads": 1}
    axes |= {"batch_size": batch_size}
    cell = {"phase": "step", "systems": figures.of_samples(samples), "left": LEFT}
    record = {"axes": axes | {"mode": "ten_programs"}, "cells": [cell], "commit": "c", "dirty": 0}
    host = {"tensorflow": "2.21.0", "cpu": "A", "cores": 2}
    return record | {"machine": host, "unfit": False, "date": "2026-11-24T00"}


def test_the_table_of_programs_has_losses_in_bold_and_what_is_left():
    row = program_reports.table([make_record()]).splitlines()[-1]
    assert row == (
        "| its functional | 2.21.0 | 8 | 1 | 4 (4-4) | 2 (2-2) | 2.00 | 1.50 | **0.50** | 4.00 | "
        "Adam of Keras (`lazy` saves 50% of the step's CPU time): it would not be equal |"
    )
    record = make_record()
    [cell] = record["cells"]
    cell["left"] = {}
    del cell["systems"]["accelerate_lazy"]
    assert program_reports.table([record]).endswith(" | **0.50** |  | nothing |")


def test_programs_are_in_the_order_of_their_names():
    records = [make_record(name, size) for size in (16, 8) for name in program_reports.NAMES[::-1]]
    ordered = [record["axes"] for record in program_reports.in_order(records)]
    assert [axes["program"] for axes in ordered] == sorted(
        [*program_reports.NAMES] * 2, key=program_reports.NAMES.index
    )
    assert [axes["batch_size"] for axes in ordered] == [8, 16] * len(program_reports.NAMES)


def test_the_page_says_when_programs_were_not_measured(monkeypatch):
    found = []
    monkeypatch.setattr(program_reports.results, "folders", lambda: ["machine"])
    monkeypatch.setattr(program_reports.results, "newest", lambda folder: found)
    assert program_reports.summary() == program_reports.NOT_MEASURED
    found.append({"axes": {"mode": "programs"}, "dirty": False, "unfit": False})
    found.append(make_record() | {"unfit": True})
    assert program_reports.summary() == program_reports.NOT_MEASURED
    found.append(make_record())
    assert program_reports.summary().startswith("![")
    assert "| its functional |" in program_reports.summary()
    assert program_reports.summary(threads=2) == program_reports.NOT_MEASURED


def test_the_plot_names_each_program(tmp_path):
    for name in ("monitored", "functional"):
        record = {"schema": results.SCHEMA, **make_record(name, 16)}
        (tmp_path / f"2026-11-24-c-{name}.json").write_text(json.dumps(record))
    options = [f"--folder={tmp_path}", f"--output={tmp_path}/programs.svg"]
    done = processes.run_module("benchmarks.report.programs_plot", *options, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    text = (tmp_path / "programs.svg").read_text()
    for words in ("its monitored", "its functional", "CPU time of stock over it, batch 16"):
        assert f">{words}</text>" in text
