"""Times one op against the stock ops that it replaces.

A module here is named after the op's stem and has

    SHAPES                      what make_input is called with, one tuple for each measurement
    make_input(*shape)          the tensors or variables that both sides are given
    fused(*inputs)              the op under test
    stock(*inputs)              the same result from TensorFlow's ops
    comparable(outputs)         optional: brings both sides' outputs into one order
"""

import importlib
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.harness import timing

RELATIVE_TOLERANCE = 1e-5


def measure(stem: str, threads: int, rounds: int, block: int) -> list[dict]:
    """Returns one cell for each shape of the op.

    Raises:
        AssertionError: The two sides differ.
    """
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    module = importlib.import_module(f"benchmarks.ops.{stem}")
    comparable = getattr(module, "comparable", lambda outputs: outputs)
    cells = []
    for shape in module.SHAPES:
        inputs = module.make_input(*shape)
        functions = {name: tf.function(getattr(module, name)) for name in ("fused", "stock")}
        outputs = {name: function(*inputs) for name, function in functions.items()}
        _assert_equal(*(comparable([t.numpy() for t in out]) for out in outputs.values()))
        steps = {name: _step(function, inputs) for name, function in functions.items()}
        samples = timing.alternate(steps, rounds, block)
        figures = {name: timing.summary(times) for name, times in samples.items()}
        speedup = timing.ratio(samples["stock"], samples["fused"])
        figures["fused"] |= {"speedup_over": {"stock": speedup}}
        figures["fused"] |= _traffic(inputs, outputs["fused"], figures["fused"]["median_us"])
        print(f"{stem} {shape}: results are equal, speedup over stock {speedup['median']:.2f}")
        cells.append({"shape": shape, "check": "equal", "systems": figures})
    return cells


def _step(function: Any, inputs: tuple) -> timing.Step:
    concrete = function.get_concrete_function(*inputs)
    return lambda i: concrete(*inputs)


def _traffic(inputs: tuple, outputs: list[tf.Tensor], median_us: float) -> dict[str, float]:
    """Returns bytes of inputs and outputs; of a variable only the rows that come out are read."""
    read = sum(_num_bytes(value) for value in inputs if not isinstance(value, tf.Variable))
    written = sum(_num_bytes(value) for value in outputs)
    if any(isinstance(value, tf.Variable) for value in inputs):
        read += written
    moved = read + written
    return {"bytes_moved": moved, "gigabytes_per_second": round(moved / median_us / 1e3, 2)}


def _num_bytes(tensor: tf.Tensor) -> int:
    return int(np.prod(tensor.shape)) * tensor.dtype.size


def _assert_equal(fused: list[np.ndarray], stock: list[np.ndarray]) -> None:
    for i, (got, want) in enumerate(zip(fused, stock, strict=True)):
        scale = float(np.max(np.abs(want), initial=0.0)) if want.dtype.kind == "f" else 0.0
        tolerance = RELATIVE_TOLERANCE if want.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(
            got, want, rtol=tolerance, atol=tolerance * scale, err_msg=f"output {i} differs"
        )
