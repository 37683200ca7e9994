"""The notebooks of examples/notebooks: their cells run in order, and what they claim is so."""

import ast
import json
import re
import sys

import keras
import pytest

import notebooks
import processes
from cases.kerases import is_keras_3

NOTEBOOKS = notebooks.notebooks()
needs_keras_3 = pytest.mark.skipif(
    not is_keras_3(keras),
    reason="the notebook needs Keras 3, that is TensorFlow 2.16 or newer",
)

# What the variables of a notebook must say at its end.
CLAIMS = {
    "two_tower": """
assert abs(by_towers - 1 / 5) < 0.03
assert abs(by_popularity - 1 / 14) < 0.01
assert abs(before - by_popularity) < 0.03
assert abs(after - by_towers) < 0.05
assert rows_before == "3,000 users, 1,000 items"
assert num_rows() == "3,500 users, 1,000 items"
""",
    "accelerate": """
assert len(stock_losses) == 60
for losses in (fast_losses, checked_losses):
    np.testing.assert_allclose(losses, stock_losses, rtol=1e-5)
assert speedup > 1
assert {table.kind for table in stock_report.tables} == {"variable"}
assert {table.kind for table in table_report.tables} == {"EmbeddingVariable"}
assert [lookup.num_columns for lookup in fast_report.lookups] == [26]
assert table_losses[-20:].mean() < 1.02 * stock_losses[-20:].mean() < table_losses[0]
""",
    "train_export_serve": """
assert monday_difference < 1e-6
assert tuesday_difference < 1e-6
assert np.array_equal(still_monday, monday_answers)
assert abs(monday_auc - 0.65) < 0.01
assert abs(tuesday_auc - 0.75) < 0.01
assert "continues" in refusal
assert {tag.split("/")[0] for tag in scalars} == {"values"}
last = max(scalars["values/embeddings/size"])
assert last == 79 + 118
assert scalars["values/embeddings/size"][last] == int(layer.table.total_count())
""",
}

# What a notebook must print, beside numbers that depend on the machine.
PRINTED = {
    "two_tower": (
        r"rows before training: 0 users, 0 items\n",
        r"rows after it:        3,000 users, 1,000 items\n",
        r"recall@10: most popular items 0\.\d{3}, two towers 0\.\d{3}\n",
    ),
    "accelerate": (
        r"input_layer \(1\): replaced\nAdagradOptimizer \(26\): replaced\n",
        r"[\d.]+ ms a step, [\d.]+ times as fast as stock\n",
        r"losses of 60 steps: largest relative difference [\d.]+e-\d\d\n",
        r"buckets 520,000 rows, 66\.6 MB, loss 0\.\d{4}\ntables  156,878 rows, 25\.\d MB, loss 0\.",
    ),
    "train_export_serve": (
        r"before the delta the answers are Monday's: True\n",
        r"\[the delta \] \[.*/delta-1\] \[ continues \]",
        r"\n 197 +[\d,]{7} +[\d,]{7} +[\d,]{7}\n",
        r"\n1 tables, ",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("two_tower", marks=needs_keras_3),
        "accelerate",
        pytest.param("train_export_serve", marks=needs_keras_3),
    ],
)
def test_a_notebook_runs_and_its_claims_hold(name, tmp_path):
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    setting = f"import tempfile\ntempfile.tempdir = {str(temporary)!r}\n"
    code = notebooks.code_of(notebooks.FOLDER / f"{name}.ipynb")
    done = processes.run_program(setting + code + CLAIMS[name], cwd=here)
    printed = processes.output_of(done)
    for pattern in PRINTED[name]:
        assert re.search(pattern, printed), f"{pattern} is not in:\n{printed}"
    if name == "accelerate":
        line = 'do_fusion="check": 8 lookups checked, largest difference '
        assert line in done.stderr
        assert "use stock TensorFlow from now on" not in done.stderr
    assert not list(here.iterdir()), "a notebook must not leave files where it was started"


def test_each_notebook_is_tested():
    assert [path.stem for path in NOTEBOOKS] == list(CLAIMS) == list(PRINTED)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_as_jupyter_reads_it(notebook):
    text = notebook.read_text()
    book = json.loads(text)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert text == json.dumps(book, indent=1, ensure_ascii=False) + "\n"  # as Jupyter writes it
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    for cell in book["cells"]:
        assert len(cell["source"]) <= 25, "cells are short"
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            assert all(len(line.rstrip("\n")) <= 100 for line in cell["source"])
            ast.parse("".join(cell["source"]))  # no magic
    kind, text = next(notebooks.cells_of(notebook))
    assert (kind, text[:2]) == ("markdown", "# ")  # the title of its page


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_needs_tensorflow_and_the_package_alone(notebook):
    tree = ast.parse(notebooks.code_of(notebook))
    names = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    roots = {name.partition(".")[0] for name in names}
    assert roots - sys.stdlib_module_names <= {"tensorflow", "keras", "numpy", "fused_embedding"}
