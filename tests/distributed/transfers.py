"""What crosses between the tasks of a cluster in one step, read from the step's RunMetadata."""

from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf


class Transfer(NamedTuple):
    """A tensor that one task sends to another.

    Attributes:
        source: Task that computes it, as "/job:ps/task:1".
        target: Task that it is sent to.
        dtype: Its type.
        shape: Its shape in this step.
        op: Type of the op that computes it.
    """

    source: str
    target: str
    dtype: tf.DType
    shape: tuple[int, ...]
    op: str


def run_traced(session, fetches, feed):
    """Runs a step; returns what it fetched and its RunMetadata with the graph of each task."""
    metadata = tf.compat.v1.RunMetadata()
    options = tf.compat.v1.RunOptions(
        output_partition_graphs=True,
        trace_level=tf.compat.v1.RunOptions.FULL_TRACE,
    )
    return session.run(fetches, feed, options=options, run_metadata=metadata), metadata


def task_of(device: str) -> str:
    """Job and task of a full device name."""
    spec = tf.DeviceSpec.from_string(device)
    return f"/job:{spec.job}/task:{spec.task}"


def nodes_by_task(metadata) -> Iterator[tuple[str, tf.compat.v1.NodeDef]]:
    """Each node that could run in the step, and the task that ran it."""
    for graph in metadata.partition_graphs:
        for node in graph.node:
            yield task_of(node.device), node


def transfers(metadata) -> list[Transfer]:
    """The tensors that crossed, sorted; without signals, which are empty and only order ops."""
    shapes = _shapes_of_outputs(metadata)
    found = []
    for graph in metadata.partition_graphs:
        nodes = {node.name: node for node in graph.node}
        for node in graph.node:
            if node.op != "_Send":
                continue
            name, _, slot = node.input[0].partition(":")
            if "/ctrl_" in name:
                assert nodes[name].op == "Const", node
                assert not nodes[name].attr["value"].tensor.tensor_shape.dim[0].size, node
                continue
            found.append(
                Transfer(
                    task_of(node.attr["send_device"].s.decode()),
                    task_of(node.attr["recv_device"].s.decode()),
                    tf.as_dtype(node.attr["T"].type).base_dtype,
                    shapes[name, int(slot or 0)],
                    nodes[name].op,
                )
            )
    return sorted(found, key=str)


def _shapes_of_outputs(metadata) -> dict[tuple[str, int], tuple[int, ...]]:
    shapes = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            for output in node.output:
                shape = tuple(dim.size for dim in output.tensor_description.shape.dim)
                shapes[node.node_name, output.slot] = shape
    return shapes
