"""Adaptive columns beside graphs of stock ops, and DeepRec's lookups of that kind."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases
from checking import assert_close, sparse

tf1 = tf.compat.v1
FC = fe.feature_column
CATEGORICAL = FC.categorical_column_with_adaptive_embedding
ONES = tf1.ones_initializer
PREFIX = "input_layer/user_embedding/"
BUCKETS = 4
VALUES = np.array([1, 2, 3, 4, 1, 7])
MASK = np.array([1, 0, 1, 0, 1, 0])
WEIGHTS = np.array([0.5, 2.0, 1.0, 3.0, 0.25, 4.0], np.float32)


def batch(values=VALUES):
    """Rows of several values, of none and of one."""
    return sparse(values, [0, 0, 1, 1, 1, 3], 4, values.dtype)


def buckets_of(values, num_buckets=BUCKETS):
    return tf.strings.to_hash_bucket_fast(np.asarray(values).astype(str), num_buckets)


def option_of(filter_freq):
    return fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=filter_freq))


def table_and_shared():
    """The parts of the one adaptive column of a graph."""
    [table] = tf1.get_collection(fe.EMBEDDING_VARIABLES)
    [shared] = [v for v in tf1.global_variables() if v.op.name.endswith("/hash_weights")]
    return table, shared


# --- The values of columns ---


@pytest.mark.parametrize("dtype", [tf.int64, tf.string], ids=["integers", "strings"])
@pytest.mark.parametrize("is_weighted", [True, False], ids=["weighted", "mean"])
def test_columns_train_as_stock_ops(dtype, is_weighted):
    """Values 1 and 3 have rows of their own, which start as their shared rows."""
    with tf.Graph().as_default(), tf1.Session() as session:
        values = VALUES if dtype == tf.int64 else VALUES.astype(bytes)
        features = {"user": batch(values), "weights": batch(WEIGHTS)}
        categorical = CATEGORICAL("user", BUCKETS, dtype)
        if is_weighted:
            categorical = tf.feature_column.weighted_categorical_column(categorical, "weights")
        column = FC.embedding_column(categorical, 2, initializer=cases.initializer())
        ours = FC.input_layer(features, [column], adaptive_mask_tensors={"user": MASK})
        table, shared = table_and_shared()
        dense = [
            tf1.get_variable("stock_shared", [BUCKETS, 2], initializer=cases.initializer()),
            tf1.get_variable("stock_own", initializer=tf.zeros([8, 2])),
        ]
        hashed = buckets_of(VALUES)
        rows = tf.where(
            MASK[:, np.newaxis] == 1, tf.gather(dense[1], VALUES), tf.gather(dense[0], hashed)
        )
        stock = tf.nn.safe_embedding_lookup_sparse(
            rows, batch(np.arange(6)), batch(WEIGHTS) if is_weighted else None
        )
        steps = []
        for output, variables in ((ours, [table, shared]), (stock, dense)):
            optimizer = tf1.train.AdagradOptimizer(0.1, name=f"Adagrad{len(steps)}")
            loss = cases.weighted_sum(output**2)
            steps.append(optimizer.minimize(loss, var_list=variables))
        session.run(tf1.global_variables_initializer())
        session.run(dense[1].assign(tf.gather(dense[0], buckets_of(range(8)))))
        for _ in range(5):
            assert_close(*session.run([ours, stock]), 64)
            session.run(steps)
        content, *values = session.run([table.export(), shared, *dense])
        assert_close(values[0], values[1], 128)
        keys = VALUES if dtype == tf.int64 else buckets_of(VALUES, 2**63 - 1)
        key_of = dict(zip(VALUES.tolist(), session.run(tf.convert_to_tensor(keys)), strict=True))
        assert content.keys.tolist() == sorted([key_of[1], key_of[3]])
        of_key = dict(zip(content.keys, content.values, strict=True))
        for value in (1, 3):
            assert_close(of_key[key_of[value]], values[2][value], 128)


@pytest.mark.parametrize("masks", [None, {}], ids=["no masks", "none of this column"])
def test_the_filter_decides_without_a_mask(masks):
    with tf.Graph().as_default(), tf1.Session() as session:
        categorical = CATEGORICAL("user", 10, tf.int64, None, option_of(2))
        column = FC.embedding_column(categorical, 2, initializer=ONES())
        features = {"user": tf.constant([[1], [2], [1]])}
        output = FC.input_layer(features, [column], adaptive_mask_tensors=masks)
        table, _ = table_and_shared()
        session.run(tf1.global_variables_initializer())
        assert session.run(output).tolist() == [[1.0, 1.0]] * 3
        assert session.run(table.export()).keys.tolist() == [1]


@pytest.mark.parametrize("dtype", [tf.bool, tf.int32, tf.int64], ids=lambda d: d.name)
def test_masks_of_several_types_and_shapes(dtype):
    mask = np.array([[1], [0], [1]])
    with tf.Graph().as_default(), tf1.Session() as session:
        column = FC.embedding_column(CATEGORICAL("user", 10, tf.int64), 2)
        features = {"user": tf.constant([[5], [6], [7]])}
        masks = {"user": tf.cast(mask, dtype)}
        output = FC.input_layer(features, [column], adaptive_mask_tensors=masks)
        table, _ = table_and_shared()
        session.run(tf1.global_variables_initializer())
        session.run(output)
        assert session.run(table.export()).keys.tolist() == [5, 7]


def test_columns_of_a_layer_share_ops():
    """One op makes all ids and hashes, one admits keys, one looks up all rows of their own."""
    with tf.Graph().as_default() as graph:
        columns = [
            FC.embedding_column(CATEGORICAL(f"c{i}", 5, dtype, None, option_of(2)), 4)
            for i, dtype in enumerate([tf.string, tf.int64, tf.string])
        ]
        features = {
            f"c{i}": tf1.placeholder(dtype, [None, 1])
            for i, dtype in enumerate([tf.string, tf.int64, tf.string])
        }
        FC.input_layer(
            features, columns, adaptive_mask_tensors={"c0": tf1.placeholder(tf.bool, [None])}
        )
        types = [op.type for op in graph.get_operations()]
    assert types.count("EmbeddingVariableAdmit") == 1
    assert types.count("EmbeddingVariableGroupLookup") == 1
    assert types.count("FusedEmbeddingResourceGroupLookup") == 1


def test_layers_of_keras_train_both_parts():
    cases.keras()
    column = FC.embedding_column(CATEGORICAL("user", 5, tf.string, None, option_of(2)), 2)
    layer = FC.DenseFeatures([column], name="x")
    features = {"user": tf.constant([["a"], ["b"], ["a"]])}
    layer(features, training=False)
    table, shared = layer.trainable_weights
    assert [v.name for v in (table, shared)] == [
        f"x/user_embedding/{n}_weights:0" for n in ("ev", "hash")
    ]
    assert table.total_count() == 0

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(features, training=True))
        return tape.gradient(loss, [table, shared])

    of_own, of_shared = gradients()
    assert table.total_count() == 1
    assert of_own.values.numpy().tolist() == [[2.0, 2.0]]  # "a" occurs twice
    assert tf.reduce_sum(tf.convert_to_tensor(of_shared)) == 2.0


def test_a_checkpoint_of_three_partitions_is_restored_into_one(tmp_path):
    """Shared rows are never partitioned."""

    def save_or_restore(num_parts, path=None):
        with tf.Graph().as_default(), tf1.Session() as session:
            categorical = CATEGORICAL("user", 5, tf.int64, num_parts)
            column = FC.embedding_column(categorical, 2)
            features = {"user": tf.constant([[1], [2], [3], [4]])}
            masks = {"user": [1, 1, 1, 0]}
            output = FC.input_layer(features, [column], adaptive_mask_tensors=masks)
            train = tf1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(output))
            session.run(tf1.global_variables_initializer())
            saver = tf1.train.Saver()
            if path is None:
                session.run(train)
                return saver.save(session, str(tmp_path / "model")), session.run(output)
            saver.restore(session, path)
            return path, session.run(output)

    path, want = save_or_restore(3)
    names = {name for name, _ in tf.train.list_variables(path)}
    assert {f"{PREFIX}hash_weights", f"{PREFIX}hash_weights/Adagrad"} <= names
    assert f"{PREFIX}ev_weights-keys" in names
    np.testing.assert_array_equal(save_or_restore(None, path)[1], want)


# --- DeepRec's functions ---


@pytest.mark.parametrize("is_safe", [True, False])
def test_migration_to_rows_of_their_own(is_safe):
    """../shared/reference/compressed_tables.md, 3.4: ids 1 and 3 share bucket 1 of 4."""
    assert buckets_of([1, 2, 3]).numpy().tolist() == [1, 3, 1]
    shared = tf.Variable(tf.ones([4, 1]))
    table = fe.get_embedding_variable("ev", 1)

    def step(lookup, identity, flag):
        ids = sparse([identity if flag else 1], [0], 1)
        with tf.GradientTape() as tape:
            row = lookup(shared, [table], ids, [1] if flag else [], adaptive_mask_tensor=[flag])
        of_shared, of_table = tape.gradient(row, [shared, table])
        shared.scatter_sub(tf.IndexedSlices(0.1 * of_shared.values, of_shared.indices))
        if of_table.indices.shape[0]:
            rows = table.lookup(of_table.indices, insert=False)
            table.upsert(of_table.indices, rows - 0.1 * of_table.values)
        return round(row.numpy().item(), 6)

    with fe.compat.deeprec.install():
        safe, unsafe = (
            tf1.nn.safe_adaptive_embedding_lookup_sparse,
            lambda *args, **kw: tf1.nn.adaptive_embedding_lookup_sparse(*args, None, **kw),
        )
        lookup = safe if is_safe else unsafe
        assert [step(lookup, 1, 0), step(lookup, 3, 1), step(lookup, 1, 1)] == [1.0, 0.9, 0.9]
    np.testing.assert_allclose(shared.numpy()[:, 0], [1, 0.9, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(table.export().values[:, 0], [0.8, 0.8], rtol=1e-6)


def test_lookups_of_deeprec_in_bags_and_partitions():
    """`hash_ev_ids` are the buckets of the ids with rows of their own, in their order."""
    shared = tf.Variable(tf.reshape(tf.range(8.0), [4, 2]))
    partitioner = tf1.fixed_size_partitioner(2)
    table = fe.get_embedding_variable("ev", 2, partitioner=partitioner)
    ids = sparse([100, 2, 300, 400, 1], [0, 0, 1, 3, 3], 4)
    arguments = {"combiner": "sum", "adaptive_mask_tensor": tf.constant([1, 0, 1, 1, 0])}
    with fe.compat.deeprec.install():
        rows = tf1.nn.safe_adaptive_embedding_lookup_sparse(
            shared, table, ids, [3, 0, 1], **arguments
        )
    assert rows.numpy().tolist() == [[6 + 4, 7 + 5], [0, 1], [0, 0], [2 + 2, 3 + 3]]


def test_lookups_of_deeprec_have_no_weights_and_need_a_mask():
    ids, weights = sparse([1], [0], 1), sparse([1.0], [0], 1, np.float32)
    with fe.compat.deeprec.install():
        lookup = tf1.nn.safe_adaptive_embedding_lookup_sparse
        for arguments in ({}, {"adaptive_mask_tensor": [1], "sparse_weights": weights}):
            with pytest.raises(ValueError, match="AdaptiveEmbedding lookup not support not ignore"):
                lookup(None, None, ids, [0], **arguments)
        with pytest.raises(NotImplementedError, match="default_id was given"):
            lookup(None, None, ids, [0], adaptive_mask_tensor=[1], default_id=3)


# --- Errors ---


def masked(mask, key="user"):
    column = FC.embedding_column(CATEGORICAL("user", 5, tf.int64), 2)
    ids = tf1.placeholder_with_default(tf.constant([[1], [2]], tf.int64), [None, 1])
    return FC.input_layer({"user": ids}, [column], adaptive_mask_tensors={key: mask})


def test_masks_that_are_no_masks():
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match=r"\['item'\].*have the keys \['user'\]"):
            masked([1, 0], "item")
        with pytest.raises(TypeError, match="must hold integers or bools, got float32"):
            masked([1.0, 0.0])


def test_a_mask_of_another_length_is_named():
    with tf.Graph().as_default(), tf1.Session() as session:
        mask = tf1.placeholder(tf.int32, [None])
        output = masked(mask)
        session.run(tf1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"user..: its mask has\] \[3\]"):
            session.run(output, {mask: [1, 0, 1]})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CATEGORICAL("u", 0), "hash_bucket_size of 'u' must be > 0"),
        (lambda: CATEGORICAL("u", 5, tf.float32), "dtype of 'u' must be tf.string or an integer"),
        (lambda: FC.shared_embeddings([CATEGORICAL("u", 5)], 4), "'u' was given to shared columns"),
    ],
)
def test_errors(make, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        make()


def test_a_column_survives_its_config():
    column = CATEGORICAL("v", 7, tf.int64, 2, option_of(3))
    assert type(column).from_config(column.get_config()) == column
