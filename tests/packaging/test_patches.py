"""Which functions of TensorFlow and Keras the package replaces, and when: decision 031."""

import json
import pathlib
import re
import subprocess
import sys
import types

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_DECISION = _ROOT / "docs/decisions/031-what-the-first-embedding-variable-patches.md"


def _functions():
    """Each function and method that a module of TensorFlow's or Keras's defines, by its name."""
    found = {}
    modules = {
        name: module
        for name, module in sys.modules.items()
        if name.partition(".")[0] in ("tensorflow", "keras", "tf_keras")
        and isinstance(module, types.ModuleType)
    }
    for name, module in modules.items():
        for key, value in list(vars(module).items()):
            if getattr(value, "__module__", None) != name:
                continue
            members = vars(value).items() if isinstance(value, type) else ()
            found |= _only_functions([(f"{name}.{key}", value)])
            found |= _only_functions([(f"{name}.{key}.{member}", v) for member, v in members])
    return found


def _only_functions(pairs):
    return {name: value for name, value in pairs if isinstance(value, types.FunctionType)}


def _replaced(before):
    """Functions that are others than before, and those that classes of before have got."""
    owners = {name.rpartition(".")[0] for name in before}
    return sorted(
        name
        for name, value in _functions().items()
        if before.get(name) is not value and name.rpartition(".")[0] in owners
    )


def _main():
    import keras
    import tensorflow as tf

    # What is loaded lazily is loaded before, with whatever it replaces itself.
    _ = tf.compat.v1.train.Saver, tf.keras.optimizers.Adagrad, keras.callbacks.TensorBoard
    before = _functions()
    import fused_embedding as fe

    by_import = _replaced(before)
    fe.keras.layers.Embedding(output_dim=4)
    by_layers = _replaced(before)
    fe.get_embedding_variable("table", 4)
    by_table = _replaced(before)
    ids = tf.feature_column.categorical_column_with_identity("ids", 4)
    fe.feature_column.embedding_column(ids, 4)
    by_stock_column = _replaced(before)
    fe.feature_column.embedding_column(ids, 4, do_fusion=True)
    by_column = _replaced(before)
    with fe.accelerate():
        by_acceleration = _replaced(before)
    replaced = {
        "import": by_import,
        "layers": by_layers,
        "table": by_table,
        "stock column": by_stock_column,
        "column": by_column,
        "acceleration": by_acceleration,
        "its end": _replaced(before),
    }
    print(json.dumps([len(before), replaced]))


def test_what_is_replaced_and_when():
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    num_functions, replaced = json.loads(done.stdout.splitlines()[-1])
    assert num_functions > 10_000
    assert replaced["import"] == []
    # The decision names each by its last word, in the first column of its table.
    rows = re.findall(r"^\| (.*?) \|", _DECISION.read_text(), re.MULTILINE)
    documented = set(re.findall(r"\w+", " ".join(rows)))
    assert {name.rpartition(".")[2] for name in replaced["column"]} <= documented
    assert set(replaced["layers"]) < set(replaced["table"])
    assert all(name.startswith(("keras.", "tf_keras.")) for name in replaced["layers"])
    assert replaced["stock column"] == replaced["table"]
    by_column = set(replaced["column"]) - set(replaced["table"])
    assert {name.rpartition(".")[2] for name in by_column} == {"_internal_input_layer"}
    assert len(replaced["acceleration"]) > len(replaced["column"]) + 10
    assert replaced["its end"] == replaced["column"]


if __name__ == "__main__":
    _main()
