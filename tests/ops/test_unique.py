import itertools

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import fused_embedding as fe
import oracle.lookup
from checking import dtype_name
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

pytestmark = pytest.mark.usefixtures("device")

TYPES = [*itertools.product((tf.int32, tf.int64), repeat=2)]
CASES = {
    "no_ids": [],
    "one": [5],
    "all_equal": [3] * 9,
    "all_different": [5, 4, 3, 2],
    "duplicates": [7, -2, 7, 0, -2, 7],
}


def run(ids, key_type=tf.int64, counter_type=tf.int32):
    return fe.raw_ops.UniqueWithCountsV3(input=tf.constant(ids, key_type), CounterType=counter_type)


def assert_matches_oracle(ids, key_type=tf.int64, counter_type=tf.int32):
    got = run(ids, key_type, counter_type)
    want = oracle.lookup.unique_with_counts(ids)
    assert [g.dtype for g in got] == [key_type, counter_type, counter_type]
    for name, g, w in zip(("keys", "idx", "counts"), got, want, strict=True):
        np.testing.assert_array_equal(g, w, name)


@pytest.mark.parametrize(("key_type", "counter_type"), TYPES, ids=dtype_name)
@pytest.mark.parametrize("ids", CASES.values(), ids=CASES.keys())
def test_matches_oracle(ids, key_type, counter_type):
    assert_matches_oracle(ids, key_type, counter_type)


@pytest.mark.parametrize("key_type", [tf.int32, tf.int64], ids=dtype_name)
def test_every_value_is_a_legal_id(key_type):
    low, high = key_type.min, key_type.max
    assert_matches_oracle([high, low, 0, -1, high, low + 1, high - 1, low], key_type)


@hypothesis.given(st.lists(st.integers(-3, 3) | st.integers(INT64_MIN, INT64_MAX), max_size=60))
def test_matches_oracle_on_random_input(ids):
    assert_matches_oracle(ids)


@pytest.mark.parametrize("limit", [1, 1000, 10**9, 2**62])
@pytest.mark.parametrize(("key_type", "counter_type"), TYPES, ids=dtype_name)
def test_properties_of_large_input(key_type, counter_type, limit):
    limit = min(limit, key_type.max)
    ids = np.random.default_rng(0).integers(-limit, limit, 100_000)
    keys, idx, counts = (t.numpy() for t in run(ids, key_type, counter_type))
    np.testing.assert_array_equal(keys[idx], ids)
    assert len(np.unique(keys)) == len(keys)
    np.testing.assert_array_equal(counts, np.bincount(idx, minlength=len(keys)))
    first_occurrence = np.unique(ids, return_index=True)[1]
    np.testing.assert_array_equal(keys, ids[np.sort(first_occurrence)])


def test_ids_with_equal_low_bits():
    assert_matches_oracle([k << 32 for k in range(300)] + [k << 48 for k in range(300)])


@pytest.mark.parametrize("ids", [5, [[1, 2]]])
def test_rejects_other_ranks(ids):
    with pytest.raises(tf.errors.InvalidArgumentError, match="input"):
        run(ids)


@pytest.mark.parametrize("shape", [[], [2, 2]])
def test_shape_function_rejects_other_ranks(shape):
    traced = tf.function(lambda ids: tuple(fe.raw_ops.UniqueWithCountsV3(input=ids)))
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function(tf.TensorSpec(shape, tf.int64))


@pytest.mark.parametrize(("ids", "idx"), [([None], [None]), ([3], [3]), (None, [None])])
def test_shapes(ids, idx):
    traced = tf.function(lambda ids: tuple(fe.raw_ops.UniqueWithCountsV3(input=ids)))
    outputs = traced.get_concrete_function(tf.TensorSpec(ids, tf.int64)).structured_outputs
    assert [o.shape.as_list() for o in outputs] == [[None], idx, [None]]
