import functools

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases

tf1 = tf.compat.v1
fc = tf.feature_column
layers = fe.contrib.layers
DIMENSION = 5
NUM_IDS = 12
OPTION = fe.EmbeddingVariableOption(init_option=fe.InitializerOption(default_value_dim=NUM_IDS))

SPARSE = {
    "integerized": (
        lambda: layers.sparse_column_with_integerized_feature("ids", NUM_IDS),
        lambda: cases.identity(),
    ),
    "hashed": (
        lambda: layers.sparse_column_with_hash_bucket("words", NUM_IDS),
        lambda: fc.categorical_column_with_hash_bucket("words", NUM_IDS),
    ),
    "hashed integers": (
        lambda: layers.sparse_column_with_hash_bucket("ids", NUM_IDS, dtype=tf.int64),
        lambda: fc.categorical_column_with_hash_bucket("ids", NUM_IDS, tf.int64),
    ),
    "table": (
        lambda: layers.sparse_column_with_embedding("ids", tf.int64, ev_option=OPTION),
        lambda: cases.identity(),
    ),
}


def contrib(columns, features, **kwargs):
    return layers.input_from_feature_columns(features, columns, **kwargs)


def train(build):
    """Outputs before each step, and types of the ops."""
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        output = build(cases.features())
        step = tf1.train.AdagradOptimizer(0.5).minimize(cases.weighted_sum(output))
        session.run(tf1.global_variables_initializer())
        outputs = [session.run([output, step])[0] for _ in range(3)]
        return outputs, {op.type for op in graph.get_operations()}


@pytest.mark.parametrize("do_fusion", [None, "v1", "v2"])
@pytest.mark.parametrize("case", SPARSE)
def test_columns_train_as_those_of_tf_feature_column(case, do_fusion):
    sparse, categorical = SPARSE[case]
    options = {"combiner": "sqrtn", "max_norm": 0.7, "initializer": cases.initializer()}
    column = layers.embedding_column(sparse(), DIMENSION, do_fusion=do_fusion, **options)
    got, ops = train(functools.partial(contrib, [column]))
    stock = fc.embedding_column(categorical(), DIMENSION, **options)
    want, _ = train(lambda features: tf1.feature_column.input_layer(features, [stock]))
    cases.assert_close(got, want)
    is_fused = do_fusion is not None or case == "table"
    fused_ops = {*cases.FUSED_OP.values(), "EmbeddingVariableGroupLookup"}
    assert bool(ops & fused_ops) == is_fused
    assert bool(ops & cases.STOCK_OPS) == (not is_fused)


def test_integers_beyond_the_buckets_wrap_around():
    column = layers.sparse_column_with_integerized_feature("key", 10)
    column = layers.embedding_column(column, 1, initializer=lambda shape, **_: digits(shape))
    with tf.Graph().as_default(), tf1.Session() as session:
        features = {"key": tf.constant([[3], [13], [-3], [2**40 + 1]], tf.int64)}
        output = layers.input_from_feature_columns(features, [column])
        session.run(tf1.global_variables_initializer())
        # 2^40 = 1099511627776
        assert session.run(output).ravel().tolist() == [3.0, 3.0, 7.0, 7.0]


def test_one_bucket_has_all_integers():
    column = layers.sparse_column_with_integerized_feature("key", 1)
    column = layers.embedding_column(column, 1, initializer=lambda shape, **_: digits(shape) + 5)
    with tf.Graph().as_default(), tf1.Session() as session:
        features = {"key": tf.constant([[0], [-3], [2**40]], tf.int64)}
        output = layers.input_from_feature_columns(features, [column])
        session.run(tf1.global_variables_initializer())
        assert session.run(output).tolist() == [[5.0]] * 3


def digits(shape):
    return tf.reshape(tf.range(shape[0], dtype=tf.float32), shape)


def test_variables_have_tf_contribs_names_and_collections():
    with tf.Graph().as_default():
        columns = [layers.embedding_column(sparse(), 2) for sparse, _ in SPARSE.values()]
        columns = [columns[0], columns[1], columns[3]]
        output = contrib(columns[::-1], cases.features(), weight_collections=["mine"], scope="in")
        assert output.shape.as_list() == [4, 6]
        dense = tf1.global_variables()
        (table,) = tf1.get_collection(fe.EMBEDDING_VARIABLES)
        for variable in (*dense, table):
            for key in ("mine", tf1.GraphKeys.MODEL_VARIABLES, tf1.GraphKeys.TRAINABLE_VARIABLES):
                assert any(variable is other for other in tf1.get_collection(key)), key
    # _SparseColumnEmbedding, _SparseColumnHashed, _SparseColumnIntegerized
    assert table.name == "in/ids_embedding/weights:0"
    names = ["in/words_embedding/weights:0", "in/ids_embedding_1/weights:0"]
    assert [variable.name for variable in dense] == names
    assert [variable.shape.as_list() for variable in dense] == [[NUM_IDS, 2]] * 2


def test_columns_are_sorted_whatever_their_order():
    def column(name):
        sparse = layers.sparse_column_with_embedding(name, tf.int64)
        return layers.embedding_column(sparse, 1, initializer=tf.constant_initializer(ord(name)))

    with tf.Graph().as_default(), tf1.Session() as session:
        features = {name: tf.constant([[1]], tf.int64) for name in "abc"}
        output = contrib([column(name) for name in "bac"], features)
        assert session.run(output).tolist() == [[97.0, 98.0, 99.0]]


def test_the_default_initializer_is_tf_contribs():
    with tf.Graph().as_default(), tf1.Session() as session:
        sparse = layers.sparse_column_with_integerized_feature("ids", 10_000)
        contrib([layers.embedding_column(sparse, 16)], cases.features())
        session.run(tf1.global_variables_initializer())
        (table,) = session.run(tf1.global_variables())
    # A normal distribution cut off at two standard deviations has 0.8796 of its own.
    np.testing.assert_allclose(table.std(), 0.8796 / np.sqrt(10_000), rtol=0.02)
    assert abs(table).max() <= 2 / np.sqrt(10_000)


def test_trainable_reaches_the_variables():
    for kwargs, column_kwargs in (({"trainable": False}, {}), ({}, {"trainable": False})):
        with tf.Graph().as_default():
            columns = [
                layers.embedding_column(sparse(), 2, **column_kwargs)
                for sparse, _ in SPARSE.values()
            ]
            contrib(columns, cases.features(), **kwargs)
            assert tf1.trainable_variables() == []
            assert len(tf1.get_collection(tf1.GraphKeys.MODEL_VARIABLES)) == 4


def option_of(**kwargs):
    return layers.sparse_column_with_embedding("key", **kwargs).categorical_column.ev_option


def test_steps_to_live_is_an_evict_option():
    option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(2))
    assert option_of(ev_option=option) == option
    live = option_of(ev_option=option, steps_to_live=5)
    assert live.evict_option == fe.GlobalStepEvict(5)
    assert live.filter_option == option.filter_option
    assert option_of() == option_of(steps_to_live=0) == fe.EmbeddingVariableOption()
    assert option_of(ht_partition_num=7).ht_partition_num == 7
    with pytest.raises(ValueError, match=r"steps_to_live = 5 and ev_option with L2WeightEvict"):
        option_of(
            steps_to_live=5,
            ev_option=fe.EmbeddingVariableOption(evict_option=fe.L2WeightEvict(0.1)),
        )


def blocks_of(name="ids", dtype=tf.int64, **options):
    return layers.sparse_column_with_dynamic_dimension_embedding(
        name, dtype, embedding_block_dimension=2, embedding_block_num=3, **options
    )


@pytest.mark.parametrize("partition_num", [None, 2])
def test_blocks_of_a_column_are_by_frequency(partition_num):
    with tf.Graph().as_default(), tf1.Session() as session:
        sparse = blocks_of(partition_num=partition_num, compression_ratio=0.25)
        column = layers.embedding_column(sparse, 6, "sum", tf1.ones_initializer())
        words = layers.embedding_column(blocks_of("words", tf.string), 6)
        ids = tf1.placeholder(tf.int64, [None, 1])
        features = {"ids": ids, "words": tf.fill(tf.shape(ids), "a")}
        output = contrib([words, column], features, scope="in")
        with fe.inference(), tf1.variable_scope("", reuse=True):
            read = contrib([words, column], features, scope="in")
        step = tf1.train.AdagradOptimizer(0.0).minimize(tf.reduce_sum(output))
        names = {v.name for v in tf1.get_collection(fe.EMBEDDING_VARIABLES)}
        parts = [f"/part_{i}" for i in range(partition_num or 0)] or [""]
        assert {f"in/ids_embedding/weights/block{i}{p}:0" for i in range(3) for p in parts} <= names
        updates = tf1.get_collection(layers.UPDATE_BOUNDS)
        assert len(updates) == 2  # of the training lookups
        tf1.train.export_meta_graph()
        session.run(tf1.global_variables_initializer())

        def num_blocks(of_ids):
            rows = session.run(read, {ids: [[i] for i in of_ids]})
            return (rows[:, :6].sum(axis=1) / 2).astype(int).tolist()

        for _ in range(2):
            session.run([output, step], {ids: [[7], [7], [8], [9]]})
        assert num_blocks([7, 8, 9, 10]) == [3, 2, 2, 0]
        session.run(updates)
        # Of three ids the first block is for one, and no other is for any.
        assert num_blocks([7, 8, 9, 10]) == [1, 0, 0, 0]
        bounds = {v.name: v for v in tf1.global_variables()}["in/ids_embedding/weights/bounds:0"]
        assert session.run(bounds)[0] == 4


def test_arguments_of_blocks():
    option = blocks_of(steps_to_live=5).categorical_column.ev_option
    assert option == fe.EmbeddingVariableOption(evict_option=fe.GlobalStepEvict(5))
    column = blocks_of(compression_ratio=0.25).categorical_column
    assert type(column).from_config(column.get_config()) == column
    with pytest.raises(ValueError, match="3 blocks of 2, must be 6, got 5"):
        layers.embedding_column(blocks_of(), 5)
    with pytest.raises(TypeError, match="embedding_block_dimension of 'ids' must be an integer"):
        layers.sparse_column_with_dynamic_dimension_embedding("ids", tf.int64)
    with pytest.raises(ValueError, match="compression_ratio of 'ids'"):
        blocks_of(compression_ratio=0.6)
    with pytest.raises(ValueError, match="leave it out"):
        blocks_of(ev_option=fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(2)))


def test_wrong_arguments_are_errors():
    with pytest.raises(ValueError, match="bucket_size of 'key' must be >= 1, got 0"):
        layers.sparse_column_with_integerized_feature("key", 0)
    with pytest.raises(ValueError, match="dtype of 'key' must be an integer type, got string"):
        layers.sparse_column_with_integerized_feature("key", 5, dtype=tf.string)
    with pytest.raises(NotImplementedError, match="hash_keys = "):
        layers.sparse_column_with_hash_bucket("key", 5, hash_keys=[[1]])
    with pytest.raises(TypeError, match=r"sparse_id_column must be made by fe.contrib.layers"):
        layers.embedding_column(cases.identity(), 3)
    with tf.Graph().as_default():
        with pytest.raises(TypeError, match=r"feature_columns must be made by fe.contrib.layers"):
            contrib([fc.embedding_column(cases.identity(), 3)], cases.features())
        with pytest.raises(NotImplementedError, match="init_data_source = 'path'"):
            layers.sparse_column_with_embedding("ids", tf.int64, init_data_source="path")


def test_fields_of_sparse_columns():
    hashed = layers.sparse_column_with_hash_bucket("key", 7, combiner="mean")
    assert (hashed.name, hashed.length, hashed.combiner) == ("key", 7, "mean")
    assert layers.sparse_column_with_integerized_feature("key", 7).combiner == "sum"
    assert layers.embedding_column(hashed, 3).name == "key_embedding"
