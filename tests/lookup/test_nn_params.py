"""Every kind of table that tf.nn takes: tensors, variables, lists, partitioned and sharded ones."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable  # tf.distribute has none

import fused_embedding as fe
import oracle.lookup
from cases.nn import BATCH, DIM, NUM_IDS, make_table, session_feed
from checking import as_indexed_slices, densify, sparse

VERSIONS = ("v1", "v2")


def want(**kwargs):
    return oracle.lookup.safe_lookup(make_table(), *BATCH[:3], **kwargs)


def want_grad():
    """Of the sum of all elements of the result, as `[NUM_IDS, DIM]`."""
    grad = oracle.lookup.safe_lookup_grad(np.ones((BATCH.num_rows, DIM)), make_table(), *BATCH[:3])
    dense = np.zeros((NUM_IDS, DIM))
    dense[grad.ids] = grad.rows
    return dense


def fused(params, version, **kwargs):
    sp_ids = sparse(*BATCH[:3])
    return fe.nn.fused_safe_embedding_lookup_sparse(
        params, sp_ids, fusion_version=version, **kwargs
    )


EAGER_PARAMS = {
    "array": lambda: make_table(),
    "nested_list_of_one_array": lambda: [make_table()],
    "tensor": lambda: tf.constant(make_table()),
    "variable": lambda: tf.Variable(make_table()),
    "list_of_tensors": lambda: [tf.constant(s) for s in np.array_split(make_table(), 3)],
    "list_of_variables": lambda: [tf.Variable(s) for s in np.array_split(make_table(), 3)],
    "mixed_list": lambda: [tf.Variable(make_table()[:4]), tf.constant(make_table()[4:])],
    "sharded_variable": lambda: ShardedVariable(
        [tf.Variable(s) for s in np.array_split(make_table(), 3)]
    ),
}


@pytest.mark.parametrize("make", EAGER_PARAMS.values(), ids=EAGER_PARAMS.keys())
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "function"])
@pytest.mark.parametrize("version", VERSIONS)
def test_forward(version, wrap, make):
    params = make()
    np.testing.assert_allclose(
        wrap(lambda: fused(params, version, max_norm=2.0))(), want(max_norm=2.0)
    )


def parts_of(params):
    if isinstance(params, ShardedVariable):
        return list(params.variables)
    return params if isinstance(params, list) else [params]


@pytest.mark.parametrize(
    "kind",
    [
        "tensor",
        "variable",
        "list_of_tensors",
        "list_of_variables",
        "mixed_list",
        "sharded_variable",
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "function"])
@pytest.mark.parametrize("version", VERSIONS)
def test_gradient(version, wrap, kind):
    params = EAGER_PARAMS[kind]()
    parts = parts_of(params)

    def backward():
        with tf.GradientTape() as tape:
            tape.watch(parts)
            loss = tf.reduce_sum(fused(params, version))
        return tape.gradient(loss, parts)

    grads = wrap(backward)()
    dense = [densify(g, p.shape[0]) for g, p in zip(grads, parts, strict=True)]
    np.testing.assert_allclose(np.concatenate(dense), want_grad(), atol=1e-14)
    for part, grad in zip(parts, grads, strict=True):
        if isinstance(part, tf.Variable):
            assert isinstance(grad, tf.IndexedSlices)
        ids, _ = as_indexed_slices(grad)
        assert len(set(ids.tolist())) == len(ids)


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize("version", VERSIONS)
def test_partitioned_variable(version, strategy, use_resource):
    table = make_table()
    if strategy == "mod":  # get_variable cuts consecutive rows: part p then holds ids p, p + 3, ...
        table = np.concatenate(oracle.lookup.split_table(table, 3, "mod"))
    with tf.Graph().as_default():
        params = tf.compat.v1.get_variable(
            "table",
            initializer=lambda shape, dtype, partition_info: tf.slice(
                tf.constant(table, dtype), partition_info.var_offset, shape
            ),
            shape=table.shape,
            dtype=tf.float64,
            partitioner=tf.compat.v1.fixed_size_partitioner(3),
            use_resource=use_resource,
        )
        sp_ids = tf.compat.v1.sparse_placeholder(tf.int64)
        out = fe.nn.fused_safe_embedding_lookup_sparse(
            params, sp_ids, partition_strategy=strategy, fusion_version=version
        )
        grads = tf.gradients(tf.reduce_sum(out), list(params))
        train = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(out))
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            feed = {sp_ids: session_feed(BATCH, np.int64)}
            result, slices = session.run([out, grads], feed)
            np.testing.assert_allclose(result, want())
            dense = np.zeros((NUM_IDS, DIM))
            for p, part in enumerate(slices):
                keys = part.indices * 3 + p if strategy == "mod" else part.indices + [0, 3, 6][p]
                assert len(set(part.indices.tolist())) == len(part.indices)
                dense[keys] = part.values
            np.testing.assert_allclose(dense, want_grad(), atol=1e-14)
            session.run(train, feed)
            assert not np.allclose(session.run(out, feed), want())


@pytest.mark.parametrize("version", VERSIONS)
def test_reference_variable_is_read_when_the_step_runs(version):
    with tf.Graph().as_default():
        table = tf.compat.v1.Variable(make_table(), use_resource=False)
        out = fused(table, version)
        update = tf.compat.v1.assign(table, table * 2.0)
        with tf.compat.v1.Session() as session:
            session.run(table.initializer)
            np.testing.assert_allclose(session.run(out), want())
            session.run(update)
            np.testing.assert_allclose(session.run(out), 2 * want())


@pytest.mark.parametrize("version", VERSIONS)
def test_trains_as_stock_does(version):
    def train(lookup):
        table = tf.Variable(make_table())
        for step in range(3):
            with tf.GradientTape() as tape:
                out = lookup(table, sparse(*BATCH[:3]))
                loss = tf.reduce_sum(tf.square(out - step))
            grad = tape.gradient(loss, table)
            table.scatter_sub(tf.IndexedSlices(0.1 * grad.values, grad.indices))
        return table.numpy()

    got = train(lambda t, i: fe.nn.fused_safe_embedding_lookup_sparse(t, i, fusion_version=version))
    np.testing.assert_allclose(got, train(tf.nn.safe_embedding_lookup_sparse), rtol=1e-12)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_that_is_computed(version):
    """The gradient flows on through a tensor: here to the variable behind it."""
    variable = tf.Variable(make_table())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(fused(2.0 * variable, version))
    np.testing.assert_allclose(
        densify(tape.gradient(loss, variable), NUM_IDS), 2 * want_grad(), atol=1e-14
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_second_lookup_of_the_same_table_adds_up(version):
    variable = tf.Variable(make_table())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(fused(variable, version) + 3.0 * fused(variable, version))
    np.testing.assert_allclose(
        densify(tape.gradient(loss, variable), NUM_IDS), 4 * want_grad(), atol=1e-14
    )


def test_shards_of_different_width_are_an_error():
    params = [tf.Variable(np.ones((4, 3))), tf.Variable(np.ones((4, 2)))]
    for version in VERSIONS:
        with pytest.raises(
            ValueError, match=r"of one table, but .* rows of shape \(2,\), and .*\(3,\)"
        ):
            fused(params, version)


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_a_conditional_between_fused_and_stock_has_a_gradient(version):
    variable = tf.Variable(tf.ones([6, 2]))
    ids = tf.sparse.from_dense([[1, 2], [3, 3]])

    @tf.function
    def gradient(is_fused):
        with tf.GradientTape() as tape:
            output = tf.cond(
                is_fused,
                lambda: fe.nn.fused_safe_embedding_lookup_sparse(
                    variable, ids, fusion_version=version
                ),
                lambda: tf.nn.safe_embedding_lookup_sparse([variable], ids),
            )
        slices = tape.gradient(output, variable)
        assert isinstance(slices, tf.IndexedSlices)
        return tf.convert_to_tensor(slices)

    np.testing.assert_allclose(gradient(tf.constant(True)), gradient(tf.constant(False)))


@pytest.mark.parametrize(("num_rows", "dtype"), [(6, tf.int32), (2**31 + 6, tf.int64)])
def test_the_shape_of_a_gradient_fits_its_type(num_rows, dtype):
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("table", [num_rows, 2], use_resource=True)
        output = fe.nn.fused_safe_embedding_lookup_sparse(
            variable, tf.compat.v1.sparse_placeholder(tf.int64, [None, 2])
        )
        [gradient] = tf.gradients(output, [variable])
        assert gradient.dense_shape.dtype == dtype
        assert tf.get_static_value(gradient.dense_shape).tolist() == [num_rows, 2]
