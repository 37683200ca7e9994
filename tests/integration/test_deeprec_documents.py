"""What DeepRec's documents show: each program runs, or is told what to do instead."""

import ast
import contextlib
import io
import itertools
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from fused_embedding.compat import deeprec_absent, run

tf1 = tf.compat.v1
PROGRAMS = Path(__file__).parent / "deeprec_programs"


@contextlib.contextmanager
def deeprec():
    """A graph of a DeepRec program, without the process of its own that `run` gives it."""
    with tf.Graph().as_default(), fe.compat.install(), run.tensorflow_is_v1():
        yield


def printed_by(program):
    with deeprec(), contextlib.redirect_stdout(io.StringIO()) as output:
        runpy.run_path(str(PROGRAMS / f"{program}.py"), run_name="__main__")
    return [ast.literal_eval(line) for line in output.getvalue().splitlines()]


def stock_losses(ids, optimizer, dim=3, combine=lambda rows: rows):
    """Three losses `2 sum(combine(rows))` of a dense variable of ones."""
    with tf.Graph().as_default(), tf1.Session() as session:
        table = tf1.get_variable("table", [10, dim], initializer=tf1.ones_initializer())
        loss = 2.0 * tf.reduce_sum(combine(tf1.nn.embedding_lookup(table, ids)))
        step = optimizer().minimize(loss)
        session.run(tf1.global_variables_initializer())
        return [session.run([loss, step])[0] for _ in range(3)]


def ftrl():
    return tf1.train.FtrlOptimizer(
        0.1, l1_regularization_strength=2.0, l2_regularization_strength=0.00001
    )


@pytest.mark.parametrize("value_dtype", [None, tf.float64, tf.bfloat16])
def test_rows_have_the_type_that_is_asked_for(value_dtype):
    with deeprec():
        table = tf1.get_embedding_variable("table", 3, value_dtype=value_dtype)
        rows = tf1.nn.embedding_lookup(table, tf.constant([1], tf.int64))
    assert table.dtype == rows.dtype == (value_dtype or tf.float32)


def test_a_partitioned_variable_is_looked_up_and_trained():
    *losses, size, is_equal, shape = printed_by("embedding_variable")
    want = stock_losses([0, 1, 2, 5, 6, 7], lambda: tf1.train.AdagradOptimizer(0.1))
    np.testing.assert_allclose(losses, want, rtol=1e-6)
    assert losses[1] < losses[0] == 36.0
    assert (size, is_equal, shape) == (6, True, [6, 3])


def test_a_sequence_column_is_trained():
    *losses, lengths = printed_by("sequence")
    np.testing.assert_allclose(losses, stock_losses([1, 3, 2, 3, 4, 5], ftrl), rtol=1e-6)
    assert lengths == [2, 2, 3, 4, 5]


def test_a_weighted_column_is_trained():
    weights = np.array([2.0, 5.0, 4.0, 8.0, 3.0, 1.0, 2.5], np.float32)
    rows_of_ids = [0, 0, 1, 2, 3, 4, 4]
    shares = weights / np.array([weights[np.equal(rows_of_ids, row)].sum() for row in rows_of_ids])
    want = stock_losses([1, 3, 2, 3, 4, 5, 3], ftrl, combine=lambda rows: rows * shares[:, None])
    np.testing.assert_allclose(printed_by("weighted"), want, rtol=1e-5)


def test_options_are_taken():
    *properties, has_values = printed_by("options")
    assert properties == [[0, "DRAM"], [4000, "DRAM"], [0, "DRAM"], [0, "DRAM"], [0, "DRAM"]]
    assert has_values == [True, True, True, False, False]  # nothing is admitted yet


def test_a_checkpoint_is_read_by_tensor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys, shapes = printed_by("export_format")
    assert keys == [5, 6, 7, 8, 9]
    assert shapes == [[5, 4], [5, 8], [5]]


def test_deeprecs_optimizers_train_ordinary_variables():
    losses = printed_by("optimizers")
    assert losses[0] == 192.0
    assert all(after < before for before, after in itertools.pairwise(losses))


def test_a_multihash_variable_and_column_are_trained():
    """The variable's rows are used twice each; the column has DeepRec's row numbers."""
    *losses, names, quotients = printed_by("multihash")
    # Q = ids // 5 is 0 but for id 5; R = ids % 3.
    want = stock_losses_of_rows([[0, 0, 0, 0, 1], [1, 2, 0, 1, 2]], [5, 3])
    np.testing.assert_allclose([of_column for _, of_column in losses], want, rtol=1e-6)
    row = 1 - 0.1 * 4 / np.sqrt(0.1 + 16)
    np.testing.assert_allclose([loss for loss, _ in losses[:2]], [32, 32 * row], rtol=1e-6)
    assert names == [
        "input_layer/col_emb_embedding/embedding_weights_q",
        "input_layer/col_emb_embedding/embedding_weights_r",
        "var-dist/multhash_Q",
        "var-dist/multhash_R",
    ]
    assert np.shape(quotients) == (2, 2)


def stock_losses_of_rows(ids, num_rows):
    """Three losses of the product of rows of two variables of ones."""
    with tf.Graph().as_default(), tf1.Session() as session:
        parts = [tf1.get_variable(f"p{n}", initializer=tf.ones([n, 3])) for n in num_rows]
        loss = tf.reduce_sum(tf.gather(parts[0], ids[0]) * tf.gather(parts[1], ids[1]))
        step = tf1.train.AdagradOptimizer(0.1).minimize(loss)
        session.run(tf1.global_variables_initializer())
        return [session.run([loss, step])[0] for _ in range(3)]


def test_a_variable_of_dynamic_dimension_is_trained():
    sums, *losses, sizes, names = printed_by("dynamic_dimension")
    assert sums == [24, 6, 24, 18, 6]
    assert losses[2] < losses[1] < losses[0] == 2 * sum(sums)
    assert sizes == [5, 3, 3, 2]
    assert names == [24, 4, "var_dist/block0"]


def test_an_adaptive_column_is_trained():
    """Rows that ids only start from stay as they are."""
    *losses, changed, keys, names = printed_by("adaptive")
    np.testing.assert_allclose(losses, stock_losses(range(10), ftrl, dim=16), rtol=1e-6)
    assert changed == [43, 59, 85, 87, 88]
    assert keys == [0, 1, 3, 5, 8]
    assert names == [f"input_layer/col_emb_embedding/{n}_weights" for n in ("hash", "ev")]


def is_full(folder, step):
    path = str(folder / f"ckpt/model.ckpt-{step}")
    return next(iter(fe.train.read_changes(path, "table", embedding_dim=4))).is_full


def test_incremental_checkpoints_of_a_session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [[step, rows]] = printed_by("incremental")
    assert step == 3
    paths = {step: str(tmp_path / f"ckpt/model.ckpt-{step}") for step in range(4)}
    # A session's last one is full.
    assert [is_full(tmp_path, step) for step in paths] == [True, False, False, True]
    with tf.Graph().as_default(), tf1.Session() as session:  # each can be restored
        table = fe.get_embedding_variable("table", 4)
        size = table.total_count()
        saver = fe.train.Saver()
        sizes = []
        for path in paths.values():
            saver.restore(session, path)
            sizes.append(session.run(size))
    assert sizes == [0, 2, 4, 6]
    [[step, rows_again]] = printed_by("incremental")  # starts from the last one
    assert step == 6
    assert len(rows_again) == len(rows)
    assert [is_full(tmp_path, step) for step in (3, 4, 5, 6)] == [True, False, False, True]


def test_savers_and_hooks_of_deeprec(tmp_path):
    with deeprec(), tf1.Session() as session:
        fe.get_embedding_variable("table", 2)
        incremental = tf1.train.Saver(sharded=True, incremental_save_restore=True)
        stock = tf1.train.Saver()
        assert isinstance(incremental, fe.train.Saver)
        assert not isinstance(stock, fe.train.Saver)
        assert isinstance(stock, tf1.train.Saver)

        assert "__init__" not in vars(tf1.train.Saver)  # the patch for tables is on stock's class
        assert fe.train.Saver.__bases__ == (type(stock),)

        class OwnSaver(tf1.train.Saver):
            pass

        assert type(OwnSaver()) is OwnSaver
        with pytest.raises(ValueError, match="derive the class"):
            OwnSaver(incremental_save_restore=True)
        scaffold = tf1.train.Scaffold(saver=incremental, incremental_save_restore=True)
        hook = tf1.train.CheckpointSaverHook(
            str(tmp_path), save_secs=60, scaffold=scaffold, incremental_save_secs=1
        )
        assert hook.incremental_saver() is incremental
        hook = tf1.train.CheckpointSaverHook(
            str(tmp_path), save_steps=1, saver=stock, incremental_save_secs=1
        )
        with pytest.raises(ValueError, match=r"Saver.* cannot write them; .*incremental_save_re"):
            hook.incremental_saver()
        del session


ABSENT = {
    "tf.staged([1])": r"tf\.staged .* dataset\.prefetch",
    "tf.make_prefetch_hook()": r"tf\.make_prefetch_hook .* leave",
    "tf.train.mark_target_node([1])": r"tf\.train\.mark_target_node ",
    "tf.stream(0)": r"tf\.stream .* leave the line out",
    "tf.ExecutorPolicy.USE_INLINE_EXECUTOR": r"tf\.ExecutorPolicy .* leave the line out",
    "tf.data.KafkaDataset(topics=['t'])": r"tf\.data\.KafkaDataset .* tfio",
    "tf.config.experimental.enable_distributed_strategy(strategy='collective')": "leave the stra",
    "tf.variable_scope('a').keep_weights(dtype=tf.float32)": "keep_weights .* cast the inputs",
    "tf.graph_optimizer.enable_sample_awared_graph_compression(1, 2, 3)": "leave the call out",
    "tf.TableRecordReader()": "TableRecordReader .* TFRecords",
    "work_queue.WorkQueue(['f'])": r"work_queue\.WorkQueue .*Dataset\.from_tensor_slices.*shard",
    "parquet_dataset_ops.ParquetDataset('f', batch_size=2)": r"ParquetDataset .* fe\.data\.parquet",
    "parquet_dataset_ops.DataFrame.Field('A', tf.int64)": r"DataFrame .* fe\.data\.parquet",
    "CollectiveStrategy()": "CollectiveStrategy .* parameter servers",
    "tf.StorageOption(storage_type=config_pb2.StorageType.HBM_DRAM)": "HBM_DRAM was given",
    "tf.StorageOption(storage_type=config_pb2.StorageType.DRAM_PMEM)": "DRAM_PMEM was given",
}
IMPORTS = """
import tensorflow as tf
from tensorflow.core.framework.embedding import config_pb2
from tensorflow.python.data.experimental.ops import parquet_dataset_ops
from tensorflow.python.distribute.group_embedding_collective_strategy import CollectiveStrategy
from tensorflow.python.ops import work_queue
"""


@pytest.mark.parametrize("expression", ABSENT)
def test_a_feature_that_is_absent_is_named(expression):
    with deeprec():
        names = {}
        exec(IMPORTS, names)  # what a program imports and does not use is no error
        with pytest.raises(NotImplementedError, match=ABSENT[expression]):
            eval(expression, names)


@pytest.mark.parametrize(
    ("statement", "message"),
    {
        "import tensorflow.contrib.rnn": r"tensorflow\.contrib\.rnn was .* use tf\.nn\.rnn_cell",
        "from tensorflow.contrib import slim": r"tensorflow\.contrib\.slim was asked for",
        "from tensorflow.contrib.layers import fully_connected": r"use tf\.layers\.dense",
        "from tensorflow.contrib.layers import xavier_initializer": "use tf.glorot_uniform_init",
    }.items(),
)
def test_what_tf_contrib_does_not_have_is_named(statement, message):
    finders = list(sys.meta_path)
    with deeprec(), pytest.raises(ModuleNotFoundError, match=message):
        exec(statement, {})
    assert sys.meta_path == finders


def set_proto_field():
    tf1.ConfigProto().graph_options.optimizer_options.do_smart_stage = True


def start_server():
    cluster = tf.train.ClusterSpec({"worker": ["localhost:0"]})
    tf.distribute.Server(cluster, "worker", 0, protocol="star_server")


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (set_proto_field, r"do_smart_stage: .*dataset\.prefetch"),
        (lambda: tf1.ConfigProto(tensor_fuse=True), "tensor_fuse: .* leave the argument out"),
        (start_server, 'star_server: .*protocol="grpc"'),
    ],
    ids=["field", "argument", "protocol"],
)
def test_tensorflows_errors_for_what_is_deeprecs_end_with_advice(use, advice):
    with pytest.raises((AttributeError, ValueError, tf.errors.NotFoundError)) as caught:
        use()
    line = deeprec_absent.advice_for(str(caught.value)) or ""
    assert re.match(f"fused_embedding: {advice}", line), line
    assert deeprec_absent.advice_for("another error") is None


def test_uses_of_keras_2_are_found_before_the_program_runs(tmp_path):
    (tmp_path / "model.py").write_text("import train\ntf.compat.v1.layers.dense(1)\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "part.py").write_text("cell = tf.nn.rnn_cell.GRUCell(3)\n")
    program = tmp_path / "train.py"
    uses = run.keras_2_uses
    program.write_text("import sys, numpy\nself.layers = tf.keras.layers.Dense(3)  # tf.layers\n")
    assert uses(program) == []
    program.write_text("from package import part\n")
    assert uses(program) == ["tf.nn.rnn_cell"]
    program.write_text("import model, package.part\n")
    assert uses(program) == ["tf.layers", "tf.nn.rnn_cell"]
    program.write_text("not Python")
    assert uses(program) == []


def test_a_program_that_looks_for_deeprecs_op_is_told_its_name(tmp_path, capsys):
    program = tmp_path / "read.py"
    program.write_text("names = [node for node in graph if node.op == 'KvVarHandleOp']\n")
    run._warn_of_kv_handles(program)
    assert "KvVarHandleOp: the op is called EmbeddingVariableHandle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "switch", "program", "starts_anew"),
    [
        ("2.16.1", None, "layers", True),
        ("2.15.1", None, "layers", False),
        ("2.16.1", "0", "layers", False),
        ("2.16.1", None, "options", False),
    ],
)
def test_when_a_program_is_started_anew(version, switch, program, starts_anew, monkeypatch):
    started = []
    monkeypatch.setattr(tf, "__version__", version)
    monkeypatch.setattr(os, "execv", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", switch or "")
    if switch is None:
        monkeypatch.delenv("TF_USE_LEGACY_KERAS")
    run._run_with_keras_2(PROGRAMS / f"{program}.py")
    assert started == ([(sys.executable, [sys.executable, *sys.orig_argv[1:]])] * starts_anew)
    assert os.environ.get("TF_USE_LEGACY_KERAS") == ("1" if starts_anew else switch)


def test_keras_2_must_be_installed(monkeypatch):
    monkeypatch.setattr(tf, "__version__", "2.16.1")
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"uses tf\.layers, .* pip install tf_keras"):
        run._run_with_keras_2(PROGRAMS / "layers.py")


@pytest.mark.slow
def test_a_program_with_tf_layers_gets_keras_2():
    pytest.importorskip("tf_keras")
    package = str(Path(fe.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": package, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("TF_USE_LEGACY_KERAS", None)
    command = [sys.executable, "-m", "fused_embedding", "run", str(PROGRAMS / "layers.py")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "(4, 2)\n"
