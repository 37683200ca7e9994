"""fe.dynamicemb: options, and the tables that they make."""

import dataclasses
import doctest
import math

import numpy as np
import pytest
import tensorflow as tf
from door_cases import KERASES, DictTables, first_rows, run_page

import fused_embedding as fe
from checking import assert_close
from fused_embedding.doors.dynamicemb import options as options_module
from fused_embedding.doors.dynamicemb import table as table_module

demb = fe.dynamicemb
v1 = tf.compat.v1
Options, Args, Mode = (
    demb.DynamicEmbTableOptions,
    demb.DynamicEmbInitializerArgs,
    demb.DynamicEmbInitializerMode,
)
DIM = 4
# Of NVIDIA's API document.
DEFAULTS = {
    "index_type": None,
    "embedding_dtype": None,
    "score_type": tf.uint64,
    "device_id": None,
    "dim": None,
    "max_capacity": None,
    "init_capacity": None,
    "max_load_factor": 0.5,
    "global_hbm_for_values": 0,
    "local_hbm_for_values": 0,
    "evict_strategy": demb.DynamicEmbEvictStrategy.LRU,
    "bucket_capacity": 128,
    "block_size": 128,
    "io_block_size": 1024,
    "io_by_cpu": False,
    "use_constant_memory": False,
    "reserved_key_start_bit": 0,
    "num_of_buckets_per_alloc": 1,
    "initializer_args": Args(),
    "safe_check_mode": demb.DynamicEmbCheckMode.IGNORE,
}
WITHOUT_MEANING = {
    "score_type": tf.int64,
    "device_id": 0,
    "init_capacity": 10,
    "max_load_factor": 0.7,
    "global_hbm_for_values": 1 << 30,
    "local_hbm_for_values": 1 << 20,
    "bucket_capacity": 64,
    "block_size": 256,
    "io_block_size": 512,
    "io_by_cpu": True,
    "use_constant_memory": True,
    "reserved_key_start_bit": 2,
    "num_of_buckets_per_alloc": 4,
}


@pytest.fixture
def warnings_logged(monkeypatch):
    messages = []
    monkeypatch.setattr(
        options_module.logging, "warning", lambda text, *args: messages.append(text % args)
    )
    options_module._warn_once.cache_clear()
    return messages


def debug_table(**fields):
    args = Args(mode=Mode.DEBUG)
    return demb.make_table("table", Options(dim=DIM, initializer_args=args, **fields))


def test_fields_and_defaults_are_nvidias(warnings_logged):
    fields = {field.name: getattr(Options(), field.name) for field in dataclasses.fields(Options)}
    assert fields == DEFAULTS
    assert list(fields) == list(DEFAULTS)
    assert dataclasses.astuple(Args()) == (Mode.UNIFORM, 0.0, 1.0, None, None, 0.0)
    assert {mode.name: mode.value for mode in demb.DynamicEmbCheckMode} == {
        "ERROR": 0,
        "WARNING": 1,
        "IGNORE": 2,
    }
    assert [mode.value for mode in Mode] == ["normal", "uniform", "constant", "debug"]
    assert [one.name for one in demb.DynamicEmbEvictStrategy] == ["LRU", "LFU"]
    assert not warnings_logged


@pytest.mark.parametrize("name", WITHOUT_MEANING)
def test_fields_without_a_meaning_are_warned_about_once(warnings_logged, name):
    options = Options(dim=DIM, max_capacity=100, **{name: WITHOUT_MEANING[name]})
    Options(dim=DIM, max_capacity=100, **{name: WITHOUT_MEANING[name]})
    (message,) = warnings_logged
    assert message.startswith(f"DynamicEmbTableOptions.{name} was given and has no effect: ")
    without = Options(dim=DIM, max_capacity=100)
    for made in (options, without):
        table = demb.make_table("table", made)
        assert first_rows(table, [1]).shape == (1, DIM)
    differences = {
        attribute
        for attribute, value in demb.make_table("table", options).table_attributes.items()
        if not np.array_equal(value, demb.make_table("table", without).table_attributes[attribute])
    }
    assert not differences


def test_rows_are_those_of_a_dict():
    table, oracle = debug_table(), DictTables(1, DIM)
    optimizer = v1.train.GradientDescentOptimizer(0.5)
    rng = np.random.default_rng(1)
    for _ in range(5):
        keys = [*rng.integers(-5, 5, 8).tolist(), 1 << 62]
        weights = rng.integers(-4, 5, [9, 1, DIM])
        with tf.GradientTape() as tape:
            rows = fe.nn.group_embedding_lookup([table], [tf.constant(keys, tf.int64)])[0]
            loss = tf.reduce_sum(rows * tf.constant(weights[:, 0], tf.float32))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        np.testing.assert_array_equal(rows, oracle.look_up([[key] for key in keys])[:, 0])
        oracle.descend([[key] for key in keys], weights, 0.5)
    (want,) = oracle.rows
    assert table.export().keys.numpy().tolist() == sorted(want)
    np.testing.assert_array_equal(table.export().values, [want[key] for key in sorted(want)])


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda keras: v1.train.AdagradOptimizer(0.1),
        lambda keras: v1.train.MomentumOptimizer(0.1, 0.9),
        *[lambda keras: keras.optimizers.Adagrad(0.1), lambda keras: keras.optimizers.Adam(0.1)],
    ],
)
@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_trains_as_a_dense_table(keras, make_optimizer):
    table = demb.make_table("table", Options(dim=DIM), num_embeddings=100)
    stock = getattr(keras, "Variable", tf.Variable)(first_rows(table, range(4)))
    stock_optimizer, optimizer = make_optimizer(keras), make_optimizer(keras)
    if not isinstance(optimizer, v1.train.Optimizer):
        optimizer = fe.keras.wrap(optimizer)
    elif not isinstance(stock, tf.Variable):
        stock = stock.value  # v1 optimizers know no variables of Keras 3
    for _ in range(4):
        for variable, one in ((stock, stock_optimizer), (table, optimizer)):
            with tf.GradientTape() as tape:
                rows = tf.nn.embedding_lookup(variable, tf.constant([0, 1, 2, 3]))
                loss = tf.reduce_sum(tf.tanh(rows) ** 2)
            one.apply_gradients([(tape.gradient(loss, variable), variable)])
    want = tf.convert_to_tensor(stock).numpy()
    assert_close(table.export().values.numpy(), want, terms=256)


def test_uniform_is_between_roots_of_the_number_of_rows():
    def rows(args, **fields):
        num_embeddings = fields.pop("num_embeddings", None)
        options = Options(dim=DIM, initializer_args=args, **fields)
        return first_rows(demb.make_table("table", options, num_embeddings), range(5000))

    for fields in ({"num_embeddings": 400}, {"max_capacity": 400}):
        drawn = rows(Args(), **fields)
        bound = math.sqrt(1 / 400)
        assert np.abs(drawn).max() <= bound
        assert drawn.min() < -0.99 * bound
        assert drawn.max() > 0.99 * bound
    drawn = rows(Args(lower=0.0), num_embeddings=4)
    assert (drawn.min() >= 0.0, drawn.max() <= 0.5) == (True, True)
    drawn = rows(Args(lower=2.0, upper=3.0))
    assert (drawn.min() >= 2.0, drawn.max() < 3.0) == (True, True)
    drawn = rows(Args(mode=Mode.NORMAL, mean=2.0, std_dev=0.5))
    assert abs(drawn.mean() - 2.0) < 0.02
    assert abs(drawn.std() - 0.5) < 0.02
    assert np.all(rows(Args(mode=Mode.CONSTANT, value=1.5)) == 1.5)
    np.testing.assert_array_equal(rows(Args(mode=Mode.DEBUG))[:, 0], np.arange(5000))


@pytest.mark.parametrize(
    ("strategy", "kept"),
    [(demb.DynamicEmbEvictStrategy.LRU, [2, 3]), (demb.DynamicEmbEvictStrategy.LFU, [1, 3])],
)
def test_a_full_table_gives_a_row_up(strategy, kept):
    table = debug_table(max_capacity=2, evict_strategy=strategy)
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    for keys in ([1, 1, 1], [2], [3]):  # steps: what counts as longest ago
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant(keys, tf.int64)))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
    assert table.export().keys.numpy().tolist() == kept
    assert int(table.statistics()["evictions"]) == 1


def test_check_mode_is_what_happens_to_keys_that_do_not_fit():
    """A batch never gives up a row that it uses, so one with three keys does not fit into two."""
    keys = tf.constant([1, 2, 3], tf.int64)
    for mode in (demb.DynamicEmbCheckMode.IGNORE, demb.DynamicEmbCheckMode.WARNING):
        table = debug_table(max_capacity=2, safe_check_mode=mode)
        rows = tf.nn.embedding_lookup(table, keys).numpy()
        assert np.sum(np.all(rows == 0, axis=1)) == 1
        assert int(table.statistics()["refusals"]) == 1
        assert table.option.check_mode == mode.name.lower()
    table = debug_table(max_capacity=2, safe_check_mode=demb.DynamicEmbCheckMode.ERROR)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        tf.nn.embedding_lookup(table, keys)


def test_capacity_is_that_of_the_options_or_the_config():
    assert Options(max_capacity=5).ev_option(7).max_capacity == 5
    assert Options().ev_option(7).max_capacity == 7
    assert Options().ev_option(7).eviction == "lru"
    unbounded = Options(initializer_args=Args(mode=Mode.DEBUG)).ev_option()
    assert (unbounded.max_capacity, unbounded.eviction) == (None, None)


def test_dtypes():
    table = demb.make_table("t", Options(tf.int32, tf.bfloat16, dim=DIM, max_capacity=10))
    assert (table.key_dtype, table.dtype) == (tf.int32, tf.bfloat16)
    table = demb.make_table("t", Options(dim=DIM, max_capacity=10))
    assert (table.key_dtype, table.dtype) == (tf.int64, tf.float32)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (
            {"index_type": tf.uint64},
            TypeError,
            "index_type must be one of int64, int32, got uint64",
        ),
        ({"embedding_dtype": tf.float64}, TypeError, "must be one of float32, .* got float64"),
        ({"evict_strategy": "lru"}, TypeError, "must be a fe.dynamicemb.DynamicEmbEvictStrategy"),
        ({"safe_check_mode": 0}, TypeError, "must be a fe.dynamicemb.DynamicEmbCheckMode, got 0"),
        (
            {"initializer_args": None},
            TypeError,
            "must be a fe.dynamicemb.DynamicEmbInitializerArgs",
        ),
        ({"dim": 0}, ValueError, "dim must be >= 1, got 0"),
        ({"max_capacity": -1}, ValueError, "max_capacity must be >= 1, got -1"),
        ({"init_capacity": 0}, ValueError, "init_capacity must be >= 1, got 0"),
        (
            {"init_capacity": 9, "max_capacity": 8},
            ValueError,
            "is above max_capacity = 8; lower it",
        ),
        ({"max_load_factor": 1.5}, ValueError, r"must be in \(0, 1\], got 1.5"),
        ({"bucket_capacity": 0}, ValueError, "bucket_capacity must be >= 1, got 0"),
        ({"block_size": 0}, ValueError, "block_size must be >= 1, got 0"),
        ({"io_block_size": 0}, ValueError, "io_block_size must be >= 1, got 0"),
        ({"num_of_buckets_per_alloc": 0}, ValueError, "must be >= 1, got 0"),
        ({"global_hbm_for_values": -1}, ValueError, "must be >= 0, got -1"),
        ({"local_hbm_for_values": -1}, ValueError, "must be >= 0, got -1"),
        ({"reserved_key_start_bit": -1}, ValueError, "must be >= 0, got -1"),
    ],
)
def test_wrong_options_are_refused(fields, error, message):
    with pytest.raises(error, match=message):
        Options(**fields)


def test_wrong_tables_and_initializers_are_refused():
    with pytest.raises(TypeError, match=r"mode must be a fe.dynamicemb.DynamicEmbInitializerMode"):
        Args(mode="uniform")
    with pytest.raises(ValueError, match="std_dev must be >= 0, got -1"):
        Args(std_dev=-1)
    with pytest.raises(ValueError, match=r"lower = 2.0 must be <= upper = 1.0; swap them"):
        Args(lower=2.0, upper=1.0)
    with pytest.raises(ValueError, match="neither num_embeddings nor max_capacity is given"):
        demb.make_table("t", Options(dim=DIM))
    with pytest.raises(ValueError, match=r"options.dim is None, .* pass dim"):
        demb.make_table("t", Options())
    with pytest.raises(TypeError, match=r"options must be a fe.dynamicemb.DynamicEmbTableOptions"):
        demb.make_table("t", {"dim": 4})
    with pytest.raises(ValueError, match="num_embeddings must be > 0 or None, got 0"):
        demb.make_table("t", Options(dim=DIM), num_embeddings=0)


def test_the_page_and_the_docstrings(tmp_path, monkeypatch):
    namespace = run_page("dynamicemb.md", tmp_path, monkeypatch)
    assert namespace["keys"].tolist() == [7, 1 << 40]
    np.testing.assert_array_equal(namespace["values"], namespace["model"].users.export().values)
    results = doctest.testmod(table_module, extraglobs={"fe": fe, "tf": tf})
    assert (results.attempted, results.failed) == (3, 0)
