r"""Times batches from files: TFRecord files of tf.Examples, and Parquet files of the same values.

    python -m benchmarks.input.parquet --block=8
    python -m benchmarks.input.parquet --block=8 --features=integers --threads=1

A row has 26 `strings`, or `integers` in their place, and 13 floats. `stock` is TFRecordDataset and
tf.io.parse_example, `parsed` is fe.io's in its place, `lists` and `plain` are fe.data.parquet over
columns of lists of one value and over columns of values. A step takes `--block` batches from the
dataset, and waits until the dataset has read ahead again, so that all that it does is in its own
time; the file is in the page cache. All give the same values before they are timed; `lists_again`
says how far two equal things are apart. Figures are CPU time of the process, for a batch.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.harness import processes, timing
from benchmarks.input import serialized_rows, training_from_files  # noqa: F401  flags of the second
from benchmarks.report import results

SYSTEMS = ("stock", "parsed", "lists", "lists_again", "plain")
_BATCHES_OF_GROUP = 4  # Parquet's row groups have so many
_SECONDS_TO_READ_AHEAD = 0.3


def main(_: list[str]) -> None:
    """Measures with each number of threads."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    axes = {"threads": flags.FLAGS.threads}
    processes.measure_each("input.parquet", axes, lambda threads: measure(int(threads)))


def measure(threads: int) -> None:
    """Measures all features and writes a JSON file."""
    import tensorflow as tf

    if flags.FLAGS.block % _BATCHES_OF_GROUP:
        raise app.UsageError(f"--block must be a multiple of {_BATCHES_OF_GROUP}: of row groups")
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    cells = []
    for features in flags.FLAGS.features:
        with tempfile.TemporaryDirectory() as folder:
            sizes = _write(folder, features)
            systems = _measured(folder, features, threads)
        cells.append({"phase": features, "num_bytes": sizes, "systems": systems})
    axes: dict[str, Any] = {"workload": "parquet", "mode": "parquet", "threads": threads}
    options = ("batch_size", "strings", "floats", "file_batches", "rounds", "block")
    axes |= {option: flags.FLAGS[option].value for option in options}
    record = results.record_of("benchmarks.input.parquet", axes, cells)
    results.write(record, f"parquet-t{threads}", flags.FLAGS.output)


def _measured(folder: str, features: str, threads: int) -> dict[str, Any]:
    """The figures of each system."""
    batches = {name: iter(_dataset(name, folder, features, threads)) for name in SYSTEMS}
    first = {name: _flat_values(next(batches[name])) for name in SYSTEMS}
    for name, values in first.items():
        for got, want in zip(values, first["stock"], strict=True):
            np.testing.assert_array_equal(got, want, err_msg=name)
    steps = {name: _step(of_system) for name, of_system in batches.items()}
    samples = timing.alternate(steps, flags.FLAGS.rounds, 1, clock=time.process_time_ns)
    of_batch = {name: of_system / flags.FLAGS.block for name, of_system in samples.items()}
    measured = serialized_rows.figures_of_clock(of_batch)
    for name in ("parsed", "lists", "plain"):
        ratio = measured[name]["speedup_over"]["stock"]["median"]
        print(
            f"{features}, {threads} threads, {name}: {measured[name]['median_us'] / 1e3:.2f} ms "
            f"CPU, {ratio} times as fast as stock"
        )
    return measured


def _step(batches: Iterator[Any]) -> timing.Step:
    def step(_: int) -> None:
        for _ in range(flags.FLAGS.block):
            next(batches)
        time.sleep(_SECONDS_TO_READ_AHEAD)

    return step


def _names(features: str) -> tuple[list[str], list[str]]:
    """Of the strings or integers, and of the floats."""
    return (
        [f"{features[0]}{i}" for i in range(flags.FLAGS.strings)],
        [f"f{i}" for i in range(flags.FLAGS.floats)],
    )


def _dataset(name: str, folder: str, features: str, threads: int) -> Any:
    """The batches of a system, without end."""
    import tensorflow as tf

    import fused_embedding as fe

    size = flags.FLAGS.batch_size
    if name.startswith(("lists", "plain")):
        path = f"{folder}/{name.removesuffix('_again')}.parquet"
        dataset = fe.data.parquet(path, batch_size=size).repeat()
    else:
        ids, floats = _names(features)
        dtype = tf.int64 if features == "integers" else tf.string
        spec = {key: tf.io.VarLenFeature(dtype) for key in ids}
        spec |= {key: tf.io.FixedLenFeature([], tf.float32) for key in floats}
        parse = tf.io.parse_example if name == "stock" else fe.io.parse_example
        dataset = tf.data.TFRecordDataset(f"{folder}/rows.tfrecord").repeat().batch(size)
        dataset = dataset.map(lambda rows: parse(rows, spec)).prefetch(1)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    return dataset.with_options(options)


def _flat_values(batch: dict[str, Any]) -> list[np.ndarray]:
    """The values of each feature."""
    import tensorflow as tf

    tensors = [tensor for _, tensor in sorted(batch.items())]
    return [(t if isinstance(t, tf.Tensor) else t.values).numpy() for t in tensors]


def _write(folder: str, features: str) -> dict[str, int]:
    """Writes the files of all systems; the bytes of each."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import tensorflow as tf

    rng = np.random.default_rng(0)
    num_rows = flags.FLAGS.batch_size * flags.FLAGS.file_batches
    names, floats = _names(features)
    numbers = rng.integers(2**32, size=(num_rows, len(names)))
    of_floats = rng.random((num_rows, len(floats)), np.float32)
    ids: Any = numbers
    if features == "strings":
        texts: list[Any] = [b"%08x" % number for number in numbers.ravel().tolist()]
        ids = np.array(texts, object).reshape(numbers.shape)
    with tf.io.TFRecordWriter(f"{folder}/rows.tfrecord") as writer:
        for row, of_row in zip(ids, of_floats, strict=True):
            writer.write(_example(dict(zip(names, row, strict=True)), floats, of_row))
    plain = {name: pa.array(ids[:, i]) for i, name in enumerate(names)}
    offsets = pa.array(np.arange(num_rows + 1, dtype=np.int32))
    lists = {name: pa.ListArray.from_arrays(offsets, ids) for name, ids in plain.items()}
    dense = {name: pa.array(of_floats[:, i]) for i, name in enumerate(floats)}
    rows_of_group = flags.FLAGS.batch_size * _BATCHES_OF_GROUP
    for name, columns in {"plain": plain, "lists": lists}.items():
        pq.write_table(pa.table(columns | dense), f"{folder}/{name}.parquet", rows_of_group)
    return {entry.name: entry.stat().st_size for entry in os.scandir(folder)}


def _example(ids: dict[str, Any], floats: list[str], of_floats: np.ndarray) -> bytes:
    import tensorflow as tf

    feature: dict[str, Any] = {}
    for name, value in ids.items():
        if isinstance(value, bytes):
            feature[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        else:
            feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    for name, value in zip(floats, of_floats, strict=True):
        feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


if __name__ == "__main__":
    app.run(main)
