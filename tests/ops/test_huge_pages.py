"""Variables move onto huge pages when rows of them are first looked up or updated."""

import os
import pathlib
import re

import pytest

import processes

PROGRAM = """
import os
import sys
import time

os.environ["FE_DISABLE"] = sys.argv[1]
seconds = float(sys.argv[2])
import tensorflow as tf
import fused_embedding as fe
from benchmarks.harness.resources import huge_page_bytes

with tf.device("/CPU:0"):
    table, slot = (tf.Variable(tf.zeros([1 << 16, 64])) for _ in range(2))  # 16 MB each
    small = [tf.Variable(tf.zeros([100_000, 8])) for _ in range(16)]  # 3.2 MB each
before = huge_page_bytes()

def print_moved():
    deadline = time.time() + seconds
    while time.time() < deadline and huge_page_bytes() < wanted:
        time.sleep(0.1)
    print(huge_page_bytes() - before >> 20)

wanted = before + (12 << 20)
fe.nn.group_embedding_lookup([table], [tf.constant([3, 5])])
print_moved()
wanted += 12 << 20
fe.raw_ops.FusedEmbeddingResourceSparseApply(
    variables=[table.handle], slots=[slot.handle], grads=[tf.ones([1, 64])],
    indices=[tf.constant([7])], hyperparameters=tf.constant([0.1, 0.0, 0.1], tf.float64),
    rule="adagrad")
print_moved()
wanted += 40 << 20
fe.nn.group_embedding_lookup(small, [tf.constant([3, 5])] * len(small))
print_moved()
"""


def why_not_seen():
    """Why this system shows no move at once; None if it does."""
    modes = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    mode = modes.read_text().strip() if modes.exists() else "not there"
    if "[madvise]" not in mode:
        return f"transparent huge pages must be [madvise] to see advice, here: {mode}"
    version = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    return None if version >= (6, 1) else f"Linux {version} has no MADV_COLLAPSE, 6.1 has"


@pytest.mark.parametrize("disabled", ["", "huge_pages"], ids=["on", "off"])
def test_variables_move(disabled):
    if reason := why_not_seen():
        pytest.skip(reason)
    root = pathlib.Path(__file__).parents[2]
    done = processes.run_program(PROGRAM, disabled, 0.5 if disabled else 60, cwd=root)
    moved = [int(megabytes) for megabytes in processes.output_of(done).split()]
    if disabled:
        assert moved == [0, 0, 0]
    else:
        assert 12 <= moved[0] <= 18
        assert 24 <= moved[1] <= 34
        assert 64 <= moved[2] <= 86  # TensorFlow has most of the small ones side by side
