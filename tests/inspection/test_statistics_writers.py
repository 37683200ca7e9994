"""The Keras callback and the TF1 hook that write statistics: what TensorBoard reads."""

import collections
import doctest
import importlib
import pathlib
import re
import time
import types

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES
from fused_embedding.keras import statistics
from fused_embedding.variable.embedding_variable import STATISTICS, TIER_STATISTICS

v1 = tf.compat.v1
EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
IN_DRAM = [name for name in STATISTICS if name not in TIER_STATISTICS]
IDS = np.arange(24, dtype=np.int64).reshape(12, 2)
LABELS = np.ones([12, 1], np.float32)


def written(folder):
    """Tag -> {step: value} of all event files of a folder."""
    scalars = collections.defaultdict(dict)
    for path in sorted(folder.glob("events*")):
        for event in v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                is_tensor = value.HasField("tensor")
                number = tf.make_ndarray(value.tensor) if is_tensor else value.simple_value
                scalars[value.tag][event.step] = float(number)
    return dict(scalars)


def model_of(keras, layer):
    inputs = keras.Input((2,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
    model.compile(fe.keras.wrap(keras.optimizers.SGD(0.1)), "mse")
    return model


def fit(model, callbacks, **kwargs):
    given = {"batch_size": 2, "epochs": 2, "shuffle": False, "verbose": 0} | kwargs
    model.fit(IDS, LABELS, callbacks=callbacks, **given)


# --- Keras ---


@EACH_KERAS
def test_a_callback_writes_what_the_table_says(keras, tmp_path):
    layer = fe.keras.embedding_layer(keras)(4, combiner="sum", name="users")
    model = model_of(keras, layer)
    fit(model, [fe.keras.statistics_callback(str(tmp_path), 5, keras)])
    got = written(tmp_path)
    assert set(got) == {f"users/embeddings/{name}" for name in IN_DRAM}
    # 12 steps: multiples of 5, and the last one.
    assert got["users/embeddings/size"] == {5: 20.0, 10: 24.0, 12: 24.0}
    statistics = layer.table.statistics()
    for name in IN_DRAM:
        assert got[f"users/embeddings/{name}"][12] == float(np.float32(statistics[name])), name
    fit(model, [fe.keras.statistics_callback(str(tmp_path / "more"), 5, keras)], epochs=1)
    assert set(written(tmp_path / "more")["users/embeddings/size"]) == {15, 18}


@EACH_KERAS
def test_steps_per_execution(keras, tmp_path):
    layer = fe.keras.embedding_layer(keras)(4, combiner="sum", name="users")
    model = model_of(keras, layer)
    model.compile(fe.keras.wrap(keras.optimizers.SGD(0.1)), "mse", steps_per_execution=3)
    fit(model, [fe.keras.statistics_callback(str(tmp_path), 4, keras)])
    assert set(written(tmp_path)["users/embeddings/size"]) == {6, 9, 12}


@pytest.mark.parametrize(("version", "named"), [("3.10.0", (0, 3, 6)), ("3.11.0", (2, 5, 8))])
def test_batches_that_versions_of_keras_name_after_an_execution(version, named, tmp_path):
    """Of executions of 3, 3 and 1 batches."""
    keras = types.ModuleType("keras_of_this_version")
    keras.__version__, keras.callbacks = version, tf.keras.callbacks
    layer = fe.keras.embedding_layer()(4, combiner="sum", name="users")
    layer(IDS)
    callback = statistics._callback_class(keras)(str(tmp_path), 4)
    callback.set_params({"steps": 7})
    callback.set_model(
        types.SimpleNamespace(variables=layer.variables, optimizer=None, steps_per_execution=3)
    )
    callback.on_train_begin()
    for epoch in range(2):
        for batch in named:
            callback.on_train_batch_end(batch)
        callback.on_epoch_end(epoch)
    callback.on_train_end()
    [steps] = {tuple(of_steps) for of_steps in written(tmp_path).values()}
    assert steps == (6, 10, 13, 14)


@EACH_KERAS
def test_a_model_without_tables_is_an_error(keras, tmp_path):
    model = keras.Sequential([keras.layers.Dense(1, name="only")])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="has no EmbeddingVariable"):
        model.fit(
            np.ones([4, 2], np.float32),
            np.ones([4, 1]),
            callbacks=[fe.keras.statistics_callback(str(tmp_path), 1, keras)],
            verbose=0,
        )


def count_calls(monkeypatch, module, name):
    calls = []
    original = getattr(module, name)

    def counted(*args, **kwargs):
        calls.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, counted)
    return calls


@EACH_KERAS
def test_a_callback_runs_nothing_between_two_writes(keras, tmp_path, monkeypatch):
    module = importlib.import_module("fused_embedding.keras.statistics")
    traces = count_calls(monkeypatch, module, "summarize_statistics")
    layer = fe.keras.embedding_layer(keras)(4, combiner="sum", name="users")
    callback = fe.keras.statistics_callback(str(tmp_path), 100, keras)
    writes = count_calls(monkeypatch, callback, "_write_now")
    fit(model_of(keras, layer), [callback], epochs=40)  # 240 steps
    assert len(writes) == 3  # 100, 200, 240
    assert len(traces) == 1  # one function, made once


@EACH_KERAS
@pytest.mark.slow
def test_a_callback_takes_under_a_hundredth_of_a_step(keras, tmp_path):
    layer = fe.keras.embedding_layer(keras)(4, combiner="sum", name="users")
    model = model_of(keras, layer)
    callback = fe.keras.statistics_callback(str(tmp_path), 100, keras)
    fit(model, [callback], epochs=20)
    begin = time.perf_counter()
    fit(model, [], epochs=50)
    step_s = (time.perf_counter() - begin) / 300
    callback.set_model(model)
    callback.on_train_begin()
    times = []
    for _ in range(30):
        begin = time.perf_counter()
        callback._write_now()
        times.append(time.perf_counter() - begin)
    callback.on_train_end()
    write_s = min(times)  # what else runs on the machine only adds
    share = write_s / (100 * step_s)
    print(f"step {step_s * 1e6:.0f} us, write {write_s * 1e6:.0f} us: {share:.3%}")
    assert share < 0.01


# --- Sessions ---


def train(folder, every_n_steps, num_steps, partitions=None):
    """Trains two tables; returns the graph, its step and what the tables say at the end."""
    with tf.Graph().as_default() as graph:
        partitioner = partitions and v1.fixed_size_partitioner(partitions)
        users = fe.get_embedding_variable("users", 4)
        items = fe.get_embedding_variable("items", 4, partitioner=partitioner)
        step = v1.train.get_or_create_global_step()
        ids = tf.sparse.from_dense(tf.reshape(step, [1, 1]) + 1)
        rows = [fe.nn.safe_embedding_lookup_sparse(table, ids) for table in (users, items)]
        loss = tf.reduce_sum(tf.square(tf.concat(rows, 1) - 1.0))
        train_op = v1.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)
        v1.summary.scalar("loss", loss)
        hook = fe.train.StatisticsHook(str(folder), every_n_steps)
        statistics = {"users": users.statistics(), "items": items.statistics()}
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(num_steps):
                session.run(train_op)
            told = session.run(statistics)
    return graph, train_op, told


@pytest.mark.parametrize("partitions", [None, 3])
def test_a_hook_writes_what_the_tables_say(partitions, tmp_path):
    _, _, told = train(tmp_path, 1, 7, partitions)
    got = written(tmp_path)
    got.pop("global_step/sec", None)
    assert set(got) == {f"{name}/{counter}" for name in ("users", "items") for counter in IN_DRAM}
    for name, counters in told.items():
        for counter in ("size", "inserts", "erasures"):
            last = got[f"{name}/{counter}"]
            assert last[max(last)] == counters[counter] == (7 if counter != "erasures" else 0)


def test_a_hook_writes_every_n_steps(tmp_path):
    train(tmp_path, 4, 10)
    steps = sorted(written(tmp_path)["users/size"])
    assert steps[0] <= 1
    assert np.diff(steps).tolist() == [4] * (len(steps) - 1)
    assert len(steps) == 3


def ancestors(op):
    """How many ops run for one: itself, its inputs and theirs."""
    seen, waiting = set(), [op]
    while waiting:
        op = waiting.pop()
        if op.name not in seen:
            seen.add(op.name)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return len(seen)


def test_a_hook_runs_under_a_hundredth_of_the_ops(tmp_path):
    graph, train_op, _ = train(tmp_path, 100, 1)
    # Another one is that of the program's own summaries.
    merges = [op for op in graph.get_operations() if op.type == "MergeSummary"]
    of_step, of_write = ancestors(train_op), max(map(ancestors, merges))
    print(f"{of_step} ops a step, {of_write} ops a write")
    assert of_write / (100 * of_step) < 0.01
    with graph.as_default():
        assert len(v1.get_collection(v1.GraphKeys.SUMMARIES)) == 1  # the program's own


@pytest.mark.slow
def test_a_hook_takes_under_a_hundredth_of_a_step(tmp_path):
    with tf.Graph().as_default():
        table = fe.get_embedding_variable("users", 4)
        step = v1.train.get_or_create_global_step()
        ids = tf.sparse.from_dense(tf.reshape(step, [1, 1]) + tf.range(1, 513, dtype=tf.int64))
        loss = tf.reduce_sum(tf.square(fe.nn.safe_embedding_lookup_sparse(table, ids)))
        train_op = v1.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)
        summary = v1.summary.merge(fe.summarize_statistics(table, collections=()))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())

            # In turns, and the fastest of each: what else runs on the machine only adds.
            times = {train_op: [], (train_op, summary): []}
            for fetches in list(times) * 200:
                begin = time.perf_counter()
                session.run(fetches)
                times[fetches].append(time.perf_counter() - begin)
            step_s, both_s = map(min, times.values())
            write_s = both_s - step_s  # a hook adds to what is run
    print(f"step {step_s * 1e6:.0f} us, write {write_s * 1e6:.0f} us")
    assert write_s / (100 * step_s) < 0.01


def test_a_graph_without_tables_is_an_error(tmp_path):
    with tf.Graph().as_default(), pytest.raises(ValueError, match="needs an EmbeddingVariable"):
        fe.train.StatisticsHook(str(tmp_path)).begin()


@pytest.mark.parametrize("make", [fe.train.StatisticsHook, fe.keras.statistics_callback])
def test_no_steps_between_writes_are_an_error(make, tmp_path):
    with pytest.raises(ValueError, match="every_n_steps must be >= 1, got 0"):
        make(str(tmp_path), 0)


@pytest.mark.parametrize("name", ["keras.statistics", "train.statistics_hook"])
def test_examples_of_the_docstrings(name):
    module = importlib.import_module(f"fused_embedding.{name}")
    results = doctest.testmod(module, extraglobs={"fe": fe, "tf": tf})
    assert results.attempted > 0
    assert not results.failed


def test_the_example_of_the_documentation():
    page = (pathlib.Path(__file__).parents[2] / "docs/inspection.md").read_text()
    page = page[page.index("## While it trains") :]
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    namespace = {"fe": fe}
    exec(compile(example, "docs/inspection.md", "exec"), namespace)
    assert isinstance(namespace["callback"], tf.keras.callbacks.Callback)
    assert isinstance(namespace["hook"], v1.train.SessionRunHook)
