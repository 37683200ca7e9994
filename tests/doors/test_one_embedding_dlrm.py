"""examples/dlrm.py on real Criteo rows."""

import importlib.util
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from door_cases import ROOT

import fused_embedding as fe
from fused_embedding.demo import criteo

CRITEO = pathlib.Path(__file__).parents[3] / "shared/data/criteo_kaggle/train.tsv.gz"


@pytest.mark.slow
@pytest.mark.skipif(not CRITEO.exists(), reason=f"{CRITEO} is not here")
def test_the_dlrm_learns(tmp_path):
    spec = importlib.util.spec_from_file_location("dlrm", ROOT / "examples/dlrm.py")
    dlrm = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dlrm)
    rows = criteo.read_rows(str(CRITEO), max_rows=10_000, max_bad_lines=0)
    losses = dlrm.train(rows, steps=100, store=str(tmp_path))
    share = rows.labels.mean()
    of_a_constant = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    assert np.mean(losses[-20:]) < of_a_constant - 0.02
    with fe.one_embedding.make_persistent_table_reader(
        [str(tmp_path / "0-1")], "trained", tf.int64, tf.float32, 32
    ) as reader:
        tables = {}
        for keys, _ in reader:
            tables[reader.table] = tables.get(reader.table, 0) + len(keys)
    assert set(tables) == set(range(26))
    distinct = [len(np.unique(column)) for column in rows.categoricals.T]
    assert all(tables[i] <= distinct[i] for i in tables)
