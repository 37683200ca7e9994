"""What a new user tries first, in the Python that runs this: a line for each step, then JSON.

tools/try_tensorflow.sh runs it in an environment with one TensorFlow and the installed package.
"""

import json
import pathlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import fused_embedding as fe
import readme_example

tf1 = tf.compat.v1
NUM_STEPS = 5
_NUM_SSD_ROWS, _DRAM_BYTES = 80_000, 16 << 20
IDS = np.array([[3, 1, 3], [7, 0, 1], [9, 9, 2], [4, 3, 8]], np.int64)


def losses_of_training(do_fusion: bool) -> list[float]:
    """Losses of a column's steps with Adagrad, from the same first values each time."""
    column = fe.feature_column.embedding_column(
        tf.feature_column.categorical_column_with_identity("ad", 10),
        dimension=8,
        initializer=tf1.constant_initializer(np.linspace(-1, 1, 80).reshape(10, 8)),
        do_fusion=do_fusion,
    )
    with tf.Graph().as_default(), tf1.Session() as session:
        rows = tf1.feature_column.input_layer({"ad": tf.constant(IDS)}, [column])
        loss = tf.reduce_mean(tf.square(rows - 0.5))
        train = tf1.train.AdagradOptimizer(0.5).minimize(loss)
        session.run(tf1.global_variables_initializer())
        return [float(session.run([loss, train])[0]) for _ in range(NUM_STEPS)]


def try_readme() -> str:
    """Runs the README's example in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", readme_example.readme_example()],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def try_training() -> str:
    """Trains stock and fused, which must have the same losses."""
    stock, fused = losses_of_training(False), losses_of_training(True)
    np.testing.assert_allclose(fused, stock, rtol=1e-5)
    return f"losses {fused[0]:.4f} -> {fused[-1]:.4f}, as stock's"


def try_saver() -> str:
    """Trains a table without a vocabulary, saves it, and restores it in another graph."""
    with tempfile.TemporaryDirectory() as folder:
        path, rows = None, []
        for _ in range(2):
            with tf.Graph().as_default(), tf1.Session() as session:
                table = fe.get_embedding_variable("users", 8)
                looked_up = tf.nn.embedding_lookup(table, IDS)
                loss = tf.reduce_sum(tf.square(looked_up - 0.5))
                train = tf1.train.AdagradOptimizer(0.5).minimize(loss)
                saver = tf1.train.Saver()
                if path is None:
                    session.run(tf1.global_variables_initializer())
                    session.run(train)
                    path = saver.save(session, f"{folder}/model", global_step=1)
                else:
                    saver.restore(session, path)
                rows.append(session.run(looked_up))
    np.testing.assert_array_equal(*rows)
    return f"{len(np.unique(IDS))} trained rows restored, bit for bit"


class _Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = fe.get_embedding_variable("ads", 8)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int64)])
    def serve(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Rows of the ids."""
        return {"rows": tf.nn.embedding_lookup(self.table, ids)}


_LOAD = """
import sys
import numpy as np
import tensorflow as tf
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
ids, rows = np.load(sys.argv[2]), np.load(sys.argv[3])
np.testing.assert_allclose(served(ids=tf.constant(ids))["rows"], rows, rtol=1e-6)
assert "fused_embedding" not in sys.modules
"""


def try_export() -> str:
    """Exports a model, and loads it in a process that does not import the package."""
    model = _Model()
    rows = model.serve(IDS)["rows"].numpy()
    with tempfile.TemporaryDirectory() as folder:
        fe.export_for_serving(model, f"{folder}/export", signatures=model.serve)
        np.save(f"{folder}/ids.npy", IDS)
        np.save(f"{folder}/rows.npy", rows)
        arguments = [f"{folder}/export", f"{folder}/ids.npy", f"{folder}/rows.npy"]
        subprocess.run([sys.executable, "-c", _LOAD, *arguments], check=True)
    return "served by stock TensorFlow alone, the same rows"


def try_ssd() -> str:
    """Trains a table with a tier on an SSD, where the installation has RocksDB."""
    library = pathlib.Path(fe.__file__).with_name("_cold_store_rocksdb.so")
    if not library.exists():
        return "not tried: this installation has no RocksDB"
    with tempfile.TemporaryDirectory() as folder:
        storage = fe.StorageOption(fe.StorageType.DRAM_SSD, folder, (_DRAM_BYTES,))
        option = fe.EmbeddingVariableOption(storage_option=storage)
        table = fe.get_embedding_variable("on_ssd", 64, ev_option=option)
        ids = tf.range(_NUM_SSD_ROWS, dtype=tf.int64)
        first = [tf.nn.embedding_lookup(table, one).numpy() for one in tf.split(ids, 8)]
        again = [tf.nn.embedding_lookup(table, one).numpy() for one in tf.split(ids, 8)]
        np.testing.assert_array_equal(again, first)
        num_demotions = int(table.statistics()["demotions"])
        del table
    return f"{_NUM_SSD_ROWS} rows, {num_demotions} demotions to the SSD, read back bit for bit"


STEPS: dict[str, Callable[[], str]] = {
    "README example": try_readme,
    "training against stock": try_training,
    "Saver": try_saver,
    "export_for_serving": try_export,
    "tier on an SSD": try_ssd,
}


def main() -> None:
    """Runs all steps; the first that fails ends the program."""
    report = {"tensorflow": tf.__version__, "python": platform.python_version()}
    for name, step in STEPS.items():
        report[name] = step()
        print(f"{name}: {report[name]}", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
