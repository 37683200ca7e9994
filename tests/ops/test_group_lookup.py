import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import group_stages
import oracle.lookup
import processes
from checking import VALUE_DTYPES, assert_close, assert_rounded_once, assert_same_bits, dtype_name
from group_stages import Column
from stages import SHAPE_ERROR

pytestmark = pytest.mark.usefixtures("device")

KINDS = {"tensors": np.asarray, "variables": tf.Variable}
TABLES = [np.arange(8.0).reshape(4, 2), 10.0 + np.arange(3.0).reshape(3, 1)]
TWO_COLUMNS = [
    Column(0, [1, 3, -1], [0, 0, 2], 3, combiner="sum"),
    Column(1, [2, 0], [2, 0], 3, id_dtype=np.int32),
]


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    return request.param


@pytest.mark.parametrize("seed", range(30))
def test_equals_the_oracle_on_random_columns(kind, seed):
    rng = np.random.default_rng(seed)
    tables = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, tables, int(rng.integers(1, 6)))
    got = group_stages.lookup([kind(t) for t in tables], columns)
    for g, want in zip(got, group_stages.want_combined(tables, columns), strict=True):
        assert_close(g, want, terms=64)


def test_a_case_by_hand(kind):
    got = group_stages.lookup([kind(t) for t in TABLES], TWO_COLUMNS)
    np.testing.assert_array_equal(got[0], [[8.0, 10.0], [0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(got[1], [[10.0], [0.0], [12.0]])


@pytest.mark.parametrize("seed", range(10))
def test_one_output_is_the_results_side_by_side(kind, device, seed):
    rng = np.random.default_rng(seed)
    tables = group_stages.random_tables(rng)
    columns = [
        column._replace(num_rows=8) for column in group_stages.random_columns(rng, tables, 4)
    ]
    variables = [kind(t) for t in tables]
    [got] = group_stages.lookup(variables, columns, concat=True)
    want = tf.concat(group_stages.lookup(variables, columns), axis=1)
    if device == "GPU":  # addresses decide how wide loads are, and how lanes divide a norm
        assert_close(got, want, terms=64)
    else:
        assert_same_bits(got, want)


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_dtypes_are_rounded_once(kind, dtype):
    rng = np.random.default_rng(3)
    table = tf.cast(rng.standard_normal((6, 19)), dtype).numpy()
    for combiner in oracle.lookup.COMBINERS:
        ids, rows = rng.integers(-1, 6, 50), rng.integers(0, 7, 50)
        columns = [
            Column(0, ids, rows, 7, combiner=combiner),
            Column(0, ids, np.sort(rows), 7, rng.choice([0.5, 2.0], 50), combiner, max_norm=2.0),
        ]
        got = group_stages.lookup([kind(table)], columns)
        for g, want in zip(got, group_stages.want_combined([table], columns), strict=True):
            assert_rounded_once(g, want, dtype)


@pytest.mark.parametrize("weight_dtype", VALUE_DTYPES, ids=dtype_name)
def test_weights_of_any_dtype(kind, weight_dtype):
    column = Column(0, [1, 2, 3], [0, 0, 1], 3, [0.5, 2.0, 0.0])
    args = group_stages.arguments([column], weight_dtype)
    [got] = group_stages.lookup([kind(TABLES[0])], [column], **args)
    np.testing.assert_allclose(got, group_stages.want_combined(TABLES, [column])[0])


def test_rows_without_columns(kind):
    args = {"sp_indices": [np.array([0, 0, 2]), np.array([2, 0])]}
    got = group_stages.lookup([kind(t) for t in TABLES], TWO_COLUMNS, **args)
    want = group_stages.lookup(TABLES, TWO_COLUMNS)
    assert_same_bits(got[0], want[0])
    assert_same_bits(got[1], want[1])


@pytest.mark.parametrize("shape", [(5,), (5, 2, 3), (5, 0)])
def test_rows_of_tables_of_other_ranks_are_flat(kind, shape):
    table = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    [got] = group_stages.lookup([kind(table)], [Column(0, [4, 0], [0, 1], 2)])
    assert_same_bits(got, table[[4, 0]].reshape(2, int(np.prod(shape[1:]))))


def test_prune_false_and_fill_empty_row_false(kind):
    column = Column(0, [1], [1], 3, default_id=2)
    [got] = group_stages.lookup([kind(TABLES[0])], [column], fill_empty_row=False)
    np.testing.assert_array_equal(got, [[0.0, 0.0], [2.0, 3.0], [0.0, 0.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"column 0: id -1 at position 1"):
        group_stages.lookup([kind(TABLES[0])], [Column(0, [1, -1], [0, 0], 1)], prune=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": [2, 3]}, r"column 1: id 3 at position 1 is outside \[0, 3\)"),
        ({"row_ids": [0, 3]}, r"column 1: sp_indices\[1, 0\] = 3 is outside \[0, num_rows = 3\)"),
        ({"default_id": 7}, r"column 1: id 7, which fills row 1"),
        ({"table": 2}, r"table_of_column"),
        ({"table": -1}, r"table_of_column"),
        ({"combiner": "max"}, r"combiner must be sum, mean or sqrtn, got max"),
    ],
)
def test_errors_name_the_column(kind, changes, message):
    columns = [TWO_COLUMNS[0], TWO_COLUMNS[1]._replace(**changes)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        group_stages.lookup([kind(t) for t in TABLES], columns)
    named = message.replace("column 1", "feature 'b'")
    names = ["feature 'a'", "feature 'b'"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=named):
        group_stages.lookup([kind(t) for t in TABLES], columns, column_names=names)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_outputs": 3}, "num_outputs must be 1 or the number of columns"),
        ({"combiners": ["sum"]}, "combiners must have one entry for each of the 2 columns, got 1"),
        ({"max_norms": []}, "max_norms must have one entry"),
        ({"default_ids": [0] * 3}, "default_ids must have one entry"),
        ({"column_names": ["a"]}, "column_names must have one entry for each of the 2 columns"),
        ({"table_of_column": [0]}, "must have one entry for each column"),
        ({"sp_values": [np.array([1])]}, "must have one entry for each column"),
        ({"weighted_columns": [0]}, "weighted_columns must have one entry for each of the 0"),
        (
            {"weighted_columns": [1, 0], "sp_weights": [np.ones(2), np.ones(3)]},
            "weighted_columns must be increasing",
        ),
        (
            {"weighted_columns": [0], "sp_weights": [np.ones(2)]},
            "column 0: sp_weights must hold one weight for each of the 3 ids",
        ),
        ({"sp_values": [np.ones([1, 1], np.int64), np.array([1, 2])]}, "column 0: sp_values"),
        ({"sp_dense_shapes": [np.array([3]), np.array([3, 1])]}, "column 0: sp_dense_shape must"),
        (
            {
                "sp_values": [np.ones([1, 1], np.int64), np.array([1, 2])],
                "column_names": ["feature 'a'", ""],
            },
            "feature 'a': sp_values",
        ),
        (
            {
                "sp_dense_shapes": [np.array([3, 1]), np.array([3])],
                "column_names": ["feature 'a'", ""],
            },
            "column 1: sp_dense_shape",
        ),
    ],
)
def test_malformed_arguments(kind, changes, message):
    args = {"num_outputs": 2} | group_stages.arguments(TWO_COLUMNS) | changes
    tables = [kind(t) for t in TABLES]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        group_stages.call("GroupLookup", tables, **args)


def test_columns_of_one_output_have_one_number_of_rows(kind):
    columns = [TWO_COLUMNS[0], TWO_COLUMNS[1]._replace(num_rows=4)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="one number of rows, but got 3 and 4"):
        group_stages.lookup([kind(t) for t in TABLES], columns, concat=True)


def test_rejects_a_scalar_table():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"a table must have a shape"):
        group_stages.lookup([np.float64(1)], [Column(0, [0], [0], 1)])


def test_rejects_a_variable_of_another_dtype():
    variable = tf.Variable(np.ones((4, 2)))
    args = group_stages.arguments([TWO_COLUMNS[0]]) | {"num_outputs": 1, "dtype": tf.float32}
    with pytest.raises(tf.errors.InvalidArgumentError, match="a variable holds double, but dtype"):
        fe.raw_ops.FusedEmbeddingResourceGroupLookup(resources=[variable.handle], **args)


@pytest.mark.parametrize("num_handles", [0, 2])
def test_rejects_a_tensor_of_handles_that_is_not_one(num_handles):
    args = group_stages.arguments([TWO_COLUMNS[0]]) | {"num_outputs": 1, "dtype": tf.float32}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.Variable(np.float32([[1, 2]])) for _ in range(2)]
        handles = tf.stack([variable.handle for variable in variables])[:num_handles]
        lookup = fe.raw_ops.FusedEmbeddingResourceGroupLookup(resources=[handles], **args)
        session.run(tf.compat.v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="resources must be handles of"):
            session.run(lookup)


def traced_shapes(tables, dense_shapes, num_outputs):
    """Static shapes of the outputs for two columns."""

    @tf.function
    def run(first, second):
        args = group_stages.arguments(TWO_COLUMNS)
        args["sp_dense_shapes"] = [tf.constant(s, tf.int64) for s in dense_shapes]
        return fe.raw_ops.FusedEmbeddingGroupLookup(
            tables=[first, second], num_outputs=num_outputs, **args
        )

    specs = [tf.TensorSpec(shape, tf.float64) for shape in tables]
    outputs = run.get_concrete_function(*specs).structured_outputs
    return [output.shape.as_list() for output in outputs]


def test_shapes():
    assert traced_shapes([[4, 2], [3, 1]], [[3, 9], [3, 1]], 2) == [[3, 2], [3, 1]]
    assert traced_shapes([[4, 2], [3, 1]], [[3, 9], [3, 1]], 1) == [[3, 3]]
    assert traced_shapes([[4, None], [3, 1, 5]], [[2, 3, 9], [6, 1]], 2) == [[6, None], [6, 5]]
    assert traced_shapes([None, [3, 1]], [[3, 9], [3, 1]], 1) == [[3, None]]


@pytest.mark.parametrize(("tables", "dense_shapes"), [([[], [3, 1]], [[3, 9], [3, 1]])])
def test_shape_function_rejects(tables, dense_shapes):
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced_shapes(tables, dense_shapes, 2)


def test_shape_function_rejects_rows_that_differ_in_one_output():
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced_shapes([[4, 2], [3, 1]], [[3, 9], [4, 1]], 1)


def test_shape_of_a_variable_is_known():
    variable = tf.Variable(TABLES[0])
    traced = tf.function(lambda: group_stages.lookup([variable], [TWO_COLUMNS[0]]))
    [output] = traced.get_concrete_function().structured_outputs
    assert output.shape.as_list() == [3, 2]


MEMORY_PROGRAM = """
import numpy as np, tensorflow as tf, fused_embedding as fe
import group_stages

def status(name):
    text = open("/proc/self/status").read()
    return int(text.split(name + ":")[1].split()[0]) * 1024

table = tf.Variable(np.ones((1_000_000, 64), np.float32))
table.scatter_nd_update([[0]], np.ones((1, 64), np.float32))  # from now on a dense read is a copy
columns = [group_stages.Column(0, [1, 3], [0, 1], 2, max_norm=0.5)] * 2
arguments = group_stages.arguments(columns)
grads = [np.ones((2, 64), np.float32)] * 2

def step():
    group_stages.lookup([table], columns)
    group_stages.call("GroupLookupGrad", [table], combined_grads=grads, **arguments)
    table.scatter_nd_update([[1]], np.ones((1, 64), np.float32))

step()
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
step()
print(status("VmHWM") - before)
"""


def test_a_variable_is_never_copied():
    output = processes.output_of(processes.run_program(MEMORY_PROGRAM))
    assert int(output) < 64 * 2**20  # the table has 244 MiB
