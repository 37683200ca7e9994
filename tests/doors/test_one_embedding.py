"""fe.one_embedding: lookups, training, and what it refuses."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from door_cases import KERASES, DictTables, first_rows, run_page

import fused_embedding as fe
from checking import assert_close, executed_ops
from fused_embedding.doors.one_embedding import embedding as embedding_module

one = fe.one_embedding
v1 = tf.compat.v1
DIM, NUM_TABLES = 4, 3
BATCHES = [
    [[7, 7, 1 << 40], [-3, 8, 1 << 40], [7, 9, 2]],
    [[7, 8, 2], [5, 5, 5]],
    [[-3, 7, 1], [5, 7, 1], [5, 7, 1], [0, 1 << 62, -(1 << 63)]],
]


@pytest.fixture
def store(tmp_path):
    """Makes store options with a size factor."""
    return lambda size_factor=1, capacity=1000: one.make_device_mem_store_options(
        str(tmp_path), capacity, size_factor
    )


def make(store_options, initializer=None, name="tables", num_tables=NUM_TABLES, **others):
    initializer = initializer or one.make_uniform_initializer(-1.0, 1.0)
    arguments = {"dtype": tf.float32, "key_type": tf.int64, **others}
    tables = [one.make_table(initializer) for _ in range(num_tables)]
    return one.MultiTableEmbedding(
        name, DIM, tables=tables, store_options=store_options, **arguments
    )


def step(embedding, optimizer, ids, weights, table_ids=None):
    """One step of the loss `sum(weights * rows)`; returns the rows."""
    with tf.GradientTape() as tape:
        rows = embedding(ids, table_ids)
        loss = tf.reduce_sum(rows * weights)
    grads = tape.gradient(loss, embedding.parameters())
    optimizer.apply_gradients(list(zip(grads, embedding.parameters(), strict=True)))
    return rows


@pytest.mark.parametrize("in_function", [False, True])
def test_rows_are_those_of_a_dict(store, in_function):
    embedding = make(store(), fe.DebugInitializer())
    oracle, optimizer = DictTables(NUM_TABLES, DIM), v1.train.GradientDescentOptimizer(0.5)
    rng = np.random.default_rng(1)

    def train(ids, weights):
        return step(embedding, optimizer, ids, weights)

    if in_function:
        ids = tf.TensorSpec([None, NUM_TABLES], tf.int64)
        weights = tf.TensorSpec([None, NUM_TABLES, DIM])
        train = tf.function(train, input_signature=[ids, weights])
    for batch in BATCHES:
        weights = rng.integers(-4, 5, [len(batch), NUM_TABLES, DIM])
        rows = train(tf.constant(batch, tf.int64), tf.constant(weights, tf.float32))
        assert rows.shape == (len(batch), NUM_TABLES, DIM)
        np.testing.assert_array_equal(rows, oracle.look_up(batch).astype(np.float32))
        oracle.descend(batch, weights, 0.5)
    for table, want in zip(embedding.tables, oracle.rows, strict=True):
        exported = table.export()
        assert exported.keys.numpy().tolist() == sorted(want)
        np.testing.assert_array_equal(exported.values, [want[key] for key in sorted(want)])


def test_evaluation_makes_no_rows(store):
    embedding = make(store())
    with fe.inference():
        embedding.forward(tf.constant(BATCHES[0], tf.int64))
    assert [int(table.total_count()) for table in embedding.tables] == [0] * NUM_TABLES


def test_all_tables_are_one_op(store):
    with tf.Graph().as_default(), v1.Session() as session:
        embedding = make(store(2))
        ids = v1.placeholder(tf.int64, [None, NUM_TABLES])
        rows = embedding(ids)
        train = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows**2))
        session.run(v1.global_variables_initializer())
        feed = lambda batch: {ids: np.array(batch)}  # noqa: E731
        session.run(train, feed(BATCHES[0]))
        constant = tf.constant(BATCHES[0], tf.int64)
        with fe.inference():
            counts = executed_ops(session, embedding(constant))
        assert counts["EmbeddingVariableGroupLookup"] == 1
        assert sum(counts.values()) - counts["Const"] <= 12
        assert session.run(rows, feed(BATCHES[1])).shape == (2, NUM_TABLES, DIM)
        ops = [op.type for op in session.graph.get_operations()]
        assert ops.count("EmbeddingVariableGroupLookupGrad") == 1
        assert ops.count("EmbeddingVariableApply") == 1


@pytest.mark.parametrize("num_tables", [1, 3])
def test_table_ids_say_where_each_id_belongs(store, num_tables):
    embedding = make(store(), fe.DebugInitializer(), num_tables=num_tables)
    ids = tf.constant([[4, 5], [6, 4]], tf.int64)
    table_ids = tf.constant([[2, 0], [1, 1]]) % num_tables
    oracle = DictTables(num_tables, DIM)
    flat = list(zip(table_ids.numpy().ravel().tolist(), ids.numpy().ravel().tolist(), strict=True))
    want = [oracle.rows[t].setdefault(k, np.full(DIM, float(k))) for t, k in flat]
    optimizer = v1.train.GradientDescentOptimizer(1.0)
    weights = np.arange(4 * DIM, dtype=np.float32).reshape(2, 2, DIM)
    rows = step(embedding, optimizer, ids, weights, table_ids)
    np.testing.assert_array_equal(rows, np.reshape(want, [2, 2, DIM]))
    for (table, key), grad in zip(flat, weights.reshape(-1, DIM), strict=True):
        oracle.rows[table][key] = oracle.rows[table][key] - grad
    for table, want_rows in zip(embedding.tables, oracle.rows, strict=True):
        got = dict(
            zip(table.export().keys.numpy().tolist(), table.export().values.numpy(), strict=True)
        )
        assert sorted(got) == sorted(want_rows)
        for key, row in want_rows.items():
            np.testing.assert_array_equal(got[key], row)


def test_one_table_takes_ids_of_any_shape(store):
    embedding = make(store(), fe.DebugInitializer(), num_tables=1)
    ids = tf.constant([[[1], [2]]], tf.int64)
    np.testing.assert_array_equal(embedding(ids), np.full([1, 2, 1, DIM], [[[[1]], [[2]]]]))
    assert embedding(tf.zeros([0, 5], tf.int64)).shape == (0, 5, DIM)


def test_tables_in_partitions(store):
    """A partitioner of the scope divides them, with the same rows."""
    whole = make(store())
    with v1.variable_scope("", partitioner=v1.fixed_size_partitioner(2)):
        parts = make(store())
    assert len(parts.parameters()) == 2 * NUM_TABLES
    for embedding in (whole, parts):
        our_step(embedding, v1.train.GradientDescentOptimizer(0.1), np.ones([4, NUM_TABLES, DIM]))
    ids = tf.constant(SAME_IDS, tf.int64)
    np.testing.assert_array_equal(parts(ids), whole(ids))


def test_checkpoints_hold_it(store, tmp_path):
    embedding, ids = make(store()), tf.constant(SAME_IDS, tf.int64)
    assert len(embedding.trainable_variables) == NUM_TABLES
    assert (embedding.name, embedding.num_tables) == ("tables", NUM_TABLES)
    our_step(embedding, v1.train.GradientDescentOptimizer(0.1), np.ones([4, NUM_TABLES, DIM]))
    want = embedding(ids).numpy()
    path = tf.train.Checkpoint(embedding=embedding).save(tmp_path / "ckpt")
    other = make(store())
    tf.train.Checkpoint(embedding=other).restore(path).assert_consumed()
    np.testing.assert_array_equal(other(ids), want)


V1_OPTIMIZERS = {
    "sgd": (1, lambda: v1.train.GradientDescentOptimizer(0.1)),
    "momentum": (2, lambda: v1.train.MomentumOptimizer(0.1, 0.9)),
    "adagrad": (2, lambda: v1.train.AdagradOptimizer(0.1)),
    "ftrl": (3, lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01)),
    "rmsprop": (1, lambda: v1.train.RMSPropOptimizer(0.1)),  # not OneFlow's: any factor
}
# In every step, so that stock's moments of other rows do not matter.
SAME_IDS = [[0, 1, 2], [3, 0, 1], [2, 2, 0], [1, 3, 3]]


def stock_step(variables, optimizer, weights):
    """The same step on dense variables `[4, DIM]`, one for each table."""
    with tf.GradientTape() as tape:
        columns = tf.unstack(tf.constant(SAME_IDS), axis=1)
        pairs = zip(variables, columns, strict=True)
        rows = tf.stack([tf.gather(variable, column) for variable, column in pairs], axis=1)
        loss = tf.reduce_sum(tf.tanh(rows) * weights)
    grads = [tf.convert_to_tensor(grad) for grad in tape.gradient(loss, variables)]
    optimizer.apply_gradients(list(zip(grads, variables, strict=True)))


def our_step(embedding, optimizer, weights):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.tanh(embedding(tf.constant(SAME_IDS, tf.int64))) * weights)
    grads = tape.gradient(loss, embedding.parameters())
    optimizer.apply_gradients(list(zip(grads, embedding.parameters(), strict=True)))


def assert_trains_as(embedding, optimizer, stock_optimizer, make_variable=tf.Variable):
    """Five steps from the same first values give the same rows as stock's dense tables."""
    variables = [make_variable(first_rows(table, range(4))) for table in embedding.tables]
    rng = np.random.default_rng(2)
    for _ in range(5):
        weights = rng.standard_normal([4, NUM_TABLES, DIM]).astype(np.float32)
        stock_step(variables, stock_optimizer, weights)
        our_step(embedding, optimizer, weights)
    for table, variable in zip(embedding.tables, variables, strict=True):
        want = tf.convert_to_tensor(variable).numpy()
        assert_close(table.export().values.numpy(), want, terms=256)


@pytest.mark.parametrize("name", V1_OPTIMIZERS)
def test_trains_as_a_dense_table_with_v1_optimizers(store, name):
    size_factor, make_optimizer = V1_OPTIMIZERS[name]
    assert_trains_as(make(store(size_factor)), make_optimizer(), make_optimizer())


KERAS_OPTIMIZERS = {
    "sgd": (1, lambda keras: keras.optimizers.SGD(0.1)),
    "momentum": (2, lambda keras: keras.optimizers.SGD(0.1, momentum=0.9)),
    "adagrad": (2, lambda keras: keras.optimizers.Adagrad(0.1)),
    "adam": (3, lambda keras: keras.optimizers.Adam(0.1)),
}


@pytest.mark.parametrize("name", KERAS_OPTIMIZERS)
@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_trains_as_a_dense_table_with_keras_optimizers(store, name, keras):
    size_factor, make_optimizer = KERAS_OPTIMIZERS[name]
    optimizer = fe.keras.wrap(make_optimizer(keras))
    embedding = make(store(size_factor))
    assert_trains_as(
        embedding, optimizer, make_optimizer(keras), getattr(keras, "Variable", tf.Variable)
    )


@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_a_keras_model_trains_it(store, keras):
    embedding = make(store(2))

    class Tables(keras.layers.Layer):
        def __init__(self):
            super().__init__(autocast=False)
            hold = fe.keras.variable if hasattr(keras, "Variable") else lambda table: table
            self.held = [hold(table) for table in embedding.tables]

        def call(self, ids):
            return tf.reshape(embedding(ids), [-1, NUM_TABLES * DIM])

    inputs = keras.Input([NUM_TABLES], dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(Tables()(inputs)))
    model.compile(fe.keras.wrap(keras.optimizers.Adagrad(0.3)), loss="mse")
    ids, labels = np.array(SAME_IDS), np.array([[1.0], [2.0], [3.0], [4.0]])
    losses = model.fit(ids, labels, epochs=30, batch_size=4, verbose=0).history["loss"]
    assert losses[-1] < 0.1 * losses[0]
    assert [int(table.total_count()) for table in embedding.tables] == [4] * NUM_TABLES


def test_ftrl_is_stocks(store):
    numbers = {"lr_power": -0.6, "initial_accumulator_value": 0.3, "lambda1": 0.01, "beta": 0.05}
    embedding = make(store(3))
    ftrl = one.Ftrl(embedding.parameters(), 0.1, 0.0, lambda2=0.2, **numbers)
    stock = v1.train.FtrlOptimizer(0.1, -0.6, 0.3, 0.01, l2_regularization_strength=0.1, beta=0.05)
    assert_trains_as(embedding, ftrl, stock)


def test_ftrl_minimizes_its_params_alone(store):
    embedding = make(store(3))
    scale = tf.Variable(1.0)
    ids = tf.constant(SAME_IDS, tf.int64)
    before = embedding(ids).numpy()
    one.Ftrl(embedding.parameters(), lr=0.1).minimize(
        lambda: scale * tf.reduce_sum(embedding(ids) ** 2)
    )
    assert float(scale) == 1.0
    assert np.all(embedding(ids).numpy() != before)


def test_ftrl_refuses(store):
    params = make(store()).parameters()
    with pytest.raises(NotImplementedError, match=r"weight_decay = 0.1 .* pass weight_decay=0"):
        one.Ftrl(params, weight_decay=0.1)
    with pytest.raises(ValueError, match="lr must be >= 0, got -1"):
        one.Ftrl(params, lr=-1)
    with pytest.raises(ValueError, match="params is empty"):
        one.Ftrl([])
    with pytest.raises(TypeError, match="make one Ftrl for each group"):
        one.Ftrl([{"params": params}])


@pytest.mark.parametrize(
    ("size_factor", "optimizer", "needed"),
    [
        (2, v1.train.GradientDescentOptimizer(0.1), 1),
        (1, v1.train.MomentumOptimizer(0.1, 0.9), 2),
        (1, v1.train.AdagradOptimizer(0.1), 2),
        (2, v1.train.AdamOptimizer(0.1), 3),
        (2, v1.train.FtrlOptimizer(0.1), 3),
    ],
)
def test_size_factor_is_that_of_the_optimizer(store, size_factor, optimizer, needed):
    embedding = make(store(size_factor))
    message = f"'tables' say size_factor = {size_factor}, .* pass size_factor={needed}"
    with pytest.raises(ValueError, match=message):
        our_step(embedding, optimizer, np.ones([4, NUM_TABLES, DIM], np.float32))
    np.testing.assert_array_equal(
        embedding.tables[0].export().values, first_rows(embedding.tables[0], range(4))
    )


def test_storage_dim_stands_for_the_size_factor(tmp_path):
    for storage_dim, ok in ((DIM, True), (2 * DIM, False)):
        store = one.make_device_mem_store_options(str(tmp_path), 100, 3, storage_dim)
        embedding, optimizer = make(store), v1.train.GradientDescentOptimizer(0.1)
        weights = np.ones([4, NUM_TABLES, DIM], np.float32)
        if ok:
            our_step(embedding, optimizer, weights)
        else:
            with pytest.raises(ValueError, match="size_factor = 2"):
                our_step(embedding, optimizer, weights)
    with pytest.raises(ValueError, match=r"storage_dim = 5 .* must be 4 \(SGD\), 8"):
        make(one.make_device_mem_store_options(str(tmp_path), 100, storage_dim=5))


def test_rows_start_as_initializers_say(store):
    keys = range(5000)
    uniform = make(store(), one.make_uniform_initializer(low=0.5, high=1.5), num_tables=1)
    rows = first_rows(uniform.tables[0], keys)
    assert rows.min() >= 0.5
    assert rows.max() < 1.5
    assert abs(rows.mean() - 1.0) < 0.01
    normal = make(store(), one.make_normal_initializer(mean=2.0, std=0.5), "b", num_tables=1)
    rows = first_rows(normal.tables[0], keys)
    assert abs(rows.mean() - 2.0) < 0.02
    assert abs(rows.std() - 0.5) < 0.02
    arguments = ("c", DIM, tf.float32, tf.int64, None, store())
    rows = first_rows(one.MultiTableEmbedding(*arguments).tables[0], keys)
    assert abs(rows.std() - 0.05) < 0.002
    default = one.make_uniform_initializer(3.0, 3.5)
    rows = first_rows(one.MultiTableEmbedding(*arguments, default).tables[0], keys)
    assert rows.min() >= 3.0


def multi_column(store_options, dims=(3, 1)):
    tables = [
        one.make_table_options(
            [
                one.make_column_options(one.make_uniform_initializer(low=-0.1, high=0.1)),
                one.make_column_options(one.make_normal_initializer(mean=5.0, std=0.1)),
            ]
        ),
        one.make_table_options(one.make_uniform_initializer(low=7.0, high=8.0)),
    ]
    return one.MultiTableMultiColumnEmbedding(
        "columns", list(dims), tf.float32, tf.int64, tables, store_options
    )


def test_columns_of_a_table_start_differently(store):
    embedding = multi_column(store())
    ids = tf.reshape(tf.range(400, dtype=tf.int64), [200, 2])
    rows = embedding.forward(ids).numpy()
    assert rows.shape == (200, 2, 4)
    assert np.abs(rows[:, 0, :3]).max() <= 0.1
    assert abs(rows[:, 0, 3].mean() - 5.0) < 0.05
    assert rows[:, 1].min() >= 7.0
    assert len(np.unique(rows)) == rows.size  # no two values the same
    again = multi_column(store())
    np.testing.assert_array_equal(again(ids), rows)


def test_columns_are_trained_as_one_row(store):
    embedding, optimizer = multi_column(store()), v1.train.GradientDescentOptimizer(1.0)
    ids = tf.constant([[1, 2]], tf.int64)
    before = embedding(ids).numpy()
    step(embedding, optimizer, ids, tf.constant([1.0, 2.0, 3.0, 4.0]))
    assert_close(embedding(ids).numpy(), before - [1.0, 2.0, 3.0, 4.0])
    single = one.MultiTableMultiColumnEmbedding("d", 2, tf.float32, tf.int64, None, store())
    assert single(tf.constant([3], tf.int64)).shape == (1, 2)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16])
@pytest.mark.parametrize("key_type", [tf.int32, tf.int64])
def test_dtypes(store, dtype, key_type):
    embedding = make(store(), fe.DebugInitializer(), dtype=dtype, key_type=key_type)
    rows = embedding(tf.constant([[1, 2, 3]], key_type))
    assert rows.dtype == dtype
    np.testing.assert_array_equal(tf.cast(rows, tf.float32)[0, :, 0], [1, 2, 3])
    assert embedding([[1, 2, 3]]).shape == (1, 3, DIM)  # a list is of the key type


def test_a_full_table_fails(store):
    embedding = make(store(capacity=2), num_tables=1)
    embedding(tf.constant([1, 2], tf.int64))
    with pytest.raises(tf.errors.ResourceExhaustedError):
        embedding(tf.constant([3], tf.int64))


def test_where_rows_live(tmp_path):
    """Both stores in memory are DRAM; a path is of one rank."""
    cached = one.make_cached_host_mem_store_options(64, [str(tmp_path / "x")], 10, 3, -1, 512)
    assert cached.folder == str(tmp_path / "x")
    assert cached.ev_option(2).storage_option.storage_type == fe.StorageType.DRAM
    assert cached.ev_option(2).max_capacity == 10
    assert cached.size_factor == 3
    device = one.make_device_mem_store_options(str(tmp_path), 10)
    assert device.folder == str(tmp_path / "0-1")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"capacity": 0}, ValueError, "capacity must be > 0, got 0"),
        ({"size_factor": 4}, ValueError, r"must be 1 \(SGD\), 2 .* got 4"),
        ({"physical_block_size": 1024}, ValueError, "must be 512 or 4096, .* got 1024"),
        ({"storage_dim": 0}, ValueError, "storage_dim must be > 0, got 0"),
        ({"persistent_path": ["a", "b"]}, ValueError, "lists 2 paths, .* pass one path"),
        ({"persistent_path": 3}, TypeError, "must be a path or a list of one, got 3"),
        ({"persistent_path": ""}, TypeError, "must be a path"),
        ({"cache_budget_mb": 0}, ValueError, "cache_budget_mb must be > 0, got 0"),
    ],
)
def test_wrong_stores_are_refused(arguments, error, message):
    given = {"cache_budget_mb": 1, "persistent_path": "path", "capacity": 5, **arguments}
    with pytest.raises(error, match=message):
        one.make_cached_host_mem_store_options(**given)
    if "cache_budget_mb" not in arguments:
        del given["cache_budget_mb"]
        with pytest.raises(error, match=message):
            one.make_device_mem_store_options(**given)


def test_wrong_tables_are_refused(store):
    uniform = one.make_uniform_initializer(0.0, 1.0)
    with pytest.raises(ValueError, match=r"low = 2 must be <= high = 1; swap"):
        one.make_uniform_initializer(2, 1)
    with pytest.raises(ValueError, match="std must be >= 0, got -1"):
        one.make_normal_initializer(0, -1)
    with pytest.raises(TypeError, match="make one with make_uniform_initializer"):
        one.make_table_options({"type": "uniform"})
    with pytest.raises(TypeError, match="must hold what make_column_options made"):
        one.make_table_options([uniform])
    with pytest.raises(ValueError, match="empty list"):
        one.make_table([])
    with pytest.raises(TypeError, match="an initializer is required"):
        one.make_column_options(0.5)
    arguments = ("x", DIM, tf.float32, tf.int64)
    with pytest.raises(TypeError, match="what make_table_options made"):
        one.MultiTableEmbedding(*arguments, [uniform], store())
    with pytest.raises(ValueError, match="one for each table"):
        one.MultiTableEmbedding(*arguments, [], store())
    with pytest.raises(TypeError, match="store_options function made"):
        one.MultiTableEmbedding(*arguments, None, {})
    with pytest.raises(TypeError, match="use MultiTableMultiColumnEmbedding"):
        one.MultiTableEmbedding("x", [3, 1], tf.float32, tf.int64, None, store())
    with pytest.raises(ValueError, match="options for 2 columns, but embedding_dim has 3"):
        multi_column(store(), dims=(1, 1, 1))
    with pytest.raises(TypeError, match="must be a list of ints"):
        multi_column(store(), dims=("a", 1))
    with pytest.raises(ValueError, match=r"must be > 0 for each column, got \[0, 1\]"):
        multi_column(store(), dims=(0, 1))


def test_wrong_ids_are_refused(store):
    embedding = make(store())
    with pytest.raises(TypeError, match="must be int64, its key_type, got int32; cast"):
        embedding(tf.constant([[1, 2, 3]]))
    with pytest.raises(ValueError, match=r"must be \[batch, 3\], .* pass table_ids"):
        embedding(tf.constant([[1, 2]], tf.int64))
    ids = tf.constant([1, 2], tf.int64)
    with pytest.raises(ValueError, match="table_ids must be integers of the shape of ids"):
        embedding(ids, tf.constant([1]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        embedding(ids, tf.constant([0, 3]))


def test_the_page_and_the_docstrings(tmp_path, monkeypatch):
    namespace = run_page("one_embedding.md", tmp_path, monkeypatch)
    assert namespace["rows"].shape == (2, 2, 8)
    assert namespace["values"].shape == (2, 16)
    results = doctest.testmod(embedding_module, extraglobs={"fe": fe, "tf": tf})
    assert (results.attempted, results.failed) == (5, 0)
