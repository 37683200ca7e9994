"""The benchmarks of columns and layers."""

import pytest
from bench_runs import run_module

from cases import columns as column_cases
from cases.kerases import KERASES

from benchmarks.report import dense_reports  # isort: skip


@pytest.mark.slow
@pytest.mark.parametrize("feature", ["string", "int64", "ids"])
def test_an_input_layer_is_compared_with_stocks(tmp_path, feature):
    arguments = ["--columns=2", "--batch_size=8", "--buckets=50", "--rounds=2", "--block=2"]
    arguments += [f"--feature={feature}", "--threads=1"]
    record, _ = run_module("columns.input_layer", tmp_path, *arguments)
    systems = record["cells"][0]["systems"]
    of_columns = ["stock", "stock_default", "do_fusion", "fused", "fused_again"]
    assert list(systems) == [*of_columns, "ragged", "ragged_fast", "keras"]
    table = dense_reports.columns_table([record])
    assert f"| {feature} | 2 x 8 | 1 |" in table
    assert "| over RaggedTensors | over the same by fast lookup |" in table


@pytest.mark.slow
def test_memory_of_training_is_compared_with_stock(tmp_path):
    record, _ = run_module("tables.training_memory", tmp_path, "--workload=tiny", "--steps=2")
    [cell] = record["cells"]
    assert cell["content_bytes"] == 2 * 107 * 8 * 4
    assert all(system["peak_bytes"] > 0 for system in cell["systems"].values())
    assert "| tiny | AdagradOptimizer | 0 |" in dense_reports.memory_table([record])


@pytest.mark.slow
def test_rows_of_one_user_are_compared_with_expanded_features(tmp_path):
    arguments = ["--user_columns=3", "--item_columns=2", "--long=1", "--length=4", "--items=5"]
    arguments += ["--buckets=50", "--dim=4", "--rounds=2", "--block=2", "--threads=1"]
    record, _ = run_module("columns.user_rows", tmp_path, *arguments)
    assert [cell["phase"] for cell in record["cells"]] == ["forward", "gradient"]
    for cell in record["cells"]:
        assert list(cell["systems"]) == ["stock", "expanded", "rows", "rows_again"]
    assert "| 3 + 2 | 5 | 1 | forward |" in dense_reports.rows_table([record])


@pytest.mark.slow
@pytest.mark.parametrize("program", ["wide_deep_small", "keras"])
def test_a_program_under_accelerate_is_compared_with_stock(tmp_path, program):
    if program == "keras":
        column_cases.keras()  # or a skip
    # A column of strings, one of integers and one of numbers.
    arguments = ["--columns=3", "--batch_size=8", "--small_batch=6", "--buckets=50", "--dim=4"]
    arguments += [f"--program={program}", "--threads=1", "--rounds=2", "--block=2"]
    record, done = run_module("columns.accelerate", tmp_path, *arguments)
    systems = record["cells"][0]["systems"]
    assert list(systems) == ["stock_default", "stock", "do_fusion", "accelerate", "rest"]
    assert systems["accelerate"]["speedup_over"].keys() == {"stock_default", "stock", "do_fusion"}
    assert "accelerate is faster by" in done.stdout
    size = record["axes"]["batch_size"]
    assert f"| {program} | 3 x {size} | 1 |" in dense_reports.programs_table([record])


@pytest.mark.slow
def test_layers_with_a_vocabulary_are_compared_with_stock(tmp_path):
    layer = "StringLookup"
    keras = next(iter(KERASES))
    arguments = [f"--layer={layer}", f"--keras={keras}", "--tokens=2000", "--batch_size=64"]
    record, done = run_module("columns.vocabulary", tmp_path, *arguments, "--rounds=1")
    phases = [cell["phase"] for cell in record["cells"]]
    assert phases[:4] == ["build", "adapt", "save", "load"]
    assert all(list(cell["systems"]) == ["stock", "fused"] for cell in record["cells"])
    assert "times as fast" in done.stdout
    assert f"| `{keras}.layers.{layer}` | 2,000 | 2 | build |" in dense_reports.layers_table(
        [record]
    )


@pytest.mark.slow
def test_a_step_of_fit_is_compared_with_a_sessions(tmp_path):
    if not hasattr(pytest.importorskip("keras"), "Variable"):
        pytest.skip("there is no Keras 3")
    program = "keras_group_strings"
    arguments = ["--columns=3", "--batch_size=8", "--cap=50", "--dim=4", "--rounds=2"]
    arguments += [f"--program={program}", "--steps=8", "--steps_per_execution=2"]
    record, _ = run_module("columns.keras_group", tmp_path, *arguments)
    systems = ["stock", "stock_fused_adagrad", "layers", "group", "group_model", "session"]
    assert list(record["cells"][0]["systems"]) == systems
    assert f"| {program} | 8 | 1 | 2 | wall |" in dense_reports.keras_table([record])
