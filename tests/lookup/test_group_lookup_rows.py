"""`rows=` of fe.nn.group_embedding_lookup_sparse against tf.gather of stock's lookups."""

import collections
import warnings

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.groups import grouped, random_case, stock
from checking import densify, sparse

tf1 = tf.compat.v1
GROUP = fe.nn.group_embedding_lookup_sparse


def random_rows(rng, columns):
    """An index for some columns; those of one batch size share a tensor."""
    shared, rows = {}, []
    for column in columns:
        num_rows = int(column.sp_ids.dense_shape[0])
        if num_rows not in shared:
            dtype = rng.choice([np.int32, np.int64])
            size = int(rng.integers(1, 12)) if num_rows else 0
            shared[num_rows] = tf.constant(rng.integers(0, max(num_rows, 1), size).astype(dtype))
        rows.append(shared[num_rows] if rng.random() < 0.7 else None)
    return rows


def outputs_and_gradients(lookup, tables, columns):
    weights = [c.weights for c in columns if c.weights is not None]
    rng = np.random.default_rng(0)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        outputs = lookup(tables, columns)
        loss = 0.0
        for output in outputs:
            loss += tf.reduce_sum(output * tf.constant(rng.standard_normal(output.shape)))
    gradients = tape.gradient(
        loss, [*tables, *weights], unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    sizes = [int(source.shape[0]) for source in (*tables, *weights)]
    return outputs, [densify(g, size) for g, size in zip(gradients, sizes, strict=True)]


@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("seed", range(12))
def test_random_columns_equal_stock(seed, in_function):
    tables, columns = random_case(seed)
    rows = random_rows(np.random.default_rng(seed), columns)

    def want(tables, columns):
        outputs = stock(tables, columns)
        return [
            output if index is None else tf.gather(output, index)
            for output, index in zip(outputs, rows, strict=True)
        ]

    def got(tables, columns):
        return grouped(tables, columns, rows=rows)

    results = []
    for lookup in (tf.function(got) if in_function else got, want):
        results.append(outputs_and_gradients(lookup, tables, columns))
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), *results
    )


def user_and_items():
    """A table, and two users and three items that read it."""
    table = tf.Variable(np.arange(12.0).reshape(6, 2))
    users = sparse([0, 1, 5], [0, 0, 1], 2)
    items = sparse([2, 3, 4], [0, 1, 2], 3)
    return table, [users, items]


def test_one_op_whose_gradient_gets_tensors_and_sums_of_repeated_rows():
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        table, ids = user_and_items()
        index = tf1.placeholder_with_default(np.array([1, 1, 1]), [None])
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of IndexedSlices that become a tensor
            user, item = GROUP([table] * 2, ids, ["sum"] * 2, rows=[index, None])
            [gradient] = tf.gradients(tf.add_n([user, item]), [table])
        ops = collections.Counter(op.type for op in graph.get_operations())
        [grad_op] = [op for op in graph.get_operations() if op.type.endswith("GroupLookupGrad")]
        session.run(tf1.global_variables_initializer())
        got = session.run([user, tf.convert_to_tensor(gradient)])
        upstream = session.run([t for t in grad_op.inputs if t.dtype == tf.float64])
    assert ops["FusedEmbeddingResourceGroupLookup"] == 1
    assert ops["UnsortedSegmentSum"] == 1
    assert [of_column.tolist() for of_column in upstream] == [[[0, 0], [3, 3]], [[1, 1]] * 3]
    np.testing.assert_array_equal(got[0], [[10.0, 11.0]] * 3)
    np.testing.assert_array_equal(got[1][:, 0], [0, 0, 1, 1, 1, 3])


def test_concat():
    table, ids = user_and_items()
    rows = [np.array([0, 1, 0], np.int32), None]
    lists = GROUP([table] * 2, ids, ["sum"] * 2, rows=rows)
    got = GROUP([table] * 2, ids, ["sum"] * 2, rows=rows, concat=True)
    np.testing.assert_array_equal(got, tf.concat(lists, axis=1))
    none = GROUP([table], ids[1:], ["sum"], rows=[None], concat=True)
    np.testing.assert_array_equal(none, lists[1])


def test_sequences_and_other_ranks():
    table = tf.Variable(np.arange(12.0).reshape(6, 2))
    ids = tf.ragged.constant([[1, 2], [3]])
    index = [1, 0, 1]
    how = {"is_sequence": True}
    [whole], [got] = (GROUP([table], [ids], ["sum"], rows=rows, **how) for rows in (None, [index]))
    np.testing.assert_array_equal(got, tf.gather(whole, index))
    cube = tf.sparse.from_dense([[[1, 2], [3, 0]], [[0, 0], [4, 5]]])
    [whole], [got] = (GROUP([table], [cube], ["mean"], rows=rows) for rows in (None, [index]))
    np.testing.assert_array_equal(got, tf.gather(whole, index))


def test_shards_and_embedding_variables():
    table, ids = user_and_items()
    keyed = fe.get_embedding_variable("users", 2, initializer=tf1.constant_initializer(0.5))
    shards = [tf.Variable(part) for part in np.split(table.numpy(), 2)]
    params, sp_ids = [shards, keyed], [ids[0]] * 2
    index = tf.constant([1, 0, 1, 1])
    how = {"partition_strategy": "div"}
    got = GROUP(params, sp_ids, ["sum"] * 2, rows=[index] * 2, **how)
    want = [tf.gather(output, index) for output in GROUP(params, sp_ids, ["sum"] * 2, **how)]
    tf.nest.map_structure(np.testing.assert_array_equal, got, want)
    assert int(keyed.total_count()) == 3


def test_the_shape_of_the_result_is_static():
    with tf.Graph().as_default():
        ids = sparse([0], [0], 1)
        [got] = GROUP([tf.ones([3, 2])], [ids], ["sum"], rows=[tf.constant([0, 0, 0])])
        assert got.shape == [3, 2]
        unknown = tf1.placeholder(tf.int64)
        [got] = GROUP([tf.ones([3, 2])], [ids], ["sum"], rows=[unknown])
        assert got.shape.as_list() == [None, 2]


@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("index", [[0, 2], [-1, 1]])
def test_an_index_outside_the_batch(index, in_function):
    table, ids = user_and_items()

    def lookup():
        return GROUP([table] * 2, ids, ["sum"] * 2, rows=[tf.constant(index), None])

    message = r"must be in \[0, num_rows\).*rows\[0\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        (tf.function(lookup) if in_function else lookup)()


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([[0]], ValueError, "rows must have an entry for each of the 2 params, got 1"),
        ({0: [0]}, TypeError, "rows must be a list"),
        ([None, [0.5]], TypeError, r"rows\[1\] must be int32 or int64, got float32; cast it"),
        ([[[0]], None], ValueError, r"rows\[0\] must have shape \[num_items\], got \(1, 1\)"),
        ([None, sparse([0], [0], 1)], TypeError, r"rows\[1\] must be a dense tensor"),
    ],
)
def test_wrong_arguments(rows, error, message):
    table, ids = user_and_items()
    with pytest.raises(error, match=message):
        GROUP([table] * 2, ids, ["sum"] * 2, rows=rows)
