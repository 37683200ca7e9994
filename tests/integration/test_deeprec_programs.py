import ast
import contextlib
import doctest
import functools
import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import processes

tf1 = tf.compat.v1
ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "deeprec_programs"


def run(program, *arguments):
    return processes.run_module("fused_embedding", "run", program, *arguments)


def stock_steps():
    """Embeddings and losses of the programs with a dense variable and stock TensorFlow."""
    with tf.Graph().as_default(), tf1.Session() as session:
        table = tf1.get_variable("table", [6, 3], initializer=tf1.ones_initializer())
        rows = [[row, 0] for row in range(5)]
        ids = tf.SparseTensor(rows, tf.constant([1, 2, 3, 4, 5], tf.int64), [5, 4])
        emb = tf1.nn.safe_embedding_lookup_sparse(table, ids)
        loss = tf.reduce_sum(emb * 2.0)
        optimizer = tf1.train.FtrlOptimizer(
            0.1, l1_regularization_strength=2.0, l2_regularization_strength=0.00001
        )
        step = optimizer.minimize(loss)
        session.run(tf1.global_variables_initializer())
        return [session.run([emb, loss, step])[:2] for _ in range(3)]


@pytest.mark.parametrize("program", ["feature_column", "contrib_layers"])
def test_deeprecs_programs_print_what_stock_ftrl_gives(program):
    result = run(PROGRAMS / f"{program}.py")
    assert result.returncode == 0, result.stderr
    printed = [ast.literal_eval(line) for line in result.stdout.splitlines()]
    want = stock_steps()
    assert len(printed) == len(want) == 3
    assert want[0][1] == 30.0
    assert want[1][1] != want[0][1]  # a step that changes nothing would compare nothing
    for (emb, loss), (want_emb, want_loss) in zip(printed, want, strict=True):
        np.testing.assert_allclose(emb, want_emb, rtol=4 * np.finfo(np.float32).eps, atol=1e-7)
        np.testing.assert_allclose(loss, want_loss, rtol=1e-6, atol=1e-6)


def stock_steps_of_three_columns():
    """Inputs and losses of the program with scopes, of stock columns over dense variables."""
    with tf.Graph().as_default(), tf1.Session() as session:
        places = [[0, 0], [0, 1], [1, 1], [2, 2], [3, 3], [4, 3], [4, 4]]
        ids = tf.SparseTensor(places, tf.constant([1, 3, 2, 3, 4, 5, 3], tf.int64), [5, 5])
        columns = [
            tf.feature_column.embedding_column(
                tf.feature_column.categorical_column_with_identity(key, 10),
                dim,
                combiner,
                tf1.constant_initializer(0.5),
            )
            for key, dim, combiner in (("a", 4, "mean"), ("b", 3, "sum"), ("c", 2, "sqrtn"))
        ]
        inputs = tf1.feature_column.input_layer({key: ids for key in "abc"}, columns)
        loss = tf.reduce_sum(inputs * 2.0)
        optimizer = tf1.train.FtrlOptimizer(
            0.1, l1_regularization_strength=2.0, l2_regularization_strength=0.00001
        )
        step = optimizer.minimize(loss)
        session.run(tf1.global_variables_initializer())
        return [session.run([inputs, loss, step])[:2] for _ in range(3)]


def test_a_program_with_scopes_prints_what_stock_gives():
    result = run(PROGRAMS / "group_scope.py")
    assert result.returncode == 0, result.stderr
    *printed, num_groups = [ast.literal_eval(line) for line in result.stdout.splitlines()]
    assert num_groups == [1]
    for got, want in zip(printed, stock_steps_of_three_columns(), strict=True):
        for got_value, want_value in zip(got, want, strict=True):
            np.testing.assert_allclose(got_value, want_value, rtol=1e-5, atol=1e-6)


HELPER = """
import tensorflow as tf
from tensorflow.python.ops import variable_scope
import tensorflow.python.framework.ops as ops
import tensorflow.contrib.layers as layers

def is_v1():
    return (
        tf.Session.__name__ == "Session"
        and variable_scope.get_embedding_variable is tf.get_embedding_variable
        and ops.get_default_graph() is tf.get_default_graph()
        and layers.embedding_column is tf.contrib.layers.embedding_column
    )
"""

PROGRAM = """
import sys
import helper
import tensorflow as tf
from tensorflow import nn
from tensorflow.core.framework.embedding import config_pb2

tf.flags.DEFINE_integer("steps", 1, "Number of steps.")

def main(argv):
    assert helper.is_v1()
    assert not tf.executing_eagerly()
    assert nn.fused_embedding_lookup_sparse is tf.nn.fused_embedding_lookup_sparse
    assert tf.StorageOption(config_pb2.StorageType.DRAM).storage_path is None
    assert tf.StorageOption(config_pb2.StorageType.DRAM_SSDHASH, "ssd", [1 << 30]).is_on_ssd
    assert sys.modules["__main__"].main is main
    print(tf.flags.FLAGS.steps, argv, __name__, __file__)
    sys.exit(3)

if __name__ == "__main__":
    tf.app.run()
"""


def test_a_program_finds_its_arguments_modules_and_tensorflow_1(tmp_path):
    (tmp_path / "helper.py").write_text(HELPER)
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    result = run(program, "--steps=5", "rest")
    assert result.returncode == 3, result.stderr
    assert result.stdout.split("\n")[0] == f"5 {[str(program), 'rest']} __main__ {program}"


def test_libraries_keep_tensorflow_2(tmp_path):
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("import tensorflow as tf\nfrom tensorflow import nn\n")
    program = tmp_path / "train.py"
    program.write_text(
        f"import sys; sys.path.append({str(library.parent)!r})\n"
        "import library, tensorflow as tf\n"
        "print(hasattr(library.tf, 'Session'), hasattr(tf, 'Session'), library.nn is tf.nn)\n"
    )
    result = run(program)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "False True False\n"


def test_a_missing_program_is_an_error():
    result = run("/no/such/program.py")
    assert result.returncode != 0
    assert "there is no program '/no/such/program.py'; give the path" in result.stderr


def names_of(module):
    return {name: id(value) for name, value in vars(module).items()}


def test_install_adds_and_uninstall_takes_back():
    tf1.nn, tf1.train, tf1.feature_column, tf1.GraphKeys  # noqa: B018  # loaded lazily
    stock_ops = importlib.import_module("tensorflow.python.ops.embedding_ops")
    modules = [tf1, tf1.nn, tf1.train, tf1.feature_column, tf1.GraphKeys, stock_ops]
    before = [names_of(module) for module in modules]
    modules_before = {name for name in sys.modules if name.startswith("tensorflow")}
    stock_column = tf1.feature_column.embedding_column
    with fe.compat.install() as installation:
        contrib = tf1.contrib
        fe.compat.deeprec.install()  # again
        assert tf1.contrib is contrib
        assert tf1.feature_column.embedding_column is fe.feature_column.embedding_column
        column = tf1.feature_column.categorical_column_with_embedding("key")
        assert (
            tf1.feature_column.embedding_column(column, 2, do_fusion="v2").name == "key_embedding"
        )
        assert isinstance(tf1.CounterFilter(2), fe.CounterFilter)
        assert tf1.GraphKeys.EMBEDDING_VARIABLES == fe.EMBEDDING_VARIABLES
        assert tf1.nn.fused_safe_embedding_lookup_sparse
        assert tf1.train.AdamAsyncOptimizer is fe.train.AdamAsyncOptimizer
        assert stock_ops.fused_safe_embedding_lookup_sparse
        name = "tensorflow.contrib.layers.python.layers.feature_column_ops"
        assert importlib.import_module(name).input_from_feature_columns
        assert tf1.contrib.layers.sparse_column_with_embedding("key").name == "key"
        with pytest.raises(
            AttributeError, match=r"contrib.layers.fully_connected was asked .* use"
        ):
            tf1.contrib.layers.fully_connected  # noqa: B018
        assert tf.feature_column.embedding_column is stock_column  # tf itself is left alone
    assert installation is not None
    assert [names_of(module) for module in modules] == before
    assert {name for name in sys.modules if name.startswith("tensorflow")} == modules_before
    fe.compat.deeprec.uninstall()  # where it is not installed
    assert [names_of(module) for module in modules] == before


TWO_MODULES = """
import tensorflow as tf
first = tf.compat.v1
try:
    import tf_keras as keras
except ImportError:
    import keras
import tensorflow.compat.v1 as second
import fused_embedding as fe
for _ in range(2):
    with fe.compat.install():
        assert first.CounterFilter is second.CounterFilter is fe.CounterFilter
        assert second.nn.fused_embedding_lookup_sparse is first.nn.fused_embedding_lookup_sparse
    for module in (first, second):
        assert not hasattr(module, "CounterFilter")
        assert not hasattr(module.nn, "fused_embedding_lookup_sparse")
"""


def test_install_reaches_all_modules_that_are_tensorflow_1():
    result = processes.run_program(TWO_MODULES)
    assert result.returncode == 0, result.stderr


def test_stock_columns_still_work_while_installed():
    def build():
        keys = [tf.feature_column.categorical_column_with_identity(key, 5) for key in "ab"]
        features = {key: tf.constant([[1], [2]], tf.int64) for key in "ab"}
        columns = tf1.feature_column.shared_embedding_columns(keys, 2)
        return [
            tf1.feature_column.input_layer(features, columns),
            tf1.feature_column.linear_model(features, keys),
            tf1.nn.embedding_lookup_sparse(
                tf.ones([3, 2]), tf.sparse.from_dense([[1], [2]]), None, combiner="sum"
            ),
        ]

    shapes, ops = [], []
    for context in (contextlib.nullcontext, fe.compat.install):
        with context(), tf.Graph().as_default() as graph:
            shapes.append([tensor.shape.as_list() for tensor in build()])
            ops.append([op.type for op in graph.get_operations()])
    assert shapes[0] == shapes[1] == [[2, 4], [2, 1], [None, 2]]
    assert ops[0] == ops[1]


@pytest.mark.parametrize("as_list", [list, tuple])
def test_a_list_of_all_partitions_is_the_table(as_list):
    keys = tf.constant([7, 0, 6, 2**40], tf.int64)
    with fe.compat.install():
        parts = tf1.fixed_size_partitioner(4)
        initializer = tf1.random_uniform_initializer()
        table = tf1.get_embedding_variable("parts", 3, initializer=initializer, partitioner=parts)
        want = tf1.nn.embedding_lookup(table, keys)
        got = tf1.nn.embedding_lookup(as_list(table), keys)
    assert len(np.unique(want, axis=0)) == 4
    np.testing.assert_array_equal(got, want)


def test_lookups_of_tf_nn_take_tables_while_installed():
    with tf.Graph().as_default(), tf1.Session() as session, fe.compat.install():
        table = tf1.get_embedding_variable("table", 2, initializer=tf1.ones_initializer())
        ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([7, 8, 9], tf.int64), [2, 2])
        sums = [
            tf1.nn.embedding_lookup_sparse(table, ids, None, combiner="sum"),
            tf1.nn.safe_embedding_lookup_sparse([table], ids, combiner="sum"),
            tf1.nn.fused_embedding_lookup_sparse(table, ids, combiner="sum"),
        ]
        session.run(tf1.global_variables_initializer())
        for got in session.run(sums):
            np.testing.assert_array_equal(got, [[2.0, 2.0], [1.0, 1.0]])
        assert session.run(table.total_count()) == 3


def test_tables_of_several_parts_while_installed():
    """../shared/reference/compressed_tables.md, 1.3 and 2.4, under DeepRec's names."""
    ones = tf1.ones_initializer()
    ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([7, 9], tf.int64), [1, 2])
    with fe.compat.install():
        blocks = tf1.get_dynamic_dimension_embedding_variable("d", 2, 2, initializer=ones)
        rows = tf1.nn.embedding_lookup(blocks, [[7, 9], [7, 5]], blocknums=[[2, 1], [2, 0]])
        assert rows.numpy().tolist() == [[[1] * 4, [1, 1, 0, 0]], [[1] * 4, [0] * 4]]
        for combiner, want in (("mean", [1, 1, 0.5, 0.5]), ("sum", [2, 2, 1, 1])):
            lookup = functools.partial(tf1.nn.embedding_lookup_sparse, blocks, ids, None)
            assert lookup(combiner=combiner, blocknums=[2, 1]).numpy().tolist() == [want]
        with pytest.raises(ValueError, match="blocknums must be valid for dynamic embedding"):
            tf1.nn.embedding_lookup(blocks, [7])
        with pytest.raises(ValueError, match="has no blocks"):
            tf1.nn.embedding_lookup(tf.Variable([[1.0]]), [0], blocknums=[1])
        table = tf1.get_multihash_variable("m", [[5, 1], [3, 1]], operation="mult", dtype=float)
        assert (table.divisor, table.modulus, table.operation) == (5, 3, "mul")
        [row] = tf1.nn.safe_embedding_lookup_sparse(table, ids, combiner="sum")
        q, r = (part[:, 0] for part in table.val_list)
        np.testing.assert_allclose(row, [q[1] * r[1] + q[1] * r[0]], rtol=1e-5, atol=1e-6)
    for name in ("get_multihash_variable", "get_dynamic_dimension_embedding_variable"):
        assert not hasattr(tf1, name)


VARIABLE_MODULE = "tensorflow.python.ops.variable_scope"
COLUMN_MODULE = "tensorflow.python.feature_column.feature_column_v2"


@pytest.mark.parametrize("kind", ["multihash", "adaptive_embedding"])
def test_modules_of_tensorflow_have_the_columns(kind):
    name = f"categorical_column_with_{kind}"
    module = importlib.import_module(COLUMN_MODULE)
    with fe.compat.install():
        assert getattr(module, name) is getattr(tf1.feature_column, name)
        variables = importlib.import_module(VARIABLE_MODULE)
        assert variables.get_multihash_variable is tf1.get_multihash_variable
    assert not hasattr(module, name)


def refused(argument):
    return pytest.raises(NotImplementedError, match=f"{argument} was given")


@pytest.mark.parametrize(
    "argument",
    ["regularizer", "init_data_source", "steps_to_live_l2reg", "l2reg_theta", "storage_type"],
)
def test_arguments_of_dynamic_dimensions_that_are_refused(argument):
    with fe.compat.install(), refused(argument):
        tf1.get_dynamic_dimension_embedding_variable("d", 2, 2, **{argument: 1})


def test_blocks_have_steps_to_live():
    with fe.compat.install():
        table = tf1.get_dynamic_dimension_embedding_variable(
            "d", 2, 2, steps_to_live=9, ht_partition_num=10
        )
    assert [block.steps_to_live for block in table.blocks] == [9, 9]


@pytest.mark.parametrize("argument", ["regularizer", "constraint", "custom_getter"])
def test_arguments_of_multihash_variables_that_are_refused(argument):
    with fe.compat.install(), refused(argument):
        tf1.get_multihash_variable("m", [[2, 2], [2, 2]], **{argument: tf.identity})


@pytest.mark.parametrize("argument", ["regularizer", "constraint", "custom_getter"])
def test_arguments_that_are_not_there_are_refused(argument):
    with fe.compat.install(), pytest.raises(NotImplementedError, match=f"{argument} was given"):
        tf1.get_embedding_variable("table", 2, **{argument: tf.identity})


def test_examples_of_the_page_and_the_docstrings():
    page = (ROOT / "docs/deeprec.md").read_text()
    (example,) = re.findall("```python\n(.*?)```", page, re.DOTALL)
    with tf.Graph().as_default():
        exec(compile(example, "docs/deeprec.md", "exec"), {})
    assert not hasattr(tf1, "get_embedding_variable")
    results = doctest.testmod(fe.compat.deeprec, extraglobs={"fe": fe})
    assert (results.attempted, results.failed) == (2, 0)
