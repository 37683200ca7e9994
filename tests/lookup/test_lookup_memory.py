"""What a lookup of a large batch needs beside its result."""

import pathlib
import sys
import textwrap

import pytest

import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUM_COLUMNS, BATCH, DIM = 26, 65536, 16
SLACK_BYTES = 8 << 20  # of TensorFlow and the allocator, whatever the batch

# A process of its own: what others freed before would be used again and not be seen.
PROGRAM = """
    import ctypes, pathlib, sys
    import numpy as np
    import tensorflow as tf
    import fused_embedding as fe

    def status(field):
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

    num_columns, batch, dim, ids_per_row, max_norm, is_sorted = eval(sys.argv[1])
    tables = [tf.Variable(tf.ones([1000, dim])) for _ in range(num_columns)]
    rng = np.random.default_rng(0)

    def ids(num_rows):
        rows = np.repeat(np.arange(num_rows), ids_per_row)
        if not is_sorted:
            rng.shuffle(rows)
        indices = np.stack([rows, np.zeros_like(rows)], axis=1)
        values = rng.integers(0, 1000, len(rows))
        return tf.SparseTensor(indices, values, [num_rows, ids_per_row])

    def look_up(of_columns):
        return fe.nn.group_embedding_lookup_sparse(
            tables, of_columns, ["mean"] * num_columns, max_norms=[max_norm] * num_columns,
            concat=True,
        )

    look_up([ids(8)] * num_columns)
    large = [ids(batch)] * num_columns
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is what it is now
    before = status("VmRSS")
    result = look_up(large)
    print("temporary", status("VmHWM") - before - result.shape[0] * result.shape[1] * 4)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc/self/clear_refs")
@pytest.mark.parametrize(
    ("ids_per_row", "max_norm", "is_sorted"), [(1, None, True), (2, 1.0, True), (2, 1.0, False)]
)
def test_a_large_batch_needs_at_most_16_bytes_an_id_beside_its_result(
    ids_per_row, max_norm, is_sorted
):
    arguments = (NUM_COLUMNS, BATCH, DIM, ids_per_row, max_norm, is_sorted)
    done = processes.run_program(textwrap.dedent(PROGRAM), repr(arguments))
    temporary = int(processes.output_of(done).split()[-1])
    num_ids = NUM_COLUMNS * BATCH * ids_per_row
    print(f"{temporary / num_ids:.1f} bytes an id")
    assert temporary <= 16 * num_ids + SLACK_BYTES
