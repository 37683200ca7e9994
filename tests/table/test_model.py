"""Random sequences of calls on a table and on a dict: everything visible agrees after each."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from table_driver import Pair

from checking import dtype_name

OPTIONS = {
    "plain": {},
    "counter": {"min_frequency": 3, "no_permission_value": 7.0},
    "bloom": {"min_frequency": 3, "is_bloom": True},
    "full": {"max_capacity": 5},
    "full_warning": {"max_capacity": 5, "check_mode": "warning"},
    "full_ignore": {"max_capacity": 5, "check_mode": "ignore"},
    "lru": {"max_capacity": 5, "eviction": "lru"},
    "lfu": {"max_capacity": 5, "eviction": "lfu", "check_mode": "ignore"},
    "counter_lru": {"min_frequency": 2, "max_capacity": 4, "eviction": "lru"},
    "counter_full": {"min_frequency": 2, "max_capacity": 4, "check_mode": "ignore"},
    "bloom_lfu": {"min_frequency": 2, "is_bloom": True, "max_capacity": 4, "eviction": "lfu"},
}
# Few enough to meet again, and of them all that an index could take for something else.
KEYS = st.integers(0, 7) | st.sampled_from([-1, -(2**63), 2**63 - 1, 2**32, 100_003])
BATCHES = st.lists(KEYS, unique=True, max_size=8)
STEPS = st.integers(-1, 12)


def rows(n, draw_int):
    return np.array([[draw_int(), draw_int()] for _ in range(n)], np.float64).reshape(n, 2) / 4


@st.composite
def calls(draw):
    """Name of a method of Pair and its arguments."""
    name = draw(
        st.sampled_from(
            [*["lookup"] * 4, *["momentum"] * 2, "find", "upsert", "erase", "expire", "copy"]
        )
    )
    if name == "copy":
        return draw(st.sampled_from(["copy_by_import", "copy_by_file"])), ()
    if name == "expire":
        threshold = draw(st.sampled_from([0.0, 0.0, 2.0]))
        return name, (draw(STEPS), draw(st.sampled_from([0, 1, 3])), threshold)
    keys = draw(BATCHES)
    if name in ("lookup", "find"):
        size = len(keys)
        counts = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
        return "lookup", (keys, counts, draw(STEPS), name == "lookup")
    if name == "erase":
        return name, (keys,)
    return name, (keys, rows(len(keys), lambda: draw(st.integers(-8, 8))))


def assert_agree(pair, sequence):
    for name, arguments in sequence:
        getattr(pair, name)(*arguments)
        pair.check()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@hypothesis.given(sequence=st.lists(calls(), max_size=25))
def test_a_table_is_a_dict(options, sequence):
    assert_agree(Pair(**options), sequence)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_table_is_a_dict_for_long(options):
    rng = np.random.default_rng(0)
    pair = Pair(**options)
    for step in range(60):
        keys = rng.choice(40, rng.integers(1, 9), replace=False).tolist()
        pair.lookup(keys, rng.integers(1, 3, len(keys)).tolist(), step)
        pair.momentum(keys, rng.integers(-4, 5, (len(keys), 2)).astype(np.float64) * (step < 20))
        pair.check()


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16], ids=dtype_name)
@hypothesis.given(sequence=st.lists(calls(), max_size=15))
def test_a_table_of_another_dtype(dtype, sequence):
    with np.errstate(over="ignore", invalid="ignore"):  # float16 ends at 65504
        assert_agree(Pair(dtype=dtype), sequence)
