r"""Times whole programs of stock TensorFlow: as they are, and under `fe.accelerate()`.

    python -m benchmarks.columns.accelerate
    python -m benchmarks.columns.accelerate --program=keras --threads=1

A step reads a batch, looks up all columns, runs an MLP and trains everything with Adagrad. Figures
are CPU time of the process. `rest` is the same program without columns: it reads the batch and
trains the MLP. Speedups are those of what remains without it. `stock` runs without Grappler's
arithmetic optimization, with which it is slower; all other systems run as TensorFlow's defaults
have it. All systems have the same losses before they are timed.
"""

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from benchmarks.harness import timing, workloads
from benchmarks.report import results

_PROGRAM = flags.DEFINE_list(
    "program",
    ["wide_deep", "wide_deep_small", "keras"],
    "wide_deep: TF1, input_layer and linear_model; wide_deep_small: it with --small_batch; keras: "
    "DenseFeatures of Keras 2 in fit.",
)
_THREADS = flags.DEFINE_integer("threads", 2, "Intra-op and inter-op threads.", lower_bound=1)
_COLUMNS = flags.DEFINE_integer("columns", 30, "Columns.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch_size", 4096, "Rows of a batch.", lower_bound=1)
_SMALL = flags.DEFINE_integer("small_batch", 512, "Rows of a small batch.", lower_bound=1)
_BUCKETS = flags.DEFINE_integer("buckets", 100_000, "Rows of a table.", lower_bound=8)
_DIM = flags.DEFINE_integer("dim", 16, "Values of a row.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 5, "Timed steps of a system in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

OURS, REST = "accelerate", "rest"
SYSTEMS = ("stock_default", "stock", "do_fusion", OURS, REST)
UNITS = 64  # of the MLP's hidden layer
NUM_BATCHES = 4
FIT_STEPS = 4  # of a call of fit, which is one step here
CHECKED_STEPS = 5


class Program(NamedTuple):
    """One program of a system: what it computes, and how.

    Attributes:
        name: "wide_deep" or "keras".
        system: One of SYSTEMS.
        batch_size: Rows of a batch.
    """

    name: str
    system: str
    batch_size: int


def main(_: list[str]) -> None:
    """Measures each program."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in _PROGRAM.value:
        measure(name)


def measure(name: str) -> None:
    """Measures one program and writes a JSON file."""
    batch_size = _SMALL.value if name.endswith("_small") else _BATCH.value
    kind = name.removesuffix("_small")
    steps = {system: _step(Program(kind, system, batch_size)) for system in SYSTEMS}
    _check(steps)
    samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value, clock=time.process_time_ns)
    measured = {system: timing.summary(of_system) for system, of_system in samples.items()}
    rest = np.median(samples[REST], axis=1, keepdims=True)
    speedups = measured[OURS]["speedup_over"] = {}
    whole = measured[OURS]["speedup_of_step_over"] = {}
    for system in SYSTEMS[: SYSTEMS.index(OURS)]:
        speedups[system] = timing.ratio(samples[system] - rest, samples[OURS] - rest)
        whole[system] = timing.ratio(samples[system], samples[OURS])
    axes: dict[str, Any] = {
        "workload": "accelerate",
        "program": name,
        "mode": "programs",
        "clock": "CPU",
    }
    axes |= {"threads": _THREADS.value, "batch_size": batch_size}
    axes |= {option: flags.FLAGS[option].value for option in ("columns", "buckets", "dim")}
    axes |= {"rounds": _ROUNDS.value, "block": _BLOCK.value}
    cells = [{"phase": "step", "systems": measured}]
    record = results.record_of("benchmarks.columns.accelerate", axes, cells)
    _print_table(name, measured)
    results.write(record, f"accelerate-{name}-t{_THREADS.value}", _OUTPUT.value)


def _print_table(name: str, measured: dict[str, timing.Figures]) -> None:
    """Prints the CPU time of each system, with and without that of `rest`, and speedups."""
    print(f"{name:<16} {'ms CPU':>9} {'less rest':>9} {OURS + ' is faster by':>23}")
    rest = measured[REST]["median_us"]
    for system, figures in measured.items():
        speedup = measured[OURS]["speedup_over"].get(system)
        columns = [figures["median_us"] / 1e3, (figures["median_us"] - rest) / 1e3]
        words = " ".join(f"{value:9.2f}" for value in columns)
        print(f"{system:<16} {words} {speedup['median'] if speedup else '':>23}")


def _features(batch_size: int) -> dict[str, np.ndarray]:
    """Of each column `[NUM_BATCHES, batch_size, 1]` Zipf ids, as strings, integers and numbers."""
    rng = np.random.default_rng(0)
    features: dict[str, np.ndarray] = {}
    for i in range(_COLUMNS.value):
        shape = (NUM_BATCHES, batch_size, 1)
        ids = workloads.zipf_ids(rng, _BUCKETS.value, NUM_BATCHES * batch_size).reshape(shape)
        features[f"c{i:02}"] = _as_kind(ids, i % 3)
    features["label"] = rng.integers(0, 2, (NUM_BATCHES, batch_size, 1)).astype(np.float32)
    return features


def _as_kind(ids: np.ndarray, kind: int) -> np.ndarray:
    """Strings of 8 bytes, integers or floats, in the order of `_categorical_columns`."""
    if kind == 0:
        return np.array([b"%08x" % value for value in ids.ravel()]).reshape(ids.shape)
    return ids.astype(np.int64 if kind == 1 else np.float32)


def _dataset(tf: Any, batch_size: int) -> Any:
    """Batches of raw features and labels, for ever."""
    dataset = tf.data.Dataset.from_tensor_slices(_features(batch_size)).repeat()
    return dataset.map(lambda batch: (batch, batch.pop("label")))


def _categorical_columns(tf: Any) -> list[Any]:
    """Columns of strings that are hashed, of integers that are hashed, and of buckets."""
    fc, columns = tf.feature_column, []
    boundaries = np.unique(np.geomspace(1, _BUCKETS.value, 30)).tolist()
    for i in range(_COLUMNS.value):
        key = f"c{i:02}"
        if i % 3 == 2:
            columns.append(fc.bucketized_column(fc.numeric_column(key), boundaries))
            continue
        dtype = tf.string if i % 3 == 0 else tf.int64
        columns.append(fc.categorical_column_with_hash_bucket(key, _BUCKETS.value, dtype))
    return columns


def _embedding_columns(tf: Any, program: Program) -> list[Any]:
    import fused_embedding as fe

    is_fused = program.system == "do_fusion"
    module = fe.feature_column if is_fused else tf.feature_column
    how: dict[str, Any] = {"do_fusion": True} if is_fused else {}
    return [
        module.embedding_column(column, _DIM.value, initializer=_initializer(tf, i), **how)
        for i, column in enumerate(_categorical_columns(tf))
    ]


def _initializer(tf: Any, seed: int) -> Callable[..., Any]:
    """The same values in every program, and none of them the same."""

    def values(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> Any:
        return 0.1 * tf.random.stateless_uniform(shape, [seed, 1], dtype=dtype)

    return values


def _step(program: Program) -> timing.Step:
    """A step of a program, which is built here; it returns the loss."""
    return {"wide_deep": _wide_deep, "keras": _keras}[program.name](program)


def _accelerated(program: Program) -> contextlib.AbstractContextManager[Any]:
    import fused_embedding as fe

    return fe.accelerate() if program.system == OURS else contextlib.nullcontext()


def _wide_deep(program: Program) -> timing.Step:
    import tensorflow as tf

    from benchmarks.harness.sessions import session_config

    v1 = tf.compat.v1
    v1.logging.set_verbosity(v1.logging.ERROR)  # stock says of each column that it is deprecated
    with tf.Graph().as_default(), _accelerated(program):
        features, labels = v1.data.make_one_shot_iterator(
            _dataset(tf, program.batch_size)
        ).get_next()
        logits = _logits(tf, features, program)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        train = v1.train.AdagradOptimizer(0.05).minimize(loss)
        config = session_config(_THREADS.value, program.system != "stock")
        session = v1.Session(config=config)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        run = session.make_callable([loss, train])
    return lambda _: run()[0]


def _logits(tf: Any, features: dict[str, Any], program: Program) -> Any:
    """Wide and deep; of `rest` the MLP alone, of a batch that is read."""
    import fused_embedding as fe

    v1 = tf.compat.v1
    if program.system == REST:
        with tf.control_dependencies(list(features.values())):
            rows = tf.identity(_rows_of_rest(tf, v1.get_variable, program))
        return _mlp(tf, rows)
    rows = v1.feature_column.input_layer(features, _embedding_columns(tf, program))
    wide: Any = v1.feature_column.linear_model
    how: dict[str, Any] = {}
    if program.system == "do_fusion":
        wide, how = fe.feature_column.linear_model, {"do_fusion": True}
    return _mlp(tf, rows) + wide(features, _categorical_columns(tf), **how)


def _rows_of_rest(tf: Any, make_variable: Callable[..., Any], program: Program) -> Any:
    shape = [program.batch_size, _COLUMNS.value * _DIM.value]
    return make_variable("rows", shape, initializer=_initializer(tf, 99), trainable=False)


def _mlp(tf: Any, rows: Any) -> Any:
    v1 = tf.compat.v1
    width = _COLUMNS.value * _DIM.value
    kernels = [
        v1.get_variable(f"kernel{i}", shape, initializer=_initializer(tf, 100 + i))
        for i, shape in enumerate([(width, UNITS), (UNITS, 1)])
    ]
    return tf.nn.relu(rows @ kernels[0]) @ kernels[1]


def _keras(program: Program) -> timing.Step:
    """A call of fit for FIT_STEPS batches; its loss is their mean."""
    import tensorflow as tf

    is_keras_2 = hasattr(tf.keras.layers, "DenseFeatures")
    keras: Any = tf.keras if is_keras_2 else importlib.import_module("tf_keras")
    dataset = _dataset(tf, program.batch_size).take(FIT_STEPS)
    with _accelerated(program), _options(tf, program):
        if program.system == REST:
            layer = _rest_layer(keras, tf, program)
        else:
            layer = keras.layers.DenseFeatures(_embedding_columns(tf, program))
        hidden, top = (
            keras.layers.Dense(n, a, use_bias=False, kernel_initializer=_initializer(tf, 100 + i))
            for i, (n, a) in enumerate([(UNITS, "relu"), (1, None)])
        )
        model = keras.Sequential([layer, hidden, top])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adagrad(0.05), loss)
        model.fit(dataset, verbose=0)  # traces the step

    def step(_: int) -> float:
        with _options(tf, program):
            return float(model.fit(dataset, verbose=0).history["loss"][0])

    return step


def _rest_layer(keras: Any, tf: Any, program: Program) -> Any:
    """A layer that reads the batch and returns constant rows."""

    class Rows(keras.layers.Layer):
        def build(self, _: Any) -> None:
            shape = [program.batch_size, _COLUMNS.value * _DIM.value]
            self.rows = tf.Variable(_initializer(tf, 99)(shape), trainable=False)

        def call(self, features: Any) -> Any:
            with tf.control_dependencies(list(features.values())):
                return tf.identity(self.rows)

    return Rows()


@contextlib.contextmanager
def _options(tf: Any, program: Program) -> Iterator[None]:
    """Grappler's options for functions that a system calls."""
    tf.config.optimizer.set_experimental_options(
        {"arithmetic_optimization": program.system != "stock"}
    )
    yield


def _check(steps: dict[str, timing.Step]) -> None:
    """Raises AssertionError if systems have other losses than stock."""
    losses: dict[str, Any] = {
        system: [step(i) for i in range(CHECKED_STEPS)]
        for system, step in steps.items()
        if system != REST
    }
    for system, of_system in losses.items():
        if not np.allclose(of_system, losses["stock"], rtol=1e-5, atol=0):
            raise AssertionError(f"{system} has other losses than stock: {losses}")


if __name__ == "__main__":
    app.run(main)
