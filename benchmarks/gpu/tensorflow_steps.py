"""Measures lookups of many columns under TensorFlow on a GPU, beside TensorFlow's own.

    python -m benchmarks.gpu.tensorflow_steps --output=build/gpu

26 columns with a table of 1,000,000 rows each and one id a row, about half of a batch's distinct:
the forward pass, and a step of TF1's Adagrad by the sum of all results. Each is a tf.function that
returns a number, and the host's clock runs until it has that number. "fused" and "stock" are
tf.Variables, "keyed" are EmbeddingVariables in the GPU's memory with the same rows. The systems
take turns; their results are compared with each other first.
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from benchmarks.gpu import inputs
from benchmarks.harness import machine, timing
from benchmarks.report import results

NUM_COLUMNS, TABLE_ROWS = 26, 1_000_000
SIZES = ((4096, 16), (4096, 128), (65_536, 16), (65_536, 128))
ROUNDS, BLOCK = 7, 10
LEARNING_RATE = 0.01
GPU = "/GPU:0"
Lookup = Callable[[list[Any], list[tf.SparseTensor]], list[tf.Tensor]]


def fused(tables: list[Any], ids: list[tf.SparseTensor]) -> list[tf.Tensor]:
    """One op for all columns."""
    return fe.nn.group_embedding_lookup_sparse(tables, ids, ["sum"] * len(tables))


def stock(tables: list[tf.Variable], ids: list[tf.SparseTensor]) -> list[tf.Tensor]:
    """Several ops for each."""
    return [
        tf.nn.safe_embedding_lookup_sparse(table, of_column, combiner="sum")
        for table, of_column in zip(tables, ids, strict=True)
    ]


SYSTEMS = {
    "fused": (fused, fe.train.AdagradOptimizer),
    "stock": (stock, tf.compat.v1.train.AdagradOptimizer),
    "keyed": (fused, fe.train.AdagradOptimizer),
}
# Of a table by key, for values and their slots, for a key, and for three times as many free
# entries: one bucket that is full doubles a table, and its slots come later.
BYTES_OF_VALUE, BYTES_OF_KEY = 48, 300


def _keyed_table(rows: tf.Tensor) -> fe.EmbeddingVariable:
    """An EmbeddingVariable in the GPU's memory with these rows."""
    num_rows, dim = rows.shape
    size = num_rows * (BYTES_OF_VALUE * dim + BYTES_OF_KEY)
    storage = fe.StorageOption(fe.StorageType.HBM, storage_size=(size,), experimental=True)
    option = fe.EmbeddingVariableOption(storage_option=storage)
    table = fe.get_embedding_variable("table", dim, ev_option=option)
    table.upsert(tf.range(num_rows, dtype=tf.int64), rows)
    return table


class System:
    """Tables of one system, and its functions of a batch."""

    def __init__(self, name: str, dim: int, table_rows: int):
        lookup, optimizer_class = SYSTEMS[name]
        with tf.device(GPU):
            generator = tf.random.Generator.from_seed(1)
            make_table = _keyed_table if name == "keyed" else tf.Variable
            self.tables = [
                make_table(generator.uniform([table_rows, dim], -1, 1)) for _ in range(NUM_COLUMNS)
            ]
        optimizer = optimizer_class(LEARNING_RATE)

        def combined(ids: tf.Tensor) -> list[tf.Tensor]:
            return lookup(self.tables, [_one_hot(of_column) for of_column in tf.unstack(ids)])

        @tf.function
        def forward(ids: tf.Tensor) -> tf.Tensor:
            with tf.device(GPU):
                return tf.add_n([tf.reduce_sum(one) for one in combined(ids)])

        @tf.function
        def step(ids: tf.Tensor) -> tf.Tensor:
            with tf.device(GPU):
                with tf.GradientTape() as tape:
                    loss = tf.add_n([tf.reduce_sum(one) for one in combined(ids)])
                grads = tape.gradient(loss, self.tables)
                with tf.control_dependencies(
                    [optimizer.apply_gradients(zip(grads, self.tables, strict=True))]
                ):
                    return tf.identity(loss)

        self.forward, self.step = forward, step


def _one_hot(ids: tf.Tensor) -> tf.SparseTensor:
    rows = tf.range(tf.shape(ids, tf.int64)[0], dtype=tf.int64)
    indices = tf.stack([rows, tf.zeros_like(rows)], 1)
    return tf.SparseTensor(indices, ids, tf.stack([tf.shape(ids, tf.int64)[0], 1]))


def _batches(batch_size: int, table_rows: int) -> list[tf.Tensor]:
    rng = np.random.default_rng(0)
    with tf.device(GPU):
        return [
            tf.constant(
                np.stack(
                    [inputs.half_unique(rng, batch_size, table_rows) for _ in range(NUM_COLUMNS)]
                )
            )
            for _ in range(inputs.NUM_BATCHES)
        ]


def measure(batch_size: int, dim: int, table_rows: int = TABLE_ROWS) -> dict[str, dict]:
    """Times all systems at one size, forward pass and step."""
    batches = _batches(batch_size, table_rows)
    systems = {name: System(name, dim, table_rows) for name in SYSTEMS}
    cells: dict[str, dict] = {}
    for phase in ("forward", "step"):
        run = {
            name: functools.partial(_run, getattr(system, phase), batches)
            for name, system in systems.items()
        }
        first = {name: function(0) for name, function in run.items()}
        for name in ("stock", "keyed"):
            np.testing.assert_allclose(first["fused"], first[name], rtol=1e-3, atol=1)
        _check_tables(systems)  # while all have taken the same steps
        samples = timing.alternate(run, ROUNDS, BLOCK)
        cells[phase] = {name: timing.summary(of_system) for name, of_system in samples.items()}
        for name in ("stock", "keyed"):
            cells[phase][f"{name}_over_fused"] = timing.ratio(samples[name], samples["fused"])
    return cells


def _run(function: Callable[[tf.Tensor], tf.Tensor], batches: list[tf.Tensor], i: int) -> float:
    return float(function(batches[i % len(batches)]))


def _check_tables(systems: dict[str, System]) -> None:
    """Some rows of each table agree."""
    rows = np.arange(0, systems["fused"].tables[0].shape[0], 997)
    for name in ("stock", "keyed"):
        for own, other in zip(systems["fused"].tables, systems[name].tables, strict=True):
            with fe.inference():
                np.testing.assert_allclose(tf.gather(own, rows), tf.gather(other, rows), atol=1e-5)


def main() -> None:
    """Prints a line for each size, and writes one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", help="folder of the JSON file")
    parser.add_argument("--commit", help="what the ops were built from, without changes")
    arguments = parser.parse_args()
    gpu = tf.config.list_physical_devices("GPU")
    if not gpu:
        parser.exit(77, "TensorFlow sees no GPU here\n")
    if not fe.ops.cuda.has_kernels():
        parser.exit(77, "the ops have no kernels for GPUs here: make cuda\n")
    cells = {}
    for batch_size, dim in SIZES:
        cells[f"batch_{batch_size}_d{dim}"] = of_size = measure(batch_size, dim)
        for phase, figures in of_size.items():
            times = {name: figures[name]["median_us"] for name in SYSTEMS}
            print(f"batch {batch_size}, dim {dim}, {phase}: {times} us", flush=True)
        _write(cells, gpu[0], arguments)  # each time: a machine may be lent for minutes


def _write(cells: dict, gpu: Any, arguments: argparse.Namespace) -> None:
    details = tf.config.experimental.get_device_details(gpu)
    record = {
        "schema": results.GPU_STEPS_SCHEMA,
        "machine": machine.describe() | {"gpu": details.get("device_name", "unknown")},
        **machine.provenance("benchmarks.gpu.tensorflow_steps"),
        "cells": cells,
    }
    if arguments.commit:
        record |= {"commit": arguments.commit, "dirty": False}
    results.write(record, "gpu_steps", arguments.output)


if __name__ == "__main__":
    main()
