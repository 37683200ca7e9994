"""A server of one exported model, in a process of its own: `benchmarks.serving.exports` asks it.

    python -m benchmarks.serving.export_server MODEL REQUESTS.npz [LIBRARY]

The model is a SavedModel, or a file of ONNX. `REQUESTS.npz` has the model's inputs, all requests'
rows one after another. Of this package it loads at most the library. It answers a line of JSON
with a line of JSON.
"""

import json
import pathlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[dict[str, np.ndarray]], np.ndarray]
WARM_UP_CALLS = 20


def main() -> None:
    """Answers until its input ends."""
    model, requests, *library = sys.argv[1:]
    rows = dict(np.load(requests))
    is_onnx = pathlib.Path(model).suffix == ".onnx"
    call, apply = _onnx(model) if is_onnx else _saved_model(model, rows, *library)
    server = Server(call, apply, rows)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(getattr(server, command)(*arguments)), flush=True)


class Server:
    """What can be asked."""

    def __init__(self, call: Call, apply: Callable[[str], Any], rows: dict[str, np.ndarray]):
        self._call, self._apply, self._rows = call, apply, rows
        self._applying: threading.Thread | None = None
        self._applied: list[float] = []

    def scores(self, path: str) -> list[str]:
        """Saves what all rows give to a file of numpy; modules of the package that are loaded."""
        np.save(path, self._call(self._rows))
        return [name for name in sys.modules if name.startswith("fused_embedding")]

    def time(self, batch_size: int, first: int, count: int) -> list[float]:
        """Microseconds of each of `count` requests."""
        requests = self._requests(batch_size)
        for i in range(WARM_UP_CALLS):
            self._call(requests[(first + i) % len(requests)])
        times = []
        for i in range(first, first + count):
            request = requests[i % len(requests)]
            start = time.perf_counter_ns()
            self._call(request)
            times.append((time.perf_counter_ns() - start) / 1e3)
        return times

    def apply(self, paths: list[str], pause_seconds: float) -> bool:
        """Begins to apply deltas, one after another, while requests are timed."""

        def work() -> None:
            for path in paths:
                start = time.perf_counter_ns()
                self._apply(path)
                self._applied.append((time.perf_counter_ns() - start) / 1e3)
                time.sleep(pause_seconds)

        self._applying = threading.Thread(target=work)
        self._applying.start()
        return True

    def applied(self) -> list[float]:
        """Waits for the deltas; microseconds of each that was applied."""
        assert self._applying is not None
        self._applying.join()
        return self._applied

    def _requests(self, batch_size: int) -> list[dict[str, np.ndarray]]:
        num_rows = len(next(iter(self._rows.values())))
        return [
            {name: rows[i : i + batch_size] for name, rows in self._rows.items()}
            for i in range(0, num_rows - batch_size + 1, batch_size)
        ]


def _onnx(model: str) -> tuple[Call, Callable[[str], Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def apply(path: str) -> None:
        raise NotImplementedError(f"a file of ONNX takes no delta, got {path}")

    return lambda request: session.run(None, request)[0], apply


def _saved_model(
    model: str, rows: dict[str, np.ndarray], *library: str
) -> tuple[Call, Callable[[str], Any]]:
    import tensorflow as tf

    from benchmarks.harness import sessions

    for path in library:
        tf.load_op_library(path)
    session = tf.compat.v1.Session(graph=tf.Graph(), config=sessions.session_config(1))
    with session.graph.as_default():
        loaded = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], model)
    signatures = loaded.signature_def
    serving = signatures["serving_default"]
    feeds = [serving.inputs[name].name for name in rows]
    fetch = next(iter(serving.outputs.values())).name
    run = session.make_callable(fetch, feeds)

    def apply(path: str) -> Any:
        signature = signatures["apply_delta"]
        (given,), (done,) = signature.inputs.values(), signature.outputs.values()
        return session.run(done.name, {given.name: path})

    return lambda request: run(*request.values()), apply


if __name__ == "__main__":
    main()
