"""EmbeddingVariables in a GPU's memory: as those in DRAM, on the emulation of a GPU."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from emulated_gpu import emulated_gpu
from fused_embedding.lookup.admission import Arrivals, admit
from gpu_tables import (
    DIM,
    assert_same,
    content_of,
    has_bits_of_dram,
    in_place,
    make_table,
    option,
)

tf1 = tf.compat.v1


# --- Options ---


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({}, NotImplementedError, "are an experiment, .* pass experimental=True"),
        ({"experimental": True, "storage_size": []}, ValueError, r"\[\] .* with .* HBM, .* first"),
        ({"experimental": True, "storage_size": [5]}, ValueError, r"\[5\] .* at least 1048576"),
        ({"experimental": True, "storage_size": [1e9]}, ValueError, r"\[1000000000.0\] was given"),
        ({"experimental": True, "storage_path": "/x"}, ValueError, "'/x' .* in memory are in no"),
    ],
)
def test_a_wrong_storage_is_an_error(fields, error, message):
    with pytest.raises(error, match=message):
        fe.StorageOption(fe.StorageType.HBM, **fields)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"max_capacity": 5}, ValueError, "max_capacity = 5 .* bounded in bytes of the GPU's"),
        ({"check_mode": "ignore"}, NotImplementedError, "check_mode = 'ignore' .* an eviction"),
        (
            {"filter_option": fe.CBFFilter(2, 1000, 0.01)},
            NotImplementedError,
            "CBFFilter .* pass CounterFilter",
        ),
    ],
)
def test_what_a_table_on_a_gpu_lacks_is_an_error(fields, error, message):
    with pytest.raises(error, match=message):
        option(**fields)


def test_a_filter_that_counts_exactly_is_taken():
    assert option(filter_option=fe.CBFFilter(2)).storage_option.is_in_hbm
    assert option(eviction="lru").eviction == "lru"


@pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="a machine with a GPU lacks nothing"
)
def test_without_a_gpu_the_error_says_what_is_missing():
    message = "'users' has storage_type = HBM, but TensorFlow sees no GPU; .* StorageType.DRAM"
    with pytest.raises(RuntimeError, match=message):
        make_table(name="users")
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match=message):
        make_table(name="users")


def test_a_table_that_is_too_small_is_an_error():
    storage = fe.StorageOption(fe.StorageType.HBM, storage_size=[1 << 20], experimental=True)
    wide = fe.EmbeddingVariableOption(storage_option=storage)
    with (
        emulated_gpu(),
        pytest.raises(tf.errors.InvalidArgumentError, match=r"max_bytes = 1048576"),
    ):
        fe.get_embedding_variable("wide", 10_000, ev_option=wide)


def test_two_tables_of_a_name_must_agree():
    with emulated_gpu(), tf.Graph().as_default():
        attrs = {"dtype": tf.float32, "dim": 2, "initializer": "constant", "shared_name": "x"}
        first = fe.raw_ops.EmbeddingVariableGpuHandle(hbm_bytes=1 << 20, **attrs)
        other = fe.raw_ops.EmbeddingVariableGpuHandle(hbm_bytes=1 << 21, **attrs)
        with tf1.Session() as session:
            session.run(first)
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"exists as .* 1048576 bytes"):
                session.run(other)


# --- Training ---


OPTIMIZERS = {
    "sgd": lambda: fe.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: fe.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda: fe.train.AdagradOptimizer(0.1),
    "rmsprop": lambda: fe.train.RMSPropOptimizer(0.1),
    "adam": lambda: fe.train.AdamOptimizer(0.01),
    "ftrl": lambda: fe.train.FtrlOptimizer(0.1),
    "adagrad_decay": lambda: fe.train.AdagradDecayOptimizer(
        0.1, tf1.train.get_global_step(), accumulator_decay_step=2
    ),
    "adamw": lambda: fe.train.AdamWOptimizer(0.01, learning_rate=0.01),
    "adam_async": lambda: fe.train.AdamAsyncOptimizer(0.01),
    "row_wise_adagrad": lambda: fe.train.RowWiseAdagradOptimizer(0.1),
}


def batches(num_steps, num_keys=60):
    """Ids of two columns, and numbers that they are trained by, of few bits: sums are exact."""
    rng = np.random.default_rng(0)
    for _ in range(num_steps):
        yield [rng.integers(0, num_keys, [8, 3]) for _ in range(2)], rng.integers(-4, 5, [8, 1]) / 4


def train(place, make_optimizer, num_steps=6, **fields):
    """The content of two tables that a session has trained by three columns."""
    with in_place(place), tf.Graph().as_default():
        step = tf1.train.get_or_create_global_step()
        tables = [make_table(place, "a", **fields), make_table(place, "b", 2 * DIM, **fields)]
        ids = [tf1.placeholder(tf.int64, [None, 3]) for _ in range(2)]
        numbers = tf1.placeholder(tf.float32, [None, 1])
        sparse = [tf.sparse.from_dense(one) for one in ids]
        rows = fe.nn.group_embedding_lookup_sparse(
            [tables[0], tables[1], tables[0]], [*sparse, sparse[1]], ["sum", "sum", "sum"]
        )
        loss = tf.reduce_sum(tf.concat(rows, 1) * numbers)
        train_op = make_optimizer().minimize(loss, global_step=step)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            for of_columns, of_rows in batches(num_steps):
                session.run(train_op, {**dict(zip(ids, of_columns, strict=True)), numbers: of_rows})
            return [session.run(table.export_content()._asdict()) for table in tables]


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_it_trains_as_in_dram_bit_for_bit(make_optimizer):
    got, want = (train(place, make_optimizer) for place in ("hbm", "dram"))
    assert len(want[0]["keys"]) > 30
    for of_gpu, of_cpu in zip(got, want, strict=True):
        assert_same(of_gpu, of_cpu)


def test_it_admits_as_in_dram():
    fields = {"filter_option": fe.CounterFilter(3)}
    got, want = (train(place, OPTIMIZERS["adagrad"], **fields) for place in ("hbm", "dram"))
    assert len(want[0]["filtered_keys"]) > 0
    assert len(want[0]["keys"]) > 0
    for of_gpu, of_cpu in zip(got, want, strict=True):
        assert_same(of_gpu, of_cpu)


@pytest.mark.slow
def test_a_thousand_steps_give_the_content_of_dram():
    got, want = (train(place, OPTIMIZERS["adagrad"], 1000) for place in ("hbm", "dram"))
    for of_gpu, of_cpu in zip(got, want, strict=True):
        assert_same(of_gpu, of_cpu)


def lookup_twice(place):
    """A table whose rows a second lookup moves between the first one and the update."""
    with in_place(place), tf.Graph().as_default():
        table = make_table(place, "a")
        first = tf.nn.embedding_lookup(table, tf.range(4, dtype=tf.int64))
        with tf.control_dependencies([first]):
            many = tf.nn.embedding_lookup(table, tf.range(100, 40_100, dtype=tf.int64))
        loss = tf.reduce_sum(first) + tf.reduce_sum(many)
        train_op = fe.train.AdagradOptimizer(0.1).minimize(loss)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(train_op)
            return session.run(table.export_content()._asdict())


def test_rows_that_moved_are_updated():
    assert_same(lookup_twice("hbm"), lookup_twice("dram"))


def apply_to(tables, learning_rates):
    """One step by gradients of ones on key 0 of tables."""
    return fe.raw_ops.EmbeddingVariableApply(
        resources=[table.handle for table in tables],
        keys=[np.zeros(1, np.int64)] * len(tables),
        handles=[np.zeros(0, np.int64)] * len(tables),
        grads=[np.ones([1, DIM], np.float32)] * len(tables),
        hyperparameters=[np.reshape(rate, [-1]) for rate in learning_rates],
        rule="sgd",
        slot_prefixes=["sgd"] * len(tables),
    )


def test_each_table_has_hyperparameters_of_its_own():
    with emulated_gpu():
        tables = [make_table() for _ in range(3)]
        for table in tables:
            table.upsert([0], np.zeros([1, DIM]))
        apply_to(tables, [0.5, 2.0, 0.5])
        values = [float(table.export().values[0, 0]) for table in tables]
        assert values == [-0.5, -2.0, -0.5]


def versions_of_unequal_tables(place):
    """Of two tables whose own step counters differ, after one lookup of both."""
    with in_place(place):
        tables = [make_table(place) for _ in range(2)]
        for table in tables:
            table.upsert([0], np.zeros([1, DIM]))
        for _ in range(3):
            apply_to(tables[1:], [0.5])
        fe.nn.group_embedding_lookup_sparse(
            tables, [tf.sparse.from_dense([[7, 8]])] * 2, [None] * 2
        )
        return [table.export().versions.numpy().tolist() for table in tables]


def test_without_a_global_step_each_table_has_a_version_of_its_own():
    assert versions_of_unequal_tables("hbm") == versions_of_unequal_tables("dram")


def test_a_table_that_occurs_twice_is_an_error_and_unharmed():
    with emulated_gpu():
        table = make_table()
        table.upsert([0], np.zeros([1, DIM]))
        before = content_of(table)
        with pytest.raises(tf.errors.InvalidArgumentError, match="resources must have each table"):
            apply_to([table, table], [0.5, 0.5])
        with pytest.raises(tf.errors.InvalidArgumentError, match="hyperparameters"):
            apply_to([table], [[0.5, 0.5]])
        assert_same(content_of(table), before)


def fit(place, num_steps=3):
    """The losses of a Keras-less loop in a tf.function, and the table's content."""
    with in_place(place):
        table = make_table(place, "users")
        optimizer = fe.train.AdagradOptimizer(0.5)

        @tf.function
        def step(ids):
            with tf.GradientTape() as tape:
                rows = fe.nn.safe_embedding_lookup_sparse(table, tf.sparse.from_dense(ids))
                loss = tf.reduce_sum(tf.square(rows - 1.0))
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])
            return loss

        losses = [float(step(tf.constant([[1, 2], [3, 1]], tf.int64))) for _ in range(num_steps)]
        return losses, content_of(table)


def test_it_trains_in_a_function():
    (losses, got), (want_losses, want) = fit("hbm"), fit("dram")
    np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
    assert losses[-1] < losses[0]
    for name in ("keys", "frequencies", "versions", "slot_names"):
        np.testing.assert_array_equal(got[name], want[name])
    for name in ("values", "slots"):
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5)


def test_keys_that_are_admitted_ahead_are_refused():
    with emulated_gpu(), pytest.raises(NotImplementedError, match=r"HBM, .* ahead of a lookup"):
        admit([Arrivals(make_table(), tf.constant([1], tf.int64))])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weighted_lookups_and_their_gradients_are_those_of_dram(combiner):
    def run(place):
        with in_place(place), tf.Graph().as_default():
            table = make_table(place, "a")
            ids = tf.SparseTensor(
                [[0, 0], [0, 1], [2, 0]], tf.constant([7, 9, 7], tf.int64), [3, 2]
            )
            values = tf.constant([0.5, 2.0, 1.5])
            weights = tf.SparseTensor(ids.indices, values, ids.dense_shape)
            rows = fe.nn.safe_embedding_lookup_sparse(table, ids, weights, combiner, default_id=5)
            loss = tf.reduce_sum(rows * rows)
            grads = tf.gradients(loss, [table.handle, values])
            with tf1.Session() as session:
                return session.run([rows, grads[0].indices, grads[0].values, grads[1]])

    for got, want in zip(run("hbm"), run("dram"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=0 if has_bits_of_dram() else 1e-6)


def test_evaluation_changes_nothing():
    with emulated_gpu():
        table = make_table()
        table.upsert([1, 2], np.ones([2, DIM]))
        before = content_of(table)
        with fe.inference():
            rows = tf.nn.embedding_lookup(table, [[1, 3]])
            grouped = fe.nn.safe_embedding_lookup_sparse(
                table, tf.sparse.from_dense(tf.constant([[1, 4]], tf.int64))
            )
        np.testing.assert_array_equal(rows[0, 0], np.ones(DIM))
        assert grouped.shape == (1, DIM)
        assert_same(content_of(table), before)


@pytest.mark.parametrize("insert", [True, False])
def test_counts_of_other_keys_are_an_error(insert):
    with emulated_gpu():
        table = make_table()
        with pytest.raises(tf.errors.InvalidArgumentError, match="each of the 1 keys, got 2"):
            table.lookup(tf.constant([7], tf.int64), tf.constant([1, 1]), insert=insert)
        assert int(table.total_count()) == 0


def test_tables_that_are_trained_and_others_are_looked_up_together():
    with emulated_gpu():
        trained = make_table(name="trained")
        frozen = fe.get_embedding_variable("frozen", DIM, trainable=False, ev_option=option())
        ids = tf.sparse.from_dense(tf.constant([[1, 2]], tf.int64))

        @tf.function
        def look_up():
            return fe.nn.group_embedding_lookup_sparse([trained, frozen], [ids, ids], ["sum"] * 2)

        look_up()
        assert (int(trained.total_count()), int(frozen.total_count())) == (2, 0)


# --- Bounds ---

# 64 rows of dim 4096 take 1.05 MB.
OF_ONE_BUCKET = fe.StorageOption(fe.StorageType.HBM, storage_size=[3 << 19], experimental=True)


def test_a_full_table_is_an_error_and_unharmed():
    wide = 4096
    with emulated_gpu():
        bounded = fe.EmbeddingVariableOption(storage_option=OF_ONE_BUCKET)
        table = fe.get_embedding_variable("t", wide, ev_option=bounded)
        tf.nn.embedding_lookup(table, tf.range(64))
        before = content_of(table)
        message = "table 0 has no room for 2 of the keys .* 0 t_[0-9]+; .* what storage_size has"
        with pytest.raises(tf.errors.ResourceExhaustedError, match=message):
            tf.nn.embedding_lookup(table, tf.range(50, 66))
        with pytest.raises(tf.errors.ResourceExhaustedError, match="no room for 1 of the keys"):
            table.upsert([99], np.zeros([1, wide]))
        assert_same(content_of(table), before)


def test_slots_that_do_not_fit_are_an_error_and_the_table_is_unharmed():
    with emulated_gpu(), tf.Graph().as_default():
        bounded = fe.EmbeddingVariableOption(storage_option=OF_ONE_BUCKET)
        table = fe.get_embedding_variable("users", 4096, ev_option=bounded)
        rows = tf.nn.embedding_lookup(table, [1, 2])
        train_op = fe.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows))
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(rows)
            before = session.run(table.export_content()._asdict())
            message = "slots of Adagrad/accumulator, .* here are: 0 users;"
            with pytest.raises(tf.errors.ResourceExhaustedError, match=message):
                session.run(train_op)
            after = session.run(table.export_content()._asdict())
        np.testing.assert_array_equal(after["values"], before["values"])
        assert after["slots"].shape == (2, 0)


def test_a_batch_of_more_keys_than_a_bucket_has_rows_is_refused():
    with emulated_gpu():
        bounded = fe.EmbeddingVariableOption(storage_option=OF_ONE_BUCKET, eviction="lru")
        table = fe.get_embedding_variable("t", 4096, ev_option=bounded)
        table.upsert([5], np.ones([1, 4096]))
        before = content_of(table)
        ids = tf.sparse.from_dense(tf.range(1, 67)[None])
        for refused in (
            lambda: tf.nn.embedding_lookup(table, tf.range(66)),
            lambda: fe.nn.safe_embedding_lookup_sparse(table, ids),
            lambda: table.upsert(tf.range(66), np.zeros([66, 4096])),
        ):
            with pytest.raises(tf.errors.ResourceExhaustedError, match=r"refuse 2 keys .* 64 rows"):
                refused()
        assert_same(content_of(table), before)
        fe.nn.safe_embedding_lookup_sparse(table, tf.sparse.from_dense(tf.range(1, 65)[None]))
        assert int(table.statistics()["evictions"]) == 0  # 5 is one of them
        fe.nn.safe_embedding_lookup_sparse(table, tf.sparse.from_dense([[100, 101]]))
        assert int(table.statistics()["evictions"]) == 2


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_a_full_table_evicts(eviction):
    with emulated_gpu():
        bounded = fe.EmbeddingVariableOption(storage_option=OF_ONE_BUCKET, eviction=eviction)
        table = fe.get_embedding_variable("t", 4096, ev_option=bounded)
        step = tf.constant(0, tf.int64)
        for keys, counts in (([*range(64)], [2] * 64), ([0, 1], [1, 1]), ([100, 101], [9, 9])):
            fe.raw_ops.EmbeddingVariableLookup(
                resource=table.handle,
                keys=np.array(keys, np.int64),
                counts=np.array(counts, np.int32),
                step=step,
                insert=True,
                dtype=tf.float32,
            )
            step += 1
        # Of the rows that were not used again, those of the smallest keys.
        assert table.export().keys.numpy().tolist() == [0, 1, *range(4, 64), 100, 101]
        statistics = {name: int(value) for name, value in table.statistics().items()}
        assert (statistics["size"], statistics["evictions"], statistics["inserts"]) == (64, 2, 66)
        assert statistics["memory_bytes"] <= OF_ONE_BUCKET.storage_size[0]
