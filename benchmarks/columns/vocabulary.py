r"""Times a vocabulary layer of Keras and ours: built, adapted, saved, loaded, exported and called.

    python -m benchmarks.columns.vocabulary
    python -m benchmarks.columns.vocabulary --layer=IntegerLookup --keras=tf_keras

`build` makes the layer of a list of tokens, `adapt` learns them from an array that has each once,
`save` and `load` are those of a .keras file of a model with the adapted layer, `save_built` and
`load_built` those of the layer that was built of a list. `export` writes a SavedModel, and `serve`
loads it. `call_uniform` and `call_zipf` look up a batch in a tf.function. Both layers have the same
vocabulary and results before they are timed. Times are those of the wall clock.
"""

import importlib
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import app, flags, logging

from benchmarks.harness import timing, workloads
from benchmarks.report import results

_LAYER = flags.DEFINE_enum("layer", "StringLookup", ["StringLookup", "IntegerLookup"], "Layer.")
_KERAS = flags.DEFINE_enum("keras", "keras", ["keras", "tf_keras"], "Module of the layers.")
_TOKENS = flags.DEFINE_integer("tokens", 1_000_000, "Tokens of the vocabulary.", lower_bound=2)
_BATCH = flags.DEFINE_integer("batch_size", 106_496, "Values of a batch.", lower_bound=1)
_THREADS = flags.DEFINE_integer("threads", 2, "Intra-op and inter-op threads.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds of alternation.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")

OURS = "fused"


def main(_: list[str]) -> None:
    """Measures each phase and writes a JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.set_verbosity(logging.WARNING)  # saving logs each file
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(_THREADS.value)
    tf.config.threading.set_inter_op_parallelism_threads(_THREADS.value)
    with tempfile.TemporaryDirectory() as folder:
        systems = {name: _System(name, pathlib.Path(folder)) for name in ("stock", OURS)}
        _check(systems)
        cells = [_measure(phase, systems) for phase in systems[OURS].phases()]
    axes: dict[str, Any] = {"workload": "vocabulary", "mode": "layers", "clock": "wall"}
    options = ("layer", "keras", "tokens", "batch_size", "threads", "rounds")
    axes |= {option: flags.FLAGS[option].value for option in options}
    record = results.record_of("benchmarks.columns.vocabulary", axes, cells)
    what = f"vocabulary-{_LAYER.value}-{_KERAS.value}-n{_TOKENS.value}-t{_THREADS.value}"
    results.write(record, what, _OUTPUT.value)


def _measure(phase: str, systems: dict[str, "_System"]) -> dict[str, Any]:
    """Times one phase of each system."""
    steps = {name: system.phases()[phase] for name, system in systems.items()}
    samples = timing.alternate(steps, _ROUNDS.value, block=1, untimed=0)
    measured = {name: timing.summary(of_system) for name, of_system in samples.items()}
    speedup = timing.ratio(samples["stock"], samples[OURS])
    measured[OURS]["speedup_over"] = {"stock": speedup}
    times = " ".join(f"{figures['median_us'] / 1e3:10.1f} ms" for figures in measured.values())
    print(f"{phase:<13} {times} {speedup['median']:8.1f} times as fast")
    return {"phase": phase, "systems": measured}


def _tokens() -> np.ndarray:
    """`[tokens]` distinct: 8 hexadecimal digits, or integers."""
    numbers = np.arange(_TOKENS.value, dtype=np.uint32) * np.uint32(2_654_435_761)
    if _LAYER.value == "IntegerLookup":
        return numbers.astype(np.int64)
    return np.array([f"{number:08x}" for number in numbers])


def _batches(tf: Any, tokens: np.ndarray) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    uniform = rng.integers(0, _TOKENS.value, _BATCH.value)
    zipf = workloads.zipf_ids(rng, _TOKENS.value, _BATCH.value)
    return {
        name: tf.constant(tokens[ids].tolist(), dtype=_dtype())
        for name, ids in (("uniform", uniform), ("zipf", zipf))
    }


def _dtype() -> str:
    return "int64" if _LAYER.value == "IntegerLookup" else "string"


class _System:
    """The layers of one system, and what is timed of them."""

    def __init__(self, name: str, folder: pathlib.Path):
        import tensorflow as tf

        import fused_embedding as fe

        self._tf, self._keras = tf, importlib.import_module(_KERAS.value)
        layers = fe.keras.fused_layers(self._keras) if name == OURS else self._keras.layers
        self._make = getattr(layers, _LAYER.value)
        self._array = _tokens()
        self._list = self._array.tolist()
        self.batches = _batches(tf, self._array)
        self._files = {kind: str(folder / f"{name}_{kind}.keras") for kind in ("built", "adapted")}
        self._export = str(folder / name)
        self.built, self.adapted = self.build(), self.adapt()
        self._models = {"built": self._model(self.built), "adapted": self._model(self.adapted)}
        self.call = tf.function(self.adapted)

    def build(self) -> Any:
        """A layer of a list."""
        return self._make(vocabulary=self._list)

    def adapt(self) -> Any:
        """A layer of data."""
        layer = self._make()
        layer.adapt(self._array)
        return layer

    def _model(self, layer: Any) -> Any:
        inputs = self._keras.Input((1,), dtype=_dtype())
        return self._keras.Model(inputs, layer(inputs))

    def _save(self, kind: str) -> None:
        self._models[kind].save(self._files[kind])

    def load(self, kind: str) -> Any:
        """A model of a file."""
        return self._keras.models.load_model(self._files[kind])

    def _export_model(self) -> None:
        is_keras_3 = hasattr(self._keras, "Variable")
        self._models["adapted"].export(self._export, **({"verbose": False} if is_keras_3 else {}))

    def phases(self) -> dict[str, Callable[[int], object]]:
        """What is timed, in an order in which files are written before they are read."""
        return {
            "build": lambda _: self.build(),
            "adapt": lambda _: self.adapt(),
            "save": lambda _: self._save("adapted"),
            "load": lambda _: self.load("adapted"),
            "save_built": lambda _: self._save("built"),
            "load_built": lambda _: self.load("built"),
            "export": lambda _: self._export_model(),
            "serve": lambda _: self._tf.saved_model.load(self._export),
            "call_uniform": lambda _: self.call(self.batches["uniform"]),
            "call_zipf": lambda _: self.call(self.batches["zipf"]),
        }


def _check(systems: dict[str, _System]) -> None:
    """Raises AssertionError if the layers have other vocabularies or results than stock's."""
    stock, ours = systems["stock"], systems[OURS]
    for kind in ("built", "adapted"):
        layers = [getattr(system, kind) for system in (stock, ours)]
        if layers[0].get_vocabulary() != layers[1].get_vocabulary():
            raise AssertionError(f"the {kind} layers have other vocabularies")
        for name, batch in stock.batches.items():
            if not np.array_equal(layers[0](batch), layers[1](batch)):
                raise AssertionError(f"the {kind} layers have other results for the {name} batch")


if __name__ == "__main__":
    app.run(main)
