"""What fe.accelerate leaves to stock, and what has stock's numbers wherever it is called."""

import functools

import acceleration_cases as cases
import pytest
import tensorflow as tf

import fused_embedding as fe

v1 = tf.compat.v1
SAFE, BARE = "safe_embedding_lookup_sparse", "embedding_lookup_sparse"


def test_ragged_ids_are_stocks():
    table = tf.Variable(cases.ROWS)

    def program():
        ragged = tf.ragged.constant([[1, 1], [], [3]], dtype=tf.int64)
        with tf.GradientTape() as tape:
            rows = tf.nn.safe_embedding_lookup_sparse(table, ragged)
        return rows.numpy(), cases.dense(tape.gradient(rows, table)).numpy()

    assert not cases.replaced(cases.assert_same(program))


@pytest.mark.parametrize("is_safe", [True, False])
def test_allow_fast_lookup_is_stocks(is_safe):
    lookup = tf.nn.safe_embedding_lookup_sparse if is_safe else tf.nn.embedding_lookup_sparse
    more = {} if is_safe else {"sp_weights": None}

    def program():
        return lookup(cases.ROWS, cases.ids(), allow_fast_lookup=True, **more).numpy()

    records = cases.assert_same(program)
    assert not cases.replaced(records)
    assert "gradient of its own" in cases.left(records)[SAFE if is_safe else BARE]


@pytest.mark.parametrize("dtype", [tf.complex64, tf.int32, tf.float64])
def test_dtypes(dtype):
    table = tf.cast(cases.ROWS * 8, dtype)

    def program():
        return tf.nn.embedding_lookup_sparse(table, cases.ids(), None, combiner="sum").numpy()

    compare = cases.assert_fails_alike if dtype == tf.complex64 else cases.assert_same
    records = compare(program)
    if dtype == tf.float64:
        assert cases.replaced(records) == {BARE}
    else:
        assert not cases.replaced(records)
        assert dtype.name in cases.left(records)[BARE]


WRONG = {
    "combiner": lambda: tf.nn.safe_embedding_lookup_sparse(cases.ROWS, cases.ids(), combiner="max"),
    "no table": lambda: v1.nn.safe_embedding_lookup_sparse(None, cases.ids()),
    "strings": lambda: v1.nn.embedding_lookup_sparse(
        cases.ROWS, cases.ids("abcd", tf.string), None, combiner="sum"
    ),
    "weights": lambda: tf.nn.safe_embedding_lookup_sparse(
        tf.Variable(cases.ROWS), cases.ids(), cases.weights(dtype=tf.float16)
    ),
    "dense ids": lambda: tf.nn.safe_embedding_lookup_sparse(cases.ROWS, tf.constant([[1, 2]])),
    "outside": lambda: tf.nn.safe_embedding_lookup_sparse(tf.Variable(cases.ROWS[:2]), cases.ids()),
    "default": lambda: tf.nn.safe_embedding_lookup_sparse(cases.ROWS, cases.ids(), default_id=-1),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_are_of_stocks_class(case):
    cases.assert_fails_alike(WRONG[case])


@pytest.mark.parametrize("of", ["call", "concrete function", "inner function"])
def test_xla_compiles_stocks_ops(of):
    table = tf.Variable(cases.ROWS)

    def lookup(values):
        sp_ids = tf.SparseTensor([[0, 0], [1, 0]], values, [2, 1])
        with tf.GradientTape() as tape:
            rows = tf.nn.embedding_lookup_sparse(table, sp_ids, None, combiner="sum")
        return tape.gradient(rows, table).values

    inner = tf.function(lookup)
    function = tf.function(inner if of == "inner function" else lookup, jit_compile=True)
    with fe.accelerate() as acceleration:
        spec = tf.TensorSpec([2], tf.int64)
        if of == "concrete function":
            graph = function.get_concrete_function(spec).graph
            assert not cases.ours_in(graph)
        else:
            cases.outcome(lambda: function(tf.constant([1, 2], tf.int64)))  # XLA may refuse stock's
    assert cases.left(acceleration.records) == {BARE: "XLA compiles it"}
    assert not cases.replaced(acceleration.records)


def test_a_strategy_trains_by_stock():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])

    def program():
        with strategy.scope():
            table = tf.Variable(cases.ROWS)
            optimizer = v1.train.AdagradOptimizer(0.1)

        def step():
            with tf.GradientTape() as tape:
                loss = cases.loss_of(table)
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        for _ in range(2):
            strategy.run(step)
        return table.read_value().numpy()

    records = cases.assert_same(program)
    assert not cases.replaced(records)
    assert "MirroredStrategy" in cases.left(records)["AdagradOptimizer"]


def test_a_function_without_a_tape_is_stocks():
    table = tf.Variable(cases.ROWS)
    with fe.accelerate() as acceleration:
        function = tf.function(lambda sp_ids: tf.nn.safe_embedding_lookup_sparse(table, sp_ids))
        assert not cases.ours_in(function.get_concrete_function(cases.ids()).graph)
    assert "without a gradient tape" in cases.left(acceleration.records)[SAFE]


def test_a_saved_model_gets_stocks_ops(tmp_path):
    module = tf.Module()
    module.table = tf.Variable(cases.ROWS)
    module.look_up = tf.function(lambda ids: tf.nn.safe_embedding_lookup_sparse(module.table, ids))
    with fe.accelerate():
        with tf.GradientTape():
            module.look_up(cases.ids())
        with tf.GradientTape():
            traced = module.look_up.get_concrete_function(cases.ids())
        assert cases.ours_in(traced.graph)
        tf.saved_model.save(module, str(tmp_path / "saved"))  # traces it once more
        with pytest.raises(ValueError, match=r"fe\.export_for_serving"):
            tf.saved_model.save(module, str(tmp_path / "refused"), signatures=traced)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    graphs = [f.graph for f in loaded.look_up._list_all_concrete_functions()]
    assert graphs
    assert not any(cases.ours_in(graph) for graph in graphs)


def test_a_graph_with_our_ops_is_refused_after_an_embedding_variable_too(tmp_path):
    """The first EmbeddingVariable of a process patches the builder of SavedModels."""
    fe.get_embedding_variable("patches_the_builder", 4)
    with fe.accelerate(), tf.Graph().as_default(), v1.Session() as session:
        ids = v1.sparse_placeholder(tf.int64, [None, None])
        table = v1.get_variable("table", initializer=cases.ROWS, use_resource=True)
        rows = tf.nn.safe_embedding_lookup_sparse(table, ids)
        session.run(v1.global_variables_initializer())
        assert cases.ours_in(session.graph)
        with pytest.raises(ValueError, match=r"fe\.export_for_serving"):
            v1.saved_model.simple_save(session, str(tmp_path / "it"), {"ids": ids}, {"rows": rows})


def test_columns_that_end_at_the_last_id_are_stocks():
    """With use_safe_embedding_lookup=False stock's result lacks the empty rows at the end."""

    @cases.in_session
    def program():
        column = cases.embedding(use_safe_embedding_lookup=False)
        return v1.feature_column.input_layer({"ids": cases.ids()}, [column]), []

    assert "input_layer" in cases.left(cases.assert_same(program))


@pytest.mark.parametrize("use_resource", [True, False])
def test_partitioned_variables(use_resource):
    @cases.in_session
    def program():
        scope = v1.variable_scope(
            "", partitioner=v1.fixed_size_partitioner(2), use_resource=use_resource
        )
        with scope:
            columns = [cases.embedding(), cases.embedding("others")]
            features = {"ids": cases.ids(), "others": cases.ids([4, 3, 3, 0])}
            rows = v1.feature_column.input_layer(features, columns)
            table = v1.get_variable("table", [5, 3], initializer=cases.rows)
            rows += tf.nn.safe_embedding_lookup_sparse(table, cases.ids())[:, :1]
            wide = v1.feature_column.linear_model(features, [c.categorical_column for c in columns])
        step = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.sin(rows) + wide))
        return [rows, v1.trainable_variables()], [step] * 3

    records = cases.assert_same(program)
    assert {"input_layer", "linear_model", "AdagradOptimizer"} <= cases.replaced(records)


def test_direct_calls_of_update_methods_update():
    def program():
        table = tf.Variable(cases.ROWS)
        optimizer = v1.train.AdagradOptimizer(0.1)
        optimizer._create_slots([table])
        optimizer._prepare()
        grad = tf.ones([2, 3])
        optimizer._resource_apply_sparse_duplicate_indices(grad, table, tf.constant([1, 1]))
        optimizer._resource_apply_sparse(grad, table, tf.constant([1, 2]))
        return table.numpy(), optimizer.get_slot(table, "accumulator").numpy()

    assert cases.replaced(cases.assert_same(program)) == {"AdagradOptimizer"}


def test_direct_calls_in_a_graph_update():
    @cases.in_session
    def program():
        table = cases.variable(use_resource=False)
        optimizer = v1.train.AdagradOptimizer(0.1)
        optimizer._create_slots([table])
        optimizer._prepare()
        slices = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1, 1]), tf.constant([5, 3]))
        step = optimizer._apply_sparse_duplicate_indices(slices, table)
        return [table, optimizer.get_slot(table, "accumulator")], [step] * 2

    assert cases.replaced(cases.assert_same(program)) == {"AdagradOptimizer"}


def test_clipping_by_the_norm_of_a_table_of_several_columns():
    """Gradients that are joined before they are clipped have another norm."""

    @cases.in_session
    def program():
        keys = [tf.feature_column.categorical_column_with_identity(key, 5) for key in "ab"]
        columns = v1.feature_column.shared_embedding_columns(keys, 3, initializer=cases.rows)
        features = {"a": cases.ids(), "b": cases.ids([1, 0, 0, 4])}
        rows = v1.feature_column.input_layer(features, columns)
        loss = tf.reduce_sum(tf.sin(rows))
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, norm = tf.clip_by_global_norm(gradients, 0.1)
        step = optimizer.apply_gradients(zip(clipped, variables, strict=True))
        return [norm, *v1.trainable_variables()], [step] * 2

    assert "input_layer" in cases.replaced(cases.assert_same(program))


def test_gradients_taken_twice():
    # Side by side, two of stock's updates of a variable lose one now and then.
    one_by_one = v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)

    @functools.partial(cases.in_session, config=one_by_one)
    def program():
        table = cases.variable()
        loss = cases.loss_of(table)
        optimizer = v1.train.GradientDescentOptimizer(0.1)  # adds up, in whatever order
        first = tf.gradients(loss, table)[0]
        second = tf.gradients(3 * loss, table)[0]
        step = optimizer.apply_gradients([(first, table), (second, table)])
        return [table, cases.dense(first), cases.dense(second)], [step] * 2

    records = cases.assert_same(program)
    assert records["GradientDescentOptimizer", None] == 2


@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
def test_loss_scale(kind):
    precision = v1.mixed_precision

    @cases.in_session
    def program():
        table = cases.variable()
        scale = precision.FixedLossScale(8) if kind == "fixed" else precision.DynamicLossScale()
        optimizer = precision.MixedPrecisionLossScaleOptimizer(
            v1.train.AdagradOptimizer(0.1), scale
        )
        return table, [optimizer.minimize(cases.loss_of(table))] * 3

    assert "AdagradOptimizer" in cases.replaced(cases.assert_same(program))


def in_cond(table, sp_ids):
    def other():
        return 2 * tf.nn.embedding_lookup_sparse(table, sp_ids, None, combiner="sum")[:1]

    safe = tf.nn.safe_embedding_lookup_sparse
    flag = v1.placeholder_with_default(True, [])
    return [
        tf.cond(condition, lambda: safe(table, sp_ids)[:1], other)
        for condition in (flag, tf.logical_not(flag))
    ]


def in_loop(table, sp_ids):
    def body(i, product):
        return i + 1, product * tf.nn.safe_embedding_lookup_sparse(table, sp_ids)

    return [tf.while_loop(lambda i, _: i < 3, body, [0, tf.ones([5, 3])])[1]]


def in_map(table, sp_ids):
    def one(factor):
        return factor * tf.nn.safe_embedding_lookup_sparse(table, sp_ids)

    return [tf.map_fn(one, tf.constant([1.0, 2.0]))]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("build", [in_cond, in_loop, in_map])
def test_control_flow(build, version):
    @cases.in_session
    def program():
        table = cases.variable()
        results = build(table, cases.ids())
        loss = sum(tf.reduce_sum(result) for result in results)
        step = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        return [*results, table], [step] * 2

    was_enabled = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
    try:
        assert SAFE in cases.replaced(cases.assert_same(program))
    finally:
        (v1.enable_control_flow_v2 if was_enabled else v1.disable_control_flow_v2)()


def test_an_update_in_a_branch():
    @cases.in_session
    def program():
        table = cases.variable()
        optimizer = v1.train.AdagradOptimizer(0.1)
        pairs = optimizer.compute_gradients(cases.loss_of(table))
        optimizer._create_slots([table])
        flag = v1.placeholder_with_default(True, [])
        return table, [tf.cond(flag, lambda: optimizer.apply_gradients(pairs), tf.no_op)]

    assert "AdagradOptimizer" in cases.replaced(cases.assert_same(program))


def test_second_derivatives_fail_as_stocks():
    """Of a mean without weights stock has none either."""

    @cases.in_session
    def program():
        table = cases.variable()
        first = cases.dense(tf.gradients(cases.loss_of(table), table)[0])
        return cases.dense(tf.gradients(tf.reduce_sum(first**2), table)[0]), []

    cases.assert_fails_alike(program)


@pytest.mark.xfail(raises=LookupError, reason="the gradient ops have no gradient")
def test_second_derivatives_of_a_weighted_lookup_are_stocks():
    """Stock's weighted lookup is of ops that can be differentiated twice."""

    @cases.in_session
    def program():
        table = cases.variable()
        loss = cases.loss_of(table, sparse_weights=cases.weights(), combiner="sum")
        first = cases.dense(tf.gradients(loss, table)[0])
        return cases.dense(tf.gradients(tf.reduce_sum(first**2), table)[0]), []

    cases.assert_same(program)
