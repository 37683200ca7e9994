r"""Times the way from serialized examples to the rows of an input layer.

    python -m benchmarks.input.serialized_rows
    python -m benchmarks.input.serialized_rows --features=strings --data=written --threads=1

The examples are those of benchmarks.input.parse_example: 26 `strings`, or `integers` below 10^8 in
their place, and 13 floats, `written` in Python's order or `shuffled`, in a variable. Each string or
integer is hashed into 10^5 buckets and looked up in a table of its own, of dim 16. `stock` is
tf.io.parse_example and stock's input_layer, `parsed` are fe.io's and fe.feature_column's, and
`serialized` is fe.feature_column.input_layer over the examples themselves. All give the same rows
before they are timed; `serialized_again` says how far two equal things are apart. Figures are CPU
time of the process; those of the wall clock are beside them.
"""

import os
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from absl import app, flags

from benchmarks.harness import processes, timing
from benchmarks.input import parse_example
from benchmarks.report import results

_FEATURES = flags.DEFINE_list("features", ["strings", "integers"], "What is hashed.")

SYSTEMS = ("stock", "parsed", "serialized", "serialized_again")
DATA = ("written", "shuffled")
_BUCKETS, _DIM = 100_000, 16


def main(_: list[str]) -> None:
    """Measures with each number of threads."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    axes = {"threads": flags.FLAGS.threads}
    processes.measure_each("input.serialized_rows", axes, lambda threads: measure(int(threads)))


def measure(threads: int) -> None:
    """Measures all features and data and writes a JSON file."""
    cells = []
    for features in _FEATURES.value:
        for data in (data for data in flags.FLAGS.data if data in DATA):
            examples = parse_example.examples_of(data, are_integers=features == "integers")
            systems = _measured(examples, data, features, threads)
            cell = {"phase": f"{features} {data}", "data": data, "features": features}
            cells.append({**cell, "num_bytes": sum(map(len, examples)), "systems": systems})
    axes: dict[str, Any] = {"workload": "serialized_rows", "mode": "serialized"}
    options = ("batch_size", "strings", "floats", "rounds", "block")
    axes |= {"threads": threads} | {option: flags.FLAGS[option].value for option in options}
    record = results.record_of("benchmarks.input.serialized_rows", axes, cells)
    results.write(record, f"serialized_rows-t{threads}", flags.FLAGS.output)


def _measured(examples: list[bytes], data: str, features: str, threads: int) -> dict[str, Any]:
    """The figures of each system: CPU time, and the wall clock's under "wall"."""
    steps, rows = {}, {}
    for name in SYSTEMS:
        steps[name], rows[name] = _step(name, examples, (data, features), threads)
        np.testing.assert_array_equal(rows[name], rows["stock"], err_msg=name)
    rounds, block = flags.FLAGS.rounds, flags.FLAGS.block
    samples = timing.alternate(steps, rounds, block, clock=timing.cpu_and_wall)
    measured = figures_of(samples)
    ours = measured["serialized"]
    print(
        f"{features} {data}, {threads} threads: {ours['median_us'] / 1e3:.2f} ms CPU, "
        f"{ours['speedup_over']['stock']['median']} times as fast as stock, "
        f"{ours['speedup_over']['parsed']['median']} times as fast as parsed"
    )
    return measured


def figures_of(samples: dict[str, np.ndarray]) -> dict[str, Any]:
    """Of each system CPU time and its ratio to the others', and the wall clock's under "wall"."""
    cpu, wall = (
        figures_of_clock({name: of_system[..., clock] for name, of_system in samples.items()})
        for clock in (0, 1)
    )
    return {name: cpu[name] | {"wall": wall[name]} for name in samples}


def figures_of_clock(samples: dict[str, np.ndarray]) -> dict[str, Any]:
    """Of each system its times and their ratios to the others'."""
    return {
        name: timing.summary(times)
        | {"speedup_over": {o: timing.ratio(samples[o], times) for o in samples if o != name}}
        for name, times in samples.items()
    }


def _step(
    name: str, examples: list[bytes], what: tuple[str, str], threads: int
) -> tuple[timing.Step, np.ndarray]:
    """A step from examples to rows, in a graph and a session of its own; and the rows.

    The examples are in a variable, and a step fetches nothing: neither is a part of the way.
    """
    import tensorflow as tf

    import fused_embedding as fe
    from benchmarks.harness.sessions import session_config

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        v1.set_random_seed(1)
        batch = tf.Variable(examples, trainable=False, dtype=tf.string)
        serialized = batch.read_value()
        columns = _columns(*what)
        spec = tf.feature_column.make_parse_example_spec(columns)
        if name == "stock":
            parsed = tf.io.parse_example(serialized, spec)
            rows = v1.feature_column.input_layer(parsed, columns)
        elif name == "parsed":
            parsed = fe.io.parse_example(serialized, spec)
            rows = fe.feature_column.input_layer(parsed, columns)
        else:
            rows = fe.feature_column.input_layer(serialized=serialized, feature_columns=columns)
        session = v1.Session(config=session_config(threads))
        session.run(v1.global_variables_initializer())
        run = cast(Callable[[], Any], session.make_callable(rows.op))
        return lambda _: run(), session.run(rows)


def _columns(data: str, features: str) -> list[Any]:
    import tensorflow as tf

    fc = tf.feature_column
    hashed, floats = parse_example.names_of(data)
    dtype = tf.int64 if features == "integers" else tf.string
    columns = [
        fc.embedding_column(fc.categorical_column_with_hash_bucket(name, _BUCKETS, dtype), _DIM)
        for name in hashed
    ]
    return columns + [fc.numeric_column(name) for name in floats]


if __name__ == "__main__":
    app.run(main)
