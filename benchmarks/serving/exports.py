r"""Serves one click model from each of its exports: scores, latencies, and deltas under load.

    python -m benchmarks.serving.exports
    python -m benchmarks.serving.exports --batch=1,64 --requests=10000

The demo's model with EmbeddingVariables is trained on Criteo rows and exported in all ways. Each
export has a server process of its own, which does not import the package. Beside them: the same
network as stock TensorFlow has it, with fixed vocabularies, where ids are numbered beforehand
(`stock`) or hashed in the graph (`stock_hash`). Servers take turns; all run on one thread. Scores
of the exports are compared with this package's before, those of rows in fewer bytes (`export_int8`
and so on, of stock ops) within what rounding may change.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, TextIO, cast

import numpy as np
from absl import app, flags

from benchmarks.harness import machine
from benchmarks.report import results
from benchmarks.serving import export_server

DATA = machine.ROOT.parent / "shared" / "data" / "criteo_kaggle" / "train.tsv.gz"
EMBEDDING_DIM, STEPS, TRAINING_BATCH = 8, 60, 256
ADMIT_AFTER = 2  # also makes what unknown keys read a constant, which files of ONNX can hold
TOLERANCE = 1e-6  # relative and absolute
QUANTIZED = {"export_int8": "int8", "export_int4": "int4", "export_bfloat16": "bfloat16"}
# Of scores, which are probabilities. A wrong row changes some of them more than that.
TOLERANCES = {"export_int8": 0.02, "export_int4": 0.2, "export_bfloat16": 0.02}
PAUSE_SECONDS = 0.02  # between deltas

SYSTEMS = ("export_stock", "export_fused", "export_onnx", *QUANTIZED, "stock", "stock_hash")
_SYSTEM = flags.DEFINE_list("system", list(SYSTEMS), f"What is served, of {', '.join(SYSTEMS)}.")
flags.register_validator(
    "system", lambda names: set(names) <= set(SYSTEMS), f"must be of {', '.join(SYSTEMS)}"
)
_COLUMNS = flags.DEFINE_integer(
    "columns", 26, "Number of categorical fields: the first ones.", lower_bound=1
)
_BATCH = flags.DEFINE_list("batch", ["1", "64"], "Rows of a request.")
_REQUESTS = flags.DEFINE_integer("requests", 10_000, "Requests to each server.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Rounds of alternation.", lower_bound=1)
_DELTAS = flags.DEFINE_integer("deltas", 20, "Deltas that are applied under load.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")


@dataclasses.dataclass
class Served:
    """A model that is served.

    Attributes:
        path: Folder or file.
        rows: File of numpy with the rows of all requests.
        library: Of ops that its server loads.
        deltas: Files that its server applies.
    """

    path: str
    rows: str
    library: list[str] = dataclasses.field(default_factory=list)
    deltas: list[str] = dataclasses.field(default_factory=list)


class Server:
    """A process of benchmarks.serving.export_server."""

    def __init__(self, served: Served):
        server = export_server.__name__
        command = [sys.executable, "-m", server, served.path, served.rows]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [*command, *served.library],
            cwd=machine.ROOT,
            env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stdin = cast(TextIO, self._process.stdin)
        self._stdout = cast(TextIO, self._process.stdout)

    def ask(self, command: str, *arguments: Any) -> Any:
        """The server's answer."""
        self._stdin.write(json.dumps([command, *arguments]) + "\n")
        self._stdin.flush()
        answer = self._stdout.readline()
        if not answer:
            raise RuntimeError(f"the server ended at {command!r}: its error is above")
        return json.loads(answer)

    def stop(self) -> None:
        """Ends it."""
        self._process.communicate()


def main(_: list[str]) -> None:
    """Trains, exports, compares and measures."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as folder:
        rows, source = _rows()
        rows = rows.first_columns(_COLUMNS.value)
        served, scores = _exports(pathlib.Path(folder), rows)
        servers = {name: Server(model) for name, model in served.items()}
        for name in [name for name in servers if name.startswith("export_")]:
            tolerance = TOLERANCES.get(name, TOLERANCE)
            _assert_same_scores(servers[name], f"{folder}/{name}.npy", scores, tolerance)
        for batch_size in map(int, _BATCH.value):
            cells = [_measure(servers, served, batch_size)]
            for name, model in served.items():
                cells += [_measure_deltas(name, model, batch_size)] if model.deltas else []
            _write(cells, batch_size, source)
        for server in servers.values():
            server.stop()


def _size(path: pathlib.Path) -> int:
    """Bytes of a file, or of all in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _rows() -> tuple[Any, str]:
    from fused_embedding.demo import criteo, synthetic

    if DATA.exists():
        return criteo.read_rows(str(DATA), 10_000, max_bad_lines=0), "criteo_kaggle"
    return synthetic.make_rows(8_000, seed=1), "synthetic, Criteo-shaped"


def _exports(folder: pathlib.Path, rows: Any) -> tuple[dict[str, Served], np.ndarray]:
    """What is served, by name, and the scores that this package computes for the rows."""
    import tensorflow as tf

    import fused_embedding as fe
    from fused_embedding.demo import model as demo_model
    from fused_embedding.demo import table_model

    model = table_model.build(
        fe.CounterFilter(ADMIT_AFTER), EMBEDDING_DIM, seed=1, num_columns=_COLUMNS.value
    ).model
    with model.graph.as_default():
        saver = fe.train.Saver(incremental=True)
    with tf.compat.v1.Session(graph=model.graph) as session:
        session.run(model.init_op)
        _train(session, model, rows, range(STEPS))
        feed = {model.integers: rows.integers, model.categoricals: rows.categoricals}
        scores = session.run(model.probability, feed)
        requests = _save_requests(folder / "ids.npz", rows, rows.categoricals)
        served = _export(session, model, folder, requests)
        saver.save(session, str(folder / "save"), global_step=0)
        for i in range(_DELTAS.value):
            _train(session, model, rows, [STEPS + i])
            checkpoint = saver.save(session, str(folder / "save"), global_step=1 + i)
            assert checkpoint is not None
            for name in served.keys() & {"export_stock", "export_fused", *QUANTIZED}:
                _write_delta(served[name], checkpoint)
    numbered = np.mod(rows.categoricals, demo_model.num_buckets()[: _COLUMNS.value])
    numbered = _save_requests(folder / "numbered.npz", rows, numbered)
    for name, of_name in (("stock", numbered), ("stock_hash", requests)):
        if name in _SYSTEM.value:
            served[name] = Served(_stock_model(folder / name, name), of_name)
    return served, scores


def _save_requests(path: pathlib.Path, rows: Any, categoricals: np.ndarray) -> str:
    np.savez(path, integers=rows.integers, categoricals=categoricals)
    return str(path)


def _train(session: Any, model: Any, rows: Any, steps: Any) -> None:
    for step in steps:
        first = step * TRAINING_BATCH
        batch = rows.take(np.arange(first, first + TRAINING_BATCH) % len(rows.labels))
        session.run(model.train_op, model.feed(batch))


def _export(session: Any, model: Any, folder: pathlib.Path, requests: str) -> dict[str, Served]:
    import fused_embedding as fe

    library = str(pathlib.Path(fe.__file__).with_name("_ops.so"))
    served = {
        "export_stock": Served(str(folder / "export_stock"), requests),
        "export_fused": Served(str(folder / "export_fused"), requests, [library]),
        "export_onnx": Served(str(folder / "export.onnx"), requests),
    }
    served |= {name: Served(str(folder / name), requests) for name in QUANTIZED}
    served = {name: model for name, model in served.items() if name in _SYSTEM.value}
    options: dict[str, dict[str, Any]] = {
        "export_stock": {},
        "export_fused": {"ops": "fused"},
        "export_onnx": {"format": "onnx"},
        **{name: {"quantize": row_format} for name, row_format in QUANTIZED.items()},
    }
    for name, model_of_name in served.items():
        fe.export_for_serving(
            session,
            model_of_name.path,
            inputs={"integers": model.integers, "categoricals": model.categoricals},
            outputs={"probability": model.probability},
            **options[name],
        )
    return served


def _write_delta(served: Served, checkpoint: str) -> None:
    import fused_embedding as fe

    path = f"{served.path}-delta-{len(served.deltas)}"
    before = served.deltas[-1] if served.deltas else None
    fe.write_serving_delta(path, served.path, checkpoint, continues=before)
    served.deltas.append(path)


def _stock_model(path: pathlib.Path, name: str) -> str:
    """The network with tables of stock TensorFlow, not trained; its folder."""
    import tensorflow as tf

    from fused_embedding.demo import model, table_model

    v1 = tf.compat.v1
    categorical: Callable = {
        "stock": lambda name, size: tf.feature_column.categorical_column_with_identity(
            name, size, default_value=0
        ),
        "stock_hash": lambda name, size: tf.feature_column.categorical_column_with_hash_bucket(
            name, size, tf.int64
        ),
    }[name]
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        inputs = model.placeholders(num_columns=_COLUMNS.value)
        features, sizes = model.features(inputs.categoricals), model.num_buckets()[: _COLUMNS.value]
        columns = [
            tf.feature_column.embedding_column(categorical(name, size), EMBEDDING_DIM + 1)
            for name, size in zip(features, sizes, strict=True)
        ]
        probability = tf.sigmoid(table_model.logits_of(inputs, columns))
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(
            session,
            str(path),
            {"integers": inputs.integers, "categoricals": inputs.categoricals},
            {"probability": probability},
        )
    return str(path)


def _assert_same_scores(server: Server, path: str, want: np.ndarray, tolerance: float) -> None:
    modules = server.ask("scores", path)
    if modules:
        raise AssertionError(f"the server has loaded {modules}: it was to have no package")
    np.testing.assert_allclose(np.load(path), want, rtol=tolerance, atol=tolerance)


def _measure(servers: dict[str, Server], served: dict[str, Served], batch_size: int) -> dict:
    """Latencies of all servers, in turns, and the bytes of what they serve."""
    count = _REQUESTS.value // _ROUNDS.value
    times: dict[str, list[float]] = {name: [] for name in servers}
    rng = np.random.default_rng(0)
    for r in range(_ROUNDS.value):
        for name in rng.permutation(list(servers)):
            times[name] += servers[name].ask("time", batch_size, r * count, count)
    measured = {
        name: _figures(of_one) | {"bytes": _size(pathlib.Path(served[name].path))}
        for name, of_one in times.items()
    }
    for name, figures in measured.items():
        print(f"batch {batch_size}, {name:12s} {figures}", flush=True)
    return {"phase": "exports", "callers": 1, "systems": measured}


def _measure_deltas(name: str, model: Served, batch_size: int) -> dict:
    """Latencies of a server of its own, that applies deltas meanwhile."""
    server = Server(model)
    server.ask("time", batch_size, 0, 1)
    server.ask("apply", model.deltas, PAUSE_SECONDS)
    times: list[float] = []
    while len(times) < _REQUESTS.value:
        times += server.ask("time", batch_size, len(times), min(500, _REQUESTS.value))
    applied = server.ask("applied")
    server.stop()
    if len(applied) != len(model.deltas):
        raise AssertionError(f"{name} applied {len(applied)} of {len(model.deltas)} deltas")
    figures = _figures(times) | {"deltas": len(applied)}
    figures["delta_median_ms"] = round(float(np.median(applied)) / 1e3, 2)
    print(f"batch {batch_size}, {name:12s} with deltas {figures}", flush=True)
    return {"phase": "deltas", "callers": 1, "systems": {name: figures}}


def _figures(times: list[float]) -> dict[str, float | int]:
    p50, p99 = np.percentile(times, [50, 99])
    return {
        "samples": len(times),
        "p50_us": round(float(p50), 1),
        "p99_us": round(float(p99), 1),
        "longest_us": round(max(times), 1),
        "calls_per_second": round(1e6 / float(np.mean(times))),
    }


def _write(cells: list[dict], batch_size: int, source: str) -> None:
    axes = {"workload": source, "batch_size": batch_size, "mode": "exports", "threads": 1}
    axes |= {"requests": _REQUESTS.value, "rounds": _ROUNDS.value}
    axes |= {"warm_up": export_server.WARM_UP_CALLS, "embedding_dim": EMBEDDING_DIM}
    axes |= {"columns": _COLUMNS.value}
    record = results.record_of("benchmarks.serving.exports", axes, cells)
    results.write(record, f"exports-b{batch_size}", _OUTPUT.value)


if __name__ == "__main__":
    app.run(main)
