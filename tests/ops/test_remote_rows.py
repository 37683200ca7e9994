"""The servers' ops of a lookup in tables of other tasks: messages of keys become rows."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import group_stages
import oracle.key_message
import remote_stages
from checking import VALUE_DTYPES, assert_same_bits, dtype_name
from keyed_tables import lists, make_table, metadata, statistic
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

pytestmark = pytest.mark.on_cpu

InvalidArgumentError = tf.errors.InvalidArgumentError
KINDS = {"tensors": np.asarray, "variables": tf.Variable}
TABLES = [np.arange(8.0).reshape(4, 2), 10.0 + np.arange(3.0).reshape(3, 1)]
SAME_VERSION = "workers and servers must run the same version of fused_embedding"


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    return request.param


def message_of(keys, counts=None, step=-1):
    return np.array(oracle.key_message.words(step, keys, counts), np.int64)


def read(kind, keys, tables=TABLES, **args):
    return remote_stages.rows_of_tensors([kind(t) for t in tables], message_of(keys), **args)


def keyed_rows(resources, message, dims, dtype=tf.float64, insert=True, **args):
    return fe.raw_ops.EmbeddingVariableRemoteRows(
        resources=resources, message=message, dims=dims, dtype=dtype, insert=insert, **args
    )


# --- Ordinary tables ---


def test_a_case_by_hand(kind):
    got = read(kind, [[3, 0], [2]])
    assert got.rows.numpy().tolist() == [6.0, 7.0, 0.0, 1.0, 12.0]
    assert got.part_sizes.numpy().tolist() == [2, 1]
    assert lists(got[2]) == [[3, 0], [2]]


def test_no_keys(kind):
    got = read(kind, [[], []])
    assert got.rows.shape == (0,)
    assert got.part_sizes.numpy().tolist() == [0, 0]
    assert lists(got[2]) == [[], []]


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_oracle_on_what_random_columns_ask(kind, seed):
    rng = np.random.default_rng(seed)
    tables = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, tables, int(rng.integers(1, 6)))
    layout = remote_stages.random_layout(rng, tables)
    messages = [np.array(words) for words in remote_stages.want_messages(columns, layout)]
    got = remote_stages.answer(tables, layout, messages, kind)
    for rows, want in zip(got, remote_stages.want_rows(tables, columns, layout), strict=True):
        assert_same_bits(rows, want)


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_rows_are_copied_bit_by_bit(kind, dtype):
    tables = [tf.constant(t, dtype).numpy() for t in TABLES]
    rows = read(kind, [[1, 2, 1], [0]], tables).rows
    assert_same_bits(rows, np.concatenate([tables[0][[1, 2, 1]].ravel(), tables[1][0]]))


def test_rows_of_any_rank_are_flat(kind):
    tables = [np.arange(30.0).reshape(5, 2, 3), np.arange(4.0)]
    rows = read(kind, [[4, 1], [2]], tables).rows
    assert_same_bits(rows, np.concatenate([tables[0][[4, 1]].ravel(), [2.0]]))


def test_many_keys_and_threads_give_the_same(kind):
    rng = np.random.default_rng(0)
    tables = [rng.standard_normal((70_000, 3)), rng.standard_normal((500, 17)), np.ones((2, 1))]
    keys = [rng.permutation(len(table)) for table in tables]
    got = read(kind, keys, tables)
    want = [table[of_table].ravel() for table, of_table in zip(tables, keys, strict=True)]
    assert_same_bits(got.rows, np.concatenate(want))


@pytest.mark.parametrize("key", [-1, 3, INT64_MIN, INT64_MAX])
def test_a_key_outside_its_table_names_the_table(kind, key):
    with pytest.raises(InvalidArgumentError, match=f"table 1: .*{key} at position 1 .*3"):
        read(kind, [[3, 0], [2, key]])
    names = ["ads/price", "ads/user"]
    with pytest.raises(InvalidArgumentError, match=f"ads/user: .*{key} at position 1"):
        read(kind, [[3, 0], [2, key]], table_names=names)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"dims": [2, 2]}, "rows of the table have 1 values, but the lookup reads 2"),
        ({"dims": [1, 1], "table_names": ["a", "b"]}, "a: rows of the table have 2 values"),
        ({"dims": [2]}, "dims and table_names must have one entry for each of the 2 tables"),
        ({"table_names": ["a"]}, "dims and table_names must have one entry .* got 2 and 1"),
        ({"dims": [2, 0]}, r"dims must be >= 1 and at most 2\^40, got 0"),
        ({"dims": [2, 2**41]}, r"dims must be >= 1 and at most 2\^40"),
    ],
)
def test_attributes_that_do_not_fit(kind, args, message):
    with pytest.raises(InvalidArgumentError, match=message):
        read(kind, [[3, 0], [2]], **args)


def test_a_variable_of_another_dtype():
    with pytest.raises(InvalidArgumentError, match="a variable holds double, but dtype"):
        read(tf.Variable, [[3, 0], [2]], dtype=tf.float32)


def test_a_message_with_counts_is_refused(kind):
    message = message_of([[3, 0], [2]], [[1, 1], [1]])
    with pytest.raises(
        InvalidArgumentError, match=f"has counts of keys, .* need none.*{SAME_VERSION}"
    ):
        remote_stages.rows_of_tensors([kind(t) for t in TABLES], message)


# --- Any table ---


def test_a_scalar_message_is_refused(kind):
    with pytest.raises(InvalidArgumentError, match="message"):
        remote_stages.rows_of_tensors([kind(t) for t in TABLES], np.int64(1))


# [format, step, 2, 2, 1, 2**40, 2, 0, counts 1, 300 and 2 of two bytes each]
RIGHT = message_of([[2**40, 2], [0]], [[1, 300], [2]])
# The same with keys and counts of four bytes, two a word.
SHORT_KEYS = message_of([[1, 2], [0]], [[1, 70_000], [2]])


def changed(at, word, of=RIGHT):
    message = of.copy()
    message[at] = word
    return message


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (changed(0, 0), "message does not start as one of keys does"),
        (changed(0, RIGHT[0] + 1), "has format 3, but this op reads 2"),
        (changed(0, RIGHT[0] - 1), "has format 1, but this op reads 2"),
        (changed(0, RIGHT[0] - 0x100), "has keys of 7 bytes and counts of 2"),
        (changed(0, RIGHT[0] + 0x1000), "has keys of 8 bytes and counts of 3"),
        (changed(0, RIGHT[0] + 0x2000), "has 9 words, but 3 keys of 2 tables take 10"),
        (
            message_of([[2**40, 2], [0]]),
            "has no counts of keys, but the tables of this op need them",
        ),
        (message_of([[1, 2, 3]], [[1, 3, 4]]), "message is for 1 tables, but the op has 2"),
        (changed(2, -1), "message is for -1 tables"),
        (changed(3, -1), "message of 9 words has -1 keys of one table"),
        (changed(4, -1), "has -1 keys of one table"),
        (changed(3, INT64_MAX), f"has {INT64_MAX} keys of one table"),
        (changed(4, 19), "has 19 keys of one table"),
        (changed(4, 2), "has 9 words, but 4 keys of 2 tables take 10"),
        (changed(4, 0), "has 9 words, but 2 keys of 2 tables take 8"),
        (changed(7, -1, SHORT_KEYS), "message counts a key -1 times"),
        (changed(7, -(1 << 62), SHORT_KEYS), "message counts a key -1073741824 times"),
        (np.append(RIGHT, 0), "has 10 words, but 3 keys of 2 tables take 9"),
        (RIGHT[:0], "message has 0 words, but one for 2 tables has at least 5"),
        (RIGHT[:4], "message has 4 words"),
        *((RIGHT[:n], f"message (has|of) {n} words") for n in range(5, 9)),
    ],
)
def test_a_damaged_message_changes_nothing(message, error):
    tables = [make_table(np.ones([3, 2])), make_table(np.ones([3, 1]))]
    with pytest.raises(InvalidArgumentError, match=f"{error}.*{SAME_VERSION}"):
        keyed_rows(tables, message, [2, 1])
    assert [statistic(table, "size") for table in tables] == [3, 3]
    assert [metadata(table, range(3)) for table in tables] == [([0] * 3, [0] * 3)] * 2


# --- EmbeddingVariables ---


def test_a_case_by_hand_of_keyed_tables():
    tables = [make_table(np.arange(8.0).reshape(4, 2)), make_table(np.ones([1, 1]))]
    message = message_of([[3, 7], [0]], [[2, 0], [5]], step=4)
    got = keyed_rows(tables, message, [2, 1])
    assert got.rows.numpy().tolist() == [6.0, 7.0, 0.0, 0.0, 1.0]
    assert got.part_sizes.numpy().tolist() == [2, 1]
    assert lists(got[2]) == [[3, 7], [0]]
    assert [min(handles.numpy()) >= 0 for handles in got.handles] == [True, True]
    assert metadata(tables[0], [3, 7, 1]) == ([2, 0, 0], [4, 4, 0])
    assert metadata(tables[1], [0]) == ([5], [4])
    assert [statistic(table, "size") for table in tables] == [5, 1]


def test_handles_are_those_of_a_lookup():
    table = make_table(np.ones([3, 2]))
    got = keyed_rows([table], message_of([[2, 0, 8]], [[1, 1, 1]]), [2])
    want = fe.raw_ops.EmbeddingVariableLookup(
        resource=table,
        keys=np.array([2, 0, 8]),
        counts=np.zeros(0, np.int32),
        step=-1,
        dtype=tf.float64,
        insert=False,
    )
    np.testing.assert_array_equal(got.handles[0], want[1])


@pytest.mark.parametrize("insert", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_counts_what_random_columns_ask(seed, insert):
    rng = np.random.default_rng(seed)
    rows = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, rows, int(rng.integers(1, 6)))
    layout = remote_stages.random_layout(rng, rows, is_keyed=True)
    # Each part holds the whole table: which keys it is asked for is the worker's choice.
    parts = [[make_table(rows[t]) for _ in servers] for t, servers in enumerate(layout.servers)]
    messages = remote_stages.want_messages(columns, layout, step=3)
    wanted = remote_stages.want_rows(rows, columns, layout)
    splits = remote_stages.want_split(columns, layout)
    for server, (words, want) in enumerate(zip(messages, wanted, strict=True)):
        mine = layout.on_server(server)
        if not mine:
            continue
        resources = [parts[t][p] for t, p in mine]
        dims = [rows[t].shape[1] for t, _ in mine]
        got = keyed_rows(resources, np.array(words), dims, insert=insert)
        assert_same_bits(got.rows, want)
        for resource, (t, p) in zip(resources, mine, strict=True):
            frequencies, versions = metadata(resource, splits[t].keys[p])
            assert frequencies == [count * insert for count in splits[t].counts[p]]
            assert versions == [3 * insert] * len(splits[t].keys[p])


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_dtypes(dtype):
    rows = tf.constant([[0.1, 2.0], [3.0, 0.7]], dtype).numpy()
    got = keyed_rows([make_table(rows)], message_of([[1, 0]], [[1, 1]]), [2], dtype)
    assert_same_bits(got.rows, rows[[1, 0]].ravel())


def test_are_inserted_of_each_table():
    tables = [make_table(np.ones([1, 1])) for _ in range(2)]
    message = message_of([[7], [7]], [[1], [1]])
    got = keyed_rows(tables, message, [1, 1], insert=False, are_inserted=[False, True])
    assert [statistic(table, "size") for table in tables] == [1, 2]
    assert [int(handles[0]) >= 0 for handles in got.handles] == [False, True]


def test_keys_that_a_filter_holds_back_have_no_row():
    attrs = {"admission": "counter", "min_frequency": 3, "no_permission_value": 0.5}
    table = make_table(np.zeros([0, 2]), **attrs)
    got = keyed_rows([table], message_of([[7, 8]], [[3, 2]]), [2])
    assert got.rows.numpy().tolist() == [0.0, 0.0, 0.5, 0.5]
    assert (got.handles[0].numpy() >= 0).tolist() == [True, False]
    keyed_rows([table], message_of([[8]], [[1]]), [2])
    assert statistic(table, "size") == 2


def test_a_full_table_refuses_by_its_check_mode():
    message = message_of([[0, 1, 2]], [[1, 1, 1]])
    table = make_table(np.ones([1, 2]), max_capacity=1)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="2 keys do not fit"):
        keyed_rows([table], message, [2])
    assert metadata(table, [0]) == ([0], [0])
    table = make_table(np.ones([1, 2]), max_capacity=1, check_mode="ignore")
    assert keyed_rows([table], message, [2]).rows.numpy().tolist() == [1, 1, 0, 0, 0, 0]


def test_many_keys_of_keyed_tables():
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((40_000, 2)), rng.standard_normal((50, 3))]
    tables = [make_table(r) for r in rows]
    keys = [rng.permutation(len(r)) for r in rows]
    counts = [rng.integers(0, 9, len(r)) for r in rows]
    got = keyed_rows(tables, message_of(keys, [c.tolist() for c in counts]), [2, 3])
    want = [r[of_table].ravel() for r, of_table in zip(rows, keys, strict=True)]
    assert_same_bits(got.rows, np.concatenate(want))
    for table, of_table, wanted in zip(tables, keys, counts, strict=True):
        assert metadata(table, of_table)[0] == wanted.tolist()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"dims": [2, 2]}, "rows of the table have 1 values, but the lookup reads 2"),
        ({"dims": [2, 2], "table_names": ["a", "b"]}, "b: rows of the table have 1 values"),
        ({"dims": [2]}, "dims and table_names must have one entry for each of the 2 tables"),
        ({"are_inserted": [True]}, "are_inserted must be empty or have"),
        ({"dtype": tf.float32}, "dtype is float, but the table holds double"),
    ],
)
def test_errors_leave_keyed_tables_as_they_were(args, message):
    tables = [make_table(np.ones([1, 2])), make_table(np.ones([1, 1]))]
    with pytest.raises(InvalidArgumentError, match=message):
        keyed_rows(tables, message_of([[0, 5], [5]], [[1, 1], [1]]), **{"dims": [2, 1]} | args)
    assert [statistic(table, "size") for table in tables] == [1, 1]
    assert metadata(tables[0], [0]) == ([0], [0])


# --- Shapes ---


def traced_shapes(op, message=(None,), **args):
    @tf.function
    def run(words):
        return op(message=words, **args)

    traced = run.get_concrete_function(tf.TensorSpec(message, tf.int64))
    return [output.shape.as_list() for output in traced.outputs]


def ops_and_arguments():
    variables = [tf.Variable(table) for table in TABLES]
    tables = [make_table(np.ones([1, 2])), make_table(np.ones([1, 1]))]
    dtyped = {"dims": [2, 1], "dtype": tf.float64}
    return {
        fe.raw_ops.FusedEmbeddingRemoteRows: {"tables": TABLES, "dims": [2, 1]},
        fe.raw_ops.FusedEmbeddingResourceRemoteRows: dtyped
        | {"resources": [variable.handle for variable in variables]},
        fe.raw_ops.EmbeddingVariableRemoteRows: dtyped | {"resources": tables, "insert": True},
    }


def test_shapes():
    for op, args in ops_and_arguments().items():
        num_keys = 4 if "insert" in args else 2
        assert traced_shapes(op, **args) == [[None], [2], *[[None]] * num_keys]


@pytest.mark.parametrize("message", [(), (2, 2)])
def test_shape_functions_reject(message):
    for op, args in ops_and_arguments().items():
        with pytest.raises(ValueError, match=SHAPE_ERROR):
            traced_shapes(op, message, **args)
