"""Measures fe.planner.Costs on this machine: CPU seconds of keys, values, shards and messages."""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.inspection import local_servers
from fused_embedding.lookup.group_signatures import group_embedding_lookup
from fused_embedding.planner.costs import Costs
from fused_embedding.variable.scope import AnyEmbeddingVariable, get_embedding_variable

v1 = tf.compat.v1
ROWS = 200_000  # of a table: more than the caches hold
# Tables of a server, keys of each, dim: what the costs of tables are fitted to.
_TABLE_CASES = ((1, 256, 16), (6, 256, 16), (1, 8000, 8), (1, 8000, 64), (4, 2000, 32))
# Tensors each way, values of each: what the costs of messages are fitted to.
_MESSAGE_CASES = ((1, 64), (24, 64), (4, 250_000))
_MIN_STEPS = 20
_PERIODS = 5


class Sample(NamedTuple):
    """One measurement.

    Attributes:
        factors: How often each cost occurs in a step.
        seconds: CPU seconds of a step.
    """

    factors: tuple[float, ...]
    seconds: float


def calibrate(seconds: float, note: Callable[[str], None], num_servers: int = 3) -> Costs:
    """Measures costs of servers of this machine, with a worker in this process.

    The tables are spread over several servers: a server that waits for messages of a worker that
    also serves others spends more on each than one that gets all of them at once.

    Args:
        seconds: Time for each measurement.
        note: Called with a line for each measurement.
        num_servers: Number of servers.

    Returns:
        The costs. `read_seconds` is the default: reads of an SSD are not measured.
    """
    messages: list[Sample] = []
    tables: list[Sample] = []
    crossing: list[Sample] = []
    with local_servers.running(num_servers) as cluster:
        for num_tensors, num_values in _MESSAGE_CASES:
            moved = _seconds_of_messages(cluster, num_tensors, num_values, seconds)
            note(f"{num_tensors} tensors of {num_values} values each way: {1e6 * moved:.1f} us")
            num_bytes = 2 * num_tensors * num_values * 4
            messages.append(Sample((1.0, 2 * num_tensors, num_bytes), moved))
        for num_tables, num_keys, dim in _TABLE_CASES:
            names = [f"case{len(tables)}_{i}" for i in range(num_tables * num_servers)]
            step = TableStep(functools.partial(_tables, names, dim, num_servers))
            batches = _distinct_keys([num_keys] * len(names))
            cpu, count = measure_step(cluster, step, batches, seconds)
            mean = float(np.mean(cpu))
            note(
                f"{num_tables} tables, {num_keys} keys of each, dim {dim}, "
                f"{count / num_servers:.1f} messages: {1e6 * mean:.1f} us a step"
            )
            keys = num_tables * num_keys
            tables.append(Sample((1.0, num_tables, keys, keys * dim), mean))
            crossing.append(Sample((1.0, num_tables), count / num_servers))
    return _costs_of(fitted(messages), fitted(tables), fitted(crossing))


def _costs_of(messages: list[float], tables: list[float], crossing: list[float]) -> Costs:
    """Splits what tables cost into messages, bytes and the rest."""
    _, message, byte = messages
    step, shard, key, value = tables
    of_server, of_shard = crossing
    if of_shard:
        message = min(message, shard / of_shard)
    if of_server:
        message = min(message, step / of_server)
    key_bytes = Costs().bytes_of_key(0, tf.float32)
    return Costs(
        key_seconds=max(key - key_bytes * byte, 0.0),
        value_seconds=max(value - 8 * byte, 0.0),
        shard_seconds=shard - of_shard * message,
        step_seconds=step - of_server * message,
        message_seconds=message,
        byte_seconds=byte,
        messages_of_server=of_server,
        messages_of_shard=of_shard,
    )


def fitted(samples: list[Sample]) -> list[float]:
    """The costs >= 0 that fit samples with the smallest relative errors.

    Args:
        samples: As many as there are costs, or more.

    Returns:
        The costs.
    """
    weights = np.array([1 / one.seconds for one in samples])
    factors = np.array([one.factors for one in samples]) * weights[:, None]
    is_used = np.ones(factors.shape[1], bool)
    while True:  # a cost below 0 is noise: the others are fitted without it
        costs = np.zeros(factors.shape[1])
        scale = np.abs(factors[:, is_used]).max(axis=0)
        solution = np.linalg.lstsq(factors[:, is_used] / scale, np.ones(len(samples)), rcond=None)
        costs[is_used] = solution[0] / scale
        if costs.min() >= 0:
            return costs.tolist()
        is_used[costs.argmin()] = False


def _tables(names: list[str], dim: int, num_servers: int) -> list[AnyEmbeddingVariable]:
    tables = []
    for index, name in enumerate(names):
        with tf.device(f"/job:ps/task:{index % num_servers}/cpu:0"):
            tables.append(get_embedding_variable(name, dim))
    return tables


class TableStep:
    """A training step of a worker: a lookup in each table and an update by Adagrad.

    Args:
        make_tables: Makes the tables on their servers.
    """

    def __init__(self, make_tables: Callable[[], list[AnyEmbeddingVariable]]) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            tables = make_tables()
            with tf.device("/job:worker/task:0/cpu:0"):
                self.ids = [v1.placeholder(tf.int64, [None]) for _ in tables]
                rows = group_embedding_lookup(tables, self.ids)
                loss = tf.add_n([tf.reduce_sum(one) for one in rows])
                self.train = v1.train.AdagradOptimizer(0.1).minimize(loss)
            self.initialize = v1.global_variables_initializer()


def measure_step(
    cluster: local_servers.LocalCluster,
    step: TableStep,
    batches: Iterator[list[np.ndarray]],
    seconds: float,
) -> tuple[list[float], int]:
    """Measures the servers of a step, after the keys 0 to 199,999 were inserted in each table.

    Args:
        cluster: The servers.
        step: What a worker does.
        batches: Ids of each table, for each step.
        seconds: Time for the measurement.

    Returns:
        CPU seconds of each server, and the number of tensors that cross between tasks.
    """
    with v1.Session(cluster.target, graph=step.graph) as session:
        session.run(step.initialize)
        session.run(step.train, {one: np.arange(ROWS) for one in step.ids})
        metadata = v1.RunMetadata()
        feed = dict(zip(step.ids, next(batches), strict=True))
        options = v1.RunOptions(output_partition_graphs=True)
        session.run(step.train, feed, options=options, run_metadata=metadata)
        run = session.make_callable(step.train, feed_list=step.ids)
        per_server = cpu_of_steps(
            lambda: run(*next(batches)), lambda: np.array(cluster.cpu_seconds()), seconds
        )
        return per_server.tolist(), crossing_tensors(metadata)


def crossing_tensors(metadata: Any) -> int:
    """The number of tensors that a step sent between tasks, by its tf.compat.v1.RunMetadata."""
    tensors = {
        node.attr["tensor_name"].s + node.attr["recv_device"].s
        for graph in metadata.partition_graphs
        for node in graph.node
        if node.op == "_Recv" and _task(node, "send_device") != _task(node, "recv_device")
    }
    return len(tensors)


def _task(node: Any, attribute: str) -> tuple[str, int]:
    spec = tf.DeviceSpec.from_string(node.attr[attribute].s.decode())
    return spec.job, spec.task


def _distinct_keys(num_keys: list[int]) -> Iterator[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    made = [[rng.permutation(ROWS)[:number] for number in num_keys] for _ in range(8)]
    while True:
        yield from made


def cpu_of_steps(run: Callable[[], object], cpu: Callable[[], Any], seconds: float) -> Any:
    """CPU seconds of a step, the least of five periods: a number or `[num_servers]`.

    Other programs on the machine take caches away and make CPU times longer, never shorter.

    Args:
        run: Runs a step.
        cpu: CPU seconds so far.
        seconds: Time for the measurement.
    """
    for _ in range(_MIN_STEPS):
        run()
    periods = []
    for _ in range(_PERIODS):
        begin, end, num_steps = cpu(), time.monotonic() + seconds / _PERIODS, 0
        while num_steps < _MIN_STEPS or time.monotonic() < end:
            run()
            num_steps += 1
        periods.append((cpu() - begin) / num_steps)
    return np.min(periods, axis=0)


def _seconds_of_messages(
    cluster: local_servers.LocalCluster, num_tensors: int, num_values: int, seconds: float
) -> float:
    """CPU of the server for tensors that are sent to it, and as many that it sends."""
    with tf.Graph().as_default():
        sent, received = [], []
        for i in range(num_tensors):
            with tf.device("/job:worker/task:0/cpu:0"):
                mine = v1.get_variable(f"worker{i}", [num_values], use_resource=True)
            with tf.device("/job:ps/task:0/cpu:0"):
                theirs = v1.get_variable(f"server{i}", [num_values], use_resource=True)
                sent.append(tf.identity(mine.read_value()).op)
            with tf.device("/job:worker/task:0/cpu:0"):
                received.append(tf.identity(theirs.read_value()).op)
        step = tf.group(*sent, *received)
        initialize = v1.global_variables_initializer()
        with v1.Session(cluster.target) as session:
            session.run(initialize)
            run = session.make_callable(step)
            return cpu_of_steps(run, lambda: cluster.cpu_seconds()[0], seconds)
