"""Steps of a session with TensorFlow's default options allocate less than a table.

Grappler's defaults turn the gather of stock's lookup into a read of the whole variable. After a
sparse update that read copies the variable in each step. No path of ours may have such a copy.
"""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.training import OPTIMIZERS

tf1 = tf.compat.v1
fc = tf.feature_column
NUM_ROWS, DIM, BATCH = 100_000, 16, 8
TABLE_BYTES = NUM_ROWS * DIM * 4
KEYS = ("user", "item")


def columns():
    return [fc.categorical_column_with_identity(key, NUM_ROWS) for key in KEYS]


def embeddings(module, **how):
    make = tf1.zeros_initializer()
    return [module.embedding_column(c, DIM, initializer=make, **how) for c in columns()]


def sparse_ids(features):
    return [tf.sparse.from_dense(features[key] + 1) for key in KEYS]


def tables():
    return [
        tf1.get_variable(key, [NUM_ROWS, DIM], initializer=tf1.zeros_initializer()) for key in KEYS
    ]


def looked_up(lookup):
    return lambda features: tf.concat(
        [lookup(t, ids) for t, ids in zip(tables(), sparse_ids(features), strict=True)], axis=1
    )


def group(features):
    outputs = fe.nn.group_embedding_lookup_sparse(tables(), sparse_ids(features), ["mean"] * 2)
    return tf.concat(outputs, axis=1)


def layer_of(module, columns_of, **how):
    return lambda features: module.input_layer(features, embeddings(columns_of, **how))


def linear_model_of(module, **how):
    return lambda features: module.linear_model(features, columns(), units=DIM, **how)


# What makes `[BATCH, n]` of a batch of features.
STOCK = {
    "input_layer": layer_of(tf1.feature_column, fc),
    "linear_model": linear_model_of(tf1.feature_column),
    "nn": looked_up(tf.nn.safe_embedding_lookup_sparse),
}
OURS = {
    "our_input_layer": layer_of(fe.feature_column, fc),
    "input_layer_v3": layer_of(tf1.feature_column, fe.feature_column, do_fusion=True),
    "input_layer_v2": layer_of(tf1.feature_column, fe.feature_column, do_fusion="v2"),
    "input_layer_v1": layer_of(tf1.feature_column, fe.feature_column, do_fusion="v1"),
    "linear_model_v3": linear_model_of(fe.feature_column, do_fusion=True),
    "linear_model_v2": linear_model_of(fe.feature_column, do_fusion="v2"),
    "nn_safe": looked_up(fe.nn.safe_embedding_lookup_sparse),
    "nn_unsafe": looked_up(lambda t, ids: fe.nn.embedding_lookup_sparse(t, ids, None)),
    "nn_group": group,
}


def allocated_bytes(metadata):
    """Bytes that the ops of a step allocated, by op."""
    sizes = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            records = [r.alloc_bytes for m in node.memory for r in m.allocation_records]
            sizes[node.node_name] = sum(max(size, 0) for size in records)
    return sizes


def bytes_of_a_step(build, optimizer, use_resource=True):
    """Of a step after three others, in a session with default options; by op."""
    rng = np.random.default_rng(0)
    with tf.Graph().as_default(), tf1.variable_scope("", use_resource=use_resource):
        features = {key: tf1.placeholder(tf.int64, [None, 2]) for key in KEYS}
        output = build(features)
        weights = tf1.get_variable("dense", [output.shape[1], 1])
        loss = tf.reduce_mean((tf.matmul(output, weights) - 1) ** 2)
        step = optimizer.minimize(loss, tf1.train.get_or_create_global_step())
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            metadata = tf1.RunMetadata()
            options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
            for i in range(4):
                feeds = {f: rng.integers(0, NUM_ROWS - 1, [BATCH, 2]) for f in features.values()}
                traced = {"options": options, "run_metadata": metadata} if i == 3 else {}
                session.run([loss, step], feeds, **traced)
    return allocated_bytes(metadata)


def wide_and_deep(deep, wide):
    return lambda features: tf.concat([deep(features), wide(features)], axis=1)


STOCK["wide_and_deep"] = wide_and_deep(STOCK["input_layer"], STOCK["linear_model"])
OURS["wide_and_deep"] = wide_and_deep(OURS["our_input_layer"], OURS["linear_model_v3"])
OURS["wide_and_deep_one_by_one"] = wide_and_deep(OURS["input_layer_v3"], OURS["linear_model_v2"])
ADAGRAD = pytest.mark.parametrize("module", [tf1.train, fe.train], ids=["stock_apply", "our_apply"])


@pytest.mark.parametrize("path", OURS)
@ADAGRAD
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_no_path_of_ours_copies_a_table(path, module, use_resource):
    sizes = bytes_of_a_step(OURS[path], module.AdagradOptimizer(0.1), use_resource)
    assert 0 < sum(sizes.values()) < TABLE_BYTES, sizes


@pytest.mark.parametrize("path", STOCK)
@ADAGRAD
def test_stocks_lookup_copies_each_table(path, module):
    """The positive control: the measure sees the copies, and what makes them."""
    sizes = bytes_of_a_step(STOCK[path], module.AdagradOptimizer(0.1))
    copies = [name for name, size in sizes.items() if size >= TABLE_BYTES]
    assert len(copies) == (4 if path == "wide_and_deep" else 2), sizes
    assert all("EmbeddingLookupStage_ReadVar" in name for name in copies), copies


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_optimizer_of_ours_copies_a_table(name):
    sizes = bytes_of_a_step(OURS["wide_and_deep"], OPTIMIZERS[name](fe.train))
    assert 0 < sum(sizes.values()) < TABLE_BYTES, sizes


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_beside_stocks_optimizers_nothing_of_ours_copies_a_table(name):
    """Stock's Adam passes over whole tables, in ops of its own; those alone may be that large."""
    optimizer = OPTIMIZERS[name](tf1.train)
    sizes = bytes_of_a_step(OURS["wide_and_deep"], optimizer)
    others = {op: size for op, size in sizes.items() if optimizer.get_name() not in op}
    assert 0 < sum(others.values()) < TABLE_BYTES, sizes
    if name != "adam":
        assert sum(sizes.values()) < TABLE_BYTES, sizes
