"""The demo program: stock and fused training side by side."""

import collections
import functools
import pathlib

import numpy as np
import pytest

import processes
from fused_embedding import __main__, extras
from fused_embedding.demo import criteo, main, model, synthetic, trainer

CRITEO = pathlib.Path(__file__).parents[3] / "shared/data/criteo_kaggle/train.tsv.gz"
SHORT = ("--steps=20", "--batch_size=64", "--embedding_dim=5")

needs_extras = pytest.mark.skipif(
    any(not extras.is_installed(name) for name in extras.PACKAGES),
    reason="the demo's packages are not installed: pip install 'fused_embedding[demo]'",
)


run_command = functools.partial(processes.run_module, "fused_embedding")


@needs_extras
@pytest.mark.slow
def test_synthetic_rows(tmp_path):
    result = run_command("demo", *SHORT, "--fusion=v1", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "synthetic, Criteo-shaped" in result.stdout
    assert "ok      largest relative loss difference" in result.stdout
    assert "ok      AUC difference" in result.stdout
    assert "training both: 100%" in result.stderr
    assert (tmp_path / "demo_output/demo.png").read_bytes().startswith(b"\x89PNG")


@needs_extras
@pytest.mark.slow
@pytest.mark.skipif(not CRITEO.exists(), reason=f"real rows are not here: {CRITEO}")
def test_real_rows(tmp_path):
    result = run_command("demo", f"--data={CRITEO}", "--output_dir=plots", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "6,400 for training, 1,600 held out" in result.stdout
    assert (tmp_path / "plots/demo.png").exists()


@pytest.mark.slow
def test_help_lists_the_options(tmp_path):
    result = run_command("demo", "--help", cwd=tmp_path)
    assert "--max_bad_lines: So many malformed lines" in result.stdout


@pytest.fixture
def run_in_process(monkeypatch, capsys):
    errors = []
    monkeypatch.setattr(main.logging, "error", lambda text, *args: errors.append(text % args))

    def run(*arguments):
        with pytest.raises(SystemExit) as exit_info:
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
    assert "pip install 'fused_embedding[demo]'" in output


def finished_run(name, losses, auc):
    run = trainer.Run(name, None, None, losses=losses, step_seconds=[9.0, 0.1, 0.2, 0.3])
    run.auc = auc
    return run


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
def test_models_that_differ_are_exit_status_1(capsys, losses, auc, status):
    stock = finished_run("stock", [0.5, 0.4], 0.7)
    assert main.report(stock, finished_run("fused v2", losses, auc), "demo.png") == status
    assert ("FAILED" in capsys.readouterr().out) == bool(status)


def test_step_rate_leaves_the_first_block_out():
    assert finished_run("stock", [], 0.5).steps_per_second == pytest.approx(5.0)


def test_speedup_pairs_neighbouring_blocks():
    stock, fused = finished_run("stock", [], 0.5), finished_run("fused v2", [], 0.5)
    stock.step_seconds, fused.step_seconds = [5.0, 1.0, 8.0, 3.0], [9.0, 0.5, 2.0, 1.0]
    assert trainer.speedup(stock, fused) == pytest.approx(3.0)  # of 2, 4 and 3


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

        def feed(self, batch):
            return batch

    runs = [trainer.Run(name, Model(), Session()) for name in ("a", "b")]
    blocks = []
    trainer.train(runs, iter(range(25)), blocks.append)
    assert blocks == [10, 10, 5]
    for run in runs:
        assert run.session.seen == list(range(25))
        assert run.losses == list(range(25))
        assert len(run.step_seconds) == 3


@pytest.mark.parametrize("do_fusion", [None, "v1", "v2"])
def test_only_the_fused_model_has_fused_lookups(do_fusion):
    built = model.build(do_fusion, embedding_dim=4, seed=1)
    types = collections.Counter(op.type for op in built.graph.get_operations())
    lookups = {"v1": "FusedEmbeddingSparsePostLookUp", "v2": "FusedEmbeddingSparsePostLookUpV2"}
    num_columns = len(criteo.CARDINALITIES)
    for version, op_type in lookups.items():
        # Wide and deep part: two lookups of each column.
        assert types[op_type] == (2 * num_columns if version == do_fusion else 0), op_type
    assert types["SparseSegmentMean"] == (0 if do_fusion else num_columns)


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
