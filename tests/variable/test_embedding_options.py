import dataclasses
import doctest
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from fused_embedding.variable import initializers as initializers_module
from fused_embedding.variable import options, storage_options
from fused_embedding.variable.initializers import stable_seed
from fused_embedding.variable.options import from_config, table_attributes, to_config

tf1 = tf.compat.v1
initializers = tf.keras.initializers


def attributes(initializer=None, name="table", graph_seed=None, dim=4, dtype=tf.float32, **option):
    option.setdefault("init_option", fe.InitializerOption(default_value_dim=6))
    option = fe.EmbeddingVariableOption(**option)
    return table_attributes(option, initializer, name, graph_seed, dim, dtype)


def test_defaults_are_deeprecs():
    defaults = {
        fe.EmbeddingVariableOption: dict(
            ht_type="",
            ht_partition_num=1000,
            evict_option=None,
            ckpt=None,
            filter_option=None,
            storage_option=fe.StorageOption(),
            init_option=fe.InitializerOption(),
        ),
        fe.InitializerOption: dict(
            initializer=None, default_value_dim=4096, default_value_no_permission=0.0
        ),
        fe.CounterFilter: dict(filter_freq=0),
        fe.CBFFilter: dict(
            filter_freq=0,
            max_element_size=0,
            false_positive_probability=-1.0,
            counter_type=tf.uint64,
        ),
        fe.GlobalStepEvict: dict(steps_to_live=None),
        fe.L2WeightEvict: dict(l2_weight_threshold=-1.0),
        fe.CheckpointOption: dict(
            ckpt_to_load_from=None,
            tensor_name_in_ckpt=None,
            always_load_from_specific_ckpt=False,
            init_data_source=None,
        ),
        fe.StorageOption: dict(
            storage_type=None,
            storage_path=None,
            storage_size=(1 << 30,),
            cache_strategy=fe.CacheStrategy.LFU,
            layout=None,
        ),
    }
    for kind, fields in defaults.items():
        names = [field.name for field in dataclasses.fields(kind) if not field.kw_only]
        assert names == list(fields), kind  # positional, in DeepRec's order
        option = kind()
        assert {name: getattr(option, name) for name in names} == fields, kind


def test_numbers_of_other_types_make_the_same_option():
    assert fe.CounterFilter(np.int32(3)) == fe.CounterFilter(3.0) == fe.CounterFilter(3)
    option = fe.EmbeddingVariableOption(max_capacity=1e6)
    assert isinstance(option.max_capacity, int)
    assert option.max_capacity == 1000000


ERRORS = {
    "dim": (
        ValueError,
        "default_value_dim must be > 0, got 0",
        fe.InitializerOption,
        {"default_value_dim": 0},
    ),
    "freq": (ValueError, "filter_freq must be >= 0, got -1", fe.CounterFilter, {"filter_freq": -1}),
    "cbf freq": (ValueError, "filter_freq must be >= 0", fe.CBFFilter, {"filter_freq": -1}),
    "probability": (
        ValueError,
        r"false_positive_probability must be in \(0, 1\), or -1",
        fe.CBFFilter,
        {"filter_freq": 2, "max_element_size": 9, "false_positive_probability": 0.0},
    ),
    "certainty": (
        ValueError,
        r"false_positive_probability must be in \(0, 1\), .* got 1.0",
        fe.CBFFilter,
        {"filter_freq": 2, "max_element_size": 9, "false_positive_probability": 1.0},
    ),
    "no probability": (
        ValueError,
        "max_element_size = 9 .* needs both",
        fe.CBFFilter,
        {"filter_freq": 2, "max_element_size": 9},
    ),
    "no size": (
        ValueError,
        "max_element_size = 0 .* needs both",
        fe.CBFFilter,
        {"filter_freq": 2, "false_positive_probability": 0.1},
    ),
    "size": (ValueError, "max_element_size must be >= 0", fe.CBFFilter, {"max_element_size": -1}),
    "steps": (ValueError, "steps_to_live must be >= 0", fe.GlobalStepEvict, {"steps_to_live": -1}),
    "freq too large": (
        ValueError,
        r"filter_freq must be less than 2\^63, got 9223372036854775808",
        fe.CounterFilter,
        {"filter_freq": 2**63},
    ),
    "freq type": (
        TypeError,
        "filter_freq must be an integer, got '3'",
        fe.CounterFilter,
        {"filter_freq": "3"},
    ),
    "steps type": (
        TypeError,
        "steps_to_live must be an integer, got 0.5",
        fe.GlobalStepEvict,
        {"steps_to_live": 0.5},
    ),
    "norm": (
        ValueError,
        "l2_weight_threshold must be a number, got nan",
        fe.L2WeightEvict,
        {"l2_weight_threshold": float("nan")},
    ),
    "norm type": (
        TypeError,
        "l2_weight_threshold must be a number, got '1'",
        fe.L2WeightEvict,
        {"l2_weight_threshold": "1"},
    ),
    "capacity type": (
        TypeError,
        "max_capacity must be an integer, got 1.5",
        fe.EmbeddingVariableOption,
        {"max_capacity": 1.5},
    ),
    "evict": (
        TypeError,
        "evict_option must be one of fe.GlobalStepEvict, fe.L2WeightEvict, None, got 5",
        fe.EmbeddingVariableOption,
        {"evict_option": 5},
    ),
    "filter": (TypeError, "filter_option must", fe.EmbeddingVariableOption, {"filter_option": 3}),
    "ckpt": (TypeError, "ckpt must", fe.EmbeddingVariableOption, {"ckpt": "path"}),
    "storage": (
        TypeError,
        "storage_option must",
        fe.EmbeddingVariableOption,
        {"storage_option": fe.StorageType.DRAM},
    ),
    "init": (TypeError, "init_option must", fe.EmbeddingVariableOption, {"init_option": None}),
    "capacity": (
        ValueError,
        "max_capacity must be > 0, got 0",
        fe.EmbeddingVariableOption,
        {"max_capacity": 0},
    ),
    "eviction": (
        ValueError,
        "eviction must be 'lru', 'lfu', a CacheStrategy, or None, got 'fifo'",
        fe.EmbeddingVariableOption,
        {"max_capacity": 5, "eviction": "fifo"},
    ),
    "unbounded": (
        ValueError,
        "eviction = 'lru' was given without max_capacity",
        fe.EmbeddingVariableOption,
        {"eviction": "lru"},
    ),
    "mode": (
        ValueError,
        "check_mode must be one of error, warning, ignore, got 'log'",
        fe.EmbeddingVariableOption,
        {"check_mode": "log"},
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_wrong_option_is_an_error(case):
    error, message, kind, arguments = ERRORS[case]
    with pytest.raises(error, match=message):
        kind(**arguments)


def test_an_unknown_option_is_an_error():
    with pytest.raises(TypeError, match="steps_to_live"):
        fe.EmbeddingVariableOption(steps_to_live=5)


KNOWN = {
    "default": (None, "truncated_normal", 0.0, 0.5),
    "zeros": (tf.zeros_initializer(), "constant", 0.0, 0.0),
    "zeros class": (tf.zeros_initializer, "constant", 0.0, 0.0),
    "zeros v1": (tf1.zeros_initializer(), "constant", 0.0, 0.0),
    "zeros keras": (initializers.Zeros(), "constant", 0.0, 0.0),
    "ones": (tf.ones_initializer(), "constant", 1.0, 0.0),
    "ones v1, dtype": (tf1.ones_initializer(tf.float32), "constant", 1.0, 0.0),
    "ones keras": (initializers.Ones(), "constant", 1.0, 0.0),
    "constant": (tf.constant_initializer(2), "constant", 2.0, 0.0),
    "constant v1": (tf1.constant_initializer(2.0), "constant", 2.0, 0.0),
    "constant keras": (initializers.Constant(2.0), "constant", 2.0, 0.0),
    "number": (3, "constant", 3.0, 0.0),
    "numpy number": (np.float32(0.25), "constant", 0.25, 0.0),
    "uniform": (tf.random_uniform_initializer(-1, 2), "uniform", -1.0, 2.0),
    "uniform v1": (tf1.random_uniform_initializer(), "uniform", 0.0, 1.0),
    "uniform keras": (initializers.RandomUniform(), "uniform", -0.05, 0.05),
    "normal": (tf.random_normal_initializer(1.0, 0.5), "normal", 1.0, 0.5),
    "normal v1": (tf1.random_normal_initializer(), "normal", 0.0, 1.0),
    "normal keras": (initializers.RandomNormal(), "normal", 0.0, 0.05),
    "truncated v1": (tf1.truncated_normal_initializer(0, 2), "truncated_normal", 0.0, 2.0),
    "truncated keras": (initializers.TruncatedNormal(), "truncated_normal", 0.0, 0.05),
    "debug": (fe.DebugInitializer(), "debug", 0.0, 0.0),
}


@pytest.mark.parametrize("case", KNOWN)
def test_stock_initializers_are_computed_in_the_table(case):
    initializer, kind, a, b = KNOWN[case]
    got = attributes(initializer)
    assert (got["initializer"], got["initializer_a"], got["initializer_b"]) == (kind, a, b)
    assert got["initializer_matrix"].shape == (0,)


def test_a_class_of_the_user_is_not_taken_for_stock():
    class Zeros(tf.zeros_initializer):
        def __call__(self, shape, dtype=None, **kwargs):
            return tf.fill(shape, 7.0)

    got = attributes(Zeros())
    assert got["initializer"] == "matrix"
    np.testing.assert_array_equal(got["initializer_matrix"], np.full([6, 4], 7.0))


ROW = [1.0, 2.0, 3.0, 4.0]
ROWS = [ROW, [5.0, 6.0, 7.0, 8.0]]


@pytest.mark.parametrize("value", [ROW, np.array(ROW), tf1.constant_initializer(ROW), ROWS])
def test_arrays_are_rows(value):
    got = attributes(value)
    want = np.reshape(ROWS if value is ROWS else ROW, [-1, 4])
    assert got["initializer"] == "matrix"
    np.testing.assert_array_equal(got["initializer_matrix"], want)
    option = fe.InitializerOption(initializer=np.asarray(want))
    assert hash(option) == hash(fe.InitializerOption(initializer=want.tolist()))
    np.testing.assert_array_equal(attributes(init_option=option)["initializer_matrix"], want)


def ones_of_any_kind(shape, dtype, partition_info=None):
    assert partition_info is None
    return tf.ones(shape, dtype)


MATRICES = {
    "glorot": lambda: tf1.glorot_uniform_initializer(),
    "glorot keras": lambda: initializers.GlorotNormal(),
    "orthogonal": lambda: initializers.Orthogonal(),
    "variance": lambda: tf1.variance_scaling_initializer(),
    "function": lambda: lambda shape, dtype: tf.random.uniform(shape, dtype=dtype),
    "seeded": lambda: initializers.HeUniform(seed=5),
}


@pytest.mark.parametrize("case", MATRICES)
def test_other_initializers_run_once_and_repeatably(case):
    with tf.Graph().as_default() as graph:
        first, again = (attributes(MATRICES[case]())["initializer_matrix"] for _ in range(2))
        other = attributes(MATRICES[case](), name="other")["initializer_matrix"]
        assert not graph.get_operations()
    assert first.shape == (6, 4)
    assert len(np.unique(first)) == 24
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) == (case == "seeded")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_matrix_has_the_tables_type(dtype):
    matrix = attributes(ones_of_any_kind, dtype=dtype)["initializer_matrix"]
    assert matrix.dtype == tf.as_dtype(dtype).as_numpy_dtype
    np.testing.assert_array_equal(matrix.astype(np.float32), np.ones([6, 4]))


def test_wrong_initializers_are_errors():
    with pytest.raises(ValueError, match=r"shape \[6, 4\] and returned \[6\]; it must return"):
        attributes(lambda shape, dtype: tf.zeros(shape[:1], dtype))
    with pytest.raises(ValueError, match=r"array of shape \[3\], but first values must be \[4\]"):
        attributes([1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="initializer must be an initializer, a number or an array"):
        attributes("zeros")
    with pytest.raises(NotImplementedError, match=r"only an EmbeddingVariable has keys"):
        fe.DebugInitializer()([2, 2])


def test_the_options_initializer_wins_with_a_warning(monkeypatch):
    warnings = []
    monkeypatch.setattr("absl.logging.warning", lambda text, *args: warnings.append(text % args))
    option = fe.InitializerOption(initializer=tf.ones_initializer())
    assert attributes(tf.zeros_initializer(), init_option=option)["initializer_a"] == 1.0
    assert len(warnings) == 1
    assert "table has an initializer" in warnings[0]
    assert attributes(init_option=option)["initializer_a"] == 1.0
    assert len(warnings) == 1


def test_seeds_depend_on_name_and_seeds_alone():
    program = (
        "import tensorflow as tf; from fused_embedding.variable.initializers import stable_seed;"
        "print(stable_seed('table', 7))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) == stable_seed("table", 7) == attributes(graph_seed=7)["seed"]
    seeded = initializers.RandomNormal(seed=3)
    seeds = [
        attributes()["seed"],
        attributes(name="other")["seed"],
        attributes(graph_seed=7)["seed"],
        attributes(seeded)["seed"],
        attributes(seeded, graph_seed=7)["seed"],
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert (
        attributes(seeded, name="other")["seed"] == seeds[3]
    )  # as two tf.Variables would be equal


@pytest.mark.parametrize(("size", "probability"), [(1000, 0.01), (10**6, 0.3), (50, 1e-9)])
def test_a_bloom_filter_is_sized_for_its_probability(size, probability):
    option = fe.CBFFilter(3, size, probability)
    m, k = option.num_counters, option.num_hashes
    assert 1 <= k <= 16
    # The textbook rate of false positives; 30 % for rounding k, more where k is cut off at 16.
    rate = (1 - math.exp(-k * size / m)) ** k
    assert rate <= probability * 1.3 or (k == 16 and rate < 2**-15)
    got = attributes(filter_option=option)
    assert (got["admission"], got["min_frequency"]) == ("bloom", 3)
    assert (got["bloom_counters"], got["bloom_hashes"]) == (m, k)


ADMISSIONS = [
    (None, "all", 0),
    (fe.CounterFilter(), "all", 0),
    (fe.CounterFilter(4), "counter", 4),
    (fe.CBFFilter(0, 100, 0.1), "all", 0),
    (fe.CBFFilter(5), "counter", 5),
]


@pytest.mark.parametrize(("option", "admission", "min_frequency"), ADMISSIONS)
def test_filters_become_admissions(option, admission, min_frequency):
    got = attributes(filter_option=option)
    assert (got["admission"], got["min_frequency"]) == (admission, min_frequency)
    assert got["bloom_counters"] == got["bloom_hashes"] == 0


@pytest.mark.parametrize("eviction", ["lru", "lfu", fe.CacheStrategy.LRU, None])
def test_bounds_become_attributes(eviction):
    got = attributes(max_capacity=10, eviction=eviction, check_mode="ignore")
    assert got["max_capacity"] == 10
    assert got["eviction"] == {None: "none", fe.CacheStrategy.LRU: "lru"}.get(eviction, eviction)
    assert got["check_mode"] == "ignore"
    unbounded = attributes()
    assert (unbounded["max_capacity"], unbounded["eviction"]) == (0, "none")
    assert unbounded["check_mode"] == "error"


def test_other_fields_become_attributes():
    init = fe.InitializerOption(default_value_no_permission=0.5)
    got = attributes(init_option=init, dim=3, dtype="float64")
    assert got["no_permission_value"] == 0.5
    assert (got["dim"], got["dtype"]) == (3, tf.float64)


def test_expiry_is_read_from_either_option():
    by_steps = fe.EmbeddingVariableOption(evict_option=fe.GlobalStepEvict(5))
    by_norm = fe.EmbeddingVariableOption(evict_option=fe.L2WeightEvict(0.25))
    neither = fe.EmbeddingVariableOption()
    assert [option.steps_to_live for option in (by_steps, by_norm, neither)] == [5, 0, 0]
    norms = [option.l2_weight_threshold for option in (by_steps, by_norm, neither)]
    assert norms == [-1.0, 0.25, -1.0]


def test_options_survive_json():
    option = fe.EmbeddingVariableOption(
        evict_option=fe.GlobalStepEvict(9),
        filter_option=fe.CBFFilter(2, 100, 0.1, tf.uint8),
        storage_option=fe.StorageOption(fe.StorageType.DRAM, storage_size=[1, 2]),
        init_option=fe.InitializerOption([[1.0, 2.0], [3.0, 4.0]], default_value_no_permission=0.5),
        max_capacity=7,
        eviction=fe.CacheStrategy.LFU,
        check_mode="warning",
    )
    config = json.loads(json.dumps(to_config(option, None)))
    assert from_config(config, None) == option
    assert hash(from_config(config, None)) == hash(option)
    with_debug = fe.EmbeddingVariableOption(init_option=fe.InitializerOption(fe.DebugInitializer()))
    config = json.loads(json.dumps(to_config(with_debug, lambda value: type(value).__name__)))
    assert from_config(config, {"DebugInitializer": fe.DebugInitializer()}.get) == with_debug


@pytest.mark.parametrize("module", [options, storage_options, initializers_module])
def test_examples_of_the_docstrings(module):
    results = doctest.testmod(module, extraglobs={"fe": fe})
    assert results.attempted > 0
    assert not results.failed
