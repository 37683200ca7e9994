"""fe.explain, of graphs and of columns."""

import contextlib
import doctest

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases
from checking import sparse
from fused_embedding.inspection import explain

tf1 = tf.compat.v1
fc = tf.feature_column
IDS = sparse([1, 2, 2], [0, 0, 2], 4)
LOOK_UP = fe.nn.fused_safe_embedding_lookup_sparse


def rows_of(value):
    return [tuple(lookup) for lookup in fe.explain(value)]


def graph_of(build):
    """The graph of a tf.function, as its concrete function."""
    return tf.function(build).get_concrete_function()


def table(num_rows=6):
    return tf.Variable(tf.zeros([num_rows, 3]))


def test_each_version_says_what_it_is():
    tables = [table() for _ in range(3)]
    function = graph_of(
        lambda: [
            LOOK_UP(t, IDS, fusion_version=v, name=v)
            for t, v in zip(tables, ("v1", "v2", "v3"), strict=True)
        ]
    )
    assert sorted(rows_of(function)) == [
        ("v1", "v1", 1, '"v1" was asked for'),
        ("v2", "v2", 1, '"v2" was asked for'),
        ("v3", "v3", 1, "one op can do it"),
    ]


def test_the_reason_for_another_path_is_told():
    shards, dense = [table(3), table(3)], table()
    variable = fe.get_embedding_variable("explained", 3)
    function = graph_of(
        lambda: [
            LOOK_UP(shards, IDS, name="shards"),
            LOOK_UP(variable, IDS, name="keys"),
            fe.nn.embedding_lookup_sparse(dense, IDS, None, name="cut"),
            fe.nn.safe_embedding_lookup_sparse(dense, IDS, default_id=-1, name="negative"),
        ]
    )
    assert rows_of(function) == [
        (
            "shards",
            "remote",
            1,
            "its table is divided into 2 shards: one message each way for its server",
        ),
        ("keys", "v3", 1, "one op can do it"),
        (
            "cut",
            "v2",
            1,
            "its result ends with the last id, as stock's embedding_lookup_sparse has it",
        ),
        ("negative", "v2", 1, "its default_id = -1 is no row of the table"),
    ]


def test_a_table_in_another_task_is_named():
    with tf.Graph().as_default() as graph:
        with tf1.device("/job:ps/task:1"):
            variable = tf1.get_variable("table", [6, 3], use_resource=True)
        with tf1.device("/job:worker/task:0"):
            ids = tf1.sparse_placeholder(tf.int64, [None, 2])
            LOOK_UP(variable, ids, name="user")
    [(name, path, _, why)] = rows_of(graph)
    assert (name, path) == ("user", "remote")
    want = "its table is in another task, /job:ps/task:1: one message each way for its server"
    assert why == want


def test_a_group_tells_its_columns():
    tables = [table() for _ in range(3)]
    function = graph_of(
        lambda: fe.nn.group_embedding_lookup_sparse(tables, [IDS] * 3, ["sum"] * 3, name="all")
    )
    assert rows_of(function) == [("all", "v3", 3, "one op can do it")]


@pytest.mark.parametrize("partitions", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_stock_lookups_are_found_once(max_norm, combiner, weighted, partitions):
    weights = tf.SparseTensor(IDS.indices, [1.0, 2.0, 3.0], IDS.dense_shape) if weighted else None
    shards = [table(6 // (partitions or 1)) for _ in range(partitions or 1)]

    def step():
        with tf.GradientTape() as tape:
            output = tf.nn.safe_embedding_lookup_sparse(
                shards, IDS, weights, combiner=combiner, max_norm=max_norm, name="user"
            )
        return tf.nest.map_structure(tf.convert_to_tensor, tape.gradient(output, shards))

    [(name, path, num_columns, why)] = rows_of(graph_of(step))
    assert name.startswith("user")
    assert (path, num_columns) == ("stock", 1)
    assert why == "it is called as a function of stock TensorFlow"


def test_what_is_handed_to_stock_tells_the_reason():
    with tf.Graph().as_default() as graph:
        params = tf1.placeholder(tf.int32, [6, 3])
        ids = tf1.sparse_placeholder(tf.int64, [None, 2])
        fe.nn.safe_embedding_lookup_sparse(params, ids, combiner="sum", name="user")
    [(_, path, _, why)] = rows_of(graph)
    assert path == "stock"
    assert "embedding_weights has dtype int32; fused lookups need one of float32" in why


def test_a_check_is_one_lookup():
    variable = table()

    def step():
        with tf.GradientTape() as tape:
            output = LOOK_UP(variable, IDS, fusion_version="check", name="user")
        return tf.convert_to_tensor(tape.gradient(output, variable))

    why = "v3, and stock beside it on one step in 100"
    assert rows_of(graph_of(step)) == [("user", "check", 1, why)]


def test_functions_that_are_called_are_looked_into():
    variable = table()
    inner = tf.function(lambda: LOOK_UP(variable, IDS, name="inner"))

    def outer():
        return (
            inner()
            + inner()
            + tf.cond(
                tf.random.uniform([]) > 0.5, lambda: LOOK_UP(variable, IDS, name="branch"), inner
            )
        )

    function = graph_of(outer)
    want = [("cond/branch", "v3"), ("inner", "v3")]
    assert sorted({row[:2] for row in rows_of(function)}) == want
    assert sorted({row[:2] for row in rows_of(function.graph.as_graph_def())}) == want


@pytest.mark.parametrize("do_fusion", [None, "v1", "v2", "v3", True, "check"])
@pytest.mark.parametrize("partitions", [None, 2])
def test_columns_foretell_their_graph(partitions, do_fusion):
    column = fe.feature_column.embedding_column(cases.identity(), 3, do_fusion=do_fusion)
    partitioner = tf1.fixed_size_partitioner(partitions) if partitions else None
    with tf.Graph().as_default() as graph, tf1.variable_scope("", partitioner=partitioner):
        tf1.feature_column.input_layer(cases.features(), [column])
    [(_, foretold, _, why)] = rows_of([column])
    [(name, path, _, _)] = rows_of(graph)
    assert ("input_layer" if do_fusion is True else "ids_embedding") in name
    if partitions and foretold == "v3":
        assert (path, why.split(";")[0]) == (
            "remote",
            "remote if its table is divided into shards or in another task",
        )
    else:
        assert path == foretold


def test_stocks_updates_are_counted():
    with tf.Graph().as_default() as graph, fe.accelerate() as acceleration:
        variables = [tf1.get_variable(f"table{i}", [4, 2], use_resource=True) for i in range(3)]
        ids = tf.sparse.from_dense([[1, 2], [3, 0]])
        sums = [tf.nn.safe_embedding_lookup_sparse(variable, ids) for variable in variables]
        acceleration.stop()
        tf1.train.AdagradOptimizer(0.1).minimize(tf.add_n(sums))
    explanation = fe.explain(graph)
    assert explanation.stock_updates == {"ResourceSparseApplyAdagrad": 3}
    assert "3 sparse updates by ResourceSparseApplyAdagrad, one each" in str(explanation)
    assert {lookup.why for lookup in explanation} == {"fe.accelerate() replaced stock's"}


def kernel(name, op, begin, end):
    """A kernel of a traced step."""
    label = f"{name} = {op}(a, b)" if op else f"{name}:Identity"
    return {
        "node_name": name,
        "timeline_label": label,
        "op_start_rel_micros": begin,
        "op_end_rel_micros": end,
    }


def traced(*kernels, device="/job:localhost/replica:0/task:0/device:CPU:0"):
    metadata = tf1.RunMetadata()
    nodes = metadata.step_stats.dev_stats.add(device=device).node_stats
    for one in kernels:
        nodes.add(**one)
    return metadata


def test_the_share_of_stocks_updates_is_their_time_in_a_trace():
    metadata = traced(
        kernel("layer/lookup", "ResourceGather", 10, 1000),
        kernel("layer/update_rate/x", "Mul", 0, 7),  # named like an update by a user: counted
        kernel("train/Adam/update_table/mul", "Mul", 5, 1005),
        kernel("train/Adam/update_table/ResourceScatterAdd", "ResourceScatterAdd", 3, 2000),
        kernel("Adam/update_other/apply", "FusedEmbeddingResourceSparseApply", 0, 500),
        kernel("Adam/updated/x", "Mul", 0, 3),
        kernel("unlabelled", "", 0, 1),
    )
    metadata.step_stats.dev_stats.add(device="/gpu:0/stream:all").node_stats.add(
        **kernel("Adam/update_table/mul", "Mul", 0, 9000)
    )
    explanation = fe.explain(tf.Graph(), run_metadata=metadata)
    assert explanation.update_share == (7 + 1000 + 1997, 990 + 7 + 1000 + 1997 + 500 + 3 + 1)
    assert str(explanation).splitlines()[-1] == (
        "updates by stock's optimizers: 67% of the traced step's kernels (3 of 4.5 ms)"
    )


@pytest.mark.parametrize("optimizers", [None, "equal", "lazy"])
def test_the_share_of_adams_updates_of_a_table(optimizers):
    accelerated = fe.accelerate(optimizers=optimizers) if optimizers else contextlib.nullcontext()
    with tf.Graph().as_default() as graph, tf1.Session() as session, accelerated:
        variable = tf1.get_variable("table", [20_000, 16], use_resource=True)
        rows = tf.nn.safe_embedding_lookup_sparse(variable, tf.sparse.from_dense([[1, 2], [3, 0]]))
        train = tf1.train.AdamOptimizer().minimize(tf.reduce_sum(rows))
        session.run(tf1.global_variables_initializer())
        metadata = tf1.RunMetadata()
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
        session.run(train, options=options, run_metadata=metadata)
    updates_us, step_us = fe.explain(graph, run_metadata=metadata).update_share
    assert step_us > 0
    if optimizers == "lazy":
        assert updates_us == 0  # one op of ours
    else:
        assert 0.5 < updates_us / step_us < 1  # the moments of 20,000 rows decay


def test_a_step_that_was_not_traced_is_refused():
    with pytest.raises(ValueError, match=r"run_metadata has no kernels, .*FULL_TRACE"):
        fe.explain(tf.Graph(), run_metadata=tf1.RunMetadata())
    with pytest.raises(TypeError, match=r"run_metadata must be a tf\.compat\.v1\.RunMetadata, got"):
        fe.explain(tf.Graph(), run_metadata={})


def test_columns_of_every_kind(capsys):
    unknown = fe.feature_column.categorical_column_with_embedding("key", tf.int64)
    with tf.Graph().as_default():
        shared = fe.feature_column.shared_embedding_columns(
            [cases.identity("ids"), cases.identity("other_ids")], 3, do_fusion=True
        )
        shared += fe.feature_column.shared_embeddings([cases.identity("more")], 3, do_fusion="v1")
    columns = [
        *shared,
        fe.feature_column.embedding_column(unknown, 3),
        fe.feature_column.embedding_column(unknown, 3, do_fusion=True),
        fc.embedding_column(fc.weighted_categorical_column(cases.identity(), "weights"), 3),
        fc.numeric_column("price"),
        fc.indicator_column(cases.identity()),
    ]
    grouped = "; fe.feature_column.input_layer: one op with 3 other columns"
    best = "remote if its table is divided into shards or in another task" + grouped
    want = [
        ("ids_shared_embedding", "v3", 1, best),
        ("other_ids_shared_embedding", "v3", 1, best),
        ("more_shared_embedding", "v1", 1, "do_fusion = 'v1'" + grouped),
        # Tables without a vocabulary have an op of their own.
        ("key_embedding", "v3", 1, best.replace("3 other", "1 other")),
        ("key_embedding", "v3", 1, best.replace("3 other", "1 other")),
        ("ids_weighted_by_weights_embedding", "stock", 1, "its do_fusion is not set" + grouped),
    ]
    assert rows_of(columns) == want
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.split() == ["lookup", "path", "columns", "why"]
    assert second.split()[:3] == ["ids_shared_embedding", "v3", "1"]
    assert second.index("v3") == first.index("path")


def test_a_keras_model_is_its_columns():
    keras = cases.keras()
    column = fe.feature_column.embedding_column(cases.identity(), 3, do_fusion="v2")
    model = keras.Sequential([keras.layers.DenseFeatures([column]), keras.layers.Dense(1)])
    assert rows_of(model)[0][:2] == ("ids_embedding", "v2")


def test_nothing_is_said_of_nothing(capsys):
    assert rows_of(tf.Graph()) == rows_of([]) == []
    assert capsys.readouterr().out == "no sparse embedding lookup was found\n" * 2


@pytest.mark.parametrize("value", [3, "graph", tf.function(lambda: 1), np.zeros(3), [3]])
def test_other_things_are_refused(value):
    with pytest.raises(TypeError, match="graph_or_columns must"):
        fe.explain(value)


def test_example_of_the_docstring():
    results = doctest.testmod(explain, extraglobs={"fe": fe})
    assert results.attempted
    assert not results.failed
