"""How much of a traced step of a session the updates by stock's v1 optimizers take."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.ops import raw_ops

# TensorFlow names the ops that an optimizer updates a variable by after "update_" and the variable.
_UPDATE = re.compile(r"(?:^|/)update_[^/]")
_LABEL = re.compile(r" = (\w+)\(")
_COPIES = re.compile(r"stream|memcpy")  # devices that list the kernels of a GPU once more


class UpdateShare(NamedTuple):
    """Time of kernels in a step, added up over threads.

    Attributes:
        updates_us: Microseconds of stock's optimizers: their ops for each variable.
        step_us: Microseconds of all kernels.
    """

    updates_us: int
    step_us: int

    def __str__(self) -> str:
        share = self.updates_us / max(self.step_us, 1)
        of_all = f"{self.updates_us / 1e3:.3g} of {self.step_us / 1e3:.3g} ms"
        return f"updates by stock's optimizers: {share:.0%} of the traced step's kernels ({of_all})"


def update_share(run_metadata: Any) -> UpdateShare:
    """Adds up the kernels of a traced step.

    Args:
        run_metadata: A tf.compat.v1.RunMetadata that `session.run` filled.

    Returns:
        The times.

    Raises:
        TypeError: If it is something else.
        ValueError: If it has no kernels.
    """
    kernels = traced_kernels(run_metadata)
    of_updates = (us for name, op, us in kernels if _UPDATE.search(name) and not is_our_op(op))
    return UpdateShare(sum(of_updates), sum(us for _, _, us in kernels))


def traced_kernels(run_metadata: Any) -> list[tuple[str, str, int]]:
    """Name, op and microseconds of each kernel of a traced step.

    Args:
        run_metadata: A tf.compat.v1.RunMetadata that `session.run` filled.

    Returns:
        At least one kernel.

    Raises:
        TypeError: If it is something else.
        ValueError: If it has no kernels.
    """
    if not isinstance(run_metadata, tf.compat.v1.RunMetadata):
        raise TypeError(
            f"run_metadata must be a tf.compat.v1.RunMetadata, got {type(run_metadata)}; "
            "session.run(..., run_metadata=) fills one"
        )
    kernels = list(_kernels(run_metadata))
    if not kernels:
        raise ValueError(
            "run_metadata has no kernels, but those of a traced step are added up; call session.run"
            " with options=tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)"
        )
    return kernels


def _kernels(run_metadata: Any) -> Iterator[tuple[str, str, int]]:
    for device in run_metadata.step_stats.dev_stats:
        if not _COPIES.search(device.device):
            for node in device.node_stats:
                op = _LABEL.search(node.timeline_label)
                us = node.op_end_rel_micros - node.op_start_rel_micros
                yield node.node_name, op[1] if op else "", us


def is_our_op(op: str) -> bool:
    """Whether an op type is one of this package."""
    return hasattr(raw_ops, op)
