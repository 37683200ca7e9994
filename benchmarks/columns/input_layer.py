r"""Times `input_layer` on raw features: hash columns over strings, over integers, and ready ids.

    python -m benchmarks.columns.input_layer
    python -m benchmarks.columns.input_layer --feature=int64 --threads=2

A step goes from features in variables, as a pipeline would hand them over, to the rows of all
columns side by side. All systems of feature columns give the same bits before they are timed, and
those of other APIs the same rows within 1e-5. `fused_again` is a second graph of `fused`: how far
both differ is what the machine adds. `ragged` is tf.nn.embedding_lookup_sparse of RaggedTensors
with allow_fast_lookup, which TensorFlow does not follow for a tf.Variable, as that is a
CompositeTensor; `ragged_fast` passes the variable's value, so that it does. `keras` is Hashing,
Embedding and a mean of tf.keras in a tf.function. They run where TensorFlow has them.
"""

import inspect
import os
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from absl import app, flags

from benchmarks.harness import processes, timing, workloads
from benchmarks.report import results

_FEATURE = flags.DEFINE_list(
    "feature", ["string", "int64", "ids"], "string, int64, ids: ready ones."
)
_THREADS = flags.DEFINE_list("threads", ["1", "2"], "Intra-op and inter-op threads.")
_COLUMNS = flags.DEFINE_integer("columns", 26, "Columns.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch_size", 4096, "Rows of a batch.", lower_bound=1)
_BUCKETS = flags.DEFINE_integer("buckets", 100_000, "Rows of a table.", lower_bound=1)
_DIM = flags.DEFINE_integer("dim", 16, "Values of a row.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 5, "Timed steps of a system in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

OURS = "fused"
OF_COLUMNS = ("stock", "stock_default", "do_fusion", OURS, "fused_again")
RAGGED, RAGGED_FAST, KERAS = "ragged", "ragged_fast", "keras"


def main(_: list[str]) -> None:
    """Measures each kind of features with each number of threads."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    axes = {"feature": _FEATURE.value, "threads": _THREADS.value}
    processes.measure_each("columns.input_layer", axes, lambda f, n: measure(f, int(n)))


def measure(feature: str, threads: int) -> None:
    """Measures one kind of features and writes a JSON file."""
    batch = _features(feature)
    steps = {name: _step(name, feature, batch, threads) for name in OF_COLUMNS}
    steps |= _steps_of_other_apis(feature, batch, threads)
    _check(steps)
    samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value)
    measured = {name: timing.summary(of_system) for name, of_system in samples.items()}
    speedups = measured[OURS]["speedup_over"] = {}
    for name in (name for name in steps if name != OURS):
        speedup = speedups[name] = timing.ratio(samples[name], samples[OURS])
        print(
            f"{feature}, {threads} threads: {OURS} is {speedup['median']} times as fast as {name}"
        )
    axes = {"workload": "input_layer", "feature": feature, "mode": "columns", "threads": threads}
    axes |= {name: flags.FLAGS[name].value for name in ("columns", "batch_size", "buckets", "dim")}
    axes |= {"rounds": _ROUNDS.value, "block": _BLOCK.value}
    cells = [{"phase": "forward", "systems": measured}]
    record = results.record_of("benchmarks.columns.input_layer", axes, cells)
    results.write(record, f"input_layer-{feature}-t{threads}", _OUTPUT.value)


def _features(feature: str) -> list[np.ndarray]:
    """Of each column `[batch_size]` Zipf ids, as they are or as strings of 8 bytes."""
    rng = np.random.default_rng(0)
    ids = [workloads.zipf_ids(rng, _BUCKETS.value, _BATCH.value) for _ in range(_COLUMNS.value)]
    if feature != "string":
        return [of_column.astype(np.int64) for of_column in ids]
    return [np.array([b"%08x" % value for value in of_column], object) for of_column in ids]


def _step(name: str, feature: str, batch: list[np.ndarray], threads: int) -> timing.Step:
    """A step of a system, in a graph and a session of its own."""
    import tensorflow as tf

    import fused_embedding as fe
    from benchmarks.harness.sessions import session_config

    v1 = tf.compat.v1
    v1.logging.set_verbosity(v1.logging.ERROR)  # stock says of each column that it is deprecated
    module = fe.feature_column if name == "do_fusion" else tf.feature_column
    how = {"do_fusion": True} if name == "do_fusion" else {}
    layer = fe.feature_column if name.startswith(OURS) else v1.feature_column
    with tf.Graph().as_default():
        features, columns = {}, []
        for i, values in enumerate(batch):
            key = f"c{i:02}"
            dtype = tf.string if values.dtype == object else tf.int64
            features[key] = tf.Variable(values, trainable=False, dtype=dtype)
            categorical = (
                tf.feature_column.categorical_column_with_identity(key, _BUCKETS.value)
                if feature == "ids"
                else tf.feature_column.categorical_column_with_hash_bucket(
                    key, _BUCKETS.value, dtype
                )
            )
            columns.append(
                module.embedding_column(
                    categorical, _DIM.value, initializer=_initializer(tf, i), **how
                )
            )
        rows = layer.input_layer(features, columns)
        session = v1.Session(config=session_config(threads, name == "stock_default"))
        session.run(v1.global_variables_initializer())
        run = session.make_callable(rows)
    return lambda _: cast(Callable[[], Any], run)()


def _steps_of_other_apis(
    feature: str, batch: list[np.ndarray], threads: int
) -> dict[str, timing.Step]:
    """Steps of what has no feature columns, as far as this TensorFlow has it."""
    import tensorflow as tf

    steps: dict[str, timing.Step] = {}
    if "allow_fast_lookup" in inspect.signature(tf.nn.embedding_lookup_sparse).parameters:
        for name in (RAGGED, RAGGED_FAST):
            steps[name] = _step_of_ragged(name, feature, batch, threads)
    if hasattr(tf.keras.layers, "Hashing"):
        steps[KERAS] = _step_of_keras(feature, batch, threads)
    return steps


def _step_of_ragged(name: str, feature: str, batch: list[np.ndarray], threads: int) -> timing.Step:
    """tf.nn's lookups of RaggedTensors, in a graph and a session of its own."""
    import tensorflow as tf

    from benchmarks.harness.sessions import session_config

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        # Row ids are what the lookup reads: from row splits it makes them in eight ops a column.
        row_ids, rows = tf.Variable(np.arange(_BATCH.value), trainable=False), []
        for i, values in enumerate(batch):
            dtype = tf.string if values.dtype == object else tf.int64
            ids = tf.identity(tf.Variable(values, trainable=False, dtype=dtype))
            if feature != "ids":
                words = ids if feature == "string" else tf.strings.as_string(ids)
                ids = tf.strings.to_hash_bucket_fast(words, _BUCKETS.value)
            ragged = tf.RaggedTensor.from_value_rowids(ids, row_ids, _BATCH.value, validate=False)
            table = tf.Variable(_initializer(tf, i)([_BUCKETS.value, _DIM.value], tf.float32))
            params = tf.convert_to_tensor(table) if name == RAGGED_FAST else table
            rows.append(
                tf.nn.embedding_lookup_sparse(
                    params, ragged, None, combiner="mean", allow_fast_lookup=True
                )
            )
        matrix = tf.concat(rows, 1)
        session = v1.Session(config=session_config(threads))
        session.run(v1.global_variables_initializer())
        run = session.make_callable(matrix)
    return lambda _: cast(Callable[[], Any], run)()


def _step_of_keras(feature: str, batch: list[np.ndarray], threads: int) -> timing.Step:
    """Preprocessing and Embedding layers of tf.keras, in a tf.function."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    features, layers = [], []
    for i, values in enumerate(batch):
        dtype = tf.string if values.dtype == object else tf.int64
        features.append(tf.Variable(values[:, None], trainable=False, dtype=dtype))
        table = np.array(_initializer(tf, i)([_BUCKETS.value, _DIM.value], tf.float32))
        embedding = tf.keras.layers.Embedding(_BUCKETS.value, _DIM.value)
        embedding.build([None, 1])
        embedding.set_weights([table])
        layers.append((tf.keras.layers.Hashing(_BUCKETS.value), embedding))

    @tf.function
    def step() -> Any:
        rows = []
        for values, (hashing, embedding) in zip(features, layers, strict=True):
            ids = values.read_value() if feature == "ids" else hashing(values.read_value())
            rows.append(tf.reduce_mean(embedding(ids), 1))
        return tf.concat(rows, 1)

    return lambda _: step().numpy()


def _initializer(tf: Any, seed: int) -> Any:
    """The same rows in every graph, and none of them the same."""
    return lambda shape, dtype, partition_info=None: tf.random.stateless_uniform(
        shape, [seed, 1], dtype=dtype
    )


def _check(steps: dict[str, timing.Step]) -> None:
    """Raises AssertionError if a system gives other rows than stock."""
    want = cast(np.ndarray, steps["stock"](0))
    for name, step in steps.items():
        rows = cast(np.ndarray, step(0))
        is_close = np.allclose(rows, want, rtol=1e-5, atol=0)
        if not (np.array_equal(rows, want) if name in OF_COLUMNS else is_close):
            raise AssertionError(f"{name} gives other rows than stock")


if __name__ == "__main__":
    app.run(main)
