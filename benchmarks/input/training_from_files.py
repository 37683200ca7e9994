r"""Times training steps of the demo's model on tf.Examples from a TFRecord file.

    python -m benchmarks.input.training_from_files
    python -m benchmarks.input.training_from_files --batch_size=512 --threads=1

The file has synthetic Criteo-shaped rows, a feature for each of 26 strings and 13 numbers, and is
in the page cache. A step reads, parses, looks up and trains, as a program of TensorFlow alone does
(example_files.py and model.py in fused_embedding/demo): `stock` at its best, and the same program
built under `fe.accelerate()`. `accelerated_again` says how far two equal things are apart. All give
the same losses before they are timed. Figures are CPU time of the process; those of the wall clock
are beside them, and with several threads they are what counts.
"""

import functools
import os
import tempfile
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.harness import processes, timing
from benchmarks.input import serialized_rows
from benchmarks.report import results

_BATCHES = flags.DEFINE_integer("file_batches", 20, "Batches in the file.", lower_bound=1)
_COLUMNS = flags.DEFINE_integer(
    "columns", 26, "Number of categorical fields: the first ones.", lower_bound=1
)
_DIM = flags.DEFINE_integer("embedding_dim", 16, "Embedding dimension.", lower_bound=1)

STOCK, OURS, AGAIN = "stock", "accelerated", "accelerated_again"
SYSTEMS = (STOCK, OURS, AGAIN)
# Batches that a pipeline has parsed before they are asked for, in the time of the system before.
_AHEAD = 4


def main(_: list[str]) -> None:
    """Measures with each number of threads."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    axes = {"threads": flags.FLAGS.threads}
    run = "input.training_from_files"
    processes.measure_each(run, axes, lambda threads: measure(int(threads)))


def measure(threads: int) -> None:
    """Measures all systems and writes a JSON file."""
    from fused_embedding.demo import criteo, example_files, synthetic, trainer

    batch_size = flags.FLAGS.batch_size
    rows = synthetic.make_rows(batch_size * _BATCHES.value, seed=1)
    rows = rows.first_columns(_COLUMNS.value)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.tfrecord")
        batches = trainer.batches(rows, batch_size, _BATCHES.value, seed=1)
        example_files.write(path, map(criteo.Rows.with_strings, batches))
        num_bytes = os.path.getsize(path)
        systems = _measured(path, batch_size, threads)
    cell = {"phase": "step", "num_bytes": num_bytes, "systems": systems}
    axes: dict[str, Any] = {"workload": "criteo", "mode": "training_files", "threads": threads}
    options = ("columns", "batch_size", "embedding_dim", "file_batches", "rounds", "block")
    axes |= {option: flags.FLAGS[option].value for option in options}
    record = results.record_of("benchmarks.input.training_from_files", axes, [cell])
    results.write(record, f"training_files-b{batch_size}-t{threads}", flags.FLAGS.output)


def _measured(path: str, batch_size: int, threads: int) -> dict[str, Any]:
    """The figures of each system: CPU time, and the wall clock's under "wall"."""
    from fused_embedding.demo import trainer

    runs = {name: _run(name, path, batch_size, threads) for name in SYSTEMS}
    trainer.initialize(list(runs.values()))
    losses = [[float(_loss(run)) for _ in range(3)] for run in runs.values()]
    np.testing.assert_allclose(losses, np.broadcast_to(losses[0], np.shape(losses)), rtol=1e-5)
    steps = {name: _step(run) for name, run in runs.items()}
    rounds, block = flags.FLAGS.rounds, flags.FLAGS.block
    samples = timing.alternate(steps, rounds, block, untimed=_AHEAD, clock=timing.cpu_and_wall)
    measured = serialized_rows.figures_of(samples)
    ours = measured[OURS]
    print(
        f"{threads} threads: {ours['median_us'] / 1e3:.2f} ms CPU, "
        f"{ours['speedup_over'][STOCK]['median']} times as fast as stock, "
        f"{ours['wall']['speedup_over'][STOCK]['median']} by the wall clock"
    )
    return measured


def _run(name: str, path: str, batch_size: int, threads: int) -> Any:
    """The program of a system in a session of so many threads."""
    import tensorflow as tf

    from benchmarks.harness.sessions import session_config
    from fused_embedding.demo import example_files, systems, trainer

    [system] = (
        one
        for one in systems.systems(fusion=True)
        if one.name == (systems.BEST if name == STOCK else systems.ACCELERATED)
    )
    read = functools.partial(example_files.read, path, batch_size, _COLUMNS.value)
    built = system.build(_DIM.value, 1, read)
    session = tf.compat.v1.Session(graph=built.graph, config=session_config(threads))
    return trainer.Run(name, built, session)


def _loss(run: Any) -> Any:
    return run.session.run((run.model.train_op, run.model.loss))[1]


def _step(run: Any) -> timing.Step:
    train = run.session.make_callable(run.model.train_op)
    return lambda _: train()


if __name__ == "__main__":
    app.run(main)
