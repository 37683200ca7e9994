"""fe.nn.group_* against tf.nn.safe_embedding_lookup_sparse of each column."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.groups import COMBINERS, Column, grouped, random_case, random_column, stock
from checking import as_indexed_slices, densify, executed_ops, sparse

tf1 = tf.compat.v1
GROUP = fe.nn.group_embedding_lookup_sparse
CUBE = tf.sparse.from_dense([[[1]]])


def outputs_and_gradients(lookup, tables, columns):
    weights = [c.weights for c in columns if c.weights is not None]
    rng = np.random.default_rng(0)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        outputs = lookup(tables, columns)
        loss = 0.0
        for output in outputs:
            top_grad = tf.constant(rng.standard_normal(output.shape), output.dtype)
            loss += tf.reduce_sum(tf.cast(output * top_grad, tf.float64))
    zero = tf.UnconnectedGradients.ZERO
    return outputs, tape.gradient(loss, [*tables, *weights], unconnected_gradients=zero)


def assert_same(got, want, tables, tol):
    for output, want_output in zip(got[0], want[0], strict=True):
        np.testing.assert_allclose(output, want_output, rtol=tol, atol=tol)
    for i, (grad, want_grad) in enumerate(zip(got[1], want[1], strict=True)):
        num_rows = tables[i].shape[0] if i < len(tables) else want_grad.shape[0]
        if i < len(tables) and isinstance(want_grad, tf.IndexedSlices):
            ids, want_ids = (as_indexed_slices(g)[0].tolist() for g in (grad, want_grad))
            assert len(set(ids)) == len(ids)
            assert set(ids) == set(want_ids)
        got_rows, want_rows = (densify(g, int(num_rows)) for g in (grad, want_grad))
        np.testing.assert_allclose(got_rows, want_rows, rtol=tol, atol=tol)


@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("seed", range(25))
def test_random_columns_equal_stock(seed, in_function):
    tables, columns = random_case(seed, (np.float64, np.float32) if seed % 3 == 0 else (float,))

    def run(lookup):
        return outputs_and_gradients(lookup, tables, columns)

    want = run(stock)
    got = tf.function(run)(grouped) if in_function else run(grouped)
    assert_same(got, want, tables, 1e-10 if seed % 3 else 1e-4)


@pytest.mark.parametrize("use_resource", [True, False])
def test_session_equals_stock(use_resource):
    tables, columns = random_case(11)
    arrays = [t.numpy() for t in tables]
    columns = [c._replace(weights=None) for c in columns]
    batches = [
        tf1.SparseTensorValue(*(t.numpy() for t in (ids.indices, ids.values, ids.dense_shape)))
        for ids in (c.sp_ids for c in columns)
    ]

    def trained(lookup):
        """Outputs and tables after three steps."""
        with tf.Graph().as_default(), tf1.Session() as session:
            tables = [tf1.Variable(a, use_resource=use_resource) for a in arrays]
            fed = [tf1.sparse_placeholder(batch.values.dtype) for batch in batches]
            feeds = dict(zip(fed, batches, strict=True))
            ours = [c._replace(sp_ids=f) for c, f in zip(columns, fed, strict=True)]
            outputs = lookup(tables, ours)
            loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
            train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
            session.run(tf1.global_variables_initializer())
            for _ in range(3):
                session.run(train, feeds)
            return session.run([outputs, tables], feeds)

    results = [trained(lookup) for lookup in (grouped, stock)]
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), *results
    )


def num_kernels(use_v3, num_columns=26):
    """Our ops that a step executes, forward and with the gradients of all tables, by type."""
    with tf.Graph().as_default(), tf1.Session() as session:
        tables = [tf1.get_variable(f"t{i}", [9, 4], use_resource=True) for i in range(num_columns)]
        ids = [sparse([1, 8, 1], [0, 2, 2], 3) for _ in tables]
        if use_v3:
            lookup = fe.nn.fused_safe_embedding_lookup_sparse
            outputs = [lookup(t, i, fusion_version="v3") for t, i in zip(tables, ids, strict=True)]
        else:
            outputs = GROUP(tables, ids, ["mean"] * num_columns)
        grads = tf.gradients(outputs, tables)
        session.run(tf1.global_variables_initializer())
        types = executed_ops(session, [grads, outputs])
    return {name: n for name, n in types.items() if name in fe.raw_ops.__all__}


def test_26_columns_are_one_op_forward_and_one_backward():
    assert num_kernels(use_v3=False) == {
        "FusedEmbeddingResourceGroupLookup": 1,
        "FusedEmbeddingResourceGroupLookupGrad": 1,
    }
    assert num_kernels(use_v3=True) == {
        "FusedEmbeddingResourceGroupLookup": 26,
        "FusedEmbeddingResourceGroupLookupGrad": 26,
    }


def op_types(build):
    """How often each op of ours stands in the graph that `build` makes."""
    graph = tf.function(build).get_concrete_function().graph
    types = collections.Counter(op.type for op in graph.get_operations())
    return {name: n for name, n in types.items() if name in fe.raw_ops.__all__}


@pytest.mark.on_cpu
def test_shards_are_looked_up_by_messages():
    rows = np.random.default_rng(0).standard_normal((8, 3))
    table, shards = tf.Variable(rows), [tf.Variable(rows[::2]), tf.Variable(rows[1::2])]
    ids = sparse([1, 7, 4, -1], [0, 0, 2, 3], 4)
    with tf.GradientTape() as tape:
        sharded, whole = GROUP([shards, table], [ids, ids], ["sum", "sum"])
    np.testing.assert_allclose(sharded, whole)
    want = tape.gradient([sharded, whole], [*shards, table])
    np.testing.assert_allclose(densify(want[2], 8)[1::2], densify(want[1], 4))
    types = op_types(lambda: GROUP([shards, table], [ids, ids], ["sum", "sum"]))
    assert types["FusedEmbeddingResourceGroupLookup"] == 1
    assert types["FusedEmbeddingRemoteLookup"] == 1
    variable = fe.get_embedding_variable("group_ev", 3, initializer=tf.ones_initializer())
    of_variable, of_table = GROUP([variable, table], [ids, ids], ["sum", "mean"])
    np.testing.assert_array_equal(of_variable[:, 0], [2.0, 0.0, 1.0, 0.0])
    np.testing.assert_allclose(of_table, tf.nn.safe_embedding_lookup_sparse(table, ids))


@pytest.mark.parametrize(
    ("table_device", "device", "is_grouped"),
    [
        ("", "", True),
        ("/cpu:0", "/job:worker/task:1", True),
        ("/job:localhost/replica:0/task:0/cpu:0", "", True),
        ("/job:ps/task:0/cpu:0", "/job:ps", True),
        ("/job:ps/cpu:0", "/job:ps/task:0", True),
        ("/job:ps/task:1", "/job:ps/task:0", False),
        ("/job:ps/task:0", "/job:worker/task:0", False),
        ("/job:ps/task:0", "", False),
    ],
)
def test_a_table_in_another_task_is_looked_up_by_messages(table_device, device, is_grouped):
    """So that between tasks only distinct ids and their rows travel."""
    with tf.Graph().as_default() as graph:
        with tf.device(table_device):
            table = tf1.get_variable("table", [3, 2], use_resource=True)
        with tf.device(device):
            GROUP([table], [sparse([1], [0], 1)], ["sum"])
            fe.nn.fused_safe_embedding_lookup_sparse(
                table, sparse([1], [0], 1), fusion_version="v3"
            )
        types = collections.Counter(op.type for op in graph.get_operations())
    assert types["FusedEmbeddingResourceGroupLookup"] == 2 * is_grouped
    assert types["FusedEmbeddingRemoteLookup"] == 2 * (not is_grouped)
    assert types["FusedEmbeddingResourceRemoteRows"] == 2 * (not is_grouped)


def test_other_dtypes_and_kinds_of_tables_are_other_groups():
    ids = sparse([1], [0], 1)
    tables = [tf.Variable(np.ones((2, 2), t)) for t in (np.float32, np.float64, np.float32)]
    types = op_types(lambda: GROUP([*tables, tf.ones([2, 2])], [ids] * 4, ["sum"] * 4))
    assert types == {"FusedEmbeddingResourceGroupLookup": 2, "FusedEmbeddingGroupLookup": 1}


def test_params_num_per_group():
    table, ids = tf.Variable(np.ones((2, 2))), sparse([1], [0], 1)
    types = op_types(lambda: GROUP([table] * 5, [ids] * 5, ["sum"] * 5, params_num_per_group=2))
    assert types == {"FusedEmbeddingResourceGroupLookup": 3}


def test_concat():
    tables, columns = random_case(3)
    columns = [c._replace(sp_ids=sparse([0], [1], 4), weights=None) for c in columns]
    got = grouped(tables, columns, concat=True)
    np.testing.assert_array_equal(got, tf.concat(grouped(tables, columns), axis=1))
    mixed = [*tables, tf.Variable(np.ones((2, 2), np.float64)[None])[0]]
    combiners, ids = ["sum"] * len(mixed), [sparse([0], [1], 4)] * len(mixed)
    np.testing.assert_array_equal(
        GROUP(mixed, ids, combiners, concat=True), tf.concat(GROUP(mixed, ids, combiners), axis=1)
    )


def test_ranks_are_restored_and_ragged_ids_taken():
    table = tf.Variable(np.arange(12.0).reshape(3, 2, 2))
    dense = tf.constant([[[1, 2], [-1, -1]], [[0, -1], [2, 2]]])
    sp_ids = tf.sparse.from_dense(dense + 1)
    sp_ids = tf.SparseTensor(sp_ids.indices, sp_ids.values - 1, sp_ids.dense_shape)
    ragged = tf.ragged.constant([[1, 2], [], [0]])
    cube, rows = GROUP([table, table], [sp_ids, ragged], ["sum", "mean"])
    assert cube.shape == [2, 2, 2, 2]
    np.testing.assert_array_equal(cube[0, 0], table[1] + table[2])
    np.testing.assert_array_equal(rows[0], (table[1] + table[2]) / 2)
    with pytest.raises(ValueError, match="concat = True needs ids and tables of rank 2"):
        GROUP([table], [ragged], ["sum"], concat=True)


def random_sequences(rng, tables):
    """Columns whose rows have ids at some places and none at others."""
    columns = []
    for _ in range(int(rng.integers(1, 5))):
        column = random_column(rng, tables)
        shape = rng.integers(0, 6, 2)
        places = np.argwhere(rng.random(shape) < 0.6)
        nnz, num_rows = len(places), tables[column.table].shape[0]
        ids = rng.integers(-1 if rng.integers(2) else 0, num_rows, nnz)
        sp_ids = tf.SparseTensor(places.reshape(-1, 2), ids, shape)
        weights = None
        if column.weights is not None:
            weights = tf.cast(rng.choice([-1.0, 0.0, 0.5, 2.0], nnz), tables[column.table].dtype)
        columns.append(column._replace(sp_ids=sp_ids, weights=weights))
    return columns


def stock_sequences(tables, columns):
    """Each place is a row of stock's: ids of rank 3, of which the last dimension is combined."""
    deeper = []
    for column in columns:
        ids = column.sp_ids
        indices = tf.concat([ids.indices, tf.zeros_like(ids.indices[:, :1])], axis=1)
        shape = tf.concat([ids.dense_shape, [1]], axis=0)
        deeper.append(column._replace(sp_ids=tf.SparseTensor(indices, ids.values, shape)))
    return stock(tables, deeper)


def grouped_sequences(tables, columns):
    return grouped(tables, columns, is_sequence=True)


@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("seed", range(15))
def test_random_sequences_equal_stock(seed, in_function):
    tables, _ = random_case(seed)
    columns = random_sequences(np.random.default_rng(seed), tables)

    def run(lookup):
        return outputs_and_gradients(lookup, tables, columns)

    want = run(stock_sequences)
    got = tf.function(run)(grouped_sequences) if in_function else run(grouped_sequences)
    assert_same(got, want, tables, 1e-10)


@pytest.mark.parametrize("table_kind", ["whole", "shards", "embedding_variable"])
def test_a_sequence_from_any_table(table_kind):
    rows = np.arange(12.0, dtype=np.float32).reshape(6, 2)
    ids = tf.SparseTensor([[0, 1], [2, 0], [2, 2]], tf.constant([5, 0, 5], tf.int32), [3, 3])
    table = tf.Variable(rows)
    if table_kind == "shards":
        table = [tf.Variable(rows[::2]), tf.Variable(rows[1::2])]
    elif table_kind == "embedding_variable":
        table = fe.get_embedding_variable("sequence_ev", 2)
        table.upsert(tf.range(6, dtype=tf.int64), rows)
    [got] = GROUP([table], [ids], ["mean"], is_sequence=True)
    want = np.zeros((3, 3, 2), np.float32)
    want[0, 1], want[2, 0], want[2, 2] = rows[5], rows[0], rows[5]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("weights_are_ragged", [True, False])
def test_a_ragged_sequence_is_as_wide_as_its_longest_row(weights_are_ragged):
    table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    ids = tf.ragged.constant([[2], [], [0, 1, 2]])
    weights = tf.constant([2.0, 0.0, 1.0, 3.0])
    weights = ids.with_values(weights) if weights_are_ragged else weights
    [got] = GROUP([table], [ids], ["sum"], [weights], is_sequence=True)
    row = [[0, 0], [3, 4], [15, 18]]  # weights of sums may be 0
    np.testing.assert_array_equal(got, [[[10, 12], [0, 0], [0, 0]], [[0, 0]] * 3, row])
    [means] = GROUP([table], [ids], ["mean"], [weights], is_sequence=True)
    np.testing.assert_array_equal(means[2], [[0, 0], [3, 4], [5, 6]])


def test_sequences_train_as_stock_in_a_session_and_are_one_op():
    results = []
    for lookup in (grouped_sequences, stock_sequences):
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            arrays = np.random.default_rng(4).standard_normal((3, 7, 4))
            tables = [tf1.Variable(array, use_resource=True) for array in arrays]
            fed = [tf1.sparse_placeholder(tf.int64, shape) for shape in (None, [None, None], None)]
            columns = [
                Column(i % 2, ids, None, combiner, 1.5, None)
                for i, (ids, combiner) in enumerate(zip(fed, COMBINERS, strict=True))
            ]
            outputs = lookup(tables, columns)
            loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
            train = tf1.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
            types = collections.Counter(op.type for op in graph.get_operations())
            session.run(tf1.global_variables_initializer())
            for step in range(20):
                rng = np.random.default_rng(step)
                feeds = {}
                for ids in fed:
                    places = np.argwhere(rng.random((3, 4)) < 0.5)
                    values = rng.integers(-1, 7, len(places))
                    feeds[ids] = tf1.SparseTensorValue(places, values, [3, 4])
                session.run(train, feeds)
            results.append(session.run([outputs, tables], feeds))
            assert results[-1][0][0].shape == (3, 4, 4)
            if lookup is grouped_sequences:
                assert types["FusedEmbeddingResourceGroupLookup"] == 1
                assert types["FusedEmbeddingResourceGroupLookupGrad"] == 1
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), *results
    )


@pytest.mark.parametrize("place", [[0, 3], [1, -1], [2, 0], [0, 1 << 40]])
def test_a_place_beside_the_matrix_is_refused_and_read_by_no_other_row(place):
    ids = tf.SparseTensor([place], tf.constant([1], tf.int64), [2, 3])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"sp_ids\[0\]: "):
        GROUP([tf.ones([2, 2])], [ids], ["sum"], is_sequence=True)


def test_group_embedding_lookup_equals_stock():
    rng = np.random.default_rng(1)
    tables = [tf.Variable(rng.standard_normal((5, d))) for d in (3, 8)]
    shards = [tf.Variable(tables[0].numpy()[::2]), tf.Variable(tables[0].numpy()[1::2])]
    ids = [tf.constant([[4, 0, 4]]), tf.constant([1, 1], tf.int64)]
    with tf.GradientTape(persistent=True) as tape:
        got = fe.nn.group_embedding_lookup(tables, ids)
        want = [tf.nn.embedding_lookup(t, i) for t, i in zip(tables, ids, strict=True)]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)
    for table in tables:
        grads = [densify(tape.gradient(outputs, table), 5) for outputs in (got, want)]
        np.testing.assert_array_equal(*grads)
    [sharded] = fe.nn.group_embedding_lookup([shards], [ids[0]])
    np.testing.assert_array_equal(sharded, want[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"ids\[0\].*: id -1 at position 0"):
        fe.nn.group_embedding_lookup(tables[:1], [tf.constant([-1])])


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"params": []}, ValueError, "params must be a list of tables"),
        ({"sp_ids": []}, ValueError, "sp_ids must have an entry for each of the 1 params, got 0"),
        ({"combiners": ["sum"] * 2}, ValueError, "combiners must have an entry"),
        ({"combiners": "sum"}, TypeError, "combiners must be a list"),
        ({"combiners": ["max"]}, ValueError, "combiner must be one of"),
        ({"sp_weights": [None] * 2}, ValueError, "sp_weights must have an entry"),
        ({"max_norms": [0.0]}, ValueError, "max_norm must be > 0"),
        ({"default_ids": ["a"]}, ValueError, "default_id must be an integer"),
        ({"partition_strategy": "x"}, ValueError, "partition_strategy must be one of"),
        ({"params_num_per_group": 0}, ValueError, "params_num_per_group must be >= 1"),
        ({"is_sequence": True, "sp_ids": [CUBE]}, ValueError, "must have rank 2 where is_sequence"),
        ({"is_sequence": True, "concat": True}, ValueError, "and is_sequence = False"),
        ({"is_sequence": True, "sp_ids": [np.array([1])]}, TypeError, "must be SparseTensor"),
        ({"is_sequence": True, "sp_weights": [tf.ones([2])]}, ValueError, "one weight for each id"),
        ({"sp_ids": [np.array([1])]}, TypeError, r"sp_ids\[0\] must be SparseTensor"),
    ],
)
def test_errors(kwargs, error, message):
    args = {"params": [tf.ones([2, 2])], "sp_ids": [sparse([1], [0], 1)], "combiners": ["sum"]}
    with pytest.raises(error, match=message):
        GROUP(**(args | kwargs))
