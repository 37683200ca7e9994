"""The benchmarks of parsed examples."""

import pytest
from bench_runs import ROOT, run_module

import processes

from benchmarks.report import input_reports  # isort: skip


@pytest.mark.slow
def test_the_way_from_examples_to_rows_is_compared_with_stock(tmp_path):
    arguments = ["--batch_size=8", "--strings=3", "--floats=2", "--rounds=2", "--block=2"]
    record, done = run_module("input.serialized_rows", tmp_path, *arguments, "--threads=1")
    phases = [cell["phase"] for cell in record["cells"]]
    assert phases == [
        f"{of} {data}" for of in ("strings", "integers") for data in ("written", "shuffled")
    ]
    for cell in record["cells"]:
        assert list(cell["systems"]) == ["stock", "parsed", "serialized", "serialized_again"]
    assert "times as fast as stock" in done.stdout
    assert "| 8, shuffled | integers | 1 |" in input_reports.rows_table([record])


@pytest.mark.slow
def test_parquet_is_compared_with_records_of_examples(tmp_path):
    arguments = ["--batch_size=8", "--strings=3", "--floats=2", "--file_batches=6", "--rounds=2"]
    record, done = run_module("input.parquet", tmp_path, *arguments, "--block=4", "--threads=1")
    assert [cell["phase"] for cell in record["cells"]] == ["strings", "integers"]
    for cell in record["cells"]:
        assert list(cell["systems"]) == ["stock", "parsed", "lists", "lists_again", "plain"]
        assert cell["num_bytes"].keys() == {"rows.tfrecord", "lists.parquet", "plain.parquet"}
    assert "plain: " in done.stdout
    assert "| 8 | integers | 1 |" in input_reports.parquet_table([record])


@pytest.mark.slow
def test_training_steps_from_files_are_compared_with_stock(tmp_path):
    arguments = ["--columns=3", "--batch_size=8", "--file_batches=3", "--rounds=2", "--block=2"]
    arguments += ["--threads=1"]
    record, done = run_module("input.training_from_files", tmp_path, *arguments)
    [cell] = record["cells"]
    assert list(cell["systems"]) == ["stock", "accelerated", "accelerated_again"]
    assert "times as fast as stock" in done.stdout
    assert "| 8 | 1 |" in input_reports.training_table([record])


@pytest.mark.slow
def test_parsed_examples_are_compared_with_stock(tmp_path):
    arguments = ["--batch_size=8", "--strings=3", "--floats=2", "--rounds=2", "--block=2"]
    record, done = run_module("input.parse_example", tmp_path, *arguments, "--threads=1")
    phases = [cell["phase"] for cell in record["cells"]]
    assert phases[:4] == ["written varlen", "written ragged", "written fixed", "shuffled varlen"]
    assert len(phases) == 12
    for cell in record["cells"]:
        assert list(cell["systems"]) == ["stock", "fused", "fused_again"]
        fused = cell["systems"]["fused"]
        assert fused["speedup_over"].keys() == {"stock", "fused_again"}
        assert fused["wall"]["median_us"] > 0
    assert "times as fast as stock" in done.stdout
    table = input_reports.table([record])
    assert "| 8, long names | ragged |" in table
    options = [f"--folder={tmp_path}", f"--output={tmp_path / 'input.svg'}"]
    processes.run_module("benchmarks.report.input_plot", *options, cwd=ROOT)
    assert (tmp_path / "input.svg").read_text().count("tf.io.parse_example") == 1
