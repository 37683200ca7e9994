r"""Times `input_layer` for one user and many items: the user's columns looked up once, or per item.

    python -m benchmarks.columns.user_rows
    python -m benchmarks.columns.user_rows --items=1000 --threads=2

A step goes from features in variables, as a request has them, to the rows of all columns side by
side. `stock` and `expanded` repeat the user's features for each item, and look up all rows: the
former by stock's layer, the latter by ours. `rows` passes the features as they are, and an index.
All systems compute the same before they are timed. `rows_again` is a second graph of `rows`: how
far both differ is what the machine adds.
"""

import os
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from absl import app, flags

from benchmarks.harness import timing, workloads
from benchmarks.report import results

_THREADS = flags.DEFINE_list("threads", ["1", "2"], "Intra-op and inter-op threads.")
_PHASE = flags.DEFINE_list("phase", ["forward", "gradient"], "forward, gradient: with it.")
_ITEMS = flags.DEFINE_integer("items", 200, "Items of the user.", lower_bound=1)
_USER_COLUMNS = flags.DEFINE_integer("user_columns", 20, "Columns of the user.", lower_bound=1)
_ITEM_COLUMNS = flags.DEFINE_integer("item_columns", 6, "Columns of an item.", lower_bound=1)
_LONG = flags.DEFINE_integer("long", 5, "Columns of the user with many ids.", lower_bound=0)
_LENGTH = flags.DEFINE_integer("length", 50, "Ids of such a column.", lower_bound=1)
_BUCKETS = flags.DEFINE_integer("buckets", 100_000, "Rows of a table.", lower_bound=1)
_DIM = flags.DEFINE_integer("dim", 16, "Values of a row.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 20, "Timed steps of a system in a round.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

OURS = "rows"
SYSTEMS = ("stock", "expanded", OURS, "rows_again")
_AXES = ("items", "user_columns", "item_columns", "long", "length", "buckets", "dim")


def main(_: list[str]) -> None:
    """Measures with each number of threads."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for threads in map(int, _THREADS.value):
        measure(threads)


def measure(threads: int) -> None:
    """Measures all phases and writes a JSON file."""
    cells = [{"phase": phase, "systems": _measured(phase, threads)} for phase in _PHASE.value]
    axes = {"workload": "user_rows", "mode": "rows", "threads": threads}
    axes |= {name: flags.FLAGS[name].value for name in (*_AXES, "rounds", "block")}
    record = results.record_of("benchmarks.columns.user_rows", axes, cells)
    results.write(record, f"user_rows-t{threads}", _OUTPUT.value)


def _measured(phase: str, threads: int) -> dict[str, Any]:
    """The figures of each system."""
    batch = _features()
    steps = {name: _step(name, phase, batch, threads) for name in SYSTEMS}
    _check(steps)
    samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value)
    measured: dict[str, Any] = {name: timing.summary(times) for name, times in samples.items()}
    speedups = measured[OURS]["speedup_over"] = {}
    for name in (name for name in SYSTEMS if name != OURS):
        speedup = speedups[name] = timing.ratio(samples[name], samples[OURS])
        print(f"{phase}, {threads} threads: {OURS} is {speedup['median']} times as fast as {name}")
    return measured


def _features() -> dict[str, np.ndarray]:
    """By key `[1, width]` Zipf ids of the user, and `[items, 1]` of the items."""
    rng = np.random.default_rng(0)
    shapes = {f"user{i:02}": (1, 1) for i in range(_USER_COLUMNS.value)}
    shapes |= {f"user{i:02}": (1, _LENGTH.value) for i in range(min(_LONG.value, len(shapes)))}
    shapes |= {f"item{i:02}": (_ITEMS.value, 1) for i in range(_ITEM_COLUMNS.value)}
    return {
        key: workloads.zipf_ids(rng, _BUCKETS.value, int(np.prod(shape))).reshape(shape)
        for key, shape in shapes.items()
    }


def _step(name: str, phase: str, batch: dict[str, np.ndarray], threads: int) -> timing.Step:
    """A step of a system, in a graph and a session of its own."""
    import tensorflow as tf

    from benchmarks.harness.sessions import session_config

    v1 = tf.compat.v1
    v1.logging.set_verbosity(v1.logging.ERROR)  # stock says of each column that it is deprecated
    with tf.Graph().as_default():
        fetched = _layer(tf, name, batch)
        if phase == "gradient":
            loss = tf.reduce_sum(tf.square(fetched))
            gradients = tf.gradients(loss, v1.trainable_variables())
            fetched = [fetched, *(gradient.values for gradient in gradients)]
        session = v1.Session(config=session_config(threads))
        session.run(v1.global_variables_initializer())
        run = session.make_callable(fetched)
    return lambda _: cast(Callable[[], Any], run)()


def _layer(tf: Any, name: str, batch: dict[str, np.ndarray]) -> Any:
    """`[items, columns * dim]` of a system."""
    import fused_embedding as fe

    features, columns = {}, []
    index = tf.Variable(np.zeros(_ITEMS.value, np.int64), trainable=False)
    index = tf.convert_to_tensor(index)
    rows = {key: index for key in batch if key.startswith("user")}
    for i, (key, values) in enumerate(batch.items()):
        feature = tf.convert_to_tensor(tf.Variable(values.astype(np.int64), trainable=False))
        is_expanded = key in rows and not name.startswith(OURS)
        features[key] = tf.gather(feature, index) if is_expanded else feature
        categorical = tf.feature_column.categorical_column_with_hash_bucket(
            key, _BUCKETS.value, tf.int64
        )
        columns.append(
            tf.feature_column.embedding_column(
                categorical, _DIM.value, "sum", initializer=_initializer(tf, i)
            )
        )
    if name == "stock":
        return tf.compat.v1.feature_column.input_layer(features, columns)
    given = rows if name.startswith(OURS) else None
    return fe.feature_column.input_layer(features, columns, rows=given)


def _initializer(tf: Any, seed: int) -> Any:
    """The same rows in every graph, and none of them the same."""
    return lambda shape, dtype, partition_info=None: tf.random.stateless_uniform(
        shape, [seed, 1], dtype=dtype
    )


def _check(steps: dict[str, timing.Step]) -> None:
    """Compares the rows of all columns."""

    def rows_of(name: str) -> np.ndarray:
        fetched: Any = steps[name](0)
        return fetched[0] if isinstance(fetched, list) else fetched

    want = rows_of("stock")
    for name in steps:
        if not np.allclose(rows_of(name), want, rtol=1e-5):
            raise AssertionError(f"{name} gives other rows than stock")


if __name__ == "__main__":
    app.run(main)
