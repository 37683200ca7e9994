"""The demo on tables without a vocabulary: what they hold, and a run that is killed."""

import collections
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fused_embedding
import processes
from fused_embedding import extras
from fused_embedding.demo import criteo, synthetic, table_demo, table_model, trainer
from fused_embedding.demo.reader import Reader

CRITEO = pathlib.Path(__file__).parents[3] / "shared/data/criteo_kaggle/train.tsv.gz"
STEPS, CHECKPOINT_EVERY, KILL_AFTER = 60, 5, 36

needs_extras = pytest.mark.skipif(
    any(not extras.is_installed(name) for name in extras.PACKAGES),
    reason="the demo's packages are not installed: pip install matplotlib scipy tqdm",
)


def start(cwd, *arguments):
    # The package under test, which may be an installed one.
    package = pathlib.Path(fused_embedding.__file__).parents[1]
    path = os.pathsep.join([str(package), *filter(None, [os.getenv("PYTHONPATH")])])
    command = [sys.executable, "-m", "fused_embedding", "demo", "--embedding-variable", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=-1, stderr=-1, text=True)


def run_demo(cwd, *arguments):
    """What a run prints that is not killed."""
    demo = ("demo", "--embedding-variable", *arguments)
    return processes.output_of(processes.run_module("fused_embedding", *demo, cwd=cwd))


def read_losses(folder, name):
    """All losses that were logged for each step: more than one where a restart repeated it."""
    losses = collections.defaultdict(set)
    for line in (folder / "run" / name / "losses.txt").read_text().splitlines():
        step, loss = line.split()
        losses[int(step)].add(loss)
    return losses


@pytest.fixture(scope="module")
def run_arguments(tmp_path_factory):
    """A run of six epochs of ten batches."""
    random, path = np.random.default_rng(1), tmp_path_factory.mktemp("data") / "rows.tsv"
    with path.open("w") as file:
        for _ in range(800):
            integers = [str(i) for i in random.integers(0, 50, criteo.NUM_INTEGERS)]
            ids = [f"{i:x}" for i in random.zipf(1.3, len(criteo.CARDINALITIES)) % 2**32]
            print(random.integers(2), *integers, *ids, sep="\t", file=file)
    return (
        f"--data={path}",
        f"--steps={STEPS}",
        "--batch_size=64",
        "--embedding_dim=5",
        "--checkpoint_dir=run",
        f"--checkpoint_every={CHECKPOINT_EVERY}",
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, run_arguments):
    folder = tmp_path_factory.mktemp("uninterrupted")
    return folder, run_demo(folder, *run_arguments)


@needs_extras
@pytest.mark.kills
@pytest.mark.parametrize("name", ["all", "filtered"])
def test_a_killed_run_goes_on_with_the_same_losses(tmp_path, run_arguments, uninterrupted, name):
    process, log = start(tmp_path, *run_arguments), tmp_path / "run" / name / "losses.txt"
    while process.poll() is None and not (
        log.exists() and log.read_text().count("\n") > KILL_AFTER
    ):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    killed_at = log.read_text().count("\n")
    output = run_demo(tmp_path, *run_arguments)
    saved_at = [int(line.split()[3]) for line in output.splitlines() if line.startswith("resume")]
    assert killed_at - CHECKPOINT_EVERY <= saved_at[-1] <= killed_at < STEPS
    want, got = read_losses(uninterrupted[0], name), read_losses(tmp_path, name)
    assert list(want) == sorted(got) == list(range(1, STEPS + 1))
    assert got == want
    # The figures too: AUC, sizes.
    lines = [
        [line for line in out.splitlines() if line[:8] in ("held-out", "rows in ", "ids with")]
        for out in (output, uninterrupted[1])
    ]
    assert len(lines[0]) == 3
    assert lines[0] == lines[1]


@needs_extras
@pytest.mark.slow
def test_sizes_are_checked(uninterrupted):
    assert uninterrupted[1].count("ok    ") == 4
    assert "rows after the evaluation" in uninterrupted[1]


@needs_extras
@pytest.mark.slow
@pytest.mark.skipif(not CRITEO.exists(), reason=f"real rows are not here: {CRITEO}")
def test_real_rows(tmp_path):
    output = run_demo(tmp_path, f"--data={CRITEO}", "--columns=5", "--steps=20")
    assert "1,280 for training, 320 held out: train.tsv.gz" in output
    assert output.count("ok    ") == 4


def make_plan(**changes):
    rows = synthetic.make_rows(90, seed=1).first_columns(5)
    plan = {
        "rows": rows.take(slice(70)),
        "held_out": rows.take(slice(70, None)),
        "steps": 5,
        "batch_size": 16,
        "embedding_dim": 3,
        "seed": 1,
        "checkpoint_dir": None,
        "checkpoint_every": 2,
    }
    return table_demo.Plan(**{**plan, **changes})


@pytest.mark.parametrize("name", table_demo.FILTERS)
def test_tables_hold_the_ids_that_occurred_often_enough(name):
    plan = make_plan()
    num_columns = plan.rows.categoricals.shape[1]
    model = table_model.build(table_demo.FILTERS[name], plan.embedding_dim, plan.seed, num_columns)
    run = table_demo.ResumableRun(plan, model, folder=None)
    losses = []
    run.train(losses.append)
    assert len(losses) == 5
    reader, occurrences = plan.reader(), collections.Counter()
    for _ in range(5):
        for row in next(reader).categoricals:
            occurrences.update((column, int(id_)) for column, id_ in enumerate(row) if id_ >= 0)
    least = 1 if name == "every id" else 2
    want = sum(count >= least for count in occurrences.values())
    assert table_demo.expected_sizes(plan)[name] == want
    assert run.statistics()["size"] == want
    trainer.evaluate(run.model, run.session, plan.held_out)
    assert run.statistics()["size"] == want


def make_result(**changes):
    result = {
        "name": "every id",
        "loss": 0.5,
        "steps_per_second": 3.0,
        "auc": 0.7,
        "statistics": {"size": 1000, "filtered": 0, "memory_bytes": 2_000_000},
        "size_after_evaluation": 1000,
    }
    return table_demo.Result(**{**result, **changes})


@pytest.mark.parametrize(
    ("after_evaluation", "expected", "status"),
    [(1000, 1000, 0), (1001, 1000, 1), (1000, 999, 1)],
)
def test_wrong_sizes_are_exit_status_1(capsys, after_evaluation, expected, status):
    result = make_result(size_after_evaluation=after_evaluation)
    assert table_demo.report([result], {"every id": expected}) == status
    output = capsys.readouterr().out
    assert ("FAILED" in output) == bool(status)
    assert "rows in the tables                   1,000" in output


def take(reader, n):
    return [next(reader).labels.tolist() for _ in range(n)]


def numbered_rows(n):
    return synthetic.make_rows(n, seed=1)._replace(labels=np.arange(n, dtype=np.float32))


@pytest.mark.parametrize("num_read", [0, 2, 3, 4, 7])
def test_reader_goes_on_where_it_was(num_read):
    reader = Reader(numbered_rows(35), 10, seed=2)
    take(reader, num_read)
    state = reader.state()
    want = take(reader, 8)
    other = Reader(numbered_rows(35), 10, seed=99)
    other.restore(state)
    assert take(other, 8) == want


def test_reader_refuses_the_state_of_other_rows():
    state = Reader(numbered_rows(35), 10, seed=2).state()
    with pytest.raises(criteo.InputError, match=r"\[35, 10\], and these are \[34, 10\]; give the"):
        Reader(numbered_rows(34), 10, seed=2).restore(state)
