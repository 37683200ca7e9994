"""One fuzzed call: made from its seed and index alone, run, and judged."""

from typing import Any

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from fuzz import cases, mutate

RIGHT, ERROR = "right answer", "error"
CALLS_PER_BASE = 8  # valid arguments are costly to make: the first call is valid, others spoil it
ACCEPTED_ERRORS = (tf.errors.OpError, ValueError, TypeError)


class _Base:
    """The valid arguments that consecutive calls start from."""

    key: tuple[int, int] | None = None
    op: cases.Op
    args: dict[str, Any]


def make(seed: int, index: int) -> tuple[cases.Op, dict[str, Any]]:
    """The op and the arguments of a call."""
    key = (seed, index // CALLS_PER_BASE)
    if _Base.key != key:
        rng = np.random.default_rng(key)
        _Base.op = cases.OPS[rng.integers(len(cases.OPS))]
        _Base.args = _Base.op.make(rng)
        _Base.key = key
    args = _Base.args
    step = index % CALLS_PER_BASE
    if step:
        rng = np.random.default_rng((*key, step))
        with np.errstate(all="ignore"):
            for _ in range(1 + (rng.random() < 0.25)):
                args = mutate.mutate(rng, args)
    return _Base.op, args


def as_tensors(value: Any) -> Any:
    """Arrays as tensors: an op would convert an array to the type it wants."""
    if isinstance(value, list):
        return [as_tensors(v) for v in value]
    return tf.constant(value) if isinstance(value, np.ndarray) else value


def run(seed: int, index: int, device: str) -> str:
    """Makes a call on a device: RIGHT, ERROR, or what is wrong with it."""
    op, args = make(seed, index)
    try:
        with tf.device(device):
            tensors = {name: as_tensors(value) for name, value in args.items()}
            got = getattr(fe.raw_ops, op.name)(**tensors)
    except ACCEPTED_ERRORS as error:
        is_valid = index % CALLS_PER_BASE == 0
        return f"valid arguments raised {error}" if is_valid else ERROR
    try:
        with np.errstate(all="ignore"):
            op.check(args, got)
    except Exception as error:  # any exception means that the oracle has another opinion
        return f"{type(error).__name__}: {error}"
    return RIGHT


def describe(seed: int, index: int) -> str:
    """The call as text."""
    op, args = make(seed, index)
    lines = [f"    {name} = {value!r}" for name, value in args.items()]
    return "\n".join([f"  {op.name}", *lines])
