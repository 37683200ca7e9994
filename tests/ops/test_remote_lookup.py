"""FusedEmbeddingRemoteLookup and its gradient against the oracle, behind the ops before them."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import group_stages
import oracle.key_message
import remote_stages
from checking import VALUE_DTYPES, assert_close, assert_rounded_once, assert_same_bits, dtype_name
from group_stages import Column
from keyed_tables import make_table
from remote_stages import Layout
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

pytestmark = pytest.mark.on_cpu

InvalidArgumentError = tf.errors.InvalidArgumentError
KINDS = {"tensors": np.asarray, "variables": tf.Variable}
TABLES = [np.arange(8.0).reshape(4, 2), 10.0 + np.arange(3.0).reshape(3, 1)]
COLUMNS = [
    Column(0, [1, 3, -1], [0, 0, 2], 3, combiner="sum"),
    Column(1, [2, 0], [2, 0], 3, id_dtype=np.int32),
]
LAYOUT = Layout(["mod", "div"], [[2, 2], [3]], [[0, 1], [0]], 2)
LAYOUT_OF_ONE = Layout(["mod"], [[2, 2]], [[0, 1]], 2)


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    return request.param


def random_case(seed, num_rows=None):
    rng = np.random.default_rng(seed)
    tables = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, tables, int(rng.integers(1, 6)))
    if num_rows is not None:
        columns = [column._replace(num_rows=num_rows) for column in columns]
    grads = [rng.standard_normal((c.num_rows, tables[c.table].shape[1])) for c in columns]
    return tables, columns, remote_stages.random_layout(rng, tables), grads


def test_a_case_by_hand(kind):
    done = remote_stages.run(TABLES, COLUMNS, LAYOUT, kind)
    np.testing.assert_array_equal(done.combined[0], [[8.0, 10.0], [0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(done.combined[1], [[10.0], [0.0], [12.0]])
    # Row 0 of table 0, for rows without ids, has a gradient of zeros. Server 0 has it.
    grads = [np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([[7.0], [8.0], [9.0]])]
    got = remote_stages.gradient(grads, done.rows, **done.worker_arguments)
    assert [g.numpy().tolist() for g in got] == [[0.0, 0.0, 9.0, 7.0], [1.0, 2.0, 1.0, 2.0]]


@pytest.mark.parametrize("seed", range(40))
def test_equals_the_oracle_on_random_columns(seed):
    tables, columns, layout, grads = random_case(seed)
    done = remote_stages.run(tables, columns, layout)
    wanted = group_stages.want_combined(tables, columns)
    for got, want in zip(done.combined, wanted, strict=True):
        assert_close(got, want, terms=64)
    want_rows, want_weights = remote_stages.want_rows_grads(tables, columns, grads, layout)
    rows_grads = remote_stages.gradient(grads, done.rows, **done.worker_arguments)
    for got, want in zip(rows_grads, want_rows, strict=True):
        assert_close(got, want, terms=64, scale=8.0)
    if want_weights:
        of_weights = remote_stages.weights_gradient(grads, done.rows, **done.worker_arguments)
        for got, want in zip(of_weights, want_weights, strict=True):
            assert_close(got, want, terms=4096, scale=8.0)


@pytest.mark.parametrize("seed", range(10))
def test_variables_give_the_same_bits(seed):
    tables, columns, layout, _ = random_case(seed)
    got = remote_stages.run(tables, columns, layout, tf.Variable).combined
    for g, want in zip(got, remote_stages.run(tables, columns, layout).combined, strict=True):
        assert_same_bits(g, want)


@pytest.mark.parametrize("seed", range(10))
def test_parts_and_servers_change_no_bit(seed):
    tables, columns, layout, _ = random_case(seed)
    done = remote_stages.run(tables, columns, layout)
    whole = remote_stages.run(tables, columns, remote_stages.one_server(tables))
    for got, want in zip(done.combined, whole.combined, strict=True):
        assert_same_bits(got, want)
    for got, want in zip(done.combined, group_stages.lookup(tables, columns), strict=True):
        assert_same_bits(got, want)


@pytest.mark.parametrize("seed", range(10))
def test_one_output_is_the_results_side_by_side(seed):
    tables, columns, layout, grads = random_case(seed, num_rows=8)
    done = remote_stages.run(tables, columns, layout)
    [got] = remote_stages.look_up(done.rows, concat=True, **done.worker_arguments)
    assert_same_bits(got, tf.concat(done.combined, axis=1))
    want = remote_stages.gradient(grads, done.rows, **done.worker_arguments)
    side_by_side = [np.concatenate(grads, axis=1)]
    got = remote_stages.gradient(side_by_side, done.rows, **done.worker_arguments)
    for g, w in zip(got, want, strict=True):
        assert_same_bits(g, w)


@pytest.mark.parametrize("seed", range(15))
def test_keyed_tables_equal_the_oracle(seed):
    rng = np.random.default_rng(seed)
    tables = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, tables, int(rng.integers(1, 6)))
    layout = remote_stages.random_layout(rng, tables, is_keyed=True)
    asked = remote_stages.ask(columns, layout)
    rows = []
    for server, message in enumerate(asked.messages):
        mine = [tables[t] for t, _ in layout.on_server(server)]
        if not mine:
            rows.append(tf.zeros([0], tf.float64))
            continue
        answer = fe.raw_ops.EmbeddingVariableRemoteRows(
            resources=[make_table(table) for table in mine],
            message=message,
            dims=[table.shape[1] for table in mine],
            dtype=tf.float64,
            insert=True,
        )
        rows.append(answer.rows)
    args = remote_stages.worker_arguments(asked, tables, columns, layout)
    combined = remote_stages.look_up(rows, **args)
    for got, want in zip(combined, group_stages.want_combined(tables, columns), strict=True):
        assert_close(got, want, terms=64)
    grads = [rng.standard_normal((c.num_rows, tables[c.table].shape[1])) for c in columns]
    want_rows, _ = remote_stages.want_rows_grads(tables, columns, grads, layout)
    for got, want in zip(remote_stages.gradient(grads, rows, **args), want_rows, strict=True):
        assert_close(got, want, terms=64, scale=8.0)


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_dtypes_are_rounded_once(dtype):
    rng = np.random.default_rng(3)
    table = tf.cast(rng.standard_normal((6, 19)), dtype).numpy()
    ids, row_ids = rng.integers(-1, 6, 50), rng.integers(0, 7, 50)
    columns = [
        Column(0, ids.tolist(), row_ids, 7, combiner="mean"),
        Column(0, ids.tolist(), np.sort(row_ids), 7, rng.choice([0.5, 2.0], 50), "sqrtn", 2.0),
    ]
    layout = Layout(["mod"], [[2, 2, 2]], [[1, 0, 1]], 2)
    done = remote_stages.run([table], columns, layout)
    for got, want in zip(done.combined, group_stages.want_combined([table], columns), strict=True):
        assert got.dtype == dtype
        assert_rounded_once(got, want, dtype)
    grads = [tf.cast(rng.standard_normal((7, 19)), dtype).numpy() for _ in columns]
    wanted, _ = remote_stages.want_rows_grads([table], columns, grads, layout)
    got = remote_stages.gradient(grads, done.rows, **done.worker_arguments)
    for g, want in zip(got, wanted, strict=True):
        assert g.dtype == dtype
        assert_rounded_once(g, want, dtype)


def test_no_rows_and_no_ids():
    columns = [Column(0, [], [], 0), Column(1, [], [], 2)]
    done = remote_stages.run(TABLES, columns, LAYOUT, fill_empty_row=False)
    assert [g.numpy().tolist() for g in done.combined] == [[], [[0.0], [0.0]]]
    assert [rows.shape for rows in done.rows] == [(0,), (0,)]
    grads = [np.zeros([0, 2]), np.ones([2, 1])]
    got = remote_stages.gradient(grads, done.rows, **done.worker_arguments)
    assert [g.shape for g in got] == [(0,), (0,)]


def test_prune_false_and_fill_empty_row_false():
    columns = [Column(0, [1], [1], 3, default_id=2)]
    done = remote_stages.run(TABLES[:1], columns, LAYOUT_OF_ONE, fill_empty_row=False, prune=False)
    np.testing.assert_array_equal(done.combined[0], [[0.0, 0.0], [2.0, 3.0], [0.0, 0.0]])


def test_a_gradient_of_rows_that_nothing_reads_is_refused():
    args = lookup_arguments() | {"default_positions": np.array([-1, -1], np.int32)}
    with pytest.raises(InvalidArgumentError, match="has 3 of them, but only 2"):
        remote_stages.gradient([np.ones([3, 2]), np.ones([3, 1])], ROWS, **args)


def test_rows_that_no_position_reads_have_a_gradient_of_zeros():
    args = lookup_arguments() | {"default_positions": np.array([-1, -1], np.int32)}
    args["sp_values"] = [np.array([2, 2, 2], np.int32), np.array([1, 1], np.int32)]
    got = remote_stages.gradient([np.ones([3, 2]), np.ones([3, 1])], ROWS, **args)
    assert [g.numpy().tolist() for g in got] == [[0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 3.0, 3.0]]


def test_many_ids_and_threads_give_the_same():
    """A grouped lookup in the whole tables is the oracle, whose tests are its own."""
    rng = np.random.default_rng(0)
    tables = [rng.standard_normal((40_000, 2)), rng.standard_normal((50, 3))]
    columns = [Column(table, [], [], 99) for table in (0, 1, 0)]
    ids = [
        rng.integers(-1, limit, n) for limit, n in ((40_000, 60_000), (50, 500), (40_000, 9_000))
    ]
    batch = {"sp_values": ids, "sp_indices": [rng.integers(0, 99, len(i)) for i in ids]}
    layout = Layout(["mod", "div"], [[20_000] * 2, [20, 30]], [[0, 1], [1, 0]], 2)
    asked = remote_stages.ask(columns, layout, **batch)
    rows = remote_stages.answer(tables, layout, asked.messages)
    indices = {"sp_indices": batch["sp_indices"]}
    args = remote_stages.worker_arguments(asked, tables, columns, layout, **indices)
    got = remote_stages.look_up(rows, **args)
    for g, want in zip(got, group_stages.lookup(tables, columns, **batch), strict=True):
        assert_same_bits(g, want)
    grads = [rng.standard_normal((99, tables[c.table].shape[1])) for c in columns]
    sizes = asked.part_sizes.numpy()
    of_servers = remote_stages.gradient(grads, rows, **args)
    layout_attrs = {name: args[name] for name in ("dims", "num_parts", "part_servers")}
    unpacked = remote_stages.unpack(of_servers, sizes, **layout_attrs)
    given = group_stages.arguments(columns) | batch
    want = group_stages.call("GroupLookupGrad", tables, combined_grads=grads, **given)
    for table, rows_grad, keys in zip(range(2), unpacked, keys_of(asked, sizes), strict=True):
        order = {key: i for i, key in enumerate(keys)}
        at = [order[i] for i in want.unique_ids[table].numpy().tolist()]
        assert_close(rows_grad.numpy()[at], want.rows_grad[table], terms=64, scale=8.0)


def keys_of(asked, sizes):
    """The ids of both tables of the test above, part after part."""
    messages = [oracle.key_message.read(message.numpy().tolist()) for message in asked.messages]
    [[even, in_second], _], [[odd, in_first], _] = messages
    assert [len(even), len(odd), len(in_first), len(in_second)] == list(sizes)
    both = [*(2 * key for key in even), *(2 * key + 1 for key in odd)]
    return both, [*in_first, *(20 + key for key in in_second)]


# --- Errors ---

# Rows of the parts of TABLES: of table 0 two and one, of table 1 two.
ROWS = [np.array([0.0, 1.0, 10.0, 12.0]), np.array([2.0, 3.0, 6.0, 7.0])]


def lookup_arguments():
    """Those of COLUMNS by hand: positions [1, 2, -1] and [1, 0]."""
    given = group_stages.arguments(COLUMNS) | {
        "sp_values": [np.array([1, 2, -1], np.int32), np.array([1, 0], np.int32)],
        "part_sizes": np.array([1, 2, 2]),
        "default_positions": np.array([-2, -2], np.int32),
        "dims": [2, 1],
    }
    return given | LAYOUT.attributes()


BAD = [
    ({"part_sizes": np.array([1, 2])}, "part_sizes must have one element for each of the 3 parts"),
    ({"part_sizes": np.array([1, 2, 3])}, "rows of server 0 must be 5 values, .* got 4"),
    ({"part_sizes": np.array([2, 1, 2])}, "rows of server 0 must be 6 values"),
    ({"part_sizes": np.array([1, 1, 2])}, "rows of server 1 must be 2 values, .* got 4"),
    ({"part_sizes": np.array([-1, 2, 2])}, r"part_sizes\[0\] = -1 must be a number of rows of 2"),
    ({"part_sizes": np.array([1, 2, INT64_MIN])}, r"part_sizes\[2\] = -9223372036854775808"),
    ({"part_sizes": np.array([INT64_MAX, 2, 2])}, r"part_sizes\[0\] = 9223372036854775807"),
    ({"part_sizes": np.array([1, 2, INT64_MAX])}, r"part_sizes\[2\] = 9223372036854775807"),
    ({"part_sizes": np.array([[1, 2, 2]])}, "part_sizes"),
    ({"default_positions": np.array([-2], np.int32)}, "default_positions must have one element"),
    ({"default_positions": np.array([[-2, -2]], np.int32)}, "default_positions"),
    ({"default_positions": np.array([3, -2], np.int32)}, "column 0: id 3, which fills row 1"),
    ({"default_positions": np.array([-5, -2], np.int32)}, "column 0: id 3, which fills row 1"),
    ({"default_positions": np.array([-2, -(2**31)], np.int32)}, "column 1: id 2147483646, which"),
    ({"sp_values": [np.array([1, 3, -1]), np.array([1, 0])]}, "column 0: id 3 at position 1"),
    (
        {
            "sp_values": [np.array([1, 2, -1]), np.array([1, 2])],
            "column_names": ["feature 'a'", "feature 'b'"],
        },
        r"feature 'b': id 2 at position 1 is outside \[0, 2\)",
    ),
    ({"dims": [2, 2]}, "rows of server 0 must be 6 values"),
    ({"dims": [2]}, "num_parts and dims must have one entry for each table"),
    ({"dims": [2, 0]}, "dims must be >= 1, got 0"),
    ({"dims": [2, INT64_MAX]}, r"part_sizes\[2\] = 2 must be a number of rows"),
    ({"num_parts": [2]}, "num_parts and dims must have one entry for each table"),
    ({"num_parts": [3, 0]}, "num_parts must be >= 1 and at most the number of parts, 3, got 0"),
    ({"num_parts": [INT64_MAX, 1]}, "num_parts must be >= 1 and at most the number of parts, 3"),
    ({"num_parts": [2, 2]}, "part_servers one for each of the 4 parts, got 2, 2 and 3"),
    ({"part_servers": [0, 1]}, "part_servers one for each of the 3 parts, got 2, 2 and 2"),
    ({"part_servers": [0, 2, 0]}, r"part_servers has 2, which is outside \[0, 2\)"),
    ({"part_servers": [0, -1, 0]}, r"part_servers has -1, which is outside \[0, 2\)"),
    ({"num_tables": 3}, "dims must have one entry for each of the 3 tables, got 2"),
    ({"num_tables": 1}, "table_of_column has 1"),
    ({"table_of_column": [0, 2]}, "table_of_column has 2"),
    ({"max_norms": []}, "max_norms must have one entry"),
    ({"rows": ROWS[:1]}, r"part_servers has 1, which is outside \[0, 1\)"),
    ({"rows": [ROWS[0], ROWS[1].reshape(2, 2)]}, "rows"),
    ({"rows": [ROWS[0], ROWS[1][:3]]}, "rows of server 1 must be 4 values, .* got 3"),
]


def test_the_arguments_of_the_errors_are_right_without_them():
    got = remote_stages.look_up(ROWS, **lookup_arguments())
    np.testing.assert_array_equal(got[0], [[8.0, 10.0], [0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(got[1], [[10.0], [0.0], [12.0]])


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_errors(changes, message):
    args = {"rows": ROWS} | lookup_arguments() | changes
    with pytest.raises(InvalidArgumentError, match=message):
        remote_stages.look_up(**args)
    with pytest.raises(InvalidArgumentError, match=message):
        remote_stages.gradient([np.ones([3, 2]), np.ones([3, 1])], **args)


def test_number_of_outputs():
    message, args = "num_outputs must be 1 or the number of columns, 2, got 3", lookup_arguments()
    with pytest.raises(InvalidArgumentError, match=message):
        fe.raw_ops.FusedEmbeddingRemoteLookup(rows=ROWS, num_outputs=3, **args)
    with pytest.raises(InvalidArgumentError, match=message):
        remote_stages.gradient([np.ones([3, 2])] * 3, ROWS, **args)


@pytest.mark.parametrize("shapes", [[(3, 2)], [(3, 2), (3, 2)], [(2, 2), (3, 1)]])
def test_gradients_of_other_shapes(shapes):
    with pytest.raises(InvalidArgumentError, match="grad"):
        remote_stages.gradient([np.ones(s) for s in shapes], ROWS, **lookup_arguments())


def test_columns_of_one_output_must_agree_in_rows():
    args = lookup_arguments()
    args["sp_dense_shapes"] = [np.array([3, 9]), np.array([4, 9])]
    with pytest.raises(InvalidArgumentError, match="one number of rows, but got 3 and 4"):
        remote_stages.look_up(ROWS, concat=True, **args)


# --- Shapes ---


def traced_shapes(op, rows=((None,), (4,)), **args):
    @tf.function
    def run(first, second):
        dense_shapes = [tf.constant([3, 9], tf.int64)] * 2
        given = lookup_arguments() | {"sp_dense_shapes": dense_shapes} | args
        return op(rows=[first, second], **given)

    specs = [tf.TensorSpec(shape, tf.float64) for shape in rows]
    return [output.shape.as_list() for output in run.get_concrete_function(*specs).outputs]


def test_shapes():
    op = fe.raw_ops.FusedEmbeddingRemoteLookup
    assert traced_shapes(op, num_outputs=2) == [[3, 2], [3, 1]]
    assert traced_shapes(op, num_outputs=1) == [[3, 3]]
    grads = [np.ones([3, 2]), np.ones([3, 1])]
    op = fe.raw_ops.FusedEmbeddingRemoteLookupGrad
    assert traced_shapes(op, combined_grads=grads) == [[None], [4]]


@pytest.mark.parametrize("changes", [{"dims": [2]}, {"dims": [2, 0]}, {"table_of_column": [0, 2]}])
def test_shape_function_rejects(changes):
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced_shapes(fe.raw_ops.FusedEmbeddingRemoteLookup, num_outputs=2, **changes)


# --- Gradients by TensorFlow ---


def tape_gradients(tables, columns, layout, kind, grads):
    """Gradients of the parts, table after table, and of the weights."""
    parts = [
        [kind(remote_stages.part_of(layout, tables, t, p)) for p in range(len(servers))]
        for t, servers in enumerate(layout.servers)
    ]
    given = group_stages.arguments(columns)
    weights = given["sp_weights"]
    flat = [part for of_table in parts for part in of_table]
    with tf.GradientTape() as tape:
        tape.watch([weights, flat])
        asked = remote_stages.ask(columns, layout)
        rows = []
        for server, message in enumerate(asked.messages):
            mine = [parts[t][p] for t, p in layout.on_server(server)]
            empty = tf.zeros([0], tf.float64)
            rows.append(remote_stages.rows_of_tensors(mine, message).rows if mine else empty)
        args = remote_stages.worker_arguments(asked, tables, columns, layout, sp_weights=weights)
        combined = remote_stages.look_up(rows, **args)
        loss = tf.add_n([tf.reduce_sum(c * g) for c, g in zip(combined, grads, strict=True)])
    of_parts, of_weights = tape.gradient(loss, [flat, weights])
    return of_parts, of_weights


@pytest.mark.parametrize("seed", range(10))
def test_tensorflow_differentiates_the_chain(kind, seed):
    tables, columns, layout, grads = random_case(seed)
    as_tensor = tf.constant if kind is np.asarray else kind
    of_parts, of_weights = tape_gradients(tables, columns, layout, as_tensor, grads)
    want_tables, want_weights = group_stages.want_gradients(tables, columns, grads)
    splits = remote_stages.want_split(columns, layout)
    parts = [(t, p) for t, servers in enumerate(layout.servers) for p in range(len(servers))]
    for (t, p), got in zip(parts, of_parts, strict=True):
        assert got.indices.numpy().tolist() == splits[t].keys[p]
        num_rows = len(remote_stages.part_of(layout, tables, t, p))
        assert got.dense_shape.numpy().tolist() == [num_rows, tables[t].shape[1]]
        rows = [want_tables[t][key] for key in splits[t].rows[p]]
        assert_close(got.values, np.reshape(rows, got.values.shape), terms=64, scale=8.0)
    for got, want in zip(of_weights, want_weights, strict=True):
        assert_close(got, want, terms=4096, scale=8.0)


def test_a_default_id_has_no_weight(kind):
    """The rows that were sent have no row 3, which is the id that fills a row."""
    tables, layout = [TABLES[0]], remote_stages.one_server(TABLES[:1])
    columns = [Column(0, [1], [0], 2, [2.0], "sum", default_id=3)]
    as_tensor = tf.constant if kind is np.asarray else kind
    grads = [np.array([[1.0, 10.0], [5.0, 7.0]])]
    [of_table], [of_weights] = tape_gradients(tables, columns, layout, as_tensor, grads)
    assert of_weights.numpy().tolist() == [32.0]
    assert of_table.indices.numpy().tolist() == [1, 3]
    assert of_table.values.numpy().tolist() == [[2.0, 20.0], [5.0, 7.0]]


def test_gradients_of_tables_of_another_rank_have_its_rows(kind):
    tables = [np.arange(24.0).reshape(4, 2, 3)]
    [variable] = [tf.Variable(t) if kind is tf.Variable else tf.constant(t) for t in tables]
    columns = [Column(0, [3, 1, 3], [0, 0, 1], 2, combiner="sum")]
    layout = remote_stages.one_server(tables)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        asked = remote_stages.ask(columns, layout)
        rows = [remote_stages.rows_of_tensors([variable], asked.messages[0]).rows]
        flat = [tables[0].reshape(4, 6)]
        args = remote_stages.worker_arguments(asked, flat, columns, layout)
        [combined] = remote_stages.look_up(rows, **args)
        loss = tf.reduce_sum(combined * np.arange(12.0).reshape(2, 6))
    got = tape.gradient(loss, variable)
    assert got.indices.numpy().tolist() == [3, 1]
    assert got.dense_shape.numpy().tolist() == [4, 2, 3]
    want = np.array([np.arange(6.0) * 2 + 6, np.arange(6.0)]).reshape(2, 2, 3)
    np.testing.assert_array_equal(got.values, want)


@pytest.mark.parametrize("seed", range(5))
def test_tensorflow_differentiates_keyed_tables(seed):
    rng = np.random.default_rng(seed)
    tables = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, tables, 3)
    layout = remote_stages.random_layout(rng, tables, is_keyed=True)
    # One server has all parts, so that one op reads them.
    layout = layout._replace(servers=[[0] * len(s) for s in layout.servers], num_servers=1)
    grads = [rng.standard_normal((c.num_rows, tables[c.table].shape[1])) for c in columns]
    mine = [tables[t] for t, _ in layout.on_server(0)]
    handles = [make_table(table) for table in mine]
    with tf.GradientTape() as tape:
        tape.watch(handles)
        asked = remote_stages.ask(columns, layout)
        dims = [table.shape[1] for table in mine]
        rows = fe.raw_ops.EmbeddingVariableRemoteRows(
            resources=handles,
            message=asked.messages[0],
            dims=dims,
            dtype=tf.float64,
            insert=True,
        ).rows
        args = remote_stages.worker_arguments(asked, tables, columns, layout)
        combined = remote_stages.look_up([rows], **args)
        loss = tf.add_n([tf.reduce_sum(c * g) for c, g in zip(combined, grads, strict=True)])
    want_tables, _ = group_stages.want_gradients(tables, columns, grads)
    splits = remote_stages.want_split(columns, layout)
    for (t, p), got in zip(layout.on_server(0), tape.gradient(loss, handles), strict=True):
        assert got.indices.numpy().tolist() == splits[t].keys[p]
        wanted = [want_tables[t][key] for key in splits[t].rows[p]]
        assert_close(got.values, np.reshape(wanted, got.values.shape), terms=64, scale=8.0)
