"""The demo program: one click model, trained by stock and by fused lookups."""

import ast
import collections
import functools
import itertools
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import flagsaver

import processes
from fused_embedding import __main__, distribution, extras
from fused_embedding.demo import (
    criteo,
    example_files,
    main,
    model,
    report,
    step_parts,
    synthetic,
    systems,
    trainer,
)

CRITEO = pathlib.Path(__file__).parents[3] / "shared/data/criteo_kaggle/train.tsv.gz"
COLUMNS = 5
SHORT = (f"--columns={COLUMNS}", "--steps=20", "--batch_size=64", "--embedding_dim=5")

needs_extras = pytest.mark.skipif(
    any(not extras.is_installed(name) for name in extras.PACKAGES),
    reason="the demo's packages are not installed: pip install matplotlib scipy tqdm",
)


run_command = functools.partial(processes.run_module, "fused_embedding")


@needs_extras
@pytest.mark.slow
def test_synthetic_rows(tmp_path):
    result = run_command("demo", *SHORT, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "synthetic, Criteo-shaped" in result.stdout
    for name in (systems.DEFAULT, "do_fusion=True", systems.ACCELERATED):
        assert f"ok      {name}, 20 steps: largest relative loss difference" in result.stdout
        assert f"ok      {name}, 20 steps: AUC difference" in result.stdout
    for replaced in ("linear_model (1)", "input_layer (1)", f"AdagradOptimizer ({2 * COLUMNS})"):
        assert f"{replaced}: replaced" in result.stdout
    for part in step_parts.PARTS:
        assert f"\n{part} " in result.stdout
    assert "training: 100%" in result.stderr
    assert (tmp_path / "demo_output/demo.png").read_bytes().startswith(b"\x89PNG")


@needs_extras
@pytest.mark.slow
@pytest.mark.skipif(not CRITEO.exists(), reason=f"real rows are not here: {CRITEO}")
def test_real_rows(tmp_path):
    size = (f"--columns={COLUMNS}", "--steps=40", "--batch_size=160")
    options = (f"--data={CRITEO}", *size, "--fusion=v1", "--output_dir=plots")
    result = run_command("demo", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "6,400 for training, 1,600 held out" in result.stdout
    assert "ok      do_fusion=v1, 40 steps: AUC difference" in result.stdout
    assert (tmp_path / "plots/demo.png").exists()


@needs_extras
@pytest.mark.slow
def test_examples_in_a_file(tmp_path):
    result = run_command("demo", *SHORT, "--examples", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "tf.Examples of all steps in a TFRecord file" in result.stdout
    assert "parse_example (1): replaced" in result.stdout
    assert f"ok      {systems.ACCELERATED}, 20 steps: AUC difference" in result.stdout


def test_a_pipeline_yields_the_rows_of_the_file_again_and_again(tmp_path):
    rows = synthetic.make_rows(5, seed=1).with_strings()
    example_files.write(f"{tmp_path}/rows", [rows.take(slice(2)), rows.take(slice(2, None))])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = example_files.read(f"{tmp_path}/rows", 3)
        session.run(tf.compat.v1.tables_initializer())
        batches = [session.run(tuple(inputs)) for _ in range(2)]
    want = [np.concatenate([column, column])[:6] for column in rows]
    assert list(batches[0][2]) == list(model.NAMES)
    read = [(b[0], b[1], np.stack(list(b[2].values()), axis=1)) for b in batches]
    for got, of_rows in zip(zip(*read, strict=True), want, strict=True):
        np.testing.assert_array_equal(np.concatenate(got), of_rows)


@pytest.mark.slow
def test_help_lists_the_options(tmp_path):
    result = run_command("demo", "--help", cwd=tmp_path)
    assert "--max_bad_lines: So many malformed lines" in result.stdout


@pytest.fixture
def run_in_process(monkeypatch, capsys):
    errors = []
    monkeypatch.setattr(main.logging, "error", lambda text, *args: errors.append(text % args))

    def run(*arguments):
        with flagsaver.flagsaver(), pytest.raises(SystemExit) as exit_info:
            __main__.main(["fused_embedding", *arguments])
        code = exit_info.value.code  # a message, as sys.exit takes it, means status 1
        status, message = (1, code) if isinstance(code, str) else (code, "")
        return status, "\n".join([message, *errors, *capsys.readouterr()])

    return run


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 2, "commands: demo"),
        (("--help",), 0, "commands: demo"),
        (("trian",), 1, "unknown command 'trian'; the commands are: demo"),
        (("demo", "--steps=0"), 1, "flag --steps=0"),
        (("demo", "--examples", "--embedding-variable"), 1, "At most one of (examples, "),
        (("demo", "rows.tsv"), 2, "unexpected arguments ['rows.tsv']"),
    ],
)
def test_command_line(run_in_process, arguments, status, message):
    got_status, output = run_in_process(*arguments)
    assert got_status == status
    assert message in output


@needs_extras
@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file or directory"), ("1\t2\n" * 3, "has more than 1 malformed lines")],
)
def test_unusable_data_is_exit_status_2(tmp_path, run_in_process, content, message):
    path = tmp_path / "rows.tsv"
    if content is not None:
        path.write_text(content)
    status, output = run_in_process("demo", f"--data={path}", "--max_bad_lines=1")
    assert status == 2
    assert message in output


def test_a_missing_extra_is_exit_status_2(run_in_process, monkeypatch):
    monkeypatch.setattr(extras, "PACKAGES", ("surely_not_installed",))
    status, output = run_in_process("demo")
    assert status == 2
    assert "needs the Python package surely_not_installed" in output
    assert distribution.command_for_extra("demo") in output


def finished_run(name, losses, auc, steps=0):
    run = trainer.Run(name, None, None, losses=losses, step_seconds=[9.0, 0.1, 0.2, 0.3])
    run.aucs[steps or len(losses)] = auc
    return run


@pytest.mark.parametrize("name", [systems.DEFAULT, "do_fusion=True", systems.ACCELERATED])
@pytest.mark.parametrize(
    ("losses", "auc", "status"),
    [
        ([0.5, 0.4], 0.7, 0),
        ([0.5, 0.4 * (1 + 9e-6)], 0.7, 0),
        ([0.5, 0.4 * (1 + 2e-5)], 0.7, 1),
        ([0.5 * (1 - 2e-5), 0.4], 0.7, 1),
        ([0.5, float("nan")], 0.7, 1),
        ([0.5, 0.4], 0.7009, 0),
        ([0.5, 0.4], 0.6985, 1),
        ([0.5, 0.4], float("nan"), 1),
    ],
)
def test_a_system_that_differs_is_exit_status_1(capsys, name, losses, auc, status):
    names = (systems.DEFAULT, systems.BEST, "do_fusion=True", systems.ACCELERATED)
    runs = {other: finished_run(other, [0.5, 0.4], 0.7) for other in names}
    runs[name] = finished_run(name, losses, auc)
    assert report.check(list(runs.values())) == status
    output = capsys.readouterr().out
    assert output.count("ok    ") == 6 - status
    assert output.count(f"FAILED  {name}, 2 steps") == status


@pytest.mark.parametrize(("loss", "auc", "status"), [(0.4, 0.6, 0), (0.39, 0.6, 1), (0.4, 0.7, 1)])
def test_a_shorter_run_is_compared_after_its_last_step(loss, auc, status):
    best = finished_run(systems.BEST, [0.5, 0.4, 0.3], 0.7)
    best.aucs[2] = 0.6
    assert report.check([finished_run(systems.DEFAULT, [0.5, loss], auc), best]) == status


def test_the_table_has_the_ratios_to_both_stocks(capsys):
    seconds = {
        systems.DEFAULT: [9.0, 0.4],
        systems.BEST: [9.0, 0.2, 0.1],
        "fused": [9.0, 0.05, 0.1],
    }
    runs = [finished_run(name, [0.5], 0.7) for name in seconds]
    for run in runs:
        run.step_seconds = seconds[run.name]
    report.show(runs, {"fused": dict.fromkeys(step_parts.PARTS, 1.5)})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (fused,) = (line for line in lines if line[:1] == ["fused"])
    assert fused[1:7] == ["1", "15.0", "10.0", "20.0", "2.50", "8.00"]
    assert ["lookups", "1.50"] in lines
    assert ["a", "step", "9.00"] in lines


def test_step_rate_leaves_the_first_block_out():
    assert finished_run("stock", [], 0.5).steps_per_second == pytest.approx(5.0)


@needs_extras
def test_auc_counts_pairs():
    rng = np.random.default_rng(3)
    labels = (rng.random(300) < 0.4).astype(np.float32)
    scores = (rng.integers(0, 40, 300) / 40).astype(np.float32)  # many are equal
    pairs = list(itertools.product(scores[labels == 1], scores[labels == 0]))
    expected = sum((one > zero) + (one == zero) / 2 for one, zero in pairs) / len(pairs)
    assert trainer.auc(labels, scores) == pytest.approx(expected, abs=1e-14)


def test_speedup_pairs_neighbouring_blocks():
    stock, fused = finished_run("stock", [], 0.5), finished_run("fused v2", [], 0.5)
    stock.step_seconds, fused.step_seconds = [5.0, 1.0, 8.0, 3.0], [9.0, 0.5, 2.0, 1.0]
    assert trainer.speedup(stock, fused) == pytest.approx(3.0)  # of 2, 4 and 3
    stock.step_seconds = [5.0, 1.0]
    assert trainer.speedup(stock, fused) == pytest.approx(2.0)


def test_batches_cover_an_epoch_once_and_repeat_for_a_seed():
    rows = synthetic.make_rows(35, seed=1)._replace(labels=np.arange(35, dtype=np.float32))
    first = [batch.labels for batch in trainer.batches(rows, 10, 6, seed=2)]
    again = [batch.labels for batch in trainer.batches(rows, 10, 6, seed=2)]
    assert [len(labels) for labels in first] == [10] * 6
    np.testing.assert_array_equal(first, again)
    for epoch in (first[:3], first[3:]):
        assert len(np.unique(epoch)) == 30
    assert not np.array_equal(first[0], first[3])


def test_batches_need_one_full_batch():
    rows = synthetic.make_rows(9, seed=1)
    with pytest.raises(criteo.InputError, match="9 training rows do not fill a batch of 10; lower"):
        next(trainer.batches(rows, 10, 1, seed=1))


def test_every_model_trains_on_every_batch_in_order():
    class Session:
        def __init__(self):
            self.seen = []

        def run(self, fetches, feed):
            self.seen.append(feed)
            return None, float(feed)

    class Model:
        train_op = loss = None

        def training_feed(self, batch):
            return batch

    runs = [trainer.Run(name, Model(), Session()) for name in ("a", "b")]
    blocks = []
    trainer.train(runs, iter(range(25)), lambda run, steps: blocks.append((run.name, steps)))
    assert blocks == [("a", 10), ("b", 10), ("b", 10), ("a", 10), ("a", 5), ("b", 5)]
    for run in runs:
        assert run.session.seen == list(range(25))
        assert run.losses == list(range(25))
        assert len(run.step_seconds) == 3


def op_types(name, fusion=True, num_columns=COLUMNS):
    (system,) = (one for one in systems.systems(fusion) if one.name == name)
    built = system.build(4, 1, lambda: model.string_placeholders(num_columns))
    return collections.Counter(op.type for op in built.graph.get_operations())


def test_stock_has_no_op_of_ours():
    types = op_types(systems.BEST, num_columns=len(model.NAMES))
    assert not [name for name in types if name.startswith("Fused")]
    assert types["SparseSegmentMean"] == len(criteo.CARDINALITIES)


@pytest.mark.parametrize(
    ("fusion", "op_type"),
    [
        ("v1", "FusedEmbeddingSparsePostLookUp"),
        ("v2", "FusedEmbeddingSparsePostLookUpV2"),
        (True, "FusedEmbeddingResourceGroupLookup"),
    ],
)
def test_edited_columns_have_fused_lookups(fusion, op_type):
    types = op_types(f"do_fusion={fusion}", fusion)
    assert types[op_type] == (1 if fusion is True else COLUMNS)
    # The wide part and the optimizer are stock's.
    assert types["SparseSegmentSum"] == COLUMNS
    assert types["ResourceSparseApplyAdagrad"] == 2 * COLUMNS


def test_the_accelerated_program_has_one_op_for_all_columns():
    types = op_types(systems.ACCELERATED)
    # The wide and the deep part have a lookup each, of the same ids.
    assert types["FusedEmbeddingColumnKeys"] == 1
    assert types["FusedEmbeddingResourceGroupLookup"] == 2
    assert types["FusedEmbeddingResourceSparseApply"] == 1
    assert types["ResourceSparseApplyAdagrad"] == 0


def test_the_program_imports_tensorflow_alone():
    tree = ast.parse(pathlib.Path(model.__file__).read_text())
    imports = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imports == {"collections.abc", "typing", "fused_embedding.demo"}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    assert {alias.name for node in names for alias in node.names} == {"math", "tensorflow"}


@pytest.mark.parametrize(
    ("label", "part"),
    [
        ("unstack = Unpack(categoricals)", "features to ids"),
        ("linear_model_1/linear_model/C1/to_sparse_input/Where = Where(x)", "features to ids"),
        ("linear_model_1/linear_model/C1/lookup = StringToHashBucketFast(x)", "features to ids"),
        ("input_layer/FusedEmbeddingColumnKeys = FusedEmbeddingColumnKeys(x)", "features to ids"),
        ("input_layer/C1_embedding/C1_embedding_weights/Where = Where(lookup)", "lookups"),
        ("linear_model_1/linear_model/FusedX = FusedX(FusedEmbeddingColumnKeys)", "lookups"),
        ("gradients/input_layer/concat_grad/split = SplitV(x)", "gradients of lookups"),
        ("gradients/linear_model_1/linear_model/FusedX_grad/X = X(y)", "gradients of lookups"),
        ("Adagrad/FusedEmbeddingResourceSparseApply = X(input_layer)", "optimizer updates"),
        (
            "gradients/hidden_1/MatMul_grad/MatMul = MatMul(input_layer)",
            "dense layers and the rest",
        ),
        ("hidden_1/MatMul = MatMul(x)", "dense layers and the rest"),
    ],
)
def test_part_of_an_op(label, part):
    assert step_parts.part_of(label) == part


def test_time_is_split_among_the_ops_that_run():
    ops = [("a", 0, 10), ("b", 4, 8), ("b", 4, 6), ("a", 15, 16)]
    # 4 to 6: one third a, two thirds b. 6 to 8: halves. 10 to 15: none.
    want = {"a": 4 + 2 / 3 + 1 + 2 + 1, "b": 4 / 3 + 1, "between ops": 5}
    assert dict(step_parts.split(ops)) == pytest.approx(want)


def test_last_fifth_is_held_out():
    rows = synthetic.make_rows(101, seed=1)
    training, held_out = main.split(rows)
    assert (len(training.labels), len(held_out.labels)) == (80, 21)
    for whole, first, last in zip(rows, training, held_out, strict=True):
        np.testing.assert_array_equal(whole, np.concatenate([first, last]))


def test_held_out_rows_need_both_labels():
    rows = synthetic.make_rows(40, seed=1)._replace(labels=np.ones(40, np.float32))
    with pytest.raises(criteo.InputError, match=r"the last 8 of 40 rows .* all have label 1; an"):
        main.split(rows)
