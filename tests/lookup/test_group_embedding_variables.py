"""fe.nn.group_* on EmbeddingVariables: results, what is counted, training, and the ops that run."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import group_stages
from cases.kerases import KERASES, is_keras_3
from cases.tables import make_variable
from checking import as_indexed_slices, like, sparse
from group_stages import Column

tf1 = tf.compat.v1
GROUP = fe.nn.group_embedding_lookup_sparse
NUM_COLUMNS = 26


def random_case(seed, share=True):
    """Rows of tables, and columns of every kind; each of a table of its own unless they share."""
    rng = np.random.default_rng(seed)
    rows = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, rows, int(rng.integers(1, 6)))
    if not share:
        rows = [rows[column.table] for column in columns]
        columns = [column._replace(table=i) for i, column in enumerate(columns)]
    return rows, columns


def inputs_of(columns):
    """Ids and weights of columns, as the functions take them."""
    ids = [sparse(c.ids, c.row_ids, c.num_rows, c.id_dtype) for c in columns]
    weights = [None if c.weights is None else tf.constant(c.weights, tf.float64) for c in columns]
    return ids, weights


def look_up(tables, columns, ids, weights, **kwargs):
    return GROUP(
        [tables[c.table] for c in columns],
        ids,
        [c.combiner for c in columns],
        [None if w is None else like(i, w) for i, w in zip(ids, weights, strict=True)],
        max_norms=[c.max_norm for c in columns],
        default_ids=[c.default_id for c in columns],
        **kwargs,
    )


def look_up_by_v2(tables, columns, ids, weights):
    return [
        fe.nn.fused_safe_embedding_lookup_sparse(
            tables[c.table],
            i,
            None if w is None else like(i, w),
            combiner=c.combiner,
            max_norm=c.max_norm,
            default_id=c.default_id,
            fusion_version="v2",
        )
        for c, i, w in zip(columns, ids, weights, strict=True)
    ]


def top_grads(rows, columns):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((c.num_rows, rows[c.table].shape[1])) for c in columns]


def loss_of(outputs, grads):
    return tf.add_n([tf.reduce_sum(o * g) for o, g in zip(outputs, grads, strict=True)])


def frequencies(table):
    content = table.export()
    return dict(zip(np.asarray(content.keys).tolist(), np.asarray(content.freqs), strict=True))


def run_eagerly(rows, columns, wrap):
    tables = [make_variable(r, name=f"table_{t}")[0] for t, r in enumerate(rows)]
    ids, weights = inputs_of(columns)
    given = [w for w in weights if w is not None]

    def run():
        with tf.GradientTape() as tape:
            tape.watch(given)
            outputs = look_up(tables, columns, ids, weights)
            loss = loss_of(outputs, top_grads(rows, columns))
        return outputs, tape.gradient(loss, [*tables, *given])

    outputs, grads = wrap(run)()
    return outputs, grads, [frequencies(table) for table in tables]


def run_in_session(rows, columns):
    with tf.Graph().as_default(), tf1.Session() as session:
        tables, upserts = zip(
            *[make_variable(r, name=f"table_{t}") for t, r in enumerate(rows)], strict=True
        )
        ids, weights = inputs_of(columns)
        given = [w for w in weights if w is not None]
        outputs = look_up(tables, columns, ids, weights)
        grads = tf.gradients(loss_of(outputs, top_grads(rows, columns)), [*tables, *given])
        session.run(upserts)
        outputs, grads = session.run([outputs, grads])
        contents = session.run([table.export() for table in tables])
    grads = [tf.IndexedSlices(*g[:2]) if hasattr(g, "indices") else g for g in grads]
    return outputs, grads, [dict(zip(c.keys.tolist(), c.freqs, strict=True)) for c in contents]


MODES = {
    "eager": lambda *case: run_eagerly(*case, wrap=lambda f: f),
    "function": lambda *case: run_eagerly(*case, wrap=tf.function),
    "session": run_in_session,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(15))
def test_random_columns_equal_the_oracle(seed, mode):
    rows, columns = random_case(seed)
    used = sorted({column.table for column in columns})
    rows = [rows[t] for t in used]
    columns = [column._replace(table=used.index(column.table)) for column in columns]
    outputs, grads, counted = MODES[mode](rows, columns)
    for got, want in zip(outputs, group_stages.want_combined(rows, columns), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
    want_rows, want_weights = group_stages.want_gradients(rows, columns, top_grads(rows, columns))
    wanted = group_stages.want_keys(columns, len(rows))
    for t, (of_key, of_table) in enumerate(zip(want_rows, wanted, strict=True)):
        keys, values = as_indexed_slices(grads[t])
        assert keys.tolist() == of_table.keys
        for key, row in zip(keys.tolist(), values, strict=True):
            np.testing.assert_allclose(row, of_key[key], rtol=1e-10, atol=1e-10)
        counts = {key: of_table.counts.get(key, 0) for key in range(len(rows[t]))}
        assert counted[t] == counts
    for got, want in zip(grads[len(rows) :], want_weights, strict=True):
        np.testing.assert_allclose(as_indexed_slices(got)[1], want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_counts_and_rows_are_those_of_v2(seed):
    """With filters that hold keys back, over several batches."""
    rng = np.random.default_rng(seed)
    rows, columns = random_case(seed, share=False)
    option = fe.EmbeddingVariableOption(
        filter_option=fe.CounterFilter(filter_freq=3),
        init_option=fe.InitializerOption(default_value_no_permission=0.25),
    )
    results = []
    for look in (look_up, look_up_by_v2):
        rng = np.random.default_rng(seed)
        tables = [
            fe.get_embedding_variable(
                f"table_{t}",
                r.shape[1],
                value_dtype=tf.float64,
                initializer=fe.DebugInitializer(),
                ev_option=option,
            )
            for t, r in enumerate(rows)
        ]
        outputs = []
        for _ in range(4):
            batch = [c._replace(ids=rng.integers(-1, 4, len(c.ids)).tolist()) for c in columns]
            outputs += look(tables, batch, *inputs_of(batch))
        results.append((outputs, [table.export() for table in tables]))
    (got, got_content), (want, want_content) = results
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-12)
    for g, w in zip(got_content, want_content, strict=True):
        for g_column, w_column in zip(g, w, strict=True):
            np.testing.assert_array_equal(g_column, w_column)


def test_columns_of_a_table_are_judged_together():
    """A key gets its row by what all columns count, as a dictionary of counts says."""
    option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=2))
    table = fe.get_embedding_variable(
        "table", 1, initializer=fe.DebugInitializer(), ev_option=option
    )
    columns = [Column(0, [5, 6], [0, 1], 2), Column(0, [5, -1], [0, 1], 2, default_id=7)]
    first = look_up([table] * 1, columns, *inputs_of(columns))
    np.testing.assert_array_equal(first[0], [[5], [0]])
    np.testing.assert_array_equal(first[1], [[5], [0]])  # 7 was filled, which is no occurrence
    assert frequencies(table) == {5: 2}
    second = look_up([table], columns, *inputs_of(columns))
    np.testing.assert_array_equal(second[0], [[5], [6]])
    np.testing.assert_array_equal(second[1], [[5], [0]])
    assert frequencies(table) == {5: 4, 6: 2}


OPTIMIZERS = {
    "adagrad": lambda train: train.AdagradOptimizer(0.1),
    "nesterov": lambda train: train.MomentumOptimizer(0.1, 0.7, use_nesterov=True),
    "ftrl": lambda train: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
}


def train_for_20_steps(rows, columns, make_tables, look, make_optimizer):
    """Rows of all tables after the last step."""
    rng = np.random.default_rng(1)
    with tf.Graph().as_default(), tf1.Session() as session:
        tables, initializers = make_tables(rows)
        fed = [tf1.placeholder(tf.int64, [len(c.ids)]) for c in columns]
        ids, weights = inputs_of(columns)
        ids = [tf.SparseTensor(i.indices, f, i.dense_shape) for i, f in zip(ids, fed, strict=True)]
        outputs = look(tables, columns, ids, weights)
        train = make_optimizer().minimize(loss_of(outputs, [tf.tanh(o) for o in outputs]))
        with fe.inference():
            pairs = zip(tables, rows, strict=True)
            reads = [tf.nn.embedding_lookup(t, np.arange(len(r))) for t, r in pairs]
        session.run([tf1.global_variables_initializer(), *initializers])
        for _ in range(20):
            num_ids = [len(rows[c.table]) for c in columns]
            batch = [rng.integers(-1, n, len(c.ids)) for n, c in zip(num_ids, columns, strict=True)]
            session.run(train, dict(zip(fed, batch, strict=True)))
        return session.run(reads)


def keyed(rows):
    made = [make_variable(r, name=f"table_{t}") for t, r in enumerate(rows)]
    return [table for table, _ in made], [upsert for _, upsert in made]


def dense(rows):
    tables = [tf1.get_variable(f"dense_{t}", initializer=r) for t, r in enumerate(rows)]
    return tables, []


def stock(tables, columns, ids, weights):
    return [
        tf.nn.safe_embedding_lookup_sparse(
            tables[c.table],
            i,
            None if w is None else like(i, w),
            combiner=c.combiner,
            max_norm=c.max_norm,
            default_id=c.default_id,
        )
        for c, i, w in zip(columns, ids, weights, strict=True)
    ]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("module", [tf1.train, fe.train], ids=["stock", "fe"])
@pytest.mark.parametrize("seed", range(3))
def test_20_steps_equal_stock_on_dense_tables(seed, module, optimizer):
    rows, columns = random_case(seed)
    used = sorted({column.table for column in columns})
    rows = [rows[t] for t in used]
    # An empty row of a dense table gives momentum a zero gradient for id 0, and a key none.
    columns = [
        column._replace(
            table=used.index(column.table), row_ids=np.sort(column.row_ids).tolist(), default_id=0
        )
        for column in columns
    ]
    make = OPTIMIZERS[optimizer]
    got = train_for_20_steps(rows, columns, keyed, look_up, lambda: make(module))
    want = train_for_20_steps(rows, columns, dense, stock, lambda: make(tf1.train))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-6)  # numbers are float32 to stock


def tables_and_ids(num_columns, dim=4):
    """A table for each column, and its ids."""
    tables = [fe.get_embedding_variable(f"column_{i}", dim) for i in range(num_columns)]
    ids = [sparse([i, 3, 3], [0, 1, 1], 2) for i in range(num_columns)]
    return tables, ids


def executed(build):
    """Op types that a step runs, counted."""
    with tf.Graph().as_default(), tf1.Session() as session:
        fetch = build()
        session.run(tf1.global_variables_initializer())
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
        metadata = tf1.RunMetadata()
        session.run(fetch, options=options, run_metadata=metadata)
    nodes = [n for device in metadata.step_stats.dev_stats for n in device.node_stats]
    labels = [n.timeline_label.split(" = ") for n in nodes]
    return collections.Counter(label[1].split("(")[0] for label in labels if len(label) == 2)


@pytest.mark.parametrize("module", [tf1.train, fe.train], ids=["stock", "fe"])
@pytest.mark.parametrize("name", ["Adagrad", "Adam", "Momentum"])
def test_26_columns_are_one_op_forward_one_backward_and_one_update(module, name):
    make = {
        "Adagrad": lambda: module.AdagradOptimizer(0.1),
        "Adam": lambda: module.AdamOptimizer(0.1),
        "Momentum": lambda: module.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    }[name]

    def build():
        tables, ids = tables_and_ids(NUM_COLUMNS)
        outputs = GROUP(tables, ids, ["mean"] * NUM_COLUMNS)
        return make().minimize(tf.add_n([tf.reduce_sum(tf.square(o)) for o in outputs]))

    ops = executed(build)
    ours = {op: n for op, n in ops.items() if op.startswith(("EmbeddingVariable", "FusedEmb"))}
    del ours["EmbeddingVariableHandle"]
    assert ours == {
        "EmbeddingVariableGroupLookup": 1,
        "EmbeddingVariableGroupLookupGrad": 1,
        "EmbeddingVariableApply": 1,
    }
    assert not {"UniqueWithCountsV3", "PruneInvalidAndFillEmptyRows", "ZerosLike"} & set(ops)


def test_updates_have_the_row_handles_of_the_group():
    with tf.Graph().as_default() as graph:
        tables, ids = tables_and_ids(3)
        outputs = GROUP(tables, ids, ["sum"] * 3)
        loss = tf.add_n([tf.reduce_sum(tf.square(o)) for o in outputs])
        tf1.train.AdagradOptimizer(0.1).minimize(loss)
        [apply] = [op for op in graph.get_operations() if op.type == "EmbeddingVariableApply"]
        sources = [apply.inputs[i].op.type for i in range(3, 9)]
        assert sources == ["EmbeddingVariableGroupLookup"] * 6
        assert [apply.inputs[i].op for i in range(3)] == [table.handle.op for table in tables]
        # After an output for each column: the keys of each table, then their handles.
        names = [tensor.name for tensor in apply.inputs[3].op.outputs]
        assert [tensor.name for tensor in apply.inputs[3:9]] == names[3:9]


def test_gradients_of_a_group_and_of_another_lookup_are_summed():
    """The keys of the two are not those of one lookup; beside a table whose are."""

    def train(look):
        with tf.Graph().as_default(), tf1.Session() as session:
            (a, b), upserts = keyed([np.ones((4, 2)), np.ones((4, 2))])
            ids = [sparse([1, 1, 2], [0, 1, 2], 3), sparse([3, 0, 3], [0, 1, 2], 3)]
            outputs = [*look([a, b], ids), tf.nn.embedding_lookup(a, [1, 3])]
            loss = tf.add_n([tf.reduce_sum(tf.square(o)) for o in outputs])
            step = tf1.train.AdagradOptimizer(0.1).minimize(loss)
            with fe.inference():
                reads = [tf.nn.embedding_lookup(t, [0, 1, 2, 3]) for t in (a, b)]
            session.run([tf1.global_variables_initializer(), *upserts])
            session.run(step)
            return session.run(reads)

    got = train(lambda tables, ids: GROUP(tables, ids, ["sum", "sum"]))
    want = train(
        lambda tables, ids: [
            fe.nn.fused_safe_embedding_lookup_sparse(t, i, combiner="sum")
            for t, i in zip(tables, ids, strict=True)
        ]
    )
    np.testing.assert_allclose(got, want, rtol=1e-12)


def op_types(build):
    with tf.Graph().as_default() as graph:
        build()
        return collections.Counter(op.type for op in graph.get_operations())


def test_tables_in_partitions_are_looked_up_by_messages():
    def build():
        tables, ids = tables_and_ids(2)
        parts = fe.get_embedding_variable("parts", 4, partitioner=tf1.fixed_size_partitioner(2))
        GROUP([*tables, parts], [*ids, ids[0]], ["sum"] * 3)

    ops = op_types(build)
    assert ops["EmbeddingVariableGroupLookup"] == 1
    names = ("FusedEmbeddingRemoteKeys", "EmbeddingVariableRemoteRows")
    assert [ops[name] for name in (*names, "FusedEmbeddingRemoteLookup")] == [1, 1, 1]


def test_kinds_and_dtypes_are_groups_of_their_own_and_modes_are_not():
    def build():
        tables, ids = tables_and_ids(2)
        double = fe.get_embedding_variable("double", 4, value_dtype=tf.float64)
        frozen = fe.get_embedding_variable("frozen", 4, trainable=False)
        ordinary = tf1.get_variable("ordinary", [9, 4], use_resource=True)
        GROUP([*tables, double, frozen, ordinary], [*ids, *[ids[0]] * 3], ["sum"] * 5)

    ops = op_types(build)
    assert ops["EmbeddingVariableGroupLookup"] == 2
    assert ops["FusedEmbeddingResourceGroupLookup"] == 1


def test_default_ids_of_columns_may_differ_in_one_op():
    tables, ids = tables_and_ids(2)
    ids = [sparse([1], [0], 2), sparse([1], [0], 2)]
    for table in tables:
        table.upsert([1, 8], [[1.0] * 4, [8.0] * 4])
    got = GROUP(tables, ids, ["sum"] * 2, default_ids=[None, 8])
    np.testing.assert_array_equal(got[0][:, 0], [1, 0])
    np.testing.assert_array_equal(got[1][:, 0], [1, 8])
    assert [frequencies(table) for table in tables] == [{1: 1, 8: 0}] * 2


def test_inference_changes_nothing():
    tables, ids = tables_and_ids(2)
    with fe.inference():
        GROUP(tables, ids, ["sum"] * 2)
    assert [int(table.total_count()) for table in tables] == [0, 0]


def test_dense_ids_may_be_any_key():
    tables, _ = tables_and_ids(2, dim=1)
    for table in tables:
        table.upsert([-5, 2**62], [[1.0], [2.0]])
    [got, _] = fe.nn.group_embedding_lookup(tables, [tf.constant([[-5, 2**62]], tf.int64)] * 2)
    np.testing.assert_array_equal(got, [[[1.0], [2.0]]])


def test_concat_and_ragged_ids():
    tables, _ = tables_and_ids(2, dim=1)
    for table in tables:
        table.upsert([1, 2], [[1.0], [2.0]])
    ids = [tf.ragged.constant([[1, 2], [], [2]], dtype=tf.int64)] * 2
    got = GROUP(tables, ids, ["sum", "mean"], concat=True)
    np.testing.assert_array_equal(got, [[3, 1.5], [0, 0], [2, 2]])
    assert frequencies(tables[0]) == {1: 1, 2: 2}


@pytest.mark.parametrize("branch", [True, False])
def test_in_a_branch_of_tf1s_cond(branch):
    control_flow_v2 = tf1.control_flow_v2_enabled()
    tf1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), tf1.Session() as session:
            (a, b), upserts = keyed([np.ones((4, 2)), np.ones((4, 2))])
            ids = [sparse([1, 2], [0, 1], 2)] * 2
            output = tf1.cond(
                tf1.placeholder_with_default(branch, []),
                lambda: tf.add_n(GROUP([a, b], ids, ["sum"] * 2)),
                lambda: tf.zeros([2, 2], tf.float64),
            )
            step = tf1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(output))
            session.run([tf1.global_variables_initializer(), *upserts])
            session.run(step)
            values = session.run([a.export().values, b.export().values])
        want = np.ones((4, 2))
        want[1:3] -= 0.5 * branch
        np.testing.assert_array_equal(values, [want, want])
    finally:
        if control_flow_v2:
            tf1.enable_control_flow_v2()


@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_keras_updates_all_tables_in_one_op(keras):
    tables, ids = tables_and_ids(3)
    variables = [fe.keras.variable(t) if is_keras_3(keras) else t for t in tables]
    optimizer = fe.keras.wrap(keras.optimizers.AdamW(0.1, weight_decay=0.01))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            outputs = GROUP(tables, ids, ["sum"] * 3)
            loss = tf.add_n([tf.reduce_sum(tf.square(o)) for o in outputs])
        grads = tape.gradient(loss, tables)
        optimizer.apply_gradients(list(zip(grads, variables, strict=True)))

    graph = step.get_concrete_function().graph
    [apply] = [op for op in graph.get_operations() if op.type == "EmbeddingVariableApply"]
    assert apply.get_attr("N") == 3
    assert apply.inputs[6].op.type == "EmbeddingVariableGroupLookup"
    step()
    before = [table.export().values.numpy() for table in tables]
    step()
    for table, rows in zip(tables, before, strict=True):
        assert not np.array_equal(table.export().values, rows)


@pytest.mark.parametrize("in_function", [True, False])
@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_keras_notices_tables_of_a_group_that_nobody_trains(keras, in_function):
    tables, ids = tables_and_ids(2)
    variable = keras.Variable([1.0]) if is_keras_3(keras) else tf.Variable([1.0])
    source = variable.value if is_keras_3(keras) else variable
    optimizer = keras.optimizers.SGD(0.1)
    fe.keras.wrap(keras.optimizers.SGD(0.1))

    def step():
        with tf.GradientTape() as tape:
            outputs = GROUP(tables, ids, ["sum"] * 2)
            loss = tf.add_n([tf.reduce_sum(o * tf.convert_to_tensor(source)) for o in outputs])
        optimizer.apply_gradients([(tape.gradient(loss, source), variable)])

    with pytest.raises(NotImplementedError, match=r"column_0.*is looked up for training"):
        tf.function(step)() if in_function else step()
