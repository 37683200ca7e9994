"""Multi-hash and adaptive columns, in fe.feature_column and under DeepRec's names."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from checking import sparse

tf1 = tf.compat.v1
FC = fe.feature_column
ONES = tf1.ones_initializer


def run(build, feeds=None, *, steps=0):
    """The layer that `build` makes, its variables by name, and the layer after training steps."""
    with tf.Graph().as_default(), tf1.Session() as session:
        output = build()
        train = []
        if steps:
            train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(output))
        session.run(tf1.global_variables_initializer())
        first = session.run(output)
        for _ in range(steps):
            session.run(train)
        names = {v.op.name: v for v in tf1.global_variables()}
        return first, {n: session.run(v) for n, v in names.items()}, session.run(output)


def layer(ids, categorical, dimension, **options):
    column = FC.embedding_column(categorical, dimension, **options)
    return FC.input_layer({categorical.key: ids}, [column])


def multihash_rows(values, ids, q_divisor, r_modulus):
    return values[0][ids // q_divisor], values[1][ids % r_modulus]


@pytest.mark.parametrize("do_fusion", [None, True, "v2"])
@pytest.mark.parametrize("make_layer", [FC.input_layer, tf1.feature_column.input_layer])
def test_multihash_columns(make_layer, do_fusion):
    ids = np.array([[0], [7], [11]])
    categorical = FC.categorical_column_with_multihash("user", (3, 4))

    def build():
        column = FC.embedding_column(categorical, (2, 3), do_fusion=do_fusion)
        return make_layer({"user": tf.constant(ids)}, [column])

    output, variables, _ = run(build)
    prefix = "input_layer/user_embedding/embedding_weights"
    assert sorted(variables) == [f"{prefix}_q", f"{prefix}_r"]
    parts = [variables[f"{prefix}_q"], variables[f"{prefix}_r"]]
    assert [part.shape for part in parts] == [(3, 2), (4, 3)]
    want = np.concatenate(multihash_rows(parts, ids[:, 0], 4, 4), axis=1)
    np.testing.assert_array_equal(output, want)


def test_multihash_columns_of_bags_with_weights_in_three_partitions():
    categorical = FC.categorical_column_with_multihash(
        "tags", (3, 3), operation="add", partition_num=3
    )

    with tf.Graph().as_default(), tf1.Session() as session:
        ids = sparse([1, 5, 5, 2], [0, 0, 1, 2], 4)
        weights = tf.SparseTensor(ids.indices, [1.0, 3.0, 2.0, 0.5], ids.dense_shape)
        weighted = tf.feature_column.weighted_categorical_column(categorical, "w")
        column = FC.embedding_column(weighted, 2, combiner="mean")
        output = FC.input_layer({"tags": ids, "w": weights}, [column])
        session.run(tf1.global_variables_initializer())
        variables = tf1.trainable_variables()
        assert len(variables) == 6
        values = session.run(variables)
        parts = [np.concatenate(values[:3]), np.concatenate(values[3:])]
        q, r = multihash_rows(parts, np.arange(9), 3, 3)
        rows = q + r
        want = [(rows[1] + 3 * rows[5]) / 4, rows[5], rows[2], np.zeros(2)]
        np.testing.assert_allclose(session.run(output), want, rtol=1e-5, atol=1e-6)


def test_products_are_of_each_id_in_fe_and_of_pooled_parts_in_deeprec():

    def value(make):
        with tf.Graph().as_default(), tf1.Session() as session:
            column = FC.embedding_column(make("user", (2, 2), operation="mul"), 1, combiner="mean")
            output = FC.input_layer({"user": sparse([0, 3], [0, 0], 1)}, [column])
            quotients, remainders = tf1.trainable_variables()
            session.run(tf1.global_variables_initializer())
            session.run([quotients.assign([[1.0], [3.0]]), remainders.assign([[1.0], [5.0]])])
            return session.run(output).item()

    assert value(FC.categorical_column_with_multihash) == 8
    with fe.compat.deeprec.install():
        assert value(tf1.feature_column.categorical_column_with_multihash) == 6


def test_multihash_columns_of_a_layer_share_an_op():
    with tf.Graph().as_default():
        columns = [
            FC.embedding_column(FC.categorical_column_with_multihash(f"c{i}", (5, 5 + i)), (4, 4))
            for i in range(5)
        ]
        features = {f"c{i}": tf1.placeholder(tf.int64, [None, 1]) for i in range(5)}
        FC.input_layer(features, columns)
        types = [op.type for op in tf1.get_default_graph().get_operations()]
    assert types.count("FusedEmbeddingResourceGroupLookup") == 1
    assert types.count("FusedEmbeddingColumnKeys") == 1


@pytest.mark.parametrize("dtype", [tf.int64, tf.string], ids=["integers", "strings"])
@pytest.mark.parametrize("is_masked", [True, False], ids=["mask", "filter"])
def test_adaptive_columns(dtype, is_masked):
    values = np.array([1, 2, 3, 4, 1])
    feature = values if dtype == tf.int64 else values.astype(bytes)
    buckets = tf.strings.to_hash_bucket_fast(values.astype(str), 10).numpy()
    option = fe.EmbeddingVariableOption()
    if not is_masked:  # only 1 occurs twice
        option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=2))
    mask = {"user": np.array([1, 0, 0, 0, 1])} if is_masked else None
    categorical = FC.categorical_column_with_adaptive_embedding("user", 10, dtype, None, option)

    with tf.Graph().as_default(), tf1.Session() as session:
        column = FC.embedding_column(categorical, 2, initializer=ONES())
        features = {"user": tf.constant(feature[:, np.newaxis])}
        output = FC.input_layer(features, [column], adaptive_mask_tensors=mask)
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(output))
        session.run(tf1.global_variables_initializer())
        assert session.run(output).tolist() == [[1.0, 1.0]] * 5
        [table] = tf1.get_collection(fe.EMBEDDING_VARIABLES)
        [shared] = tf1.global_variables()
        assert shared.op.name == "input_layer/user_embedding/hash_weights"
        assert table.op.name == "input_layer/user_embedding/ev_weights"
        if is_masked:
            session.run(train)
            keys = 1 if dtype == tf.int64 else tf.strings.to_hash_bucket_fast(["1"], 2**63 - 1)
            keys = session.run(keys) if tf.is_tensor(keys) else [keys]
            content = session.run(table.export())
            assert content.keys.tolist() == list(keys)
            np.testing.assert_allclose(content.values, [[0.8, 0.8]], rtol=1e-6)
            want = np.ones((10, 2), np.float32)
            for bucket in buckets[1:4]:
                want[bucket] -= 0.1
            np.testing.assert_allclose(session.run(shared), want, rtol=1e-6)
        else:
            assert session.run(table.total_count()) == 1


def test_worked_example_of_adaptive_columns():
    """The documents' program: rows that ids only start from stay as they are."""
    ids = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 0])
    mask = [1, 0, 1, 0, 1, 0, 0, 1, 0, 1]
    with fe.compat.deeprec.install(), tf.Graph().as_default(), tf1.Session() as session:
        columns = tf1.feature_column
        categorical = columns.categorical_column_with_adaptive_embedding(
            "col_emb", hash_bucket_size=100, dtype=tf.int64, ev_option=tf1.EmbeddingVariableOption()
        )
        column = columns.embedding_column(categorical, dimension=16, initializer=ONES())
        output = columns.input_layer(
            {"col_emb": tf.SparseTensor([[i, 0] for i in range(10)], ids, [10, 1])},
            [column],
            adaptive_mask_tensors={"col_emb": tf.constant(mask, tf.int32)},
        )
        train = tf1.train.FtrlOptimizer(0.1, l1_regularization_strength=2.0).minimize(
            tf.reduce_sum(output)
        )
        session.run(tf1.global_variables_initializer())
        session.run(train)
        [shared] = [v for v in tf1.global_variables() if v.op.name.endswith("hash_weights")]
        [table] = tf1.get_collection(fe.EMBEDDING_VARIABLES)
        assert session.run(table.export()).keys.tolist() == [0, 1, 3, 5, 8]
        changed = np.flatnonzero((session.run(shared) != 1).any(axis=1))
        assert changed.tolist() == [43, 59, 85, 87, 88]


def test_migration_to_rows_of_their_own():
    """../shared/reference/compressed_tables.md, 3.4: ids 1 and 3 share bucket 1 of 4."""
    shared = tf.Variable(tf.ones([4, 1]))
    table = fe.get_embedding_variable("ev", 1)
    lookup_of = {}

    def step(identity, bucket, flag):
        ids = sparse([identity if flag else bucket], [0], 1)
        with tf.GradientTape() as tape:
            row = lookup_of["f"](
                shared, table, ids, [bucket] if flag else [], None, adaptive_mask_tensor=[flag]
            )
        grads = tape.gradient(row, [shared, table])
        for variable, grad in zip([shared, table], grads, strict=True):
            if variable is shared:
                shared.scatter_sub(tf.IndexedSlices(0.1 * grad.values, grad.indices))
            else:
                keys = grad.indices
                if keys.shape[0]:
                    table.upsert(keys, table.lookup(keys, insert=False) - 0.1 * grad.values)
        return round(row.numpy().item(), 6)

    with fe.compat.deeprec.install():
        lookup_of["f"] = tf1.nn.adaptive_embedding_lookup_sparse
        assert step(1, 1, 0) == 1.0
        assert step(3, 1, 1) == 0.9
        assert step(1, 1, 1) == 0.9
    np.testing.assert_allclose(shared.numpy()[:, 0], [1, 0.9, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(table.export().values[:, 0], [0.8, 0.8], rtol=1e-6)


def test_variables_under_deeprec_names():
    with fe.compat.deeprec.install():
        table = tf1.get_multihash_variable("m", [[5, 1], [3, 1]], operation="mult", dtype=float)
        assert (table.divisor, table.modulus, table.operation) == (5, 3, "mul")
        blocks = tf1.get_dynamic_dimension_embedding_variable(
            "d", 6, 4, initializer=ONES(), steps_to_live=9
        )
        rows = tf1.nn.embedding_lookup(blocks, [21, 34, 78, 99, 56], blocknums=[4, 1, 4, 3, 1])
        assert rows.numpy().sum(axis=1).tolist() == [24, 6, 24, 18, 6]
        sums = tf1.nn.embedding_lookup_sparse(
            blocks, sparse([21, 34], [0, 0], 1), None, combiner="sum", blocknums=[2, 1]
        )
        assert sums.numpy().tolist() == [[2.0] * 6 + [1.0] * 6 + [0.0] * 12]
        with pytest.raises(ValueError, match="blocknums must be valid for dynamic embedding"):
            tf1.nn.embedding_lookup(blocks, [21])
        with pytest.raises(NotImplementedError, match="regularizer, storage_type was given"):
            tf1.get_dynamic_dimension_embedding_variable(
                "e", 6, 4, regularizer=len, storage_type="ssd"
            )
        with pytest.raises(ValueError, match="not support not ignore weights"):
            tf1.nn.safe_adaptive_embedding_lookup_sparse(None, None, None, None)
    assert not hasattr(tf1, "get_multihash_variable")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: FC.categorical_column_with_multihash("u", (3, 3), dtype=tf.string),
            ValueError,
            "Input type must be a integer.*'u' is string",
        ),
        (lambda: FC.categorical_column_with_multihash("u", (3,)), ValueError, "dims of 'u'"),
        (
            lambda: FC.categorical_column_with_multihash("u", (3, 3), "R"),
            ValueError,
            "complementary_strategy of 'u'",
        ),
        (
            lambda: FC.categorical_column_with_multihash("u", (3, 3), operation="mult"),
            ValueError,
            "operation of 'u' must be one of add, mul, concat",
        ),
        (
            lambda: FC.embedding_column(FC.categorical_column_with_multihash("u", (3, 3)), 4),
            ValueError,
            "dimension of column 'u'.*d_q, d_r",
        ),
        (
            lambda: FC.embedding_column(
                FC.categorical_column_with_multihash("u", (3, 3), operation="add"), (4, 3)
            ),
            ValueError,
            "two equal ones",
        ),
        (
            lambda: FC.categorical_column_with_adaptive_embedding("u", 0),
            ValueError,
            "hash_bucket_size of 'u' must be > 0",
        ),
        (
            lambda: FC.shared_embeddings(
                [FC.categorical_column_with_adaptive_embedding("u", 5)], 4
            ),
            ValueError,
            "'u' was given to shared columns",
        ),
    ],
)
def test_errors(make, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        make()


def test_errors_of_masks():
    categorical = FC.categorical_column_with_adaptive_embedding("user", 5, tf.int64)
    column = FC.embedding_column(categorical, 2)
    with tf.Graph().as_default():
        features = {"user": tf.constant([[1], [2]])}
        with pytest.raises(ValueError, match=r"\['item'\].*have the keys \['user'\]"):
            FC.input_layer(features, [column], adaptive_mask_tensors={"item": [1, 0]})
        with pytest.raises(TypeError, match="must hold integers or bools, got float32"):
            FC.input_layer(features, [column], adaptive_mask_tensors={"user": [1.0, 0.0]})


def test_columns_survive_their_config():
    columns = [
        FC.categorical_column_with_multihash("u", (3, 4), operation="add", partition_num=2),
        FC.categorical_column_with_adaptive_embedding("v", 7, tf.int64),
    ]
    for column in columns:
        assert type(column).from_config(column.get_config()) == column
