"""`python -m fused_embedding demo`: one program trained by stock and by fused lookups."""

import contextlib
import functools
import itertools
import math
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import cast

import tensorflow as tf
from absl import flags, logging

from fused_embedding import extras
from fused_embedding.demo import (
    criteo,
    example_files,
    model,
    plot,
    report,
    step_parts,
    synthetic,
    systems,
    table_demo,
    trainer,
)

_DATA = flags.DEFINE_string(
    "data", None, "Labelled Criteo rows, TAB separated, plain or gzip; synthetic rows without it."
)
_STEPS = flags.DEFINE_integer(
    "steps",
    None,
    "Training steps: 300, or one pass over the rows with --embedding-variable.",
    lower_bound=2 * trainer.BLOCK_STEPS,
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", None, "Rows of a step: 512, or 64 with --embedding-variable.", lower_bound=1
)
_EMBEDDING_DIM = flags.DEFINE_integer("embedding_dim", 16, "Embedding dimension.", lower_bound=1)
_COLUMNS = flags.DEFINE_integer(
    "columns",
    len(model.NAMES),
    "Number of categorical fields: the first ones.",
    lower_bound=1,
    upper_bound=len(model.NAMES),
)
_FUSION = flags.DEFINE_enum(
    "fusion", None, ["v1", "v2"], "do_fusion of the system with edited columns; else True."
)
_EXAMPLES = flags.DEFINE_bool(
    "examples",
    False,
    "The programs read and parse tf.Examples from a TFRecord file, which the demo writes first.",
)
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
flags.mark_bool_flags_as_mutual_exclusive(["examples", "embedding_variable"])
_CHECKPOINT_DIR = flags.DEFINE_string(
    "checkpoint_dir",
    None,
    "With --embedding_variable: folder of checkpoints; a run goes on from the last one there.",
)
_CHECKPOINT_EVERY = flags.DEFINE_integer(
    "checkpoint_every", 20, "Steps between two checkpoints.", lower_bound=1
)

_DEFAULT_STEPS = 300
_TRACED_STEPS = 15
_MAX_HELD_OUT_ROWS = 20_000
_HELD_OUT_SHARE = 0.2


def main(argv: Sequence[str]) -> int:
    """Runs the demo; the exit status is 0, 1 if the systems differ, or 2 for unusable input."""
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
    rows = rows.first_columns(_COLUMNS.value)
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
    buckets = model.num_buckets()[: _COLUMNS.value]
    print(
        f"model   Wide & Deep, {len(buckets)} embedding tables with {sum(buckets):,} rows of "
        f"dimension {_EMBEDDING_DIM.value}, Adagrad; "
        "features are raw strings"
    )
    began = time.perf_counter()
    runs, parts = _train(training, held_out.with_strings())
    os.makedirs(_OUTPUT_DIR.value, exist_ok=True)
    path = os.path.join(_OUTPUT_DIR.value, "demo.png")
    plot.draw(path, runs, parts, _title(what))
    report.show(runs, parts)
    status = report.check(runs)
    print(f"plot    {path}\ntime    {time.perf_counter() - began:.0f} s")
    return status


def _table_demo(training: criteo.Rows, held_out: criteo.Rows) -> int:
    """Trains tables without a vocabulary, with every filter of the demo."""
    print(
        f"model   Wide & Deep, {_COLUMNS.value} EmbeddingVariables without a vocabulary, "
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


def _train(training: criteo.Rows, held_out: criteo.Rows) -> tuple[list[trainer.Run], report.Parts]:
    """Trains all systems; their runs, and the parts of a step of two of them."""
    fusion = cast(systems.Fusion, _FUSION.value or True)
    with _inputs(training) as make_inputs:
        runs = [_start(system, make_inputs) for system in systems.systems(fusion)]
        trainer.initialize(runs)
        stream = _stream(training)
        _train_by_turns(runs, stream, held_out)
        traced = [run for run in runs if run.name in report.TRACED]
        return runs, step_parts.measure(traced, list(stream))


def _stream(training: criteo.Rows) -> Iterator[criteo.Rows]:
    """The batches of all steps. Traced steps train as well: they are the last ones."""
    num_batches = _steps() + _TRACED_STEPS
    stream = trainer.batches(training, _batch_size(), num_batches, _SEED.value)
    return map(criteo.Rows.with_strings, stream)


@contextlib.contextmanager
def _inputs(training: criteo.Rows) -> Iterator[model.MakeInputs]:
    """What makes placeholders or, with --examples, the pipeline over a file of the batches."""
    if not _EXAMPLES.value:
        yield functools.partial(model.string_placeholders, _COLUMNS.value)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.tfrecord")
        example_files.write(path, _stream(training))
        size = os.path.getsize(path) / 1e6
        print(f"input   tf.Examples of all steps in a TFRecord file of {size:,.0f} MB")
        yield functools.partial(example_files.read, path, _batch_size(), _COLUMNS.value)


def _start(system: systems.System, make_inputs: model.MakeInputs) -> trainer.Run:
    print(f"build   {system.name}", flush=True)
    return systems.start(system, _EMBEDDING_DIM.value, _SEED.value, make_inputs)


def _train_by_turns(
    runs: list[trainer.Run], stream: Iterator[criteo.Rows], held_out: criteo.Rows
) -> None:
    """Trains on the steps; the first ones with all systems, and evaluates what is compared."""
    first = min(systems.DEFAULT_STEPS, _steps())
    rest = [run for run in runs if run.name != systems.DEFAULT]
    total = first * len(runs) + (_steps() - first) * len(rest)
    with extras.load("tqdm").tqdm(total=total, unit="step", desc="training") as bar:

        def show(run: trainer.Run, num_steps: int) -> None:
            bar.update(num_steps)
            bar.set_postfix_str(f"{run.name}: loss {run.losses[-1]:.6f}")

        trainer.train(runs, itertools.islice(stream, first), show)
        for run in runs:
            if run.name in (systems.DEFAULT, systems.BEST):
                run.evaluate(held_out)
        trainer.train(rest, itertools.islice(stream, _steps() - first), show)
    for run in rest:
        run.evaluate(held_out)


def _title(what: str) -> str:
    return (
        f"Wide & Deep on {what}, batch {_batch_size()}, "
        f"TensorFlow {tf.__version__}, {os.cpu_count()} cores"
    )
