"""What the tests of all front doors share: Kerases, oracles of training, and pages."""

import importlib
import pathlib
import re

import numpy as np
import tensorflow as tf

import fused_embedding as fe

ROOT = pathlib.Path(__file__).parents[2]
KERASES = {}
for _name in ("keras", "tf_keras"):
    try:
        KERASES[_name] = importlib.import_module(_name)
    except ImportError:  # TensorFlow 2.15 has no tf_keras beside its Keras
        continue


class DictTables:
    """Tables as dicts of rows that start as their key modulo 100,000, trained by plain SGD."""

    def __init__(self, num_tables, dim):
        self.dim = dim
        self.rows = [{} for _ in range(num_tables)]

    def look_up(self, ids):
        """`[batch, tables]` ids -> `[batch, tables, dim]`; keys get rows."""
        for row in ids:
            for table, key in zip(self.rows, row, strict=True):
                table.setdefault(key, np.full(self.dim, float(key % 100_000)))
        return np.array([[t[k] for t, k in zip(self.rows, row, strict=True)] for row in ids])

    def descend(self, ids, grads, learning_rate):
        for row, row_grads in zip(ids, grads, strict=True):
            for table, key, grad in zip(self.rows, row, row_grads, strict=True):
                table[key] = table[key] - learning_rate * grad


def first_rows(table, keys):
    """What rows of keys start as, without making them."""
    with fe.inference():
        return tf.nn.embedding_lookup(table, keys).numpy()


def run_page(name, folder, monkeypatch):
    """Runs the examples of a page of docs/migration inside a folder; their variables."""
    monkeypatch.chdir(folder)
    page = (ROOT / "docs/migration" / name).read_text()
    examples = re.findall("```python\n(.*?)```", page, re.DOTALL)
    assert examples
    namespace = {}
    for example in examples:
        exec(compile(example, name, "exec"), namespace)
    return namespace
