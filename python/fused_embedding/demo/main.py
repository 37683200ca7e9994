"""`python -m fused_embedding demo`: stock and fused training side by side."""

import math
import os
import warnings
from collections.abc import Sequence
from typing import cast

import tensorflow as tf
from absl import flags, logging

from fused_embedding import extras
from fused_embedding.demo import criteo, model, plot, synthetic, table_demo, trainer

_DATA = flags.DEFINE_string(
    "data", None, "Labelled Criteo rows, TAB separated, plain or gzip; synthetic rows without it."
)
_STEPS = flags.DEFINE_integer(
    "steps",
    None,
    "Training steps of each model: 200, or one pass over the rows with --embedding-variable.",
    lower_bound=2 * trainer.BLOCK_STEPS,
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", None, "Rows of a step: 512, or 64 with --embedding-variable.", lower_bound=1
)
_EMBEDDING_DIM = flags.DEFINE_integer("embedding_dim", 16, "Embedding dimension.", lower_bound=1)
_FUSION = flags.DEFINE_enum("fusion", "v2", ["v1", "v2"], "Fusion version of the fused model.")
_MAX_BAD_LINES = flags.DEFINE_integer(
    "max_bad_lines", 10, "So many malformed lines of --data are skipped.", lower_bound=0
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", "demo_output", "Folder of the plot.")
_SEED = flags.DEFINE_integer("seed", 1, "Seed of initial values, row order and synthetic rows.")
_EMBEDDING_VARIABLE = flags.DEFINE_bool(
    "embedding_variable",
    False,
    "Train tables without a vocabulary, with an admission filter and without; nothing of stock.",
)
flags.DEFINE_alias("embedding-variable", "embedding_variable")
_CHECKPOINT_DIR = flags.DEFINE_string(
    "checkpoint_dir",
    None,
    "With --embedding_variable: folder of checkpoints; a run goes on from the last one there.",
)
_CHECKPOINT_EVERY = flags.DEFINE_integer(
    "checkpoint_every", 20, "Steps between two checkpoints.", lower_bound=1
)

_DEFAULT_STEPS = 200
_MAX_LOSS_DIFFERENCE = 1e-5  # relative, at every step
_MAX_AUC_DIFFERENCE = 1e-3
_MAX_HELD_OUT_ROWS = 20_000
_HELD_OUT_SHARE = 0.2


def main(argv: Sequence[str]) -> int:
    """Runs the demo; the exit status is 0, 1 if the models differ, or 2 for unusable input."""
    if len(argv) > 1:
        logging.error("unexpected arguments %s; options start with --", argv[1:])
        return 2
    try:
        for package in extras.PACKAGES:
            extras.load(package)
        return _demo()
    except (criteo.InputError, OSError, ImportError) as error:
        logging.error("%s", error)
        return 2


def _demo() -> int:
    rows, what = _load_rows()
    training, held_out = split(rows)
    print(
        f"rows    {len(training.labels):,} for training, {len(held_out.labels):,} held out: {what}"
    )
    if _DATA.value is None:
        print("        --data PATH takes real Criteo rows")
    # Every feature column warns that it is deprecated; the demo's own messages would drown.
    tf.get_logger().setLevel("ERROR")
    warnings.filterwarnings("ignore", module="tensorflow")
    if _EMBEDDING_VARIABLE.value:
        return _table_demo(training, held_out)
    print(
        f"model   Wide & Deep, {len(model.num_buckets())} embedding tables with "
        f"{sum(model.num_buckets()):,} rows of dimension {_EMBEDDING_DIM.value}, Adagrad"
    )
    stock, fused = _train(training)
    for run in (stock, fused):
        run.auc = trainer.evaluate(run.model, run.session, held_out)
    os.makedirs(_OUTPUT_DIR.value, exist_ok=True)
    path = os.path.join(_OUTPUT_DIR.value, "demo.png")
    plot.draw(path, stock, fused, _title(what), _MAX_LOSS_DIFFERENCE)
    return report(stock, fused, path)


def _table_demo(training: criteo.Rows, held_out: criteo.Rows) -> int:
    """Trains tables without a vocabulary, with every filter of the demo."""
    print(
        f"model   Wide & Deep, {len(model.NAMES)} EmbeddingVariables without a vocabulary, "
        f"dimension {_EMBEDDING_DIM.value} + 1, Adagrad"
    )
    plan = table_demo.Plan(
        rows=training,
        held_out=held_out,
        steps=_STEPS.value or len(training.labels) // _batch_size(),
        batch_size=_batch_size(),
        embedding_dim=_EMBEDDING_DIM.value,
        seed=_SEED.value,
        checkpoint_dir=_CHECKPOINT_DIR.value,
        checkpoint_every=_CHECKPOINT_EVERY.value,
    )
    results = [table_demo.run(plan, name) for name in table_demo.FILTERS]
    return table_demo.report(results, table_demo.expected_sizes(plan))


def _steps() -> int:
    return _STEPS.value or _DEFAULT_STEPS


def _batch_size() -> int:
    return _BATCH_SIZE.value or (64 if _EMBEDDING_VARIABLE.value else 512)


def _load_rows() -> tuple[criteo.Rows, str]:
    """The rows that the steps can use, and what they are."""
    num_rows = _steps() * _batch_size()
    num_rows += min(_MAX_HELD_OUT_ROWS, int(num_rows * _HELD_OUT_SHARE / (1 - _HELD_OUT_SHARE)))
    if _DATA.value is None:
        rows = synthetic.make_rows(num_rows, _SEED.value)
        return rows, "synthetic, Criteo-shaped rows"
    return criteo.read_rows(_DATA.value, num_rows, _MAX_BAD_LINES.value), os.path.basename(
        _DATA.value
    )


def split(rows: criteo.Rows) -> tuple[criteo.Rows, criteo.Rows]:
    """The rows to train on, and the last ones, held out for the AUC.

    Raises:
        InputError: If the held-out rows all have the same label: they have no AUC.
    """
    num_rows = len(rows.labels)
    num_training = num_rows - min(_MAX_HELD_OUT_ROWS, math.ceil(_HELD_OUT_SHARE * num_rows))
    training, held_out = rows.take(slice(num_training)), rows.take(slice(num_training, None))
    if len(set(held_out.labels)) < 2:
        raise criteo.InputError(
            f"the last {len(held_out.labels)} of {num_rows} rows are held out and all have label "
            f"{held_out.labels[0]:.0f}; an AUC needs both labels: shuffle the rows or give more"
        )
    return training, held_out


def _train(training: criteo.Rows) -> list[trainer.Run]:
    stream = trainer.batches(training, _batch_size(), _steps(), _SEED.value)
    fusion = cast(model.Fusion, _FUSION.value)
    versions: dict[str, model.Fusion] = {"stock": None, f"fused {fusion}": fusion}
    runs = trainer.start(
        {
            name: model.build(do_fusion, _EMBEDDING_DIM.value, _SEED.value)
            for name, do_fusion in versions.items()
        }
    )
    with extras.load("tqdm").tqdm(total=_steps(), unit="step", desc="training both") as bar:

        def show(num_steps: int) -> None:
            bar.update(num_steps)
            bar.set_postfix({run.name: f"{run.losses[-1]:.6f}" for run in runs})

        trainer.train(runs, stream, show)
    return runs


def _title(what: str) -> str:
    return (
        f"Wide & Deep on {what}, batch {_batch_size()}, "
        f"TensorFlow {tf.__version__}, {os.cpu_count()} cores"
    )


def report(stock: trainer.Run, fused: trainer.Run, path: str) -> int:
    """Prints the table; returns 0 if the models agree, else 1."""
    loss_difference = plot.relative_difference(stock.losses, fused.losses).max()
    auc_difference = abs(stock.auc - fused.auc)
    checks = (
        ("largest relative loss difference", loss_difference, _MAX_LOSS_DIFFERENCE),
        ("AUC difference", auc_difference, _MAX_AUC_DIFFERENCE),
    )
    print(
        f"\n{'':20}{stock.name:>12}{fused.name:>12}\n"
        f"{'steps per second':20}{stock.steps_per_second:12.1f}{fused.steps_per_second:12.1f}"
        f"   {trainer.speedup(stock, fused):.2f}x\n"
        f"{'last loss':20}{stock.losses[-1]:12.6f}{fused.losses[-1]:12.6f}\n"
        f"{'held-out AUC':20}{stock.auc:12.6f}{fused.auc:12.6f}\n\n"
        f"Medians over blocks of {trainer.BLOCK_STEPS} steps that alternate between the models, "
        "without the first; the ratio\nis that of neighbouring blocks. Grappler's arithmetic "
        "optimisation is off for both: the faster\nsetting for stock TensorFlow.\n"
    )
    for what, value, limit in checks:
        print(f"{'ok    ' if value <= limit else 'FAILED'}  {what} {value:.1e}, limit {limit:.0e}")
    print(f"plot    {path}")
    if all(value <= limit for _, value, limit in checks):
        return 0
    logging.error("%s and %s differ by more than the limits above", stock.name, fused.name)
    return 1
