"""Handle, lookup, upsert, erase, expire, metadata and statistics. Sequences are in tests/table."""

import numpy as np
import pytest
import tensorflow as tf
from table_cases import (
    DIM,
    export,
    int64,
    lookup,
    make_table,
    metadata,
    size,
    statistics,
    upsert,
    values_of,
)

from checking import VALUE_DTYPES, assert_same_bits, dtype_name
from fused_embedding import raw_ops
from fused_embedding.variable.embedding_variable import STATISTICS, TIER_STATISTICS
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

InvalidArgumentError = tf.errors.InvalidArgumentError
EXTREME_KEYS = [0, -1, 1, INT64_MIN, INT64_MAX, INT64_MIN + 1, INT64_MAX - 1, 1 << 32, -(1 << 32)]


def debug_rows(keys, dtype=tf.float64):
    return tf.cast(np.repeat([[key % 100_000] for key in keys], DIM, axis=1), dtype).numpy()


# --- Lookup ---


@pytest.mark.parametrize("insert", [True, False])
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_every_int64_is_a_key(dtype, insert):
    table = make_table(dtype)
    for _ in range(2):
        got = lookup(table, EXTREME_KEYS, insert=insert, dtype=dtype).embeddings
        assert got.dtype == dtype
        assert_same_bits(got, debug_rows(EXTREME_KEYS, dtype))
    assert size(table) == len(EXTREME_KEYS) * insert
    assert export(table, dtype).keys.numpy().tolist() == sorted(EXTREME_KEYS) * insert


def test_no_keys():
    table = make_table()
    for insert in (True, False):
        embeddings, handles = lookup(table, [], insert=insert)
        assert (embeddings.shape, handles.shape) == ((0, DIM), (0,))
    assert size(table) == 0


def test_counts_and_steps_are_kept():
    table = make_table()
    lookup(table, [5, 6, 7], [2, 0, 1], step=10)
    lookup(table, [5, 8], step=9)
    assert metadata(table, [5, 6, 7, 8, 9]) == ([3, 0, 1, 1, 0], [9, 10, 10, 9, -1])


def test_a_step_below_zero_is_the_tables_own():
    table = make_table()
    lookup(table, [1], step=-(2**40))
    assert metadata(table, [1]) == ([1], [0])


def test_counters_saturate():
    table = make_table()
    for _ in range(3):
        lookup(table, [1], [2**31 - 1], step=2**62)
    assert metadata(table, [1]) == ([2**32 - 1], [2**32 - 2])


def test_evaluation_changes_nothing():
    table = make_table()
    lookup(table, [1, 2], [5, 6], step=3)
    before = export(table)
    embeddings, handles = lookup(table, [2, 9], insert=False, step=8)
    assert_same_bits(embeddings, debug_rows([2, 9], tf.float32))
    assert handles.numpy()[1] == -1
    for name, got in export(table)._asdict().items():
        np.testing.assert_array_equal(got, getattr(before, name), name)


def test_a_key_twice_is_counted_twice():
    table = make_table(admission="counter", min_frequency=2)
    lookup(table, [4, 4])
    assert metadata(table, [4]) == ([2], [0])
    assert size(table) == 1


@pytest.mark.parametrize("admission", ["counter", "bloom"])
def test_filters_admit_at_their_frequency(admission):
    bloom = {"bloom_counters": 10_000, "bloom_hashes": 4} if admission == "bloom" else {}
    table = make_table(admission=admission, min_frequency=5, no_permission_value=-2.5, **bloom)
    no_row = np.full([1, DIM], -2.5, np.float32)
    for count, wanted in [(2, no_row), (0, no_row), (2, no_row), (1, debug_rows([7], tf.float32))]:
        np.testing.assert_array_equal(values_of(table, [7]), no_row)
        np.testing.assert_array_equal(lookup(table, [7], [count]).embeddings, wanted)
    assert metadata(table, [7]) == ([5], [0])
    assert statistics(table)["not_admitted"] == 3


def test_handles_name_rows():
    table = make_table()
    keys = list(range(1000))
    handles = lookup(table, keys).handles.numpy()
    assert len(set(handles)) == 1000
    assert min(handles) >= 0
    np.testing.assert_array_equal(lookup(table, keys).handles, handles)


@pytest.mark.parametrize("size", [1, 127, 128, 129, 5_000, 100_000])
def test_batches_of_any_size(size):
    table = make_table()
    keys = np.random.default_rng(size).permutation(size) - size // 2
    for _ in range(2):
        assert_same_bits(lookup(table, keys).embeddings, debug_rows(keys, tf.float32))
    frequencies, versions = metadata(table, keys)
    assert set(frequencies) == {2}
    assert set(versions) == {0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": [[1]]}, "keys"),
        ({"keys": 1}, "keys"),
        ({"keys": [1, 2], "counts": [1]}, "counts .* each of the 2 keys, got 1"),
        ({"keys": [1], "counts": [-1]}, r"counts must not be negative, got counts\[0\] = -1"),
        ({"keys": [1], "counts": [[1]]}, "counts"),
        ({"keys": [1], "step": [1]}, "step"),
        ({"keys": [1], "dtype": tf.float64}, "dtype is double, but the table holds float"),
    ],
)
def test_wrong_lookups_change_nothing(arguments, message):
    table = make_table()
    with pytest.raises(InvalidArgumentError, match=message):
        lookup(table, **arguments)
    assert size(table) == 0


# --- Upsert, erase, expire ---


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_upsert_sets_and_inserts(dtype):
    table = make_table(dtype, admission="counter", min_frequency=9)
    upsert(table, [1], [[1, 1, 1]], dtype)
    lookup(table, [1], [4], step=6, dtype=dtype)
    upsert(table, [2, 1, INT64_MIN], [[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype)
    got = values_of(table, [1, 2, INT64_MIN], dtype)
    np.testing.assert_array_equal(got.astype(np.float64), [[4, 5, 6], [1, 2, 3], [7, 8, 9]])
    assert metadata(table, [1, 2]) == ([4, 0], [6, 0])


def test_of_a_key_that_is_set_twice_the_last_counts():
    table = make_table()
    upsert(table, [1, 2, 1], [[1] * 3, [2] * 3, [3] * 3])
    np.testing.assert_array_equal(values_of(table, [1, 2]), [[3] * 3, [2] * 3])


@pytest.mark.parametrize("values", [[[1.0] * 3], [[1.0] * 2] * 2, [1.0] * 2, [[[1.0] * 3] * 2]])
def test_upsert_rejects_other_shapes(values):
    table = make_table()
    with pytest.raises(InvalidArgumentError, match=r"values must have shape \[2, 3\]"):
        upsert(table, [1, 2], values)
    with pytest.raises(InvalidArgumentError, match="values is double, but the table holds float"):
        upsert(table, [1, 2], [[1.0] * 3] * 2, tf.float64)
    assert size(table) == 0


def erase(table, keys):
    return int(raw_ops.EmbeddingVariableErase(resource=table, keys=int64(keys)))


def test_erase_removes_rows_and_counts():
    table = make_table(admission="counter", min_frequency=2)
    lookup(table, [1, 2, 3], [2, 2, 1])
    assert erase(table, [1, 1, 3, 99]) == 1
    assert export(table).keys.numpy().tolist() == [2]
    assert statistics(table)["filtered"] == 0
    lookup(table, [3])
    assert metadata(table, [3]) == ([0], [-1])


def test_erased_rows_are_used_again_and_start_anew():
    table = make_table()
    keys = list(range(3000))
    lookup(table, keys)
    memory = statistics(table)["memory_bytes"]
    for _ in range(5):
        upsert(table, keys, np.ones([3000, 3]))
        assert erase(table, keys) == 3000
        assert_same_bits(lookup(table, keys).embeddings, debug_rows(keys, tf.float32))
    assert statistics(table)["memory_bytes"] == memory


def expire(table, step=-1, steps_to_live=0, l2_weight_threshold=0.0):
    return int(
        raw_ops.EmbeddingVariableExpire(
            resource=table,
            step=tf.constant(step, tf.int64),
            steps_to_live=tf.constant(steps_to_live, tf.int64),
            l2_weight_threshold=tf.constant(l2_weight_threshold, tf.float64),
        )
    )


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({}, [3, 4, 5]),
        ({"step": 20, "steps_to_live": 0}, [3, 4, 5]),
        ({"step": 20, "steps_to_live": -1}, [3, 4, 5]),
        ({"step": 20, "steps_to_live": 10}, [4, 5]),
        ({"step": 20, "steps_to_live": 11}, [3, 4, 5]),
        ({"step": 5, "steps_to_live": 1}, [3, 4, 5]),  # a step back ages nothing
        ({"step": INT64_MAX, "steps_to_live": 1}, []),
        ({"step": INT64_MAX, "steps_to_live": INT64_MAX}, [3, 4, 5]),
        ({"step": INT64_MIN, "steps_to_live": 1}, [3, 4, 5]),
        ({"l2_weight_threshold": 4 * np.sqrt(3)}, [4, 5]),
        ({"l2_weight_threshold": 4 * np.sqrt(3) + 0.01}, [5]),
        ({"l2_weight_threshold": -1.0}, [3, 4, 5]),
        ({"l2_weight_threshold": np.inf}, []),
        ({"l2_weight_threshold": np.nan}, [3, 4, 5]),
    ],
)
def test_expire(arguments, kept):
    table = make_table()
    lookup(table, [3], step=9)
    lookup(table, [4, 5], step=10)
    assert expire(table, **arguments) == 3 - len(kept)
    assert export(table).keys.numpy().tolist() == kept
    assert statistics(table)["expirations"] == 3 - len(kept)


def test_expire_forgets_old_counts():
    table = make_table(admission="counter", min_frequency=3)
    lookup(table, [1], [2], step=1)
    lookup(table, [2], [2], step=5)
    assert expire(table, step=6, steps_to_live=3) == 0
    lookup(table, [1, 2], step=6)
    assert export(table).keys.numpy().tolist() == [2]


# --- Statistics and metadata ---


def test_statistics_count():
    table = make_table(admission="counter", min_frequency=2, max_capacity=2, check_mode="ignore")
    lookup(table, [1, 2], [2, 2])
    lookup(table, [1, 3, 4], [1, 2, 1])
    lookup(table, [1, 5], insert=False)
    erase(table, [1])
    expire(table, step=9, steps_to_live=1)
    got = statistics(table)
    assert tuple(got) == STATISTICS  # a graph has to know the names before the op runs
    assert got.pop("memory_bytes") > 0
    assert got.pop("index_probes") > 0
    assert {name: got.pop(name) for name in TIER_STATISTICS} == dict.fromkeys(TIER_STATISTICS, 0)
    assert got == {
        "size": 0,
        "filtered": 0,
        "hits": 2,
        "misses": 5,
        "inserts": 2,
        "refusals": 1,
        "not_admitted": 1,
        "evictions": 0,
        "expirations": 1,
        "erasures": 1,
    }


def test_a_lookup_probes_once_for_each_key():
    table = make_table()
    for insert in (True, True, False):
        before = statistics(table)["index_probes"]
        lookup(table, range(1000), insert=insert)
        assert statistics(table)["index_probes"] - before == 1000


# --- Handles ---


def test_a_name_is_a_table():
    table = make_table(shared_name="one")
    lookup(table, [1])
    assert size(make_table(shared_name="one")) == 1
    assert size(make_table(shared_name="another")) == 0


@pytest.mark.parametrize(
    "attrs",
    [
        {"dim": 4},
        {"dtype": tf.float64},
        {"initializer": "constant"},
        {"initializer_a": 1.0},
        {"seed": 3},
        {"admission": "counter", "min_frequency": 2},
        {"max_capacity": 5},
        {"check_mode": "ignore"},
        {"no_permission_value": 1.0},
    ],
)
def test_one_name_with_other_options_is_an_error(attrs):
    name = f"options_{sorted(attrs)}"
    table = make_table(shared_name=name)
    with pytest.raises(InvalidArgumentError, match=r"exists as .* and is asked for as"):
        make_table(shared_name=name, **attrs)
    lookup(table, [1])


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"dim": 0}, "embedding_dim must be in"),
        ({"dim": -5}, "embedding_dim must be in"),
        ({"dim": INT64_MAX}, "embedding_dim must be in"),
        ({"max_capacity": -1}, "max_capacity"),
        ({"eviction": "lru"}, "eviction policy needs max_capacity"),
        ({"admission": "bloom", "min_frequency": 2}, "Bloom filter needs at least one counter"),
        ({"admission": "bloom", "min_frequency": 2, "bloom_counters": 9}, "1 to 16 hashes"),
        (
            {
                "admission": "bloom",
                "min_frequency": 70_000,
                "bloom_counters": 9,
                "bloom_hashes": 2,
            },
            "min_frequency",
        ),
        ({"admission": "counter", "min_frequency": -1}, "min_frequency"),
        ({"initializer": "uniform", "initializer_a": 1.0, "initializer_b": 0.0}, "uniform"),
        ({"initializer": "normal", "initializer_b": -1.0}, "normal"),
        ({"initializer": "constant", "initializer_a": float("nan")}, "finite"),
        ({"initializer": "matrix"}, "matrix"),
        ({"initializer": "matrix", "initializer_matrix": b"12345"}, "matrix"),
        ({"initializer": "zipf"}, "initializer"),
        ({"dtype": tf.int32}, "dtype"),
    ],
)
def test_wrong_attrs_are_errors(attrs, message):
    with pytest.raises((InvalidArgumentError, TypeError), match=message):
        make_table(**attrs)


def test_a_filter_that_no_memory_holds_is_an_error():
    bloom = {"bloom_counters": INT64_MAX, "bloom_hashes": 3}
    with pytest.raises((InvalidArgumentError, tf.errors.ResourceExhaustedError), match="Bloom"):
        make_table(admission="bloom", min_frequency=2, **bloom)


OPS = {
    "EmbeddingVariableLookup": {
        "keys": int64([1]),
        "counts": np.zeros(0, np.int32),
        "step": tf.constant(0, tf.int64),
        "insert": True,
        "dtype": tf.float32,
    },
    "EmbeddingVariableUpsert": {"keys": int64([1]), "values": np.ones([1, 3], np.float32)},
    "EmbeddingVariableErase": {"keys": int64([1])},
    "EmbeddingVariableExpire": {
        "step": tf.constant(0, tf.int64),
        "steps_to_live": tf.constant(0, tf.int64),
        "l2_weight_threshold": tf.constant(0.0, tf.float64),
    },
    "EmbeddingVariableMetadata": {"keys": int64([1])},
    "EmbeddingVariableStatistics": {},
    "EmbeddingVariableSeed": {},
    "EmbeddingVariableInitialize": {},
    "EmbeddingVariableIsInitialized": {},
    "EmbeddingVariableApply": {
        "keys": [int64([1])],
        "handles": [int64([])],
        "grads": [np.ones([1, 3], np.float32)],
        "hyperparameters": [np.array([0.5])],
        "rule": "sgd",
        "slot_prefixes": ["SGD"],
    },
    "EmbeddingVariableGroupLookup": {
        "sp_values": [int64([1])],
        "sp_indices": [int64([[0, 0]])],
        "sp_dense_shapes": [int64([1, 1])],
        "sp_weights": [],
        "step": tf.constant(0, tf.int64),
        "insert": True,
        "dtype": tf.float32,
        "num_outputs": 1,
        "table_of_column": [0],
        "weighted_columns": [],
        "combiners": ["sum"],
        "max_norms": [-1.0],
        "default_ids": [-1],
    },
    "EmbeddingVariableExport": {"dtype": tf.float32, "slot_dtype": tf.float32},
    "EmbeddingVariableSave": {"path": "/nowhere/table"},
    "EmbeddingVariableSaveIncrement": {
        "path": "/nowhere/table",
        "base_paths": tf.constant([], tf.string),
        "link_paths": tf.constant([], tf.string),
    },
    "EmbeddingVariableRestore": {"paths": ["/nowhere/table"]},
}


# Those that take a list of tables.
OF_TABLES = ("EmbeddingVariableApply", "EmbeddingVariableGroupLookup")


def call(op, table, arguments):
    handles = {"resources": [table]} if op in OF_TABLES else {"resource": table}
    return getattr(raw_ops, op)(**handles, **arguments)


@pytest.mark.parametrize("op", OPS)
def test_a_handle_of_another_resource_is_an_error(op):
    with pytest.raises(InvalidArgumentError, match="resource"):
        call(op, tf.Variable([1.0]).handle, OPS[op])


@pytest.mark.parametrize("op", OPS)
def test_a_deleted_table_is_an_error_that_says_so(op):
    table = make_table()
    lookup(table, [1])
    tf.raw_ops.DestroyResourceOp(resource=table)
    with pytest.raises(tf.errors.NotFoundError, match="does not exist: it was deleted"):
        call(op, table, OPS[op])


# --- Shape functions ---


def shapes_of(op, *specs, **attrs):
    """Static shapes of an op's outputs for inputs of these shapes and types."""

    @tf.function
    def traced(*inputs):
        table = make_table()
        names = [name for name, value in OPS[op].items() if not isinstance(value, bool | str)]
        arguments = OPS[op] | dict(zip(names, inputs, strict=False)) | attrs
        outputs = call(op, table, arguments)
        return [] if isinstance(outputs, tf.Operation) else outputs

    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in specs]
    outputs = traced.get_concrete_function(*specs).outputs
    return [None if out.shape.rank is None else out.shape.as_list() for out in outputs]


INT64_VECTOR = ([None], tf.int64)


@pytest.mark.parametrize(("keys", "want"), [([None], [None]), ([4], [4]), (None, [None])])
def test_shapes_of_a_lookup(keys, want):
    got = shapes_of("EmbeddingVariableLookup", (keys, tf.int64))
    assert got == [[*want, DIM], want]


def test_shapes_of_the_others():
    assert shapes_of("EmbeddingVariableErase", INT64_VECTOR) == [[]]
    assert shapes_of("EmbeddingVariableExpire", ([], tf.int64)) == [[]]
    assert shapes_of("EmbeddingVariableMetadata", ([4], tf.int64)) == [[4], [4]]
    assert shapes_of("EmbeddingVariableStatistics") == [[None], [None]]
    assert shapes_of("EmbeddingVariableSeed") == [[]]
    assert shapes_of("EmbeddingVariableIsInitialized") == [[]]


@pytest.mark.parametrize(
    ("op", "specs"),
    [
        ("EmbeddingVariableLookup", [([2, 2], tf.int64)]),
        ("EmbeddingVariableLookup", [INT64_VECTOR, ([], tf.int32)]),
        ("EmbeddingVariableLookup", [INT64_VECTOR, ([None], tf.int32), ([1], tf.int64)]),
        ("EmbeddingVariableUpsert", [([], tf.int64)]),
        ("EmbeddingVariableUpsert", [INT64_VECTOR, ([3], tf.float32)]),
        ("EmbeddingVariableUpsert", [([2], tf.int64), ([3, 3], tf.float32)]),
        ("EmbeddingVariableErase", [([1, 1], tf.int64)]),
        ("EmbeddingVariableExpire", [([1], tf.int64)]),
        ("EmbeddingVariableMetadata", [([1, 1], tf.int64)]),
    ],
)
def test_shape_functions_reject_other_ranks(op, specs):
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        shapes_of(op, *specs)
