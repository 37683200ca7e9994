"""fe.one_embedding: padding_idx, seed, a capacity of all tables together, and steps of Ftrl."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe

one = fe.one_embedding
v1 = tf.compat.v1
DIM, PAD = 3, -7
IDS = [[PAD, 1], [2, PAD], [PAD, PAD], [2, 3]]


@pytest.fixture
def make(tmp_path):
    """Makes an embedding whose rows start as their keys."""

    def make_tables(num_tables=2, capacity=1000, size_factor=1, initializer=None, **others):
        tables = [one.make_table(initializer or fe.DebugInitializer())] * num_tables
        store = one.make_device_mem_store_options(str(tmp_path), capacity, size_factor)
        arguments = {"dtype": tf.float32, "key_type": tf.int64, "name": "tables", **others}
        return one.MultiTableEmbedding(
            embedding_dim=DIM, tables=tables, store_options=store, **arguments
        )

    return make_tables


def rows_of(embedding):
    """`{key: row}` of each table."""
    exported = [table.export() for table in embedding.tables]
    return [dict(zip(e.keys.numpy().tolist(), e.values.numpy(), strict=True)) for e in exported]


# --- padding_idx ---


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("lookup", ["one table", "columns", "table_ids", "partitions"])
@pytest.mark.parametrize(("dtype", "key_type"), [(tf.float32, tf.int64), (tf.bfloat16, tf.int32)])
def test_padding_reads_zeros_and_is_not_trained(make, lookup, in_function, dtype, key_type):
    num_tables = 1 if lookup == "one table" else 2
    parts = 2 if lookup == "partitions" else 1
    with v1.variable_scope("", partitioner=v1.fixed_size_partitioner(parts)):
        embedding = make(num_tables, padding_idx=PAD, dtype=dtype, key_type=key_type)
    ids = np.array(IDS) if lookup != "one table" else np.array(IDS)[:, :, None]
    table_ids = np.array([[0, 1]] * 4)[::-1] if lookup == "table_ids" else None
    optimizer = v1.train.GradientDescentOptimizer(1.0)

    def step(given):
        with tf.GradientTape() as tape:
            rows = embedding(given, table_ids)
            loss = tf.reduce_sum(rows)
        grads = tape.gradient(loss, embedding.parameters())
        optimizer.apply_gradients(list(zip(grads, embedding.parameters(), strict=True)))
        return rows

    if in_function:
        step = tf.function(step, input_signature=[tf.TensorSpec([None, *ids.shape[1:]], key_type)])
    rows = step(tf.constant(ids, key_type))
    assert rows.shape == (*ids.shape, DIM)
    want = np.where(ids == PAD, 0, ids)[..., None] * np.ones(DIM)
    np.testing.assert_array_equal(tf.cast(rows, tf.float32), want)
    occurrences = {2: 2, 1: 1, 3: 1}
    trained = {key: row for of_table in rows_of(embedding) for key, row in of_table.items()}
    assert {key: float(row[0]) for key, row in trained.items()} == {
        key: key - num for key, num in occurrences.items()
    }
    assert embedding(tf.fill([0, *ids.shape[1:]], tf.cast(PAD, key_type))).shape[0] == 0


def test_padding_is_an_id_of_the_key_type(make):
    assert make(padding_idx=np.int64(0)).padding_idx == 0
    assert make().padding_idx is None
    with pytest.raises(TypeError, match=r"padding_idx must be an integer, got 1\.5"):
        make(padding_idx=1.5)
    with pytest.raises(ValueError, match=r"padding_idx = 2147483648 is no int32, the key_type of"):
        make(padding_idx=1 << 31, key_type=tf.int32)
    embedding = make(padding_idx=PAD)
    with pytest.raises(tf.errors.InvalidArgumentError):
        embedding(tf.constant([1, PAD], tf.int64), tf.constant([2, 0]))
    columns = one.MultiTableMultiColumnEmbedding(
        "columns", [2, 1], tf.float32, tf.int64, None, embedding.store_options, padding_idx=PAD
    )
    assert columns(tf.constant([PAD], tf.int64)).numpy().tolist() == [[0.0] * DIM]


# --- seed ---


def first_rows(make, **arguments):
    """`[2 tables, 5, DIM]` first values."""
    embedding = make(initializer=one.make_uniform_initializer(-1.0, 1.0), **arguments)
    ids = tf.tile(tf.range(5, dtype=tf.int64)[:, None], [1, 2])
    return tf.transpose(embedding(ids), [1, 0, 2]).numpy()


def test_a_seed_says_what_rows_start_as(make):
    rows = first_rows(make, seed=3)
    np.testing.assert_array_equal(first_rows(make, seed=3), rows)
    # Other tables, seeds and names: 0, the default, leaves it to the name.
    np.testing.assert_array_equal(first_rows(make, seed=3, name="others"), rows)
    np.testing.assert_array_equal(first_rows(make, seed=0), first_rows(make))
    others = [first_rows(make, seed=4), first_rows(make), first_rows(make, name="others")]
    everything = np.concatenate([rows, *others])
    assert np.abs(everything).max() <= 1
    assert len(np.unique(everything)) == everything.size


@pytest.mark.parametrize(
    "start", [tf.keras.initializers.RandomNormal, v1.random_normal_initializer]
)
def test_columns_draw_apart_from_one_seed(make, start):
    store = make().store_options

    def columns(seed, first=None):
        options = [one.make_column_options(first or start()), one.make_column_options(start())]
        embedding = one.MultiTableMultiColumnEmbedding(
            "columns", [1, 1], tf.float32, tf.int64, [one.make_table(options)], store, seed=seed
        )
        return embedding(tf.range(4, dtype=tf.int64)).numpy()

    assert len(np.unique(np.stack([columns(1), columns(2)]))) == 16
    np.testing.assert_array_equal(columns(1), columns(1))
    # An initializer's own seed is kept.
    own = [columns(seed, start(seed=5)) for seed in (1, 2)]
    np.testing.assert_array_equal(own[0][:, 0], own[1][:, 0])
    assert np.all(own[0][:, 1] != own[1][:, 1])
    with pytest.raises(TypeError, match="seed must be an integer, got None"):
        columns(None)


# --- capacity ---


@pytest.mark.parametrize("in_function", [False, True])
def test_capacity_is_of_all_tables_together(make, in_function):
    embedding = make(capacity=3)
    look_up = embedding.forward
    if in_function:
        look_up = tf.function(look_up, input_signature=[tf.TensorSpec([None, 2], tf.int64)])
    look_up(tf.constant([[1, 1], [1, 2]], tf.int64))
    look_up(tf.constant([[1, 2]], tf.int64))
    message = r"may have 3 rows together, the capacity of .*; raise it, .* have now:\W+(b')?4"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        look_up(tf.constant([[9, 1]], tf.int64))
    with fe.inference():
        embedding(tf.constant([[5, 6]], tf.int64))
    embedding.tables[0].erase([9])
    look_up(tf.constant([[1, 2]], tf.int64))


def test_capacity_in_a_session(make):
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None, 2])
        embedding = make(capacity=3)
        rows = embedding(ids)
        session.run(v1.global_variables_initializer())
        assert session.run(rows, {ids: [[1, 1], [1, 2]]}).shape == (2, 2, DIM)
        with pytest.raises(tf.errors.InvalidArgumentError, match="may have 3 rows together"):
            session.run(rows, {ids: [[2, 1]]})


def test_a_snapshot_has_no_more_rows_than_the_capacity(make):
    embedding = make(capacity=4)
    embedding(tf.constant([[1, 1], [2, 2]], tf.int64))
    embedding.save_snapshot("four")
    fewer = make(capacity=3)
    message = "tables of the snapshot '.*four' have 4 rows together, but the capacity is 3; raise"
    with pytest.raises(ValueError, match=message):
        fewer.load_snapshot("four")
    assert rows_of(fewer) == [{}, {}]
    embedding.load_snapshot("four")


# --- Ftrl ---


def test_ftrl_steps_with_a_closure(make):
    ids = tf.constant([[1, 2], [3, 2]], tf.int64)

    def trained(steps):
        embedding = make(size_factor=3)
        ftrl = one.Ftrl(embedding.parameters(), lr=0.1, lambda1=0.01)
        losses = steps(ftrl, lambda: tf.reduce_sum(embedding(ids) ** 2))
        return losses, rows_of(embedding)

    def minimize(ftrl, loss):
        return [(loss(), ftrl.minimize(loss))[0] for _ in range(3)]

    def step(ftrl, loss):
        return [(ftrl.step(loss), ftrl.zero_grad())[0] for _ in range(3)]

    def step_in_function(ftrl, loss):
        one_step = tf.function(lambda: ftrl.step(loss))
        return [one_step() for _ in range(3)]

    losses, rows = trained(minimize)
    for steps in (step, step_in_function):
        np.testing.assert_allclose(trained(steps)[0], losses, rtol=1e-6)
        for got, want in zip(trained(steps)[1], rows, strict=True):
            np.testing.assert_equal(got, want)


def test_ftrl_steps_in_a_session(make):
    with tf.Graph().as_default(), v1.Session() as session:
        embedding = make(size_factor=3)
        ids = tf.constant([[1, 2]], tf.int64)
        ftrl = one.Ftrl(embedding.parameters(), lr=0.1)
        loss = ftrl.step(lambda: tf.reduce_sum(embedding(ids) ** 2))
        session.run(v1.global_variables_initializer())
        losses = [session.run(loss) for _ in range(3)]
    assert losses[0] == 3 * (1 + 4)
    assert losses[0] > losses[1] > losses[2]


def test_ftrl_has_no_gradients_to_apply(make):
    ftrl = one.Ftrl(make(size_factor=3).parameters(), lr=0.1)
    ftrl.zero_grad()
    with pytest.raises(
        NotImplementedError, match=r"hold none.*Call step\(closure\) with a function"
    ):
        ftrl.step()
    with pytest.raises(TypeError, match=r"returned None, .* leave out loss.backward\(\)"):
        ftrl.step(lambda: None)
