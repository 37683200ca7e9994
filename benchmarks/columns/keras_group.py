r"""Times the step of a Criteo model in Keras 3's fit: a layer for each column, and one for all.

    python -m benchmarks.columns.keras_group
    python -m benchmarks.columns.keras_group --program=keras_group_strings --batch_size=4096

The model has 26 columns, 13 numbers and an MLP, and is trained with Adagrad. `stock` is Keras 3 as
it is; `stock_fused_adagrad` has the optimizer of fe.keras; `layers` also its layers, one for each
column; `group` has one EmbeddingGroup; `group_model` is fe.keras.group of the stock model.
`session` is the step of a TF1 session with fe.feature_column.input_layer and fe.train's Adagrad,
which a step of fit is compared with. A step of fit includes what Keras does in Python. All systems
read the same tf.data. They have the same losses before they are timed; those of `stock` are alike,
because Keras 3 squares the gradients of repeated ids one by one.
"""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from benchmarks.harness import timing, workloads
from benchmarks.report import results

_PROGRAM = flags.DEFINE_list(
    "program",
    ["keras_group", "keras_group_strings"],
    "keras_group: ids are integers; keras_group_strings: strings that Hashing makes ids of.",
)
_THREADS = flags.DEFINE_integer("threads", 1, "Intra-op and inter-op threads.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch_size", 512, "Rows of a batch.", lower_bound=1)
_COLUMNS = flags.DEFINE_integer(
    "columns", 26, "Number of Criteo's columns: the first ones.", lower_bound=1
)
_CAP = flags.DEFINE_integer("cap", 1_000_000, "Maximum number of rows of a table.", lower_bound=1)
_DIM = flags.DEFINE_integer("dim", 16, "Values of a row.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 64, "Steps of a call of fit.", lower_bound=1)
_PER_EXECUTION = flags.DEFINE_integer(
    "steps_per_execution", 16, "Argument of compile, for all systems of Keras.", lower_bound=1
)
_SYSTEMS = flags.DEFINE_list("systems", None, "Some of SYSTEMS; by default all.")
_ROUNDS = flags.DEFINE_integer("rounds", 10, "Rounds of alternation.", lower_bound=1)
_CLOCK = flags.DEFINE_enum("clock", "wall", ["wall", "CPU"], "What is measured.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

STOCK, GROUP, SESSION = "stock", "group", "session"
SYSTEMS = (STOCK, "stock_fused_adagrad", "layers", GROUP, "group_model", SESSION)
UNITS = (256, 128, 64, 1)  # of the MLP's layers
NUM_NUMBERS = 13
NUM_BATCHES = 8
LEARNING_RATE = 0.05
CHECKED_CALLS = 2
STOCK_RTOL = 1e-2  # Keras 3 squares the gradients of repeated ids one by one


class Program(NamedTuple):
    """One program of a system.

    Attributes:
        system: One of SYSTEMS.
        has_strings: Whether the columns are strings, which are hashed.
    """

    system: str
    has_strings: bool


def main(_: list[str]) -> None:
    """Measures each program."""
    import tensorflow as tf

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf.config.threading.set_intra_op_parallelism_threads(_THREADS.value)
    tf.config.threading.set_inter_op_parallelism_threads(_THREADS.value)
    for name in _PROGRAM.value:
        measure(name)


def measure(name: str) -> None:
    """Measures one program and writes a JSON file."""
    systems = _SYSTEMS.value or SYSTEMS
    has_strings = name.endswith("_strings")
    steps = {system: _make(Program(system, has_strings)) for system in systems}
    _check(steps)
    measured = _timed(steps)
    _print_table(name, measured)
    axes: dict[str, Any] = {"workload": "criteo", "program": name, "mode": "keras"}
    options = ("threads", "batch_size", "columns", "cap", "dim", "steps", "steps_per_execution")
    axes |= {option: flags.FLAGS[option].value for option in (*options, "rounds", "clock")}
    cells = [{"phase": "step", "systems": measured}]
    record = results.record_of("benchmarks.columns.keras_group", axes, cells)
    file = f"{name}-b{_BATCH.value}-t{_THREADS.value}-{_CLOCK.value.lower()}"
    results.write(record, file, _OUTPUT.value)


def _timed(steps: dict[str, Callable[[int], Any]]) -> dict[str, timing.Figures]:
    """The time of a step of each system, and how often it is the session's."""
    calls = {system: _call_of(run) for system, run in steps.items()}
    clock = time.process_time_ns if _CLOCK.value == "CPU" else None
    timed = timing.alternate(calls, _ROUNDS.value, 1, clock=clock)
    samples = {system: of_call / _STEPS.value for system, of_call in timed.items()}
    measured = {system: timing.summary(of_system) for system, of_system in samples.items()}
    for system in measured if SESSION in measured else ():
        measured[system]["times_session"] = timing.ratio(samples[system], samples[SESSION])
    return measured


def _print_table(name: str, measured: dict[str, timing.Figures]) -> None:
    """Prints the time of a step of each system, and by how much the session's is shorter."""
    print(f"{name:<20} {'ms ' + _CLOCK.value:>9} {'over session':>13}")
    for system, figures in measured.items():
        ratio = figures.get("times_session", {}).get("median", "")
        print(f"{system:<20} {figures['median_us'] / 1e3:9.3f} {ratio:>13}")


def _call_of(run: Callable[[int], Any]) -> timing.Step:
    return lambda _: run(_STEPS.value)


# --- The batch ---


def _columns() -> dict[str, int]:
    """The number of rows of each column's table."""
    rows = workloads.CRITEO_ROWS[: _COLUMNS.value]
    return {f"c{i:02}": min(n, _CAP.value) for i, n in enumerate(rows)}


def _dataset(tf: Any, program: Program) -> Any:
    """Batches of features and labels, for ever."""
    rng = np.random.default_rng(0)
    shape = (NUM_BATCHES, _BATCH.value)
    features: dict[str, np.ndarray] = {}
    for name, num_rows in _columns().items():
        ids = workloads.zipf_ids(rng, num_rows, NUM_BATCHES * _BATCH.value).reshape(shape)
        as_text = np.array([b"%08x" % value for value in ids.ravel()]).reshape(shape)
        features[name] = as_text if program.has_strings else ids.astype(np.int64)
    features["numbers"] = rng.standard_normal((*shape, NUM_NUMBERS)).astype(np.float32)
    labels = rng.integers(0, 2, (*shape, 1)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat()


def _initializer(tf: Any, seed: int) -> Callable[..., Any]:
    """The same values in every program, and none of them the same.

    Values a fifth as large hide columns in reversed order: the losses differ by less than 1e-5.
    """

    def values(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> Any:
        return 0.5 * (tf.random.stateless_uniform(shape, [seed, 1], dtype=dtype) - 0.5)

    return values


# --- The systems ---


def _make(program: Program) -> Callable[[int], Any]:
    """What runs some steps, and returns the loss of the last, or the mean of all."""
    return _session(program) if program.system == SESSION else _keras(program)


def _keras(program: Program) -> Callable[[int], Any]:
    import keras
    import tensorflow as tf

    import fused_embedding as fe

    model = _keras_model(keras, tf, program)
    is_stock = program.system == STOCK
    adagrad = (keras.optimizers if is_stock else fe.keras.fused_optimizers(keras)).Adagrad
    model.compile(
        adagrad(LEARNING_RATE),
        keras.losses.BinaryCrossentropy(from_logits=True),
        jit_compile=False,
        steps_per_execution=_PER_EXECUTION.value,
    )
    dataset = _dataset(tf, program)

    def run(num_steps: int) -> Any:
        return model.fit(dataset, steps_per_epoch=num_steps, verbose=0).history["loss"][0]

    return run


def _keras_model(keras: Any, tf: Any, program: Program) -> Any:
    import fused_embedding as fe

    dtype = "string" if program.has_strings else "int64"
    inputs = {name: keras.Input((), dtype=dtype, name=name) for name in _columns()}
    numbers = keras.Input((NUM_NUMBERS,), name="numbers")
    hidden = keras.layers.Concatenate()([_rows(keras, tf, program, inputs), numbers])
    for i, units in enumerate(UNITS):
        activation = "relu" if i < len(UNITS) - 1 else None
        kernel = _initializer(tf, 100 + i)
        hidden = keras.layers.Dense(units, activation, kernel_initializer=kernel)(hidden)
    model = keras.Model({**inputs, "numbers": numbers}, hidden)
    return fe.keras.group(model) if program.system == "group_model" else model


def _rows(keras: Any, tf: Any, program: Program, inputs: dict[str, Any]) -> Any:
    """The rows of all columns side by side."""
    import fused_embedding as fe

    has_fused_layers = program.system in ("layers", GROUP)
    module = fe.keras.fused_layers(keras) if has_fused_layers else keras.layers
    layers = {}
    for i, (name, num_rows) in enumerate(_columns().items()):
        front = [keras.layers.Hashing(num_rows)] if program.has_strings else []
        initializer = _initializer(tf, i)
        lookup = module.Embedding(num_rows, _DIM.value, embeddings_initializer=initializer)
        layers[name] = [*front, lookup]
    if program.system == GROUP:
        return module.EmbeddingGroup(layers, concat=True)(inputs)
    return keras.layers.Concatenate()([_apply(of, inputs[name]) for name, of in layers.items()])


def _apply(layers: list[Any], values: Any) -> Any:
    for layer in layers:
        values = layer(values)
    return values


def _session(program: Program) -> Callable[[int], Any]:
    import tensorflow as tf

    import fused_embedding as fe
    from benchmarks.harness.sessions import session_config

    v1 = tf.compat.v1
    v1.logging.set_verbosity(v1.logging.ERROR)  # stock says of each column that it is deprecated
    with tf.Graph().as_default():
        features, labels = v1.data.make_one_shot_iterator(_dataset(tf, program)).get_next()
        numbers = features.pop("numbers")
        rows = fe.feature_column.input_layer(features, _feature_columns(tf, program))
        logits = _mlp(tf, tf.concat([rows, numbers], axis=1))
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        train = fe.train.AdagradOptimizer(LEARNING_RATE).minimize(loss)
        session = v1.Session(config=session_config(_THREADS.value, arithmetic=True))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        step = session.make_callable([loss, train])
    return lambda num_steps: np.mean([step()[0] for _ in range(num_steps)])


def _feature_columns(tf: Any, program: Program) -> list[Any]:
    import fused_embedding as fe

    fc = tf.feature_column
    kind = "hash_bucket" if program.has_strings else "identity"
    make = getattr(fc, f"categorical_column_with_{kind}")
    return [
        fe.feature_column.embedding_column(
            make(name, num_rows), _DIM.value, initializer=_initializer(tf, i), do_fusion=True
        )
        for i, (name, num_rows) in enumerate(_columns().items())
    ]


def _mlp(tf: Any, hidden: Any) -> Any:
    v1 = tf.compat.v1
    for i, units in enumerate(UNITS):
        shape = [hidden.shape[1], units]
        kernel = v1.get_variable(f"kernel{i}", shape, initializer=_initializer(tf, 100 + i))
        bias = v1.get_variable(f"bias{i}", [units], initializer=tf.zeros_initializer())
        hidden = tf.nn.bias_add(hidden @ kernel, bias)
        hidden = tf.nn.relu(hidden) if i < len(UNITS) - 1 else hidden
    return hidden


def _check(steps: dict[str, Callable[[int], Any]]) -> None:
    """Raises AssertionError if systems have other losses."""
    # Keras runs whole executions only, and each call of fit begins with the first batch.
    num_steps = int(np.lcm(NUM_BATCHES, _PER_EXECUTION.value))
    losses = {
        system: [run(num_steps) for _ in range(CHECKED_CALLS)] for system, run in steps.items()
    }
    of_others = next(of for system, of in losses.items() if system != STOCK)
    for system, of_system in losses.items():
        rtol = STOCK_RTOL if system == STOCK else 1e-5
        if not np.allclose(of_system, of_others, rtol=rtol, atol=0):
            raise AssertionError(f"{system} has other losses: {losses}")


if __name__ == "__main__":
    app.run(main)
