r"""Times `fe.io.parse_example` beside `tf.io.parse_example`: a batch of click examples.

    python -m benchmarks.input.parse_example
    python -m benchmarks.input.parse_example --data=shuffled --layout=varlen --threads=1

An example has 26 strings of 8 bytes, 13 floats and a label that is not asked for. `written` has
them in the order in which Python's `tf.train.Example` writes them, `shuffled` in another order in
each example. `long_names` is `written` with names like categorical_feature_7, `unused` is `written`
with 52 features that are not asked for. A step parses the batch, which is in a variable, into all
outputs. Both functions give the same bits before they are timed. `fused_again` is a second graph of
`fused`: how far both differ is what the machine adds. Figures are CPU time of the process; those of
the wall clock are beside them, and with several threads they are what counts.
"""

import os
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from absl import app, flags

from benchmarks.harness import processes, timing
from benchmarks.report import results

_DATA = flags.DEFINE_list("data", ["written", "shuffled", "long_names", "unused"], "Examples.")
_LAYOUT = flags.DEFINE_list("layout", ["varlen", "ragged", "fixed"], "Of the strings.")
_THREADS = flags.DEFINE_list("threads", ["1", "2"], "Intra-op and inter-op threads.")
_BATCH = flags.DEFINE_integer("batch_size", 4096, "Examples of a batch.", lower_bound=1)
_STRINGS = flags.DEFINE_integer("strings", 26, "Strings of an example.", lower_bound=1)
_FLOATS = flags.DEFINE_integer("floats", 13, "Floats of an example.", lower_bound=0)
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 5, "Timed steps of a system in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

STOCK, OURS, AGAIN = "stock", "fused", "fused_again"
SYSTEMS = (STOCK, OURS, AGAIN)
_UNUSED = 52


def main(_: list[str]) -> None:
    """Measures with each number of threads."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    axes = {"threads": _THREADS.value}
    processes.measure_each("input.parse_example", axes, lambda threads: measure(int(threads)))


def measure(threads: int) -> None:
    """Measures all data and layouts and writes a JSON file."""
    cells = []
    for data in _DATA.value:
        examples = examples_of(data)
        for layout in _LAYOUT.value:
            num_bytes = sum(map(len, examples))
            systems = _measured(examples, data, layout, threads)
            cell = {"phase": f"{data} {layout}", "data": data, "layout": layout}
            cells.append({**cell, "num_bytes": num_bytes, "systems": systems})
    axes: dict[str, Any] = {"workload": "parse_example", "mode": "input", "threads": threads}
    options = ("batch_size", "strings", "floats", "rounds", "block")
    axes |= {option: flags.FLAGS[option].value for option in options}
    record = results.record_of("benchmarks.input.parse_example", axes, cells)
    results.write(record, f"parse_example-t{threads}", _OUTPUT.value)


def _measured(examples: list[bytes], data: str, layout: str, threads: int) -> dict[str, Any]:
    """The figures of each system: CPU time, and the wall clock's under "wall"."""
    steps = {name: _step(name, examples, data, layout, threads) for name in SYSTEMS}
    _check(examples, data, layout)
    samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value, clock=timing.cpu_and_wall)
    cpu, wall = ({name: of[..., i] for name, of in samples.items()} for i in (0, 1))
    measured: dict[str, Any] = {
        name: {**timing.summary(cpu[name]), "wall": timing.summary(wall[name])} for name in SYSTEMS
    }
    for name in (STOCK, AGAIN):
        for clock, figures in ((cpu, measured[OURS]), (wall, measured[OURS]["wall"])):
            ratios = figures.setdefault("speedup_over", {})
            ratios[name] = timing.ratio(clock[name], clock[OURS])
    over = measured[OURS]["speedup_over"][STOCK]["median"]
    over_wall = measured[OURS]["wall"]["speedup_over"][STOCK]["median"]
    print(
        f"{data} {layout}, {threads} threads: {measured[OURS]['median_us'] / 1e3:.2f} ms CPU, "
        f"{over} times as fast as stock; by the wall clock {over_wall} times"
    )
    return measured


def names_of(data: str) -> tuple[list[str], list[str]]:
    """Of the strings and of the floats."""
    texts, floats = ("categorical_feature_", "numeric_feature_") if "long" in data else ("c", "d")
    return (
        [f"{texts}{i}" for i in range(_STRINGS.value)],
        [f"{floats}{i}" for i in range(_FLOATS.value)],
    )


def examples_of(data: str, are_integers: bool = False) -> list[bytes]:
    """Serialized examples, with integers up to 10^8 in the place of strings if they are wanted."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    texts, floats = names_of(data)
    made = []
    for _ in range(_BATCH.value):
        feature = {}
        for name in texts:
            number = int(rng.integers(10**8 if are_integers else 2**32))
            if are_integers:
                integers = tf.train.Int64List(value=[number])
                feature[name] = tf.train.Feature(int64_list=integers)
            else:
                texts_list = tf.train.BytesList(value=[b"%08x" % number])
                feature[name] = tf.train.Feature(bytes_list=texts_list)
        for name in [*floats, "label", *(f"u{i}" for i in range(_UNUSED) if data == "unused")]:
            value = tf.train.FloatList(value=[float(rng.random())])
            feature[name] = tf.train.Feature(float_list=value)
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        made.append(_shuffled(rng, feature) if data == "shuffled" else example.SerializeToString())
    return made


def _shuffled(rng: np.random.Generator, feature: dict[str, Any]) -> bytes:
    """The entries in a random order: messages of one entry each, one after the other in one."""
    import tensorflow as tf

    entries = [
        tf.train.Features(feature={name: value}).SerializeToString()
        for name, value in feature.items()
    ]
    content = b"".join(entries[i] for i in rng.permutation(len(entries)))
    return b"\x0a" + _varint(len(content)) + content  # the field `features` of Example


def _varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head += bytes([number & 127 | 128])
        number >>= 7
    return head + bytes([number])


def _spec(data: str, layout: str) -> dict[str, Any]:
    """The features that are asked for."""
    import tensorflow as tf

    texts, floats = names_of(data)
    make = {
        "varlen": tf.io.VarLenFeature,
        "ragged": tf.io.RaggedFeature,
        "fixed": lambda dtype: tf.io.FixedLenFeature([1], dtype),
    }[layout]
    spec = {name: make(tf.string) for name in texts}
    return spec | {name: tf.io.FixedLenFeature([1], tf.float32) for name in floats}


def _parse(name: str) -> Callable[..., Any]:
    import tensorflow as tf

    import fused_embedding as fe

    return cast(Callable[..., Any], tf.io.parse_example if name == STOCK else fe.io.parse_example)


def _step(name: str, examples: list[bytes], data: str, layout: str, threads: int) -> timing.Step:
    """A step of a system, in a graph and a session of its own."""
    import tensorflow as tf

    from benchmarks.harness.sessions import session_config

    v1 = tf.compat.v1
    config = session_config(threads)
    # Grappler removes an op of which nothing is fetched, and a fetch would copy strings to Python.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default():
        batch = tf.Variable(examples, trainable=False, dtype=tf.string)
        parsed = _parse(name)(batch.read_value(), _spec(data, layout))
        all_outputs = tf.group(*tf.nest.flatten(parsed, expand_composites=True))
        session = v1.Session(config=config)
        session.run(v1.global_variables_initializer())
        run = session.make_callable(all_outputs)
    return lambda _: cast(Callable[[], Any], run)()


def _check(examples: list[bytes], data: str, layout: str) -> None:
    """Raises AssertionError unless both functions give the same bits."""
    import tensorflow as tf

    spec = _spec(data, layout)
    of_both = [
        tf.nest.flatten(_parse(name)(examples, spec), expand_composites=True)
        for name in (STOCK, OURS)
    ]
    for want, got in zip(*of_both, strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


if __name__ == "__main__":
    app.run(main)
